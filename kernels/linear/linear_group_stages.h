// SPDX-License-Identifier: Apache-2.0
// The stages of linear's kernels on products of warpgroups, thread style: shared memory that one
// thread fills, as far ahead as there is room, by copies of whole tiles: weights in one, with
// scales where a stage brings them in another, the first of them before the kernel ahead of this
// one has ended, and tokens in one, or two for a chunk. Where the first weights are paced, a second
// thread asks for them, for one stage after the other until the kernel ahead has ended.
#ifndef REPRISE_KERNELS_LINEAR_LINEAR_GROUP_STAGES_H_
#define REPRISE_KERNELS_LINEAR_LINEAR_GROUP_STAGES_H_

#include "kernels/device/fp8.h"
#include "kernels/device/int4.h"
#include "kernels/device/matrix_group.h"
#include "kernels/linear/group_geometry.h"
#include "kernels/linear/linear_args.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

// W: of weights, T, E4m3, Int4 or RoundedE4m3.
template <typename W>
inline constexpr GroupFormat kGroupFormat = kGroup16;
template <>
inline constexpr GroupFormat kGroupFormat<E4m3>{WeightFormat::kE4m3};
template <>
inline constexpr GroupFormat kGroupFormat<Int4>{WeightFormat::kInt4};
template <>
inline constexpr GroupFormat kGroupFormat<RoundedE4m3>{WeightFormat::kE4m3Rounded};

// W: of weights. kTokens: 16, 32, 64 or 128 of a tile. kChunks: of a stage.
// kBlocks: neighbours along x that take the parts of K in turn, for one span together.
template <typename T, typename W, int kTokens, int kChunks, int kBlocks = 1>
class GroupStages {
 public:
  REPRISE_FN GroupStages(const LinearGroupArgs& args, int rows, int first_row,
                         unsigned char* shared)
      : args_(args),
        a_(args.linear),
        rows_(rows),
        first_row_(first_row),
        span_(args.span),
        tiles_(static_cast<int>(PackedLayout{a_.out_features, a_.in_features}.OutputTiles())),
        chunks_(static_cast<int>(PackedLayout{a_.out_features, a_.in_features}.InputTiles())),
        panels_(LinearGroupPanels(args.span)),
        copied_tokens_(CopiedTokens()),
        stages_(static_cast<uint32_t>(LinearGroupStages(kTraits.shared_bytes, kTokens, args.span,
                                                        kChunks, kFormat, kBlocks))),
        stage_bytes_(LinearGroupStageBytes(kTokens, args.span, kChunks, kFormat)),
        chunk_bytes_(LinearGroupWeightBytes(args.span, 1, kFormat)),
        shared_(shared) {}

  static constexpr GroupFormat kFormat = kGroupFormat<W>;
  static constexpr int kBits = kFormat.bits;
  static constexpr int kFragments = kTokens / 16;
  static constexpr int kSteps = kPackedTileInputs / 16;
  static constexpr uint32_t kTokenBytes = LinearGroupTokenBytes(kTokens);
  // Whether the first weights come one stage after the other. Without, they wait for nothing, and
  // complete what their tokens complete.
  static constexpr bool kPaced = LinearGroupPaces(kTokens, kFormat);
  using Sums = MatrixD<16>[kFragments];
  using RowScales = float[kLaneRows];  // of a lane's outputs

