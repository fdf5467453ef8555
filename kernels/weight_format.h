// SPDX-License-Identifier: Apache-2.0
// How the elements of a weight matrix are stored. Activations and KV have formats of their own: a
// kernel instance names all three (kernel_instance.h).
#ifndef REPRISE_KERNELS_WEIGHT_FORMAT_H_
#define REPRISE_KERNELS_WEIGHT_FORMAT_H_

#include <cstdint>
#include <string_view>

#include "runtime/dtype.h"

namespace reprise::kernels {

// kNone: there is no weight. kE4m3: 8-bit floats, with an f32 scale for each output and
// kScaleInputs input features. The others hold one number per element, without scales.
enum class WeightFormat : uint8_t { kNone = 0, kF32, kBf16, kF16, kE4m3 };

// Of a scale of kE4m3, neighbours; the last ones of an output may be fewer.
inline constexpr int kScaleInputs = 128;

// Bytes of one element; 0 of kNone.
constexpr int BytesOf(WeightFormat format) {
  switch (format) {
    case WeightFormat::kNone:
      return 0;
    case WeightFormat::kF32:
      return 4;
    case WeightFormat::kBf16:
    case WeightFormat::kF16:
      return 2;
    case WeightFormat::kE4m3:
      return 1;
  }
  return 0;
}

constexpr WeightFormat WeightFormatOf(runtime::DType dtype) {
  switch (dtype) {
    case runtime::DType::kF32:
      return WeightFormat::kF32;
    case runtime::DType::kBf16:
      return WeightFormat::kBf16;
    case runtime::DType::kF16:
      return WeightFormat::kF16;
    case runtime::DType::kE4m3:
      return WeightFormat::kE4m3;
    case runtime::DType::kE5m2:
      break;  // of the KV cache alone
  }
  return WeightFormat::kNone;
}

// "none", "f32", "bf16", "f16", "fp8_e4m3".
constexpr std::string_view NameOf(WeightFormat format) {
  switch (format) {
    case WeightFormat::kNone:
      return "none";
    case WeightFormat::kF32:
      return "f32";
    case WeightFormat::kBf16:
      return "bf16";
    case WeightFormat::kF16:
      return "f16";
    case WeightFormat::kE4m3:
      return "fp8_e4m3";
  }
  return "unknown";
}

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_WEIGHT_FORMAT_H_
