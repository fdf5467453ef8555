// SPDX-License-Identifier: Apache-2.0
// Linear, native candidate of the host device: streams the weight once with the CPU's vector units.
// Not the reference, which is portable_body.h. Written over Highway; this file compiles itself once
// per instruction set (foreach_target.h) and picks at run time.
//
// Order of K: an output has one vector of partial sums, walked in ascending K, added up lane by
// lane at the end. Neither the number of rows nor the blocking enters, so a row's bits are the same
// alone and among others. The vector width does enter, and so do instructions that multiply bf16:
// they take subnormal numbers as zero.
#include "kernels/linear/host_native.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/device/host/instruction_sets.h"
#include "kernels/device/types.h"
#include "kernels/linear/host_native_targets.h"
#include "kernels/linear/linear_args.h"
#include "kernels/linear/linear_geometry.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/linear/host_native.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/device/host/elements-inl.h"

HWY_BEFORE_NAMESPACE();
namespace reprise::kernels::on_host {
namespace HWY_NAMESPACE {

// What one pass over K computes, in registers: rows x features sums, the features' weights, one
// vector of x. Any values give the same bits. One row takes 4 streams of weights everywhere: on a
// 2-core Zen 4 that reads at 85 % of the speed of reading alone, 2 at 78 %, 8 at 88 %; software
// prefetch changed nothing.
constexpr int kBlockRows = 4;
#if HWY_TARGET == HWY_AVX3
constexpr int kBlockFeatures = 4;  // of 32 registers
#else
constexpr int kBlockFeatures = 2;  // of 16
#endif
constexpr int kOneRowFeatures = 4;
// Weights of 8 bits have sums of a scale, too.
constexpr int kFp8BlockFeatures = 2;
#if HWY_TARGET == HWY_AVX3
constexpr int kFp8BlockRows = 4;
#else
constexpr int kFp8BlockRows = 2;
#endif
// Of x, what is multiplied with all weights of a tile before the next. For 64 rows of 4,096 inputs
// 512 KiB were faster than 256 on a core with 1 MiB of second cache; all of 512 rows were slower.
constexpr int64_t kRowBytesAtOnce = 512 << 10;

// Products of floats, one after the other.
template <typename T>
struct Products : Elements<T> {
  static HWY_INLINE V Add(V x, V w, V sum) { return hn::MulAdd(x, w, sum); }
};

// The same with weights of 8 bits. Elements are in their order, those of bf16 too.
template <typename T>
struct Fp8Products {
  static constexpr int kStep = static_cast<int>(hn::MaxLanes(D()));
  static HWY_INLINE V LoadX(const T* p) {
    if constexpr (std::is_same_v<T, Bf16>) {
      const hn::RebindToUnsigned<D> du32;
      const hn::Rebind<uint16_t, D> du16;
      const auto bits = hn::LoadU(du16, reinterpret_cast<const uint16_t*>(p));
      return hn::BitCast(D(), hn::ShiftLeft<16>(hn::PromoteTo(du32, bits)));
    } else {
      return Elements<T>::template Load<0>(p);
    }
  }
  static HWY_INLINE V LoadW(const E4m3* p) { return Elements<E4m3>::Load<0>(p); }
  static HWY_INLINE V Add(V x, V w, V sum) { return hn::MulAdd(x, w, sum); }
};

#include "kernels/linear/host_native_tile-inl.h"
// Behind what it shares.
#include "kernels/linear/host_native_fp8-inl.h"

}  // namespace HWY_NAMESPACE
}  // namespace reprise::kernels::on_host
HWY_AFTER_NAMESPACE();

