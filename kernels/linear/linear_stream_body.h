// SPDX-License-Identifier: Apache-2.0
// Linear for few tokens over packed weights, thread style: what takes time here is to read them,
// and nothing else should. One warp requests them by bulk copies, far ahead and before the kernel
// ahead of this one has ended; eight warps multiply, each out of slots of its own and with its
// tokens in registers; one warp adds the sums of parts in order and stores. Nobody waits for the
// block: a warp that multiplies waits for its weights, and for room for its sums, alone.
//
// A block takes whole tiles of 16 outputs. Its first one is its own, before the wait for the kernel
// ahead; the others it takes from a counter, asking one tile ahead, so that blocks end together
// whatever the memory does. Who takes a tile changes no bits.
#ifndef REPRISE_KERNELS_LINEAR_LINEAR_STREAM_BODY_H_
#define REPRISE_KERNELS_LINEAR_LINEAR_STREAM_BODY_H_

#include <type_traits>

#include "kernels/device/matrix.h"
#include "kernels/linear/linear_args.h"
#include "kernels/linear/linear_output.h"
#include "kernels/linear/stream_geometry.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

// W: of weights, T, or E4m3 or Int4, whose sums of a scale leave room for 8 tokens alone. kTokens:
// 8 or 16.
template <typename T, typename W, int kTokens>
class StreamLinear {
 public:
  REPRISE_FN StreamLinear(const LinearArgs& a, int rows, unsigned char* shared)
      : a_(a),
        rows_(rows),
        tiles_(static_cast<uint32_t>(PackedLayout{a.out_features, a.in_features}.OutputTiles())),
        input_tiles_(
            static_cast<uint32_t>(PackedLayout{a.out_features, a.in_features}.InputTiles())),
        parts_((input_tiles_ + kPackedPartTiles - 1) / kPackedPartTiles),
        shared_(shared) {}

  REPRISE_FN void Run() {
    if (ThreadX() == 0) {
      for (int i = 0; i < Barriers::kCount; ++i) BarrierInit(Barrier(i), 1);
      FenceBulkCopies();
    }
    SyncBlock();
    if (Warp() < kStreamWarps) {
      MultiplyParts();
    } else if (Warp() == kStreamSummingWarp) {
      Add();
    } else {
      Request();
    }
  }

 private:
  static constexpr bool kFp8 = std::is_same_v<W, E4m3>;
  static constexpr bool kInt4 = std::is_same_v<W, Int4>;
  static constexpr bool kScaled = kFp8 || kInt4;
  static constexpr int kBits = kElementBits<W>;
  using Barriers = StreamBarriers<kBits>;
  static constexpr StreamSharedLayout kLayout = StreamLayout(kTokens, kBits);
  static constexpr int kStages = StreamStages(kBits);
  static constexpr uint32_t kTileBytes = kPackedTileElements * kBits / 8;
  static constexpr int kTilesOfScale = kScaleInputs / kPackedTileInputs;  // of E4m3
  static constexpr int kTileSteps = kPackedTileInputs / 16;               // products of a tile
  static constexpr int kSteps = kPackedPartK / 16;                        // and of a part
  static constexpr int kValues = MatrixD<kTokens>::kSize;                 // sums of a lane
  static constexpr int kSumsAtOnce = 4;  // that are waited for, and then added
  static constexpr int kRowChunks = kPackedTileInputs / kPackedChunk;  // of 16 bytes, of a row
  static constexpr int kRowsAtOnce = kWarpSize / kRowChunks;           // of tokens, by all lanes
  static constexpr int kSlotTiles = StreamWeightTiles(kBits);
  static constexpr int kPartSlots = kPackedPartTiles / kSlotTiles;
  static constexpr int kHalves = kPackedPartTiles / kStreamSlotTiles;  // of a part, by its tokens
  static constexpr int kSlotHalves = kHalves / kPartSlots;
  static constexpr int kTokenSlots = StreamTokenSlots(kTokens);
  static_assert(kTokenSlots <= kHalves);
  static constexpr uint32_t kEnd = 0xffffffffu;  // in place of a tile

  // A warp's slots and everyone's sums, in turn. `part`: of all that the block takes; part i is
  // multiplied by warp i % kStreamWarps.
  struct Slot {
    int index;
    uint32_t turn;
  };
  REPRISE_FN static Slot SlotOf(uint32_t part, int of_part) {
    const uint32_t count = part / kStreamWarps * kPartSlots + static_cast<uint32_t>(of_part);
    return {static_cast<int>(part % kStreamWarps * kStages + count % kStages), count / kStages};
  }

