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

// The families for weights of a format; nullptr: there is none.
struct Families {
  const KernelFamily* portable;
  const KernelFamily* native;
  const KernelFamily* matrix;
  const KernelFamily* packed;
  const KernelFamily* stream;
  const KernelFamily* group;
  const KernelFamily* cluster = nullptr;
};
constexpr Families kOfActivations = {&kLinearPortable, &kLinearNative, &kLinearMatrix,
                                     &kLinearPacked,   &kLinearStream, &kLinearGroup,
                                     &kLinearCluster};
constexpr Families kOfFp8 = {&kLinearPortableFp8, &kLinearNativeFp8, nullptr,
                             &kLinearPackedFp8,   &kLinearStreamFp8, &kLinearGroupFp8};
constexpr Families kOfInt4 = {&kLinearPortableInt4, &kLinearNativeInt4, nullptr,
                              &kLinearPackedInt4,   &kLinearStreamInt4, &kLinearGroupInt4};
// Few rows go by linear_group too: tensor cores add products of E4M3 in their own way, and a row's
// bits are the same in every bucket.
constexpr Families kOfRounded = {&kLinearPortableRounded, nullptr, nullptr, nullptr, nullptr,
                                 &kLinearGroupRounded};
// The same with fewer inputs to a scale.
constexpr Families kOfFineInt4 = {&kLinearPortableInt4, &kLinearNativeInt4,     nullptr,
                                  &kLinearPackedInt4,   &kLinearStreamFineInt4, &kLinearGroupInt4};
const Families& FamiliesOf(WeightFormat format, int32_t group_size = kScaleInputs) {
  if (format == WeightFormat::kInt4) return group_size == kScaleInputs ? kOfInt4 : kOfFineInt4;
  if (format == WeightFormat::kE4m3Rounded) return kOfRounded;
  return format == WeightFormat::kE4m3 ? kOfFp8 : kOfActivations;
}

