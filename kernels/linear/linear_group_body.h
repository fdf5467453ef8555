// SPDX-License-Identifier: Apache-2.0
// Linear over packed weights on products of warpgroups, thread style, for more tokens than
// linear_stream_body.h takes: weights are the operand of 64 rows, tokens the columns, both out of
// shared memory, so that a weight is read from there once for up to 128 tokens. A block takes spans
// of up to eight tiles of 16 outputs over all of K, so that nothing is summed across blocks; how
// many tiles, and so how evenly the blocks share the weights, is the launch's choice. Two
// warpgroups multiply, four tiles each. They sum in the order of linear_geometry.h.
//
// Of kE4m3Rounded both operands are E4M3, two neighbours in the place of one element of 16 bits: a
// chunk of 64 of those is of 128 inputs, which have one scale. What tensor cores add of such
// products loses bits beyond the first 14 or so; they add those of one chunk, and what a chunk is
// worth is added in f32, in ascending order.
#ifndef REPRISE_KERNELS_LINEAR_LINEAR_GROUP_BODY_H_
#define REPRISE_KERNELS_LINEAR_LINEAR_GROUP_BODY_H_

#include <type_traits>

#include "kernels/linear/linear_group_stages.h"
#include "kernels/linear/linear_output.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

// W: T or RoundedE4m3. kTokens: 16, 32, 64 or 128 of a tile. kChunks: of a stage;
// products that are asked for in a loop whose length nobody knows wait for each other.
template <typename T, typename W, int kTokens, int kChunks>
class GroupLinear : GroupStages<T, W, kTokens, kChunks> {
 public:
  using Base = GroupStages<T, W, kTokens, kChunks>;
  using Base::Base;

