// SPDX-License-Identifier: Apache-2.0
#include "tools/profile/server_profiler.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"

namespace reprise::tools {
namespace {

using engine::StepForm;

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
  ServerMeasurement(ServerRows& rows, const ServerNames& names, const ServerStamps* stamps,
                    const MeasuredSteps& measured, PointProfile& profile)
      : rows_(rows),
        names_(names),
        stamps_(stamps),
        measured_(measured),
        profile_(profile),
        point_(profile.point()),
        window_(WindowOf(point_)) {}

  absl::Status WarmUp(uint32_t steps) {
    for (uint32_t done = 0; done < steps; done += window_) {
      REPRISE_RETURN_IF_ERROR(Window(std::min(window_, steps - done), StepForm::kPlain,
                                     [] { return absl::OkStatus(); }));
      REPRISE_RETURN_IF_ERROR(measured_(0));
    }
    return absl::OkStatus();
  }

  // `unpadded`: also without padding.
  absl::Status Measure(uint32_t iterations, bool unpadded) {
    for (uint32_t done = 0; done < iterations; done += window_) {
      const uint32_t steps = std::min(window_, iterations - done);
      REPRISE_RETURN_IF_ERROR(Window(steps, StepForm::kPlain, [this] { return AddPlain(); }));
      REPRISE_RETURN_IF_ERROR(ReadTelemetry());
      if (stamps_ != nullptr)
        REPRISE_RETURN_IF_ERROR(
            Window(steps, StepForm::kProfiled, [this] { return AddStamped(); }));
      if (unpadded)
        REPRISE_RETURN_IF_ERROR(
            Window(steps, StepForm::kUnpadded, [this] { return AddUnpadded(); }));
      REPRISE_RETURN_IF_ERROR(measured_(stamps_ != nullptr ? 2 * steps : steps));
    }
    profile_.round_replay_ns.Add(replay_ns_.Percentile(50));
    profile_.round_steps.push_back(iterations);
    const auto all = static_cast<double>(profile_.plain.replay_ns.count());
    profile_.mean_context = (profile_.mean_context * (all - iterations) + context_) / all;
    if (stamps_ == nullptr) return absl::OkStatus();
    profile_.mean_attended = (profile_.mean_attended * (all - iterations) + attended_) / all;
    return CountWork(stamps_->spec, stamps_->dtype, stamps_->kv_dtype, &profile_);
  }

