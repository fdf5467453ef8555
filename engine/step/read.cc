// SPDX-License-Identifier: Apache-2.0
#include "engine/step/read.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"

namespace reprise::engine {
namespace {

using Clock = std::chrono::steady_clock;

// A LogprobReport as the caller gets it.
struct ReportView {
  float logprob = 0.0f;
  uint32_t rank = 0;
  TopRange top;
};

// Report `index` of a result-ring entry; its likeliest tokens go to the end of
// result->top_logprobs.
ReportView ReadReport(const kernels::ResultEntryLayout& layout, const std::byte* ring_entry,
                      uint32_t index, StepResult* result) {
  kernels::LogprobReport report;
  std::memcpy(&report, ring_entry + layout.reports + index * sizeof(report), sizeof(report));
  const TopRange top{.begin = static_cast<uint32_t>(result->top_logprobs.size()),
                     .count = report.num_top};
  for (uint32_t i = 0; i < report.num_top; ++i)
    result->top_logprobs.push_back(
        {.token = report.top_token[i], .logprob = report.top_logprob[i]});
  return {.logprob = report.logprob, .rank = report.rank, .top = top};
}

RowStatus StatusOf(uint32_t flags) {
  if ((flags & kernels::kResultStopped) != 0) return RowStatus::kStopped;
  return (flags & kernels::kResultPaused) != 0 ? RowStatus::kPaused : RowStatus::kRan;
}

}  // namespace

StepReader::StepReader(runtime::Stream& stream, const runtime::MappedRing& results,
                       const kernels::ResultEntryLayout& layout, uint32_t vocab_size,
                       uint64_t watchdog_timeout_ms)
    : stream_(stream),
      results_(results),
      layout_(layout),
      vocab_size_(vocab_size),
      watchdog_timeout_ms_(watchdog_timeout_ms) {}

absl::Status StepReader::Await(StepTicket ticket, uint64_t first_replay,
                               uint32_t num_replays) const {
  for (uint32_t i = 0; i < num_replays; ++i) {
    const absl::Status published = AwaitReplay(first_replay + i);
    if (published.ok()) continue;
    return absl::Status(published.code(), absl::StrCat("request ", ticket, ", step ", i + 1, " of ",
                                                       num_replays, ": ", published.message()));
  }
  return absl::OkStatus();
}

absl::Status StepReader::AwaitReplay(uint64_t replay) const {
  const auto published = [this, replay] { return results_.Poll(replay - 1) == replay; };
  const Clock::time_point give_up = Clock::now() + std::chrono::milliseconds(watchdog_timeout_ms_);
  // Until then the device is trusted; from then on it is asked how it is, now and again.
  while (!stream_.WaitUntil(published, Clock::now() + std::chrono::milliseconds(10))) {
    const absl::Status state = stream_.Query();
    if (!state.ok() && !absl::IsUnavailable(state))
      return absl::InternalError(absl::StrCat("device fault: ", state.message()));
    // Idle, and still nothing published: the step did not see its metadata.
    if (state.ok() && !published()) return absl::InternalError("ended without a result");
    if (Clock::now() > give_up)
      return absl::DeadlineExceededError(
          absl::StrCat("no result after ", watchdog_timeout_ms_, " ms"));
  }
  return absl::OkStatus();
}

void StepReader::Read(const InFlightStep& step, std::span<StepResult> results) const {
  for (size_t r = 0; r < results.size(); ++r) {
    StepResult& result = results[r];
    result.session = step.requests[r].session;
    result.sequence = step.requests[r].sequence;
    result.ledger = step.requests[r].ledger;
    result.rows.clear();
    result.steps.clear();
    result.accepted.clear();
    result.top_logprobs.clear();
    result.prompt_logprobs.clear();
    result.logits.clear();
  }
  for (uint32_t i = 0; i < step.num_replays; ++i) ReadReplay(step, i, results);
  const uint64_t begin_ns = HeaderOf(step, 0).begin_ns;
  const Clock::time_point now = Clock::now();
  for (size_t r = 0; r < results.size(); ++r) {
    StepResult& result = results[r];
    const uint32_t last = step.requests[r].num_replays - 1;
    result.report = result.steps.front().report;
    result.ledger.device_ns = HeaderOf(step, last).end_ns - begin_ns;
    result.ledger.total_ns = static_cast<uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(now - step.submitted).count());
  }
}

kernels::ResultHeader StepReader::HeaderOf(const InFlightStep& step, uint32_t replay) const {
  kernels::ResultHeader header;
  std::memcpy(&header, results_.HostEntry(step.first_replay - 1 + replay), sizeof(header));
  return header;
}

