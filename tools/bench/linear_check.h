// SPDX-License-Identifier: Apache-2.0
// What a linear layer must compute, in double precision on the host, for a sample of outputs: a
// plain loop from the contract in kernels/linear/linear.h, sharing no code with a kernel. A
// benchmark of wrong results is worth nothing.
#ifndef REPRISE_TOOLS_BENCH_LINEAR_CHECK_H_
#define REPRISE_TOOLS_BENCH_LINEAR_CHECK_H_

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "kernels/linear/linear_args.h"
#include "kernels/linear/linear_weights.h"
#include "runtime/device.h"
#include "runtime/dtype.h"

namespace reprise::tools {

// Of the output's type: what rounding an output to it may add, twice, as a share of the output.
double OutputRounding(runtime::DType dtype);
// What sums in f32 in any order may add, as a share of sqrt(sum_k (x_k w_k)^2), about the size that
// an output has. Matrix units, which multiply 16 bits, round their sums less carefully.
double SumRounding(runtime::DType dtype);

// An error is in units of what is allowed for its output: OutputRounding of the output, and
// SumRounding of its products. So 1 is allowed.
struct LinearCheckOutcome {
  uint32_t num_outputs = 0;  // that were compared
  double worst = 0;
};

// One call, and what it has left.
struct LinearCheckCall {
  std::string_view candidate, shape;  // for messages
  const kernels::LinearWeights& weights;
  const kernels::LinearArgs& args;
  uint32_t rows = 1;
  runtime::DType dtype = runtime::DType::kBf16;  // of activations, and of weights without scales
};

// Compares the first row, the last and up to four more; of each the first feature, the last and up
// to thirty more. Waits for `stream`. Errors: Internal names the worst output, its candidate,
// shape, row and feature, got and want where it is off by more than is allowed; the device's.
absl::StatusOr<LinearCheckOutcome> CheckLinear(runtime::Stream& stream, const LinearCheckCall& call,
                                               uint64_t seed);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_BENCH_LINEAR_CHECK_H_