  REPRISE_FN uint64_t* Barrier(int index) const {
    return reinterpret_cast<uint64_t*>(shared_ + kLayout.barriers) + index;
  }
  REPRISE_FN unsigned char* Ring(int slot) const {
    return shared_ + kLayout.ring + static_cast<uint32_t>(slot) * StreamSlotBytes(kBits);
  }
  REPRISE_FN float* Scales(int slot) const {
    return reinterpret_cast<float*>(shared_ + kLayout.scales +
                                    static_cast<uint32_t>(slot) * StreamScaleBytes(kBits));
  }
  REPRISE_FN uint32_t* SlotTile() const {
    return reinterpret_cast<uint32_t*>(shared_ + kLayout.slot_tile);
  }
  REPRISE_FN uint32_t* SumTile() const {
    return reinterpret_cast<uint32_t*>(shared_ + kLayout.sum_tile);
  }
  // Tiles of K that slot `of_part` of a part has; 0 or less: none.
  REPRISE_FN int TilesOf(uint32_t part_of_k, int of_part) const {
    const int left = static_cast<int>(input_tiles_) -
                     static_cast<int>(part_of_k) * kPackedPartTiles - of_part * kSlotTiles;
    return left < kSlotTiles ? left : kSlotTiles;
  }

  // ---- the warp that requests, kStreamRequestLanes of it ----

  REPRISE_FN void Request() const {
    uint32_t part = 0;
    RequestTile(static_cast<uint32_t>(BlockX()), part);
    WaitForPrevious();
    uint32_t next = Take();
    while (next < tiles_) {
      const uint32_t tile = next;
      next = Take();
      RequestTile(tile, part);
    }
    if (Lane() < kStreamWarps) Announce(SlotOf(part + static_cast<uint32_t>(Lane()), 0), kEnd, 0);
    SyncWarp();
    if (Lane() != 0 ||
        AtomicAddAcquireRelease(a_.counters + 1, 1u) != static_cast<uint32_t>(GridX()) - 1)
      return;
    a_.counters[0] = 0;
    a_.counters[1] = 0;
  }
  REPRISE_FN uint32_t Take() const {
    uint32_t taken = 0;
    if (Lane() == 0) taken = AtomicAdd(a_.counters, 1u);
    return static_cast<uint32_t>(GridX()) + Shuffle(taken, 0);
  }
  // Each lane parts of its own. part: the first one's number.
  REPRISE_FN void RequestTile(uint32_t tile, uint32_t& part) const {
    if (Lane() < kStreamRequestLanes)
      for (uint32_t p = static_cast<uint32_t>(Lane()); p < parts_; p += kStreamRequestLanes)
        RequestPart(tile, p, part + p);
    part += parts_;
    SyncWarp();
  }
  REPRISE_FN void RequestPart(uint32_t tile, uint32_t part_of_k, uint32_t part) const {
    const auto* from =
        static_cast<const unsigned char*>(a_.weight) +
        (static_cast<int64_t>(tile) * input_tiles_ + part_of_k * kPackedPartTiles) * kTileBytes;
    for (int s = 0; s < kPartSlots; ++s, from += kSlotTiles * kTileBytes) {
      const Slot slot = SlotOf(part, s);
      const int tiles = TilesOf(part_of_k, s);
      Announce(slot, tile, tiles);
      if (tiles <= 0) continue;
      uint64_t* const full = Barrier(Barriers::kFull + slot.index);
      CopyBulkOnce(Ring(slot.index), from, static_cast<uint32_t>(tiles) * kTileBytes, full);
      if constexpr (kScaled) {
        const PackedLayout packed{a_.out_features, a_.in_features, ScaleInputs()};
        const int64_t first =
            packed.PackedScaleOffset(static_cast<int64_t>(tile) * kPackedTileOutputs,
                                     part_of_k * NumScales(kPackedPartTiles));
        CopyBulkOnce(Scales(slot.index), a_.scales + first, ScaleBytes(tiles), full);
      }
    }
  }
  REPRISE_FN int ScaleInputs() const { return kInt4 ? a_.scale_inputs : kScaleInputs; }
  // That so many tiles of K have, for one output. No division: one lane requests for all.
  REPRISE_FN int NumScales(int tiles) const {
    const int runs = tiles * (kPackedTileInputs / kLeastScaleInputs);
    if (ScaleInputs() == kLeastScaleInputs) return runs;
    return ScaleInputs() == kPackedTileInputs ? runs / 2 : (runs + 3) / 4;
  }
  REPRISE_FN uint32_t ScaleBytes(int tiles) const {
    return static_cast<uint32_t>(NumScales(tiles)) * kPackedTileOutputs * 4;
  }
  // Waits for the slot, and says what comes there.
  REPRISE_FN void Announce(const Slot& slot, uint32_t tile, int tiles) const {
    if (slot.turn > 0) BarrierWait(Barrier(Barriers::kEmpty + slot.index), slot.turn - 1);
    SlotTile()[slot.index] = tile;
    uint64_t* const full = Barrier(Barriers::kFull + slot.index);
    if (tiles > 0) {
      BarrierArriveExpectBytes(
          full, static_cast<uint32_t>(tiles) * kTileBytes + (kScaled ? ScaleBytes(tiles) : 0));
    } else {
      BarrierArrive(full);
    }
  }

