// SPDX-License-Identifier: Apache-2.0
// How the elements of a weight matrix are stored. Activations and KV have formats of their own: a
// kernel instance names all three (kernel_instance.h).
#ifndef REPRISE_KERNELS_WEIGHT_FORMAT_H_
#define REPRISE_KERNELS_WEIGHT_FORMAT_H_

#include <bit>
#include <cstdint>
#include <string_view>

#include "runtime/dtype.h"

namespace reprise::kernels {

// kNone: there is no weight. kE4m3: 8-bit floats, with an f32 scale for each output and
// kScaleInputs input features. kInt4: 0 to 15, with a scale and a zero point, a ScaleWord, for each
// output and 32, 64 or 128 input features. kE4m3Rounded: elements and scales of kE4m3, which
// multiply activations rounded to E4M3 (round_rows). kMxfp4: 4-bit floats, E2M1, with a power of
// two for each output and kMxfp4ScaleInputs input features, as f32; of experts alone. The others
// hold one number per element, without scales.
enum class WeightFormat : uint8_t {
  kNone = 0,
  kF32,
  kBf16,
  kF16,
  kE4m3,
  kInt4,
  kE4m3Rounded,
  kMxfp4
};

// Of a scale of E4M3, neighbours; the last ones of an output may be fewer. Of kInt4 the most.
inline constexpr int kScaleInputs = 128;
// Of kInt4 the fewest.
inline constexpr int kLeastScaleInputs = 32;
// Source: OCP Microscaling Formats (MX), version 1.0.
inline constexpr int kMxfp4ScaleInputs = 32;

// A weight of kInt4 is (element - zero point) * scale. Both are one word: that of the scale as f32,
// whose lowest bits are the zero point's. So f16 and bf16 scales stay what they are.
inline constexpr uint32_t kZeroPointBits = 0x1f;
constexpr uint32_t ScaleWord(float scale, uint32_t zero_point) {
  return (std::bit_cast<uint32_t>(scale) & ~kZeroPointBits) | zero_point;
}
constexpr float ScaleOfWord(uint32_t word) { return std::bit_cast<float>(word & ~kZeroPointBits); }
constexpr uint32_t ZeroPointOfWord(uint32_t word) { return word & kZeroPointBits; }

// Bits of one element; 0 of kNone.
constexpr int BitsOf(WeightFormat format) {
  switch (format) {
    case WeightFormat::kNone:
      return 0;
    case WeightFormat::kF32:
      return 32;
    case WeightFormat::kBf16:
    case WeightFormat::kF16:
      return 16;
    case WeightFormat::kE4m3:
    case WeightFormat::kE4m3Rounded:
      return 8;
    case WeightFormat::kInt4:
    case WeightFormat::kMxfp4:
      return 4;
  }
  return 0;
}
// Whether elements have scales.
constexpr bool IsScaled(WeightFormat format) {
  return format == WeightFormat::kE4m3 || format == WeightFormat::kInt4 ||
         format == WeightFormat::kE4m3Rounded || format == WeightFormat::kMxfp4;
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

// "none", "f32", "bf16", "f16", "fp8_e4m3", "int4", "fp8_e4m3_rounded", "mxfp4".
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
    case WeightFormat::kInt4:
      return "int4";
    case WeightFormat::kE4m3Rounded:
      return "fp8_e4m3_rounded";
    case WeightFormat::kMxfp4:
      return "mxfp4";
  }
  return "unknown";
}

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_WEIGHT_FORMAT_H_
