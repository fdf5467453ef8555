// SPDX-License-Identifier: Apache-2.0
// Linear over packed weights of 8 or 4 bits on products of warpgroups, thread style: as
// linear_group_body.h, but a warp reads its tile itself, as 16-bit elements in registers, of two
// chunks at a time, which have one scale, or, of 4 bits, up to four. What takes time is that a
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
    if (loads) Base::LoadStages();
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
  using typename Base::Sums;
  static constexpr int kWarpgroups = LinearGroupScaledWarpgroups(kTokens);
  static constexpr int kMaxSpan = LinearGroupMaxSpan(kTokens, Base::kBits);
  // Chunks that are read at a time: of E4m3 they have one scale.
  static constexpr int kReadChunks = kScaleInputs / kPackedTileInputs;
  static constexpr int kPartReads = kPackedPartTiles / kReadChunks;
  static constexpr int kReadSteps = kReadChunks * kSteps;
  static constexpr int kPartStages = kPackedPartTiles / kChunks;
  static constexpr uint32_t kTileBytes = kPackedTileElements / 8 * Base::kBits;
  static_assert(kChunks % kReadChunks == 0, "what is read at a time is of one stage");
  using Scales = float[kPartReads][kLaneRows];

  // What a warp has of a part of K.
  struct Item {
    int part = 0;
    int tile = 0;       // of the span, at most span_
    uint32_t turn = 0;  // of that tile, over all spans
  };

  // A barrier must not be waited for two turns ahead. A warpgroup knows that the stages of its last
  // part were there: where the ring holds more than all parts between that one and its next, they
  // are no more than a turn behind. Else it sees every stage, and releases it too.
  REPRISE_FN bool PassesParts() const {
    const int between = (kWarpgroups + panels_ - 1) / panels_ - 1;
    return static_cast<int>(Base::stages_) <= between * kPartStages;
  }

  // Parts of all spans in order, of each its panels, one for each warpgroup in turn. Asking for
  // scales a part ahead made 16 rows of an 8B model 10 % slower on an H200.
  REPRISE_FN void MultiplyParts() const {
    const int parts = (chunks_ + kPackedPartTiles - 1) / kPackedPartTiles;
    const int warpgroup = Warp() / kGroupWarps;
    GroupProducts products;
    Place at;
    uint32_t turn = 0;
    for (int first = Base::FirstTile(); first < tiles_; first += Base::Stride()) {
      for (int part = 0; part < parts; ++part, ++turn) {
        const int before = static_cast<int>(turn % kWarpgroups) * panels_ % kWarpgroups;
        const int panel = (warpgroup - before + kWarpgroups) % kWarpgroups;
        if (panel >= panels_) {
          PassPart(at, part);
          continue;
        }
        const Item item{part, panel * kGroupWarps + Warp() % kGroupWarps, turn};
        Sums sum;
        MultiplyPart(products, at, item, first + item.tile, sum);
        if (item.tile < span_) HandOn(item, part == parts - 1, first, sum);
      }
    }
  }
  // Chunks of a part from `chunk` of it on; 0 or less: none.
  REPRISE_FN int ChunksLeft(int part, int chunk) const {
    return chunks_ - part * kPackedPartTiles - chunk;
  }
  REPRISE_FN void PassPart(Place& at, int part) const {
    for (int chunk = 0; chunk < kPackedPartTiles && ChunksLeft(part, chunk) > 0; chunk += kChunks) {
      if (PassesParts()) {
        BarrierWait(Base::Full(at.stage), at.turn);
        Base::Release(at.stage);
      }
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
          return MultiplyInt4Part<kLeastScaleInputs>(products, at, item, sum);
        case kPackedTileInputs:
          return MultiplyInt4Part<kPackedTileInputs>(products, at, item, sum);
        default:
          return MultiplyInt4Part<kScaleInputs>(products, at, item, sum);
      }
    } else {
      MultiplyFp8Part(products, at, item, tile, sum);
    }
  }
  // The stage of a part's chunk; behind those that are read from there on, the next one. left: of
  // the part, from there on.
  REPRISE_FN void BeginRead(const Place& at, int chunk) const {
    if (chunk % kChunks == 0) BarrierWait(Base::Full(at.stage), at.turn);
  }
  template <int kReads>
  REPRISE_FN void EndRead(Place& at, int chunk, int left) const {
    if (chunk % kChunks + kReads != kChunks && left > kReads) return;
    Base::Release(at.stage);
    Base::Advance(at);
  }
  REPRISE_FN void MultiplyFp8Part(GroupProducts& products, Place& at, const Item& item, int tile,
                                  Sums& sum) const {
    Scales scales;
    LoadScales(item, tile, scales);
    REPRISE_UNROLL
    for (int i = 0; i < kPartReads; ++i) {
      const int chunk = i * kReadChunks, left = ChunksLeft(item.part, chunk);
      if (left <= 0) continue;
      BeginRead(at, chunk);
      Sums of_scale;
      MultiplyChunks(products, item, at.stage, chunk % kChunks, of_scale);
      EndRead<kReadChunks>(at, chunk, left);
      AddScaled(of_scale, scales[i], sum);
    }
  }
  // kInputs: of a scale. Chunks that have one are read together; of others one is, since registers
  // do not suffice for more.
  template <int kInputs>
  REPRISE_FN void MultiplyInt4Part(GroupProducts& products, Place& at, const Item& item,
                                   Sums& sum) const {
    constexpr int kReads = kInputs > kPackedTileInputs ? kInputs / kPackedTileInputs : 1;
    REPRISE_UNROLL_BY(1)
    for (int chunk = 0; chunk < kPackedPartTiles; chunk += kReads) {
      const int left = ChunksLeft(item.part, chunk);
      if (left <= 0) break;
      BeginRead(at, chunk);
      MultiplyInt4<kInputs, kReads>(products, item, at.stage, chunk % kChunks, sum);
      EndRead<kReads>(at, chunk, left);
    }
  }
  // Of the lane's outputs; 0 beyond the matrix. tile: of the warp.
  REPRISE_FN void LoadScales(const Item& item, int tile, Scales& to) const {
    const PackedLayout packed{a_.out_features, a_.in_features};
    const int chunk = item.part * kPackedPartTiles;
    const int64_t first = packed.PackedScaleOffset(static_cast<int64_t>(tile) * kPackedTileOutputs,
                                                   chunk / kReadChunks);
    REPRISE_UNROLL
    for (int i = 0; i < kPartReads; ++i) {
      const bool inside = item.tile < span_ && tile < tiles_ && chunk + i * kReadChunks < chunks_;
      REPRISE_UNROLL
      for (int h = 0; h < kLaneRows; ++h)
        to[i][h] = inside
                       ? a_.scales[first + i * kPackedTileOutputs + MatrixRow(h)] * kPackedE4m3Worth
                       : 0.0f;
    }
  }
  // From `chunk` of a stage on, as many as have one scale.
  REPRISE_FN void MultiplyChunks(GroupProducts& products, const Item& item, uint32_t stage,
                                 int chunk, Sums& d) const {
    MatrixA a[kReadSteps];
    ReadWeights(item, stage, chunk, a);
    products.Begin();
    REPRISE_UNROLL
    for (int s = 0; s < kReadSteps; ++s)
      products.template MultiplyRows<T>(
          d, a[s], SharedAddress(Base::Tokens(stage, chunk + s / kSteps)), s % kSteps, s > 0);
    products.Commit();
    products.template Wait<0>(d);
  }
  // The warp's tile; zeros where it has none.
  REPRISE_FN void ReadWeights(const Item& item, uint32_t stage, int chunk,
                              MatrixA (&a)[kReadSteps]) const {
    if (item.tile >= span_) {
      REPRISE_UNROLL
      for (int s = 0; s < kReadSteps; ++s) a[s] = MatrixA{};
      return;
    }
    const Fp8TileReader<kPackedTileInputs / 16> reader;
    constexpr int kPairs = kSteps / 2;  // of a chunk
    REPRISE_UNROLL
    for (int pair = 0; pair < kReadChunks * kPairs; ++pair) {
      const uint32_t tile = SharedAddress(Base::Weights(stage, chunk + pair / kPairs)) +
                            static_cast<uint32_t>(item.tile) * kTileBytes;
      MatrixA two[2];
      reader.template PackedA<T>(tile, 0, pair % kPairs, two);
      a[2 * pair] = two[0];
      a[2 * pair + 1] = two[1];
    }
  }
  // to += the products of `kReads` chunks of a stage, from `chunk` on, of which the last may be one
  // of those that fill up K. A warp without a tile multiplies the last one, for nothing: its
  // warpgroup multiplies together.
  template <int kInputs, int kReads>
  REPRISE_FN void MultiplyInt4(GroupProducts& products, const Item& item, uint32_t stage, int chunk,
                               Sums& to) const {
    constexpr int kSums = kReads * kPackedTileInputs / kInputs, kSumSteps = kInputs / 16;
    static_assert(kInt4Rows == kLaneRows);  // of A and of D
    const int tile = item.tile < span_ ? item.tile : span_ - 1;
    Int4Tile elements[kReads];
    REPRISE_UNROLL
    for (int t = 0; t < kReads; ++t)
      elements[t].Load(SharedAddress(Base::Weights(stage, chunk + t)) +
                       static_cast<uint32_t>(tile) * kTileBytes);
    const int first_scale = (tile * kChunks + chunk) * kPackedTileInputs / kInputs;
    const uint32_t scales = SharedAddress(Base::Scales(stage)) +
                            static_cast<uint32_t>(first_scale * kPackedTileOutputs) * 4;
    REPRISE_UNROLL
    for (int i = 0; i < kSums; ++i) {
      uint32_t words[kLaneRows], zero[kLaneRows];
      REPRISE_UNROLL
      for (int h = 0; h < kLaneRows; ++h) {
        words[h] = LoadShared<uint32_t>(
            scales + static_cast<uint32_t>(i * kPackedTileOutputs + MatrixRow(h)) * 4);
        zero[h] = Int4Zero<T>(words[h]);
      }
      MatrixA a[kSumSteps];
      REPRISE_UNROLL
      for (int s = 0; s < kSumSteps; ++s) {
        const int step = i * kSumSteps + s;
        a[s] = elements[step / kSteps].template A<T>(step % kSteps, zero);
      }
      Sums d;
      products.Begin();
      REPRISE_UNROLL
      for (int s = 0; s < kSumSteps; ++s) {
        const int step = i * kSumSteps + s;
        products.template MultiplyRows<T>(d, a[s],
                                          SharedAddress(Base::Tokens(stage, chunk + step / kSteps)),
                                          step % kSteps, s > 0);
      }
      products.Commit();
      products.template Wait<0>(d);
      const float of_rows[kLaneRows] = {Int4Scale<T>(words[0]), Int4Scale<T>(words[1])};
      AddScaled(d, of_rows, to);
    }
  }
  REPRISE_FN static void AddScaled(const Sums& from, const float (&scale)[kLaneRows], Sums& to) {
    REPRISE_UNROLL
    for (int f = 0; f < kFragments; ++f) {
      REPRISE_UNROLL
      for (int h = 0; h < kLaneRows; ++h) {
        REPRISE_UNROLL
        for (int j = 0; j < kLaneColumns<16>; ++j)
          to[f].v[At(h, j)] = MultiplyAdd(from[f].v[At(h, j)], scale[h], to[f].v[At(h, j)]);
      }
    }
  }

  // ---- sums, from part to part ----

  // [kMaxSpan, kWarpgroups]: of a tile, that a turn's sum is there, in turn. One would
  // not do: who waits for it may be two turns ahead of it.
  REPRISE_FN uint64_t* SumBarriers() const { return Base::Full(2 * kLinearGroupMaxStages); }
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
  constexpr int kFewChunks = LinearGroupFewChunks(kTokens);
  if (args.stage_chunks == kFewChunks) {
    GroupScaledLinear<T, W, kTokens, kFewChunks>(args, rows, first_row, shared).Run();
  } else {
    GroupScaledLinear<T, W, kTokens, 2 * kFewChunks>(args, rows, first_row, shared).Run();
  }
}

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_LINEAR_LINEAR_GROUP_SCALED_BODY_H_
