// SPDX-License-Identifier: Apache-2.0
// Linear over packed weights of 8 or 4 bits on products of warpgroups, thread style: as
// linear_group_body.h, but a warp reads its tile itself, as 16-bit elements in registers, a chunk
// ahead of the products that run where two chunks have one scale. What takes time is that a
// warpgroup waits for each step before the next, so there are more of them. A span has up to as
// many panels of four tiles; of narrower spans they take parts of K in turn: who ends a part adds
// it to the sum of those before, which is handed on in shared memory, tile by tile.
#ifndef REPRISE_KERNELS_LINEAR_LINEAR_GROUP_SCALED_BODY_H_
#define REPRISE_KERNELS_LINEAR_LINEAR_GROUP_SCALED_BODY_H_

#include "kernels/linear/linear_group_stages.h"
#include "kernels/linear/linear_output.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

// W: E4m3 or Int4. The rest as GroupLinear.
template <typename T, typename W, int kTokens, int kChunks>
class GroupScaledLinear : GroupStages<T, W, kTokens, kChunks> {
 public:
  using Base = GroupStages<T, W, kTokens, kChunks>;
  using Base::Base;

  REPRISE_FN void Run() {
    const bool loads = ThreadX() == kWarpgroups * kGroupWarps * kWarpSize;
    if (ThreadX() == 0)
      for (int i = 0; i < kMaxSpan * kWarpgroups; ++i) BarrierInit(SumBarriers() + i, 1);
    Base::BeginStages(loads, LinearGroupScaledThreads(kTokens),
                      (PassesParts() ? kWarpgroups : panels_) * kGroupWarps);
    SyncBlock();
    if (Warp() < kWarpgroups * kGroupWarps) {
      TakeRegisters<LinearGroupScaledRegisters(kTokens)>();
      BeginInOrder();
      MultiplyParts();
      return;
    }
    GiveRegisters<kLinearGroupScaledLoadRegisters>();
    Base::Load(kWarpgroups * kGroupWarps);
  }

 private:
  using Base::a_;
  using Base::chunks_;
  using Base::first_row_;
  using Base::kFragments;
  using Base::kSteps;
  using Base::panels_;
  using Base::rows_;
  using Base::span_;
  using Base::tiles_;
  using typename Base::Place;
  using typename Base::RowScales;
  using typename Base::Sums;
  static constexpr int kWarpgroups = LinearGroupScaledWarpgroups(kTokens);
  static constexpr int kMaxSpan = LinearGroupMaxSpan(kTokens, Base::kFormat);
  static constexpr int kPartStages = kPackedPartTiles / kChunks;
  static constexpr uint32_t kTileBytes = kPackedTileElements / 8 * Base::kBits;
  static_assert(kChunks % 2 == 0, "two chunks of a part are of one stage");

  // What a warp has of a part of K.
  struct Item {
    int part = 0;
    int tile = 0;       // of the span; at least span_: the warp has none
    uint32_t turn = 0;  // of that tile, over all spans
  };

  // A barrier must not be waited for two turns ahead. Whoever has handed on a part knows that all
  // stages up to its last one were there: where the ring holds its next part and all parts between
  // the two, every stage of that is no more than a turn ahead. Else it sees every stage, and
  // releases it too.
  REPRISE_FN bool PassesParts() const {
    const int between = (kWarpgroups + panels_ - 1) / panels_ - 1;
    return between > 0 && static_cast<int>(Base::stages_) < (between + 1) * kPartStages;
  }

