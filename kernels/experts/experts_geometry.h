// SPDX-License-Identifier: Apache-2.0
// Shapes of the ops of mixtures of experts, as their kernels and their launches both need them.
#ifndef REPRISE_KERNELS_EXPERTS_EXPERTS_GEOMETRY_H_
#define REPRISE_KERNELS_EXPERTS_EXPERTS_GEOMETRY_H_

#include <cstddef>
#include <cstdint>

#include "kernels/device/traits.h"
#include "kernels/linear/linear_geometry.h"

namespace reprise::kernels {

// Of a layer. A block of the router's kernel has the logits of its tokens in shared memory.
inline constexpr int kMaxExperts = 1024;
inline constexpr int kExpertsRouteTokens = 2;  // of a block
constexpr size_t ExpertsRouteSharedBytes(int num_experts) {
  return sizeof(float) * kExpertsRouteTokens * static_cast<size_t>(num_experts);
}
// The block that sorts has two words for each expert there.
static_assert(ExpertsRouteSharedBytes(1) >= 2 * sizeof(uint32_t));
static_assert(ExpertsRouteSharedBytes(kMaxExperts) <= (size_t{48} << 10));

// Places of one item where no tile bounds them: all of an expert.
inline constexpr int kWholeExpert = INT32_MAX;

// Tiles of linear_packed_body.h's shape, for few places of an expert and for many.
inline constexpr int kFewExpertRows = 16, kManyExpertRows = 64;
// Blocks that a multiprocessor runs at once. Unpacking weights is held up by its instructions, so
// that more of them help; weights of 16 bits are not read faster by three
// (docs/benchmarks/README.md).
constexpr int ExpertBlocks(int tile_rows, int weight_bits) {
  return tile_rows > kFewExpertRows || weight_bits == 16 ? 2 : 3;
}
constexpr bool HasExpertTile(const DeviceTraits& traits, int tile_rows) {
  return HasPackedTile(traits, tile_rows);
}

// Elements that a thread of the combining kernel takes at a time, where a row is a multiple of
// them.
inline constexpr int32_t kExpertsCombinePack = 8;

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_EXPERTS_EXPERTS_GEOMETRY_H_
