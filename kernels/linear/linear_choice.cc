// SPDX-License-Identifier: Apache-2.0
#include "kernels/linear/linear_choice.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/linear/cluster_geometry.h"
#include "kernels/linear/group_geometry.h"
#include "kernels/linear/instances.h"
#include "kernels/linear/linear_geometry.h"
#include "kernels/linear/stream_geometry.h"
#include "runtime/status_macros.h"

namespace reprise::kernels {
namespace {

constexpr LinearFamilies kOfActivations = {&kLinearPortable, &kLinearNative, &kLinearMatrix,
                                           &kLinearPacked,   &kLinearStream, &kLinearGroup,
                                           &kLinearCluster};
constexpr LinearFamilies kOfFp8 = {&kLinearPortableFp8, &kLinearNativeFp8, nullptr,
                                   &kLinearPackedFp8,   &kLinearStreamFp8, &kLinearGroupFp8};
constexpr LinearFamilies kOfInt4 = {&kLinearPortableInt4, &kLinearNativeInt4, nullptr,
                                    &kLinearPackedInt4,   &kLinearStreamInt4, &kLinearGroupInt4};
// Few rows go by linear_group too: tensor cores add products of E4M3 in their own way, and a row's
// bits are the same in every bucket.
constexpr LinearFamilies kOfRounded = {&kLinearPortableRounded, nullptr, nullptr, nullptr, nullptr,
                                       &kLinearGroupRounded};
// The same with fewer inputs to a scale.
constexpr LinearFamilies kOfFineInt4 = {
    &kLinearPortableInt4, &kLinearNativeInt4,     nullptr,
    &kLinearPackedInt4,   &kLinearStreamFineInt4, &kLinearGroupInt4};

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

// Inputs in 16 bytes of x.
int64_t ChunkInputs(WeightFormat format) {
  return (format == WeightFormat::kE4m3Rounded ? 2 : 1) * kPackedChunk;
}

PackedLayout LayoutOf(const LinearWeights& weights) {
  return {weights.out_features, weights.in_features};
}

// Of packed weights in whole chunks: linear_cluster, linear_group or linear_stream, what the device
// has of them. nullptr: none.
const LoadedKernel* BuiltInOfFast(const KernelSet& kernels, const LinearWeights& weights,
                                  uint32_t max_rows) {
  const LinearFamilies& families = LinearFamiliesOf(weights.format, weights.group_size);
  const PackedLayout packed = LayoutOf(weights);
  const int64_t tiles = packed.OutputTiles(), multiprocessors = kernels.device.num_multiprocessors;
  const int bits = BitsOf(weights.format);
  if (LinearTakesCluster(max_rows, tiles, packed.InputTiles(), multiprocessors)) {
    const LoadedKernel* const cluster =
        FindLinearTile(kernels, families.cluster, weights.format, max_rows);
    if (cluster != nullptr) return cluster;
  }
  const auto tile_rows =
      static_cast<uint32_t>(LinearGroupTileRows(max_rows, tiles, multiprocessors, bits));
  const LoadedKernel* const few =
      FindLinearTile(kernels, families.stream, weights.format, max_rows);
  const LoadedKernel* const many =
      FindLinearTile(kernels, families.group, weights.format, tile_rows);
  const bool group_first =
      LinearGroupTakesFewRows(max_rows, tiles, packed.InputTiles(), multiprocessors, bits);
  return many != nullptr && (few == nullptr || group_first) ? many : few;
}

// Whether linear_cluster can take a weight on a device, whatever is fastest.
bool FitsCluster(const KernelSet& kernels, const LinearWeights& weights) {
  const PackedLayout packed = LayoutOf(weights);
  const int64_t multiprocessors = kernels.device.num_multiprocessors;
  return multiprocessors >= kLinearClusterBlocks && packed.InputTiles() > kPackedPartTiles &&
         LinearClusterSpan(packed.OutputTiles(), multiprocessors) <= kLinearClusterMaxSpan;
}

// Whether a kernel can take a launch of so many rows of weights whose built-in choice has its bits.
bool CanTake(const KernelSet& kernels, const KernelInstance& kernel, const LinearWeights& weights,
             uint32_t max_rows) {
  const LinearFamilies& families = LinearFamiliesOf(weights.format, weights.group_size);
  const auto tile = static_cast<uint32_t>(kernel.tile);
  if (kernel.family == families.stream) return tile >= max_rows;
  if (kernel.family == families.cluster) return tile >= max_rows && FitsCluster(kernels, weights);
  if (kernel.family == families.matrix) return tile == 0 || tile >= max_rows;
  return true;  // linear_group and linear_packed take as many tiles of rows as there are
}

// All that read packed weights by matrix units have one order of K, and all tiles of linear_matrix
// another. linear_native and linear_portable each have their own, and one kernel of a format.
bool HaveSameBits(const LinearFamilies& families, const KernelFamily* a, const KernelFamily* b) {
  const auto is_packed = [&](const KernelFamily* family) {
    return family == families.stream || family == families.group || family == families.cluster ||
           family == families.packed;
  };
  return a == b || (is_packed(a) && is_packed(b));
}

LinearWeights WeightsOf(const LinearTableEntry& entry) {
  return {
      .format = entry.kernel->weight,
      .layout = ReadsPackedWeights(*entry.kernel) ? WeightLayout::kPacked : WeightLayout::kRowMajor,
      .out_features = entry.out_features,
      .in_features = entry.in_features,
      .group_size = entry.group_size};
}

bool IsFor(const LinearTableEntry& entry, const LinearWeights& weights, uint32_t max_rows) {
  return entry.out_features == weights.out_features && entry.in_features == weights.in_features &&
         entry.kernel->weight == weights.format && entry.group_size == weights.group_size &&
         entry.first_rows <= max_rows && max_rows <= entry.last_rows &&
         ReadsPackedWeights(*entry.kernel) == IsPacked(weights.layout);
}

std::string EntryText(const LinearTableEntry& entry) {
  return absl::StrCat("linear table: ", entry.out_features, "x", entry.in_features, " of ",
                      View(NameOf(entry.kernel->weight)), ", ", entry.first_rows, " to ",
                      entry.last_rows, " rows");
}

}  // namespace

const LinearFamilies& LinearFamiliesOf(WeightFormat format, int32_t group_size) {
  if (format == WeightFormat::kInt4) return group_size == kScaleInputs ? kOfInt4 : kOfFineInt4;
  if (format == WeightFormat::kE4m3Rounded) return kOfRounded;
  return format == WeightFormat::kE4m3 ? kOfFp8 : kOfActivations;
}

const LoadedKernel* FindLinearTile(const KernelSet& kernels, const KernelFamily* family,
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

bool HasWholeChunks(const LinearWeights& weights) {
  return weights.in_features % ChunkInputs(weights.format) == 0;
}

const LoadedKernel* BuiltInLinearKernel(const KernelSet& kernels, const LinearWeights& weights,
                                        uint32_t max_rows) {
  const LinearFamilies& families = LinearFamiliesOf(weights.format, weights.group_size);
  const auto find = [&](const KernelFamily* family, uint32_t rows) {
    return FindLinearTile(kernels, family, weights.format, rows);
  };
  const bool whole_chunks = HasWholeChunks(weights);
  const LoadedKernel* kernel = nullptr;
  if (IsPacked(weights.layout)) {
    if (whole_chunks) kernel = BuiltInOfFast(kernels, weights, max_rows);
    if (whole_chunks && kernel == nullptr) kernel = find(families.packed, max_rows);
  } else {
    kernel = find(families.native, 0);
    if (whole_chunks && kernel == nullptr) kernel = find(families.matrix, max_rows);
  }
  return kernel != nullptr ? kernel : find(families.portable, 0);
}

const LoadedKernel* TableLinearKernel(const KernelSet& kernels, const LinearWeights& weights,
                                      uint32_t max_rows) {
  for (const LinearTableEntry& entry : kernels.linear_table)
    if (IsFor(entry, weights, max_rows)) return kernels.Find(*entry.kernel);
  return nullptr;
}

const LoadedKernel* ChosenLinearKernel(const KernelSet& kernels, const LinearWeights& weights,
                                       uint32_t max_rows) {
  const LoadedKernel* const by_table = TableLinearKernel(kernels, weights, max_rows);
  return by_table != nullptr ? by_table : BuiltInLinearKernel(kernels, weights, max_rows);
}

bool TakesResidual(const KernelInstance& kernel) {
  for (const KernelFamily* const family :
       {&kLinearStream, &kLinearStreamFp8, &kLinearStreamInt4, &kLinearStreamFineInt4})
    if (kernel.family == family) return StreamTakesResidual(kernel.tile);
  return false;
}

std::vector<const LoadedKernel*> LinearKernelsOfSameBits(const KernelSet& kernels,
                                                         const LinearWeights& weights,
                                                         uint32_t max_rows) {
  std::vector<const LoadedKernel*> all;
  const LoadedKernel* const built_in = BuiltInLinearKernel(kernels, weights, max_rows);
  if (built_in == nullptr) return all;
  const LinearFamilies& families = LinearFamiliesOf(weights.format, weights.group_size);
  for (const KernelInstance& instance : kLinearInstances) {
    if (instance.weight != weights.format) continue;
    if (!HaveSameBits(families, instance.family, built_in->instance->family)) continue;
    const LoadedKernel* const kernel = kernels.Find(instance);
    if (kernel != nullptr && CanTake(kernels, instance, weights, max_rows)) all.push_back(kernel);
  }
  return all;
}

absl::Status CheckLinearTable(const KernelSet& kernels, const LinearTable& table) {
  for (const LinearTableEntry& entry : table) {
    const LinearWeights weights = WeightsOf(entry);
    const auto allowed = LinearKernelsOfSameBits(kernels, weights, entry.last_rows);
    const bool known = std::any_of(allowed.begin(), allowed.end(), [&](const LoadedKernel* kernel) {
      return kernel->instance == entry.kernel;
    });
    if (known) continue;
    const std::string names =
        absl::StrJoin(allowed, ", ", [](std::string* out, const LoadedKernel* kernel) {
          out->append(kernel->instance->symbol);
        });
    return absl::InvalidArgumentError(absl::StrCat(
        EntryText(entry), ": got kernel ", View(entry.kernel->symbol), " on ", kernels.device.name,
        ", allowed those that are there with the bits of the built-in choice: ",
        names.empty() ? "none of such weights" : names));
  }
  return absl::OkStatus();
}

bool ReadsPackedWeights(const KernelInstance& kernel) {
  // Of 4 bits there are two families of linear_stream.
  for (const int32_t group_size : {kScaleInputs, kLeastScaleInputs}) {
    const LinearFamilies& families = LinearFamiliesOf(kernel.weight, group_size);
    for (const KernelFamily* const family :
         {families.packed, families.stream, families.group, families.cluster})
      if (kernel.family == family) return true;
  }
  return false;
}

}  // namespace reprise::kernels
