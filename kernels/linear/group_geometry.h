// SPDX-License-Identifier: Apache-2.0
// Shapes and shared memory of linear_group_body.h, and of what linear_cluster_body.h has in common
// with it, as kernels and launches both need them.
#ifndef REPRISE_KERNELS_LINEAR_GROUP_GEOMETRY_H_
#define REPRISE_KERNELS_LINEAR_GROUP_GEOMETRY_H_

#include <cstdint>

#include "kernels/device/traits.h"
#include "kernels/linear/linear_args.h"
#include "kernels/linear/linear_geometry.h"
#include "runtime/tile_map.h"

namespace reprise::kernels {

// Two warpgroups multiply; the third brings stages, by one thread or two.
inline constexpr int kLinearGroupWarps = 8;
inline constexpr int kLinearGroupThreads = (kLinearGroupWarps + 4) * 32;
// Registers of their threads: those who multiply hold the sum of a part and that of all.
inline constexpr int kLinearGroupMultiplyRegisters = 216;
inline constexpr int kLinearGroupLoadRegisters = 72;
// Of kE4m3Rounded the sums of two chunks, and that of all: with fewer registers some are spilled.
inline constexpr int kLinearGroupRoundedMultiplyRegisters = 232;
inline constexpr int kLinearGroupRoundedLoadRegisters = 40;

// Of weights of fewer bits more warpgroups multiply where registers allow, and one behind them
// brings stages.
constexpr int LinearGroupScaledWarpgroups(int tokens) {
  return tokens <= 32 ? 4 : tokens <= 64 ? 3 : 2;
}
constexpr int LinearGroupScaledThreads(int tokens) {
  return (LinearGroupScaledWarpgroups(tokens) + 1) * 128;
}
constexpr int LinearGroupScaledRegisters(int tokens) {
  return tokens <= 32 ? 104 : tokens <= 64 ? 152 : 216;
}
inline constexpr int kLinearGroupScaledLoadRegisters = 40;

// What the weights of a launch are to these kernels.
struct GroupFormat {
  int bits = 16;  // of an element, of kE4m3Rounded of two, which lie in the place of one
  bool stage_scales = false;  // whether their scales come with each stage

