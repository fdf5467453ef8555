// SPDX-License-Identifier: Apache-2.0
// The warps of a block of the step kernel that do linear layers, all of a step's one after another:
// one requests weights, eight multiply, one adds the sums of parts and stores. The order of sums is
// that of linear_stream_body.h; there is no end between layers: the warp that requests takes tiles
// of 16 outputs from a counter of the launch, waits for nothing but room, and is layers ahead in
// what it asks for. A warp that multiplies waits for its slot, and where a layer begins for the
// stage before it; then it loads what its part of K has of the tokens into registers.
#ifndef REPRISE_KERNELS_STEP_KERNEL_STEP_LINEAR_H_
#define REPRISE_KERNELS_STEP_KERNEL_STEP_LINEAR_H_

#include "kernels/device/matrix.h"
#include "kernels/linear/linear_output.h"
#include "kernels/linear/stream_geometry.h"
#include "kernels/step_kernel/step_flags.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

// kHeadSize: of the kernel's, for its layout of shared memory.
template <typename T, int kHeadSize>
class StepLinear {
 public:
  REPRISE_FN StepLinear(const StepKernelArgs& a, const StepFlags& flags, unsigned char* shared)
      : a_(a), flags_(flags), shared_(shared) {}

  // One lane of the requesting warp.
  REPRISE_FN void Request() const {
    uint32_t part = 0;
    uint32_t next = static_cast<uint32_t>(BlockX());
    Layer layer = LayerAt(a_.first_linear);
    while (next < a_.num_units) {
      const uint32_t unit = next;
      next = static_cast<uint32_t>(GridX()) + AtomicAdd(a_.counters, 1u);
      while (unit - layer.first_unit >= layer.num_units) layer = LayerAt(layer.next);
      if (layer.rows != 0) RequestTile(layer, unit - layer.first_unit, part);
    }
    for (int i = 0; i < kStreamWarps; ++i, ++part) Announce(SlotOf(part, 0), kEnd, 0, 0);
  }

  // A multiplying warp.
  REPRISE_FN void MultiplyParts() const {
    const TileReader<kRowChunks> reader;
    Tokens x;
    uint32_t held = kEnd;
    Layer layer = LayerAt(a_.first_linear), next = layer;
    layer.stage = kEnd;
    for (uint32_t part = static_cast<uint32_t>(Warp() - kStepFirstMultiplyingWarp);;
         part += kStreamWarps) {
      const Slot first = SlotOf(part, 0);
      BarrierWait(Barrier(StepBarriers::kFull + first.index), first.turn);
      const uint32_t tile = Words(kLayout.slot_tile)[first.index];
      const uint32_t place = Words(kLayout.slot_place)[first.index];
      MatrixD<kStepTokens> d;
      d.Clear();
      if (tile == kEnd) return HandOver(part, tile, place, d);
      const uint32_t stage = place >> kPartBits, part_of_k = place & kPartMask;
      if (place != held) {
        if (stage != layer.stage) {
          // What comes next is asked for long before it is looked at.
          layer = next.stage == stage ? next : LayerAt(stage);
          WaitBefore(layer);
          if (layer.next < flags_.num_stages()) next = LayerAt(layer.next);
        }
        LoadTokens(layer, part_of_k, x);
        held = place;
      }
      REPRISE_UNROLL
      for (int s = 0; s < kPartSlots; ++s) {
        const Slot slot = SlotOf(part, s);
        if (s > 0) BarrierWait(Barrier(StepBarriers::kFull + slot.index), slot.turn);
        const uint32_t weights = SharedAddress(Ring(slot.index));
        const int tiles = TilesOf(layer.input_tiles, part_of_k, s);
        REPRISE_UNROLL
        for (int t = 0; t < kStreamSlotTiles; ++t) {
          if (t >= tiles) continue;
          REPRISE_UNROLL
          for (int i = 0; i < kTileSteps; ++i)
            Multiply<T>(d, reader.A(weights, t * kPackedTileOutputs, i),
                        x[(s * kStreamSlotTiles + t) * kTileSteps + i]);
        }
        SyncWarp();
        if (Lane() == 0) BarrierArrive(Barrier(StepBarriers::kEmpty + slot.index));
      }
      HandOver(part, tile, place, d);
    }
  }

