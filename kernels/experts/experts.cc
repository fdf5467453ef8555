// SPDX-License-Identifier: Apache-2.0
#include "kernels/experts/experts.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "kernels/experts/experts_geometry.h"
#include "kernels/experts/instances.h"
#include "kernels/launch_check.h"
#include "kernels/linear/linear_geometry.h"
#include "runtime/status_macros.h"

namespace reprise::kernels {
namespace {

unsigned CeilDiv(int64_t a, int64_t b) { return static_cast<unsigned>((a + b - 1) / b); }

// The families for weights of a format.
struct Families {
  const KernelFamily& portable;
  const KernelFamily& native;
  const KernelFamily& packed;
};
constexpr Families kOfActivations = {kExpertsPortable, kExpertsNative, kExpertsPacked};
constexpr Families kOfFp8 = {kExpertsPortableFp8, kExpertsNativeFp8, kExpertsPackedFp8};
constexpr Families kOfInt4 = {kExpertsPortableInt4, kExpertsNativeInt4, kExpertsPackedInt4};
constexpr Families kOfMxfp4 = {kExpertsPortableMxfp4, kExpertsNativeMxfp4, kExpertsPackedMxfp4};
const Families& FamiliesOf(WeightFormat format) {
  if (format == WeightFormat::kInt4) return kOfInt4;
  if (format == WeightFormat::kMxfp4) return kOfMxfp4;
  return format == WeightFormat::kE4m3 ? kOfFp8 : kOfActivations;
}

// 16-byte copies need rows that start at multiples of 16 bytes.
bool TakesPacked(const KernelSet& kernels, const ExpertWeights& weights,
                 LinearCandidate candidate) {
  return candidate == LinearCandidate::kBest && IsPacked(weights.first.layout) &&
         weights.first.in_features % kPackedChunk == 0 &&
         kernels.Find(FamiliesOf(weights.first.format).packed, kFewExpertRows) != nullptr;
}

absl::Status CheckChoice(const char* op, int64_t num_experts, int64_t top_k) {
  if (num_experts < 1 || num_experts > kMaxExperts)
    return absl::InvalidArgumentError(
        absl::StrCat(op, ": num_experts is ", num_experts, "; allowed: 1 to ", kMaxExperts));
  if (top_k < 1 || top_k > num_experts)
    return absl::InvalidArgumentError(
        absl::StrCat(op, ": top_k is ", top_k, "; allowed: 1 to num_experts, ", num_experts));
  return absl::OkStatus();
}

absl::Status CheckWeights(const KernelSet& kernels, const ExpertWeights& weights,
                          const LinearArgs& args, LinearCandidate candidate) {
  const LinearWeights& first = weights.first;
  const auto named = [](std::string_view name) { return std::string(name); };
  if (first.format != WeightFormatOf(kernels.dtype) && !IsScaled(first.format))
    return absl::UnimplementedError(
        absl::StrCat("experts: weights are ", named(NameOf(first.format)),
                     "; allowed: fp8_e4m3, int4, mxfp4 and ",
                     named(NameOf(WeightFormatOf(kernels.dtype))), ", as activations are"));
  REPRISE_RETURN_IF_ERROR(CheckScales("experts", first));
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("experts", "in_features", first.in_features, 1));
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("experts", "out_features", first.out_features, 1));
  const bool pairs = first.layout == WeightLayout::kPackedPairs;
  if (pairs != (args.silu_mul != 0))
    return absl::InvalidArgumentError(
        absl::StrCat("experts: silu_mul is ", args.silu_mul, " with weights that lie ",
                     named(NameOf(first.layout)), "; allowed: 1 with packed pairs, 0 elsewhere"));
  if (pairs && !(TakesPacked(kernels, weights, candidate) &&
                 LinearTakesPairs(kernels, first.out_features, first.in_features)))
    return absl::UnimplementedError(
        absl::StrCat("experts: packed pairs of ", first.out_features, " by ", first.in_features,
                     "; allowed: where matrix units take pairs, outputs in sixteens and inputs in "
                     "eights, for the best candidate"));
  return absl::OkStatus();
}

absl::Status LaunchPacked(runtime::Stream& stream, const KernelSet& kernels,
                          const LoadedKernel& kernel, const ExpertsLinearArgs& args,
                          int64_t max_items, const runtime::LaunchLabel& label) {
  const int rows = kernel.instance->tile;
  const int64_t tiles = CeilDiv(args.linear.out_features, PackedTileFeatures(rows));
  const int64_t at_once = ExpertBlocks(rows, BitsOf(kernel.instance->weight)) *
                          static_cast<int64_t>(kernels.device.num_multiprocessors);
  return stream.Launch(kernel.kernel,
                       {.grid_x = static_cast<unsigned>(std::min(tiles * max_items, at_once)),
                        .block = kernel.threads,
                        .shared_bytes = static_cast<size_t>(PackedSharedBytes(
                            kernels.traits(), rows, BitsOf(kernel.instance->weight))),
                        .label = label},
                       args);
}

// Of experts that have choices, whatever the tile of an item.
int64_t MostExperts(uint32_t max_tokens, int64_t num_experts, int64_t top_k) {
  return std::min(num_experts, static_cast<int64_t>(max_tokens) * top_k);
}

}  // namespace

