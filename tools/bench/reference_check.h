// SPDX-License-Identifier: Apache-2.0
// What attention must compute, in double precision on the host, for a sample of a cell's outputs:
// plain loops from the contract in kernels/attention/attention.h, sharing no code with a kernel. A
// benchmark of wrong results is worth nothing.
#ifndef REPRISE_TOOLS_BENCH_REFERENCE_CHECK_H_
#define REPRISE_TOOLS_BENCH_REFERENCE_CHECK_H_

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "runtime/device.h"
#include "runtime/dtype.h"
#include "tools/bench/attention_buffers.h"
#include "tools/bench/batches.h"

namespace reprise::tools {

// Errors are in units of sum_p softmax_p |v_p|, the size that an output could have, so that one
// number bounds those of every length.
struct CheckOutcome {
  uint32_t num_pairs = 0;  // (query token, head) that were compared, all elements of each
  double worst = 0;
  double allowed = 0;
};

// Twice what rounding probabilities and the output to `dtype` may add; for f32 what sums of f32 in
// any order over long rows may.
double AllowedError(runtime::DType dtype);

// Compares what lies in the buffers' output, as a call 0 on the cell that was loaded last has left
// it. Rows: the first, the last, the longest and up to four more; their last query token and,
// where there are several, the first and another; two heads each. Waits for `stream`. Errors:
// Internal names the worst element, its candidate, cell, row, token and head, got and want where it
// is off by more than is allowed; the device's.
absl::StatusOr<CheckOutcome> CheckAgainstReference(runtime::Stream& stream,
                                                   const AttentionBuffers& buffers,
                                                   const AttentionShape& shape,
                                                   const BenchCell& cell,
                                                   std::string_view candidate, uint64_t seed);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_BENCH_REFERENCE_CHECK_H_
