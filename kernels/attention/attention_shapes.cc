// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention/attention_shapes.h"

#include "kernels/attention/mma_geometry.h"

namespace reprise::kernels {

bool MmaAttentionFits(const KernelSet& kernels, const AttentionArgs& args) {
  return kernels.attention_decode_mma[0].handle != nullptr && args.head_dim % 8 == 0 &&
         args.head_dim <= 256 && args.num_heads / args.num_kv_heads <= kMmaMaxGroup;
}

MmaAttentionLaunch MmaAttentionLaunchFor(const KernelSet& kernels, const AttentionArgs& args,
                                         AttentionPhase phase) {
  const int index = MmaHeadSizeIndex(args.head_dim);
  const int head_size = kMmaHeadSizes[index];
  const bool decode = phase == AttentionPhase::kDecode;
  const MmaSharedLayout layout =
      decode ? MmaDecodeLayout(head_size) : MmaPrefillLayout(head_size);
  // What a multiprocessor holds at once; see the launch bounds in mma_attention.cu.
  const unsigned blocks_per_sm = !decode && head_size == 256 ? 1 : 2;
  return {.kernel = decode ? &kernels.attention_decode_mma[index]
                           : &kernels.attention_prefill_mma[index],
          .shape = {.grid_x = blocks_per_sm *
                              static_cast<unsigned>(kernels.device.num_multiprocessors),
                    .block = kMmaThreads,
                    .shared_bytes = layout.bytes}};
}

}  // namespace reprise::kernels