  // Parts of all spans in order, of each its panels, one for each warpgroup in turn. Of a panel
  // that is not full, other warps have no tile in each warpgroup, since what a scheduler does is
  // done by the same warp of each. Asking for scales a part ahead made 16 rows of an 8B model 10 %
  // slower on an H200.
  REPRISE_FN void MultiplyParts() const {
    const int parts = (chunks_ + kPackedPartTiles - 1) / kPackedPartTiles;
    const int warpgroup = Warp() / kGroupWarps;
    const int tile_of_panel = (Warp() + warpgroup) % kGroupWarps;
    GroupProducts products;
    Place at;
    uint32_t turn = 0;
    int panel = warpgroup;  // at least panels_: the part is for others
    for (int first = Base::FirstTile(); first < tiles_; first += Base::Stride()) {
      for (int part = 0; part < parts; ++part, ++turn) {
        if (panel < panels_) {
          const Item item{part, panel * kGroupWarps + tile_of_panel, turn};
          Sums sum;
          MultiplyPart(products, at, item, first + item.tile, sum);
          if (item.tile < span_) HandOn(item, part == parts - 1, first, sum);
        } else {
          PassPart(at, part);
        }
        panel -= panels_;
        if (panel < 0) panel += kWarpgroups;
      }
    }
  }
  // Chunks of a part from `chunk` of it on; 0 or less: none.
  REPRISE_FN int ChunksLeft(int part, int chunk) const {
    return chunks_ - part * kPackedPartTiles - chunk;
  }
  REPRISE_FN void PassPart(Place& at, int part) const {
    const int left = ChunksLeft(part, 0);
    const int stages = left < kPackedPartTiles ? (left + kChunks - 1) / kChunks : kPartStages;
    if (!PassesParts()) return Base::Advance(at, static_cast<uint32_t>(stages));
    for (int i = 0; i < stages; ++i) {
      BarrierWait(Base::Full(at.stage), at.turn);
      Base::Release(at.stage);
      Base::Advance(at);
    }
  }
  // tile: of the warp.
  REPRISE_FN void MultiplyPart(GroupProducts& products, Place& at, const Item& item, int tile,
                               Sums& sum) const {
    REPRISE_UNROLL
    for (int f = 0; f < kFragments; ++f) sum[f].Clear();
    if constexpr (Base::kBits == 4) {
      switch (Base::a_.scale_inputs) {
        case kLeastScaleInputs:
          return MultiplyFineInt4Part<kLeastScaleInputs>(products, at, item, sum);
        case kPackedTileInputs:
          return MultiplyFineInt4Part<kPackedTileInputs>(products, at, item, sum);
        default:
          return MultiplyInt4Part(products, at, item, sum);
      }
    } else {
      MultiplyFp8Part(products, at, item, tile, sum);
    }
  }

  using Chunk = MatrixA[kSteps];
  static_assert(kScaleInputs == 2 * kPackedTileInputs);
  static constexpr int kPairs = kPackedPartTiles / 2;  // chunks of one scale

  // sum += the products of each pair of a part's chunks by its scale. read(stage, chunk, a): reads
  // a chunk of a stage, one ahead of the products that run. scale(stage, i): of pair i, whose
  // second chunk is in that stage.
  template <typename Read, typename Scale>
  REPRISE_FN void MultiplyPairs(GroupProducts& products, Place& at, const Item& item,
                                const Read& read, const Scale& scale, Sums& sum) const {
    Chunk a[2];
    BarrierWait(Base::Full(at.stage), at.turn);
    read(at.stage, 0, a[0]);
    REPRISE_UNROLL
    for (int i = 0; i < kPairs; ++i) {
      const int left = ChunksLeft(item.part, 2 * i), chunk = 2 * i % kChunks;
      if (left <= 0) continue;
      Sums d;
      Ask(products, at.stage, chunk, a[0], false, d);
      read(at.stage, chunk + 1, a[1]);
      Ask(products, at.stage, chunk + 1, a[1], true, d);
      RowScales of_rows;
      scale(at.stage, i, of_rows);
      const bool more = i + 1 < kPairs && left > 2;
      const bool stage_ends = !more || chunk + 2 == kChunks;
      Place next = at;
      if (stage_ends) Base::Advance(next);
      if (more) {
        if (stage_ends) BarrierWait(Base::Full(next.stage), next.turn);
        products.template Wait<1>(d);
        read(next.stage, (chunk + 2) % kChunks, a[0]);
      }
      products.template Wait<0>(d);
      Base::AddScaled(d, of_rows, sum);
      if (stage_ends) Base::Release(at.stage);
      at = next;
    }
  }
  REPRISE_FN void Ask(GroupProducts& products, uint32_t stage, int chunk, const Chunk& a, bool add,
                      Sums& d) const {
    products.Begin();
    REPRISE_UNROLL
    for (int s = 0; s < kSteps; ++s)
      products.template MultiplyRows<T>(d, a[s], SharedAddress(Base::Tokens(stage, chunk)), s,
                                        add || s > 0);
    products.Commit();
  }