  REPRISE_FN unsigned char* BehindStages() const { return shared_ + stages_ * stage_bytes_; }
  REPRISE_FN uint64_t* Full(uint32_t stage) const {
    return reinterpret_cast<uint64_t*>(BehindStages()) + stage;
  }
  REPRISE_FN uint64_t* Empty(uint32_t stage) const { return Full(kLinearGroupMaxStages + stage); }
  // The weights of a stage's first turn, which come before its tokens may be asked for.
  REPRISE_FN uint64_t* First(uint32_t stage) const {
    return Full(2 * kLinearGroupMaxStages + stage);
  }
  // The kernel ahead has ended.
  REPRISE_FN uint64_t* Go() const { return Full(3 * kLinearGroupMaxStages); }
  REPRISE_FN uint64_t* BehindBarriers() const {
    return Full(kLinearGroupBarrierBytes / sizeof(uint64_t));
  }
  // Of a stage: [chunks, span] tiles, and [chunks, kTokens] rows.
  REPRISE_FN unsigned char* Weights(uint32_t stage, int chunk = 0) const {
    return shared_ + stage * stage_bytes_ + static_cast<uint32_t>(chunk) * chunk_bytes_;
  }
  REPRISE_FN unsigned char* Tokens(uint32_t stage, int chunk) const {
    return Weights(stage, kChunks) + static_cast<uint32_t>(chunk) * kTokenBytes;
  }
  // Where stages bring them: [span, ScalesOfStage(), kPackedTileOutputs].
  REPRISE_FN unsigned char* Scales(uint32_t stage) const { return Tokens(stage, kChunks); }
  REPRISE_FN int ScalesOfStage() const { return ScaleOf(kChunks * kPackedTileInputs); }
  // input / scale_inputs, which is 32, 64 or 128.
  REPRISE_FN int ScaleOf(int input) const { return input >> (5 + a_.scale_inputs / 64); }
  // The stages in turn.
  struct Place {
    uint32_t stage = 0, turn = 0;
  };
  REPRISE_FN void Advance(Place& at) const {
    if (++at.stage < stages_) return;
    at.stage = 0;
    ++at.turn;
  }
  // count: of stages, no more than there are.
  REPRISE_FN void Advance(Place& at, uint32_t count) const {
    at.stage += count;
    if (at.stage < stages_) return;
    at.stage -= stages_;
    ++at.turn;
  }
  // Tiles that the span which begins at `tile` has.
  REPRISE_FN int TilesOf(int tile) const { return tiles_ - tile < span_ ? tiles_ - tile : span_; }
  REPRISE_FN int FirstTile() const { return BlockX() / kBlocks * span_; }
  REPRISE_FN int Stride() const { return GridX() / kBlocks * span_; }
  REPRISE_FN static int FirstPart() { return BlockX() % kBlocks; }

  // Barriers, and zeros where products read what no copy brings. By all threads, before a barrier
  // of the block. loads: of one thread, which asks for the first weights. warps: that release a
  // stage.
  REPRISE_FN void BeginStages(bool loads, int threads, int warps) const {
    if (loads) {
      if constexpr (kPaced) BarrierInit(Go(), 1);
      for (uint32_t s = 0; s < stages_; ++s) {
        if constexpr (kPaced) BarrierInit(First(s), 1);
        BarrierInit(Full(s), kPaced ? 2 : 1);
        BarrierInit(Empty(s), static_cast<uint32_t>(warps));
      }
      FenceBulkCopies();
      for (Stage load = FirstLoad(); IsFirst(load) && IsAtOnce(load.at.stage); Next(load))
        RequestFirst(load);
    }
    const uint32_t copied = static_cast<uint32_t>(copied_tokens_) * kPackedTileInputs * 2;
    const uint32_t brought = kChunks * (chunk_bytes_ + LinearGroupTokenBytes(kTokens)) +
                             (kFormat.stage_scales ? ScaleBytes() : 0);
    // Products read registers of narrower weights, and nothing behind the tokens.
    const bool reads_on = kBits == 16 && brought != stage_bytes_;
    if (copied == kTokenBytes && !reads_on) return;
    for (uint32_t s = 0; s < stages_; ++s) {
      for (int chunk = 0; chunk < kChunks; ++chunk)
        Zero(Tokens(s, chunk) + copied, Tokens(s, chunk + 1), threads);
      if (reads_on) Zero(Weights(s) + brought, Weights(s + 1), threads);
    }
    FenceBulkCopies();
  }
  // By every warp that may have multiplied.
  REPRISE_FN void Release(uint32_t stage) const {
    SyncWarp();
    if (Lane() == 0) BarrierArrive(Empty(stage));
  }
  REPRISE_FN static void AddPart(const Sums& part, bool first, Sums& sum) {
    REPRISE_UNROLL
    for (int f = 0; f < kFragments; ++f) {
      REPRISE_UNROLL
      for (int i = 0; i < MatrixD<16>::kSize; ++i)
        sum[f].v[i] = first ? part[f].v[i] : sum[f].v[i] + part[f].v[i];
    }
  }
  REPRISE_FN static void AddScaled(const Sums& part, const RowScales& scales, Sums& sum) {
    REPRISE_UNROLL
    for (int f = 0; f < kFragments; ++f) {
      REPRISE_UNROLL
      for (int h = 0; h < kLaneRows; ++h) {
        REPRISE_UNROLL
        for (int j = 0; j < kLaneColumns<16>; ++j)
          sum[f].v[At(h, j)] = MultiplyAdd(part[f].v[At(h, j)], scales[h], sum[f].v[At(h, j)]);
      }
    }
  }

