// SPDX-License-Identifier: Apache-2.0
// A tile of outputs by tokens on matrix units, thread style: weights are the 16-row operand, tokens
// the 8- or 16-column one, so one token wastes little. Weights stream once through a ring of
// shared-memory stages, each of 64 input features. What the kernels of linear have in common; which
// tiles a block takes, and in which order it sums, is theirs.
#ifndef REPRISE_KERNELS_LINEAR_LINEAR_MATRIX_TILE_H_
#define REPRISE_KERNELS_LINEAR_LINEAR_MATRIX_TILE_H_

#include <type_traits>

#include "kernels/device/matrix.h"
#include "kernels/linear/linear_args.h"
#include "kernels/linear/linear_geometry.h"
#include "kernels/linear/linear_output.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

constexpr int LesserOf(int a, int b) { return a < b ? a : b; }

// Of a row of a tile's batch its row of x.
struct RowsInOrder {
  REPRISE_FN int64_t operator()(int64_t row) const { return row; }
};

// W: of weights, T, or E4m3, Int4 or Mxfp4 where they are packed. kTileRows: tokens of a tile.
// kTileFeatures: outputs of a tile. kStages: shared-memory stages. The warps lie along features
// where tokens are few, in two columns where they are many, so that a fragment read from shared
// memory serves several products; more columns where features are few. Rows: which rows of x are
// multiplied.
template <typename T, typename W, int kTileRows, int kTileFeatures, int kStages,
          WeightLayout kLayout, typename Rows = RowsInOrder>
struct MatrixTile {
  static constexpr bool kFp8 = std::is_same_v<W, E4m3>;
  static constexpr bool kFourBits = kElementBits<W> == 4;
  static_assert((!kFp8 && !kFourBits) || IsPacked(kLayout));
  static constexpr int kThreads = kMatrixLinearThreads;
  static constexpr int kFeatures = kTileFeatures;
  static constexpr int kWarps = kThreads / kWarpSize;
  static constexpr int kFeatureWarps =
      LesserOf(kTileRows >= 64 ? kWarps / 2 : kWarps, kTileFeatures / 16);
  static constexpr int kRowWarps = kWarps / kFeatureWarps;
  static constexpr int kWarpRows = kTileRows / kRowWarps;
  static constexpr int kColumns = kWarpRows < 16 ? 8 : 16;  // tokens of a fragment of D
  static constexpr int kRowFragments = kWarpRows / kColumns;
  static constexpr int kFeatureFragments = kTileFeatures / kFeatureWarps / 16;
  static constexpr int kFragments = kRowFragments * kFeatureFragments;
  static_assert(kColumns >= kTraits.matrix_columns);
  static constexpr int kWeightBytes = kTileFeatures * kMatrixChunkK * kElementBits<W> / 8;
  // Of a stage: weights, tokens, and of weights of 4 bits the chunk's scales, [16 outputs' tile,
  // kPackedChunkScales, 16].
  static constexpr int kScalesAt = kWeightBytes + kTileRows * kMatrixChunkK * 2;
  static constexpr int kScaleBytes = kFourBits ? kTileFeatures * kPackedChunkScales * 4 : 0;
  static constexpr int kStageBytes = kScalesAt + kScaleBytes;
  static constexpr int kRowChunks = kMatrixChunkK / 8;  // 16-byte chunks of a shared row

  using Fragment = MatrixD<kColumns>;
  using Accumulators = Fragment[kFragments];                    // [feature fragment][row fragment]
  static constexpr int kValues = kFragments * Fragment::kSize;  // f32 sums of a lane

  const LinearArgs& a;
  const uint32_t chunks;  // of K, of one tile
  const int rows;         // live
  const int first_row;    // of this tile
  const uint32_t shared;
  const TileReader<kRowChunks> reader;
  const Rows row_of_x;

  REPRISE_FN MatrixTile(const LinearArgs& args, int live_rows, int row_tile,
                        unsigned char* shared_base, Rows rows_of_x = {})
      : a(args),
        chunks(static_cast<uint32_t>((args.in_features + kMatrixChunkK - 1) / kMatrixChunkK)),
        rows(live_rows),
        first_row(row_tile * kTileRows),
        shared(SharedAddress(shared_base)),
        row_of_x(rows_of_x) {}

