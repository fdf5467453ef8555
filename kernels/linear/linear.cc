// SPDX-License-Identifier: Apache-2.0
#include "kernels/linear/linear.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kernels/launch_check.h"
#include "kernels/linear/cluster_geometry.h"
#include "kernels/linear/group_geometry.h"
#include "kernels/linear/instances.h"
#include "kernels/linear/linear_choice.h"
#include "kernels/linear/linear_geometry.h"
#include "kernels/linear/stream_geometry.h"
#include "runtime/map_tiles.h"
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

const LoadedKernel* FindMatrix(const KernelSet& kernels, WeightFormat format, uint32_t rows) {
  return FindLinearTile(kernels, LinearFamiliesOf(format, kScaleInputs).matrix, format, rows);
}

// Rows of the tile that a launch of at most so many rows works with, the widest one at most.
int TileRows(const KernelSet& kernels, WeightFormat format, uint32_t max_rows) {
  const int widest = MatrixMaxSplitRows(kernels.traits());
  const uint32_t rows = std::min(static_cast<uint32_t>(widest), max_rows);
  return FindMatrix(kernels, format, rows)->instance->tile;
}

// The widest tile that partial sums must have room for: a table may name a wider one.
int WidestTileRows(const KernelSet& kernels, WeightFormat format, uint32_t max_rows) {
  int widest = TileRows(kernels, format, max_rows);
  for (const LinearTableEntry& entry : kernels.linear_table)
    if (entry.kernel->family == &kLinearMatrix) widest = std::max(widest, entry.kernel->tile);
  return widest;
}

// A launch of a kernel that was chosen.
struct LinearLaunch {
  runtime::Stream& stream;
  const KernelSet& kernels;
  const LoadedKernel& kernel;
  uint32_t max_rows = 1;
  runtime::LaunchLabel label = {};
};

absl::Status LaunchMatrix(const LinearLaunch& launch, LinearArgs args) {
  const DeviceTraits traits = launch.kernels.traits();
  const int tile = launch.kernel.instance->tile;
  const int rows = tile != 0 ? tile : MatrixMaxSplitRows(traits);
  args.num_segments = NumSegments(launch.kernels, args);
  runtime::LaunchShape shape{.grid_x = static_cast<unsigned>(args.num_segments),
                             .block = launch.kernel.threads,
                             .shared_bytes = static_cast<size_t>(MatrixSharedBytes(traits, rows)),
                             .label = launch.label};
  if (tile == 0) {
    shape.grid_x = CeilDiv(static_cast<unsigned>(args.out_features), kMatrixTileFeatures);
    shape.grid_y = CeilDiv(launch.max_rows, static_cast<unsigned>(rows));
  }
  return launch.stream.Launch(launch.kernel.kernel, shape, args);
}

absl::Status LaunchPacked(const LinearLaunch& launch, const LinearArgs& args) {
  const DeviceTraits traits = launch.kernels.traits();
  const KernelInstance& instance = *launch.kernel.instance;
  const int weight_bits = BitsOf(instance.weight);
  const int rows = instance.tile != 0 ? instance.tile : PackedMaxRows(traits, weight_bits);
  return launch.stream.Launch(
      launch.kernel.kernel,
      {.grid_x = CeilDiv(static_cast<unsigned>(args.out_features),
                         static_cast<unsigned>(PackedTileFeatures(rows))),
       .grid_y = CeilDiv(launch.max_rows, static_cast<unsigned>(rows)),
       .block = launch.kernel.threads,
       .shared_bytes = static_cast<size_t>(PackedSharedBytes(traits, rows, weight_bits)),
       .label = launch.label},
      args);
}