  // By the warps that load, of which `first` is the first: one thread of two of them.
  REPRISE_FN void Load(int first) const {
    if (Lane() != 0) return;
    if (Warp() == first) LoadStages();
    if constexpr (kPaced) {
      if (Warp() == first + 1) PaceFirst();
    }
  }

  const LinearGroupArgs& args_;
  const LinearArgs& a_;
  const int rows_, first_row_;
  const int span_, tiles_;
  const int chunks_;  // of K
  const int panels_;  // of a span
  const int copied_tokens_;
  const uint32_t stages_, stage_bytes_;
  const uint32_t chunk_bytes_;  // of weights
  unsigned char* const shared_;

 private:
  // Of the tile of tokens, those that copies bring.
  REPRISE_FN int CopiedTokens() const {
    const int copies = (rows_ - first_row_ + args_.copied_rows - 1) / args_.copied_rows;
    return copies * args_.copied_rows < kTokens ? copies * args_.copied_rows : kTokens;
  }
  REPRISE_FN static void Zero(unsigned char* begin, unsigned char* end, int threads) {
    for (unsigned char* to = begin + ThreadX() * 16; to < end; to += threads * 16)
      *reinterpret_cast<Vec<uint32_t, 4>*>(to) = Vec<uint32_t, 4>{};
  }

  // What a stage holds, and which one it is.
  struct Stage {
    int tile = 0, chunk = 0;
    Place at;
  };
  REPRISE_FN static int FirstChunk() { return FirstPart() * kPackedPartTiles; }
  REPRISE_FN Stage FirstLoad() const { return {FirstTile(), FirstChunk(), {}}; }
  REPRISE_FN bool IsLoad(const Stage& load) const {
    return load.tile < tiles_ && (kBlocks == 1 || load.chunk < chunks_);
  }
  REPRISE_FN bool IsFirst(const Stage& load) const { return IsLoad(load) && load.at.turn == 0; }
  REPRISE_FN void Next(Stage& load) const {
    Advance(load.at);
    load.chunk += kChunks;
    if (kBlocks > 1 && load.chunk % kPackedPartTiles == 0)
      load.chunk += (kBlocks - 1) * kPackedPartTiles;
    if (load.chunk < chunks_) return;
    load.chunk = FirstChunk();
    load.tile += Stride();
  }

