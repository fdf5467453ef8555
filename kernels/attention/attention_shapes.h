// SPDX-License-Identifier: Apache-2.0
// Which attention kernel on matrix units fits a call, and its launch shape. Host side of
// attention_matrix_body.h, decode_bulk_body.h and attention_prefill_group_body.h.
#ifndef REPRISE_KERNELS_ATTENTION_ATTENTION_SHAPES_H_
#define REPRISE_KERNELS_ATTENTION_ATTENTION_SHAPES_H_

#include "kernels/attention/attention.h"
#include "kernels/attention/attention_args.h"
#include "kernels/kernel_set.h"

namespace reprise::kernels {

// True on devices with matrix units, for queries of bf16 and f16 and KV of these or E4M3, when rows
// of a head are whole multiples of 16 bytes (head_dim of 8, with E4M3 of 16) up to the largest head
// size that fits the device, and a group has at most 16 heads.
bool MatrixAttentionFits(const KernelSet& kernels, const AttentionArgs& args);

struct MatrixAttentionLaunch {
  runtime::Kernel kernel;
  runtime::LaunchShape shape;
};

// The instance of the bulk decode kernel for such a call; nullptr where there is none.
const LoadedKernel* BulkDecodeKernel(const KernelSet& kernels, int32_t num_heads,
                                     const KvLayout& kv, bool tiles);

// The instance of the prefill kernel on products of warpgroups for such a call; nullptr where there
// is none. Where there is, it takes a prefill launch that MatrixAttentionFits.
const LoadedKernel* GroupPrefillKernel(const KernelSet& kernels, int32_t num_heads,
                                       const KvLayout& kv);

// REQUIRES: MatrixAttentionFits.
MatrixAttentionLaunch MatrixAttentionLaunchFor(const KernelSet& kernels, const AttentionArgs& args,
                                               AttentionPhase phase);

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_ATTENTION_ATTENTION_SHAPES_H_