  REPRISE_FN void MultiplyFp8Part(GroupProducts& products, Place& at, const Item& item, int tile,
                                  Sums& sum) const {
    RowScales scales[kPairs];
    LoadScales(item, tile, scales);
    const auto read = [&](uint32_t stage, int chunk, Chunk& a) { ReadFp8(item, stage, chunk, a); };
    const auto scale = [&](uint32_t, int i, RowScales& to) {
      REPRISE_UNROLL
      for (int h = 0; h < kLaneRows; ++h) to[h] = scales[i][h];
    };
    MultiplyPairs(products, at, item, read, scale, sum);
  }
  // Of the lane's outputs; 0 beyond the matrix. tile: of the warp.
  REPRISE_FN void LoadScales(const Item& item, int tile, RowScales (&to)[kPairs]) const {
    const PackedLayout packed{a_.out_features, a_.in_features};
    const int chunk = item.part * kPackedPartTiles;
    const int64_t first =
        packed.PackedScaleOffset(static_cast<int64_t>(tile) * kPackedTileOutputs, chunk / 2);
    REPRISE_UNROLL
    for (int i = 0; i < kPairs; ++i) {
      const bool inside = item.tile < span_ && tile < tiles_ && chunk + 2 * i < chunks_;
      REPRISE_UNROLL
      for (int h = 0; h < kLaneRows; ++h)
        to[i][h] = inside
                       ? a_.scales[first + i * kPackedTileOutputs + MatrixRow(h)] * kPackedE4m3Worth
                       : 0.0f;
    }
  }
  // The warp's tile; zeros where it has none. chunk: of the stage.
  REPRISE_FN void ReadFp8(const Item& item, uint32_t stage, int chunk, Chunk& a) const {
    if (item.tile >= span_) {
      REPRISE_UNROLL
      for (int s = 0; s < kSteps; ++s) a[s] = MatrixA{};
      return;
    }
    const Fp8TileReader<kPackedTileInputs / 16> reader;
    const uint32_t tile =
        SharedAddress(Base::Weights(stage, chunk)) + static_cast<uint32_t>(item.tile) * kTileBytes;
    REPRISE_UNROLL
    for (int pair = 0; pair < kSteps / 2; ++pair) {
      MatrixA two[2];
      reader.template PackedA<T>(tile, 0, pair, two);
      a[2 * pair] = two[0];
      a[2 * pair + 1] = two[1];
    }
  }

