// SPDX-License-Identifier: Apache-2.0
// KernelTrace: steps whose kernels were traced (kernel_tracer.h), launch by launch. A step spans
// from its first kernel's begin to its last one's end. Kernels may overlap: a kernel's first blocks
// begin while the last ones of the kernel before it run. So of each launch:
//
//   duration  from its begin to its end
//   gap       before its begin, while no kernel of the step ran
//   exposed   of its duration what lies behind the end of all kernels before it
//
// Exposed times and gaps of a step add up to its span.
#ifndef REPRISE_TOOLS_PROFILE_KERNEL_TRACE_H_
#define REPRISE_TOOLS_PROFILE_KERNEL_TRACE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tools/profile/kernel_tracer.h"
#include "tools/samples.h"

namespace reprise::tools {

// In the mean of all steps.
struct LaunchTrace {
  double begin_ns = 0;  // behind the step's begin
  double duration_ns = 0;
  double gap_ns = 0;
  double exposed_ns = 0;
};

class KernelTrace {
 public:
  // The last `steps` graph launches among `traced` that have as many kernels as `names`, which are
  // those of a step's kernels in order; they are the same for every call. Other launches are left
  // out. Errors: Internal when there are fewer, or when kernels of one bear other names
  // or end before they begin.
  absl::Status Add(std::span<const TracedKernel> traced, std::span<const std::string> names,
                   size_t steps);

  bool empty() const { return span_ns_.empty(); }
  size_t num_steps() const { return span_ns_.count(); }
  // By launch.
  std::vector<LaunchTrace> MeanLaunches() const;
  // By step.
  const Samples& span_ns() const { return span_ns_; }
  const Samples& gap_ns() const { return gap_ns_; }          // of all launches together
  const Samples& overlap_ns() const { return overlap_ns_; }  // durations less exposed times

 private:
  void AddStep(std::span<const TracedKernel* const> kernels);

  std::vector<LaunchTrace> sums_;  // by launch
  Samples span_ns_, gap_ns_, overlap_ns_;
};

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_PROFILE_KERNEL_TRACE_H_