  REPRISE_FN void Run() {
    const bool loads = ThreadX() == kLinearGroupWarps * kWarpSize;
    Base::BeginStages(loads, kLinearGroupThreads, panels_ * kGroupWarps);
    SyncBlock();
    if (Warp() < kLinearGroupWarps) {
      TakeRegisters<kRounded ? kLinearGroupRoundedMultiplyRegisters
                             : kLinearGroupMultiplyRegisters>();
      BeginInOrder();  // the kernel ahead may have written what rows are worth
      if (Panel() < panels_) MultiplySpans();
      return;
    }
    GiveRegisters<kRounded ? kLinearGroupRoundedLoadRegisters : kLinearGroupLoadRegisters>();
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
  using typename Base::RowScales;
  using typename Base::Sums;

  static constexpr bool kRounded = std::is_same_v<W, RoundedE4m3>;

  // Of the warpgroup.
  REPRISE_FN static int Panel() { return Warp() / kGroupWarps; }

  REPRISE_FN void MultiplySpans() const {
    GroupProducts products;
    Place at;
    for (int tile = Base::FirstTile(); tile < tiles_; tile += Base::Stride()) {
      Sums sum;
      if constexpr (kRounded) {
        MultiplyChunks(products, at, sum);
      } else {
        for (int begin = 0; begin < chunks_; begin += kPackedPartTiles) {
          Sums part;
          MultiplyPart(products, at, begin, part);
          Base::AddPart(part, begin == 0, sum);
        }
      }
      Store(tile + Warp(), Base::TilesOf(tile), sum);
    }
  }
  // Where a chunk of the warpgroup's weights lies in shared memory.
  REPRISE_FN uint32_t PanelWeights(uint32_t stage, int chunk) const {
    return SharedAddress(Base::Weights(stage, chunk)) +
           static_cast<uint32_t>(Panel() * kLinearGroupPanelTiles) * kPackedTileBytes;
  }
  // All products of the span for the warp's tile of outputs, each chunk by its scales: while those
  // of one run, the chunk before is added. At the end of a stage none are left: the compiler sees
  // no further. A warp without a tile multiplies what nobody stores.
  REPRISE_FN void MultiplyChunks(GroupProducts& products, Place& at, Sums& sum) const {
    Sums even, odd;
    REPRISE_UNROLL
    for (int f = 0; f < kFragments; ++f) {
      sum[f].Clear();
      even[f].Clear();
      odd[f].Clear();
    }
    RowScales of_even, of_odd;
    for (int first = 0; first < chunks_; first += kChunks, Base::Advance(at)) {
      BarrierWait(Base::Full(at.stage), at.turn);
      MultiplyChunk(products, at.stage, 0, even, of_even);
      REPRISE_UNROLL
      for (int chunk = 1; chunk < kChunks; chunk += 2) {
        MultiplyChunk(products, at.stage, chunk, odd, of_odd);
        products.template Wait<1>(even);
        Base::AddScaled(even, of_even, sum);
        if (chunk + 1 < kChunks) {
          MultiplyChunk(products, at.stage, chunk + 1, even, of_even);
          products.template Wait<1>(odd);
          Base::AddScaled(odd, of_odd, sum);
        }
      }
      products.template Wait<0>(odd);
      Base::Release(at.stage);
      Base::AddScaled(odd, of_odd, sum);
    }
  }
  // Asks for the products of a chunk, and reads its scales. chunk: of the stage.
  REPRISE_FN void MultiplyChunk(GroupProducts& products, uint32_t stage, int chunk, Sums& part,
                                RowScales& of_rows) const {
    static_assert(kChunks % 2 == 0);
    const uint32_t weights = PanelWeights(stage, chunk);
    const uint32_t tokens = SharedAddress(Base::Tokens(stage, chunk));
    products.Begin();
    REPRISE_UNROLL
    for (int s = 0; s < kSteps; ++s)
      products.template MultiplyRows<E4m3>(part, weights, tokens, s, s != 0);
    products.Commit();
    const int tile = Warp() < Base::span_ ? Warp() : Base::span_ - 1;
    const float* const scales = reinterpret_cast<const float*>(Base::Scales(stage)) +
                                (tile * kChunks + chunk) * kPackedTileOutputs;
    REPRISE_UNROLL
    for (int h = 0; h < kLaneRows; ++h) of_rows[h] = scales[MatrixRow(h)];
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
        const uint32_t weights = PanelWeights(at.stage, chunk);
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
    const auto row = [&](int j) {
      return first_row_ + j / kColumns * 16 + MatrixColumn(j % kColumns);
    };
    StoreLinearTile<T, kFragments * kColumns, true>(
        a_, static_cast<int64_t>(tile) * kPackedTileOutputs, rows_,
        [&](int h, int j) {
          const float y = sum[j / kColumns].v[At(h, j % kColumns)];
          if constexpr (kRounded) return y * a_.row_scales[row(j)];
          return y;
        },
        row);
  }
};

// Grid x: blocks that take spans in turn; grid y: tiles of tokens.
template <typename T, int kTokens, typename W = T>
REPRISE_FN void GroupLinearBody(const LinearGroupArgs& args, unsigned char* shared) {
  if (!args.linear.reads_ahead) WaitForPrevious();
  const int rows = static_cast<int>(*args.linear.num_rows);
  if (BlockY() * kTokens >= rows) {
    if (BlockX() == 0 && BlockY() == 0) WaitForPrevious();
    return;
  }
  const int first_row = BlockY() * kTokens;
  constexpr int kFewChunks = LinearGroupFewChunks(kTokens, kGroupFormat<W>);
  if constexpr (LinearGroupHasMoreChunks(kTokens, kGroupFormat<W>)) {
    if (args.stage_chunks != kFewChunks) {
      GroupLinear<T, W, kTokens, 2 * kFewChunks>(args, rows, first_row, shared).Run();
      return;
    }
  }
  GroupLinear<T, W, kTokens, kFewChunks>(args, rows, first_row, shared).Run();
}

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_LINEAR_LINEAR_GROUP_BODY_H_