// linear_group or linear_cluster, of as many tiles of the kernel's tokens as it takes.
absl::Status LaunchGroup(const LinearLaunch& launch, const LinearArgs& linear) {
  const KernelSet& kernels = launch.kernels;
  const KernelInstance& instance = *launch.kernel.instance;
  const uint32_t max_rows = launch.max_rows;
  const int tokens = instance.tile, shared_bytes = kernels.traits().shared_bytes;
  const GroupFormat group_format(instance.weight);
  const bool shares_k = instance.family == &kLinearCluster;
  const int blocks = shares_k ? kLinearClusterBlocks : 1;
  const int64_t output_tiles = PackedLayout{linear.out_features, linear.in_features}.OutputTiles();
  const int64_t multiprocessors = kernels.device.num_multiprocessors;
  const unsigned token_tiles = CeilDiv(max_rows, static_cast<unsigned>(tokens));
  LinearGroupArgs args{.linear = linear};
  if (instance.weight == WeightFormat::kE4m3Rounded) {
    // Two of 8 bits lie in the place of one of 16, in weights and in x.
    args.linear.in_features /= 2;
    args.linear.scale_inputs /= 2;
  }
  args.span =
      shares_k ? static_cast<int>(LinearClusterSpan(output_tiles, multiprocessors))
               : LinearGroupSpan(output_tiles, tokens, token_tiles, multiprocessors, group_format);
  args.stage_chunks = LinearGroupStageChunks(shared_bytes, tokens, args.span, group_format, blocks);
  args.copied_rows = LinearGroupCopiedRows(tokens, max_rows);
  args.whole_stages =
      LinearGroupCopiesWholeStages(tokens, args.copied_rows, args.linear.in_features) ? 1 : 0;
  REPRISE_ASSIGN_OR_RETURN(args.tokens,
                           MapTiles(kernels.device.kind, LinearGroupTokens(args, max_rows)));
  REPRISE_ASSIGN_OR_RETURN(args.weights,
                           MapTiles(kernels.device.kind, LinearGroupWeights(args, group_format)));
  if (group_format.stage_scales) {
    REPRISE_ASSIGN_OR_RETURN(args.scales, MapTiles(kernels.device.kind, LinearGroupScales(args)));
  }
  const int64_t columns =
      shares_k ? (output_tiles + args.span - 1) / args.span * blocks
               : LinearGroupColumns(output_tiles, token_tiles, multiprocessors, args.span);
  return launch.stream.Launch(
      launch.kernel.kernel,
      {.grid_x = static_cast<unsigned>(columns),
       .grid_y = token_tiles,
       .block = launch.kernel.threads,
       .shared_bytes = LinearGroupSharedBytes(shared_bytes, tokens, args.span, args.stage_chunks,
                                              group_format, blocks),
       .label = launch.label},
      args);
}

// A block for each multiprocessor, and no block without a tile.
absl::Status LaunchStream(const LinearLaunch& launch, const LinearArgs& args) {
  const unsigned tiles = CeilDiv(static_cast<unsigned>(args.out_features), kPackedTileOutputs);
  const auto blocks = static_cast<unsigned>(launch.kernels.device.num_multiprocessors);
  return launch.stream.Launch(launch.kernel.kernel,
                              {.grid_x = std::min(tiles, blocks),
                               .block = launch.kernel.threads,
                               .shared_bytes = StreamLayoutOf(*launch.kernel.instance).bytes,
                               .label = launch.label},
                              args);
}

absl::Status LaunchNative(const LinearLaunch& launch, const LinearArgs& args) {
  const unsigned tiles = CeilDiv(static_cast<unsigned>(args.out_features), kNativeTileFeatures);
  return launch.stream.Launch(launch.kernel.kernel, {.grid_x = tiles, .label = launch.label}, args);
}

absl::Status LaunchPortable(const LinearLaunch& launch, const LinearArgs& args) {
  constexpr unsigned kMaxRowBlocks = 64;  // each walks its share of the rows
  const runtime::LaunchShape shape{
      .grid_x = CeilDiv(static_cast<unsigned>(args.out_features), kPortableTileFeatures),
      .grid_y = std::min(CeilDiv(launch.max_rows, kPortableTileRows), kMaxRowBlocks),
      .block = launch.kernel.threads,
      .shared_bytes = kPortableSharedBytes,
      .label = launch.label};
  return launch.stream.Launch(launch.kernel.kernel, shape, args);
}

// By its family.
absl::Status Launch(const LinearLaunch& launch, const LinearFamilies& families,
                    const LinearArgs& args) {
  const KernelFamily* const family = launch.kernel.instance->family;
  if (family == families.group || family == families.cluster) return LaunchGroup(launch, args);
  if (family == families.stream) return LaunchStream(launch, args);
  if (family == families.packed) return LaunchPacked(launch, args);
  if (family == families.matrix) return LaunchMatrix(launch, args);
  if (family == families.native) return LaunchNative(launch, args);
  return LaunchPortable(launch, args);
}

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

// The weight formats that portable instances of this set read, and so all that can be run.
std::string AllowedFormats(const KernelSet& kernels) {
  std::string allowed;
  for (const LoadedKernel& loaded : kernels.loaded())
    if (loaded.instance->family == LinearFamiliesOf(loaded.instance->weight, kScaleInputs).portable)
      absl::StrAppend(&allowed, allowed.empty() ? "" : ", ", View(NameOf(loaded.instance->weight)));
  return allowed;
}

const LoadedKernel* FindPortable(const KernelSet& kernels, const LinearWeights& weights) {
  const KernelFamily* const family = LinearFamiliesOf(weights.format, weights.group_size).portable;
  return FindLinearTile(kernels, family, weights.format, 0);
}

