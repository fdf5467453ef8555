// SPDX-License-Identifier: Apache-2.0
// Linear over packed weights on products of warpgroups, thread style, for more tokens than
// linear_stream_body.h takes: weights are the operand of 64 rows, tokens the columns, both out of
// shared memory, so that a weight is read from there once for up to 128 tokens. A block takes spans
// of up to eight tiles of 16 outputs over all of K, so that nothing is summed across blocks; how
// many tiles, and so how evenly the blocks share the weights, is the launch's choice. Two
// warpgroups multiply, four tiles each. They sum in the order of linear_geometry.h.
#ifndef REPRISE_KERNELS_LINEAR_LINEAR_GROUP_BODY_H_
#define REPRISE_KERNELS_LINEAR_LINEAR_GROUP_BODY_H_

#include "kernels/linear/linear_group_stages.h"
#include "kernels/linear/linear_output.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

// kTokens: 16, 32, 64 or 128 of a tile. kChunks: of a stage; products that are asked for in a loop
// whose length nobody knows wait for each other.
template <typename T, int kTokens, int kChunks>
class GroupLinear : GroupStages<T, T, kTokens, kChunks> {
 public:
  using Base = GroupStages<T, T, kTokens, kChunks>;
  using Base::Base;

  REPRISE_FN void Run() {
    const bool loads = ThreadX() == kLinearGroupWarps * kWarpSize;
    Base::BeginStages(loads, kLinearGroupThreads, panels_ * kGroupWarps);
    SyncBlock();
    if (Warp() < kLinearGroupWarps) {
      TakeRegisters<kLinearGroupMultiplyRegisters>();
      BeginInOrder();
      if (Panel() < panels_) MultiplySpans();
      return;
    }
    GiveRegisters<kLinearGroupLoadRegisters>();
    Base::Load(kLinearGroupWarps);
  }

 private:
  using Base::a_;
  using Base::chunks_;
  using Base::first_row_;
  using Base::kFragments;
  using Base::kSteps;
  using Base::panels_;
  using Base::rows_;
  using Base::tiles_;
  using typename Base::Place;
  using typename Base::Sums;

  // Of the warpgroup.
  REPRISE_FN static int Panel() { return Warp() / kGroupWarps; }

  REPRISE_FN void MultiplySpans() const {
    GroupProducts products;
    Place at;
    for (int tile = Base::FirstTile(); tile < tiles_; tile += Base::Stride()) {
      Sums sum;
      for (int begin = 0; begin < chunks_; begin += kPackedPartTiles) {
        Sums part;
        MultiplyPart(products, at, begin, part);
        Base::AddPart(part, begin == 0, sum);
      }
      Store(tile + Warp(), Base::TilesOf(tile), sum);
    }
  }
  // The products of the stages of the part that begins at chunk `begin`, from `at` on.
  REPRISE_FN void MultiplyPart(GroupProducts& products, Place& at, int begin, Sums& part) const {
    REPRISE_UNROLL
    for (int f = 0; f < kFragments; ++f) part[f].Clear();
    products.Begin();
    const int end = chunks_ - begin < kPackedPartTiles ? chunks_ : begin + kPackedPartTiles;
    uint32_t before = 0;
    for (int first = begin; first < end; first += kChunks, Base::Advance(at)) {
      BarrierWait(Base::Full(at.stage), at.turn);
      REPRISE_UNROLL
      for (int chunk = 0; chunk < kChunks; ++chunk) {
        const uint32_t weights =
            SharedAddress(Base::Weights(at.stage, chunk)) +
            static_cast<uint32_t>(Panel() * kLinearGroupPanelTiles) * kPackedTileBytes;
        const uint32_t tokens = SharedAddress(Base::Tokens(at.stage, chunk));
        REPRISE_UNROLL
        for (int s = 0; s < kSteps; ++s)
          products.template MultiplyRows<T>(part, weights, tokens, s, true);
      }
      products.Commit();
      if (first > begin) {
        products.template Wait<1>(part);
        Base::Release(before);
      }
      before = at.stage;
    }
    products.template Wait<0>(part);
    Base::Release(before);
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
  constexpr int kFewChunks = LinearGroupFewChunks(kTokens, 16);
  if (args.stage_chunks == kFewChunks) {
    GroupLinear<T, kTokens, kFewChunks>(args, rows, first_row, shared).Run();
  } else {
    GroupLinear<T, kTokens, 2 * kFewChunks>(args, rows, first_row, shared).Run();
  }
}

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_LINEAR_LINEAR_GROUP_BODY_H_
