// SPDX-License-Identifier: Apache-2.0
// Arguments of the ops of Mamba-2 layers. See mamba.h.
#ifndef REPRISE_KERNELS_MAMBA_MAMBA_ARGS_H_
#define REPRISE_KERNELS_MAMBA_MAMBA_ARGS_H_

#include <cstddef>
#include <cstdint>

#include "kernels/step/ring.h"

namespace reprise::kernels {

// The rows that run, as StepPlan lists them: entry e has the tokens [query_start[e],
// query_start[e + 1]) of the step.
struct MambaRows {
  const uint32_t* num_rows = nullptr;        // live count
  const RowEntry* entries = nullptr;         // their slots
  const uint32_t* query_start = nullptr;     // [rows + 1]
  const uint32_t* context_before = nullptr;  // [rows] 0: the row has no state yet
};

struct MambaConvArgs {
  // [tokens, projected_size] T, of which elements [offset, offset + channels) are convolved.
  const void* projected = nullptr;
  void* out = nullptr;            // [tokens, channels] T
  void* state = nullptr;          // [max_rows, width - 1, channels] T, by slot, oldest first
  const float* weight = nullptr;  // [channels, width], the newest input's last
  const float* bias = nullptr;    // [channels], or null
  MambaRows rows = {};
  int32_t projected_size = 0;
  int32_t offset = 0;
  int32_t channels = 0;
  int32_t width = 0;
  // Set by MambaConv.
  int32_t max_rows = 0;  // of the launch
};

struct MambaScanArgs {
  // [tokens, num_heads * head_dim + 2 * num_groups * state_size] T: x, B and C.
  const void* convolved = nullptr;
  const void* projected = nullptr;  // [tokens, projected_size] T, whose last num_heads are dt
  void* y = nullptr;                // [tokens, num_heads, head_dim] T
  float* state = nullptr;           // [max_rows, num_heads, head_dim, state_size], by slot
  // [num_heads] each.
  const float* a_log = nullptr;
  const float* d = nullptr;
  const float* dt_bias = nullptr;
  MambaRows rows = {};
  int32_t projected_size = 0;
  int32_t num_heads = 0;
  int32_t head_dim = 0;
  int32_t num_groups = 0;
  int32_t state_size = 0;
  // dt is brought into [min_dt, max_dt].
  float min_dt = 0.0f;
  float max_dt = 0.0f;
};

struct MambaNormArgs {
  const void* y = nullptr;          // [tokens, size] T
  const void* projected = nullptr;  // [tokens, projected_size] T, whose first `size` are the gate
  const void* weight = nullptr;     // [size] T
  void* out = nullptr;              // [tokens, size] T; may be y
  const uint32_t* num_tokens = nullptr;  // live count
  int32_t projected_size = 0;
  int32_t size = 0;
  float eps = 0.0f;
};

// Channels of a block of the convolution, and tokens: of a row's first block no fewer than read the
// row's state.
constexpr int32_t kMambaConvChannels = 256;
constexpr int32_t kMambaConvTokens = 16;
constexpr int32_t MambaConvHeadTokens(int32_t width) {
  return width - 1 > kMambaConvTokens ? width - 1 : kMambaConvTokens;
}

// Of the scan, see mamba_body.h: parts that the sum over the state of one element of a head is
// added in, threads of a block, tokens of a piece at most, and packs of their B and C that a thread
// brings. Sums do not change with rows or tokens.
constexpr int32_t kMambaLanes = 8;
constexpr int32_t kMambaScanThreads = 128;
constexpr int32_t kMambaItems = kMambaScanThreads / kMambaLanes;
constexpr int32_t kMambaScanTokens = 16;
constexpr int32_t kMambaScanInPacks = 8;
constexpr int32_t kMambaMaxHeadDim = 128;
// State is read in packs of 4 numbers where its rows and those of T allow it, else one by one.
// inner: elements of all heads.
constexpr int32_t kMambaWidth = 4;
constexpr int32_t MambaScanWidth(int64_t state_size, int64_t inner) {
  return state_size % kMambaWidth == 0 && inner % kMambaWidth == 0 ? kMambaWidth : 1;
}
constexpr int32_t MambaScanWidth(const MambaScanArgs& a) {
  return MambaScanWidth(a.state_size, int64_t{a.num_heads} * a.head_dim);
}
// A thread has room for so many packs: all of one element, or, of the size that published models
// have, those of two.
constexpr int32_t kMambaMostPacks = 8, kMambaFewPacks = 4;
constexpr int32_t MambaMaxStateSize(int32_t width) { return kMambaMostPacks * kMambaLanes * width; }
constexpr int32_t MambaScanPacks(const MambaScanArgs& a) {
  return MambaScanWidth(a) == kMambaWidth &&
                 a.state_size == kMambaFewPacks * kMambaLanes * kMambaWidth
             ? kMambaFewPacks
             : kMambaMostPacks;
}
// Elements of a block.
constexpr int32_t MambaScanDim(int32_t packs) { return kMambaItems * kMambaMostPacks / packs; }

// Rows that a block of a launch with prompts takes in turn are this many apart: most of its rows
// have no tokens, and their blocks would take time.
constexpr uint32_t kMambaPromptRows = 8;

// Dynamic shared memory of the scan, bytes.
constexpr size_t MambaScanSharedBytes(const MambaScanArgs& a) {
  const int32_t in = kMambaScanInPacks * kMambaScanThreads * MambaScanWidth(a);
  const int32_t of_tokens = MambaScanDim(MambaScanPacks(a)) * (kMambaLanes + 2);
  return static_cast<size_t>(in + kMambaScanTokens * of_tokens + 2 * kMambaScanThreads) *
         sizeof(float);
}
// Of a launch with prompts, where a multiprocessor has so much for a block: more than it has for
// each of blocks + 1. A prompt has few blocks, and where they begin before the kernel ahead has
// ended, those multiprocessors that are free first would take four of them, and be the last to end.
constexpr size_t MambaPromptSharedBytes(const MambaScanArgs& a, int most, int blocks) {
  const size_t share = static_cast<size_t>(most) / static_cast<size_t>(blocks + 1) + 1;
  const size_t own = MambaScanSharedBytes(a);
  return own < share ? share : own;
}

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_MAMBA_MAMBA_ARGS_H_
