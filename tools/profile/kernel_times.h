// SPDX-License-Identifier: Apache-2.0
// KernelTimes: stamped steps, added up by op. A kernel's stamped time runs from the stamp before
// its own to its own (the first kernel's from its start), so the times of a step add up to its
// span.
#ifndef REPRISE_TOOLS_PROFILE_KERNEL_TIMES_H_
#define REPRISE_TOOLS_PROFILE_KERNEL_TIMES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/step_stamps.h"
#include "graphs/profiled_graphs.h"
#include "tools/samples.h"

namespace reprise::tools {

// All launches of one kernel with one shape.
struct OpTime {
  graphs::ProfiledLaunch launch;
  uint32_t count = 0;  // launches of a step
  Samples stamped_ns;  // by step: of all its launches together

  // Whether every layer launches it equally often.
  bool IsOfLayers(int64_t num_layers) const {
    return num_layers > 0 && count >= num_layers && count % num_layers == 0;
  }
};

class KernelTimes {
 public:
  // One stamped step; every step has the launches of the first. Errors: Internal when it has not,
  // or when its stamps do not ascend.
  absl::Status Add(const engine::StepStamps& stamps);

  // In the order of their first launch.
  const std::vector<OpTime>& ops() const { return ops_; }
  size_t num_launches() const { return op_of_launch_.size(); }
  // By launch: its place in ops(), and the mean of its stamped time.
  const std::vector<size_t>& op_of_launch() const { return op_of_launch_; }
  std::vector<double> MeanLaunchNs() const;
  // By launch: its kernel's name in the catalogue.
  std::vector<std::string> LaunchKernels() const;
  // By step: first kernel's start to last stamp.
  const Samples& span_ns() const { return span_ns_; }

  // The mean of an op's stamped time less what its stamps cost, at least 0.
  static double NetNs(const OpTime& op, double stamp_cost_ns);
  // Of all ops.
  double NetSumNs(double stamp_cost_ns) const;

 private:
  void Begin(const engine::StepStamps& stamps);

  std::vector<OpTime> ops_;
  std::vector<size_t> op_of_launch_;
  std::vector<double> launch_sum_ns_;  // by launch, of all steps
  std::vector<double> step_ns_;        // by op, of the step being added
  Samples span_ns_;
};

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_PROFILE_KERNEL_TIMES_H_