  // ---- the warps that multiply ----

  using Tokens = MatrixB<kTokens>[kSteps];

  // What the warp's tokens have in the inputs of half a part, zero beyond both, goes to shared
  // memory on its own, kTokenSlots halves ahead of the products; from there fragments come.
  REPRISE_FN uint32_t TokenStage(int of_part) const {
    return SharedAddress(shared_ + kLayout.tokens) +
           static_cast<uint32_t>(Warp() * kTokenSlots + of_part % kTokenSlots) *
               StreamTokenSlotBytes(kTokens);
  }
  REPRISE_FN void RequestTokens(uint32_t part_of_k, int of_part) const {
    const int row = Lane() / kRowChunks, chunk = Lane() % kRowChunks;
    const int k0 = static_cast<int>(part_of_k) * kPackedPartK +
                   of_part * kStreamSlotTiles * kPackedTileInputs + chunk * kPackedChunk;
    const T* const x = static_cast<const T*>(a_.x);
    const uint32_t stage = TokenStage(of_part);
    const auto request = [&](int t) {
      REPRISE_UNROLL
      for (int i = 0; i < kTokens / kRowsAtOnce; ++i) {
        const int r = i * kRowsAtOnce + row, k = k0 + t * kPackedTileInputs;
        const bool valid = r < rows_ && k < a_.in_features;
        CopyAsync16OrZero(stage + SwizzledOffset<kRowChunks>(static_cast<uint32_t>(t * kTokens + r),
                                                             static_cast<uint32_t>(chunk)),
                          valid ? x + static_cast<int64_t>(r) * a_.in_features + k : x, valid);
      }
    };
    if constexpr (kTokens <= 8) {
      REPRISE_UNROLL
      for (int t = 0; t < kStreamSlotTiles; ++t) request(t);
    } else {
      REPRISE_UNROLL_BY(1)  // registers do not suffice for all at once
      for (int t = 0; t < kStreamSlotTiles; ++t) request(t);
    }
    CopyAsyncCommit();
  }
  REPRISE_FN void ReadTokens(int of_part, Tokens& x) const {
    CopyAsyncWait<kTokenSlots - 1>();
    SyncWarp();
    const TileReader<kRowChunks> reader;
    REPRISE_UNROLL
    for (int t = 0; t < kStreamSlotTiles; ++t) {
      REPRISE_UNROLL
      for (int i = 0; i < kTileSteps; ++i)
        x[(of_part * kStreamSlotTiles + t) * kTileSteps + i] =
            reader.template B<kTokens>(TokenStage(of_part), t * kTokens, i);
    }
    SyncWarp();
  }
  // Behind ReadTokens of half `of_part` of a part: the next that its place takes. A warp that stays
  // with one part of K has all that it needs.
  REPRISE_FN void RequestTokensBehind(uint32_t part_of_k, uint32_t next_part_of_k,
                                      int of_part) const {
    const int ahead = of_part + kTokenSlots;
    if (ahead < kHalves) {
      RequestTokens(part_of_k, ahead);
    } else if (next_part_of_k != part_of_k) {
      RequestTokens(next_part_of_k, ahead - kHalves);
    } else {
      CopyAsyncCommit();
    }
  }

