// SPDX-License-Identifier: Apache-2.0
// Array conversions between storage formats; see float_convert.h.
#include "runtime/float_convert.h"

#include <cstring>

namespace reprise::runtime {
namespace {

struct F32 {
  using Storage = float;
  static float Load(float value) { return value; }
  static float Store(float value) { return value; }
};
template <typename Bits, auto kLoad, auto kStore>
struct Format {
  using Storage = Bits;
  static float Load(Bits bits) { return kLoad(bits); }
  static Bits Store(float value) { return kStore(value); }
};
using Bf16 = Format<uint16_t, Bf16ToFloat, FloatToBf16>;
using F16 = Format<uint16_t, F16ToFloat, FloatToF16>;
using E4m3 = Format<uint8_t, E4m3ToFloat, FloatToE4m3>;
using E5m2 = Format<uint8_t, E5m2ToFloat, FloatToE5m2>;

// f(the format).
template <typename F>
void ForFormat(DType dtype, F f) {
  switch (dtype) {
    case DType::kF32:
      return f(F32{});
    case DType::kBf16:
      return f(Bf16{});
    case DType::kF16:
      return f(F16{});
    case DType::kE4m3:
      return f(E4m3{});
    case DType::kE5m2:
      return f(E5m2{});
  }
}

// Elements go through memcpy because a tensor in a mapped file starts at any byte.
template <typename From, typename To>
void Convert(const std::byte* src, std::byte* dst, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    typename From::Storage in;
    std::memcpy(&in, src + i * sizeof(in), sizeof(in));
    const typename To::Storage out = To::Store(From::Load(in));
    std::memcpy(dst + i * sizeof(out), &out, sizeof(out));
  }
}

}  // namespace

void ConvertElements(DType from, DType to, const std::byte* src, std::byte* dst, size_t count) {
  if (count == 0) return;
  if (from == to) {
    std::memcpy(dst, src, count * SizeOf(from));
    return;
  }
  ForFormat(from, [&](auto in) {
    ForFormat(to, [&](auto out) { Convert<decltype(in), decltype(out)>(src, dst, count); });
  });
}

}  // namespace reprise::runtime