int32_t ExpertTileRows(const KernelSet& kernels, const ExpertWeights& weights, uint32_t max_tokens,
                       int32_t top_k, LinearCandidate candidate) {
  if (!TakesPacked(kernels, weights, candidate)) return kWholeExpert;
  // An expert that has a little more than the small tile is two items, which read its weights side
  // by side: that is less than what the large tile costs.
  const int64_t choices = static_cast<int64_t>(max_tokens) * top_k;
  return choices > weights.num_experts * kFewExpertRows ? kManyExpertRows : kFewExpertRows;
}

size_t MaxExpertItems(uint32_t max_tokens, int64_t num_experts, int64_t top_k) {
  // Every expert's last item, and those that are full.
  return static_cast<size_t>(MostExperts(max_tokens, num_experts, top_k) +
                             static_cast<int64_t>(max_tokens) * top_k / kFewExpertRows);
}

absl::Status RouteExperts(runtime::Stream& stream, const KernelSet& kernels,
                          const ExpertsRouteArgs& args, uint32_t max_tokens) {
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("experts", "max_tokens", max_tokens, 1));
  REPRISE_RETURN_IF_ERROR(CheckChoice("experts", args.num_experts, args.top_k));
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("experts", "tile_rows", args.tile_rows, kFewExpertRows));
  const LoadedKernel& kernel = kernels.Get(kExpertsRoute);
  return stream.Launch(kernel.kernel,
                       {.grid_x = CeilDiv(max_tokens, kExpertsRouteTokens),
                        .block = kernel.threads,
                        .shared_bytes = ExpertsRouteSharedBytes(args.num_experts),
                        .label = kernel.label()},
                       args);
}

absl::Status ExpertsLinear(runtime::Stream& stream, const KernelSet& kernels,
                           const ExpertWeights& weights, ExpertsLinearArgs args, int32_t tile_rows,
                           uint32_t max_tokens, int32_t top_k, LinearCandidate candidate) {
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("experts", "max_tokens", max_tokens, 1));
  REPRISE_RETURN_IF_ERROR(CheckChoice("experts", weights.num_experts, top_k));
  REPRISE_RETURN_IF_ERROR(CheckWeights(kernels, weights, args.linear, candidate));
  args.linear.weight = weights.first.data;
  args.linear.bias = weights.first.bias;
  args.linear.in_features = static_cast<int32_t>(weights.first.in_features);
  args.linear.out_features = static_cast<int32_t>(weights.first.out_features);
  args.linear.packed = IsPacked(weights.first.layout) ? 1 : 0;
  args.linear.scales = weights.first.scales;
  args.linear.scale_inputs = weights.first.group_size;
  args.expert_elements = weights.expert_elements;
  args.expert_scales = weights.expert_scales;
  const Families& families = FamiliesOf(weights.first.format);
  const auto label = [&](const LoadedKernel& kernel) {
    runtime::LaunchLabel of_kernel = kernel.label();
    of_kernel.rows = args.linear.out_features;
    of_kernel.columns = args.linear.in_features;
    return of_kernel;
  };
  if (TakesPacked(kernels, weights, candidate)) {
    const LoadedKernel* const packed = kernels.Find(families.packed, tile_rows);
    if (packed == nullptr)
      return absl::InvalidArgumentError(
          absl::StrCat("experts: tile_rows is ", tile_rows, "; allowed: what ExpertTileRows says"));
    const auto max_items =
        static_cast<int64_t>(MaxExpertItems(max_tokens, weights.num_experts, top_k));
    return LaunchPacked(stream, kernels, *packed, args, max_items, label(*packed));
  }
  const LoadedKernel* const native = kernels.Find(families.native);
  if (candidate == LinearCandidate::kBest && args.linear.packed == 0 && native != nullptr)
    return stream.Launch(
        native->kernel,
        {.grid_x = CeilDiv(args.linear.out_features, kNativeTileFeatures), .label = label(*native)},
        args);
  const LoadedKernel& portable = kernels.Get(families.portable);
  constexpr int64_t kMaxWalks = 64;  // blocks that share the items
  return stream.Launch(portable.kernel,
                       {.grid_x = CeilDiv(args.linear.out_features, kPortableTileFeatures),
                        .grid_y = static_cast<unsigned>(std::min(
                            MostExperts(max_tokens, weights.num_experts, top_k), kMaxWalks)),
                        .block = portable.threads,
                        .shared_bytes = kPortableSharedBytes,
                        .label = label(portable)},
                       args);
}

absl::Status CombineExperts(runtime::Stream& stream, const KernelSet& kernels,
                            const ExpertsCombineArgs& args, uint32_t max_tokens) {
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("experts", "max_tokens", max_tokens, 1));
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("experts", "hidden", args.hidden, 1));
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("experts", "top_k", args.top_k, 1));
  const LoadedKernel& kernel = kernels.Get(kExpertsCombine);
  const int64_t piece = static_cast<int64_t>(kernel.threads) * kExpertsCombinePack;
  return stream.Launch(kernel.kernel,
                       {.grid_x = max_tokens,
                        .grid_y = CeilDiv(args.hidden, piece),
                        .block = kernel.threads,
                        .label = kernel.label()},
                       args);
}

}  // namespace reprise::kernels