  // Whether the first weights go by the kernel ahead. Of 4 bits with several tiles of tokens, whose
  // blocks bring the same weights, that took longer.
  REPRISE_FN static bool GoesByKernelAhead() { return kBits != 4 || GridY() == 1; }
  // Whether a stage's first weights are asked for before any have come.
  REPRISE_FN bool IsAtOnce(uint32_t stage) const {
    const KernelAhead ahead = GoesByKernelAhead() ? a_.ahead : KernelAhead::kLong;
    return !kPaced || stage == 0 ||
           (stage + 1) * kChunks * chunk_bytes_ <= LinearGroupFirstBytes(kFormat, ahead);
  }
  // The other first weights: one stage for each that is there, and once the kernel ahead has ended
  // those that are left. Says of all of them that they are there, of those that are waited for when
  // they are.
  REPRISE_FN void PaceFirst() const {
    const bool goes = GoesByKernelAhead();
    uint32_t there = 0, requested = 0;
    for (Stage load = FirstLoad(); IsFirst(load); Next(load), ++requested) {
      if (IsAtOnce(requested)) continue;
      if (goes) {
        BarrierWaitForEither(First(there), Go(), 0);
      } else {
        TellFirst(there);
      }
      ++there;
      RequestFirst(load);
    }
    for (uint32_t stage = goes ? 0 : there; stage < requested; ++stage) TellFirst(stage);
  }
  REPRISE_FN void TellFirst(uint32_t stage) const {
    BarrierWait(First(stage), 0);
    BarrierArrive(Full(stage));
  }
  REPRISE_FN void LoadStages() const {
    WaitForPrevious();
    if constexpr (kPaced) BarrierArrive(Go());
    Stage load = FirstLoad();
    for (; IsFirst(load); Next(load)) {
      if constexpr (kPaced) BarrierArriveExpectBytes(Full(load.at.stage), TokenBytes());
      RequestTokens(load);
    }
    for (; IsLoad(load); Next(load)) {
      BarrierWait(Empty(load.at.stage), load.at.turn - 1);
      BarrierArriveExpectBytes(Full(load.at.stage), WeightBytes() + TokenBytes());
      if constexpr (kPaced) BarrierArrive(Full(load.at.stage));
      RequestWeights(load, Full(load.at.stage));
      RequestTokens(load);
    }
  }

  REPRISE_FN uint32_t ScaleBytes() const {
    return static_cast<uint32_t>(span_ * ScalesOfStage() * kPackedTileOutputs) * 4;
  }
  // Of a stage, what copies bring; weights with their scales.
  REPRISE_FN uint32_t TokenBytes() const {
    return static_cast<uint32_t>(kChunks * copied_tokens_ * kPackedTileInputs) * 2;
  }
  REPRISE_FN uint32_t WeightBytes() const {
    return kChunks * chunk_bytes_ + (kFormat.stage_scales ? ScaleBytes() : 0);
  }
  // Announces the stage's tokens too where nothing is paced.
  REPRISE_FN void RequestFirst(const Stage& load) const {
    uint64_t* const full = kPaced ? First(load.at.stage) : Full(load.at.stage);
    BarrierArriveExpectBytes(full, WeightBytes() + (kPaced ? 0 : TokenBytes()));
    RequestWeights(load, full);
  }
  // Beyond K, tiles are brought as zeros, which change no sum.
  REPRISE_FN void RequestWeights(const Stage& load, uint64_t* full) const {
    if constexpr (kFormat.stage_scales)
      CopyTileOnce<4>(Scales(load.at.stage), args_.scales,
                      {0, ScaleOf(load.chunk * kPackedTileInputs), load.tile, 0}, full);
    CopyTileOnce<4>(Weights(load.at.stage), args_.weights, {0, 0, load.tile, load.chunk}, full);
  }
  REPRISE_FN void RequestTokens(const Stage& load) const {
    if (args_.whole_stages != 0) {
      CopyTile<4>(Tokens(load.at.stage, 0), args_.tokens, {0, first_row_, load.chunk, 0},
                  Full(load.at.stage));
      return;
    }
    REPRISE_UNROLL
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      unsigned char* const to = Tokens(load.at.stage, chunk);
      for (int token = 0; token < copied_tokens_; token += args_.copied_rows)
        CopyTile<2>(to + token * kPackedTileInputs * 2, args_.tokens,
                    {(load.chunk + chunk) * kPackedTileInputs, first_row_ + token},
                    Full(load.at.stage));
    }
  }
};

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_LINEAR_LINEAR_GROUP_STAGES_H_
