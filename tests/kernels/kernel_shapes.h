// SPDX-License-Identifier: Apache-2.0
// How much dynamic shared memory a typical launch of each family of kernels takes, from the very
// functions and constants that launches use. The typical launch is that of Llama-3.1-8B: 32 heads
// of 128 on 8 KV heads. Every family of the catalogue stands in kFamilyShapes once, also where its
// launches take none; catalog_test.cc sees to it.
#ifndef REPRISE_TESTS_KERNELS_KERNEL_SHAPES_H_
#define REPRISE_TESTS_KERNELS_KERNEL_SHAPES_H_

#include <cstddef>

#include "kernels/attention/attention_geometry.h"
#include "kernels/attention/decode_bulk_geometry.h"
#include "kernels/attention/prefill_group_geometry.h"
#include "kernels/catalog.h"
#include "kernels/experts/experts_geometry.h"
#include "kernels/linear/cluster_geometry.h"
#include "kernels/linear/group_geometry.h"
#include "kernels/linear/linear_geometry.h"
#include "kernels/linear/stream_geometry.h"
#include "kernels/mamba/mamba_args.h"
#include "kernels/plan/plan_args.h"
#include "kernels/rope_append/rope_append_args.h"
#include "kernels/sample/sample_geometry.h"
#include "kernels/step/fetch_args.h"

