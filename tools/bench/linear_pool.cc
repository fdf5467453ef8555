// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/linear_pool.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <random>
#include <vector>

#include "kernels/fill/fill.h"
#include "runtime/dtype.h"
#include "runtime/status_macros.h"

namespace reprise::tools {
namespace {

// Scales that are made before the same come again: a megabyte.
constexpr size_t kDistinctScales = size_t{1} << 18;

// Of what is filled. E4M3: numbers are below 4, so that bytes of row-major elements, sign aside,
// are below 0x48. Read as packed words they are no NaN, which has seven ones: PackE4m3 takes the
// upper three of two elements from bits 6 to 4 of a byte, and the lower four of the other two from
// bits 7 to 4. Packed words read as bytes would be NaN here and there. int4: two elements are an
// E4M3 of what the engine fills its own with (models/weights/model_weights.cc).
float DeviationOf(kernels::WeightFormat format) {
  if (format == kernels::WeightFormat::kE4m3) return 1.0f;
  return format == kernels::WeightFormat::kInt4 ? 112.0f : 0.02f;
}

// 0.5 to 1.5 times what makes 0.02 of the deviation of elements, of int4 less their zero points:
// 6.6.
float RandomScale(kernels::WeightFormat format, std::mt19937* engine) {
  const float share = 0.5f + static_cast<float>((*engine)()) * 0x1p-32f;
  if (format == kernels::WeightFormat::kE4m3) return 0.02f * share;
  const auto zero_point = static_cast<uint32_t>((*engine)() % 16);
  return std::bit_cast<float>(kernels::ScaleWord(0.02f / 6.6f * share, zero_point));
}

absl::Status FillScales(runtime::Stream& stream, kernels::WeightFormat format, uint64_t seed,
                        const runtime::DeviceBuffer& buffer) {
  std::mt19937 engine(static_cast<uint32_t>(seed));
  std::vector<float> scales(std::min(buffer.bytes() / sizeof(float), kDistinctScales));
  for (float& scale : scales) scale = RandomScale(format, &engine);
  const size_t block = scales.size() * sizeof(float);
  absl::Status status;
  for (size_t at = 0; at < buffer.bytes() && status.ok(); at += block)
    status = stream.CopyToDevice(buffer.as<std::byte>() + at, scales.data(),
                                 std::min(block, buffer.bytes() - at));
  // Also after an error: `scales` must not go while a copy still reads it.
  status.Update(stream.Synchronize());
  return status;
}

}  // namespace

absl::Status FillLinearPool(runtime::Stream& stream, const kernels::KernelSet& kernels,
                            kernels::WeightFormat format, bool packed, uint64_t seed,
                            const LinearPool& pool) {
  const bool scaled = kernels::IsScaled(format);
  const runtime::DType dtype = scaled ? runtime::DType::kE4m3 : kernels.dtype;
  REPRISE_RETURN_IF_ERROR(kernels::RandomFill(
      stream, kernels,
      {.out = pool.elements.data(),
       .dtype = dtype,
       .count = static_cast<int64_t>(pool.elements.bytes() / runtime::SizeOf(dtype)),
       .seed = seed,
       .stddev = DeviationOf(format),
       .packed = scaled && packed}));
  if (scaled) return FillScales(stream, format, seed, pool.scales);
  return stream.Synchronize();
}

}  // namespace reprise::tools
