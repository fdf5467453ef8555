// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention/attention_shapes.h"

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "kernels/attention/attention_geometry.h"
#include "kernels/attention/decode_bulk_geometry.h"
#include "kernels/attention/instances.h"
#include "kernels/attention/prefill_group_geometry.h"

namespace reprise::kernels {
namespace {

bool IsAligned16(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

const KernelFamily& FamilyOf(AttentionPhase phase) {
  return phase == AttentionPhase::kDecode ? kAttentionDecodeMatrix : kAttentionPrefillMatrix;
}

// The loaded instance of a phase with the smallest head size that holds heads of `kv`; nullptr:
// none.
const LoadedKernel* Choose(const KernelSet& kernels, AttentionPhase phase, const KvLayout& kv) {
  const LoadedKernel* best = nullptr;
  for (const KernelInstance& instance : kAttentionInstances) {
    if (instance.family != &FamilyOf(phase) || instance.tile < kv.head_dim ||
        instance.kv != ElementFormatOf(kv.dtype))
      continue;
    const LoadedKernel* const kernel = kernels.Find(instance);
    if (kernel != nullptr && (best == nullptr || instance.tile < best->instance->tile))
      best = kernel;
  }
  return best;
}

constexpr uint32_t SharedBytes(const DeviceTraits& traits, const KernelInstance& instance,
                               AttentionPhase phase) {
  const int element_bytes = instance.kv == ElementFormat::kFp8 ? 1 : 2;
  return phase == AttentionPhase::kDecode
             ? MatrixDecodeLayout(traits, instance.tile, element_bytes).bytes
             : MatrixPrefillLayout(traits, instance.tile, element_bytes).bytes;
}

// Half of a multiprocessor of sm_90, less the kilobyte that every block costs.
constexpr uint32_t kHalfOfSm90 = 228 * 1024 / 2 - 1024;
static_assert(std::ranges::all_of(kAttentionInstances, [](const KernelInstance& instance) {
  // By name: under a sanitizer, g++ does not take a comparison of addresses for a constant.
  return instance.family->name != kAttentionDecodeMatrix.name ||
         SharedBytes(TraitsOf(runtime::MatrixUnit::kMma), instance, AttentionPhase::kDecode) <=
             kHalfOfSm90;
}));

}  // namespace

bool MatrixAttentionFits(const KernelSet& kernels, const AttentionArgs& args) {
  // Chunks of whole elements; of 8 bits E4M3 alone.
  if (args.kv.dtype == runtime::DType::kE5m2 || args.kv.head_dim % args.kv.ChunkElements() != 0 ||
      args.num_heads / args.kv.num_kv_heads > kMatrixMaxGroup)
    return false;
  if (!IsAligned16(args.q) || !IsAligned16(args.kv_cache) || !IsAligned16(args.out) ||
      !IsAligned16(args.partial_out))
    return false;
  return std::ranges::all_of(
      std::initializer_list<AttentionPhase>{AttentionPhase::kDecode, AttentionPhase::kPrefill},
      [&](AttentionPhase phase) {
        const LoadedKernel* const kernel = Choose(kernels, phase, args.kv);
        return kernel != nullptr && SharedBytes(kernels.traits(), *kernel->instance, phase) <=
                                        kernels.device.max_shared_bytes;
      });
}

const LoadedKernel* BulkDecodeKernel(const KernelSet& kernels, int32_t num_heads,
                                     const KvLayout& kv, bool tiles) {
  if (num_heads / kv.num_kv_heads > kBulkMaxGroup || kv.block_size % kBulkChunk != 0 ||
      !kv.CanSwizzle() || kv.dtype == runtime::DType::kE5m2)
    return nullptr;
  const KernelFamily& family = tiles ? kAttentionDecodeBulkTiles : kAttentionDecodeBulk;
  const LoadedKernel* const kernel = kernels.Find(family, kv.head_dim, kv.dtype);
  if (kernel == nullptr ||
      BulkLayout(kv.head_dim, kv.ElementBytes()).bytes > kernels.device.max_shared_bytes)
    return nullptr;
  return kernel;
}

uint32_t NumDecodeShares(const KernelSet& kernels, int32_t num_heads, const KvLayout& kv) {
  if (BulkDecodeKernel(kernels, num_heads, kv, false) == nullptr) return 0;
  return static_cast<uint32_t>(kernels.device.num_multiprocessors *
                               BulkBlocksPerMultiprocessor(kv.head_dim));
}

uint32_t TileMembers(const KernelSet& kernels, int32_t num_heads, const KvLayout& kv) {
  if (BulkDecodeKernel(kernels, num_heads, kv, true) == nullptr) return 0;
  return static_cast<uint32_t>(BulkTileMembers(num_heads / kv.num_kv_heads));
}

const LoadedKernel* GroupPrefillKernel(const KernelSet& kernels, int32_t num_heads,
                                       const KvLayout& kv) {
  if (num_heads / kv.num_kv_heads > kMatrixMaxGroup || kv.block_size % kGroupChunk != 0 ||
      !kv.swizzled || kv.dtype != kernels.dtype)
    return nullptr;
  const LoadedKernel* const kernel = kernels.Find(kAttentionPrefillGroup, kv.head_dim, kv.dtype);
  if (kernel == nullptr || GroupLayout(kv.head_dim).bytes > kernels.device.max_shared_bytes)
    return nullptr;
  return kernel;
}

int32_t NumPrefillRows(const KernelSet& kernels, int32_t num_heads, const KvLayout& kv) {
  return GroupPrefillKernel(kernels, num_heads, kv) != nullptr ? kPrefillGroupRows : kPrefillRows;
}

MatrixAttentionLaunch MatrixAttentionLaunchFor(const KernelSet& kernels, const AttentionArgs& args,
                                               AttentionPhase phase) {
  const unsigned sms = static_cast<unsigned>(kernels.device.num_multiprocessors);
  if (phase == AttentionPhase::kPrefill) {
    const LoadedKernel* const group = GroupPrefillKernel(kernels, args.num_heads, args.kv);
    if (group != nullptr)
      return {.kernel = group->kernel,
              .shape = {.grid_x = sms,
                        .block = group->threads,
                        .shared_bytes = GroupLayout(args.kv.head_dim).bytes,
                        .label = group->label()}};
  }
  const LoadedKernel& kernel = *Choose(kernels, phase, args.kv);
  const size_t shared_bytes = SharedBytes(kernels.traits(), *kernel.instance, phase);
  // As many blocks as run at once, two per multiprocessor at most.
  const bool two = 2 * (shared_bytes + 1024) <= kernels.device.shared_bytes_per_multiprocessor;
  return {.kernel = kernel.kernel,
          .shape = {.grid_x = (two ? 2 : 1) * sms,
                    .block = kernel.threads,
                    .shared_bytes = shared_bytes,
                    .label = kernel.label()}};
}

}  // namespace reprise::kernels
