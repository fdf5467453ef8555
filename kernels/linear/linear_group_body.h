// SPDX-License-Identifier: Apache-2.0
// Linear over packed weights on products of warpgroups, thread style, for more tokens than
// linear_stream_body.h takes: weights are the operand of 64 rows, tokens the columns, both out of
// shared memory, so that a weight is read from there once for up to 128 tokens. A block takes spans
// of up to eight tiles of 16 outputs over all of K, so that nothing is summed across blocks; how
// many tiles, and so how evenly the blocks share the weights, is the launch's choice.
//
// One thread brings stages, as far ahead as there are, by copies of whole tiles: weights in one,
// the first of them before the kernel ahead of this one has ended, and a chunk's tokens in one or
// two. Two warpgroups multiply, four tiles each. They sum in the order of linear_geometry.h.
#ifndef REPRISE_KERNELS_LINEAR_LINEAR_GROUP_BODY_H_
#define REPRISE_KERNELS_LINEAR_LINEAR_GROUP_BODY_H_

#include "kernels/device/matrix_group.h"
#include "kernels/linear/group_geometry.h"
#include "kernels/linear/linear_args.h"
#include "kernels/linear/linear_output.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

// kTokens: 16, 32, 64 or 128 of a tile. kChunks: of a stage; products that are asked for in a loop
// whose length nobody knows wait for each other.
template <typename T, int kTokens, int kChunks>
class GroupLinear {
 public:
  REPRISE_FN GroupLinear(const LinearGroupArgs& args, int rows, int first_row,
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
        stages_(static_cast<uint32_t>(
            LinearGroupStages(kTraits.shared_bytes, kTokens, args.span, kChunks))),
        stage_bytes_(LinearGroupStageBytes(kTokens, args.span, kChunks)),
        chunk_bytes_(LinearGroupWeightBytes(args.span, 1)),
        shared_(shared) {}

  REPRISE_FN void Run() {
    Begin();
    if (Warp() < kLinearGroupWarps) {
      TakeRegisters<kLinearGroupMultiplyRegisters>();
      BeginInOrder();
      if (Panel() < panels_) MultiplySpans();
      return;
    }
    GiveRegisters<kLinearGroupLoadRegisters>();
    if (Warp() == kLinearGroupWarps && Lane() == 0) LoadStages();
  }

 private:
  static constexpr int kFragments = kTokens / 16;
  static constexpr int kSteps = kPackedTileInputs / 16;
  static constexpr uint32_t kTokenBytes = LinearGroupTokenBytes(kTokens);
  using Sums = MatrixD<16>[kFragments];

  // Of the warpgroup.
  REPRISE_FN static int Panel() { return Warp() / kGroupWarps; }

  REPRISE_FN uint64_t* Barriers() const {
    return reinterpret_cast<uint64_t*>(shared_ + stages_ * stage_bytes_);
  }
  REPRISE_FN uint64_t* Full(uint32_t stage) const { return Barriers() + stage; }
  REPRISE_FN uint64_t* Empty(uint32_t stage) const {
    return Barriers() + kLinearGroupMaxStages + stage;
  }
  // Of a stage: [chunks, span] tiles, and [chunks, kTokens] rows.
  REPRISE_FN unsigned char* Weights(uint32_t stage, int chunk = 0) const {
    return shared_ + stage * stage_bytes_ + static_cast<uint32_t>(chunk) * chunk_bytes_;
  }
  REPRISE_FN unsigned char* Tokens(uint32_t stage, int chunk) const {
    return Weights(stage, kChunks) + static_cast<uint32_t>(chunk) * kTokenBytes;
  }
  // The stages in turn.
  struct Place {
    uint32_t stage = 0, turn = 0;
  };
  REPRISE_FN void Advance(Place& at) const {
    if (++at.stage < stages_) return;
    at.stage = 0;
    ++at.turn;
  }
  // Tiles that the span which begins at `tile` has.
  REPRISE_FN int TilesOf(int tile) const { return tiles_ - tile < span_ ? tiles_ - tile : span_; }
  REPRISE_FN int FirstTile() const { return BlockX() * span_; }
  REPRISE_FN int Stride() const { return GridX() * span_; }
  // Of the tile of tokens, those that copies bring.
  REPRISE_FN int CopiedTokens() const {
    const int copies = (rows_ - first_row_ + args_.copied_rows - 1) / args_.copied_rows;
    return copies * args_.copied_rows < kTokens ? copies * args_.copied_rows : kTokens;
  }

  // Barriers, and zeros where products read what no copy brings.
  REPRISE_FN void Begin() const {
    if (ThreadX() == 0) {
      for (uint32_t s = 0; s < stages_; ++s) {
        BarrierInit(Full(s), 1);
        BarrierInit(Empty(s), static_cast<uint32_t>(panels_ * kGroupWarps));
      }
    }
    const uint32_t copied = static_cast<uint32_t>(copied_tokens_) * kPackedTileInputs * 2;
    for (uint32_t s = 0; s < stages_; ++s) {
      for (int chunk = 0; chunk < kChunks; ++chunk)
        Zero(Tokens(s, chunk) + copied, Tokens(s, chunk + 1));
      Zero(Tokens(s, kChunks), Weights(s + 1));
    }
    FenceBulkCopies();
    SyncBlock();
  }
  REPRISE_FN static void Zero(unsigned char* begin, unsigned char* end) {
    for (unsigned char* to = begin + ThreadX() * 16; to < end; to += kLinearGroupThreads * 16)
      *reinterpret_cast<Vec<uint32_t, 4>*>(to) = Vec<uint32_t, 4>{};
  }

  // ---- the thread that brings stages ----

  // What a stage holds, and which one it is.
  struct Load {
    int tile = 0, chunk = 0;
    Place at;
  };
  REPRISE_FN bool IsLoad(const Load& load) const { return load.tile < tiles_; }
  REPRISE_FN void Next(Load& load) const {
    Advance(load.at);
    load.chunk += kChunks;
    if (load.chunk < chunks_) return;
    load.chunk = 0;
    load.tile += Stride();
  }

  REPRISE_FN void LoadStages() const {
    const Load first{FirstTile(), 0, {}};
    for (Load load = first; IsLoad(load) && load.at.turn == 0; Next(load)) RequestWeights(load);
    WaitForPrevious();
    for (Load load = first; IsLoad(load); Next(load)) {
      if (load.at.turn > 0) {
        BarrierWait(Empty(load.at.stage), load.at.turn - 1);
        RequestWeights(load);
      }
      RequestTokens(load);
    }
  }
  // Announces the stage's tokens too. Beyond K, tiles are brought as zeros, which change no sum.
  REPRISE_FN void RequestWeights(const Load& load) const {
    uint64_t* const full = Full(load.at.stage);
    const auto token_bytes = static_cast<uint32_t>(copied_tokens_ * kPackedTileInputs) * 2;
    BarrierArriveExpectBytes(full, kChunks * (chunk_bytes_ + token_bytes));
    CopyTileOnce<4>(Weights(load.at.stage), args_.weights, {0, 0, load.tile, load.chunk}, full);
  }
  REPRISE_FN void RequestTokens(const Load& load) const {
    REPRISE_UNROLL
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      unsigned char* const to = Tokens(load.at.stage, chunk);
      for (int token = 0; token < copied_tokens_; token += args_.copied_rows)
        CopyTile<2>(to + token * kPackedTileInputs * 2, args_.tokens,
                    {(load.chunk + chunk) * kPackedTileInputs, first_row_ + token},
                    Full(load.at.stage));
    }
  }

