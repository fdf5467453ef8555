// SPDX-License-Identifier: Apache-2.0
// TuneLinear: for every shape and number of rows, measures the kernels whose bits are those of the
// built-in choice against it, and says where one is faster. Knows no device: times come from a
// LinearTimer. Prints nothing. docs/tune_linear.md has the method.
#ifndef REPRISE_TOOLS_TUNE_LINEAR_TUNER_H_
#define REPRISE_TOOLS_TUNE_LINEAR_TUNER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/kernel_instance.h"
#include "kernels/linear/linear_table.h"
#include "tools/bench/linear_shapes.h"
#include "tools/samples.h"
#include "tools/tune/linear_timer.h"

namespace reprise::tools {

struct LinearTunerOptions {
  uint32_t rounds = 5;   // of each shape with each number of rows
  uint32_t replays = 5;  // of every kernel in a round, one behind the other
  uint64_t seed = 1;     // of the order of kernels in a round
};

struct LinearKernelTimes {
  const kernels::KernelInstance* kernel = nullptr;
  Samples ns;  // of one call, by replay

  double MedianNs() const { return ns.Percentile(50); }
  double SpreadNs() const { return ns.Percentile(90) - ns.Percentile(10); }
};

// A shape with so many rows.
struct LinearTuneCell {
  size_t shape = 0;
  uint32_t first_rows = 1, last_rows = 1;       // it was measured with the last
  std::vector<LinearKernelTimes> kernels = {};  // the built-in one first; it alone has no times
  size_t chosen = 0;

  const LinearKernelTimes& built_in() const { return kernels[0]; }
  const LinearKernelTimes& best() const { return kernels[chosen]; }
  // What the chosen one takes off the time of the built-in one, as a share of it.
  double Gain() const { return 1 - best().MedianNs() / built_in().MedianNs(); }
};

struct TunedLinear {
  std::vector<LinearTuneCell> cells;  // by shape, ascending rows
  // Of the cells in which a kernel was faster.
  kernels::LinearTable TableOf(const std::vector<LinearShape>& shapes) const;
};

// Where the tuner stands.
struct LinearTuneProgress {
  size_t done = 0, total = 0;  // cells
  size_t shape = 0;
  uint32_t rows = 0;
};
// An error ends the tuning: a signal's.
using LinearTuneProgressFn = std::function<absl::Status(const LinearTuneProgress&)>;

// rows: any order. A cell reaches down from its number of rows to behind the next smaller one, but
// not beyond those for which the built-in choice is the kernel that it was measured against. A
// kernel is chosen where its median is below that of the built-in choice by more than either of the
// two spreads. Errors: the timer's; `progress`'s, which is asked before every round.
absl::StatusOr<TunedLinear> TuneLinear(size_t num_shapes, std::vector<uint32_t> rows,
                                       const LinearTunerOptions& options, LinearTimer* timer,
                                       const LinearTuneProgressFn& progress);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_TUNE_LINEAR_TUNER_H_
