// SPDX-License-Identifier: Apache-2.0
// When linear_cluster_body.h is used, and how its launch shares out a weight.
#ifndef REPRISE_KERNELS_LINEAR_CLUSTER_GEOMETRY_H_
#define REPRISE_KERNELS_LINEAR_CLUSTER_GEOMETRY_H_

#include <cstdint>

#include "kernels/device/traits.h"
#include "kernels/linear/group_geometry.h"
#include "kernels/linear/linear_geometry.h"

namespace reprise::kernels {

// A warpgroup multiplies, one sums, and the third brings stages, by one thread or two.
inline constexpr int kLinearClusterThreads = 3 * 128;
inline constexpr int kLinearClusterMultiplyRegisters = 216;
inline constexpr int kLinearClusterLoadRegisters = 72;
inline constexpr int kLinearClusterMaxSpan = kLinearGroupPanelTiles;

constexpr bool HasLinearCluster(const DeviceTraits& traits, int tokens) {
  return HasLinearGroup(traits, tokens) &&
         LinearGroupStages(traits.shared_bytes, tokens, kLinearClusterMaxSpan,
                           LinearGroupFewChunks(tokens, kGroup16), kGroup16,
                           kLinearClusterBlocks) >= LinearGroupMinStages(tokens, kGroup16);
}

// A cluster takes one span. Where multiprocessors come in pairs, as they do, all clusters are there
// at once; bits do not depend on it.
constexpr int64_t LinearClusterSpan(int64_t output_tiles, int64_t multiprocessors) {
  const int64_t clusters = multiprocessors / kLinearClusterBlocks;
  return clusters < 1 ? output_tiles : (output_tiles + clusters - 1) / clusters;
}
// Whether a launch of so many rows of 16-bit weights goes by it: where outputs are few and both
// blocks have a part of K. On an H200 `down` of an 8B model takes 42.4 us at 128 rows, by
// linear_group 51.7, and 30.7 and 33.6 at 64; `o` 14.6 and 16.6, 11.1 and 12.5. Of many rows spans
// must be wide, since narrow ones fill half of the products or less, and K long: layers of a 1B
// model take 1 to 8 % longer by it at 128 rows (docs/benchmarks/README.md). For more rows than a
// tile has there would have to be more clusters than there is room for.
inline constexpr int64_t kLinearClusterFewestRows = 17;
inline constexpr int64_t kLinearClusterSmallRows = 96;  // most where a span is narrow or K short
inline constexpr int64_t kLinearClusterNarrowSpan = 2;
inline constexpr int64_t kLinearClusterShortChunks = 4 * kPackedPartTiles;
constexpr bool LinearTakesCluster(int64_t rows, int64_t output_tiles, int64_t chunks,
                                  int64_t multiprocessors) {
  const int64_t span = LinearClusterSpan(output_tiles, multiprocessors);
  const bool small = span <= kLinearClusterNarrowSpan || chunks <= kLinearClusterShortChunks;
  return rows >= kLinearClusterFewestRows &&
         rows <= (small ? kLinearClusterSmallRows : kLinearGroupMaxTokens) &&
         chunks > kPackedPartTiles && span <= kLinearClusterMaxSpan &&
         multiprocessors >= kLinearClusterBlocks;
}

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_LINEAR_CLUSTER_GEOMETRY_H_
