// SPDX-License-Identifier: Apache-2.0
// Arguments of the ops of mixtures of experts. See experts.h.
#ifndef REPRISE_KERNELS_EXPERTS_EXPERTS_ARGS_H_
#define REPRISE_KERNELS_EXPERTS_EXPERTS_ARGS_H_

#include <cstdint>

#include "kernels/linear/linear_args.h"

namespace reprise::kernels {

// One token's share in one expert is a choice: choice `token * top_k + rank`, most likely expert
// first. Sorted by expert, choices have places: those of an expert lie side by side.

// An item of work: so many places of one expert, the first of them `first`.
struct ExpertItem {
  uint32_t expert = 0;
  uint32_t first = 0;
  uint32_t count = 0;  // at most ExpertsRouteArgs::tile_rows
  // Which of the expert's items this is, and how many it has: they lie side by side.
  uint32_t index = 0, of_expert = 0;
};

struct ExpertCounts {
  uint32_t num_items = 0;
  uint32_t num_places = 0;  // of live tokens: a padding row has none
};

// Where tokens go, as the router's kernel writes it and all others read it. Nothing of it outlives
// a step.
struct ExpertRoutes {
  uint32_t* expert = nullptr;      // [tokens * top_k] of a choice
  float* share = nullptr;          // [tokens * top_k] of a choice: what its result is multiplied by
  uint32_t* place = nullptr;       // [tokens * top_k] of a choice
  uint32_t* token = nullptr;       // [tokens * top_k] of a place
  ExpertItem* items = nullptr;     // [MaxExpertItems]
  ExpertCounts* counts = nullptr;  // one
};

struct ExpertsRouteArgs {
  const float* logits = nullptr;         // [tokens, num_experts] of the router
  const uint32_t* num_tokens = nullptr;  // live count
  ExpertRoutes routes = {};
  uint32_t* arrivals = nullptr;  // one word, zero before and after
  int32_t num_experts = 0;
  int32_t top_k = 0;
  // Shares are a softmax over the chosen experts; 0: over all of them.
  int32_t normalised = 0;
  int32_t tile_rows = 0;  // ExpertTileRows
};

// A linear layer whose matrix is that of an item's expert.
struct ExpertsLinearArgs {
  // Of the first expert. x: row `token` of a place, or the place itself where gathers is 0. out:
  // [places, out_features], or half of it with silu_mul. num_rows, partials and counters are not
  // used.
  LinearArgs linear = {};
  const uint32_t* token = nullptr;  // ExpertRoutes'
  const ExpertItem* items = nullptr;
  const ExpertCounts* counts = nullptr;
  int64_t expert_elements = 0;  // from an expert's matrix to the next one's
  int64_t expert_scales = 0;    // and of scales, where weights have some
  int32_t gathers = 0;
};

struct ExpertsCombineArgs {
  const void* x = nullptr;               // [places, hidden] T
  void* out = nullptr;                   // [tokens, hidden] T
  const uint32_t* num_tokens = nullptr;  // live count
  const float* share = nullptr;          // ExpertRoutes'
  const uint32_t* place = nullptr;       // the same
  const void* plus = nullptr;            // [tokens, hidden] T, or null; may be out
  int32_t top_k = 0;
  int32_t hidden = 0;
};

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_EXPERTS_EXPERTS_ARGS_H_