  // The warp that adds.
  REPRISE_FN void Add() const {
    MatrixD<kStepTokens> d;
    LinearArgs linear;
    uint32_t known = kEnd, parts = 0;
    int rows = 0;
    for (uint32_t part = 0;; ++part) {
      const int sum = static_cast<int>(part % kStreamSums);
      BarrierWait(Barrier(StepBarriers::kSumFull + sum), part / kStreamSums);
      const uint32_t tile = Words(kLayout.sum_tile)[sum];
      const uint32_t place = Words(kLayout.sum_place)[sum];
      if (tile == kEnd) return;
      const uint32_t stage = place >> kPartBits, part_of_k = place & kPartMask;
      if (stage != known) {
        known = stage;
        linear = flags_.Stage(stage).linear;
        rows = static_cast<int>(flags_.Rows(stage));
        parts = Parts(InputTiles(linear));
      }
      REPRISE_UNROLL
      for (int i = 0; i < kValues; i += 4) {
        const auto four = LoadShared<Vec<float, 4>>(SumAddress(sum, i / 4));
        REPRISE_UNROLL
        for (int j = 0; j < 4; ++j)
          d.v[i + j] = part_of_k == 0 ? four.v[j] : d.v[i + j] + four.v[j];
      }
      SyncWarp();
      if (Lane() == 0) BarrierArrive(Barrier(StepBarriers::kSumEmpty + sum));
      if (part_of_k + 1 < parts) continue;
      // Behind what those who multiplied had waited for.
      StoreLinearTile<T, kLaneColumns<kStepTokens>, true>(
          linear, static_cast<int64_t>(tile) * kPackedTileOutputs, rows,
          [&](int h, int j) { return d.v[At(h, j)]; }, [](int j) { return MatrixColumn(j); });
      flags_.AddDone(stage);
    }
  }

  REPRISE_FN static void Init(unsigned char* shared) {
    uint64_t* const barriers = reinterpret_cast<uint64_t*>(shared + kLayout.barriers);
    for (int i = Lane(); i < StepBarriers::kRows; i += kWarpSize) BarrierInit(barriers + i, 1);
    if (Lane() < 2) reinterpret_cast<uint32_t*>(shared + kLayout.known)[Lane()] = 0;
  }

 private:
  static constexpr StepSharedLayout kLayout = StepLayout(kHeadSize);
  static constexpr int kTileSteps = kPackedTileInputs / 16;
  static constexpr int kSteps = kPackedPartK / 16;
  static constexpr int kValues = MatrixD<kStepTokens>::kSize;
  static constexpr int kRowChunks = kPackedTileInputs / kPackedChunk;
  static constexpr int kPartSlots = kPackedPartTiles / kStreamSlotTiles;
  static constexpr uint32_t kEnd = 0xffffffffu;  // in place of a tile
  // A place: the stage, and below it the part of K.
  static constexpr uint32_t kPartBits = 12, kPartMask = (1u << kPartBits) - 1;
  using Tokens = MatrixB<kStepTokens>[kSteps];

  // What a warp keeps of the layer that it is at: who looks again and again at memory that others
  // wait for has nothing left of it in its caches.
  struct Layer {
    uint32_t stage, next;  // and that of the layer behind it
    uint32_t first_unit, num_units;
    uint32_t rows;
    int in_features, input_tiles;
    const T* weight;
    const T* x;
    uint32_t target;  // of the stage before
  };
  // REQUIRES: the stage is a linear layer.
  REPRISE_FN Layer LayerAt(uint32_t stage) const {
    const StepStage& s = flags_.Stage(stage);
    return {stage,
            s.next_linear,
            s.first_unit,
            s.num_units,
            flags_.Rows(stage),
            s.linear.in_features,
            InputTiles(s.linear),
            static_cast<const T*>(s.linear.weight),
            static_cast<const T*>(s.linear.x),
            stage == 0 ? 0 : flags_.Target(stage - 1)};
  }
  // Until all that comes before the layer is done. The first warp of the block that comes to a
  // layer looks at the word that all blocks look at, the others at one of their own. A warp that
  // comes when another one is a layer ahead already looks for itself: that other one may wait for
  // what this warp has yet to multiply.
  REPRISE_FN void WaitBefore(const Layer& layer) const {
    uint32_t* const known = Words(kLayout.known);
    uint32_t looks = 0;
    if (Lane() == 0) looks = AtomicMaxRelease(known, layer.stage + 1) != layer.stage + 1 ? 1u : 0u;
    if (Shuffle(looks, 0) == 0) return WaitAtLeastInBlock(known + 1, layer.stage + 1);
    if (layer.stage != 0) flags_.WaitFor(layer.stage - 1, layer.target);
    SyncWarp();
    if (Lane() == 0) AtomicMaxRelease(known + 1, layer.stage + 1);
  }

