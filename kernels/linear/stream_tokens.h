// SPDX-License-Identifier: Apache-2.0
// The tokens of linear_stream_body.h, as one warp that multiplies has them: in shared memory, of
// half a part of K at a time, on their way before they are needed, and from there in fragments.
// Where the layer norms its input, rows of the residual stream come, and the lanes that copied them
// norm them in place: RmsNorm's kernel, done by every block that would have waited for it, with the
// same bits.
#ifndef REPRISE_KERNELS_LINEAR_STREAM_TOKENS_H_
#define REPRISE_KERNELS_LINEAR_STREAM_TOKENS_H_

#include "kernels/device/matrix.h"
#include "kernels/linear/linear_args.h"
#include "kernels/linear/stream_geometry.h"
#include "kernels/rms_norm/norm_arithmetic.h"
#include "kernels/rms_norm/rms_norm_args.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

// kTokens, kFine: those of StreamLinear.
template <typename T, int kTokens, int kWeightBits, bool kFine>
class StreamTokens {
 public:
  static constexpr int kHalves = kPackedPartTiles / kStreamSlotTiles;  // of a part
  static constexpr int kTileSteps = kPackedTileInputs / 16;            // products of a tile
  static constexpr int kSteps = kPackedPartK / 16;                     // and of a part
  static constexpr int kSlots = StreamTokenSlots(kTokens);
  static_assert(kSlots <= kHalves);
  // Whether registers have room for the tokens of a part; else for those of a half.
  static constexpr bool kHoldsPart = StreamHoldsTokens(kTokens, kWeightBits);
  static constexpr int kColumns = StreamColumns(kTokens);
  using Fragments = MatrixB<kColumns>[kHoldsPart ? kSteps : kSteps / kHalves];

  // parts: of K. shared: of the block.
  REPRISE_FN StreamTokens(const LinearArgs& a, int rows, uint32_t parts, unsigned char* shared)
      : a_(a),
        rows_(rows),
        parts_(parts),
        first_(static_cast<uint32_t>(Warp()) % parts),
        shared_(shared) {}

  // Before the kernel ahead has ended, what does not depend on it. A barrier of the block follows.
  REPRISE_FN void Prepare() const {
    constexpr uint32_t kBytes = kSlots * StreamTokenSlotBytes(kTokens);
    for (uint32_t at = static_cast<uint32_t>(Lane()) * 16; at < kBytes; at += kWarpSize * 16)
      StoreShared(Stage(0) + at, Vec<uint32_t, 4>{0, 0, 0, 0});
    if constexpr (kNorms) {
      if (!Norms()) return;
      REPRISE_UNROLL
      for (int s = 0; s < kSlots; ++s) RequestNormWeight(first_, s);
      CopyAsyncCommit();
    }
  }
  // Requests the part that the warp begins with. Of a norm it is the only one, and the norm is
  // done: the barrier is of all kStreamWarps warps, which have to agree on what rows are multiplied
  // by.
  REPRISE_FN void Begin(uint64_t* norm_barrier) const {
    REPRISE_UNROLL
    for (int s = 0; s < kSlots; ++s) {
      if (kNorms && (kTokens <= kFewRows || rows_ <= kFewRows || Norms())) {
        RequestPacks(first_, s);
      } else {
        Request(first_, s);
      }
    }
    if constexpr (kNorms) {
      if (Norms()) NormPart(norm_barrier);
    }
  }
  // Half `of_part` of a part, which was requested, as fragments: kSlots halves may be on their way.
  // It is zero beyond K, and where there is no token.
  REPRISE_FN void Read(int of_part, Fragments& x) const {
    CopyAsyncWait<kSlots - 1>();
    SyncWarp();
    const TileReader<kRowChunks> reader;
    REPRISE_UNROLL
    for (int t = 0; t < kStreamSlotTiles; ++t) {
      MatrixB<kColumns>* const of_tile = Half(x, of_part) + t * kTileSteps;
      REPRISE_UNROLL
      for (int i = 0; i < kTileSteps; i += kStepsAtOnce) {
        if constexpr (kStepsAtOnce == 2) {
          reader.template TwoB<kTokens>(Stage(of_part), t * kTokens, i, of_tile[i], of_tile[i + 1]);
        } else {
          of_tile[i] = reader.template B<kColumns>(Stage(of_part), t * kTokens, i);
        }
      }
    }
    SyncWarp();
  }
  // Where half `of_part` is of what was read.
  template <typename AnyFragments>
  REPRISE_FN static auto* Half(AnyFragments& x, int of_part) {
    return x + (kHoldsPart ? of_part * kStreamSlotTiles * kTileSteps : 0);
  }
  // Behind Read of half `of_part` of a part: the next that its place takes. A warp that holds a
  // part of K and stays with it has all that it needs.
  REPRISE_FN void RequestBehind(uint32_t part_of_k, uint32_t next_part_of_k, int of_part) const {
    const int ahead = of_part + kSlots;
    if (ahead < kHalves) {
      Request(part_of_k, ahead);
    } else if (!kHoldsPart || next_part_of_k != part_of_k) {
      Request(next_part_of_k, ahead - kHalves);
    } else {
      CopyAsyncCommit();
    }
  }

