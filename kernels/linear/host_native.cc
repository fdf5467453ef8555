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
#include <bit>
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
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/device/host/elements-inl.h"

HWY_BEFORE_NAMESPACE();
namespace reprise::kernels::on_host {
namespace HWY_NAMESPACE {

// What one pass over K computes, in registers: rows x features sums, the features' weights, one
// vector of x. Any values give the same bits. One row takes 4 streams of weights everywhere: on a
// 2-core Zen 4 that reads at 85 % of the speed of reading alone, 2 at 78 %, 8 at 88 %.
constexpr int kBlockRows = 4;
#if HWY_TARGET == HWY_AVX3
constexpr int kBlockFeatures = 4;  // of 32 registers
#else
constexpr int kBlockFeatures = 2;  // of 16
#endif
constexpr int kOneRowFeatures = 4;
// Weights of 8 and 4 bits have sums of a scale, too.
constexpr int kScaledBlockFeatures = 2;
#if HWY_TARGET == HWY_AVX3
constexpr int kScaledBlockRows = 4;
#else
constexpr int kScaledBlockRows = 2;
#endif
// And where they are widened once for many rows, from how many on. At 8 rows that gains nothing
// where vectors are longest, and half of the time of E4M3 elsewhere (linear_ahead_host.json).
#if HWY_TARGET == HWY_AVX3
constexpr int kWidenedFromRows = 9;
constexpr int kWidenedFeatures = 4;
constexpr int kWidenedBlockRows = 3;
#else
constexpr int kWidenedFromRows = 5;
constexpr int kWidenedFeatures = 2;
constexpr int kWidenedBlockRows = 2;
#endif
// Of x, what is multiplied with all weights of a tile before the next. For 64 rows of 4,096 inputs
// 512 KiB were faster than 256 on a core with 1 MiB of second cache; all of 512 rows were slower.
constexpr int64_t kRowBytesAtOnce = 512 << 10;
// How far ahead weights are asked for: 512 to 4,096 bytes do alike (docs/benchmarks/README.md).
constexpr int64_t kAheadBytes = 1536;
constexpr int kLineBytes = 64;
// Blocks of several rows ask where that leaves them their registers.
constexpr bool kBlocksAsk = HWY_TARGET == HWY_AVX3;

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
  // What LoadW returned, in memory.
  using Wide = float;
  static HWY_INLINE void StoreWide(V w, float* p) { hn::StoreU(w, D(), p); }
  static HWY_INLINE V LoadWide(const float* p) { return hn::LoadU(D(), p); }
};

// And of 4 bits, of which sixteen bytes hold a run.
template <typename T>
struct Int4Products {
  static constexpr int kStep = static_cast<int>(hn::MaxLanes(D()));
  static constexpr float kWorth = 1.0f;
  static_assert(kInt4Run / 2 % kStep == 0);
  static HWY_INLINE V Zero(uint32_t point) { return hn::Set(D(), static_cast<float>(point)); }
  static HWY_INLINE V LoadX(const T* p) { return Fp8Products<T>::LoadX(p); }
  template <int kStepOfRun>
  static HWY_INLINE V LoadW(const uint8_t* run, V zero) {
    constexpr int kFirst = kStepOfRun * kStep;
    const hn::RebindToSigned<D> di;
    const hn::Rebind<uint8_t, D> bytes;
    const auto both = hn::PromoteTo(di, hn::LoadU(bytes, run + kFirst % (kInt4Run / 2)));
    const auto element =
        kFirst < kInt4Run / 2 ? hn::And(both, hn::Set(di, 15)) : hn::ShiftRight<4>(both);
    return hn::Sub(hn::ConvertTo(D(), element), zero);
  }
  static HWY_INLINE V Add(V x, V w, V sum) { return hn::MulAdd(x, w, sum); }
};

// The same elements as floats, E2M1. What the lower three bits stand for is looked up, twice that
// in four bits each.
template <typename T>
struct Mxfp4Products {
  static constexpr int kStep = Int4Products<T>::kStep;
  static constexpr float kWorth = 0.5f;
  static constexpr uint32_t kTwice = 0xc8643210;
  static HWY_INLINE uint32_t Zero(uint32_t) { return 0; }
  static HWY_INLINE V LoadX(const T* p) { return Fp8Products<T>::LoadX(p); }
  template <int kStepOfRun>
  static HWY_INLINE V LoadW(const uint8_t* run, uint32_t) {
    constexpr int kFirst = kStepOfRun * kStep;
    const hn::RebindToUnsigned<D> du;
    const hn::RebindToSigned<D> di;
    const hn::Rebind<uint8_t, D> bytes;
    const auto both = hn::PromoteTo(du, hn::LoadU(bytes, run + kFirst % (kInt4Run / 2)));
    const auto element = kFirst < kInt4Run / 2 ? both : hn::ShiftRight<4>(both);
    const auto place = hn::ShiftLeft<2>(hn::And(element, hn::Set(du, 7)));
    const auto twice = hn::And(hn::Shr(hn::Set(du, kTwice), place), hn::Set(du, 15));
    const auto sign = hn::ShiftLeft<28>(hn::And(element, hn::Set(du, 8)));
    return hn::Or(hn::ConvertTo(D(), hn::BitCast(di, twice)), hn::BitCast(D(), sign));
  }
  static HWY_INLINE V Add(V x, V w, V sum) { return hn::MulAdd(x, w, sum); }
};

#include "kernels/linear/host_native_tile-inl.h"
// Behind what they share.
#include "kernels/linear/host_native_widened-inl.h"
// Behind that.
#include "kernels/linear/host_native_four_bits-inl.h"
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
  using Wide = Bf16;
  static HWY_INLINE void StoreWide(__m512bh w, Bf16* p) {
    _mm512_storeu_si512(p, __builtin_bit_cast(__m512i, w));
  }
  static HWY_INLINE __m512bh LoadWide(const Bf16* p) { return Products<Bf16>::Load<0>(p); }