  REPRISE_FN void MultiplyParts() const {
    BeginInOrder();
    Tokens x;
    uint32_t held = kEnd;  // the part of K that x is of
    REPRISE_UNROLL
    for (int s = 0; s < kTokenSlots; ++s) RequestTokens(static_cast<uint32_t>(Warp()) % parts_, s);
    for (uint32_t part = static_cast<uint32_t>(Warp());; part += kStreamWarps) {
      const uint32_t part_of_k = part % parts_;
      const Slot first = SlotOf(part, 0);
      BarrierWait(Barrier(Barriers::kFull + first.index), first.turn);
      const uint32_t tile = SlotTile()[first.index];
      MatrixD<kTokens> d, scaled;
      d.Clear();
      scaled.Clear();
      if (tile == kEnd) {
        CopyAsyncWait<0>();
        return HandOver(part, tile, d);
      }
      REPRISE_UNROLL
      for (int s = 0; s < kHalves; ++s) {
        if (part_of_k != held) {
          ReadTokens(s, x);
          RequestTokensBehind(part_of_k, (part + kStreamWarps) % parts_, s);
        }
        const Slot slot = SlotOf(part, s / kSlotHalves);
        const int of_slot = s % kSlotHalves;
        if (s > 0 && of_slot == 0) BarrierWait(Barrier(Barriers::kFull + slot.index), slot.turn);
        const uint32_t weights = SharedAddress(Ring(slot.index));
        const int left = TilesOf(part_of_k, s / kSlotHalves) - of_slot * kStreamSlotTiles;
        const auto* const tokens = x + s * kStreamSlotTiles * kTileSteps;
        const uint32_t half = weights + of_slot * kStreamSlotTiles * kTileBytes;
        const float* scales = nullptr;
        if constexpr (kScaled)
          scales = Scales(slot.index) + NumScales(of_slot * kStreamSlotTiles) * kPackedTileOutputs;
        if constexpr (kInt4) {
          MultiplyInt4Half(half, scales, left, tokens, scaled);
        } else if (left >= kStreamSlotTiles) {
          // Of a whole half what does not hang together runs side by side.
          MultiplyHalf<true>(half, scales, left, tokens, d, scaled);
        } else {
          MultiplyHalf<false>(half, scales, left, tokens, d, scaled);
        }
        if (of_slot != kSlotHalves - 1) continue;
        SyncWarp();
        if (Lane() == 0) BarrierArrive(Barrier(Barriers::kEmpty + slot.index));
      }
      held = part_of_k;
      HandOver(part, tile, kScaled ? scaled : d);
    }
  }