  constexpr explicit GroupFormat(WeightFormat format)
      : bits(format == WeightFormat::kE4m3Rounded ? 16 : BitsOf(format)),
        stage_scales(format == WeightFormat::kE4m3Rounded || format == WeightFormat::kInt4) {}
  constexpr bool operator==(const GroupFormat&) const = default;
};
// Of elements of 16 bits.
inline constexpr GroupFormat kGroup16{WeightFormat::kBf16};

// A stage: so many chunks of 64 input features, of all tiles of 16 outputs that a block takes at a
// time, its span, behind them of a tile of tokens, and where they come with a stage the scales
// behind both. Panels of products of a warpgroup have room for four tiles each, and read that many
// of 16-bit elements; narrower ones each warp brings to its registers.
inline constexpr int kLinearGroupPanelTiles = 4;
constexpr int LinearGroupMaxSpan(int tokens, GroupFormat format) {
  return (format.bits < 16 ? LinearGroupScaledWarpgroups(tokens) : 2) * kLinearGroupPanelTiles;
}
constexpr int LinearGroupMinStages(int tokens, GroupFormat format) {
  return tokens <= 64 || format == kGroup16 ? 4 : 3;
}
inline constexpr int kLinearGroupMaxStages = 16;
// Whether a block's first weights come one stage after the other, until the kernel ahead has ended.
// Where it is false that gained nothing. tokens: of a tile.
constexpr bool LinearGroupPaces(int tokens, GroupFormat format) {
  return tokens <= (format.bits == 16 ? 64 : format.bits == 8 ? 32 : 16);
}
// How many bytes of them are on their way at a time, beyond the first stage: as
// StreamFirstRequests.
constexpr uint32_t LinearGroupFirstBytes(GroupFormat format, KernelAhead ahead) {
  return (format.bits != 8 && ahead == KernelAhead::kLong ? 64u : 32u) * 1024;
}

constexpr int LinearGroupPanels(int span) {
  return (span + kLinearGroupPanelTiles - 1) / kLinearGroupPanelTiles;
}
constexpr uint32_t LinearGroupWeightBytes(int span, int chunks, GroupFormat format) {
  return static_cast<uint32_t>(span * chunks * (kPackedTileElements / 8) * format.bits);
}
constexpr uint32_t LinearGroupTokenBytes(int tokens) {  // of a chunk
  return static_cast<uint32_t>(tokens * kPackedTileInputs) * 2;
}
// Inputs of a scale, at the least, as a stage counts them: of kE4m3Rounded pairs.
constexpr int LinearGroupLeastScaleInputs(GroupFormat format) {
  return format.bits == 4 ? kLeastScaleInputs : kScaleInputs / 2;
}
// Room for the scales that a stage brings: [span, scales of the stage's inputs, 16 outputs], each
// of as few inputs as there may be. Panels of tokens begin at multiples of 1024 bytes, and so do
// stages.
constexpr uint32_t LinearGroupScaleBytes(int span, int chunks, GroupFormat format) {
  if (!format.stage_scales) return 0;
  const int scales = chunks * kPackedTileInputs / LinearGroupLeastScaleInputs(format);
  return (static_cast<uint32_t>(span * scales * kPackedTileOutputs) * 4 + 1023) / 1024 * 1024;
}
// What copies bring, and what products read beyond the last tile of the last chunk.
constexpr uint32_t LinearGroupStageBytes(int tokens, int span, int chunks, GroupFormat format) {
  const uint32_t brought = LinearGroupWeightBytes(span, chunks, format) +
                           static_cast<uint32_t>(chunks) * LinearGroupTokenBytes(tokens) +
                           LinearGroupScaleBytes(span, chunks, format);
  if (format.bits < 16) return brought;
  const uint32_t read =
      LinearGroupWeightBytes(span, chunks - 1, format) +
      LinearGroupWeightBytes(LinearGroupPanels(span) * kLinearGroupPanelTiles, 1, format);
  return brought > read ? brought : read;
}
static_assert(LinearGroupStageBytes(16, 1, 1, kGroup16) % 1024 == 0);
static_assert(LinearGroupStageBytes(16, 1, 1, GroupFormat(WeightFormat::kE4m3)) % 1024 == 0);
static_assert(LinearGroupStageBytes(16, 1, 2, GroupFormat(WeightFormat::kInt4)) % 1024 == 0);
// Behind the stages: barriers, full, empty and first of each, and one that says that the kernel
// ahead has ended.
inline constexpr uint32_t kLinearGroupBarrierBytes = (3 * kLinearGroupMaxStages + 2) * 8;
// Of narrower weights more barriers, and the sums of a span's tiles on their way from part to
// part.
inline constexpr uint32_t kLinearGroupScaledBarrierBytes =
    kLinearGroupBarrierBytes +
    LinearGroupMaxSpan(16, GroupFormat(WeightFormat::kE4m3)) * LinearGroupScaledWarpgroups(16) * 8;
// Of two blocks that share K (linear_cluster_body.h): three barriers, and the sums of a part, of
// which each has half of the tokens, its own and those that come from the other block.
inline constexpr int kLinearClusterBlocks = 2;
inline constexpr uint32_t kLinearClusterBarrierBytes = kLinearGroupBarrierBytes + 32;
constexpr uint32_t LinearClusterSumBytes(int tokens) {
  return static_cast<uint32_t>(kLinearGroupPanelTiles * kPackedTileOutputs * tokens) * 4;
}
// blocks: that share K.
constexpr uint32_t LinearGroupBytesBehindStages(int tokens, int span, GroupFormat format,
                                                int blocks) {
  if (blocks > 1) return kLinearClusterBarrierBytes + LinearClusterSumBytes(tokens);
  if (format.bits == 16) return kLinearGroupBarrierBytes;
  return kLinearGroupScaledBarrierBytes +
         static_cast<uint32_t>(span * kPackedTileOutputs * tokens) * 4;
}
static_assert(kLinearGroupScaledBarrierBytes % 16 == 0 && kLinearClusterBarrierBytes % 16 == 0);
// shared_bytes: of a block, DeviceTraits'.
constexpr int LinearGroupStages(int shared_bytes, int tokens, int span, int chunks,
                                GroupFormat format, int blocks = 1) {
  const int fit = static_cast<int>((static_cast<uint32_t>(shared_bytes) -
                                    LinearGroupBytesBehindStages(tokens, span, format, blocks)) /
                                   LinearGroupStageBytes(tokens, span, chunks, format));
  return fit < kLinearGroupMaxStages ? fit : kLinearGroupMaxStages;
}
constexpr uint32_t LinearGroupSharedBytes(int shared_bytes, int tokens, int span, int chunks,
                                          GroupFormat format, int blocks = 1) {
  return static_cast<uint32_t>(
             LinearGroupStages(shared_bytes, tokens, span, chunks, format, blocks)) *
             LinearGroupStageBytes(tokens, span, chunks, format) +
         LinearGroupBytesBehindStages(tokens, span, format, blocks);
}

// Chunks of a stage: kernels know two numbers of them, this one and twice as many. On an H200 a
// stage costs 0.24 us whatever it holds, hence two where there is room, and four of narrow spans:
// `down` of an 8B model, 32 rows, 55, 33 and 29 us by one, two and four
// (docs/benchmarks/README.md). Changes no bits.
constexpr int LinearGroupFewChunks(int tokens, GroupFormat format) {
  return tokens <= 64 || format != kGroup16 ? 2 : 1;
}
// Of scaled weights and the widest tile of tokens they know the first alone: a stage of more would
// leave too little room for others.
constexpr bool LinearGroupHasMoreChunks(int tokens, GroupFormat format) {
  return tokens <= 64 || format == kGroup16;
}
constexpr int LinearGroupStageChunks(int shared_bytes, int tokens, int span, GroupFormat format,
                                     int blocks = 1) {
  const int few = LinearGroupFewChunks(tokens, format), more = 2 * few;
  if (!LinearGroupHasMoreChunks(tokens, format)) return few;
  const bool narrow = more <= 2 || span * format.bits <= 32;
  const bool fits = LinearGroupStages(shared_bytes, tokens, span, more, format, blocks) >=
                    LinearGroupMinStages(tokens, format);
  return narrow && fits ? more : few;
}
static_assert(kPackedPartTiles % 4 == 0, "a stage is of one part");

inline constexpr int kLinearGroupMaxTokens = 128;

// Whether a weight has so few outputs that a block of linear_stream has no tiles but its own, and
// one of linear_group, over all tokens, half of a warpgroup's.
constexpr bool LinearHasFewOutputs(int64_t output_tiles, int64_t multiprocessors) {
  return output_tiles <= 2 * multiprocessors;
}
// Where both kernels take so many rows, whether linear_group is the faster one: from 9 rows on. Of
// weights of 16 bits it is where outputs are few and inputs many: with `down` of an 8B model there
// a step of 16 rows takes 4.45 ms on an H200, 4.53 without; one of 8 rows 4.16 and 4.14, of one row
// 4.04 and 3.98. Of fewer bits it is where outputs are not few (docs/benchmarks/README.md).
inline constexpr int64_t kLinearGroupLongChunks = 128;
inline constexpr int64_t kLinearGroupFewestRows = 9;
constexpr bool LinearGroupTakesFewRows(int64_t rows, int64_t output_tiles, int64_t chunks,
                                       int64_t multiprocessors, int weight_bits) {
  if (rows < kLinearGroupFewestRows) return false;
  const bool few = LinearHasFewOutputs(output_tiles, multiprocessors);
  return weight_bits == 16 ? few && chunks >= kLinearGroupLongChunks : !few;
}
// Rows that a tile of tokens has at least in a launch of so many. Where outputs are few there are
// two tiles of half the tokens, since blocks take twice as many outputs then: a block waits for
// what it brings, and most of it was tokens.
constexpr int64_t LinearGroupTileRows(int64_t rows, int64_t output_tiles, int64_t multiprocessors,
                                      int weight_bits) {
  if (rows > kLinearGroupMaxTokens) return kLinearGroupMaxTokens;
  const bool halves =
      LinearHasFewOutputs(output_tiles, multiprocessors) && rows > (weight_bits == 4 ? 16 : 64);
  return halves ? (rows + 1) / 2 : rows;
}
constexpr bool HasLinearGroup(const DeviceTraits& traits, int tokens) {
  return traits.group_products &&
         LinearGroupStages(traits.shared_bytes, tokens, LinearGroupMaxSpan(tokens, kGroup16),
                           LinearGroupFewChunks(tokens, kGroup16),
                           kGroup16) >= LinearGroupMinStages(tokens, kGroup16);
}

// Rows of x that one copy brings, of a tile of tokens: all of it, but half where many would lie
// beyond x, which are not free. On an H200, 96 of 128 rows take 1.4 times as long as 120.
constexpr int LinearGroupCopiedRows(int tokens, int64_t max_rows) {
  const int64_t rest = max_rows % tokens;
  return tokens == kLinearGroupMaxTokens && rest != 0 && rest <= 96 ? tokens / 2 : tokens;
}

// Blocks take spans in turn. So many of them for each tile of tokens that all are there at once:
// then what one reads of the weights the others find in the cache.
constexpr int64_t LinearGroupColumns(int64_t output_tiles, int64_t token_tiles,
                                     int64_t multiprocessors, int span) {
  const int64_t spans = (output_tiles + span - 1) / span;
  const int64_t at_once = multiprocessors > token_tiles ? multiprocessors / token_tiles : 1;
  return spans < at_once ? spans : at_once;
}

// How many blocks bring stages as fast as memory gives weights: on an H200 one brings up to 95
// GB/s, of weights and tokens together, and memory gives 4.6 TB/s (docs/benchmarks/README.md).
inline constexpr int64_t kLinearGroupBlocksAtMemorySpeed = 48;

// And what the end of a round costs beside, as bytes of memory: little, but of spans that take as
// long otherwise those with fewer rounds come first.
inline constexpr int64_t kLinearGroupRoundBytes = 32 << 10;

// What a launch with such a span takes, by that, for 64 inputs: rounds of the blocks, each as long
// as its slowest part. token_tiles: of `tokens` tokens each.
constexpr int64_t LinearGroupCost(int64_t output_tiles, int tokens, int64_t token_tiles,
                                  int64_t multiprocessors, int span, GroupFormat format) {
  const int64_t spans = (output_tiles + span - 1) / span;
  const int64_t columns = LinearGroupColumns(output_tiles, token_tiles, multiprocessors, span);
  const int64_t waves = (columns * token_tiles + multiprocessors - 1) / multiprocessors;
  const int64_t rounds = (spans + columns - 1) / columns * waves;
  const int64_t of_a_block =
      kLinearGroupBlocksAtMemorySpeed * LinearGroupStageBytes(tokens, span, 1, format);
  const int64_t of_memory = columns * LinearGroupWeightBytes(span, 1, format);
  return rounds * ((of_a_block > of_memory ? of_a_block : of_memory) + kLinearGroupRoundBytes);
}

// The span with which a launch takes least, and of equal ones the narrowest: it has the most
// blocks that ask for weights. Changes no bits.
constexpr int LinearGroupSpan(int64_t output_tiles, int tokens, int64_t token_tiles,
                              int64_t multiprocessors, GroupFormat format) {
  int best = 1;
  int64_t least = INT64_MAX;
  for (int span = 1; span <= LinearGroupMaxSpan(tokens, format); ++span) {
    const int64_t cost =
        LinearGroupCost(output_tiles, tokens, token_tiles, multiprocessors, span, format);
    if (cost >= least) continue;
    best = span;
    least = cost;
  }
  return best;
}

// Whether the tokens of a stage come in one copy: of a whole tile, where inputs are whole chunks,
// since such a copy does not see where a row ends.
constexpr bool LinearGroupCopiesWholeStages(int tokens, int copied_rows, int64_t in_features) {
  return copied_rows == tokens && in_features % kPackedTileInputs == 0;
}

// What the copies of a launch see: the rows of x that it may have, or these as [chunks, rows], and
// the packed weight as tiles of rows of 128 bytes, 16 of them, 8 or 4: [chunks, tiles of outputs].
// Where they come with a stage its scales: [tiles of outputs, scales, 16 outputs].
constexpr runtime::TiledMatrix LinearGroupTokens(const LinearGroupArgs& args, uint32_t max_rows) {
  const auto rows = static_cast<int32_t>(max_rows);
  const int64_t row_bytes = int64_t{args.linear.in_features} * 2;
  if (args.whole_stages != 0)
    return {.data = args.linear.x,
            .rank = 4,
            .sizes = {kPackedTileInputs, rows, args.linear.in_features / kPackedTileInputs, 1},
            .tile = {kPackedTileInputs, args.copied_rows, args.stage_chunks, 1},
            .strides = {0, row_bytes, kPackedTileInputs * 2, row_bytes},
            .swizzled = true};
  return {.data = args.linear.x,
          .rank = 2,
          .sizes = {args.linear.in_features, rows},
          .tile = {kPackedTileInputs, args.copied_rows},
          .strides = {0, row_bytes},
          .swizzled = true};
}
constexpr runtime::TiledMatrix LinearGroupWeights(const LinearGroupArgs& args, GroupFormat format) {
  const PackedLayout packed{args.linear.out_features, args.linear.in_features};
  const int rows = kPackedTileOutputs * format.bits / 16;
  const int64_t tile_bytes = kPackedTileElements / 8 * format.bits;
  return {.data = args.linear.weight,
          .rank = 4,
          .sizes = {kPackedTileInputs, rows, static_cast<int32_t>(packed.OutputTiles()),
                    static_cast<int32_t>(packed.InputTiles())},
          .tile = {kPackedTileInputs, rows, args.span, args.stage_chunks},
          .strides = {0, kPackedTileInputs * 2, packed.InputTiles() * tile_bytes, tile_bytes}};
}
constexpr runtime::TiledMatrix LinearGroupScales(const LinearGroupArgs& args) {
  const LinearArgs& linear = args.linear;
  const PackedLayout packed{linear.out_features, linear.in_features, linear.scale_inputs};
  constexpr int kScaleElements = kPackedTileOutputs * 4 / runtime::kTileElementBytes;
  const int64_t tile_bytes = packed.ScaleGroups() * kPackedTileOutputs * 4;
  return {.data = linear.scales,
          .rank = 4,
          .sizes = {kScaleElements, static_cast<int32_t>(packed.ScaleGroups()),
                    static_cast<int32_t>(packed.OutputTiles()), 1},
          .tile = {kScaleElements, args.stage_chunks * kPackedTileInputs / linear.scale_inputs,
                   args.span, 1},
          .strides = {0, kPackedTileOutputs * 4, tile_bytes, tile_bytes}};
}

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_LINEAR_GROUP_GEOMETRY_H_