namespace reprise::testing {

inline constexpr int kTypicalHeads = 32, kTypicalKvHeads = 8, kTypicalHeadDim = 128;

// Bytes for an instance, on a device of such traits.
using SharedBytesFn = size_t (*)(const kernels::DeviceTraits& traits,
                                 const kernels::KernelInstance& instance);

struct FamilyShape {
  const kernels::KernelFamily* family = nullptr;
  SharedBytesFn shared_bytes = nullptr;
};

inline size_t NoSharedBytes(const kernels::DeviceTraits&, const kernels::KernelInstance&) {
  return 0;
}
// Rows dealt to two blocks of each of 132 multiprocessors.
inline size_t PlanBytes(const kernels::DeviceTraits& traits, const kernels::KernelInstance&) {
  return kernels::PlanSharedLayoutOf(256, traits.bulk_copy ? 264 : 0).bytes;
}
inline size_t FetchBytes(const kernels::DeviceTraits&, const kernels::KernelInstance&) {
  return kernels::kFetchAheadBytes;
}
inline size_t RopeAppendNormedBytes(const kernels::DeviceTraits&, const kernels::KernelInstance&) {
  return size_t{kTypicalHeads + kTypicalKvHeads} * kernels::kHeadNormLanes * sizeof(float);
}
inline size_t SampleFinalBytes(const kernels::DeviceTraits&, const kernels::KernelInstance&) {
  return sizeof(kernels::ReportScratch);
}
inline size_t LinearPortableBytes(const kernels::DeviceTraits&, const kernels::KernelInstance&) {
  return kernels::kPortableSharedBytes;
}
inline size_t LinearMatrixBytes(const kernels::DeviceTraits& traits,
                                const kernels::KernelInstance& instance) {
  const int rows = instance.tile != 0 ? instance.tile : kernels::MatrixMaxSplitRows(traits);
  return static_cast<size_t>(kernels::MatrixSharedBytes(traits, rows));
}
inline size_t LinearPackedBytes(const kernels::DeviceTraits& traits,
                                const kernels::KernelInstance& instance) {
  const int weight_bits = kernels::BitsOf(instance.weight);
  const int rows = instance.tile != 0 ? instance.tile : kernels::PackedMaxRows(traits, weight_bits);
  return static_cast<size_t>(kernels::PackedSharedBytes(traits, rows, weight_bits));
}
inline size_t LinearStreamBytes(const kernels::DeviceTraits&,
                                const kernels::KernelInstance& instance) {
  return kernels::StreamLayoutOf(instance).bytes;
}
inline size_t LinearGroupBytes(const kernels::DeviceTraits& traits,
                               const kernels::KernelInstance& instance) {
  const kernels::GroupFormat format(instance.weight);
  const int span = kernels::LinearGroupMaxSpan(instance.tile, format);
  return kernels::LinearGroupSharedBytes(
      traits.shared_bytes, instance.tile, span,
      kernels::LinearGroupStageChunks(traits.shared_bytes, instance.tile, span, format), format);
}
inline size_t LinearClusterBytes(const kernels::DeviceTraits& traits,
                                 const kernels::KernelInstance& instance) {
  const int shared = traits.shared_bytes, tokens = instance.tile;
  const int span = kernels::kLinearClusterMaxSpan, blocks = kernels::kLinearClusterBlocks;
  return kernels::LinearGroupSharedBytes(
      shared, tokens, span,
      kernels::LinearGroupStageChunks(shared, tokens, span, kernels::kGroup16, blocks),
      kernels::kGroup16, blocks);
}
// 128 experts, as of Qwen3-30B-A3B.
inline size_t ExpertsRouteBytes(const kernels::DeviceTraits&, const kernels::KernelInstance&) {
  return kernels::ExpertsRouteSharedBytes(128);
}
// 48 heads of 64 with a state of 128, as of Granite 4.0-H.
inline size_t MambaScanBytes(const kernels::DeviceTraits&, const kernels::KernelInstance&) {
  return kernels::MambaScanSharedBytes({.num_heads = 48, .head_dim = 64, .state_size = 128});
}
inline size_t AttentionPortableBytes(const kernels::DeviceTraits& traits,
                                     const kernels::KernelInstance&) {
  const int rows = kernels::PortableAttentionPassRows(kernels::kPrefillRows, kTypicalHeadDim,
                                                      static_cast<size_t>(traits.shared_bytes));
  return static_cast<size_t>(rows) * kernels::PortableAttentionRowBytes(kTypicalHeadDim);
}
inline size_t AttentionNaiveBytes(const kernels::DeviceTraits&, const kernels::KernelInstance&) {
  return kernels::NaiveAttentionBytes(kTypicalHeadDim);
}
inline int KvBytes(const kernels::KernelInstance& instance) {
  return instance.kv == kernels::ElementFormat::kFp8 ? 1 : 2;
}
inline size_t AttentionDecodeMatrixBytes(const kernels::DeviceTraits& traits,
                                         const kernels::KernelInstance& instance) {
  return kernels::MatrixDecodeLayout(traits, instance.tile, KvBytes(instance)).bytes;
}
inline size_t AttentionDecodeBulkBytes(const kernels::DeviceTraits&,
                                       const kernels::KernelInstance& instance) {
  return kernels::BulkLayout(instance.tile, KvBytes(instance)).bytes;
}
inline size_t StepKernelBytes(const kernels::DeviceTraits&,
                              const kernels::KernelInstance& instance) {
  return kernels::StepLayout(instance.tile).bytes;
}
inline size_t AttentionPrefillGroupBytes(const kernels::DeviceTraits&,
                                         const kernels::KernelInstance& instance) {
  return kernels::GroupLayout(instance.tile).bytes;
}
inline size_t AttentionPrefillMatrixBytes(const kernels::DeviceTraits& traits,
                                          const kernels::KernelInstance& instance) {
  return kernels::MatrixPrefillLayout(traits, instance.tile, KvBytes(instance)).bytes;
}

// Without the host's own kernels, which are no GPU code.
inline constexpr FamilyShape kFamilyShapes[] = {
    {&kernels::kFetch, FetchBytes},
    {&kernels::kPublish, NoSharedBytes},
    {&kernels::kPlan, PlanBytes},
    {&kernels::kPlanSetTree, NoSharedBytes},
    {&kernels::kEmbedding, NoSharedBytes},
    {&kernels::kRmsNorm, NoSharedBytes},
    {&kernels::kRmsNormRounded, NoSharedBytes},
    {&kernels::kRmsNormAdd, NoSharedBytes},
    {&kernels::kLinearPortable, LinearPortableBytes},
    {&kernels::kLinearMatrix, LinearMatrixBytes},
    {&kernels::kLinearPacked, LinearPackedBytes},
    {&kernels::kLinearStream, LinearStreamBytes},
    {&kernels::kLinearGroup, LinearGroupBytes},
    {&kernels::kLinearCluster, LinearClusterBytes},
    {&kernels::kLinearGroupFp8, LinearGroupBytes},
    {&kernels::kLinearGroupInt4, LinearGroupBytes},
    {&kernels::kLinearPortableFp8, LinearPortableBytes},
    {&kernels::kLinearPackedFp8, LinearPackedBytes},
    {&kernels::kLinearStreamFp8, LinearStreamBytes},
    {&kernels::kLinearGroupRounded, LinearGroupBytes},
    {&kernels::kLinearPortableRounded, LinearPortableBytes},
    {&kernels::kLinearPortableInt4, LinearPortableBytes},
    {&kernels::kLinearPackedInt4, LinearPackedBytes},
    {&kernels::kLinearStreamInt4, LinearStreamBytes},
    {&kernels::kLinearStreamFineInt4, LinearStreamBytes},
    {&kernels::kRopeAppend, NoSharedBytes},
    {&kernels::kRopeAppendNormed, RopeAppendNormedBytes},
    {&kernels::kAttentionPortable, AttentionPortableBytes},
    {&kernels::kAttentionNaive, AttentionNaiveBytes},
    {&kernels::kAttentionMerge, NoSharedBytes},
    {&kernels::kAttentionDecodeMatrix, AttentionDecodeMatrixBytes},
    {&kernels::kAttentionDecodeBulk, AttentionDecodeBulkBytes},
    {&kernels::kAttentionDecodeBulkTiles, AttentionDecodeBulkBytes},
    {&kernels::kAttentionPrefillGroup, AttentionPrefillGroupBytes},
    {&kernels::kAttentionPrefillMatrix, AttentionPrefillMatrixBytes},
    {&kernels::kStepKernel, StepKernelBytes},
    {&kernels::kSiluMul, NoSharedBytes},
    {&kernels::kGatherColumns, NoSharedBytes},
    {&kernels::kRoundRows, NoSharedBytes},
    {&kernels::kExpertsRoute, ExpertsRouteBytes},
    {&kernels::kExpertsCombine, NoSharedBytes},
    {&kernels::kExpertsPortable, LinearPortableBytes},
    {&kernels::kExpertsPacked, LinearPackedBytes},
    {&kernels::kExpertsPortableFp8, LinearPortableBytes},
    {&kernels::kExpertsPackedFp8, LinearPackedBytes},
    {&kernels::kExpertsPortableInt4, LinearPortableBytes},
    {&kernels::kExpertsPackedInt4, LinearPackedBytes},
    {&kernels::kExpertsPortableMxfp4, LinearPortableBytes},
    {&kernels::kExpertsPackedMxfp4, LinearPackedBytes},
    {&kernels::kMambaConv, NoSharedBytes},
    {&kernels::kMambaScan, MambaScanBytes},
    {&kernels::kMambaNorm, NoSharedBytes},
    {&kernels::kSoftcap, NoSharedBytes},
    {&kernels::kSamplePartial, NoSharedBytes},
    {&kernels::kSampleFinal, SampleFinalBytes},
    {&kernels::kRandomFill, NoSharedBytes},
    {&kernels::kNanFill, NoSharedBytes},
    {&kernels::kBlockFill, NoSharedBytes},
    {&kernels::kBlockCopy, NoSharedBytes},
    {&kernels::kNotifyHost, NoSharedBytes},
    {&kernels::kStamp, NoSharedBytes},
    {&kernels::kMemoryRead, NoSharedBytes},
    {&kernels::kMemoryCopy, NoSharedBytes},
    {&kernels::kPageWalk, NoSharedBytes},
};

}  // namespace reprise::testing

#endif  // REPRISE_TESTS_KERNELS_KERNEL_SHAPES_H_