  // d, or `scaled` where weights have scales, += the products of half a part's tiles, of which
  // `tiles` are there.
  template <bool kWhole>
  REPRISE_FN void MultiplyHalf(uint32_t weights, const float* scales, int tiles,
                               const MatrixB<kTokens>* tokens, MatrixD<kTokens>& d,
                               MatrixD<kTokens>& scaled) const {
    const TileReader<kRowChunks> reader;
    REPRISE_UNROLL
    for (int t = 0; t < kStreamSlotTiles; ++t, tokens += kTileSteps) {
      if (!kWhole && t >= tiles) continue;
      if constexpr (kFp8) {
        if (t % kTilesOfScale == 0) d.Clear();
        MultiplyFp8(d, weights, t, tokens);
        if (t % kTilesOfScale == kTilesOfScale - 1 || (!kWhole && t == tiles - 1))
          Scale(d, scales + t / kTilesOfScale * kPackedTileOutputs, scaled);
      } else {
        REPRISE_UNROLL
        for (int i = 0; i < kTileSteps; ++i)
          Multiply<T>(d, reader.A(weights, t * kPackedTileOutputs, i), tokens[i]);
      }
    }
  }
  REPRISE_FN static void MultiplyFp8(MatrixD<kTokens>& d, uint32_t weights, int tile,
                                     const MatrixB<kTokens>* tokens) {
    const Fp8TileReader<kPackedTileInputs / 16> reader;
    REPRISE_UNROLL
    for (int pair = 0; pair < kTileSteps / 2; ++pair) {
      MatrixA a[2];
      reader.template PackedA<T>(weights, tile * kPackedTileOutputs, pair, a);
      Multiply<T>(d, a[0], tokens[2 * pair]);
      Multiply<T>(d, a[1], tokens[2 * pair + 1]);
    }
  }
  // Half a part of weights of 4 bits: tiles [0, tiles) from `weights` on, at most kStreamSlotTiles.
  REPRISE_FN void MultiplyInt4Half(uint32_t weights, const float* scales, int tiles,
                                   const MatrixB<kTokens>* tokens, MatrixD<kTokens>& to) const {
    switch (a_.scale_inputs) {
      case kLeastScaleInputs:
        return MultiplyInt4<kLeastScaleInputs>(weights, scales, tiles, tokens, to);
      case kPackedTileInputs:
        return MultiplyInt4<kPackedTileInputs>(weights, scales, tiles, tokens, to);
      default:
        return MultiplyInt4<kScaleInputs>(weights, scales, tiles, tokens, to);
    }
  }
  template <int kInputs>
  REPRISE_FN static void MultiplyInt4(uint32_t weights, const float* scales, int tiles,
                                      const MatrixB<kTokens>* tokens, MatrixD<kTokens>& to) {
    if (tiles >= kStreamSlotTiles) {
      MultiplyInt4<kInputs, true>(weights, scales, kStreamSlotTiles, tokens, to);
    } else {
      MultiplyInt4<kInputs, false>(weights, scales, tiles, tokens, to);
    }
  }
  // Two scales at a time, in turns: a product need not wait for the one before it. Sums are those
  // of one after the other. kWhole: all tiles are there, so that nothing branches.
  template <int kInputs, bool kWhole>
  REPRISE_FN static void MultiplyInt4(uint32_t weights, const float* scales, int tiles,
                                      const MatrixB<kTokens>* tokens, MatrixD<kTokens>& to) {
    constexpr int kScaleSteps = kInputs / 16;
    constexpr int kPairTiles = 2 * kInputs / kPackedTileInputs;
    static_assert(kInt4Rows == kLaneRows);  // of A and of D
    REPRISE_UNROLL
    for (int tile = 0; tile < kStreamSlotTiles; tile += kPairTiles) {
      Int4Tile elements[kPairTiles];
      REPRISE_UNROLL
      for (int t = 0; t < kPairTiles; ++t)
        if (kWhole || tile + t < tiles)
          elements[t].Load(weights + static_cast<uint32_t>(tile + t) * kTileBytes);
      MatrixD<kTokens> d[2];
      uint32_t words[2][kLaneRows] = {}, zero[2][kLaneRows] = {};
      // Whether the first inputs of a scale are there.
      const auto there = [&](int p) {
        return kWhole || tile + p * kScaleSteps / kTileSteps < tiles;
      };
      REPRISE_UNROLL
      for (int p = 0; p < 2; ++p) {
        d[p].Clear();
        if (!there(p)) continue;
        REPRISE_UNROLL
        for (int h = 0; h < kLaneRows; ++h) {
          const int scale = tile * kPackedTileInputs / kInputs + p;
          words[p][h] = BitsOf(scales[scale * kPackedTileOutputs + MatrixRow(h)]);
          zero[p][h] = Int4Zero<T>(words[p][h]);
        }
      }
      REPRISE_UNROLL
      for (int i = 0; i < kScaleSteps; ++i) {
        REPRISE_UNROLL
        for (int p = 0; p < 2; ++p) {
          const int step = p * kScaleSteps + i, t = step / kTileSteps;
          if (!kWhole && tile + t >= tiles) continue;
          Multiply<T>(d[p], elements[t].template A<T>(step % kTileSteps, zero[p]),
                      tokens[tile * kTileSteps + step]);
        }
      }
      REPRISE_UNROLL
      for (int p = 0; p < 2; ++p) {
        if (!there(p)) continue;
        REPRISE_UNROLL
        for (int h = 0; h < kLaneRows; ++h)
          AddScaled(d[p], h, FloatOf(words[p][h] & ~kZeroPointBits), to);
      }
    }
  }
  // to += d times the scales of its rows.
  REPRISE_FN static void Scale(const MatrixD<kTokens>& d, const float* scales,
                               MatrixD<kTokens>& to) {
    REPRISE_UNROLL
    for (int h = 0; h < kLaneRows; ++h)
      AddScaled(d, h, scales[MatrixRow(h)] * kPackedE4m3Worth, to);
  }
  // Of the lane's row h.
  REPRISE_FN static void AddScaled(const MatrixD<kTokens>& d, int h, float scale,
                                   MatrixD<kTokens>& to) {
    REPRISE_UNROLL
    for (int j = 0; j < kLaneColumns<kTokens>; ++j)
      to.v[At(h, j)] = MultiplyAdd(d.v[At(h, j)], scale, to.v[At(h, j)]);
  }

