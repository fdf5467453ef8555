// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention/attention_shapes.h"

#include <algorithm>

#include "kernels/attention/matrix_geometry.h"

namespace reprise::kernels {
namespace {

bool IsAligned16(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

size_t SharedBytes(const DeviceTraits& traits, int head_size, AttentionPhase phase) {
  return phase == AttentionPhase::kDecode ? MatrixDecodeLayout(traits, head_size).bytes
                                          : MatrixPrefillLayout(traits, head_size).bytes;
}

// Half of a multiprocessor of sm_90, less the kilobyte that every block costs.
constexpr uint32_t kHalfOfSm90 = 228 * 1024 / 2 - 1024;
static_assert(std::ranges::all_of(kMatrixHeadSizes, [](int head_size) {
  return MatrixDecodeLayout(TraitsOf(runtime::MatrixUnit::kMma), head_size).bytes <= kHalfOfSm90;
}));

}  // namespace

bool MatrixAttentionFits(const KernelSet& kernels, const AttentionArgs& args) {
  const int index = MatrixHeadSizeIndex(args.head_dim);
  if (args.head_dim % 8 != 0 || index >= KernelSet::kNumHeadSizes) return false;
  if (kernels.attention_decode_matrix[index].handle == nullptr) return false;
  if (args.num_heads / args.num_kv_heads > kMatrixMaxGroup) return false;
  if (!IsAligned16(args.q) || !IsAligned16(args.kv_cache) || !IsAligned16(args.out) ||
      !IsAligned16(args.partial_out))
    return false;
  const DeviceTraits traits = TraitsOf(kernels.device.matrix_unit);
  const int head_size = kMatrixHeadSizes[index];
  return std::max(SharedBytes(traits, head_size, AttentionPhase::kDecode),
                  SharedBytes(traits, head_size, AttentionPhase::kPrefill)) <=
         kernels.device.max_shared_bytes;
}

MatrixAttentionLaunch MatrixAttentionLaunchFor(const KernelSet& kernels, const AttentionArgs& args,
                                               AttentionPhase phase) {
  const int index = MatrixHeadSizeIndex(args.head_dim);
  const bool decode = phase == AttentionPhase::kDecode;
  const DeviceTraits traits = TraitsOf(kernels.device.matrix_unit);
  const size_t shared_bytes = SharedBytes(traits, kMatrixHeadSizes[index], phase);
  // As many blocks as run at once, two per multiprocessor at most.
  const bool two = 2 * (shared_bytes + 1024) <= kernels.device.shared_bytes_per_multiprocessor;
  const unsigned sms = static_cast<unsigned>(kernels.device.num_multiprocessors);
  return {
      .kernel = decode ? &kernels.attention_decode_matrix[index]
                       : &kernels.attention_prefill_matrix[index],
      .shape = {.grid_x = (two ? 2 : 1) * sms,
                .block = static_cast<unsigned>(MatrixAttentionThreads(traits)),
                .shared_bytes = shared_bytes,
                .label = {.op = decode ? "attention_decode_matrix" : "attention_prefill_matrix"}}};
}

}  // namespace reprise::kernels
