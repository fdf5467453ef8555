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
// Of x, what is multiplied with all weights of a tile before the next. For 64 rows of 4,096 inputs
// 512 KiB were faster than 256 on a core with 1 MiB of second cache; all of 512 rows were slower.
constexpr int64_t kRowBytesAtOnce = 512 << 10;

// Products of floats, one after the other.
template <typename T>
struct Products : Elements<T> {
  static HWY_INLINE V Add(V x, V w, V sum) { return hn::MulAdd(x, w, sum); }
};

#include "kernels/linear/host_native_tile-inl.h"

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

#include "kernels/linear/host_native_tile-inl.h"

}  // namespace dot
}  // namespace HWY_NAMESPACE
}  // namespace reprise::kernels::on_host
HWY_POP_ATTRIBUTES
#endif

#if HWY_ONCE
namespace reprise::kernels::on_host {
namespace {

#define REPRISE_LINEAR_TARGET(name, ns) \
  NativeLinearTarget{name, &ns::ComputeTile<float>, &ns::ComputeTile<Bf16>, &ns::ComputeTile<F16>},
constexpr NativeLinearTarget kTargets[] = {
#if HWY_TARGETS & HWY_AVX3
    {"avx512_bf16", &N_AVX3::ComputeTile<float>, &N_AVX3::dot::ComputeTile<Bf16>,
     &N_AVX3::ComputeTile<F16>},
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

}  // namespace reprise::kernels::on_host
#endif  // HWY_ONCE
