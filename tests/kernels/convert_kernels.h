// SPDX-License-Identifier: Apache-2.0
// Kernels of tests alone, which convert arrays with the device layer's element types, and take the
// tanh of one, so that both are checked as every kernel is: on the host, under emulation of every
// unit, on CUDA, and compiled for AMD. Included once per device.
#ifndef REPRISE_TESTS_KERNELS_CONVERT_KERNELS_H_
#define REPRISE_TESTS_KERNELS_CONVERT_KERNELS_H_

#include "kernels/device/block.h"
#include "kernels/device/fp8.h"

namespace reprise::testing {

// in, out: n floats for the tanh. For conversions `in` and the outputs: n elements, aligned to 16
// bytes; n is a multiple of 16. Of 8-bit formats `from_packs` gets the same once more, converted in
// packs of 16 bytes; others leave it alone.
struct ConvertArgs {
  const void* in;
  void* out;
  void* from_packs;
  int32_t n;
};

// (suffix, type of kernels/device/) of every format.
#define REPRISE_FOR_EACH_CONVERTED(X) X(bf16, Bf16) X(f16, F16) X(e4m3, E4m3) X(e5m2, E5m2)

}  // namespace reprise::testing

namespace reprise::kernels::REPRISE_DEVICE_NS {

template <typename T>
REPRISE_FN void ConvertToFloatBody(Block& b, const testing::ConvertArgs& a) {
  const T* in = static_cast<const T*>(a.in);
  float* out = static_cast<float*>(a.out);
  b.For(a.n, [&](int i) { out[i] = ToFloat(in[i]); });
  if constexpr (kIsFp8<T>) {
    float* from_packs = static_cast<float*>(a.from_packs);
    b.For(a.n / 16,
          [&](int i) { StoreVec(from_packs + 16 * i, ToFloats(LoadVec<16>(in + 16 * i))); });
  }
}

template <typename T>
REPRISE_FN void ConvertFromFloatBody(Block& b, const testing::ConvertArgs& a) {
  const float* in = static_cast<const float*>(a.in);
  T* out = static_cast<T*>(a.out);
  b.For(a.n, [&](int i) { out[i] = FromFloat<T>(in[i]); });
  if constexpr (kIsFp8<T>) {
    T* from_packs = static_cast<T*>(a.from_packs);
    b.For(a.n / 16,
          [&](int i) { StoreVec(from_packs + 16 * i, FromFloats<T>(LoadVec<16>(in + 16 * i))); });
  }
}

REPRISE_FN void TanhBody(Block& b, const testing::ConvertArgs& a) {
  const float* in = static_cast<const float*>(a.in);
  float* out = static_cast<float*>(a.out);
  b.For(a.n, [&](int i) { out[i] = Tanh(in[i]); });
}

#define REPRISE_CONVERT_KERNELS(suffix, T)                                                     \
  REPRISE_BLOCK_KERNEL(reprise_test_##suffix##_to_f32, Threads(256), 0, ConvertToFloatBody<T>, \
                       testing::ConvertArgs)                                                   \
  REPRISE_BLOCK_KERNEL(reprise_test_f32_to_##suffix, Threads(256), 0, ConvertFromFloatBody<T>, \
                       testing::ConvertArgs)
// Kernels are defined in every source that includes this, each in a namespace of its own.
// NOLINTBEGIN(misc-definitions-in-headers)
REPRISE_FOR_EACH_CONVERTED(REPRISE_CONVERT_KERNELS)
REPRISE_BLOCK_KERNEL(reprise_test_tanh, Threads(256), 0, TanhBody, testing::ConvertArgs)
// NOLINTEND(misc-definitions-in-headers)

#if !defined(__CUDACC__) && !defined(__HIP__)
#define REPRISE_CONVERT_DEFS(suffix, T)                                                   \
  runtime::KernelDef{"reprise_test_" #suffix "_to_f32", &reprise_test_##suffix##_to_f32}, \
      runtime::KernelDef{"reprise_test_f32_to_" #suffix, &reprise_test_f32_to_##suffix},
inline constexpr runtime::KernelDef kConvertKernels[] = {
    REPRISE_FOR_EACH_CONVERTED(REPRISE_CONVERT_DEFS)  //
    runtime::KernelDef{"reprise_test_tanh", &reprise_test_tanh},
};
#endif

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_TESTS_KERNELS_CONVERT_KERNELS_H_