  // A thread's copies of weights, one unit after the other; without effect outside them. All that
  // does not change from unit to unit is worked out once for a tile.
  class WeightCopies {
   public:
    REPRISE_FN WeightCopies(const MatrixTile& t, uint32_t tile, uint32_t chunk) : t_(t) {
      MoveTo(tile, chunk);
    }
    // Starts those of the unit at hand.
    REPRISE_FN void Start(uint32_t chunk, int stage) const {
      const uint32_t to = t_.shared + static_cast<uint32_t>(stage) * kStageBytes +
                          (kPacked ? static_cast<uint32_t>(ThreadX()) * 16
                                   : SwizzledOffset<kRowChunks>(Row(), Chunk()));
      const bool has_k =
          kPacked || static_cast<int>(chunk) * kMatrixChunkK + Chunk() * 8 < t_.a.in_features;
      REPRISE_UNROLL
      for (int i = 0; i < (kCopies + kThreads - 1) / kThreads; ++i) {
        if (kCopies % kThreads != 0 && i * kThreads + ThreadX() >= kCopies) break;
        const bool valid = has_k && i < count_;
        CopyAsync16OrZero(to + i * kThreads * 16,
                          valid ? from_ + static_cast<int64_t>(i) * stride_
                                : static_cast<const unsigned char*>(t_.a.weight),
                          valid);
      }
      if constexpr (kFourBits) StartScales(chunk, stage);
    }
    // On to the next unit, chunk `chunk` of `tile`.
    REPRISE_FN void Next(uint32_t tile, uint32_t chunk) {
      if (chunk == 0) {
        MoveTo(tile, 0);
      } else {
        from_ += kStep;
      }
    }

   private:
    static constexpr bool kPacked = kLayout == WeightLayout::kPacked;
    static constexpr int kTileBytes = kPackedTileElements * kElementBits<W> / 8;
    static constexpr int kTileChunks = kTileBytes / 16;
    static constexpr int kCopies = kWeightBytes / 16;
    // From one of a thread's copies to the next: whole rows, or rows of tiles.
    static constexpr int kRowStep = kPacked ? kThreads / kTileChunks : kThreads / kRowChunks;
    static constexpr int kStep = kPacked ? kTileBytes : kMatrixChunkK * 2;  // to the next chunk
    static_assert(kThreads % kTileChunks == 0 && kThreads % (8 * kRowChunks) == 0);
    static_assert(kMatrixChunkK == kPackedTileInputs && kTileFeatures % kPackedTileOutputs == 0);

    REPRISE_FN static int Row() { return ThreadX() / (kPacked ? kTileChunks : kRowChunks); }
    REPRISE_FN static int Chunk() { return ThreadX() % (kPacked ? kTileChunks : kRowChunks); }
    REPRISE_FN void MoveTo(uint32_t tile, uint32_t chunk) {
      constexpr int kTileRowsOfWeight =
          kPacked ? kTileFeatures / kPackedTileOutputs : kTileFeatures;
      const int64_t row = static_cast<int64_t>(tile) * kTileRowsOfWeight + Row();
      const int64_t rows = kPacked ? PackedLayout{t_.a.out_features, t_.a.in_features}.OutputTiles()
                                   : t_.a.out_features;
      const int64_t row_bytes = kPacked ? static_cast<int64_t>(t_.chunks) * kTileBytes
                                        : static_cast<int64_t>(t_.a.in_features) * 2;
      count_ = row < rows ? static_cast<int>((rows - row + kRowStep - 1) / kRowStep) : 0;
      stride_ = static_cast<int>(row_bytes * kRowStep);
      from_ = static_cast<const unsigned char*>(t_.a.weight) + row * row_bytes +
              static_cast<int64_t>(chunk) * kStep + Chunk() * 16;
      if constexpr (kFourBits) {
        const PackedLayout layout{t_.a.out_features, t_.a.in_features, t_.a.scale_inputs};
        const int64_t of_scale = static_cast<int64_t>(tile) * (kTileFeatures / kPackedTileOutputs) +
                                 ThreadX() / kScaleCopies;
        has_scales_ = ThreadX() < kScaleBytes / 16 && of_scale < layout.OutputTiles() &&
                      (ThreadX() % kScaleCopies < 4 || t_.a.scale_inputs == kLeastScaleInputs);
        scales_ = t_.a.scales + layout.PackedScaleOffset(of_scale * kPackedTileOutputs, 0) +
                  ThreadX() % kScaleCopies * 4;
      }
    }
    // A thread's copy of the chunk's scales, if it has one.
    REPRISE_FN void StartScales(uint32_t chunk, int stage) const {
      static_assert(kScaleBytes / 16 <= kThreads, "a thread copies 16 bytes at most");
      if (ThreadX() >= kScaleBytes / 16) return;
      const uint32_t to = t_.shared + static_cast<uint32_t>(stage) * kStageBytes + kScalesAt +
                          static_cast<uint32_t>(ThreadX()) * 16;
      const uint32_t group =
          chunk * kMatrixChunkK / static_cast<uint32_t>(t_.a.scale_inputs);  // the first
      CopyAsync16OrZero(to, has_scales_ ? scales_ + group * kPackedTileOutputs : t_.a.scales,
                        has_scales_);
    }
    // Of 16 bytes, of a tile of 16 outputs.
    static constexpr int kScaleCopies = kPackedChunkScales * kPackedTileOutputs * 4 / 16;

