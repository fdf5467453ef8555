// SPDX-License-Identifier: Apache-2.0
#include "engine/step/read.h"

#include <cstring>

#include "absl/strings/str_cat.h"

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

}  // namespace

StepReader::StepReader(runtime::Stream& stream, const runtime::MappedRing& results,
                       const kernels::ResultEntryLayout& layout, uint32_t vocab_size,
                       uint64_t watchdog_timeout_ms)
    : stream_(stream),
      results_(results),
      layout_(layout),
      vocab_size_(vocab_size),
      watchdog_timeout_ms_(watchdog_timeout_ms) {}

absl::Status StepReader::Await(StepTicket ticket) const {
  const auto published = [this, ticket] { return results_.Poll(ticket - 1) == ticket; };
  const Clock::time_point give_up = Clock::now() + std::chrono::milliseconds(watchdog_timeout_ms_);
  // Until then the device is trusted; from then on it is asked how it is, now and again.
  while (!stream_.WaitUntil(published, Clock::now() + std::chrono::milliseconds(10))) {
    const absl::Status state = stream_.Query();
    if (!state.ok() && !absl::IsUnavailable(state))
      return absl::InternalError(absl::StrCat("device fault: ", state.message()));
    // Idle, and still nothing published: the step did not see its metadata.
    if (state.ok() && !published())
      return absl::InternalError(absl::StrCat("step ", ticket, " ended without a result"));
    if (Clock::now() > give_up)
      return absl::DeadlineExceededError(
          absl::StrCat("step ", ticket, " has no result after ", watchdog_timeout_ms_, " ms"));
  }
  return absl::OkStatus();
}

void StepReader::Read(const InFlightStep& step, StepResult* result) const {
  const std::byte* ring_entry = results_.HostEntry(step.ticket - 1);
  kernels::ResultHeader header;
  std::memcpy(&header, ring_entry, sizeof(header));
  result->session = step.session;
  result->sequence = step.sequence;
  result->report = step.report;
  result->report.attention_leaf = header.attention_leaf;
  result->ledger = step.ledger;
  result->ledger.device_ns = header.end_ns - header.begin_ns;
  result->ledger.total_ns = static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - step.submitted).count());
  result->rows.clear();
  result->top_logprobs.clear();
  result->prompt_logprobs.clear();
  result->logits.clear();
  uint32_t num_sampled = 0;
  for (size_t i = 0; i < step.rows.size(); ++i) {
    ReadRow(step.rows[i], ring_entry, static_cast<uint32_t>(i), num_sampled, result);
    num_sampled += result->rows.back().sampled ? 1 : 0;
    if (result->rows.back().status != RowStatus::kStopped) continue;
    // It had a place in the graph and did nothing there.
    StepReport& report = result->report;
    --report.rows;
    report.tokens -= step.rows[i].num_tokens;
    report.padding_tokens += step.rows[i].num_tokens;
    report.padding_rows += step.decode ? 1 : 0;
  }
  ReadPromptLogprobs(step, ring_entry, num_sampled, result);
}

void StepReader::ReadRow(const InFlightRow& row, const std::byte* ring_entry, uint32_t index,
                         uint32_t report, StepResult* result) const {
  kernels::RowResult got;
  std::memcpy(&got, ring_entry + sizeof(kernels::ResultHeader) + index * sizeof(got), sizeof(got));
  RowOutcome& out = result->rows.emplace_back();
  out = {
      .row = row.row,
      .status = (got.flags & kernels::kResultStopped) != 0 ? RowStatus::kStopped : RowStatus::kRan,
      .sampled = (got.flags & kernels::kResultSampled) != 0,
      .token = got.token,
      .logprob = got.logprob,
      .context_length = got.context_length,
      .finish = static_cast<FinishReason>(got.flags >> kernels::kResultFinishShift)};
  if ((got.flags & kernels::kResultLogprobs) != 0) {
    const ReportView view = ReadReport(layout_, ring_entry, report, result);
    out.rank = view.rank;
    out.top = view.top;
  }
  if ((got.flags & kernels::kResultLogits) != 0) {
    const size_t begin = result->logits.size();
    result->logits.resize(begin + vocab_size_);
    std::memcpy(result->logits.data() + begin, ring_entry + layout_.logits + begin * sizeof(float),
                vocab_size_ * sizeof(float));
    out.has_logits = true;
  }
}

void StepReader::ReadPromptLogprobs(const InFlightStep& step, const std::byte* ring_entry,
                                    uint32_t first_report, StepResult* result) const {
  uint32_t report = first_report;
  for (size_t i = 0; i < step.rows.size(); ++i) {
    const InFlightRow& row = step.rows[i];
    if (result->rows[i].status == RowStatus::kStopped) continue;
    for (uint32_t j = 0; j < row.num_prompt_logprobs; ++j) {
      const ReportView view = ReadReport(layout_, ring_entry, report++, result);
      result->prompt_logprobs.push_back({.row = row.row,
                                         .position = row.context_before + j + 1,
                                         .logprob = view.logprob,
                                         .rank = view.rank,
                                         .top = view.top});
    }
  }
}

}  // namespace reprise::engine
