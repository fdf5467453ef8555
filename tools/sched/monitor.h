// SPDX-License-Identifier: Apache-2.0
// Monitor: what a user sees of a run while it goes on: text and a progress line. It passes steps on
// to Stats, and requests that have finished to ResultLines.
#ifndef REPRISE_TOOLS_SCHED_MONITOR_H_
#define REPRISE_TOOLS_SCHED_MONITOR_H_

#include <optional>
#include <string>

#include "tools/console.h"
#include "tools/sched/driver.h"
#include "tools/sched/result_lines.h"
#include "tools/sched/stats.h"
#include "tools/sched/transcript.h"

namespace reprise::tools {

class Monitor : public DriverListener {
 public:
  // All must outlive the monitor. Without `transcript` no text is shown.
  Monitor(Console* console, Stats* stats, ResultLines* lines, std::optional<Transcript> transcript)
      : console_(console), stats_(stats), lines_(lines), transcript_(std::move(transcript)) {}

  void OnArrival(const Request& request) override {
    if (transcript_) transcript_->OnArrival(request);
  }
  void OnToken(const Request& request, size_t index) override {
    if (transcript_) transcript_->OnToken(request, index);
  }
  void OnFinished(const Request& request) override {
    lines_->Add(request);
    if (transcript_) transcript_->OnFinished(request);
  }
  void OnStep(const StepOutcome& outcome, const FinishedStep& step) override;
  void OnState(const DriverState& state) override;

 private:
  Console* console_;
  Stats* stats_;
  ResultLines* lines_;
  std::optional<Transcript> transcript_;
  std::string graph_;  // of the last step
};

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_SCHED_MONITOR_H_
