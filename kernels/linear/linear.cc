// SPDX-License-Identifier: Apache-2.0
#include "kernels/linear/linear.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kernels/launch_check.h"
#include "kernels/linear/instances.h"
#include "kernels/linear/linear_geometry.h"
#include "runtime/status_macros.h"

namespace reprise::kernels {
namespace {

unsigned CeilDiv(unsigned a, unsigned b) { return (a + b - 1) / b; }

// Two blocks per multiprocessor stream the weight.
int64_t MaxSegments(const KernelSet& kernels) {
  return 2 * static_cast<int64_t>(kernels.device.num_multiprocessors);
}

// A function of the weight's shape and the device alone: it decides the K order.
int NumSegments(const KernelSet& kernels, const LinearArgs& args) {
  const int64_t units =
      static_cast<int64_t>(CeilDiv(static_cast<unsigned>(args.out_features), kMatrixTileFeatures)) *
      CeilDiv(static_cast<unsigned>(args.in_features), kMatrixChunkK);
  return static_cast<int>(std::min(units, MaxSegments(kernels)));
}

// The loaded instance of a family that reads such weights, with the smallest tile of at least
// `rows`; of tile 0 where none is that large, or the family knows no tiles. nullptr: none.
const LoadedKernel* Choose(const KernelSet& kernels, const KernelFamily& family,
                           WeightFormat format, uint32_t rows) {
  const LoadedKernel* best = nullptr;
  for (const KernelInstance& instance : kLinearInstances) {
    if (instance.family != &family || instance.weight != format) continue;
    const LoadedKernel* const kernel = kernels.Find(instance);
    if (kernel == nullptr) continue;
    const auto tile = static_cast<uint32_t>(instance.tile);
    if (tile != 0 && tile < rows) continue;
    // Tile 0 comes after all others.
    if (best == nullptr || tile - 1 < static_cast<uint32_t>(best->instance->tile) - 1)
      best = kernel;
  }
  return best;
}

const LoadedKernel* ChooseMatrix(const KernelSet& kernels, WeightFormat format, uint32_t rows) {
  return Choose(kernels, kLinearMatrix, format, rows);
}

// Rows of the tile that a launch of at most so many rows works with, the widest one at most.
int TileRows(const KernelSet& kernels, WeightFormat format, uint32_t max_rows) {
  const int widest = MatrixMaxSplitRows(kernels.traits());
  const uint32_t rows = std::min(static_cast<uint32_t>(widest), max_rows);
  return ChooseMatrix(kernels, format, rows)->instance->tile;
}

runtime::LaunchLabel LabelOf(const LoadedKernel& kernel, const LinearArgs& args) {
  runtime::LaunchLabel label = kernel.label();
  label.rows = args.out_features;
  label.columns = args.in_features;
  return label;
}

absl::Status LaunchMatrix(runtime::Stream& stream, const KernelSet& kernels,
                          const LoadedKernel& kernel, const LinearArgs& args, uint32_t max_rows) {
  const DeviceTraits traits = kernels.traits();
  const int tile = kernel.instance->tile;
  const int rows = tile != 0 ? tile : MatrixMaxSplitRows(traits);
  runtime::LaunchShape shape{.grid_x = static_cast<unsigned>(args.num_segments),
                             .block = kernel.threads,
                             .shared_bytes = static_cast<size_t>(MatrixSharedBytes(traits, rows)),
                             .label = LabelOf(kernel, args)};
  if (tile == 0) {
    shape.grid_x = CeilDiv(static_cast<unsigned>(args.out_features), kMatrixTileFeatures);
    shape.grid_y = CeilDiv(max_rows, static_cast<unsigned>(rows));
  }
  return stream.Launch(kernel.kernel, shape, args);
}

absl::Status LaunchPortable(runtime::Stream& stream, const LoadedKernel& kernel,
                            const LinearArgs& args, uint32_t max_rows) {
  constexpr unsigned kMaxRowBlocks = 64;  // each walks its share of the rows
  const runtime::LaunchShape shape{
      .grid_x = CeilDiv(static_cast<unsigned>(args.out_features), kPortableTileFeatures),
      .grid_y = std::min(CeilDiv(max_rows, kPortableTileRows), kMaxRowBlocks),
      .block = kernel.threads,
      .shared_bytes = kPortableSharedBytes,
      .label = LabelOf(kernel, args)};
  return stream.Launch(kernel.kernel, shape, args);
}

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

// The weight formats that portable instances of this set read, and so all that can be run.
std::string AllowedFormats(const KernelSet& kernels) {
  std::string allowed;
  for (const LoadedKernel& loaded : kernels.loaded())
    if (loaded.instance->family == &kLinearPortable)
      absl::StrAppend(&allowed, allowed.empty() ? "" : ", ", View(NameOf(loaded.instance->weight)));
  return allowed;
}

absl::Status CheckWeights(const KernelSet& kernels, const LinearWeights& weights) {
  if (Choose(kernels, kLinearPortable, weights.format, 0) == nullptr)
    return absl::UnimplementedError(
        absl::StrCat("linear: weights are ", View(NameOf(weights.format)), " with activations of ",
                     View(runtime::NameOf(kernels.dtype)), "; allowed: ", AllowedFormats(kernels)));
  const char* extra = weights.scales != nullptr        ? "scales"
                      : weights.zero_points != nullptr ? "zero points"
                      : weights.group_size != 0        ? "a group size"
                                                       : nullptr;
  if (extra != nullptr)
    return absl::UnimplementedError(absl::StrCat("linear: weights of format ",
                                                 View(NameOf(weights.format)), " have ", extra,
                                                 "; allowed: none with this format"));
  if (weights.shard.world != 1 || weights.shard.rank != 0)
    return absl::UnimplementedError(absl::StrCat("linear: weights are shard ", weights.shard.rank,
                                                 " of ", weights.shard.world,
                                                 "; allowed: shard 0 of 1, the whole matrix"));
  return absl::OkStatus();
}

absl::Status CheckFeatures(const char* what, int64_t features) {
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("linear", what, features, 1));
  if (features > INT32_MAX)
    return absl::InvalidArgumentError(
        absl::StrCat("linear: ", what, " is ", features, "; allowed: at most ", INT32_MAX));
  return absl::OkStatus();
}

}  // namespace