  // A warp without a tile reads the last one, for nothing: its warpgroup multiplies together.
  REPRISE_FN int TileToRead(const Item& item) const {
    return item.tile < span_ ? item.tile : span_ - 1;
  }
  // chunk: of the stage.
  REPRISE_FN FourBitTile LoadInt4(const Item& item, uint32_t stage, int chunk) const {
    FourBitTile elements;
    elements.Load(SharedAddress(Base::Weights(stage, chunk)) +
                  static_cast<uint32_t>(TileToRead(item)) * kTileBytes);
    return elements;
  }
  // Of the lane's row h, the ScaleWord. index: of the tile's scales in the stage. kInputs: of each.
  template <int kInputs>
  REPRISE_FN uint32_t LoadScaleWord(const Item& item, uint32_t stage, int index, int h) const {
    const int row = TileToRead(item) * (kChunks * kPackedTileInputs / kInputs) + index;
    return LoadShared<uint32_t>(SharedAddress(Base::Scales(stage)) +
                                static_cast<uint32_t>(row * kPackedTileOutputs + MatrixRow(h)) * 4);
  }
  REPRISE_FN void MultiplyInt4Part(GroupProducts& products, Place& at, const Item& item,
                                   Sums& sum) const {
    static_assert(kFourBitRows == kLaneRows);  // of A and of D
    const auto read = [&](uint32_t stage, int chunk, Chunk& a) {
      const FourBitTile elements = LoadInt4(item, stage, chunk);
      uint32_t zero[kLaneRows];
      REPRISE_UNROLL
      for (int h = 0; h < kLaneRows; ++h)
        zero[h] = Int4Zero<T>(LoadScaleWord<kScaleInputs>(item, stage, chunk / 2, h));
      REPRISE_UNROLL
      for (int s = 0; s < kSteps; ++s) a[s] = elements.template A<T, Int4>(s, zero);
    };
    const auto scale = [&](uint32_t stage, int i, RowScales& to) {
      REPRISE_UNROLL
      for (int h = 0; h < kLaneRows; ++h)
        to[h] = Int4Scale<T>(LoadScaleWord<kScaleInputs>(item, stage, i % (kChunks / 2), h));
    };
    MultiplyPairs(products, at, item, read, scale, sum);
  }
  // The same where a chunk has a scale of its own, or two: kInputs each. Products are waited for at
  // once. The last chunk may be one of those that fill up K.
  template <int kInputs>
  REPRISE_FN void MultiplyFineInt4Part(GroupProducts& products, Place& at, const Item& item,
                                       Sums& sum) const {
    REPRISE_UNROLL_BY(1)
    for (int chunk = 0; chunk < kPackedPartTiles; ++chunk) {
      const int left = ChunksLeft(item.part, chunk), of_stage = chunk % kChunks;
      if (left <= 0) break;
      if (of_stage == 0) BarrierWait(Base::Full(at.stage), at.turn);
      MultiplyFineInt4<kInputs>(products, item, at.stage, of_stage, sum);
      if (of_stage + 1 != kChunks && left > 1) continue;
      Base::Release(at.stage);
      Base::Advance(at);
    }
  }
  template <int kInputs>
  REPRISE_FN void MultiplyFineInt4(GroupProducts& products, const Item& item, uint32_t stage,
                                   int chunk, Sums& to) const {
    constexpr int kSums = kPackedTileInputs / kInputs, kSumSteps = kInputs / 16;
    const FourBitTile elements = LoadInt4(item, stage, chunk);
    REPRISE_UNROLL
    for (int i = 0; i < kSums; ++i) {
      uint32_t words[kLaneRows], zero[kLaneRows];
      REPRISE_UNROLL
      for (int h = 0; h < kLaneRows; ++h) {
        words[h] = LoadScaleWord<kInputs>(item, stage, chunk * kSums + i, h);
        zero[h] = Int4Zero<T>(words[h]);
      }
      MatrixA a[kSumSteps];
      REPRISE_UNROLL
      for (int s = 0; s < kSumSteps; ++s)
        a[s] = elements.template A<T, Int4>(i * kSumSteps + s, zero);
      Sums d;
      products.Begin();
      REPRISE_UNROLL
      for (int s = 0; s < kSumSteps; ++s)
        products.template MultiplyRows<T>(d, a[s], SharedAddress(Base::Tokens(stage, chunk)),
                                          i * kSumSteps + s, s > 0);
      products.Commit();
      products.template Wait<0>(d);
      const RowScales of_rows = {Int4Scale<T>(words[0]), Int4Scale<T>(words[1])};
      Base::AddScaled(d, of_rows, to);
    }
  }