  // The sum of a part, or the word that there are no more, to the warp that adds.
  REPRISE_FN void HandOver(uint32_t part, uint32_t tile, const MatrixD<kTokens>& d) const {
    const int sum = static_cast<int>(part % kStreamSums);
    const uint32_t turn = part / kStreamSums;
    if (turn > 0) BarrierWait(Barrier(Barriers::kSumEmpty + sum), turn - 1);
    REPRISE_UNROLL
    for (int i = 0; i < kValues / 4; ++i)
      StoreShared(SumAddress(sum, i),
                  Vec<float, 4>{d.v[4 * i], d.v[4 * i + 1], d.v[4 * i + 2], d.v[4 * i + 3]});
    if (Lane() == 0) SumTile()[sum] = tile;
    SyncWarp();
    if (Lane() == 0) BarrierArrive(Barrier(Barriers::kSumFull + sum));
  }
  // Four values of each lane side by side.
  REPRISE_FN uint32_t SumAddress(int sum, int four) const {
    return SharedAddress(shared_ + kLayout.sums) +
           static_cast<uint32_t>((sum * (kValues / 4) + four) * kWarpSize + Lane()) * 16;
  }

  // ---- the warp that adds ----

  // Several parts at a time: the warp adds for all that multiply, and one part after another, each
  // with its wait and its load, would hold them up where weights are narrow.
  REPRISE_FN void Add() const {
    WaitForPrevious();
    for (uint32_t part = 0;;) {
      MatrixD<kTokens> d;
      uint32_t tile = kEnd;
      for (uint32_t p = 0; p < parts_; p += kSumsAtOnce) {
        const int sums = static_cast<int>(parts_ - p < kSumsAtOnce ? parts_ - p : kSumsAtOnce);
        MatrixD<kTokens> next[kSumsAtOnce];
        REPRISE_UNROLL
        for (int i = 0; i < kSumsAtOnce; ++i) {
          if (i >= sums) continue;
          const uint32_t of = part + static_cast<uint32_t>(i);
          const int sum = static_cast<int>(of % kStreamSums);
          BarrierWait(Barrier(Barriers::kSumFull + sum), of / kStreamSums);
          if (i == 0) tile = SumTile()[sum];
          if (tile == kEnd) return;
          LoadSum(sum, next[i]);
        }
        REPRISE_UNROLL
        for (int i = 0; i < kSumsAtOnce; ++i) {
          if (i >= sums) continue;
          REPRISE_UNROLL
          for (int v = 0; v < kValues; ++v)
            d.v[v] = p == 0 && i == 0 ? next[i].v[v] : d.v[v] + next[i].v[v];
        }
        SyncWarp();
        if (Lane() < sums)
          BarrierArrive(
              Barrier(Barriers::kSumEmpty +
                      static_cast<int>((part + static_cast<uint32_t>(Lane())) % kStreamSums)));
        part += static_cast<uint32_t>(sums);
      }
      Store(tile, d);
    }
  }
  REPRISE_FN void LoadSum(int sum, MatrixD<kTokens>& d) const {
    REPRISE_UNROLL
    for (int i = 0; i < kValues; i += 4) {
      const auto four = LoadShared<Vec<float, 4>>(SumAddress(sum, i / 4));
      REPRISE_UNROLL
      for (int j = 0; j < 4; ++j) d.v[i + j] = four.v[j];
    }
  }

  REPRISE_FN void Store(uint32_t tile, const MatrixD<kTokens>& d) const {
    StoreLinearTile<T, kLaneColumns<kTokens>, true>(
        a_, static_cast<int64_t>(tile) * kPackedTileOutputs, rows_,
        [&](int h, int j) { return d.v[At(h, j)]; }, [](int j) { return MatrixColumn(j); });
  }

  const LinearArgs& a_;
  const int rows_;
  const uint32_t tiles_;        // of 16 outputs
  const uint32_t input_tiles_;  // of 64 inputs
  const uint32_t parts_;        // of K
  unsigned char* const shared_;
};

template <typename T, typename W, int kTokens>
REPRISE_FN void StreamLinearBody(const LinearArgs& a, unsigned char* shared) {
  if (!a.reads_ahead) WaitForPrevious();
  const int rows = static_cast<int>(*a.num_rows);
  if (rows == 0) {
    if (BlockX() == 0) WaitForPrevious();
    return;
  }
  StreamLinear<T, W, kTokens>(a, rows, shared).Run();
}

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_LINEAR_LINEAR_STREAM_BODY_H_