size_t LinearPartialFloats(const KernelSet& kernels, uint32_t max_rows) {
  const WeightFormat format = WeightFormatOf(kernels.dtype);
  if (ChooseMatrix(kernels, format, 1) == nullptr) return 0;
  return 2 * static_cast<size_t>(MaxSegments(kernels)) * kMatrixTileFeatures *
         static_cast<size_t>(TileRows(kernels, format, max_rows));
}

size_t LinearNumCounters(const KernelSet& kernels, uint32_t max_out_features) {
  const bool has_matrix = ChooseMatrix(kernels, WeightFormatOf(kernels.dtype), 1) != nullptr;
  return has_matrix ? CeilDiv(max_out_features, kMatrixTileFeatures) : 0;
}

absl::Status Linear(runtime::Stream& stream, const KernelSet& kernels, const LinearWeights& weights,
                    LinearArgs args, uint32_t max_rows, LinearCandidate candidate) {
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("linear", "max_rows", max_rows, 1));
  REPRISE_RETURN_IF_ERROR(CheckFeatures("in_features", weights.in_features));
  REPRISE_RETURN_IF_ERROR(CheckFeatures("out_features", weights.out_features));
  REPRISE_RETURN_IF_ERROR(CheckWeights(kernels, weights));
  args.weight = weights.data;
  args.bias = weights.bias;
  args.in_features = static_cast<int32_t>(weights.in_features);
  args.out_features = static_cast<int32_t>(weights.out_features);
  args.num_segments = 0;
  if (candidate == LinearCandidate::kBest) {
    if (const LoadedKernel* native = Choose(kernels, kLinearNative, weights.format, 0)) {
      const unsigned tiles = CeilDiv(static_cast<unsigned>(args.out_features), kNativeTileFeatures);
      return stream.Launch(native->kernel, {.grid_x = tiles, .label = LabelOf(*native, args)},
                           args);
    }
    const LoadedKernel* matrix = ChooseMatrix(kernels, weights.format, max_rows);
    // 16-byte copies need rows that start at multiples of 16 bytes.
    if (matrix != nullptr && args.in_features % 8 == 0) {
      args.num_segments = NumSegments(kernels, args);
      return LaunchMatrix(stream, kernels, *matrix, args, max_rows);
    }
  }
  return LaunchPortable(stream, *Choose(kernels, kLinearPortable, weights.format, 0), args,
                        max_rows);
}

}  // namespace reprise::kernels