 private:
  // One unmeasured step that adds the rows, then `steps` whose contexts end at the point's.
  template <typename Take>
  absl::Status Window(uint32_t steps, StepForm form, Take take) {
    REPRISE_RETURN_IF_ERROR(
        rows_.AddAll(point_.context - std::min(steps, point_.context), &outcome_));
    for (uint32_t i = 0; i < steps; ++i) {
      REPRISE_RETURN_IF_ERROR(rows_.Continue(form, &outcome_));
      REPRISE_RETURN_IF_ERROR(CheckRows());
      REPRISE_RETURN_IF_ERROR(take());
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

  void AddTimes(StepTimes& times) const {
    times.replay_ns.Add(ReplayNs(outcome_));
    times.device_ns.Add(static_cast<double>(outcome_.ledger.device_ns));
    times.launch_ns.Add(static_cast<double>(outcome_.ledger.launch_ns));
  }

  absl::Status AddPlain() {
    AddTimes(profile_.plain);
    const auto wall = static_cast<double>(outcome_.round_trip_ns);
    profile_.wall_ns.Add(wall);
    profile_.overhead_ns.Add(std::max(0.0, wall - static_cast<double>(outcome_.ledger.device_ns)));
    replay_ns_.Add(ReplayNs(outcome_));
    const auto num_rows = static_cast<double>(outcome_.rows.size());
    for (const engine::RowOutcome& row : outcome_.rows) {
      context_ += row.context_length / num_rows;
      if (stamps_ != nullptr) attended_ += stamps_->spec.MeanVisible(row.context_length) / num_rows;
    }
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
    return absl::OkStatus();
  }

  absl::Status AddStamped() {
    AddTimes(profile_.profiled);
    const auto graph = stamps_->graphs.find(outcome_.report.graph);
    if (graph == stamps_->graphs.end() ||
        graph->second.launches.size() != outcome_.stamps_done_ns.size()) {
      return absl::InternalError(absl::StrCat(
          "a stamped step of ", NameOf(point_), ": got ", outcome_.stamps_done_ns.size(),
          " stamps of the graph \"", std::string(outcome_.report.graph),
          "\", allowed: one for each launch of a profiled graph"));
    }
    profile_.num_profiled_kernels = graph->second.num_kernel_nodes;
    return profile_.kernels.Add({.launches = graph->second.launches,
                                 .num_kernel_nodes = graph->second.num_kernel_nodes,
                                 .begin_ns = outcome_.stamps_begin_ns,
                                 .done_ns = outcome_.stamps_done_ns});
  }

  absl::Status AddUnpadded() {
    const engine::StepReport& report = outcome_.report;
    if (report.padding_rows != 0 || report.padding_tokens != 0) {
      return absl::InternalError(absl::StrCat("an unpadded step of ", NameOf(point_),
                                              ": got the graph \"", std::string(report.graph),
                                              "\" with padding, allowed: one of its size"));
    }
    AddTimes(profile_.unpadded);
    return absl::OkStatus();
  }

  absl::Status ReadTelemetry() {
    if (stamps_ == nullptr || stamps_->read_telemetry == nullptr) return absl::OkStatus();
    REPRISE_ASSIGN_OR_RETURN(const runtime::TelemetrySample sample, stamps_->read_telemetry());
    profile_.Add(sample);
    return absl::OkStatus();
  }

  ServerRows& rows_;
  const ServerNames& names_;
  const ServerStamps* stamps_;
  const MeasuredSteps& measured_;
  PointProfile& profile_;
  const StepPoint point_;
  const uint32_t window_;
  Samples replay_ns_;  // of this round
  // Tokens, over all plain steps of this round: in rows' KV, and what rows attended over.
  double context_ = 0;
  double attended_ = 0;
  StepOutcome outcome_;
};

}  // namespace

absl::StatusOr<std::vector<graphs::ProfiledLaunch>> ServerStamps::LaunchesOf(
    const StepPoint& point) const {
  const uint64_t size = point.size();
  const Graph* smallest = nullptr;
  for (const auto& [name, graph] : graphs) {
    if (graph.decode != point.is_decode() || graph.capacity < size) continue;
    if (smallest == nullptr || graph.capacity < smallest->capacity) smallest = &graph;
  }
  if (smallest != nullptr) return smallest->launches;
  return absl::NotFoundError(absl::StrCat("profiled graphs of the server: got none for ",
                                          NameOf(point), ", allowed: one for every point"));
}

bool ServerStamps::IsUnpadded(const StepPoint& point) const {
  const auto& sizes = point.is_decode() ? unpadded_rows : unpadded_tokens;
  return sizes.contains(point.size());
}

absl::Status ServerProfiler::Measure(const ProfileOptions& options, uint32_t round,
                                     const MeasuredSteps& measured, PointProfile* profile) {
  PointProfile next = *profile;
  ServerRows rows(&session_, next.point());
  REPRISE_RETURN_IF_ERROR(rows.Prefill([&measured] { return measured(0); }));
  ServerMeasurement measurement(rows, names_, stamps_, measured, next);
  REPRISE_RETURN_IF_ERROR(measurement.WarmUp(options.warmup));
  const bool unpadded = stamps_ != nullptr && stamps_->IsUnpadded(next.point());
  REPRISE_RETURN_IF_ERROR(measurement.Measure(StepsOfRound(options, round), unpadded));
  REPRISE_RETURN_IF_ERROR(rows.Release());
  *profile = std::move(next);
  return absl::OkStatus();
}

}  // namespace reprise::tools
