// SPDX-License-Identifier: Apache-2.0
// Shapes and shared memory of the step kernel, as its kernel and its launch both need them.
#ifndef REPRISE_KERNELS_STEP_KERNEL_STEP_KERNEL_GEOMETRY_H_
#define REPRISE_KERNELS_STEP_KERNEL_STEP_KERNEL_GEOMETRY_H_

#include <cstdint>

#include "kernels/attention/attention_args.h"
#include "kernels/attention/decode_bulk_geometry.h"
#include "kernels/device/traits.h"
#include "kernels/linear/stream_geometry.h"

namespace reprise::kernels {

// Rows that a step may have: the columns of a linear layer's products.
inline constexpr int kStepTokens = 8;

// The warps of a block. The first six do attention, as a block of the bulk decode kernel does; the
// four of them that compute do norms and rope, too. Then those of linear layers.
inline constexpr int kStepRowWarps = kBulkWarps;
inline constexpr int kStepKvWarp = kBulkWarps;
inline constexpr int kStepArrivalsWarp = kBulkWarps + 1;
inline constexpr int kStepSummingWarp = kBulkWarps + 2;
inline constexpr int kStepRequestingWarp = kBulkWarps + 3;
inline constexpr int kStepFirstMultiplyingWarp = kBulkWarps + 4;
inline constexpr int kStepThreads = 32 * (kStepFirstMultiplyingWarp + kStreamWarps);

// Registers of the threads of a warpgroup, which begin with 128 each: rows take what all others
// give. So no thread needs local memory.
inline constexpr int kStepRowRegisters = 184;
inline constexpr int kStepServingRegisters = 104;
inline constexpr int kStepMultiplyRegisters = 112;

// Packs of 16 bytes that a lane keeps of a row of a norm: of every warp of the norm's own kernel
// that its warp stands for, two.
inline constexpr int kStepNormWarpsPerWarp = 2;
inline constexpr uint32_t kStepMaxNormThreads = 32 * kStepNormWarpsPerWarp * kStepRowWarps;

// Chunks of KV of a warp's ring: less than the decode kernel of its own has, as weights lie beside.
constexpr int StepKvStages(int head_size) { return head_size == 64 ? 4 : 2; }

// Barriers in shared memory, in this order.
struct StepBarriers {
  static constexpr int kFull = 0;                         // [kStreamSlots] weights are there
  static constexpr int kEmpty = kFull + kStreamSlots;     // [kStreamSlots] they were multiplied
  static constexpr int kSumFull = kEmpty + kStreamSlots;  // [kStreamSums] a part's sum is there
  static constexpr int kSumEmpty = kSumFull + kStreamSums;
  static constexpr int kRows = kSumEmpty + kStreamSums;  // [1] of the warps that do rows
  static constexpr int kCount = kRows + 1;
};

// Floats of shared memory that norms of heads take: HeadSquares' parts.
inline constexpr int32_t kStepMaxNormedHeads = 128;

// Byte offsets in dynamic shared memory.
struct StepSharedLayout {
  uint32_t attention = 0;   // BulkLayout
  uint32_t ring = 0;        // [kStreamWarps, kStreamStages] slots of weights
  uint32_t sums = 0;        // [kStreamSums] of StreamSumBytes
  uint32_t args = 0;        // [3] AttentionArgs, of the layer that some warps are at
  uint32_t head_parts = 0;  // [kStepMaxNormedHeads, kHeadNormLanes] f32
  uint32_t row_parts = 0;   // [32] f32: of warps, of a norm
  uint32_t slot_tile = 0;   // [kStreamSlots] words: of which tile of its layer a part is
  uint32_t slot_place = 0;  // [kStreamSlots] words: which stage, and which part of K
  uint32_t sum_tile = 0;    // [kStreamSums] words
  uint32_t sum_place = 0;   // [kStreamSums] words
  uint32_t known = 0;       // [2] words: the stage that is waited for, and the one that may begin
  uint32_t barriers = 0;    // StepBarriers
  uint32_t bytes = 0;
};

constexpr StepSharedLayout StepLayout(int head_size) {
  StepSharedLayout l;
  const uint32_t attention = BulkLayout(head_size, StepKvStages(head_size), 2).bytes;
  l.ring = l.attention + (attention + 1023) / 1024 * 1024;
  l.sums = l.ring + kStreamSlots * kStreamSlotBytes;
  l.args = l.sums + kStreamSums * StreamSumBytes(kStepTokens);
  // Where loads of 16 bytes begin.
  l.head_parts = l.args + (3 * static_cast<uint32_t>(sizeof(AttentionArgs)) + 15) / 16 * 16;
  l.row_parts = l.head_parts + static_cast<uint32_t>(kStepMaxNormedHeads * 8) * 4;
  l.slot_tile = l.row_parts + 32 * 4;
  l.slot_place = l.slot_tile + kStreamSlots * 4;
  l.sum_tile = l.slot_place + kStreamSlots * 4;
  l.sum_place = l.sum_tile + kStreamSums * 4;
  l.known = l.sum_place + kStreamSums * 4;
  l.barriers = l.known + 2 * 4;
  l.bytes = l.barriers + StepBarriers::kCount * 8;
  return l;
}
static_assert(StepLayout(64).barriers % 8 == 0 && StepLayout(128).barriers % 8 == 0);
static_assert(StepLayout(64).head_parts % 16 == 0 && StepLayout(128).head_parts % 16 == 0);

// Whether a device has the kernel for heads of so many elements.
constexpr bool HasStepKernel(const DeviceTraits& traits, int head_size) {
  return traits.group_products &&
         static_cast<int>(StepLayout(head_size).bytes) <= traits.shared_bytes;
}

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_STEP_KERNEL_STEP_KERNEL_GEOMETRY_H_