 private:
  static constexpr StreamSharedLayout kLayout = StreamLayout(kTokens, kWeightBits, kFine);
  static constexpr int kRowChunks = kPackedTileInputs / kPackedChunk;  // of 16 bytes, of a tile
  static constexpr int kStepsAtOnce = kColumns == 8 ? 2 : 1;           // that one load reads
  static constexpr int kPack = kPackedChunk;
  using Pack = Vec<T, kPack>;
  // Up to kFewRows rows are copied whole by all lanes, a copy for each, and normed one at a time;
  // more in groups of kRowsAtOnce, whose last rows may be dead, and are zero.
  static constexpr int kFewRows = 2, kRowsAtOnce = 4;
  static_assert(kTokens <= kFewRows || kTokens % kRowsAtOnce == 0);
  // A part is what a warp of RmsNorm's kernel has.
  static constexpr bool kNorms = StreamTakesResidual(kTokens);
  static_assert(kPackedPartK == kNormPacksPerThread * kWarpSize * kPack);
  static_assert(!kNorms || (kSlots == kHalves && kHalves == kNormPacksPerThread));

  REPRISE_FN bool Norms() const { return a_.norm_weight != nullptr; }
  REPRISE_FN uint32_t Stage(int of_part) const {
    return SharedAddress(shared_ + kLayout.tokens) +
           static_cast<uint32_t>(Warp() * kSlots + of_part % kSlots) *
               StreamTokenSlotBytes(kTokens);
  }
  // A lane has 16 bytes of some tokens, in each tile of the half.
  REPRISE_FN void Request(uint32_t part_of_k, int of_part) const {
    constexpr int kRowsAtOnce = kWarpSize / kRowChunks;
    constexpr uint32_t kTile = kTokens * kRowChunks * 16;
    const int row = Lane() / kRowChunks, chunk = Lane() % kRowChunks;
    const int k0 =
        static_cast<int>(part_of_k) * kPackedPartK + of_part * kStreamSlotTiles * kPackedTileInputs;
    const int k = k0 + chunk * kPackedChunk;
    const bool whole = k0 + kStreamSlotTiles * kPackedTileInputs <= a_.in_features;
    const T* const x = static_cast<const T*>(a_.x);
    REPRISE_UNROLL
    for (int i = 0; i < (kTokens + kRowsAtOnce - 1) / kRowsAtOnce; ++i) {
      const int r = i * kRowsAtOnce + row;
      if (r >= rows_) continue;
      const T* const from = x + static_cast<int64_t>(r) * a_.in_features + k;
      const uint32_t to = Stage(of_part) + SwizzledOffset<kRowChunks>(static_cast<uint32_t>(r),
                                                                      static_cast<uint32_t>(chunk));
      if (whole) {
        REPRISE_UNROLL
        for (uint32_t t = 0; t < kStreamSlotTiles; ++t)
          CopyAsync16(to + t * kTile, from + t * kPackedTileInputs);
      } else {
        REPRISE_UNROLL_BY(1)
        for (uint32_t t = 0; t < kStreamSlotTiles; ++t) {
          const bool valid = k + static_cast<int>(t) * kPackedTileInputs < a_.in_features;
          CopyAsync16OrZero(to + t * kTile, valid ? from + t * kPackedTileInputs : x, valid);
        }
      }
    }
    CopyAsyncCommit();
  }

  // ---- the norm of rows ----