  // ---- two warpgroups ----

  REPRISE_FN void MultiplySpans() const {
    GroupProducts products;
    Place at;
    for (int tile = FirstTile(); tile < tiles_; tile += Stride()) {
      Sums sum;
      for (int begin = 0; begin < chunks_; begin += kPackedPartTiles) {
        Sums part;
        MultiplyPart(products, at, begin, part);
        REPRISE_UNROLL
        for (int f = 0; f < kFragments; ++f) {
          REPRISE_UNROLL
          for (int i = 0; i < MatrixD<16>::kSize; ++i)
            sum[f].v[i] = begin == 0 ? part[f].v[i] : sum[f].v[i] + part[f].v[i];
        }
      }
      Store(tile + Warp(), TilesOf(tile), sum);
    }
  }
  // The products of the stages of the part that begins at chunk `begin`, from `at` on.
  REPRISE_FN void MultiplyPart(GroupProducts& products, Place& at, int begin, Sums& part) const {
    REPRISE_UNROLL
    for (int f = 0; f < kFragments; ++f) part[f].Clear();
    products.Begin();
    const int end = chunks_ - begin < kPackedPartTiles ? chunks_ : begin + kPackedPartTiles;
    uint32_t before = 0;
    for (int first = begin; first < end; first += kChunks, Advance(at)) {
      BarrierWait(Full(at.stage), at.turn);
      REPRISE_UNROLL
      for (int chunk = 0; chunk < kChunks; ++chunk) {
        const uint32_t weights =
            SharedAddress(Weights(at.stage, chunk)) +
            static_cast<uint32_t>(Panel() * kLinearGroupPanelTiles) * kPackedTileBytes;
        const uint32_t tokens = SharedAddress(Tokens(at.stage, chunk));
        REPRISE_UNROLL
        for (int s = 0; s < kSteps; ++s)
          products.template MultiplyRows<T>(part, weights + static_cast<uint32_t>(32 * s),
                                            tokens + static_cast<uint32_t>(32 * s), true);
      }
      products.Commit();
      if (first > begin) {
        products.template Wait<1>(part);
        Release(before);
      }
      before = at.stage;
    }
    products.template Wait<0>(part);
    Release(before);
  }
  REPRISE_FN void Release(uint32_t stage) const {
    SyncWarp();
    if (Lane() == 0) BarrierArrive(Empty(stage));
  }

