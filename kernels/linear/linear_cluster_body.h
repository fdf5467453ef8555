// SPDX-License-Identifier: Apache-2.0
// Linear over packed weights on products of warpgroups, thread style, for layers with few outputs:
// as linear_group_body.h, but the two blocks of a cluster take a span together, and take the parts
// of K in turn. So a block has twice as many outputs, and brings the tokens of its own parts alone:
// over all of K they would be most of what it brings. A warpgroup multiplies. Of each part's sums
// it hands the half of the tokens that is its block's to a warpgroup that adds the parts in order,
// and stores the other half in the shared memory of the other block, for the one there. The bits
// are those of linear_group.
#ifndef REPRISE_KERNELS_LINEAR_LINEAR_CLUSTER_BODY_H_
#define REPRISE_KERNELS_LINEAR_LINEAR_CLUSTER_BODY_H_

#include "kernels/linear/cluster_geometry.h"
#include "kernels/linear/linear_group_stages.h"
#include "kernels/linear/linear_output.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

// As GroupLinear, of 32, 64 or 128 tokens.
template <typename T, int kTokens, int kChunks>
class ClusterLinear : GroupStages<T, T, kTokens, kChunks, kLinearClusterBlocks> {
 public:
  using Base = GroupStages<T, T, kTokens, kChunks, kLinearClusterBlocks>;
  using Base::Base;

  REPRISE_FN void Run() {
    const bool loads = ThreadX() == kFirstLoadWarp * kWarpSize;
    if (loads) {
      BarrierInit(OwnThere(), kGroupWarps);
      BarrierInit(OthersThere(), 1);
      BarrierInit(Added(), kBlocks * kGroupWarps);
    }
    Base::BeginStages(loads, kLinearClusterThreads, kGroupWarps);
    SyncCluster();
    if (Warp() < kGroupWarps) {
      TakeRegisters<kLinearClusterMultiplyRegisters>();
      MultiplyParts();
    } else if (Warp() < kFirstLoadWarp) {
      BeginInOrder();
      AddParts();
    } else {
      GiveRegisters<kLinearClusterLoadRegisters>();
      Base::Load(kFirstLoadWarp);
    }
  }

 private:
  using Base::a_;
  using Base::chunks_;
  using Base::first_row_;
  using Base::kFragments;
  using Base::kSteps;
  using Base::rows_;
  using typename Base::Place;
  using typename Base::Sums;

  static constexpr int kFirstLoadWarp = 2 * kGroupWarps;
  static constexpr int kBlocks = kLinearClusterBlocks;
  static constexpr int kHalf = kFragments / kBlocks;  // of the tokens
  static_assert(kBlocks == 2 && kBlocks == kClusterBlocks && kFragments % kBlocks == 0);
  static constexpr int kFours = kHalf * MatrixD<16>::kSize / 4;  // of a lane's values of them
  static constexpr uint32_t kFourBytes = kWarpSize * 16;         // of all lanes of a warp
  using HalfSums = MatrixD<16>[kHalf];

  REPRISE_FN int Parts() const { return (chunks_ + kPackedPartTiles - 1) / kPackedPartTiles; }
  REPRISE_FN static int Self() { return Base::FirstPart(); }

  // ---- products ----

  REPRISE_FN void MultiplyParts() const {
    GroupProducts products;
    Place at;
    uint32_t turn = 0;
    for (int part = Self(); part < Parts(); part += kBlocks, ++turn) {
      Sums sums;
      MultiplyPart(products, at, part * kPackedPartTiles, sums);
      HandOn(turn, sums);
    }
  }
  // The products of the stages of the part that begins at chunk `begin`, from `at` on.
  REPRISE_FN void MultiplyPart(GroupProducts& products, Place& at, int begin, Sums& sums) const {
    products.Begin();
    const int end = chunks_ - begin < kPackedPartTiles ? chunks_ : begin + kPackedPartTiles;
    uint32_t before = 0;
    for (int first = begin; first < end; first += kChunks, Base::Advance(at)) {
      BarrierWait(Base::Full(at.stage), at.turn);
      REPRISE_UNROLL
      for (int chunk = 0; chunk < kChunks; ++chunk) {
        const uint32_t weights = SharedAddress(Base::Weights(at.stage, chunk));
        const uint32_t tokens = SharedAddress(Base::Tokens(at.stage, chunk));
        REPRISE_UNROLL
        for (int s = 0; s < kSteps; ++s)
          products.template MultiplyRows<T>(sums, weights, tokens, s,
                                            first > begin || chunk > 0 || s > 0);
      }
      products.Commit();
      if (first > begin) {
        products.template Wait<1>(sums);
        Base::Release(before);
      }
      before = at.stage;
    }
    products.template Wait<0>(sums);
    Base::Release(before);
  }

  // ---- from products to sums ----

