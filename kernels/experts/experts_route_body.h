// SPDX-License-Identifier: Apache-2.0
// Body of the router, block style: a block chooses for kExpertsRouteTokens tokens, and the block
// that ends last sorts all choices by expert and lists the items.
//
// An expert's rank among a token's logits is counted, not sorted: every expert is compared with all
// others at once. Where in its expert a choice is put depends on which thread comes first; no bits
// of a result do.
#ifndef REPRISE_KERNELS_EXPERTS_EXPERTS_ROUTE_BODY_H_
#define REPRISE_KERNELS_EXPERTS_EXPERTS_ROUTE_BODY_H_

#include "kernels/device/block.h"
#include "kernels/experts/experts_args.h"
#include "kernels/experts/experts_geometry.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

// Writes expert and share of the choices of tokens [first, first + tokens). Dynamic shared memory:
// their logits.
REPRISE_FN void ChooseExperts(Block& b, const ExpertsRouteArgs& a, int64_t first, int tokens) {
  const int experts = a.num_experts, top_k = a.top_k;
  float* const logits = b.Shared<float>();
  uint32_t* const chosen = a.routes.expert + first * top_k;
  b.For(tokens * experts, [&](int i) { logits[i] = a.logits[first * experts + i]; });
  b.Sync();
  const auto key = [](float logit) { return logit == logit ? logit : -Infinity(); };
  b.For(tokens * experts, [&](int i) {
    const float* const row = logits + i / experts * experts;
    const int expert = i % experts;
    const float own = key(row[expert]);
    int rank = 0;
    for (int other = 0; other < experts; ++other) {
      const float of_other = key(row[other]);
      rank += of_other > own || (of_other == own && other < expert) ? 1 : 0;
    }
    if (rank < top_k) chosen[i / experts * top_k + rank] = static_cast<uint32_t>(expert);
  });
  b.Sync();
  b.For(tokens * top_k, [&](int i) {
    const float* const row = logits + i / top_k * experts;
    const uint32_t* const of_token = chosen + i / top_k * top_k;
    const float largest = row[of_token[0]];
    float sum = 0.0f;
    if (a.normalised != 0) {
      for (int rank = 0; rank < top_k; ++rank) sum += Exp(row[of_token[rank]] - largest);
    } else {
      for (int expert = 0; expert < experts; ++expert) sum += Exp(row[expert] - largest);
    }
    a.routes.share[first * top_k + i] = Exp(row[chosen[i]] - largest) / sum;
  });
}

// Dynamic shared memory: how many choices an expert has, and its next free place.
REPRISE_FN void SortChoices(Block& b, const ExpertsRouteArgs& a, int choices) {
  const int experts = a.num_experts;
  uint32_t* const count = b.Shared<uint32_t>();
  uint32_t* const next = count + experts;
  b.For(experts, [&](int expert) { count[expert] = 0; });
  b.Sync();
  b.For(choices, [&](int i) { b.AtomicAdd(count + a.routes.expert[i], 1u); });
  b.Sync();
  b.ExclusiveScan(
      experts, [&](int expert) { return count[expert]; },
      [&](int expert, uint32_t before) { next[expert] = before; });
  const auto tile = static_cast<uint32_t>(a.tile_rows);
  const uint32_t items = b.ExclusiveScan(
      experts, [&](int expert) { return count[expert] / tile + (count[expert] % tile != 0); },
      [&](int expert, uint32_t before) {
        const uint32_t of_expert = count[expert] / tile + (count[expert] % tile != 0);
        for (uint32_t i = 0; i < of_expert; ++i) {
          const uint32_t left = count[expert] - i * tile;
          a.routes.items[before + i] = {static_cast<uint32_t>(expert), next[expert] + i * tile,
                                        left < tile ? left : tile, i, of_expert};
        }
      });
  b.Once([&] { *a.routes.counts = {items, static_cast<uint32_t>(choices)}; });
  b.For(choices, [&](int i) {
    const uint32_t place = b.AtomicAdd(next + a.routes.expert[i], 1u);
    a.routes.place[i] = place;
    a.routes.token[place] = static_cast<uint32_t>(i / a.top_k);
  });
}

// Grid x: runs of tokens, live or not.
REPRISE_FN void ExpertsRouteBody(Block& b, const ExpertsRouteArgs& a) {
  const int64_t tokens = *a.num_tokens;
  const int64_t first = static_cast<int64_t>(b.x()) * kExpertsRouteTokens;
  if (first < tokens)
    ChooseExperts(b, a, first,
                  static_cast<int>(tokens - first < kExpertsRouteTokens ? tokens - first
                                                                        : kExpertsRouteTokens));
  if (!b.ArriveIsLast(a.arrivals, static_cast<uint32_t>(b.grid_x()))) return;
  SortChoices(b, a, static_cast<int>(tokens) * a.top_k);
}

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_EXPERTS_EXPERTS_ROUTE_BODY_H_
