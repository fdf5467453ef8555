// SPDX-License-Identifier: Apache-2.0
// Linear for few tokens over packed weights, thread style: what takes time here is to read them,
// and nothing else should. Eight warps multiply, each out of slots of its own, into which it
// requests weights by bulk copies as soon as it has multiplied what was there, and with its tokens
// in registers; one warp adds the sums of parts in order and stores; one takes tiles. The first
// weights are requested before the kernel ahead of this one has ended: some slots at once, and by
// the warp that adds, as long as it has nothing to add, another when one is there; but for weights
// of 4 bits, what is left once that kernel has ended. No barrier is the block's: a warp that
// multiplies waits for its weights, for room for its sums, and, where it is two tiles ahead of the
// slowest, for the word which tile comes next.
//
// Of up to 8 tokens it can norm what it reads (stream_tokens.h), and add to what it stores.
//
// A block takes whole tiles of 16 outputs. Its first two or three are its own; where there are
// more, it takes them from a counter, so that blocks end together whatever the memory does. Who
// takes a tile changes no bits.
#ifndef REPRISE_KERNELS_LINEAR_LINEAR_STREAM_BODY_H_
#define REPRISE_KERNELS_LINEAR_LINEAR_STREAM_BODY_H_

#include "kernels/device/matrix.h"
#include "kernels/linear/linear_args.h"
#include "kernels/linear/linear_output.h"
#include "kernels/linear/stream_geometry.h"
#include "kernels/linear/stream_products.h"
#include "kernels/linear/stream_tokens.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

// W: of weights, T, E4m3 or Int4. kTokens: kStreamFewTokens, 8 or 16. kFine: a scale of Int4 is of
// fewer than kScaleInputs inputs.
template <typename T, typename W, int kTokens, bool kFine>
class StreamLinear {
 public:
  REPRISE_FN StreamLinear(const LinearArgs& a, int rows, unsigned char* shared)
      : a_(a),
        rows_(rows),
        tiles_(static_cast<uint32_t>(PackedLayout{a.out_features, a.in_features}.OutputTiles())),
        input_tiles_(
            static_cast<uint32_t>(PackedLayout{a.out_features, a.in_features}.InputTiles())),
        parts_((input_tiles_ + kPackedPartTiles - 1) / kPackedPartTiles),
        shared_(shared),
        products_(kFine && a.scale_inputs == kLeastScaleInputs) {}

  REPRISE_FN void Run() {
    Parts parts;
    const Tokens tokens(a_, rows_, parts_, shared_);
    if (Warp() < kStreamWarps) {
      RequestOwnParts(parts);
      tokens.Prepare();
    } else if (Warp() == kStreamSummingWarp) {
      InitSums();
    } else {
      InitTold();
    }
    SyncBlock();
    if (Warp() < kStreamWarps) {
      MultiplyParts(parts, tokens);
    } else if (Warp() == kStreamSummingWarp) {
      Add();
    } else {
      TakeTiles();
    }
  }

 private:
  static constexpr int kColumns = StreamColumns(kTokens);
  using Products = StreamProducts<T, W, kColumns, kFine>;
  static constexpr int kBits = Products::kBits;
  static constexpr StreamSharedLayout kLayout = StreamLayout(kTokens, kBits, kFine);
  static constexpr int kStages = StreamStages(kTokens, kBits);
  using Tokens = StreamTokens<T, kTokens, kBits, kFine>;
  using Barriers = StreamBarriers<kStages>;
  static constexpr uint32_t kTileBytes = Products::kTileBytes;
  static constexpr uint32_t kScaleRowBytes = kPackedTileOutputs * 4;  // of a tile's outputs
  using Sum = MatrixD<kColumns>;
  static constexpr int kValues = Sum::kSize;  // of a lane
  static constexpr int kSlotTiles = StreamWeightTiles(kBits);
  static constexpr int kPartSlots = kPackedPartTiles / kSlotTiles;
  static constexpr int kHalves = Tokens::kHalves;
  static constexpr int kSlotHalves = kHalves / kPartSlots;
  static constexpr bool kGoesByKernelAhead = StreamGoesByKernelAhead(kBits);
  // Parts of a warp that are on their way, the last of them maybe not yet whole.
  static constexpr int kAhead = (kStages + kPartSlots - 1) / kPartSlots;
  // Tiles that no other block can take: those that a warp may ask for before it is known who does.
  static constexpr uint32_t kOwnTiles = kAhead > 2 ? kAhead : 2;
  static constexpr uint32_t kEnd = 0xffffffffu;  // in place of a tile

