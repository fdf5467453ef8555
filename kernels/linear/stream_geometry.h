// SPDX-License-Identifier: Apache-2.0
// Shapes and shared memory of linear_stream_body.h, as its kernel and its launch both need them.
#ifndef REPRISE_KERNELS_LINEAR_STREAM_GEOMETRY_H_
#define REPRISE_KERNELS_LINEAR_STREAM_GEOMETRY_H_

#include <cstdint>

#include "kernels/device/traits.h"
#include "kernels/linear/linear_args.h"
#include "kernels/linear/linear_geometry.h"

namespace reprise::kernels {

// Warps that request weights and multiply; behind them one that adds and stores, and one that takes
// tiles.
inline constexpr int kStreamWarps = 8;
inline constexpr int kStreamSummingWarp = kStreamWarps;
inline constexpr int kStreamThreads = (kStreamWarps + 2) * 32;

// Tokens come for half of a part at a time.
inline constexpr int kStreamSlotTiles = kPackedPartTiles / 2;
// The tile of few tokens, which take less shared memory. Of 16-bit weights more slots have that
// room.
inline constexpr int kStreamFewTokens = 2;
// Columns of a product, of which the last ones may have no token.
constexpr int StreamColumns(int tokens) { return tokens <= 8 ? 8 : 16; }

// A slot of the ring: half of a part; of weights of 8 and 4 bits, a whole one, since a request
// takes its time. Every multiplying warp has StreamStages slots of its own; beside each are its
// scales.
constexpr int StreamWeightTiles(int weight_bits) {
  return weight_bits == 16 ? kStreamSlotTiles : kPackedPartTiles;
}
constexpr uint32_t StreamSlotBytes(int weight_bits) {
  return static_cast<uint32_t>(StreamWeightTiles(weight_bits) * kPackedTileElements * weight_bits /
                               8);
}
// More slots keep memory busy for longer while a kernel waits for its tokens; but then a block
// takes its tiles further ahead, and blocks end less together (docs/benchmarks/README.md).
constexpr int StreamStages(int tokens, int weight_bits) {
  if (weight_bits == 16) return tokens <= kStreamFewTokens ? 3 : 2;
  return weight_bits == 4 && tokens > 8 ? 3 : 2;
}
// Whether how many slots are requested early goes by the kernel ahead, and what is left is once
// that has ended. Where it is false that gained nothing.
constexpr bool StreamGoesByKernelAhead(int weight_bits) { return weight_bits != 4; }
// How many slots are requested as soon as a block begins, slot 0 of the first warps. Until the
// kernel ahead has ended another follows whenever one is there: so many are on their way at a time,
// and what that kernel reads stands in line behind them. Fewer let it end sooner, and leave more to
// read behind it (docs/benchmarks/README.md). norms: every block norms x itself.
constexpr int StreamFirstRequests(int tokens, int weight_bits, KernelAhead ahead, bool norms) {
  constexpr int kAll = kStreamWarps, kMost = 3 * kAll / 4, kHalf = kAll / 2;
  if (!StreamGoesByKernelAhead(weight_bits)) return kAll;
  if (ahead == KernelAhead::kAttention) return kHalf;
  if (tokens <= kStreamFewTokens && weight_bits == 16) return kAll;
  return ahead == KernelAhead::kNorm ? kHalf : norms ? kMost : kAll;
}
// Of a slot. fine: of weights of 4 bits, a scale may be of as few inputs as kLeastScaleInputs.
constexpr uint32_t StreamScaleBytes(int weight_bits, bool fine) {
  if (weight_bits == 16) return 0;
  const int inputs = weight_bits == 4 && fine ? kLeastScaleInputs : kScaleInputs;
  return static_cast<uint32_t>(StreamWeightTiles(weight_bits) * kPackedTileInputs / inputs *
                               kPackedTileOutputs * 4);
}
static_assert(kStreamSlotTiles * kPackedTileInputs % kScaleInputs == 0, "scales are of one slot");
// Of weights of 16 bits.
inline constexpr uint32_t kStreamSlotBytes = StreamSlotBytes(16);
inline constexpr int kStreamStages = StreamStages(8, 16);
inline constexpr int kStreamSlots = kStreamWarps * kStreamStages;
// Tiles that were taken and not yet read by all warps that multiply.
inline constexpr int kStreamTold = 2;
// Sums of parts on their way to the warp that adds them, rounds of one of each warp.
inline constexpr int kStreamSumRounds = 2;
inline constexpr int kStreamSums = kStreamSumRounds * kStreamWarps;
constexpr uint32_t StreamSumBytes(int tokens) {
  return static_cast<uint32_t>(kPackedTileOutputs * StreamColumns(tokens)) * 4;
}

// The tokens of a slot's inputs, and of how many slots a multiplying warp has them on their way: a
// part's where there is room.
constexpr uint32_t StreamTokenSlotBytes(int tokens) {
  return static_cast<uint32_t>(tokens * kStreamSlotTiles * kPackedTileInputs) * 2;
}
constexpr int StreamTokenSlots(int tokens) { return tokens <= 8 ? 2 : 1; }
// Whether a warp keeps a part's tokens in registers, and so brings them once where all its parts
// are of the same inputs. Weights with scales have a second set of sums and are unpacked, which
// leaves room for half of 16 tokens.
constexpr bool StreamHoldsTokens(int tokens, int weight_bits) {
  return tokens <= 8 || weight_bits == 16;
}

// The kernels that norm their input, and add to their output: those of up to so many tokens. A norm
// is of inputs of which every warp that multiplies has one part of K, and no other.
inline constexpr int kStreamNormTokens = 8;
constexpr bool StreamTakesResidual(int tokens) { return tokens <= kStreamNormTokens; }
// Rows of which a norm there is worth it: every block does it for itself, and from some rows on
// that takes longer than a kernel that does it once (docs/benchmarks/README.md).
constexpr int StreamNormRows(int weight_bits) { return weight_bits == 4 ? 8 : 4; }
constexpr bool StreamNormsInputs(int64_t in_features) {
  const int64_t parts = (in_features + kPackedPartK - 1) / kPackedPartK;
  return parts > 0 && parts <= kStreamWarps && kStreamWarps % parts == 0;
}

// Byte offsets in dynamic shared memory.
struct StreamSharedLayout {
  uint32_t ring = 0;          // [kStreamWarps, StreamStages] slots
  uint32_t scales = 0;        // the same, of StreamScaleBytes
  uint32_t tokens = 0;        // [kStreamWarps, StreamTokenSlots] of tiles [tokens, 64], swizzled
  uint32_t norm_sums = 0;     // [kStreamNormTokens, kStreamWarps] floats
  uint32_t sums = 0;          // [kStreamSums] of StreamSumBytes
  uint32_t norm_weights = 0;  // over sums: [StreamTokenSlots, kStreamWarps] of 16 bytes a lane
  uint32_t told_tile = 0;     // [kStreamTold] words
  uint32_t sum_tile = 0;      // [kStreamSums] words
  uint32_t barriers = 0;      // StreamBarriers
  uint32_t bytes = 0;
};

// Barriers in shared memory, in this order.
template <int kStages>
struct StreamBarriers {
  static constexpr int kSlots = kStreamWarps * kStages;
  static constexpr int kFirst = 0;                   // [kSlots] the slot's first weights are there
  static constexpr int kFull = kFirst + kSlots;      // [kSlots] later ones are
  static constexpr int kTold = kFull + kSlots;       // [kStreamTold] a tile was taken
  static constexpr int kRead = kTold + kStreamTold;  // [kStreamTold] all warps have read which
  static constexpr int kSumFull = kRead + kStreamTold;  // [kStreamSumRounds] sums are there
  static constexpr int kSumEmpty = kSumFull + kStreamSumRounds;
  static constexpr int kNormed = kSumEmpty + kStreamSumRounds;  // sums of squares are there
  static constexpr int kGo = kNormed + 1;                       // the kernel ahead has ended
  static constexpr int kCount = kGo + 1;
};

constexpr StreamSharedLayout StreamLayout(int tokens, int weight_bits, bool fine) {
  StreamSharedLayout l;
  const int stages = StreamStages(tokens, weight_bits);
  const auto slots = static_cast<uint32_t>(kStreamWarps * stages);
  const int barriers = StreamBarriers<0>::kCount + 2 * kStreamWarps * stages;
  l.scales = l.ring + slots * StreamSlotBytes(weight_bits);
  l.tokens = l.scales + slots * StreamScaleBytes(weight_bits, fine);
  const auto token_slots = static_cast<uint32_t>(kStreamWarps * StreamTokenSlots(tokens));
  l.norm_sums = l.tokens + token_slots * StreamTokenSlotBytes(tokens);
  l.sums = l.norm_sums + (StreamTakesResidual(tokens) ? kStreamNormTokens * kStreamWarps * 4 : 0);
  // Of a warp they lie where its sums of the first rounds go, which come when it has read them.
  l.norm_weights = l.sums;
  l.told_tile = l.sums + kStreamSums * StreamSumBytes(tokens);
  l.sum_tile = l.told_tile + kStreamTold * 4;
  l.barriers = l.sum_tile + kStreamSums * 4;
  l.bytes = l.barriers + static_cast<uint32_t>(barriers) * 8;
  return l;
}
static_assert(StreamSumBytes(kStreamNormTokens) == StreamTokenSlotBytes(1));
static_assert(StreamTokenSlots(kStreamNormTokens) <= kStreamSumRounds);

// Whether a device has a kernel for so many tokens.
template <int kWeightBits, bool kFine = false>
constexpr bool HasStreamTileOf(const DeviceTraits& traits, int tokens) {
  return traits.bulk_copy &&
         static_cast<int>(StreamLayout(tokens, kWeightBits, kFine).bytes) <= traits.shared_bytes;
}
constexpr bool HasStreamTile(const DeviceTraits& traits, int tokens) {
  return HasStreamTileOf<16>(traits, tokens);
}
constexpr bool HasFp8StreamTile(const DeviceTraits& traits, int tokens) {
  return HasStreamTileOf<8>(traits, tokens);
}
constexpr bool HasInt4StreamTile(const DeviceTraits& traits, int tokens) {
  return HasStreamTileOf<4>(traits, tokens);
}
constexpr bool HasFineInt4StreamTile(const DeviceTraits& traits, int tokens) {
  return HasStreamTileOf<4, true>(traits, tokens);
}

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_LINEAR_STREAM_GEOMETRY_H_