 private:
  static HWY_INLINE __m512i Part(int index) {
    return _mm512_load_si512(kMagnitudes.bits + 32 * index);
  }
};

// -15 to 31 as bf16.
struct IntegerTable {
  alignas(64) uint16_t bits[64] = {};
  constexpr IntegerTable() {
    for (int i = 0; i < 47; ++i)
      bits[i] = static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(i - 15)) >> 16);
  }
};
inline constexpr IntegerTable kIntegers;

template <typename T>
struct Int4Products;

// What an element is worth is looked up: the table starts at it less its zero point.
template <>
struct Int4Products<Bf16> {
  static constexpr int kStep = 32;
  static constexpr float kWorth = 1.0f;
  static HWY_INLINE __m512i Zero(uint32_t point) {
    return _mm512_loadu_si512(kIntegers.bits + 15 - (point & 15));
  }
  static HWY_INLINE __m512bh LoadX(const Bf16* p) { return Products<Bf16>::Load<0>(p); }
  template <int kStepOfRun>
  static HWY_INLINE __m512bh LoadW(const uint8_t* run, __m512i table) {
    const __m128i both = _mm_loadu_si128(reinterpret_cast<const __m128i*>(run));
    const __m256i halves =
        _mm256_srlv_epi64(_mm256_broadcastsi128_si256(both), _mm256_setr_epi64x(0, 0, 4, 4));
    const __m512i element = _mm512_cvtepu8_epi16(_mm256_and_si256(halves, _mm256_set1_epi8(15)));
    return __builtin_bit_cast(__m512bh, _mm512_permutexvar_epi16(element, table));
  }
  static HWY_INLINE V Add(__m512bh x, __m512bh w, V sum) { return Products<Bf16>::Add(x, w, sum); }
};

// What E2M1 is as bf16.
struct Mxfp4Table {
  alignas(64) uint16_t bits[32] = {};
  constexpr Mxfp4Table() {
    constexpr float kMagnitudes[8] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
    for (int i = 0; i < 16; ++i) {
      const uint32_t magnitude = std::bit_cast<uint32_t>(kMagnitudes[i % 8]) >> 16;
      bits[i] = static_cast<uint16_t>(magnitude | (i < 8 ? 0u : 0x8000u));
    }
  }
};
inline constexpr Mxfp4Table kMxfp4;

template <typename T>
struct Mxfp4Products;

template <>
struct Mxfp4Products<Bf16> : Int4Products<Bf16> {
  static HWY_INLINE __m512i Zero(uint32_t) { return _mm512_load_si512(kMxfp4.bits); }
};

#include "kernels/linear/host_native_tile-inl.h"
// Behind what they share.
#include "kernels/linear/host_native_widened-inl.h"
// Behind that.
#include "kernels/linear/host_native_four_bits-inl.h"
#include "kernels/linear/host_native_fp8-inl.h"

}  // namespace dot
}  // namespace HWY_NAMESPACE
}  // namespace reprise::kernels::on_host
HWY_POP_ATTRIBUTES
#endif

#if HWY_ONCE
namespace reprise::kernels::on_host {
namespace {

// dot: where instructions that add two products of bf16 are.
#define REPRISE_LINEAR_TARGET_OF(name, ns, dot)          \
  NativeLinearTarget{name,                               \
                     &ns::ComputeTile<float>,            \
                     &dot::ComputeTile<Bf16>,            \
                     &ns::ComputeTile<F16>,              \
                     &ns::ComputeFp8Tile<float>,         \
                     &dot::ComputeFp8Tile<Bf16>,         \
                     &ns::ComputeFp8Tile<F16>,           \
                     &ns::ComputeInt4Tile<float>,        \
                     &dot::ComputeInt4Tile<Bf16>,        \
                     &ns::ComputeInt4Tile<F16>,          \
                     &ns::ComputeTileOfRows<float>,      \
                     &dot::ComputeTileOfRows<Bf16>,      \
                     &ns::ComputeTileOfRows<F16>,        \
                     &ns::ComputeFp8TileOfRows<float>,   \
                     &dot::ComputeFp8TileOfRows<Bf16>,   \
                     &ns::ComputeFp8TileOfRows<F16>,     \
                     &ns::ComputeInt4TileOfRows<float>,  \
                     &dot::ComputeInt4TileOfRows<Bf16>,  \
                     &ns::ComputeInt4TileOfRows<F16>,    \
                     &ns::ComputeMxfp4TileOfRows<float>, \
                     &dot::ComputeMxfp4TileOfRows<Bf16>, \
                     &ns::ComputeMxfp4TileOfRows<F16>},
#define REPRISE_LINEAR_TARGET(name, ns) REPRISE_LINEAR_TARGET_OF(name, ns, ns)
constexpr NativeLinearTarget kTargets[] = {
#if HWY_TARGETS & HWY_AVX3
    REPRISE_LINEAR_TARGET_OF("avx512_bf16", N_AVX3, N_AVX3::dot)  //
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
void reprise_linear_native_int4_f32(const runtime::HostBlockContext& context, const void* args) {
  NativeLinearTargets().front().f32_int4(context, args);
}
void reprise_linear_native_int4_bf16(const runtime::HostBlockContext& context, const void* args) {
  NativeLinearTargets().front().bf16_int4(context, args);
}
void reprise_linear_native_int4_f16(const runtime::HostBlockContext& context, const void* args) {
  NativeLinearTargets().front().f16_int4(context, args);
}

}  // namespace reprise::kernels::on_host
#endif  // HWY_ONCE
