// SPDX-License-Identifier: Apache-2.0
// Linear, portable candidate, block style: a tile of rows x features per block, K in pieces through
// shared memory, one f32 accumulator per output walked in ascending K. Simple on purpose: the
// reference on every device, and f32 on GPUs.
#ifndef REPRISE_KERNELS_LINEAR_LINEAR_PORTABLE_BODY_H_
#define REPRISE_KERNELS_LINEAR_LINEAR_PORTABLE_BODY_H_

#include <type_traits>

#include "kernels/device/block.h"
#include "kernels/device/fp8.h"
#include "kernels/linear/linear_args.h"
#include "kernels/linear/linear_geometry.h"
#include "kernels/linear/linear_output.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

// Copies rows [first, first + rows) x columns [k0, k0 + kPortableTileK) of a matrix into shared
// memory as f32; zero outside. offset(row, column): where an element lies. scale(x, row, column):
// what it is worth.
template <typename T, typename Offset, typename Scale>
REPRISE_FN void StageTile(Block& b, const T* matrix, int64_t first, int64_t num_rows, int rows,
                          int k0, int k, float* shared, Offset offset, Scale scale) {
  b.For(rows * kPortableTileK, [&](int i) {
    const int r = i / kPortableTileK, c = i % kPortableTileK;
    const bool inside = first + r < num_rows && k0 + c < k;
    shared[r * kPortablePitch + c] =
        inside ? scale(ToFloat(matrix[offset(first + r, k0 + c)]), first + r, k0 + c) : 0.0f;
  });
}

// Grid x: tiles of features; grid y: tiles of rows, each block walks its share of the live ones.
// W: of weights, T or E4m3.
template <typename T, typename W = T>
REPRISE_FN void LinearPortableBody(Block& b, const LinearArgs& a) {
  float* xs = b.Shared<float>();
  float* ws = xs + kPortableTileRows * kPortablePitch;
  float* acc = ws + kPortableTileFeatures * kPortablePitch;
  const int64_t rows = *a.num_rows, n0 = static_cast<int64_t>(b.x()) * kPortableTileFeatures;
  constexpr int kOutputs = kPortableTileRows * kPortableTileFeatures;
  const PackedLayout packed{a.out_features, a.in_features};
  const auto row_major = [&](int64_t row, int column) { return row * a.in_features + column; };
  const auto as_it_is = [](float x, int64_t, int) { return x; };
  const auto scaled = [&](float x, int64_t row, int column) {
    if constexpr (std::is_same_v<W, E4m3>) {
      const int64_t group = column / kScaleInputs;
      return x * a.scales[a.packed != 0 ? packed.PackedScaleOffset(row, group)
                                        : row * packed.ScaleGroups() + group];
    } else {
      return x;
    }
  };

  for (int64_t r0 = static_cast<int64_t>(b.y()) * kPortableTileRows; r0 < rows;
       r0 += static_cast<int64_t>(b.grid_y()) * kPortableTileRows) {
    // An output stays with one thread from here to the end, so that only tiles need barriers.
    b.For(kOutputs, [&](int o) { acc[o] = 0.0f; });
    for (int k0 = 0; k0 < a.in_features; k0 += kPortableTileK) {
      StageTile(b, static_cast<const T*>(a.x), r0, rows, kPortableTileRows, k0, a.in_features, xs,
                row_major, as_it_is);
      StageTile(
          b, static_cast<const W*>(a.weight), n0, a.out_features, kPortableTileFeatures, k0,
          a.in_features, ws,
          [&](int64_t row, int column) {
            if (a.packed == 0) return row_major(row, column);
            return sizeof(W) == 1 ? packed.ByteOffset(row, column) : packed.Offset(row, column);
          },
          scaled);
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
      if (a.bias != nullptr) y += ToFloat(static_cast<const T*>(a.bias)[n]);
      StoreLinearOutput<T>(a, r * a.out_features + n, y);
    });
  }
}

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_LINEAR_LINEAR_PORTABLE_BODY_H_
