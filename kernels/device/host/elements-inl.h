// SPDX-License-Identifier: Apache-2.0
// How the host's native kernels read elements of each format as vectors of f32. Compiled once per
// instruction set, as part of a source that Highway's foreach_target.h includes again and again.
#if defined(REPRISE_KERNELS_DEVICE_HOST_ELEMENTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REPRISE_KERNELS_DEVICE_HOST_ELEMENTS_INL_H_
#undef REPRISE_KERNELS_DEVICE_HOST_ELEMENTS_INL_H_
#else
#define REPRISE_KERNELS_DEVICE_HOST_ELEMENTS_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "kernels/device/fp8.h"
#include "kernels/device/types.h"

HWY_BEFORE_NAMESPACE();
namespace reprise::kernels::on_host {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

// How elements of T become vectors of f32: a step takes kStep elements and yields kParts vectors,
// element i of the step in part i % kParts.
template <typename T>
struct Elements;

template <>
struct Elements<float> {
  static constexpr int kParts = 1;
  static constexpr int kStep = static_cast<int>(hn::MaxLanes(D()));
  template <int kPart>
  static HWY_INLINE V Load(const float* p) {
    return hn::LoadU(D(), p);
  }
};

template <>
struct Elements<F16> {
  static constexpr int kParts = 1;
  static constexpr int kStep = static_cast<int>(hn::MaxLanes(D()));
  template <int kPart>
  static HWY_INLINE V Load(const F16* p) {
    const hn::Rebind<hwy::float16_t, D> d;
    return hn::PromoteTo(D(), hn::LoadU(d, reinterpret_cast<const hwy::float16_t*>(p)));
  }
};

template <>
struct Elements<Bf16> {
#if HWY_TARGET == HWY_SCALAR
  static constexpr int kParts = 1;
  static constexpr int kStep = 1;
  template <int kPart>
  static HWY_INLINE V Load(const Bf16* p) {
    return hn::Set(D(), ToFloat(*p));
  }
#else
  // Even elements, then odd ones: a 32-bit lane holds two, and either is a float after one
  // instruction. What is multiplied is taken apart alike, so products meet as they should.
  static constexpr int kParts = 2;
  static constexpr int kStep = 2 * static_cast<int>(hn::MaxLanes(D()));
  template <int kPart>
  static HWY_INLINE V Load(const Bf16* p) {
    const hn::RepartitionToNarrow<hn::RebindToUnsigned<D> > du16;
    const hn::RebindToUnsigned<D> du32;
    const auto pairs = hn::BitCast(du32, hn::LoadU(du16, reinterpret_cast<const uint16_t*>(p)));
    if constexpr (kPart == 0) {
      return hn::BitCast(D(), hn::ShiftLeft<16>(pairs));
    } else {
      return hn::BitCast(D(), hn::And(pairs, hn::Set(du32, 0xffff0000u)));
    }
  }
#endif
};

template <>
struct Elements<E4m3> {
  static constexpr int kParts = 1;
  static constexpr int kStep = static_cast<int>(hn::MaxLanes(D()));
  // No float on the way is subnormal: CPUs are slow with those.
  template <int kPart>
  static HWY_INLINE V Load(const E4m3* p) {
    const D d;
    const hn::RebindToUnsigned<D> du;
    const hn::Rebind<uint8_t, D> bytes;
    const auto code = hn::PromoteTo(du, hn::LoadU(bytes, reinterpret_cast<const uint8_t*>(p)));
    const auto magnitude = hn::And(code, hn::Set(du, 0x7fu));
    const V normal = hn::BitCast(d, hn::Add(hn::ShiftLeft<20>(magnitude), hn::Set(du, 120u << 23)));
    const V least = hn::Set(d, 0x1p-6f);  // below it there is no hidden one
    const V y = hn::IfThenElse(
        hn::Lt(normal, least), hn::Sub(hn::Add(normal, normal), least),
        hn::IfThenElse(hn::Gt(normal, hn::Set(d, 448.0f)), hn::Set(d, __builtin_nanf("")), normal));
    const auto sign = hn::ShiftLeft<24>(hn::Xor(code, magnitude));
    return hn::Or(y, hn::BitCast(d, sign));
  }
};

// The upper half of an f16.
template <>
struct Elements<E5m2> {
  static constexpr int kParts = 1;
  static constexpr int kStep = static_cast<int>(hn::MaxLanes(D()));
  template <int kPart>
  static HWY_INLINE V Load(const E5m2* p) {
    const hn::Rebind<uint8_t, D> bytes;
    const hn::Rebind<uint16_t, D> halves;
    const auto code = hn::PromoteTo(halves, hn::LoadU(bytes, reinterpret_cast<const uint8_t*>(p)));
    const hn::Rebind<hwy::float16_t, D> d16;
    return hn::PromoteTo(D(), hn::BitCast(d16, hn::ShiftLeft<8>(code)));
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace reprise::kernels::on_host
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