    const MatrixTile& t_;
    const unsigned char* from_;  // of the first copy
    int stride_;                 // bytes from one copy to the next
    int count_;                  // copies that lie inside the weights
    const float* scales_ =
        nullptr;  // of weights of 4 bits, of the thread's copy of the first chunk
    bool has_scales_ = false;
  };

  // The same of tokens, zero beyond the live rows.
  class TokenCopies {
   public:
    REPRISE_FN explicit TokenCopies(const MatrixTile& t) : t_(t) {
      const int row = t.first_row + ThreadX() / kRowChunks;
      REPRISE_UNROLL
      for (int i = 0; i < kRows; ++i) {
        const int r = row + i * kRowStep;
        from_[i] = r < t.rows ? static_cast<uint32_t>(t.row_of_x(r) * t.a.in_features) : kNone;
      }
    }
    REPRISE_FN void Start(uint32_t chunk, int stage) const {
      const uint32_t to =
          t_.shared + static_cast<uint32_t>(stage) * kStageBytes + kWeightBytes +
          SwizzledOffset<kRowChunks>(ThreadX() / kRowChunks, ThreadX() % kRowChunks);
      const int k = static_cast<int>(chunk) * kMatrixChunkK + ThreadX() % kRowChunks * 8;
      const T* const x = static_cast<const T*>(t_.a.x);
      REPRISE_UNROLL
      for (int i = 0; i < kRows; ++i) {
        if (kCopies % kThreads != 0 && i * kThreads + ThreadX() >= kCopies) break;
        const bool valid = from_[i] != kNone && k < t_.a.in_features;
        CopyAsync16OrZero(to + i * kThreads * 16, valid ? x + from_[i] + k : x, valid);
      }
    }

   private:
    static constexpr int kCopies = kTileRows * kRowChunks;
    static constexpr int kRows = (kCopies + kThreads - 1) / kThreads;  // of a thread
    static constexpr int kRowStep = kThreads / kRowChunks;
    static constexpr uint32_t kNone = 0xffffffffu;

    const MatrixTile& t_;
    uint32_t from_[kRows];  // elements of x
  };

  // First feature and first token of this warp inside the tile.
  REPRISE_FN static int WarpFeature() { return Warp() % kFeatureWarps * 16 * kFeatureFragments; }
  REPRISE_FN static int WarpRow() { return Warp() / kFeatureWarps * kWarpRows; }

  // acc += weights x tokens of one stage.
  REPRISE_FN void MultiplyStage(int stage, Accumulators& acc) const {
    const uint32_t weights = shared + static_cast<uint32_t>(stage * kStageBytes);
    const uint32_t tokens = weights + kWeightBytes;
    if constexpr (kFp8) {
      MultiplyFp8Stage(weights, tokens, acc);
    } else {
      REPRISE_UNROLL
      for (int k = 0; k < kMatrixChunkK / 16; ++k) {
        MatrixA w[kFeatureFragments];
        REPRISE_UNROLL
        for (int i = 0; i < kFeatureFragments; ++i)
          w[i] = reader.A(weights, WarpFeature() + i * 16, k);
        REPRISE_UNROLL
        for (int f = 0; f < kRowFragments; ++f) {
          const auto x = reader.template B<kColumns>(tokens, WarpRow() + f * kColumns, k);
          REPRISE_UNROLL
          for (int i = 0; i < kFeatureFragments; ++i)
            Multiply<T>(acc[i * kRowFragments + f], w[i], x);
        }
      }
    }
  }
  REPRISE_FN void MultiplyFp8Stage(uint32_t weights, uint32_t tokens, Accumulators& acc) const {
    const Fp8TileReader<kPackedTileInputs / 16> bytes;
    REPRISE_UNROLL
    for (int pair = 0; pair < kMatrixChunkK / 32; ++pair) {
      MatrixA w[kFeatureFragments][2];
      REPRISE_UNROLL
      for (int i = 0; i < kFeatureFragments; ++i)
        bytes.template PackedA<T>(weights, WarpFeature() + i * 16, pair, w[i]);
      REPRISE_UNROLL
      for (int s = 0; s < 2; ++s) {
        REPRISE_UNROLL
        for (int f = 0; f < kRowFragments; ++f) {
          const auto x =
              reader.template B<kColumns>(tokens, WarpRow() + f * kColumns, 2 * pair + s);
          REPRISE_UNROLL
          for (int i = 0; i < kFeatureFragments; ++i)
            Multiply<T>(acc[i * kRowFragments + f], w[i][s], x);
        }
      }
    }
  }