  // Of a part: that the sums of this block's own are there, or those of the other block's. And of
  // an own part, that both blocks have added it, so that the next one's sums may take its place.
  REPRISE_FN uint64_t* OwnThere() const { return Base::BehindBarriers(); }
  REPRISE_FN uint64_t* OthersThere() const { return OwnThere() + 1; }
  REPRISE_FN uint64_t* Added() const { return OwnThere() + 2; }
  // Of the warp's tile, the lane's values by fours.
  REPRISE_FN uint32_t SumsAddress(bool own) const {
    const int warp = (own ? 0 : kGroupWarps) + Warp() % kGroupWarps;
    return SharedAddress(Base::BehindStages()) + kLinearClusterBarrierBytes +
           static_cast<uint32_t>(warp * kFours) * kFourBytes + static_cast<uint32_t>(Lane()) * 16;
  }
  // turn: how many of the block's parts have been handed on.
  REPRISE_FN void HandOn(uint32_t turn, const Sums& sums) const {
    const int self = Self(), other = 1 - self;
    const uint32_t own = SumsAddress(true), at_other = PeerAddress(SumsAddress(false), other);
    const uint32_t there = PeerAddress(SharedAddress(OthersThere()), other);
    if (turn > 0) BarrierWaitForPeers(Added(), turn - 1);
    REPRISE_UNROLL
    for (int i = 0; i < kFours; ++i) {
      // The first block adds for the first half of the tokens.
      Vec<float, 4> of_self, of_other;
      REPRISE_UNROLL
      for (int j = 0; j < 4; ++j) {
        const float low = sums[i / 2].v[i % 2 * 4 + j], high = sums[kHalf + i / 2].v[i % 2 * 4 + j];
        of_self.v[j] = self == 0 ? low : high;
        of_other.v[j] = self == 0 ? high : low;
      }
      const uint32_t offset = static_cast<uint32_t>(i) * kFourBytes;
      StoreAtPeer(at_other + offset, of_other, there);
      StoreShared(own + offset, of_self);
    }
    SyncWarp();
    if (Lane() == 0) BarrierArrive(OwnThere());
  }

  // ---- sums ----

  REPRISE_FN void AddParts() const {
    HalfSums sum;
    for (int part = 0; part < Parts(); ++part) {
      const bool own = part % kBlocks == Self();
      const uint32_t turn = static_cast<uint32_t>(part / kBlocks);
      if (own) {
        BarrierWait(OwnThere(), turn);
      } else {
        if (ThreadX() == kGroupWarps * kWarpSize)
          BarrierArriveExpectBytes(OthersThere(), kGroupWarps * kFours * kFourBytes);
        BarrierWaitForPeers(OthersThere(), turn);
      }
      REPRISE_UNROLL
      for (int i = 0; i < kFours; ++i) {
        const auto x =
            LoadShared<Vec<float, 4>>(SumsAddress(own) + static_cast<uint32_t>(i) * kFourBytes);
        float* const v = sum[i / 2].v + i % 2 * 4;
        REPRISE_UNROLL
        for (int j = 0; j < 4; ++j) v[j] = part == 0 ? x.v[j] : v[j] + x.v[j];
      }
      FinishSharedReads();
      SyncWarp();
      // Nobody waits for the last part of each block, and the other one may have ended.
      if (Lane() == 0 && part + kBlocks < Parts())
        BarrierArriveAtPeer(PeerAddress(SharedAddress(Added()), part % kBlocks));
    }
    Store(sum);
  }
  REPRISE_FN void Store(const HalfSums& sum) const {
    const int tile = Warp() - kGroupWarps;  // of the span
    if (tile >= Base::TilesOf(Base::FirstTile())) return;
    constexpr int kColumns = kLaneColumns<16>;
    const int first_token = first_row_ + Self() * kHalf * 16;
    StoreLinearTile<T, kHalf * kColumns, true>(
        a_, static_cast<int64_t>(Base::FirstTile() + tile) * kPackedTileOutputs, rows_,
        [&](int h, int j) { return sum[j / kColumns].v[At(h, j % kColumns)]; },
        [&](int j) { return first_token + j / kColumns * 16 + MatrixColumn(j % kColumns); });
  }
};

// Grid x: a cluster for each span, no fewer: the one that brings stages would bring those of the
// next span too. Grid y: tiles of tokens.
template <typename T, int kTokens>
REPRISE_FN void ClusterLinearBody(const LinearGroupArgs& args, unsigned char* shared) {
  if (!args.linear.reads_ahead) WaitForPrevious();
  const int rows = static_cast<int>(*args.linear.num_rows);
  if (BlockY() * kTokens >= rows) {
    if (BlockX() == 0 && BlockY() == 0) WaitForPrevious();
    return;
  }
  const int first_row = BlockY() * kTokens;
  constexpr int kFewChunks = LinearGroupFewChunks(kTokens, kGroup16);
  if (args.stage_chunks == kFewChunks) {
    ClusterLinear<T, kTokens, kFewChunks>(args, rows, first_row, shared).Run();
  } else {
    ClusterLinear<T, kTokens, 2 * kFewChunks>(args, rows, first_row, shared).Run();
  }
}

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_LINEAR_LINEAR_CLUSTER_BODY_H_
