// SPDX-License-Identifier: Apache-2.0
#include "tools/sched/monitor.h"

#include "absl/strings/str_cat.h"
#include "tools/units.h"

namespace reprise::tools {

void Monitor::OnStep(const StepOutcome& outcome, const FinishedStep& step) {
  if (console_->has_progress()) graph_ = outcome.report.graph;
  stats_->AddStep(outcome, step);
}

void Monitor::OnState(const DriverState& state) {
  if (!console_->has_progress()) return;
  const double seconds = static_cast<double>(state.now_ns) * 1e-9;
  const auto done = static_cast<double>(state.num_finished);
  console_->Progress(absl::StrCat(
      ProgressBar(done, static_cast<double>(state.num_requests), 20, *console_), " ",
      state.num_finished, "/", state.num_requests, " done, ", state.num_resident, " running, ",
      state.num_waiting, " waiting, ", FormatCount(state.num_tokens), " tokens, ",
      FormatRate(seconds > 0 ? static_cast<double>(state.num_tokens) / seconds : 0.0), ", ",
      graph_.empty() ? "no step yet" : graph_));
}

}  // namespace reprise::tools