void StepReader::ReadReplay(const InFlightStep& step, uint32_t index,
                            std::span<StepResult> results) const {
  const InFlightReplay& replay = step.replay(index);
  const std::byte* const ring_entry = results_.HostEntry(step.first_replay - 1 + index);
  const kernels::ResultHeader header = HeaderOf(step, index);
  const std::byte* logits = ring_entry + layout_.logits;
  StepReport all{};  // what ran
  bool is_first = true;
  uint32_t num_reports = 0;
  // Of a request with fewer replays, rows have no room in later ones, and do nothing there.
  const auto has_replay = [&](size_t r) { return index < step.requests[r].num_replays; };
  for (size_t r = 0; r < results.size(); ++r) {
    if (!has_replay(r)) continue;
    const InFlightRequest::Range& rows = step.requests[r].rows(index);
    SingleStep& outcome = results[r].steps.emplace_back();
    outcome = {.num_rows = rows.count,
               .report = replay.report,
               .device_ns = header.end_ns - header.begin_ns};
    StepReport& report = outcome.report;
    report.attention_leaf = header.attention_leaf;
    report.rows = report.tokens = 0;
    report.is_first = std::exchange(is_first, false);
    for (uint32_t i = rows.begin; i < rows.begin + rows.count; ++i) {
      ReadRow(replay.rows[i], ring_entry, i, num_reports, logits, &results[r]);
      const RowOutcome& row = results[r].rows.back();
      num_reports += row.sampled ? 1 + replay.rows[i].num_drafts : 0;
      if (row.has_logits) logits += vocab_size_ * sizeof(float);
      if (row.status != RowStatus::kRan) continue;
      ++report.rows;
      report.tokens += replay.rows[i].num_tokens;
    }
    all.rows += report.rows;
    all.tokens += report.tokens;
  }
  for (size_t r = 0; r < results.size(); ++r) {
    if (!has_replay(r)) continue;
    StepReport& report = results[r].steps.back().report;
    report.other_rows = all.rows - report.rows;
    report.other_tokens = all.tokens - report.tokens;
    // Rows that did nothing had a place in the graph.
    report.padding_tokens += replay.report.tokens - all.tokens;
    if (replay.decode) report.padding_rows += replay.report.rows - all.rows;
    num_reports = ReadPromptLogprobs(replay, step.requests[r].rows(index), ring_entry, num_reports,
                                     &results[r]);
  }
}

void StepReader::ReadRow(const InFlightRow& row, const std::byte* ring_entry, uint32_t index,
                         uint32_t sampled, const std::byte* logits, StepResult* result) const {
  kernels::RowResult got;
  std::memcpy(&got, ring_entry + sizeof(kernels::ResultHeader) + index * sizeof(got), sizeof(got));
  const AcceptedRange accepted = ReadAccepted(got.flags, ring_entry, sampled, result);
  RowOutcome& out = result->rows.emplace_back();
  out = {.row = row.row,
         .status = StatusOf(got.flags),
         .sampled = (got.flags & kernels::kResultSampled) != 0,
         .token = got.token,
         .logprob = got.logprob,
         .context_length = got.context_length,
         .finish = static_cast<FinishReason>(got.flags >> kernels::kResultFinishShift & 0xffu),
         .accepted = accepted};
  if ((got.flags & kernels::kResultLogprobs) != 0) {
    const ReportView view = ReadReport(layout_, ring_entry, sampled + accepted.count, result);
    out.rank = view.rank;
    out.top = view.top;
  }
  if ((got.flags & kernels::kResultLogits) != 0) {
    const size_t begin = result->logits.size();
    result->logits.resize(begin + vocab_size_);
    std::memcpy(result->logits.data() + begin, logits, vocab_size_ * sizeof(float));
    out.has_logits = true;
  }
}

AcceptedRange StepReader::ReadAccepted(uint32_t flags, const std::byte* ring_entry,
                                       uint32_t sampled, StepResult* result) const {
  const AcceptedRange range{.begin = static_cast<uint32_t>(result->accepted.size()),
                            .count = flags >> kernels::kResultAcceptedShift};
  for (uint32_t i = 0; i < range.count; ++i) {
    kernels::SampledToken token;
    std::memcpy(&token, ring_entry + layout_.sampled + (sampled + i) * sizeof(token),
                sizeof(token));
    AcceptedToken& out = result->accepted.emplace_back();
    out = {.token = token.token, .logprob = token.logprob};
    if ((flags & kernels::kResultLogprobs) == 0) continue;
    const ReportView view = ReadReport(layout_, ring_entry, sampled + i, result);
    out.rank = view.rank;
    out.top = view.top;
  }
  return range;
}

uint32_t StepReader::ReadPromptLogprobs(const InFlightReplay& replay,
                                        const InFlightRequest::Range& rows,
                                        const std::byte* ring_entry, uint32_t first_report,
                                        StepResult* result) const {
  uint32_t report = first_report;
  const size_t first_outcome = result->rows.size() - rows.count;
  for (uint32_t i = 0; i < rows.count; ++i) {
    const InFlightRow& row = replay.rows[rows.begin + i];
    const RowOutcome& outcome = result->rows[first_outcome + i];
    if (outcome.status != RowStatus::kRan) continue;
    const uint32_t context_before = outcome.context_length - row.num_tokens;
    for (uint32_t j = 0; j < row.num_prompt_logprobs; ++j) {
      const ReportView view = ReadReport(layout_, ring_entry, report++, result);
      result->prompt_logprobs.push_back({.row = row.row,
                                         .position = context_before + j + 1,
                                         .logprob = view.logprob,
                                         .rank = view.rank,
                                         .top = view.top});
    }
  }
  return report;
}

}  // namespace reprise::engine
