// SPDX-License-Identifier: Apache-2.0
// PublishedMatrix: a matrix as a checkpoint stores it, read output by output. It is part of
// weight_upload.cc's implementation, and of what declares weights.
#ifndef REPRISE_MODELS_WEIGHTS_PUBLISHED_MATRIX_H_
#define REPRISE_MODELS_WEIGHTS_PUBLISHED_MATRIX_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "models/config/weight_quantization.h"
#include "runtime/dtype.h"

namespace reprise::models {

enum class MatrixForm : uint8_t {
  kOutputs,  // [outputs, inputs]
  kInputs,   // [inputs, outputs]
  // kMxfp4Block inputs share a scale: [outputs, inputs / 32, 16] bytes of two E2M1 each, that of
  // the even input in the lower half, and [outputs, inputs / 32] bytes, each the exponent of a
  // power of two, its bias 127. Source: OCP Microscaling Formats (MX), version 1.0. They are read
  // as words of 4-bit elements, WeightStorage::kPackedInt4.
  kMxfp4,
};
inline constexpr std::byte kMxfp4NotANumber{0xff};  // of a scale

// The order of outputs that are heads of which rope turns the first `turned` elements, those of a
// pair half of them apart. Kernels turn whole heads, pairs half a head apart: what is turned then
// lies in front of each half, and what is not behind it, where frequencies are 0. Products of q and
// k do not depend on the order.
struct HeadOrder {
  int64_t head_dim = 0;  // 0: outputs are as they are published
  int64_t turned = 0;
  // Outputs from this one on are as they are published: v in one tensor with q and k. 0: none.
  int64_t end = 0;

  bool is_published() const { return head_dim == 0; }
  // The published output that is output `output` for kernels.
  int64_t Published(int64_t output) const {
    if (is_published() || (end != 0 && output >= end)) return output;
    const int64_t half = head_dim / 2, front = turned / 2;
    const int64_t of_head = output % head_dim, i = of_head % half, second = of_head / half;
    return output - of_head +
           (i < front ? second * front + i : turned + second * (half - front) + i - front);
  }
};

// Where output `output` stands where those of the first and of the second half of `outputs` are
// stored in turns.
constexpr int64_t AlternateOutput(int64_t output, int64_t outputs) {
  return output < outputs / 2 ? 2 * output : 2 * (output - outputs / 2) + 1;
}

struct PublishedMatrix {
  runtime::DType dtype = runtime::DType::kF32;  // of elements
  std::span<const std::byte> source = {};       // any alignment
  std::string name = {};                        // for errors
  MatrixForm form = MatrixForm::kOutputs;       // but for kMxfp4
  // Whether outputs of the first and of the second half are stored in turns.
  bool alternates = false;
  HeadOrder heads = {};

  // Whether outputs lie one behind the other, as they are counted.
  bool is_plain() const {
    return form == MatrixForm::kOutputs && !alternates && heads.is_published();
  }
  int64_t Outputs(int64_t inputs) const;
  // Where output `output` stands among `outputs` as they are published.
  int64_t Published(int64_t output, int64_t outputs) const {
    return alternates ? AlternateOutput(output, outputs) : heads.Published(output);
  }
  struct Scratch {
    std::vector<std::byte> row, read;
  };
  // Output `output` as `to`, [inputs], any alignment: where it lies in the source, if it lies there
  // so, else in `scratch`, which is the caller's, for any number of calls.
  const std::byte* ReadOutput(int64_t output, int64_t inputs, runtime::DType to,
                              Scratch& scratch) const;
};

}  // namespace reprise::models

#endif  // REPRISE_MODELS_WEIGHTS_PUBLISHED_MATRIX_H_
