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
struct Bf16 {
  using Storage = uint16_t;
  static float Load(uint16_t bits) { return Bf16ToFloat(bits); }
  static uint16_t Store(float value) { return FloatToBf16(value); }
};
struct F16 {
  using Storage = uint16_t;
  static float Load(uint16_t bits) { return F16ToFloat(bits); }
  static uint16_t Store(float value) { return FloatToF16(value); }
};
struct E4m3 {
  using Storage = uint8_t;
  static float Load(uint8_t bits) { return E4m3ToFloat(bits); }
  static uint8_t Store(float value) { return FloatToE4m3(value); }
};
struct E5m2 {
  using Storage = uint8_t;
  static float Load(uint8_t bits) { return E5m2ToFloat(bits); }
  static uint8_t Store(float value) { return FloatToE5m2(value); }
};

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

template <typename From>
void ConvertFrom(DType to, const std::byte* src, std::byte* dst, size_t count) {
  switch (to) {
    case DType::kF32:
      return Convert<From, F32>(src, dst, count);
    case DType::kBf16:
      return Convert<From, Bf16>(src, dst, count);
    case DType::kF16:
      return Convert<From, F16>(src, dst, count);
    case DType::kE4m3:
      return Convert<From, E4m3>(src, dst, count);
    case DType::kE5m2:
      return Convert<From, E5m2>(src, dst, count);
  }
}

}  // namespace

void ConvertElements(DType from, DType to, const std::byte* src, std::byte* dst, size_t count) {
  if (count == 0) return;
  if (from == to) {
    std::memcpy(dst, src, count * SizeOf(from));
    return;
  }
  switch (from) {
    case DType::kF32:
      return ConvertFrom<F32>(to, src, dst, count);
    case DType::kBf16:
      return ConvertFrom<Bf16>(to, src, dst, count);
    case DType::kF16:
      return ConvertFrom<F16>(to, src, dst, count);
    case DType::kE4m3:
      return ConvertFrom<E4m3>(to, src, dst, count);
    case DType::kE5m2:
      return ConvertFrom<E5m2>(to, src, dst, count);
  }
}

}  // namespace reprise::runtime
