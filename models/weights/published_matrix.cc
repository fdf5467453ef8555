// SPDX-License-Identifier: Apache-2.0
#include "models/weights/published_matrix.h"

#include <cmath>
#include <cstring>

#include "runtime/float_convert.h"

namespace reprise::models {
namespace {

// Of E2M1, by sign, two bits of exponent and one of mantissa.
constexpr float kE2m1[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                             -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

}  // namespace

int64_t PublishedMatrix::Outputs(int64_t inputs) const {
  const auto bytes = static_cast<int64_t>(source.size());
  if (form == MatrixForm::kMxfp4) return bytes / (inputs / 2);
  return bytes / (inputs * static_cast<int64_t>(runtime::SizeOf(dtype)));
}

const std::byte* PublishedMatrix::ReadOutput(int64_t output, int64_t inputs, runtime::DType to,
                                             Scratch& scratch) const {
  const int64_t outputs = Outputs(inputs);
  const int64_t row = Published(output, outputs);
  const auto count = static_cast<size_t>(inputs), at = static_cast<size_t>(row);
  const size_t element = runtime::SizeOf(dtype);
  if (form == MatrixForm::kOutputs && dtype == to) return source.data() + at * count * element;
  scratch.row.resize(count * runtime::SizeOf(to));
  std::byte* const out = scratch.row.data();
  if (form == MatrixForm::kMxfp4) {
    scratch.read.resize(count * sizeof(float));
    const std::byte* const pairs = source.data() + at * count / 2;
    const std::byte* const exponents = scales.data() + at * count / kMxfp4Block;
    float scale = 0.0f;
    for (size_t i = 0; i < count; ++i) {
      if (i % kMxfp4Block == 0)
        scale = std::ldexp(1.0f, static_cast<int>(exponents[i / kMxfp4Block]) - 127);
      const auto byte = static_cast<unsigned>(pairs[i / 2]);
      const float value = kE2m1[i % 2 == 0 ? byte & 15 : byte >> 4] * scale;  // exact
      std::memcpy(scratch.read.data() + i * sizeof(value), &value, sizeof(value));
    }
    runtime::ConvertElements(runtime::DType::kF32, to, scratch.read.data(), out, count);
    return out;
  }
  if (form == MatrixForm::kOutputs) {
    runtime::ConvertElements(dtype, to, source.data() + at * count * element, out, count);
    return out;
  }
  scratch.read.resize(count * element);
  const size_t stride = static_cast<size_t>(outputs) * element;
  for (size_t i = 0; i < count; ++i)
    std::memcpy(scratch.read.data() + i * element, source.data() + i * stride + at * element,
                element);
  runtime::ConvertElements(dtype, to, scratch.read.data(), out, count);
  return out;
}

}  // namespace reprise::models
