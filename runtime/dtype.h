// SPDX-License-Identifier: Apache-2.0
// Element types of tensors, on disk and on a device. Storage formats only: arithmetic lives in
// kernels/device/.
#ifndef REPRISE_RUNTIME_DTYPE_H_
#define REPRISE_RUNTIME_DTYPE_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace reprise::runtime {

// The 8-bit formats are those of the KV cache alone; float_convert.h says what they hold.
enum class DType : uint8_t { kF32 = 0, kBf16 = 1, kF16 = 2, kE4m3 = 3, kE5m2 = 4 };

constexpr bool IsFp8(DType dtype) { return dtype == DType::kE4m3 || dtype == DType::kE5m2; }

// Bytes of one element.
constexpr size_t SizeOf(DType dtype) { return dtype == DType::kF32 ? 4 : IsFp8(dtype) ? 1 : 2; }

// "f32", "bf16", "f16", "fp8_e4m3", "fp8_e5m2".
constexpr std::string_view NameOf(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "f32";
    case DType::kBf16:
      return "bf16";
    case DType::kF16:
      return "f16";
    case DType::kE4m3:
      return "fp8_e4m3";
    case DType::kE5m2:
      return "fp8_e5m2";
  }
  return "unknown";
}

}  // namespace reprise::runtime

#endif  // REPRISE_RUNTIME_DTYPE_H_
