// SPDX-License-Identifier: Apache-2.0
// Shapes and shared memory of linear_group_body.h, as its kernel and its launch both need them.
#ifndef REPRISE_KERNELS_LINEAR_GROUP_GEOMETRY_H_
#define REPRISE_KERNELS_LINEAR_GROUP_GEOMETRY_H_

#include <cstdint>

#include "kernels/device/traits.h"
#include "kernels/linear/linear_args.h"
#include "kernels/linear/linear_geometry.h"
#include "runtime/tile_map.h"

namespace reprise::kernels {

// Two warpgroups multiply; a warp of the third brings stages.
inline constexpr int kLinearGroupWarps = 8;
inline constexpr int kLinearGroupThreads = (kLinearGroupWarps + 4) * 32;
// Registers of their threads: those who multiply hold the sum of a part and that of all.
inline constexpr int kLinearGroupMultiplyRegisters = 216;
inline constexpr int kLinearGroupLoadRegisters = 72;

// A stage: so many chunks of 64 input features, of all tiles of 16 outputs that a block takes at a
// time, its span, and behind them of a tile of tokens. Panels of products of a warpgroup have room
// for four tiles each, and read that many.
inline constexpr int kLinearGroupPanelTiles = 4;
inline constexpr int kLinearGroupMaxSpan = 2 * kLinearGroupPanelTiles;
inline constexpr int kLinearGroupMinStages = 4;
inline constexpr int kLinearGroupMaxStages = 16;

constexpr int LinearGroupPanels(int span) {
  return (span + kLinearGroupPanelTiles - 1) / kLinearGroupPanelTiles;
}
constexpr uint32_t LinearGroupWeightBytes(int span, int chunks) {
  return static_cast<uint32_t>(span * chunks) * kPackedTileBytes;
}
constexpr uint32_t LinearGroupTokenBytes(int tokens) {  // of a chunk
  return static_cast<uint32_t>(tokens * kPackedTileInputs) * 2;
}
// What copies bring, and what products read beyond the last tile of the last chunk.
constexpr uint32_t LinearGroupStageBytes(int tokens, int span, int chunks) {
  const uint32_t brought = LinearGroupWeightBytes(span, chunks) +
                           static_cast<uint32_t>(chunks) * LinearGroupTokenBytes(tokens);
  const uint32_t read = LinearGroupWeightBytes(span, chunks - 1) +
                        LinearGroupWeightBytes(LinearGroupPanels(span) * kLinearGroupPanelTiles, 1);
  return brought > read ? brought : read;
}
static_assert(LinearGroupStageBytes(16, 1, 1) % 1024 == 0);
// Behind the stages: barriers, full and empty of each.
inline constexpr uint32_t kLinearGroupBarrierBytes = 2 * kLinearGroupMaxStages * 8;
// shared_bytes: of a block, DeviceTraits'.
constexpr int LinearGroupStages(int shared_bytes, int tokens, int span, int chunks) {
  const int fit =
      static_cast<int>((static_cast<uint32_t>(shared_bytes) - kLinearGroupBarrierBytes) /
                       LinearGroupStageBytes(tokens, span, chunks));
  return fit < kLinearGroupMaxStages ? fit : kLinearGroupMaxStages;
}
constexpr uint32_t LinearGroupSharedBytes(int shared_bytes, int tokens, int span, int chunks) {
  return static_cast<uint32_t>(LinearGroupStages(shared_bytes, tokens, span, chunks)) *
             LinearGroupStageBytes(tokens, span, chunks) +
         kLinearGroupBarrierBytes;
}

// Chunks of a stage: kernels know two numbers of them, this one and twice as many. On an H200 a
// stage costs 0.24 us whatever it holds, hence two where there is room, and four of narrow spans:
// `down` of an 8B model, 32 rows, 55, 33 and 29 us by one, two and four
// (docs/benchmarks/README.md). Changes no bits.
constexpr int LinearGroupFewChunks(int tokens) { return tokens <= 64 ? 2 : 1; }
constexpr int LinearGroupStageChunks(int shared_bytes, int tokens, int span) {
  const int few = LinearGroupFewChunks(tokens), more = 2 * few;
  const bool narrow = more <= 2 || span <= 2;
  const bool fits = LinearGroupStages(shared_bytes, tokens, span, more) >= kLinearGroupMinStages;
  return narrow && fits ? more : few;
}
static_assert(kPackedPartTiles % 4 == 0, "a stage is of one part");

inline constexpr int kLinearGroupMaxTokens = 128;
// Whether launches of few rows too are for linear_group, where linear_stream takes most of them:
// where a block of that has two tiles at most, and long ones. On an H200 `down` of an 8B model
// takes 30 us for up to 16 rows, and 34 to 41 there; `o`, whose tiles are short, 11 and 10 to 11.
inline constexpr int64_t kLinearGroupLongChunks = 128;
constexpr bool LinearGroupTakesFewRows(int64_t output_tiles, int64_t chunks,
                                       int64_t multiprocessors) {
  return output_tiles <= 2 * multiprocessors && chunks >= kLinearGroupLongChunks;
}
constexpr bool HasLinearGroup(const DeviceTraits& traits, int tokens) {
  return traits.group_products &&
         LinearGroupStages(traits.shared_bytes, tokens, kLinearGroupMaxSpan,
                           LinearGroupFewChunks(tokens)) >= kLinearGroupMinStages;
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
                                  int64_t multiprocessors, int span) {
  const int64_t spans = (output_tiles + span - 1) / span;
  const int64_t columns = LinearGroupColumns(output_tiles, token_tiles, multiprocessors, span);
  const int64_t waves = (columns * token_tiles + multiprocessors - 1) / multiprocessors;
  const int64_t rounds = (spans + columns - 1) / columns * waves;
  const int64_t of_a_block =
      kLinearGroupBlocksAtMemorySpeed * LinearGroupStageBytes(tokens, span, 1);
  const int64_t of_memory = columns * LinearGroupWeightBytes(span, 1);
  return rounds * ((of_a_block > of_memory ? of_a_block : of_memory) + kLinearGroupRoundBytes);
}

// The span with which a launch takes least, and of equal ones the narrowest: it has the most
// blocks that ask for weights. Changes no bits.
constexpr int LinearGroupSpan(int64_t output_tiles, int tokens, int64_t token_tiles,
                              int64_t multiprocessors) {
  int best = 1;
  int64_t least = INT64_MAX;
  for (int span = 1; span <= kLinearGroupMaxSpan; ++span) {
    const int64_t cost = LinearGroupCost(output_tiles, tokens, token_tiles, multiprocessors, span);
    if (cost >= least) continue;
    best = span;
    least = cost;
  }
  return best;
}

// What the copies of a launch see: the rows of x that it may have, and the packed weight as tiles
// of 16 rows of 128 bytes, [chunks, tiles of outputs].
constexpr runtime::TiledMatrix LinearGroupTokens(const LinearGroupArgs& args, uint32_t max_rows) {
  return {.data = args.linear.x,
          .rank = 2,
          .sizes = {args.linear.in_features, static_cast<int32_t>(max_rows)},
          .tile = {kPackedTileInputs, args.copied_rows},
          .strides = {0, int64_t{args.linear.in_features} * 2},
          .swizzled = true};
}
constexpr runtime::TiledMatrix LinearGroupWeights(const LinearGroupArgs& args) {
  const PackedLayout packed{args.linear.out_features, args.linear.in_features};
  return {
      .data = args.linear.weight,
      .rank = 4,
      .sizes = {kPackedTileInputs, kPackedTileOutputs, static_cast<int32_t>(packed.OutputTiles()),
                static_cast<int32_t>(packed.InputTiles())},
      .tile = {kPackedTileInputs, kPackedTileOutputs, args.span, args.stage_chunks},
      .strides = {0, kPackedTileInputs * 2, packed.InputTiles() * kPackedTileBytes,
                  kPackedTileBytes}};
}

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_LINEAR_GROUP_GEOMETRY_H_