  // A part of a tile's K. A round is a part of each warp that multiplies: of the parts of all tiles
  // that the block takes, one after the other, warp i has those of number i % kStreamWarps.
  struct Part {
    uint32_t tile;  // or kEnd
    uint32_t of_k;
  };

  REPRISE_FN uint64_t* Barrier(int index) const {
    return reinterpret_cast<uint64_t*>(shared_ + kLayout.barriers) + index;
  }
  REPRISE_FN unsigned char* Ring(int slot) const {
    return shared_ + kLayout.ring + static_cast<uint32_t>(slot) * StreamSlotBytes(kBits);
  }
  REPRISE_FN float* Scales(int slot) const {
    return reinterpret_cast<float*>(shared_ + kLayout.scales +
                                    static_cast<uint32_t>(slot) * StreamScaleBytes(kBits, kFine));
  }
  REPRISE_FN uint32_t* ToldTile() const {
    return reinterpret_cast<uint32_t*>(shared_ + kLayout.told_tile);
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

  // ---- the warp that takes tiles ----

  REPRISE_FN void InitTold() const {
    if (Lane() >= kStreamTold) return;
    BarrierInit(Barrier(Barriers::kTold + Lane()), 1);
    BarrierInit(Barrier(Barriers::kRead + Lane()), kStreamWarps);
  }
  REPRISE_FN void TakeTiles() const {
    WaitForPrevious();
    if (kGoesByKernelAhead && Lane() == 0) BarrierArrive(Barrier(Barriers::kGo));
    if (rows_ == 0) return;
    for (uint32_t turn = 0;; ++turn) {
      const int place = static_cast<int>(turn % kStreamTold);
      if (turn >= kStreamTold)
        BarrierWait(Barrier(Barriers::kRead + place), turn / kStreamTold - 1);
      const uint32_t taken = Take(), tile = taken < tiles_ ? taken : kEnd;
      if (Lane() == 0) {
        ToldTile()[place] = tile;
        BarrierArrive(Barrier(Barriers::kTold + place));
      }
      if (tile == kEnd) break;
    }
    if (Lane() != 0 ||
        AtomicAddAcquireRelease(a_.counters + 1, 1u) != static_cast<uint32_t>(GridX()) - 1)
      return;
    a_.counters[0] = 0;
    a_.counters[1] = 0;
  }
  REPRISE_FN uint32_t Take() const {
    uint32_t taken = 0;
    if (Lane() == 0) taken = AtomicAdd(a_.counters, 1u);
    return kOwnTiles * static_cast<uint32_t>(GridX()) + Shuffle(taken, 0);
  }
  REPRISE_FN uint32_t OwnTile(uint32_t number) const {
    const uint32_t tile = static_cast<uint32_t>(BlockX()) + number * static_cast<uint32_t>(GridX());
    return tile < tiles_ ? tile : kEnd;
  }
  // By a warp that multiplies: tile `number` of those that the block takes, or kEnd. It asks for
  // one after the other, until there are no more.
  REPRISE_FN uint32_t Tile(uint32_t number) const {
    if (number < kOwnTiles) return OwnTile(number);
    const uint32_t turn = number - kOwnTiles;
    const int place = static_cast<int>(turn % kStreamTold);
    BarrierWait(Barrier(Barriers::kTold + place), turn / kStreamTold);
    const uint32_t tile = ToldTile()[place];
    SyncWarp();
    if (Lane() == 0) BarrierArrive(Barrier(Barriers::kRead + place));
    return tile;
  }

  // ---- weights, by the warps that multiply ----

  // Where a warp is in the parts that it requests.
  struct Cursor {
    uint32_t tile;
    uint32_t number;  // of the tile
    uint32_t of_k;    // of the next part; parts_ and more: of a later tile
  };
  // Whether the next part is of one of the block's own tiles.
  REPRISE_FN bool IsOwn(const Cursor& c) const {
    return c.number < kOwnTiles && c.of_k < (kOwnTiles - c.number) * parts_;
  }
  REPRISE_FN Part NextPart(Cursor& c) const {
    for (; c.of_k >= parts_; c.of_k -= parts_)
      if (c.tile != kEnd) c.tile = Tile(++c.number);
    const Part part = {c.tile, c.of_k};
    c.of_k += kStreamWarps;
    return part;
  }
  // Parts of a warp that are on their way.
  struct Parts {
    Cursor cursor;
    Part ahead[kAhead];
    bool own[kAhead];  // of the block's own tiles: PaceFirst requests what RequestOwnParts leaves
  };
  // First slots are counted slot 0 of every warp, then slot 1 of every warp, and so on. How many of
  // them are requested at once.
  REPRISE_FN int NumFirst() const {
    return StreamFirstRequests(kTokens, kBits, a_.ahead, a_.norm_weight != nullptr);
  }
  // Of its own first slots, those that are requested at once. PaceFirst does the rest.
  REPRISE_FN void RequestOwnParts(Parts& parts) const {
    const int slots = Warp() * kStages;
    if (Products::kInt4 && input_tiles_ % kPackedPartTiles != 0) ClearSlots(slots);
    if (Lane() == 0) {
      for (int s = 0; s < kStages; ++s) {
        BarrierInit(Barrier(Barriers::kFirst + slots + s), 1);
        BarrierInit(Barrier(Barriers::kFull + slots + s), 1);
      }
      FenceBulkCopies();
    }
    parts.cursor = {.tile = Tile(0), .number = 0, .of_k = static_cast<uint32_t>(Warp())};
    REPRISE_UNROLL
    for (int i = 0; i < kAhead; ++i) {
      parts.own[i] = IsOwn(parts.cursor);
      if (!parts.own[i]) continue;
      parts.ahead[i] = NextPart(parts.cursor);
      RequestPart(parts.ahead[i], slots, i,
                  [&](int slot) { return slot * kStreamWarps + Warp() < NumFirst(); });
    }
  }
  // By one warp, a lane for each of those that are on their way at a time: another when one is
  // there, or once the kernel ahead has ended.
  REPRISE_FN void PaceFirst() const {
    if constexpr (kGoesByKernelAhead) {
      const int count = NumFirst();
      if (Lane() < count) {
        for (int i = Lane(); i + count < kStreamWarps * kStages; i += count) {
          if (FirstPart(i).tile != kEnd)
            BarrierWaitForEither(Barrier(Barriers::kFirst + FirstSlot(i)), Barrier(Barriers::kGo),
                                 0);
          if (const Part part = FirstPart(i + count); part.tile != kEnd)
            RequestFirst(part, i + count);
        }
      }
    } else {
      PaceEachWarp();
    }
    SyncWarp();
  }
  // The same, a lane for each warp that multiplies, whose slots follow one the other. It is less
  // code: what a launch runs once takes its time to be fetched.
  REPRISE_FN void PaceEachWarp() const {
    if (Lane() >= kStreamWarps) return;
    for (int slot = 1; slot < kStages; ++slot) {
      const uint32_t part = static_cast<uint32_t>(Lane() + slot / kPartSlots * kStreamWarps);
      const Part own{OwnTile(part / parts_), part % parts_};
      if (part >= kOwnTiles * parts_ || own.tile == kEnd) break;
      const int i = slot * kStreamWarps + Lane();
      BarrierWait(Barrier(Barriers::kFirst + FirstSlot(i) - 1), 0);
      RequestFirst(own, i);
    }
  }
  REPRISE_FN static int FirstSlot(int i) { return i % kStreamWarps * kStages + i / kStreamWarps; }
  // The part that first slot i is of; tile kEnd: of none of the block's own tiles.
  REPRISE_FN Part FirstPart(int i) const {
    auto of_k =
        static_cast<uint32_t>(i / kStreamWarps / kPartSlots * kStreamWarps + i % kStreamWarps);
    uint32_t number = 0;
    for (; of_k >= parts_; of_k -= parts_) ++number;
    return {number < kOwnTiles ? OwnTile(number) : kEnd, of_k};
  }
  REPRISE_FN void RequestFirst(const Part& part, int i) const {
    const int slot = FirstSlot(i);
    RequestSlot(part, slot, i / kStreamWarps % kPartSlots, Barrier(Barriers::kFirst + slot));
  }
  // Where the last part of K does not fill one, what lies behind it is multiplied too, by tokens
  // that are zero: it has to be a number, whoever had the memory before.
  REPRISE_FN void ClearSlots(int first) const {
    for (int s = 0; s < kStages; ++s)
      for (uint32_t at = static_cast<uint32_t>(Lane()) * 16; at < StreamSlotBytes(kBits);
           at += kWarpSize * 16)
        StoreShared(SharedAddress(Ring(first + s)) + at, Vec<uint32_t, 4>{0, 0, 0, 0});
    FenceBulkCopies();
    SyncWarp();
  }
  // Of the part of number i that comes to the warp's slots, what lies in those that wanted(slot).
  template <typename Wanted>
  REPRISE_FN void RequestPart(const Part& part, int slots, int i, Wanted wanted) const {
    if (part.tile == kEnd || Lane() != 0) return;
    REPRISE_UNROLL
    for (int s = 0; s < kPartSlots; ++s) {
      const int slot = i * kPartSlots + s;
      if (slot < kStages && wanted(slot))
        RequestSlot(part, slots + slot, s, Barrier(Barriers::kFirst + slots + slot));
    }
  }
  // By one lane. full: the slot's barrier.
  REPRISE_FN void RequestSlot(const Part& part, int slot, int of_part, uint64_t* full) const {
    const int tiles = TilesOf(part.of_k, of_part);
    if (tiles <= 0) return BarrierArrive(full);
    const uint32_t first =
        part.of_k * kPackedPartTiles + static_cast<uint32_t>(of_part) * kSlotTiles;
    const auto* const from = static_cast<const unsigned char*>(a_.weight) +
                             (static_cast<int64_t>(part.tile) * input_tiles_ + first) * kTileBytes;
    const uint32_t bytes = static_cast<uint32_t>(tiles) * kTileBytes;
    if constexpr (Products::kScaled) {
      const uint32_t scales = products_.NumScales(static_cast<uint32_t>(tiles));
      const int64_t first_scale =
          static_cast<int64_t>(part.tile) * products_.NumScales(input_tiles_) +
          products_.NumScales(first);
      BarrierArriveExpectBytes(full, bytes + scales * kScaleRowBytes);
      CopyBulkOnce(Ring(slot), from, bytes, full);
      CopyBulkOnce(Scales(slot), a_.scales + first_scale * kPackedTileOutputs,
                   scales * kScaleRowBytes, full);
    } else {
      BarrierArriveExpectBytes(full, bytes);
      CopyBulkOnce(Ring(slot), from, bytes, full);
    }
  }

  // ---- the warps that multiply ----

  REPRISE_FN void MultiplyParts(Parts& parts, const Tokens& tokens) const {
    const int slots = Warp() * kStages;  // the warp's first one
    auto& ahead = parts.ahead;
    BeginInOrder();
    if (rows_ == 0) return WaitForOwnParts(parts, slots);
    tokens.Begin(Barrier(Barriers::kNormed));
    RequestOtherParts(parts, slots);
    typename Tokens::Fragments x;
    uint32_t held = kEnd;  // the part of K that x is of
    int stage = 0;
    uint32_t turn = 0;
    for (uint32_t round = 0;; ++round) {
      const Part at = ahead[0];
      Sum d, scaled;
      d.Clear();
      scaled.Clear();
      if (at.tile == kEnd) {
        CopyAsyncWait<0>();
        return HandOver(round, kEnd, d);
      }
      REPRISE_UNROLL
      for (int i = 0; i + 1 < kAhead; ++i) ahead[i] = ahead[i + 1];
      ahead[kAhead - 1] = NextPart(parts.cursor);
      REPRISE_UNROLL
      for (int s = 0; s < kHalves; ++s) {
        if (!Tokens::kHoldsPart || at.of_k != held) {
          tokens.Read(s, x);
          tokens.RequestBehind(at.of_k, ahead[0].of_k, s);
        }
        const int of_slot = s % kSlotHalves, slot = slots + stage;
        if (of_slot == 0) WaitForSlot(slot, turn);
        products_.MultiplyHalf(SharedAddress(Ring(slot)), Scales(slot), of_slot,
                               TilesOf(at.of_k, s / kSlotHalves), Tokens::Half(x, s), d, scaled);
        if (of_slot != kSlotHalves - 1) continue;
        SyncWarp();
        // What comes to this slot next.
        const int behind = s / kSlotHalves + kStages;
        const Part& next = ahead[behind / kPartSlots - 1];
        if (next.tile != kEnd && Lane() == 0)
          RequestSlot(next, slot, behind % kPartSlots, Barrier(Barriers::kFull + slot));
        if (++stage == kStages) {
          stage = 0;
          ++turn;
        }
      }
      held = at.of_k;
      HandOver(round, at.tile, Products::kScaled ? scaled : d);
    }
  }
  // Behind RequestOwnParts: what that left.
  REPRISE_FN void RequestOtherParts(Parts& parts, int slots) const {
    REPRISE_UNROLL
    for (int i = 0; i < kAhead; ++i) {
      if (parts.own[i]) continue;
      parts.ahead[i] = NextPart(parts.cursor);
      RequestPart(parts.ahead[i], slots, i, [](int) { return true; });
    }
  }
  REPRISE_FN void WaitForSlot(int slot, uint32_t turn) const {
    if (turn == 0) {
      BarrierWait(Barrier(Barriers::kFirst + slot), 0);
    } else {
      BarrierWait(Barrier(Barriers::kFull + slot), turn - 1);
    }
  }
  REPRISE_FN void WaitForOwnParts(const Parts& parts, int slots) const {
    REPRISE_UNROLL
    for (int i = 0; i < kAhead; ++i)
      if (parts.own[i] && parts.ahead[i].tile != kEnd) WaitForPart(slots, i);
    CopyAsyncWait<0>();
  }
  REPRISE_FN void WaitForPart(int slots, int i) const {
    REPRISE_UNROLL
    for (int s = 0; s < kPartSlots && i * kPartSlots + s < kStages; ++s)
      BarrierWait(Barrier(Barriers::kFirst + slots + i * kPartSlots + s), 0);
  }

  // The sum of a part, or the word that there are no more, to the warp that adds.
  REPRISE_FN void HandOver(uint32_t round, uint32_t tile, const Sum& d) const {
    const int place = static_cast<int>(round % kStreamSumRounds);
    if (round >= kStreamSumRounds)
      BarrierWait(Barrier(Barriers::kSumEmpty + place), round / kStreamSumRounds - 1);
    const int sum = place * kStreamWarps + Warp();
    REPRISE_UNROLL
    for (int i = 0; i < kValues / 4; ++i)
      StoreShared(SumAddress(sum, i),
                  Vec<float, 4>{d.v[4 * i], d.v[4 * i + 1], d.v[4 * i + 2], d.v[4 * i + 3]});
    if (Lane() == 0) SumTile()[sum] = tile;
    SyncWarp();
    if (Lane() == 0) BarrierArrive(Barrier(Barriers::kSumFull + place));
  }
  // Four values of each lane side by side.
  REPRISE_FN uint32_t SumAddress(int sum, int four) const {
    return SharedAddress(shared_ + kLayout.sums) +
           static_cast<uint32_t>((sum * (kValues / 4) + four) * kWarpSize + Lane()) * 16;
  }

  // ---- the warp that adds ----

  REPRISE_FN void InitSums() const {
    if (Lane() >= kStreamSumRounds) return;
    BarrierInit(Barrier(Barriers::kSumFull + Lane()), kStreamWarps);
    BarrierInit(Barrier(Barriers::kSumEmpty + Lane()), 1);
    if (Lane() != 0) return;
    BarrierInit(Barrier(Barriers::kNormed), kStreamWarps * kWarpSize);
    if (kGoesByKernelAhead) BarrierInit(Barrier(Barriers::kGo), 1);
  }
  REPRISE_FN void Add() const {
    PaceFirst();
    WaitForPrevious();
    if (rows_ == 0) return;
    if constexpr (StreamTakesResidual(kTokens)) {
      if (a_.adds_to_out != 0) return AddRounds(AddToOut(*this));
    }
    AddRounds(StoreOut(*this));
  }
  // Round by round: one wait and one word for the sums of all warps. Out: what becomes of the sums
  // of a tile.
  template <typename Out>
  REPRISE_FN void AddRounds(Out out) const {
    Sum d;
    d.Clear();
    uint32_t of_k = 0;  // parts of the tile that d has
    const bool whole_rounds = parts_ % kStreamWarps == 0;
    for (uint32_t round = 0;; ++round) {
      const int place = static_cast<int>(round % kStreamSumRounds);
      BarrierWait(Barrier(Barriers::kSumFull + place), round / kStreamSumRounds);
      if (!(whole_rounds ? AddWholeRound(place, of_k, d, out) : AddRound(place, of_k, d, out)))
        return;
    }
  }
  // Of one tile. False: there are no more.
  template <typename Out>
  REPRISE_FN bool AddWholeRound(int place, uint32_t& of_k, Sum& d, Out& out) const {
    const int first = place * kStreamWarps;
    const uint32_t tile = SumTile()[first];
    if (tile == kEnd) return false;
    out.Begin(tile);
    Sum sums[kStreamWarps];
    REPRISE_UNROLL
    for (int i = 0; i < kStreamWarps; ++i) LoadSum(first + i, sums[i]);
    FreeRound(place);
    REPRISE_UNROLL
    for (int i = 0; i < kStreamWarps; ++i) AddTo(d, sums[i], i == 0 && of_k == 0);
    of_k += kStreamWarps;
    if (of_k < parts_) return true;
    out.Put(tile, d);
    of_k = 0;
    return true;
  }
  // Tiles may end within it.
  template <typename Out>
  REPRISE_FN bool AddRound(int place, uint32_t& of_k, Sum& d, Out& out) const {
    REPRISE_UNROLL_BY(1)
    for (int i = place * kStreamWarps; i < (place + 1) * kStreamWarps; ++i) {
      const uint32_t tile = SumTile()[i];
      if (tile == kEnd) return false;
      out.Begin(tile);
      Sum sum;
      LoadSum(i, sum);
      AddTo(d, sum, of_k == 0);
      if (++of_k < parts_) continue;
      out.Put(tile, d);
      of_k = 0;
    }
    FreeRound(place);
    return true;
  }
  REPRISE_FN void FreeRound(int place) const {
    SyncWarp();
    if (Lane() == 0) BarrierArrive(Barrier(Barriers::kSumEmpty + place));
  }
  REPRISE_FN static void AddTo(Sum& d, const Sum& sum, bool first) {
    REPRISE_UNROLL
    for (int v = 0; v < kValues; ++v) d.v[v] = first ? sum.v[v] : d.v[v] + sum.v[v];
  }
  REPRISE_FN void LoadSum(int sum, Sum& d) const {
    REPRISE_UNROLL
    for (int i = 0; i < kValues; i += 4) {
      const auto four = LoadShared<Vec<float, 4>>(SumAddress(sum, i / 4));
      REPRISE_UNROLL
      for (int j = 0; j < 4; ++j) d.v[i + j] = four.v[j];
    }
  }

  // Sums become the output.
  class StoreOut {
   public:
    REPRISE_FN explicit StoreOut(const StreamLinear& linear) : linear_(linear) {}
    REPRISE_FN void Begin(uint32_t /*tile*/) const {}
    REPRISE_FN void Put(uint32_t tile, const Sum& d) const {
      StoreLinearTile<T, kLaneColumns<kColumns>, true>(
          linear_.a_, static_cast<int64_t>(tile) * kPackedTileOutputs, linear_.rows_,
          [&](int h, int j) { return d.v[At(h, j)]; }, [](int j) { return MatrixColumn(j); });
    }

   private:
    const StreamLinear& linear_;
  };
  // Sums are added to the output. What it holds is requested before they are there.
  class AddToOut {
   public:
    REPRISE_FN explicit AddToOut(const StreamLinear& linear) : linear_(linear) { RequestOwn(); }
    REPRISE_FN void Begin(uint32_t tile) {
      if (tile != tile_) Request(tile);
    }
    REPRISE_FN void Put(uint32_t tile, const Sum& d) {
      AddLinearTile<T, kLaneColumns<kColumns>>(
          linear_.a_, static_cast<int64_t>(tile) * kPackedTileOutputs, linear_.rows_,
          [&](int h, int j) { return d.v[At(h, j)]; }, [](int j) { return MatrixColumn(j); },
          [&](int h, int j) { return held_[At(h, j)]; });
      ++number_;
      RequestOwn();
    }

   private:
    REPRISE_FN void RequestOwn() {
      const uint32_t tile = number_ < kOwnTiles ? linear_.OwnTile(number_) : kEnd;
      if (tile != kEnd) Request(tile);
    }
    REPRISE_FN void Request(uint32_t tile) {
      tile_ = tile;
      LoadLinearTile<T, kLaneColumns<kColumns>>(
          linear_.a_, static_cast<int64_t>(tile) * kPackedTileOutputs, linear_.rows_,
          [](int j) { return MatrixColumn(j); }, [&](int h, int j, T x) { held_[At(h, j)] = x; });
    }

    const StreamLinear& linear_;
    uint32_t number_ = 0;   // of the tile that comes next, of those that the block takes
    uint32_t tile_ = kEnd;  // that `held_` is of
    T held_[kValues];
  };

  const LinearArgs& a_;
  const int rows_;
  const uint32_t tiles_;        // of 16 outputs
  const uint32_t input_tiles_;  // of 64 inputs
  const uint32_t parts_;        // of K
  unsigned char* const shared_;
  const Products products_;
};

// The first weights are requested whatever num_rows says, which is known later.
template <typename T, typename W, int kTokens, bool kFine = false>
REPRISE_FN void StreamLinearBody(const LinearArgs& a, unsigned char* shared) {
  if (!a.reads_ahead) WaitForPrevious();
  StreamLinear<T, W, kTokens, kFine>(a, static_cast<int>(*a.num_rows), shared).Run();
}

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_LINEAR_LINEAR_STREAM_BODY_H_
