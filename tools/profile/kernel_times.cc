// SPDX-License-Identifier: Apache-2.0
#include "tools/profile/kernel_times.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace reprise::tools {

void KernelTimes::Begin(const engine::StepStamps& stamps) {
  for (const graphs::ProfiledLaunch& launch : stamps.launches) {
    auto op = std::find_if(ops_.begin(), ops_.end(),
                           [&](const OpTime& known) { return known.launch == launch; });
    if (op == ops_.end()) {
      ops_.push_back({.launch = launch, .count = 0, .stamped_ns = {}});
      op = ops_.end() - 1;
    }
    ++op->count;
    op_of_launch_.push_back(static_cast<size_t>(op - ops_.begin()));
  }
  launch_sum_ns_.assign(op_of_launch_.size(), 0.0);
}

absl::Status KernelTimes::Add(const engine::StepStamps& stamps) {
  if (op_of_launch_.empty()) Begin(stamps);
  if (stamps.done_ns.size() != op_of_launch_.size() || stamps.done_ns.empty()) {
    return absl::InternalError(absl::StrCat("a stamped step has ", stamps.done_ns.size(),
                                            " launches; the first had ", op_of_launch_.size()));
  }
  step_ns_.assign(ops_.size(), 0.0);
  uint64_t before = stamps.begin_ns;
  for (size_t i = 0; i < stamps.done_ns.size(); ++i) {
    const uint64_t done = stamps.done_ns[i];
    if (done < before) {
      return absl::InternalError(
          absl::StrCat("stamp ", i, " of a step is ", before - done, " ns before the one before"));
    }
    step_ns_[op_of_launch_[i]] += static_cast<double>(done - before);
    before = done;
  }
  before = stamps.begin_ns;
  for (size_t i = 0; i < stamps.done_ns.size(); ++i) {
    launch_sum_ns_[i] += static_cast<double>(stamps.done_ns[i] - before);
    before = stamps.done_ns[i];
  }
  for (size_t i = 0; i < ops_.size(); ++i) ops_[i].stamped_ns.Add(step_ns_[i]);
  span_ns_.Add(static_cast<double>(before - stamps.begin_ns));
  return absl::OkStatus();
}

std::vector<double> KernelTimes::MeanLaunchNs() const {
  std::vector<double> means = launch_sum_ns_;
  for (double& mean : means) mean /= static_cast<double>(span_ns_.count());
  return means;
}

std::vector<std::string> KernelTimes::LaunchKernels() const {
  std::vector<std::string> kernels;
  kernels.reserve(op_of_launch_.size());
  for (const size_t op : op_of_launch_) kernels.push_back(ops_[op].launch.kernel);
  return kernels;
}

double KernelTimes::NetNs(const OpTime& op, double stamp_cost_ns) {
  return std::max(0.0, op.stamped_ns.Mean() - op.count * stamp_cost_ns);
}

double KernelTimes::NetSumNs(double stamp_cost_ns) const {
  double sum = 0;
  for (const OpTime& op : ops_) sum += NetNs(op, stamp_cost_ns);
  return sum;
}

}  // namespace reprise::tools