#if HWY_TARGET == HWY_AVX3
// The same with instructions that add two products of bf16 at once, which Highway does not know
// yet.
HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR ",avx512bf16")
namespace reprise::kernels::on_host {
namespace HWY_NAMESPACE {
namespace dot {

template <typename T>
struct Products;

template <>
struct Products<Bf16> {
  static constexpr int kParts = 1;
  static constexpr int kStep = 32;
  template <int kPart>
  static HWY_INLINE __m512bh Load(const Bf16* p) {
    return __builtin_bit_cast(__m512bh, _mm512_loadu_si512(p));
  }
  static HWY_INLINE V Add(__m512bh x, __m512bh w, V sum) {
    return V{_mm512_dpbf16_ps(sum.raw, x, w)};
  }
};

// What the magnitudes of E4M3, 0 to 127, are as bf16.
struct MagnitudeTable {
  alignas(64) uint16_t bits[128] = {};
  constexpr MagnitudeTable() {
    for (int code = 0; code < 128; ++code) {
      const int exponent = code / 8, mantissa = code % 8;
      if (code == 127) {
        bits[code] = 0x7fc0;  // NaN
      } else if (exponent > 0) {
        bits[code] = static_cast<uint16_t>((exponent + 120) << 7 | mantissa << 4);
      } else if (mantissa > 0) {
        // mantissa * 2^-9: 2^shift is its highest bit.
        const int shift = mantissa >= 4 ? 2 : mantissa >= 2 ? 1 : 0;
        bits[code] = static_cast<uint16_t>((118 + shift) << 7 | ((mantissa << (7 - shift)) & 0x7f));
      }
    }
  }
};
inline constexpr MagnitudeTable kMagnitudes;

template <typename T>
struct Fp8Products;

template <>
struct Fp8Products<Bf16> {
  static constexpr int kStep = 32;
  static HWY_INLINE __m512bh LoadX(const Bf16* p) { return Products<Bf16>::Load<0>(p); }
  static HWY_INLINE __m512bh LoadW(const E4m3* p) {
    const __m512i code =
        _mm512_cvtepu8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
    const __m512i low = _mm512_permutex2var_epi16(Part(0), code, Part(1));
    const __m512i high = _mm512_permutex2var_epi16(Part(2), code, Part(3));
    const __m512i magnitude =
        _mm512_mask_blend_epi16(_mm512_test_epi16_mask(code, _mm512_set1_epi16(0x40)), low, high);
    const __m512i sign = _mm512_slli_epi16(_mm512_and_si512(code, _mm512_set1_epi16(0x80)), 8);
    return __builtin_bit_cast(__m512bh, _mm512_or_si512(magnitude, sign));
  }
  static HWY_INLINE V Add(__m512bh x, __m512bh w, V sum) { return Products<Bf16>::Add(x, w, sum); }

 private:
  static HWY_INLINE __m512i Part(int index) {
    return _mm512_load_si512(kMagnitudes.bits + 32 * index);
  }
};

#include "kernels/linear/host_native_tile-inl.h"
// Behind what it shares.
#include "kernels/linear/host_native_fp8-inl.h"

}  // namespace dot
}  // namespace HWY_NAMESPACE
}  // namespace reprise::kernels::on_host
HWY_POP_ATTRIBUTES
#endif

#if HWY_ONCE
namespace reprise::kernels::on_host {
namespace {

#define REPRISE_LINEAR_TARGET(name, ns)          \
  NativeLinearTarget{name,                       \
                     &ns::ComputeTile<float>,    \
                     &ns::ComputeTile<Bf16>,     \
                     &ns::ComputeTile<F16>,      \
                     &ns::ComputeFp8Tile<float>, \
                     &ns::ComputeFp8Tile<Bf16>,  \
                     &ns::ComputeFp8Tile<F16>},
constexpr NativeLinearTarget kTargets[] = {
#if HWY_TARGETS & HWY_AVX3
    {"avx512_bf16", &N_AVX3::ComputeTile<float>, &N_AVX3::dot::ComputeTile<Bf16>,
     &N_AVX3::ComputeTile<F16>, &N_AVX3::ComputeFp8Tile<float>, &N_AVX3::dot::ComputeFp8Tile<Bf16>,
     &N_AVX3::ComputeFp8Tile<F16>},
#endif
    REPRISE_FOR_EACH_INSTRUCTION_SET(REPRISE_LINEAR_TARGET)  //
};

}  // namespace

std::span<const NativeLinearTarget> NativeLinearTargets() {
  static const std::span<const NativeLinearTarget> targets =
      RunnableHere<NativeLinearTarget>(kTargets);
  return targets;
}

void reprise_linear_native_f32(const runtime::HostBlockContext& context, const void* args) {
  NativeLinearTargets().front().f32(context, args);
}
void reprise_linear_native_bf16(const runtime::HostBlockContext& context, const void* args) {
  NativeLinearTargets().front().bf16(context, args);
}
void reprise_linear_native_f16(const runtime::HostBlockContext& context, const void* args) {
  NativeLinearTargets().front().f16(context, args);
}
void reprise_linear_native_fp8_f32(const runtime::HostBlockContext& context, const void* args) {
  NativeLinearTargets().front().f32_e4m3(context, args);
}
void reprise_linear_native_fp8_bf16(const runtime::HostBlockContext& context, const void* args) {
  NativeLinearTargets().front().bf16_e4m3(context, args);
}
void reprise_linear_native_fp8_f16(const runtime::HostBlockContext& context, const void* args) {
  NativeLinearTargets().front().f16_e4m3(context, args);
}

}  // namespace reprise::kernels::on_host
#endif  // HWY_ONCE
