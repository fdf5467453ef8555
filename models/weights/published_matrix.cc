// SPDX-License-Identifier: Apache-2.0
#include "models/weights/published_matrix.h"

#include <cstring>

#include "runtime/float_convert.h"

namespace reprise::models {
int64_t PublishedMatrix::Outputs(int64_t inputs) const {
  const auto bytes = static_cast<int64_t>(source.size());
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
