// SPDX-License-Identifier: Apache-2.0
// Linear over packed weights on products of warpgroups, thread style, for more tokens than
// linear_stream_body.h takes: weights are the operand of 64 rows, tokens the columns, both out of
// shared memory, so that a weight is read from there once for up to 128 tokens. A block takes spans
// of up to eight tiles of 16 outputs over all of K, so that nothing is summed across blocks; how
// many tiles, and so how evenly the blocks share the weights, is the launch's choice.
//
// Four warps bring stages in turn, as far ahead as there are: weights by bulk copies, the first of
// them before the kernel ahead of this one has ended, and tokens beside them. What a stage costs
// the one who brings it is longer than its products, hence four. Two warpgroups multiply, four
// tiles each. They sum in the order of linear_geometry.h.
#ifndef REPRISE_KERNELS_LINEAR_LINEAR_GROUP_BODY_H_
#define REPRISE_KERNELS_LINEAR_LINEAR_GROUP_BODY_H_

#include "kernels/device/matrix_group.h"
#include "kernels/linear/group_geometry.h"
#include "kernels/linear/linear_args.h"
#include "kernels/linear/linear_output.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

// kTokens: 32, 64 or 128 of a tile.
template <typename T, int kTokens>
class GroupLinear {
 public:
  REPRISE_FN GroupLinear(const LinearArgs& a, int rows, int first_row, unsigned char* shared)
      : a_(a),
        rows_(rows),
        first_row_(first_row),
        span_(a.span),
        tiles_(static_cast<int>(PackedLayout{a.out_features, a.in_features}.OutputTiles())),
        chunks_(static_cast<uint32_t>(PackedLayout{a.out_features, a.in_features}.InputTiles())),
        panels_((a.span + kLinearGroupPanelTiles - 1) / kLinearGroupPanelTiles),
        stages_(static_cast<uint32_t>(LinearGroupStages(kSharedBytes, kTokens, a.span))),
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
    LoadStages();
  }

 private:
  static constexpr int kSharedBytes = kTraits.shared_bytes;
  static constexpr int kFragments = kTokens / 16;
  static constexpr int kRowChunks = kPackedTileInputs / kPackedChunk;  // of 16 bytes, of a row
  static constexpr int kSteps = kPackedTileInputs / 16;
  using Sums = MatrixD<16>[kFragments];

  // Of the warpgroup.
  REPRISE_FN static int Panel() { return Warp() / kGroupWarps; }

  REPRISE_FN uint64_t* Barriers() const {
    return reinterpret_cast<uint64_t*>(shared_ + stages_ * LinearGroupStageBytes(kTokens, span_));
  }
  REPRISE_FN uint64_t* Full(uint32_t stage) const { return Barriers() + stage; }
  REPRISE_FN uint64_t* Empty(uint32_t stage) const {
    return Barriers() + kLinearGroupMaxStages + stage;
  }
  REPRISE_FN unsigned char* Weights(uint32_t stage) const {
    return shared_ + stage * LinearGroupStageBytes(kTokens, span_);
  }
  REPRISE_FN unsigned char* Tokens(uint32_t stage) const {
    return Weights(stage) + LinearGroupWeightBytes(span_);
  }
  // The stages in turn.
  struct Place {
    uint32_t stage = 0, turn = 0;
  };
  REPRISE_FN void Advance(Place& at, uint32_t by = 1) const {
    at.stage += by;
    if (at.stage < stages_) return;
    at.stage -= stages_;
    ++at.turn;
  }
  // Tiles that the span which begins at `tile` has.
  REPRISE_FN int TilesOf(int tile) const { return tiles_ - tile < span_ ? tiles_ - tile : span_; }
  REPRISE_FN int FirstTile() const { return BlockX() * span_; }
  REPRISE_FN int Stride() const { return GridX() * span_; }
  // Barriers, and zeros where products read rows that no span brings.
  REPRISE_FN void Begin() const {
    if (ThreadX() == 0) {
      for (uint32_t s = 0; s < stages_; ++s) {
        BarrierInit(Full(s), 1 + kWarpSize);  // weights, and tokens of every lane
        BarrierInit(Empty(s), static_cast<uint32_t>(panels_ * kGroupWarps));
      }
    }
    // The block's last span may have fewer tiles than those before it, and begin in a fresh stage.
    const int last = FirstTile() + (tiles_ - 1 - FirstTile()) / Stride() * Stride();
    const uint32_t begin = static_cast<uint32_t>(TilesOf(last)) * kPackedTileBytes;
    for (uint32_t s = 0; s < stages_; ++s) {
      for (uint32_t at = begin + static_cast<uint32_t>(ThreadX()) * 16;
           at < LinearGroupWeightBytes(span_); at += kLinearGroupThreads * 16)
        *reinterpret_cast<Vec<uint32_t, 4>*>(Weights(s) + at) = Vec<uint32_t, 4>{};
    }
    FenceBulkCopies();
    SyncBlock();
  }

  // ---- four warps that bring stages ----

  // What a stage holds, and which one it is.
  struct Load {
    int tile = 0;
    uint32_t chunk = 0;
    Place at;
  };
  REPRISE_FN Load FirstLoad() const {
    Load load{FirstTile(), 0, {}};
    Skip(load, static_cast<uint32_t>(Warp() - kLinearGroupWarps));
    return load;
  }
  REPRISE_FN bool IsLoad(const Load& load) const { return load.tile < tiles_; }
  REPRISE_FN void Skip(Load& load, uint32_t stages) const {
    Advance(load.at, stages);
    for (load.chunk += stages; load.chunk >= chunks_; load.chunk -= chunks_) load.tile += Stride();
  }

  REPRISE_FN void LoadStages() const {
    Load first = FirstLoad();
    for (; IsLoad(first) && first.at.turn == 0; Skip(first, kLinearGroupLoadWarps))
      RequestWeights(first);
    WaitForPrevious();
    for (Load load = FirstLoad(); IsLoad(load); Skip(load, kLinearGroupLoadWarps)) {
      if (load.at.turn > 0) {
        BarrierWait(Empty(load.at.stage), load.at.turn - 1);
        RequestWeights(load);
      }
      LoadTokens(load);
    }
    CopyAsyncWait<0>();
  }
  REPRISE_FN void RequestWeights(const Load& load) const {
    if (Lane() != 0) return;
    const int tiles = TilesOf(load.tile);
    const int64_t row = static_cast<int64_t>(chunks_) * kPackedTileElements;
    const T* from = static_cast<const T*>(a_.weight) + load.tile * row +
                    static_cast<int64_t>(load.chunk) * kPackedTileElements;
    unsigned char* to = Weights(load.at.stage);
    BarrierArriveExpectBytes(Full(load.at.stage), static_cast<uint32_t>(tiles) * kPackedTileBytes);
    for (int i = 0; i < tiles; ++i, from += row, to += kPackedTileBytes)
      CopyBulkOnce(to, from, kPackedTileBytes, Full(load.at.stage));
  }
  REPRISE_FN void LoadTokens(const Load& load) const {
    const int row = Lane() / kRowChunks, of_row = Lane() % kRowChunks;
    const int k = static_cast<int>(load.chunk) * kPackedTileInputs + of_row * kPackedChunk;
    const T* const x = static_cast<const T*>(a_.x);
    const uint32_t stage = SharedAddress(Tokens(load.at.stage));
    REPRISE_UNROLL_BY(8)
    for (int r = row; r < kTokens; r += kWarpSize / kRowChunks) {
      const bool valid = first_row_ + r < rows_ && k < a_.in_features;
      const T* from = valid ? x + static_cast<int64_t>(first_row_ + r) * a_.in_features + k : x;
      CopyAsync16OrZero(stage + SwizzledOffset<kRowChunks>(static_cast<uint32_t>(r),
                                                           static_cast<uint32_t>(of_row)),
                        from, valid);
    }
    BarrierArriveAfterCopies(Full(load.at.stage));
  }

  // ---- two warpgroups ----

  REPRISE_FN void MultiplySpans() const {
    GroupProducts products;
    Place at;
    for (int tile = FirstTile(); tile < tiles_; tile += Stride()) {
      Sums sum;
      for (uint32_t begin = 0; begin < chunks_; begin += kPackedPartTiles) {
        const uint32_t left = chunks_ - begin;
        Sums part;
        MultiplyPart(products, at, left < kPackedPartTiles ? left : kPackedPartTiles, part);
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
  // The products of so many stages, from `at` on.
  REPRISE_FN void MultiplyPart(GroupProducts& products, Place& at, uint32_t stages,
                               Sums& part) const {
    REPRISE_UNROLL
    for (int f = 0; f < kFragments; ++f) part[f].Clear();
    products.Begin();
    uint32_t before = 0;
    for (uint32_t i = 0; i < stages; ++i, Advance(at)) {
      BarrierWait(Full(at.stage), at.turn);
      FenceBulkCopies();
      const uint32_t weights =
          SharedAddress(Weights(at.stage)) +
          static_cast<uint32_t>(Panel() * kLinearGroupPanelTiles) * kPackedTileBytes;
      const uint32_t tokens = SharedAddress(Tokens(at.stage));
      REPRISE_UNROLL
      for (int s = 0; s < kSteps; ++s)
        products.template MultiplyRows<T>(part, weights + static_cast<uint32_t>(32 * s),
                                          tokens + static_cast<uint32_t>(32 * s), true);
      products.Commit();
      if (i > 0) {
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

  const LinearArgs& a_;
  const int rows_, first_row_;
  const int span_, tiles_;
  const uint32_t chunks_;  // of K
  const int panels_;       // warpgroups that multiply
  const uint32_t stages_;
  unsigned char* const shared_;
};

// Grid x: blocks that take spans in turn; grid y: tiles of tokens.
template <typename T, int kTokens>
REPRISE_FN void GroupLinearBody(const LinearArgs& a, unsigned char* shared) {
  if (!a.reads_ahead) WaitForPrevious();
  const int rows = static_cast<int>(*a.num_rows);
  if (BlockY() * kTokens >= rows) {
    if (BlockX() == 0 && BlockY() == 0) WaitForPrevious();
    return;
  }
  GroupLinear<T, kTokens>(a, rows, BlockY() * kTokens, shared).Run();
}

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_LINEAR_LINEAR_GROUP_BODY_H_
