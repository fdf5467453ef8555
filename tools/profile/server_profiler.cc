// SPDX-License-Identifier: Apache-2.0
#include "tools/profile/server_profiler.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"

namespace reprise::tools {
namespace {

// Of a step by itself: no other is in flight.
double ReplayNs(const StepOutcome& outcome) {
  const engine::StepLedger& ledger = outcome.ledger;
  const uint64_t around =
      ledger.validate_ns + ledger.ring_ns + outcome.wire_ns + outcome.queue_ns + outcome.reply_ns;
  return static_cast<double>(ledger.total_ns - std::min(around, ledger.total_ns));
}

// Measures one point of one round, window by window.
class ServerMeasurement {
 public:
  ServerMeasurement(ServerRows& rows, const ServerNames& names, const MeasuredSteps& measured,
                    PointProfile& profile)
      : rows_(rows),
        names_(names),
        measured_(measured),
        profile_(profile),
        point_(profile.point()),
        window_(WindowOf(point_)) {}

  absl::Status WarmUp(uint32_t steps) {
    for (uint32_t done = 0; done < steps; done += window_) {
      REPRISE_RETURN_IF_ERROR(Window(std::min(window_, steps - done), /*measures=*/false));
      REPRISE_RETURN_IF_ERROR(measured_(0));
    }
    return absl::OkStatus();
  }

  absl::Status Measure(uint32_t iterations) {
    for (uint32_t done = 0; done < iterations; done += window_) {
      const uint32_t steps = std::min(window_, iterations - done);
      REPRISE_RETURN_IF_ERROR(Window(steps, /*measures=*/true));
      REPRISE_RETURN_IF_ERROR(measured_(steps));
    }
    profile_.round_replay_ns.Add(replay_ns_.Percentile(50));
    profile_.round_steps.push_back(iterations);
    const auto all = static_cast<double>(profile_.plain.replay_ns.count());
    profile_.mean_context = (profile_.mean_context * (all - iterations) + context_) / all;
    return absl::OkStatus();
  }

 private:
  absl::Status Window(uint32_t steps, bool measures) {
    REPRISE_RETURN_IF_ERROR(
        rows_.AddAll(point_.context - std::min(steps, point_.context), &outcome_));
    for (uint32_t i = 0; i < steps; ++i) {
      REPRISE_RETURN_IF_ERROR(rows_.Continue(&outcome_));
      REPRISE_RETURN_IF_ERROR(CheckRows());
      if (measures) Add();
    }
    return absl::OkStatus();
  }

  absl::Status CheckRows() const {
    const bool all = outcome_.rows.size() == point_.num_rows() &&
                     std::all_of(outcome_.rows.begin(), outcome_.rows.end(), [](const auto& row) {
                       return row.status == engine::RowStatus::kRan;
                     });
    if (all) return absl::OkStatus();
    return absl::InternalError(absl::StrCat("a step of ", NameOf(point_), ": got ",
                                            outcome_.rows.size(),
                                            " rows, some of which may not "
                                            "have run; allowed: ",
                                            point_.num_rows(), " that ran"));
  }

  void Add() {
    const double replay = ReplayNs(outcome_);
    const auto device = static_cast<double>(outcome_.ledger.device_ns);
    const auto wall = static_cast<double>(outcome_.round_trip_ns);
    profile_.plain.replay_ns.Add(replay);
    profile_.plain.device_ns.Add(device);
    profile_.plain.launch_ns.Add(static_cast<double>(outcome_.ledger.launch_ns));
    profile_.wall_ns.Add(wall);
    profile_.overhead_ns.Add(std::max(0.0, wall - device));
    replay_ns_.Add(replay);
    for (const engine::RowOutcome& row : outcome_.rows)
      context_ += row.context_length / static_cast<double>(outcome_.rows.size());
    const engine::StepReport& report = outcome_.report;
    if (report.other_rows > 0) ++profile_.num_shared_steps;
    profile_.graph = std::string(report.graph);
    profile_.padding_rows = report.padding_rows;
    profile_.padding_tokens = report.padding_tokens;
    const auto kernels = names_.num_kernels.find(report.graph);
    profile_.num_kernels = kernels == names_.num_kernels.end() ? 0 : kernels->second;
    const bool is_named = report.attention_tree == names_.attention_tree &&
                          report.attention_leaf < names_.batch_leaves.size();
    profile_.attention_leaf = is_named ? names_.batch_leaves[report.attention_leaf] : "";
  }

  ServerRows& rows_;
  const ServerNames& names_;
  const MeasuredSteps& measured_;
  PointProfile& profile_;
  const StepPoint point_;
  const uint32_t window_;
  Samples replay_ns_;   // of this round
  double context_ = 0;  // tokens, over all steps of this round
  StepOutcome outcome_;
};

}  // namespace

absl::Status ServerProfiler::Measure(const ProfileOptions& options, uint32_t round,
                                     const MeasuredSteps& measured, PointProfile* profile) {
  PointProfile next = *profile;
  ServerRows rows(&session_, next.point());
  REPRISE_RETURN_IF_ERROR(rows.Prefill([&measured] { return measured(0); }));
  ServerMeasurement measurement(rows, names_, measured, next);
  REPRISE_RETURN_IF_ERROR(measurement.WarmUp(options.warmup));
  REPRISE_RETURN_IF_ERROR(measurement.Measure(StepsOfRound(options, round)));
  REPRISE_RETURN_IF_ERROR(rows.Release());
  *profile = std::move(next);
  return absl::OkStatus();
}

}  // namespace reprise::tools