  struct Slot {
    int index;
    uint32_t turn;
  };
  // `part`: of all that the block takes, in whatever layers; part i is multiplied by warp
  // i % kStreamWarps.
  REPRISE_FN static Slot SlotOf(uint32_t part, int of_part) {
    const uint32_t count = part / kStreamWarps * kPartSlots + static_cast<uint32_t>(of_part);
    return {static_cast<int>(part % kStreamWarps * kStreamStages + count % kStreamStages),
            count / kStreamStages};
  }
  REPRISE_FN uint64_t* Barrier(int index) const {
    return reinterpret_cast<uint64_t*>(shared_ + kLayout.barriers) + index;
  }
  REPRISE_FN unsigned char* Ring(int slot) const {
    return shared_ + kLayout.ring + static_cast<uint32_t>(slot) * kStreamSlotBytes;
  }
  REPRISE_FN uint32_t* Words(uint32_t offset) const {
    return reinterpret_cast<uint32_t*>(shared_ + offset);
  }
  REPRISE_FN uint32_t SumAddress(int sum, int four) const {
    return SharedAddress(shared_ + kLayout.sums) +
           static_cast<uint32_t>((sum * (kValues / 4) + four) * kWarpSize + Lane()) * 16;
  }
  // Of a layer's K: tiles of 64 inputs, parts, and tiles that a slot of a part has, 0 or less:
  // none.
  REPRISE_FN static int InputTiles(const LinearArgs& linear) {
    return (linear.in_features + kPackedTileInputs - 1) / kPackedTileInputs;
  }
  REPRISE_FN static uint32_t Parts(int input_tiles) {
    return static_cast<uint32_t>((input_tiles + kPackedPartTiles - 1) / kPackedPartTiles);
  }
  REPRISE_FN static int TilesOf(int input_tiles, uint32_t part_of_k, int of_part) {
    const int left =
        input_tiles - static_cast<int>(part_of_k) * kPackedPartTiles - of_part * kStreamSlotTiles;
    return left < kStreamSlotTiles ? left : kStreamSlotTiles;
  }

  REPRISE_FN void RequestTile(const Layer& layer, uint32_t tile, uint32_t& part) const {
    const int input_tiles = layer.input_tiles;
    const uint32_t parts = Parts(input_tiles);
    const T* from = layer.weight + static_cast<int64_t>(tile) * input_tiles * kPackedTileElements;
    for (uint32_t p = 0; p < parts; ++p, ++part) {
      for (int i = 0; i < kPartSlots; ++i) {
        const Slot slot = SlotOf(part, i);
        const int tiles = TilesOf(input_tiles, p, i);
        Announce(slot, tile, layer.stage << kPartBits | p, tiles);
        if (tiles <= 0) continue;
        CopyBulkOnce(Ring(slot.index), from, static_cast<uint32_t>(tiles) * kPackedTileBytes,
                     Barrier(StepBarriers::kFull + slot.index));
        from += tiles * kPackedTileElements;
      }
    }
  }
  // Waits for the slot, and says what comes there.
  REPRISE_FN void Announce(const Slot& slot, uint32_t tile, uint32_t place, int tiles) const {
    if (slot.turn > 0) BarrierWait(Barrier(StepBarriers::kEmpty + slot.index), slot.turn - 1);
    Words(kLayout.slot_tile)[slot.index] = tile;
    Words(kLayout.slot_place)[slot.index] = place;
    uint64_t* const full = Barrier(StepBarriers::kFull + slot.index);
    if (tiles > 0) {
      BarrierArriveExpectBytes(full, static_cast<uint32_t>(tiles) * kPackedTileBytes);
    } else {
      BarrierArrive(full);
    }
  }

  // What the tokens have in a part of K, zero beyond both.
  REPRISE_FN static void LoadTokens(const Layer& layer, uint32_t part_of_k, Tokens& x) {
    const int row = MatrixBColumn(), first = static_cast<int>(part_of_k) * kPackedPartK;
    const bool is_row = row < static_cast<int>(layer.rows);
    const T* const from = layer.x + static_cast<int64_t>(row) * layer.in_features;
    REPRISE_UNROLL
    for (int s = 0; s < kSteps; ++s) {
      REPRISE_UNROLL
      for (int i = 0; i < 2; ++i) {
        const int k = first + s * 16 + MatrixBRow(i);
        x[s].r[i] =
            is_row && k < layer.in_features ? *reinterpret_cast<const uint32_t*>(from + k) : 0u;
      }
    }
  }

  // The sum of a part, or the word that there are no more, to the warp that adds.
  REPRISE_FN void HandOver(uint32_t part, uint32_t tile, uint32_t place,
                           const MatrixD<kStepTokens>& d) const {
    const int sum = static_cast<int>(part % kStreamSums);
    const uint32_t turn = part / kStreamSums;
    if (turn > 0) BarrierWait(Barrier(StepBarriers::kSumEmpty + sum), turn - 1);
    REPRISE_UNROLL
    for (int i = 0; i < kValues / 4; ++i)
      StoreShared(SumAddress(sum, i),
                  Vec<float, 4>{d.v[4 * i], d.v[4 * i + 1], d.v[4 * i + 2], d.v[4 * i + 3]});
    if (Lane() == 0) {
      Words(kLayout.sum_tile)[sum] = tile;
      Words(kLayout.sum_place)[sum] = place;
    }
    SyncWarp();
    if (Lane() == 0) BarrierArrive(Barrier(StepBarriers::kSumFull + sum));
  }

  const StepKernelArgs& a_;
  const StepFlags& flags_;
  unsigned char* const shared_;
};

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_STEP_KERNEL_STEP_LINEAR_H_