  REPRISE_FN void Store(uint32_t tile, const Accumulators& acc) const {
    constexpr int kColumnsOfLane = kLaneColumns<kColumns>;
    const int64_t n0 = static_cast<int64_t>(tile) * kTileFeatures + WarpFeature();
    const int r0 = first_row + WarpRow();
    REPRISE_UNROLL
    for (int i = 0; i < kFeatureFragments; ++i)
      StoreLinearTile<T, kRowFragments * kColumnsOfLane, IsPacked(kLayout)>(
          a, n0 + i * 16, rows,
          [&](int h, int j) {
            return acc[i * kRowFragments + j / kColumnsOfLane].v[At(h, j % kColumnsOfLane)];
          },
          [&](int j) {
            return r0 + j / kColumnsOfLane * kColumns + MatrixColumn(j % kColumnsOfLane);
          });
  }

  REPRISE_FN static void Clear(Accumulators& acc) {
    REPRISE_UNROLL
    for (int f = 0; f < kFragments; ++f) acc[f].Clear();
  }

  // The place of a unit that is loaded next.
  struct LoadPlace {
    uint32_t unit, tile, chunk;
    int stage = 0;
  };
  REPRISE_FN LoadPlace FirstLoad(uint32_t begin) const {
    return {begin, begin / chunks, begin % chunks};
  }
  REPRISE_FN void Advance(LoadPlace& at) const {
    ++at.unit;
    if (++at.chunk == chunks) {
      at.chunk = 0;
      ++at.tile;
    }
    if (++at.stage == kStages) at.stage = 0;
  }

  // Runs units [begin, end) through the stages; after each, done(tile, unit + 1, acc).
  template <typename Done>
  REPRISE_FN void Stream(uint32_t begin, uint32_t end, Accumulators& acc, Done done) const {
    StreamStages(begin, end, [&](uint32_t tile, uint32_t unit, int stage) {
      MultiplyStage(stage, acc);
      done(tile, unit + 1, acc);
    });
  }
  // The same with multiply(tile, unit, stage) in place of both. The first weights are asked for
  // before the kernel ahead of this one has ended.
  template <typename Multiply>
  REPRISE_FN void StreamStages(uint32_t begin, uint32_t end, Multiply multiply) const {
    LoadPlace load = FirstLoad(begin);
    WeightCopies weights(*this, load.tile, load.chunk);
    for (int s = 0; s < kStages - 1 && load.unit < end; ++s) {
      weights.Start(load.chunk, load.stage);
      Advance(load);
      weights.Next(load.tile, load.chunk);
    }
    BeginInOrder();
    const TokenCopies tokens(*this);
    load = FirstLoad(begin);
    for (int s = 0; s < kStages - 1; ++s) {
      if (load.unit < end) {
        tokens.Start(load.chunk, load.stage);
        Advance(load);
      }
      CopyAsyncCommit();
    }
    const auto load_next = [&] {
      if (load.unit < end) {
        weights.Start(load.chunk, load.stage);
        tokens.Start(load.chunk, load.stage);
        Advance(load);
        weights.Next(load.tile, load.chunk);
      }
      CopyAsyncCommit();
    };
    uint32_t tile = begin / chunks, tile_end = (tile + 1) * chunks;
    int stage = 0;
    for (uint32_t unit = begin; unit < end; ++unit) {
      CopyAsyncWait<kStages - 2>();
      SyncBlock();  // the stage is there for all, and the one before is free for all
      load_next();
      multiply(tile, unit, stage);
      if (++stage == kStages) stage = 0;
      if (unit + 1 == tile_end) {
        ++tile;
        tile_end += chunks;
      }
    }
  }
};

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_LINEAR_LINEAR_MATRIX_TILE_H_
