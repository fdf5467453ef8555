// SPDX-License-Identifier: Apache-2.0
#include "kernels/linear/linear.h"

#include <algorithm>

#include "kernels/launch_check.h"
#include "kernels/linear/host_native.h"
#include "kernels/linear/matrix_geometry.h"
#include "runtime/status_macros.h"

namespace reprise::kernels {
namespace {

constexpr int kNumSplitTiles = static_cast<int>(std::size(kMatrixTileRows));
static_assert(KernelSet::kNumLinearTiles == kNumSplitTiles + 1);

unsigned CeilDiv(unsigned a, unsigned b) { return (a + b - 1) / b; }

// Two blocks per multiprocessor stream the weight.
int64_t MaxSegments(const KernelSet& kernels) {
  return 2 * static_cast<int64_t>(kernels.device.num_multiprocessors);
}

runtime::LaunchLabel LabelOf(const char* op, const LinearArgs& args) {
  return {.op = op, .rows = args.out_features, .columns = args.in_features};
}

// A function of the weight's shape and the device alone: it decides the K order.
int NumSegments(const KernelSet& kernels, const LinearArgs& args) {
  const int64_t units =
      static_cast<int64_t>(CeilDiv(static_cast<unsigned>(args.out_features), kMatrixTileFeatures)) *
      CeilDiv(static_cast<unsigned>(args.in_features), kMatrixChunkK);
  return static_cast<int>(std::min(units, MaxSegments(kernels)));
}

DeviceTraits TraitsOf(const KernelSet& kernels) {
  return kernels::TraitsOf(kernels.device.matrix_unit);
}

bool HasMatrixLinear(const KernelSet& kernels) {
  return kernels.linear_matrix[kNumSplitTiles].handle != nullptr;
}

// Index in kMatrixTileRows of the smallest tile of the device that holds so many rows.
int TileFor(const KernelSet& kernels, uint32_t rows) {
  int tile = 0;
  while (!HasMatrixTile(TraitsOf(kernels), kMatrixTileRows[tile]) ||
         static_cast<uint32_t>(kMatrixTileRows[tile]) < rows)
    ++tile;
  return tile;
}

absl::Status LaunchMatrix(runtime::Stream& stream, const KernelSet& kernels, const LinearArgs& args,
                          uint32_t max_rows) {
  const DeviceTraits traits = TraitsOf(kernels);
  const int widest = MatrixMaxSplitRows(traits);
  if (max_rows > static_cast<uint32_t>(widest)) {
    const runtime::LaunchShape shape{
        .grid_x = CeilDiv(static_cast<unsigned>(args.out_features), kMatrixTileFeatures),
        .grid_y = CeilDiv(max_rows, static_cast<unsigned>(widest)),
        .block = kMatrixLinearThreads,
        .shared_bytes = static_cast<size_t>(MatrixSharedBytes(traits, widest)),
        .label = LabelOf("linear_matrix", args)};
    return stream.Launch(kernels.linear_matrix[kNumSplitTiles], shape, args);
  }
  const int tile = TileFor(kernels, max_rows);
  const int rows = kMatrixTileRows[tile];
  const runtime::LaunchShape shape{
      .grid_x = static_cast<unsigned>(args.num_segments),
      .block = kMatrixLinearThreads,
      .shared_bytes = static_cast<size_t>(MatrixSharedBytes(traits, rows)),
      .label = LabelOf("linear_matrix", args)};
  return stream.Launch(kernels.linear_matrix[tile], shape, args);
}

absl::Status LaunchPortable(runtime::Stream& stream, const KernelSet& kernels,
                            const LinearArgs& args, uint32_t max_rows) {
  // portable_body.h: tiles of 8 rows x 32 features, K in pieces of 64, rows of 65 words in shared
  // memory.
  const runtime::LaunchShape shape{.grid_x = CeilDiv(static_cast<unsigned>(args.out_features), 32),
                                   .grid_y = std::min(CeilDiv(max_rows, 8), 64u),
                                   .block = 256,
                                   .shared_bytes = sizeof(float) * (8 * 65 + 32 * 65 + 8 * 32),
                                   .label = LabelOf("linear_portable", args)};
  return stream.Launch(kernels.linear_portable, shape, args);
}

}  // namespace

size_t LinearPartialFloats(const KernelSet& kernels, uint32_t max_rows) {
  if (!HasMatrixLinear(kernels)) return 0;
  const int widest = MatrixMaxSplitRows(TraitsOf(kernels));
  const int tile = TileFor(kernels, std::min(static_cast<uint32_t>(widest), max_rows));
  return 2 * static_cast<size_t>(MaxSegments(kernels)) * kMatrixTileFeatures *
         static_cast<size_t>(kMatrixTileRows[tile]);
}

size_t LinearNumCounters(const KernelSet& kernels, uint32_t max_out_features) {
  return HasMatrixLinear(kernels) ? CeilDiv(max_out_features, kMatrixTileFeatures) : 0;
}

absl::Status Linear(runtime::Stream& stream, const KernelSet& kernels, LinearArgs args,
                    uint32_t max_rows, LinearCandidate candidate) {
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("linear", "max_rows", max_rows, 1));
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("linear", "in_features", args.in_features, 1));
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("linear", "out_features", args.out_features, 1));
  if (candidate == LinearCandidate::kBest) {
    if (kernels.is_host_native()) {
      const unsigned tiles = CeilDiv(static_cast<unsigned>(args.out_features),
                                     static_cast<unsigned>(on_host::kNativeTileFeatures));
      return stream.Launch(kernels.linear_native,
                           {.grid_x = tiles, .label = LabelOf("linear_native", args)}, args);
    }
    // 16-byte copies need rows that start at multiples of 16 bytes.
    if (HasMatrixLinear(kernels) && args.in_features % 8 == 0) {
      args.num_segments = NumSegments(kernels, args);
      return LaunchMatrix(stream, kernels, args, max_rows);
    }
  }
  return LaunchPortable(stream, kernels, args, max_rows);
}

}  // namespace reprise::kernels
