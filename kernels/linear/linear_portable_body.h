// SPDX-License-Identifier: Apache-2.0
// Linear, portable candidate, block style: a tile of rows x features per block, K in pieces through
// shared memory, one f32 accumulator per output walked in ascending K. Simple on purpose: the
// reference on every device, and f32 on GPUs.
#ifndef REPRISE_KERNELS_LINEAR_LINEAR_PORTABLE_BODY_H_
#define REPRISE_KERNELS_LINEAR_LINEAR_PORTABLE_BODY_H_

#include <bit>
#include <cstdint>
#include <type_traits>

#include "kernels/device/block.h"
#include "kernels/device/fp8.h"
#include "kernels/device/int4.h"
#include "kernels/device/mxfp4.h"
#include "kernels/linear/linear_args.h"
#include "kernels/linear/linear_geometry.h"
#include "kernels/linear/linear_output.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

// Copies rows [first, first + rows) x columns [k0, k0 + kPortableTileK) of a matrix into shared
// memory as f32; zero outside. value(row, column): of an element.
template <typename Value>
REPRISE_FN void StageTile(Block& b, int64_t first, int64_t num_rows, int rows, int k0, int k,
                          float* shared, Value value) {
  b.For(rows * kPortableTileK, [&](int i) {
    const int r = i / kPortableTileK, c = i % kPortableTileK;
    const bool inside = first + r < num_rows && k0 + c < k;
    shared[r * kPortablePitch + c] = inside ? value(first + r, k0 + c) : 0.0f;
  });
}

// What a weight is worth. W: of weights, T, E4m3, RoundedE4m3, Int4 or Mxfp4.
template <typename T, typename W>
REPRISE_FN float PortableWeight(const LinearArgs& a, int64_t row, int column) {
  [[maybe_unused]] const auto* const weight = static_cast<const W*>(a.weight);
  const PackedLayout layout{a.out_features, a.in_features,
                            kElementBits<W> == 4 ? a.scale_inputs : kScaleInputs};
  if constexpr (std::is_same_v<W, T>) {
    return ToFloat(
        weight[a.packed != 0 ? layout.Offset(row, column) : row * layout.in_features + column]);
  } else {
    const int64_t group = column / layout.scale_inputs;
    const float scale = a.scales[a.packed != 0 ? layout.PackedScaleOffset(row, group)
                                               : row * layout.ScaleGroups() + group];
    if constexpr (std::is_same_v<W, Int4>) {
      const auto word = std::bit_cast<uint32_t>(scale);
      const int element = Int4At(weight, a.packed != 0 ? layout.Int4Offset(row, column)
                                                       : layout.Int4RowOffset(row, column));
      return static_cast<float>(element - static_cast<int>(ZeroPointOfWord(word))) *
             ScaleOfWord(word);
    } else if constexpr (std::is_same_v<W, Mxfp4>) {
      return Mxfp4Value(Mxfp4At(weight, a.packed != 0 ? layout.Int4Offset(row, column)
                                                      : layout.Int4RowOffset(row, column))) *
             scale;
    } else if constexpr (std::is_same_v<W, RoundedE4m3>) {
      const int64_t at =
          a.packed != 0 ? layout.RoundedOffset(row, column) : row * layout.in_features + column;
      return ToFloat(static_cast<const E4m3*>(a.weight)[at]) * scale;
    } else {
      if (a.packed == 0) return ToFloat(weight[row * layout.in_features + column]) * scale;
      const int64_t at = layout.ByteOffset(row, column);
      const uint32_t word = static_cast<const uint32_t*>(a.weight)[at / 4];
      return ToFloat(E4m3{UnpackE4m3(word, static_cast<int>(at % 4))}) * scale;
    }
  }
}

// The tile of rows [r0, ...) of `rows` and features [n0, ...). W: as PortableWeight's.
// row_of_x(row): which row of x it is of.
template <typename T, typename W, typename RowOfX>
REPRISE_FN void PortableLinearTile(Block& b, const LinearArgs& a, int64_t r0, int64_t rows,
                                   int64_t n0, RowOfX row_of_x) {
  float* xs = b.Shared<float>();
  float* ws = xs + kPortableTileRows * kPortablePitch;
  float* acc = ws + kPortableTileFeatures * kPortablePitch;
  constexpr int kOutputs = kPortableTileRows * kPortableTileFeatures;
  constexpr bool kRounded = std::is_same_v<W, RoundedE4m3>;
  using X = std::conditional_t<kRounded, E4m3, T>;
  const auto token = [&](int64_t row, int column) {
    return ToFloat(static_cast<const X*>(a.x)[row_of_x(row) * a.in_features + column]);
  };
  const auto weight = [&](int64_t row, int column) { return PortableWeight<T, W>(a, row, column); };

  // An output stays with one thread from here to the end, so that only tiles need barriers.
  b.For(kOutputs, [&](int o) { acc[o] = 0.0f; });
  for (int k0 = 0; k0 < a.in_features; k0 += kPortableTileK) {
    StageTile(b, r0, rows, kPortableTileRows, k0, a.in_features, xs, token);
    StageTile(b, n0, a.out_features, kPortableTileFeatures, k0, a.in_features, ws, weight);
    b.Sync();
    b.For(kOutputs, [&](int o) {
      const float* x = xs + (o / kPortableTileFeatures) * kPortablePitch;
      const float* w = ws + (o % kPortableTileFeatures) * kPortablePitch;
      float sum = acc[o];
      for (int k = 0; k < kPortableTileK; ++k) sum += x[k] * w[k];
      acc[o] = sum;
    });
    b.Sync();
  }
  b.For(kOutputs, [&](int o) {
    const int64_t r = r0 + o / kPortableTileFeatures, n = n0 + o % kPortableTileFeatures;
    if (r >= rows || n >= a.out_features) return;
    float y = acc[o] * a.scale;
    if constexpr (kRounded) y *= a.row_scales[r];
    if (a.bias != nullptr) y += ToFloat(static_cast<const T*>(a.bias)[n]);
    StoreLinearOutput<T>(a, r * a.out_features + n, y);
  });
}

// Grid x: tiles of features; grid y: tiles of rows, each block walks its share of the live ones.
template <typename T, typename W = T>
REPRISE_FN void LinearPortableBody(Block& b, const LinearArgs& a) {
  const int64_t rows = *a.num_rows, n0 = static_cast<int64_t>(b.x()) * kPortableTileFeatures;
  for (int64_t r0 = static_cast<int64_t>(b.y()) * kPortableTileRows; r0 < rows;
       r0 += static_cast<int64_t>(b.grid_y()) * kPortableTileRows)
    PortableLinearTile<T, W>(b, a, r0, rows, n0, [](int64_t row) { return row; });
}

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_LINEAR_LINEAR_PORTABLE_BODY_H_
