// SPDX-License-Identifier: Apache-2.0
// Bodies of the fill kernels, block style: blocks take pieces of kFillPiece elements.
#ifndef REPRISE_KERNELS_FILL_FILL_BODY_H_
#define REPRISE_KERNELS_FILL_FILL_BODY_H_

#include "kernels/device/block.h"
#include "kernels/device/fp8.h"
#include "kernels/device/philox.h"
#include "kernels/fill/fill_args.h"
#include "kernels/packed_layout.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

template <typename F>
REPRISE_FN void ForPieces(Block& b, int64_t count, F f) {
  for (int64_t base = static_cast<int64_t>(b.x()) * kFillPiece; base < count;
       base += static_cast<int64_t>(b.grid_x()) * kFillPiece) {
    const int64_t left = count - base;
    b.For(left < kFillPiece ? static_cast<int>(left) : kFillPiece, [&](int i) { f(base + i); });
  }
}

REPRISE_FN float RandomElement(const RandomFillArgs& a, int64_t i) {
  const Random4 r = Philox(a.seed, static_cast<uint64_t>(i), 0);
  float sum = -2.0f;
  for (uint32_t x : r.v) sum += UniformFloat(x);
  // The sum of four uniforms has variance 1/3.
  return sum * 1.7320508f * a.stddev;
}

template <typename T>
REPRISE_FN void RandomFillBody(Block& b, const RandomFillArgs& a) {
  T* out = static_cast<T*>(a.out);
  ForPieces(b, a.count, [&](int64_t i) { out[i] = FromFloat<T>(RandomElement(a, i)); });
}

REPRISE_FN void RandomFillPackedBody(Block& b, const RandomFillArgs& a) {
  uint32_t* out = static_cast<uint32_t*>(a.out);
  ForPieces(b, a.count / 4, [&](int64_t word) {
    uint32_t bytes = 0;
    for (int i = 0; i < 4; ++i)
      bytes |= static_cast<uint32_t>(FromFloat<E4m3>(RandomElement(a, 4 * word + i)).bits) << 8 * i;
    out[word] = PackE4m3(bytes);
  });
}

template <typename T>
REPRISE_FN void NanFillBody(Block& b, const NanFillArgs& a) {
  T* out = static_cast<T*>(a.out);
  ForPieces(b, a.count, [&](int64_t i) { out[i] = FromFloat<T>(QuietNaN()); });
}

template <typename T>
REPRISE_FN void BlockFillBody(Block& b, const BlockFillArgs& a) {
  const T value = FromFloat<T>(a.value);
  const int64_t pieces = (a.block_elements + kFillPiece - 1) / kFillPiece;
  const int64_t total = pieces * a.count * a.layers;
  for (int64_t i = b.x(); i < total; i += b.grid_x()) {
    const int64_t base = i % pieces * kFillPiece;
    const int64_t block = i / pieces % a.count, layer = i / pieces / a.count;
    T* out = static_cast<T*>(a.out) + layer * a.layer_elements +
             static_cast<int64_t>(a.block[block]) * a.block_elements + base;
    const int64_t left = a.block_elements - base;
    b.For(left < kFillPiece ? static_cast<int>(left) : kFillPiece, [&](int e) { out[e] = value; });
  }
}

// Over 8-bit elements of either format.
REPRISE_FN void RandomFillFp8Body(Block& b, const RandomFillArgs& a) {
  if (a.packed) {
    RandomFillPackedBody(b, a);
  } else if (a.dtype == runtime::DType::kE4m3) {
    RandomFillBody<E4m3>(b, a);
  } else {
    RandomFillBody<E5m2>(b, a);
  }
}
REPRISE_FN void NanFillFp8Body(Block& b, const NanFillArgs& a) {
  NanFillBody<E4m3>(b, a);  // whose NaN is one of E5M2 too
}
REPRISE_FN void BlockFillFp8Body(Block& b, const BlockFillArgs& a) {
  if (a.dtype == runtime::DType::kE4m3) {
    BlockFillBody<E4m3>(b, a);
  } else {
    BlockFillBody<E5m2>(b, a);
  }
}

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_FILL_FILL_BODY_H_
