// SPDX-License-Identifier: Apache-2.0
// Shapes and shared memory of linear_group_body.h, as its kernel and its launch both need them.
#ifndef REPRISE_KERNELS_LINEAR_GROUP_GEOMETRY_H_
#define REPRISE_KERNELS_LINEAR_GROUP_GEOMETRY_H_

#include <cstdint>

#include "kernels/device/traits.h"
#include "kernels/linear/linear_geometry.h"

namespace reprise::kernels {

// Two warpgroups multiply; the warps of the third bring stages, in turn.
inline constexpr int kLinearGroupWarps = 8;
inline constexpr int kLinearGroupLoadWarps = 4;
inline constexpr int kLinearGroupThreads = (kLinearGroupWarps + kLinearGroupLoadWarps) * 32;
// Registers of their threads: those who multiply hold the sum of a part and that of all.
inline constexpr int kLinearGroupMultiplyRegisters = 216;
inline constexpr int kLinearGroupLoadRegisters = 72;

// A stage: 64 input features of all tiles of 16 outputs that a block takes at a time, its span, and
// of a tile of tokens. Panels of products of a warpgroup have room for four tiles each.
inline constexpr int kLinearGroupPanelTiles = 4;
inline constexpr int kLinearGroupMaxSpan = 2 * kLinearGroupPanelTiles;
inline constexpr int kLinearGroupMaxStages = 16;

constexpr uint32_t LinearGroupWeightBytes(int span) {
  return static_cast<uint32_t>((span + kLinearGroupPanelTiles - 1) / kLinearGroupPanelTiles *
                               kLinearGroupPanelTiles) *
         kPackedTileBytes;
}
constexpr uint32_t LinearGroupStageBytes(int tokens, int span) {
  return LinearGroupWeightBytes(span) + static_cast<uint32_t>(tokens * kPackedTileInputs) * 2;
}
// Behind the stages: barriers, full and empty of each.
inline constexpr uint32_t kLinearGroupBarrierBytes = 2 * kLinearGroupMaxStages * 8;
// shared_bytes: of a block, DeviceTraits'.
constexpr int LinearGroupStages(int shared_bytes, int tokens, int span) {
  const int fit =
      static_cast<int>((static_cast<uint32_t>(shared_bytes) - kLinearGroupBarrierBytes) /
                       LinearGroupStageBytes(tokens, span));
  return fit < kLinearGroupMaxStages ? fit : kLinearGroupMaxStages;
}
constexpr uint32_t LinearGroupSharedBytes(int shared_bytes, int tokens, int span) {
  return static_cast<uint32_t>(LinearGroupStages(shared_bytes, tokens, span)) *
             LinearGroupStageBytes(tokens, span) +
         kLinearGroupBarrierBytes;
}
static_assert(LinearGroupStageBytes(32, 1) % 1024 == 0);

inline constexpr int kLinearGroupMaxTokens = 128;
constexpr bool HasLinearGroup(const DeviceTraits& traits, int tokens) {
  return traits.group_products && LinearGroupStages(traits.shared_bytes, tokens,
                                                    kLinearGroupMaxSpan) >= kLinearGroupLoadWarps;
}

// How many blocks bring stages as fast as memory gives weights: on an H200 one brings 64 GB/s, of
// weights and tokens together, and memory gives 4.6 TB/s (docs/benchmarks/linear_8b_h200.json).
inline constexpr int64_t kLinearGroupBlocksAtMemorySpeed = 72;

// What a launch with such a span takes, by that: rounds of the blocks that run at once, each as
// long as its slowest part. token_tiles: of `tokens` tokens each.
constexpr int64_t LinearGroupCost(int64_t output_tiles, int tokens, int64_t token_tiles,
                                  int64_t multiprocessors, int span) {
  const int64_t spans = (output_tiles + span - 1) / span;
  const int64_t columns = spans < multiprocessors ? spans : multiprocessors;
  const int64_t blocks = columns * token_tiles;
  const int64_t rounds =
      (spans + columns - 1) / columns * ((blocks + multiprocessors - 1) / multiprocessors);
  const int64_t at_once = blocks < multiprocessors ? blocks : multiprocessors;
  const int64_t of_a_block = kLinearGroupBlocksAtMemorySpeed * LinearGroupStageBytes(tokens, span);
  const int64_t of_memory = at_once * span * kPackedTileBytes;
  return rounds * (of_a_block > of_memory ? of_a_block : of_memory);
}

// The span with which a launch takes least, and of equal ones the widest: it has the fewest blocks,
// which all read the same tokens. Changes no bits.
constexpr int LinearGroupSpan(int64_t output_tiles, int tokens, int64_t token_tiles,
                              int64_t multiprocessors) {
  int best = 1;
  int64_t least = INT64_MAX;
  for (int span = 1; span <= kLinearGroupMaxSpan; ++span) {
    const int64_t cost = LinearGroupCost(output_tiles, tokens, token_tiles, multiprocessors, span);
    if (cost > least) continue;
    best = span;
    least = cost;
  }
  return best;
}

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_LINEAR_GROUP_GEOMETRY_H_