  // ---- sums, from part to part ----

  // [kMaxSpan, kWarpgroups]: of a tile, that a turn's sum is there, in turn. One would
  // not do: who waits for it may be two turns ahead of it.
  REPRISE_FN uint64_t* SumBarriers() const { return Base::BehindBarriers(); }
  REPRISE_FN uint64_t* SumBarrier(int tile, uint32_t turn) const {
    return SumBarriers() + static_cast<uint32_t>(tile * kWarpgroups) + turn % kWarpgroups;
  }
  // Four values of each lane side by side.
  REPRISE_FN uint32_t SumAddress(int tile, int four) const {
    constexpr int kFours = kFragments * MatrixD<16>::kSize / 4;
    return SharedAddress(Base::BehindStages() + kLinearGroupScaledBarrierBytes) +
           static_cast<uint32_t>((tile * kFours + four) * kWarpSize + Lane()) * 16;
  }
  // The sums of a tile are in one place, which its parts, and then those of the next span, have one
  // after the other.
  REPRISE_FN void HandOn(const Item& item, bool last, int first_tile, Sums& sum) const {
    constexpr int kFours = MatrixD<16>::kSize / 4;  // of a fragment
    const uint32_t turn = item.turn;
    if (turn > 0) BarrierWait(SumBarrier(item.tile, turn - 1), (turn - 1) / kWarpgroups);
    const bool first = item.part == 0;
    REPRISE_UNROLL
    for (int f = 0; f < kFragments; ++f) {
      REPRISE_UNROLL
      for (int i = 0; i < kFours; ++i) {
        const uint32_t at = SumAddress(item.tile, f * kFours + i);
        float* const v = sum[f].v + 4 * i;
        if (!first) {
          const auto before = LoadShared<Vec<float, 4>>(at);
          REPRISE_UNROLL
          for (int j = 0; j < 4; ++j) v[j] = before.v[j] + v[j];
        }
        if (!last) StoreShared(at, Vec<float, 4>{v[0], v[1], v[2], v[3]});
      }
    }
    SyncWarp();
    if (Lane() == 0) BarrierArrive(SumBarrier(item.tile, turn));
    if (last && item.tile < Base::TilesOf(first_tile)) Store(first_tile + item.tile, sum);
  }
  REPRISE_FN void Store(int tile, const Sums& sum) const {
    constexpr int kColumns = kLaneColumns<16>;
    StoreLinearTile<T, kFragments * kColumns, true>(
        a_, static_cast<int64_t>(tile) * kPackedTileOutputs, rows_,
        [&](int h, int j) { return sum[j / kColumns].v[At(h, j % kColumns)]; },
        [&](int j) { return first_row_ + j / kColumns * 16 + MatrixColumn(j % kColumns); });
  }
};

// As GroupLinearBody.
template <typename T, typename W, int kTokens>
REPRISE_FN void GroupScaledLinearBody(const LinearGroupArgs& args, unsigned char* shared) {
  if (!args.linear.reads_ahead) WaitForPrevious();
  const int rows = static_cast<int>(*args.linear.num_rows);
  if (BlockY() * kTokens >= rows) {
    if (BlockX() == 0 && BlockY() == 0) WaitForPrevious();
    return;
  }
  const int first_row = BlockY() * kTokens;
  constexpr int kFewChunks = LinearGroupFewChunks(kTokens, kGroupFormat<W>);
  if constexpr (LinearGroupHasMoreChunks(kTokens, kGroupFormat<W>)) {
    if (args.stage_chunks != kFewChunks)
      return GroupScaledLinear<T, W, kTokens, 2 * kFewChunks>(args, rows, first_row, shared).Run();
  }
  GroupScaledLinear<T, W, kTokens, kFewChunks>(args, rows, first_row, shared).Run();
}

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_LINEAR_LINEAR_GROUP_SCALED_BODY_H_