  // tile: of the warp. tiles: of the span.
  REPRISE_FN void Store(int tile, int tiles, const Sums& sum) const {
    if (Warp() >= tiles) return;
    constexpr int kColumns = kLaneColumns<16>;
    StoreLinearTile<T, kFragments * kColumns, true>(
        a_, static_cast<int64_t>(tile) * kPackedTileOutputs, rows_,
        [&](int h, int j) { return sum[j / kColumns].v[At(h, j % kColumns)]; },
        [&](int j) { return first_row_ + j / kColumns * 16 + MatrixColumn(j % kColumns); });
  }

  const LinearGroupArgs& args_;
  const LinearArgs& a_;
  const int rows_, first_row_;
  const int span_, tiles_;
  const int chunks_;  // of K
  const int panels_;  // warpgroups that multiply
  const int copied_tokens_;
  const uint32_t stages_, stage_bytes_;
  const uint32_t chunk_bytes_;  // of weights
  unsigned char* const shared_;
};

// Grid x: blocks that take spans in turn; grid y: tiles of tokens.
template <typename T, int kTokens>
REPRISE_FN void GroupLinearBody(const LinearGroupArgs& args, unsigned char* shared) {
  if (!args.linear.reads_ahead) WaitForPrevious();
  const int rows = static_cast<int>(*args.linear.num_rows);
  if (BlockY() * kTokens >= rows) {
    if (BlockX() == 0 && BlockY() == 0) WaitForPrevious();
    return;
  }
  const int first_row = BlockY() * kTokens;
  constexpr int kFewChunks = LinearGroupFewChunks(kTokens);
  if (args.stage_chunks == kFewChunks) {
    GroupLinear<T, kTokens, kFewChunks>(args, rows, first_row, shared).Run();
  } else {
    GroupLinear<T, kTokens, 2 * kFewChunks>(args, rows, first_row, shared).Run();
  }
}

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_LINEAR_LINEAR_GROUP_BODY_H_