  // Here a lane has 16 bytes of every token of a half: those of pack Lane(), as in RmsNorm's
  // kernel.
  static_assert(kStreamSlotTiles * kRowChunks == kWarpSize);
  REPRISE_FN uint32_t PackOf(int of_part, int r) const {
    constexpr uint32_t kTile = kTokens * kRowChunks * 16;
    const auto lane = static_cast<uint32_t>(Lane());
    return Stage(of_part) + lane / kRowChunks * kTile +
           SwizzledOffset<kRowChunks>(static_cast<uint32_t>(r), lane % kRowChunks);
  }
  REPRISE_FN uint32_t NormWeight(int of_part) const {
    return SharedAddress(shared_ + kLayout.norm_weights) +
           static_cast<uint32_t>((of_part % kSlots * kStreamWarps + Warp()) * kWarpSize + Lane()) *
               16;
  }
  REPRISE_FN int InputOf(uint32_t part_of_k, int of_part) const {
    return static_cast<int>(part_of_k) * kPackedPartK +
           of_part * kStreamSlotTiles * kPackedTileInputs + Lane() * kPack;
  }
  REPRISE_FN void RequestNormWeight(uint32_t part_of_k, int of_part) const {
    const int k = InputOf(part_of_k, of_part);
    const bool valid = k < a_.in_features;
    const T* const weight = static_cast<const T*>(a_.norm_weight);
    CopyAsync16OrZero(NormWeight(of_part), weight + (valid ? k : 0), valid);
  }
  REPRISE_FN void RequestPacks(uint32_t part_of_k, int of_part) const {
    const int k = InputOf(part_of_k, of_part);
    const bool valid = k < a_.in_features;
    const T* from = static_cast<const T*>(a_.x) + (valid ? k : 0);
    REPRISE_UNROLL_BY(1)
    for (int r = 0; r < rows_; ++r, from += a_.in_features)
      CopyAsync16OrZero(PackOf(of_part, r), from, valid);
    CopyAsyncCommit();
  }

  // [kTokens, kStreamWarps] sums of the squares of parts.
  REPRISE_FN uint32_t NormSum(int row, int warp) const {
    return SharedAddress(shared_ + kLayout.norm_sums) +
           static_cast<uint32_t>(row * kStreamWarps + warp) * 4;
  }
  // Every warp adds up its part of K, and the parts come together. What rows are multiplied by is
  // in the lane of their number.
  REPRISE_FN void NormPart(uint64_t* barrier) const {
    CopyAsyncWait<0>();
    if (kTokens <= kFewRows || rows_ <= kFewRows) {
      SumRows<1>();
    } else {
      SumRows<kRowsAtOnce>();
    }
    SyncThreads(kStreamWarps * kWarpSize, barrier, 0);
    float scale = 0.0f;
    if (Lane() < rows_) {
      const auto low = LoadShared<Vec<float, 4>>(NormSum(Lane(), 0));
      const auto high = LoadShared<Vec<float, 4>>(NormSum(Lane(), 4));
      static_assert(kStreamWarps == 8);
      const float even = (low.v[0] + high.v[0]) + (low.v[2] + high.v[2]);
      const float odd = (low.v[1] + high.v[1]) + (low.v[3] + high.v[3]);
      scale = NormScale(even + odd, a_.norm_share, a_.norm_eps);
    }
    Vec<Pack, kHalves> weight;
    REPRISE_UNROLL
    for (int s = 0; s < kHalves; ++s) weight.v[s] = LoadShared<Pack>(NormWeight(s));
    if (kTokens <= kFewRows || rows_ <= kFewRows) {
      NormRows<1>(scale, weight);
    } else {
      NormRows<kRowsAtOnce>(scale, weight);
    }
  }
  template <int kAtOnce>
  REPRISE_FN void SumRows() const {
    // A part is added once, whoever else has it.
    const bool counts = static_cast<uint32_t>(Warp()) < parts_;
    REPRISE_UNROLL_BY(1)
    for (int first = 0; first < rows_; first += kAtOnce) {
      float squares[kAtOnce];
      REPRISE_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        squares[i] = 0.0f;
        REPRISE_UNROLL
        for (int s = 0; s < kHalves; ++s)
          squares[i] += NormSquares(LoadShared<Pack>(PackOf(s, first + i)));
      }
      REPRISE_UNROLL
      for (int d = kWarpSize / 2; d > 0; d >>= 1) {
        REPRISE_UNROLL
        for (float& sum : squares) sum += ShuffleXor(sum, d);
      }
      REPRISE_UNROLL
      for (int i = 0; i < kAtOnce; ++i)
        if (Lane() == i) StoreShared(NormSum(first + i, Warp()), counts ? squares[i] : 0.0f);
    }
  }
  // In the place of the lane's packs.
  template <int kAtOnce>
  REPRISE_FN void NormRows(float scale, const Vec<Pack, kHalves>& weight) const {
    REPRISE_UNROLL_BY(1)
    for (int first = 0; first < rows_; first += kAtOnce) {
      REPRISE_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        const float of_row = Shuffle(scale, first + i);
        REPRISE_UNROLL
        for (int s = 0; s < kHalves; ++s) {
          const uint32_t at = PackOf(s, first + i);
          StoreShared(at, Normed(LoadShared<Pack>(at), of_row, weight.v[s], a_.norm_weight_offset));
        }
      }
    }
  }

  const LinearArgs& a_;
  const int rows_;
  const uint32_t parts_;  // of K
  const uint32_t first_;  // that the warp begins with
  unsigned char* const shared_;
};

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_LINEAR_STREAM_TOKENS_H_