// The loaded instance of a family that reads such weights, with the smallest tile of at least
// `rows`; of tile 0 where none is that large, or the family knows no tiles. nullptr: none.
const LoadedKernel* Choose(const KernelSet& kernels, const KernelFamily* family,
                           WeightFormat format, uint32_t rows) {
  const LoadedKernel* best = nullptr;
  if (family == nullptr) return best;
  for (const KernelInstance& instance : kLinearInstances) {
    if (instance.family != family || instance.weight != format) continue;
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
  return Choose(kernels, FamiliesOf(format).matrix, format, rows);
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

absl::Status LaunchPacked(runtime::Stream& stream, const KernelSet& kernels,
                          const LoadedKernel& kernel, const LinearArgs& args, uint32_t max_rows) {
  const DeviceTraits traits = kernels.traits();
  const int tile = kernel.instance->tile, weight_bits = BitsOf(kernel.instance->weight);
  const int rows = tile != 0 ? tile : PackedMaxRows(traits, weight_bits);
  return stream.Launch(
      kernel.kernel,
      {.grid_x = CeilDiv(static_cast<unsigned>(args.out_features),
                         static_cast<unsigned>(PackedTileFeatures(rows))),
       .grid_y = CeilDiv(max_rows, static_cast<unsigned>(rows)),
       .block = kernel.threads,
       .shared_bytes = static_cast<size_t>(PackedSharedBytes(traits, rows, weight_bits)),
       .label = LabelOf(kernel, args)},
      args);
}

// linear_group or linear_cluster, of as many tiles of the kernel's tokens as it takes.
absl::Status LaunchGroup(runtime::Stream& stream, const KernelSet& kernels,
                         const LoadedKernel& kernel, const LinearArgs& linear, uint32_t max_rows) {
  const int tokens = kernel.instance->tile, shared_bytes = kernels.traits().shared_bytes;
  const WeightFormat format = kernel.instance->weight;
  const GroupFormat group_format(format);
  const bool shares_k = kernel.instance->family == &kLinearCluster;
  const int blocks = shares_k ? kLinearClusterBlocks : 1;
  const int64_t output_tiles = PackedLayout{linear.out_features, linear.in_features}.OutputTiles();
  const int64_t multiprocessors = kernels.device.num_multiprocessors;
  const unsigned token_tiles = CeilDiv(max_rows, static_cast<unsigned>(tokens));
  LinearGroupArgs args{.linear = linear};
  if (format == WeightFormat::kE4m3Rounded) {
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
  return stream.Launch(
      kernel.kernel,
      {.grid_x = static_cast<unsigned>(columns),
       .grid_y = token_tiles,
       .block = kernel.threads,
       .shared_bytes = LinearGroupSharedBytes(shared_bytes, tokens, args.span, args.stage_chunks,
                                              group_format, blocks),
       .label = LabelOf(kernel, linear)},
      args);
}

// Inputs in 16 bytes of x.
int64_t ChunkInputs(WeightFormat format) {
  return (format == WeightFormat::kE4m3Rounded ? 2 : 1) * kPackedChunk;
}
// 16-byte copies need rows that start at multiples of 16 bytes.
bool HasWholeChunks(const LinearWeights& weights) {
  return weights.in_features % ChunkInputs(weights.format) == 0;
}

// What packed weights go by: the kernel of linear_group or linear_cluster, or of linear_stream;
// nullptr: neither.
struct PackedChoice {
  const LoadedKernel* group = nullptr;
  const LoadedKernel* stream = nullptr;
};
PackedChoice ChoosePacked(const KernelSet& kernels, const LinearWeights& weights,
                          uint32_t max_rows) {
  if (!IsPacked(weights.layout) || !HasWholeChunks(weights)) return {};
  const Families& families = FamiliesOf(weights.format, weights.group_size);
  const PackedLayout packed{weights.out_features, weights.in_features};
  const int64_t tiles = packed.OutputTiles(), multiprocessors = kernels.device.num_multiprocessors;
  const int bits = BitsOf(weights.format);
  if (LinearTakesCluster(max_rows, tiles, packed.InputTiles(), multiprocessors)) {
    const LoadedKernel* const cluster = Choose(kernels, families.cluster, weights.format, max_rows);
    if (cluster != nullptr) return {.group = cluster};
  }
  const auto tile_rows =
      static_cast<uint32_t>(LinearGroupTileRows(max_rows, tiles, multiprocessors, bits));
  const LoadedKernel* const few = Choose(kernels, families.stream, weights.format, max_rows);
  const LoadedKernel* const many = Choose(kernels, families.group, weights.format, tile_rows);
  const bool group_first =
      LinearGroupTakesFewRows(max_rows, tiles, packed.InputTiles(), multiprocessors, bits);
  if (many != nullptr && (few == nullptr || group_first)) return {.group = many};
  return {.stream = few};
}

// Whether a kernel takes them that can norm what it reads and add to what it writes.
bool TakesResidual(const PackedChoice& choice) {
  return choice.stream != nullptr && StreamTakesResidual(choice.stream->instance->tile);
}

// A block for each multiprocessor, and no block without a tile.
absl::Status LaunchStream(runtime::Stream& stream, const KernelSet& kernels,
                          const LoadedKernel& kernel, const LinearArgs& args) {
  const unsigned tiles = CeilDiv(static_cast<unsigned>(args.out_features), kPackedTileOutputs);
  return stream.Launch(
      kernel.kernel,
      {.grid_x = std::min(tiles, static_cast<unsigned>(kernels.device.num_multiprocessors)),
       .block = kernel.threads,
       .shared_bytes = StreamLayoutOf(*kernel.instance).bytes,
       .label = LabelOf(kernel, args)},
      args);
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
    if (loaded.instance->family == FamiliesOf(loaded.instance->weight).portable)
      absl::StrAppend(&allowed, allowed.empty() ? "" : ", ", View(NameOf(loaded.instance->weight)));
  return allowed;
}

absl::Status CheckWeights(const KernelSet& kernels, const LinearWeights& weights) {
  if (Choose(kernels, FamiliesOf(weights.format).portable, weights.format, 0) == nullptr)
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
  if (rounded && ChoosePacked(kernels, weights, 1).group == nullptr)
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
         TakesResidual(ChoosePacked(kernels, weights, max_rows));
}

bool LinearAddsToOut(const KernelSet& kernels, const LinearWeights& weights, uint32_t max_rows) {
  return TakesResidual(ChoosePacked(kernels, weights, max_rows));
}

size_t LinearPartialFloats(const KernelSet& kernels, uint32_t max_rows) {
  const WeightFormat format = WeightFormatOf(kernels.dtype);
  if (ChooseMatrix(kernels, format, 1) == nullptr) return 0;
  return 2 * static_cast<size_t>(MaxSegments(kernels)) * kMatrixTileFeatures *
         static_cast<size_t>(TileRows(kernels, format, max_rows));
}

size_t LinearNumCounters(const KernelSet& kernels, uint32_t max_out_features) {
  const bool has_matrix = ChooseMatrix(kernels, WeightFormatOf(kernels.dtype), 1) != nullptr;
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
  const bool whole_chunks = HasWholeChunks(weights);
  const Families& families = FamiliesOf(weights.format, weights.group_size);
  if (candidate == LinearCandidate::kBest && args.packed != 0) {
    const PackedChoice choice = ChoosePacked(kernels, weights, max_rows);
    if (choice.group != nullptr) return LaunchGroup(stream, kernels, *choice.group, args, max_rows);
    if (choice.stream != nullptr) return LaunchStream(stream, kernels, *choice.stream, args);
    if (const LoadedKernel* any = Choose(kernels, families.packed, weights.format, max_rows);
        any != nullptr && whole_chunks)
      return LaunchPacked(stream, kernels, *any, args, max_rows);
  } else if (candidate == LinearCandidate::kBest) {
    if (const LoadedKernel* native = Choose(kernels, families.native, weights.format, 0)) {
      const unsigned tiles = CeilDiv(static_cast<unsigned>(args.out_features), kNativeTileFeatures);
      return stream.Launch(native->kernel, {.grid_x = tiles, .label = LabelOf(*native, args)},
                           args);
    }
    const LoadedKernel* matrix = ChooseMatrix(kernels, weights.format, max_rows);
    if (matrix != nullptr && whole_chunks) {
      args.num_segments = NumSegments(kernels, args);
      return LaunchMatrix(stream, kernels, *matrix, args, max_rows);
    }
  }
  return LaunchPortable(stream, *Choose(kernels, families.portable, weights.format, 0), args,
                        max_rows);
}

}  // namespace reprise::kernels