absl::Status CheckWeights(const KernelSet& kernels, const LinearWeights& weights) {
  if (FindPortable(kernels, weights) == nullptr)
    return absl::UnimplementedError(
        absl::StrCat("linear: weights are ", View(NameOf(weights.format)), " with activations of ",
                     View(runtime::NameOf(kernels.dtype)), "; allowed: ", AllowedFormats(kernels)));
  REPRISE_RETURN_IF_ERROR(CheckScales("linear", weights));
  if (IsPacked(weights.layout) && !CanPack(weights.format))
    return absl::UnimplementedError(
        absl::StrCat("linear: weights are packed and ", View(NameOf(weights.format)),
                     "; allowed: packed bf16, f16, int4, fp8_e4m3 and fp8_e4m3_rounded"));
  if (weights.shard.world != 1 || weights.shard.rank != 0)
    return absl::UnimplementedError(absl::StrCat("linear: weights are shard ", weights.shard.rank,
                                                 " of ", weights.shard.world,
                                                 "; allowed: shard 0 of 1, the whole matrix"));
  return absl::OkStatus();
}

// Weights in packed pairs and the product that they are for go together; only kernels whose lanes
// hold pairs read them.
absl::Status CheckPairs(const KernelSet& kernels, const LinearWeights& weights,
                        const LinearArgs& args, LinearCandidate candidate) {
  const bool pairs = weights.layout == WeightLayout::kPackedPairs;
  if (pairs != (args.silu_mul != 0))
    return absl::InvalidArgumentError(
        absl::StrCat("linear: silu_mul is ", args.silu_mul, " with weights that lie ",
                     View(NameOf(weights.layout)), "; allowed: 1 with packed pairs, 0 elsewhere"));
  if (!pairs) return absl::OkStatus();
  if (!LinearTakesPairs(kernels, weights.out_features, weights.in_features))
    return absl::UnimplementedError(absl::StrCat(
        "linear: packed pairs of ", weights.out_features, " by ", weights.in_features,
        "; allowed: where matrix units take pairs, outputs in sixteens and inputs in eights"));
  const bool rounded = weights.format == WeightFormat::kE4m3Rounded;
  if (rounded && BuiltInLinearKernel(kernels, weights, 1)->instance->family != &kLinearGroupRounded)
    return absl::UnimplementedError(
        absl::StrCat("linear: packed pairs of fp8_e4m3_rounded, ", weights.in_features,
                     " inputs; allowed: where warpgroups multiply, inputs in sixteens"));
  if (candidate != LinearCandidate::kBest)
    return absl::UnimplementedError(
        "linear: packed pairs for the portable candidate; allowed: the best one");
  return absl::OkStatus();
}

// Rows' scales and weights that they are for go together.
absl::Status CheckRowScales(const LinearWeights& weights, const LinearArgs& args) {
  const bool rounded = weights.format == WeightFormat::kE4m3Rounded;
  if (rounded == (args.row_scales != nullptr)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("linear: weights are ", View(NameOf(weights.format)), " and row_scales are ",
                   rounded ? "missing" : "there", "; allowed: with fp8_e4m3_rounded alone"));
}

// What only some kernels do is asked of them alone.
absl::Status CheckResidual(const KernelSet& kernels, const LinearWeights& weights,
                           const LinearArgs& args, uint32_t max_rows, LinearCandidate candidate) {
  const bool best = candidate == LinearCandidate::kBest;
  if (args.norm_weight != nullptr && !(best && LinearNormsInput(kernels, weights, max_rows)))
    return absl::UnimplementedError(
        absl::StrCat("linear: a norm of the input with ", max_rows, " rows of ",
                     weights.in_features, " inputs; allowed: where LinearNormsInput says so"));
  if (args.adds_to_out == 0) return absl::OkStatus();
  if (args.out_is_f32 != 0 || args.silu_mul != 0)
    return absl::InvalidArgumentError(
        absl::StrCat("linear: adds_to_out with ", args.silu_mul != 0 ? "silu_mul" : "out_is_f32",
                     "; allowed: an output of the compute dtype, as it is"));
  if (!(best && LinearAddsToOut(kernels, weights, max_rows)))
    return absl::UnimplementedError(absl::StrCat("linear: adds_to_out with ", max_rows,
                                                 " rows; allowed: where LinearAddsToOut says so"));
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

bool LinearTakesPairs(const KernelSet& kernels, int64_t out_features, int64_t in_features) {
  return kernels.traits().matrix_unit == runtime::MatrixUnit::kMma &&
         CanPack(WeightFormatOf(kernels.dtype)) && out_features % (2 * kPairRun) == 0 &&
         in_features % kPackedChunk == 0;
}

bool LinearNormsInput(const KernelSet& kernels, const LinearWeights& weights, uint32_t max_rows) {
  return !weights.reordered && StreamNormsInputs(weights.in_features) &&
         max_rows <= static_cast<uint32_t>(StreamNormRows(BitsOf(weights.format))) &&
         LinearAddsToOut(kernels, weights, max_rows);
}

bool LinearAddsToOut(const KernelSet& kernels, const LinearWeights& weights, uint32_t max_rows) {
  const LoadedKernel* const kernel = ChosenLinearKernel(kernels, weights, max_rows);
  return kernel != nullptr && TakesResidual(*kernel->instance);
}

size_t LinearPartialFloats(const KernelSet& kernels, uint32_t max_rows) {
  const WeightFormat format = WeightFormatOf(kernels.dtype);
  if (FindMatrix(kernels, format, 1) == nullptr) return 0;
  return 2 * static_cast<size_t>(MaxSegments(kernels)) * kMatrixTileFeatures *
         static_cast<size_t>(WidestTileRows(kernels, format, max_rows));
}

size_t LinearNumCounters(const KernelSet& kernels, uint32_t max_out_features) {
  const bool has_matrix = FindMatrix(kernels, WeightFormatOf(kernels.dtype), 1) != nullptr;
  // linear_stream: tiles taken, and blocks that have ended.
  return has_matrix ? std::max(2u, CeilDiv(max_out_features, kMatrixTileFeatures)) : 0;
}

absl::Status CheckScales(const char* op, const LinearWeights& weights) {
  const bool scaled = IsScaled(weights.format), int4 = weights.format == WeightFormat::kInt4;
  const bool mxfp4 = weights.format == WeightFormat::kMxfp4;
  const int32_t most = mxfp4 ? kMxfp4ScaleInputs : kScaleInputs;
  const bool known_group =
      weights.group_size == most || (int4 && (weights.group_size == kLeastScaleInputs ||
                                              weights.group_size == kPackedTileInputs));
  if (scaled && (weights.scales == nullptr || !known_group))
    return absl::InvalidArgumentError(absl::StrCat(
        op, ": weights of format ", View(NameOf(weights.format)), " have ",
        weights.scales == nullptr ? "no scales" : "scales", " and a group size of ",
        weights.group_size, "; allowed: scales and a group size of ",
        int4 ? absl::StrCat(kLeastScaleInputs, ", ", kPackedTileInputs, " or ") : "", most));
  const char* extra = weights.scales != nullptr && !scaled ? "scales"
                      : weights.group_size != 0 && !scaled ? "a group size"
                                                           : nullptr;
  if (extra != nullptr)
    return absl::UnimplementedError(absl::StrCat(op, ": weights of format ",
                                                 View(NameOf(weights.format)), " have ", extra,
                                                 "; allowed: none with this format"));
  return absl::OkStatus();
}

LinearArgs WithWeights(const LinearWeights& weights, LinearArgs args) {
  args.weight = weights.data;
  args.scales = weights.scales;
  args.scale_inputs = weights.group_size;
  args.bias = weights.bias;
  args.in_features = static_cast<int32_t>(weights.in_features);
  args.out_features = static_cast<int32_t>(weights.out_features);
  args.norm_share = 1.0f / static_cast<float>(weights.in_features);
  args.num_segments = 0;
  args.packed = IsPacked(weights.layout) ? 1 : 0;
  return args;
}

absl::Status Linear(runtime::Stream& stream, const KernelSet& kernels, const LinearWeights& weights,
                    LinearArgs args, uint32_t max_rows, LinearCandidate candidate) {
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("linear", "max_rows", max_rows, 1));
  REPRISE_RETURN_IF_ERROR(CheckFeatures("in_features", weights.in_features));
  REPRISE_RETURN_IF_ERROR(CheckFeatures("out_features", weights.out_features));
  REPRISE_RETURN_IF_ERROR(CheckWeights(kernels, weights));
  REPRISE_RETURN_IF_ERROR(CheckPairs(kernels, weights, args, candidate));
  REPRISE_RETURN_IF_ERROR(CheckRowScales(weights, args));
  REPRISE_RETURN_IF_ERROR(CheckResidual(kernels, weights, args, max_rows, candidate));
  args = WithWeights(weights, args);
  const LoadedKernel* const by_table =
      candidate == LinearCandidate::kBest ? TableLinearKernel(kernels, weights, max_rows) : nullptr;
  const LoadedKernel* const kernel = by_table != nullptr ? by_table
                                     : candidate == LinearCandidate::kBest
                                         ? BuiltInLinearKernel(kernels, weights, max_rows)
                                         : FindPortable(kernels, weights);
  runtime::LaunchLabel label = kernel->label();
  label.rows = args.out_features;
  label.columns = args.in_features;
  label.from_table = by_table != nullptr;
  return Launch({.stream = stream,
                 .kernels = kernels,
                 .kernel = *kernel,
                 .max_rows = max_rows,
                 .label = label},
                LinearFamiliesOf(weights.format, weights.group_size), args);
}

}  // namespace reprise::kernels
