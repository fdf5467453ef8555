// SPDX-License-Identifier: Apache-2.0
#include "service/wire/result_to_wire.h"

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "google/protobuf/repeated_field.h"
#include "service/message_bounds.h"

namespace reprise::service {
namespace {

v1::RowStatus RowStatusToWire(engine::RowStatus status) {
  switch (status) {
    case engine::RowStatus::kRan:
      return v1::ROW_STATUS_RAN;
    case engine::RowStatus::kStopped:
      return v1::ROW_STATUS_STOPPED;
    case engine::RowStatus::kPaused:
      return v1::ROW_STATUS_PAUSED;
  }
  return v1::ROW_STATUS_UNSPECIFIED;
}

// The wire's finish reasons have the engine's numbers.
constexpr bool SameNumber(engine::FinishReason ours, v1::FinishReason theirs) {
  return static_cast<int>(ours) == static_cast<int>(theirs);
}
static_assert(SameNumber(engine::FinishReason::kNone, v1::FINISH_REASON_UNSPECIFIED));
static_assert(SameNumber(engine::FinishReason::kStopToken, v1::FINISH_REASON_STOP_TOKEN));
static_assert(SameNumber(engine::FinishReason::kLength, v1::FINISH_REASON_LENGTH));
static_assert(SameNumber(engine::FinishReason::kNoCandidate, v1::FINISH_REASON_NO_CANDIDATE));

// The likeliest tokens of one entry. Columns: a message that has them.
template <typename Columns>
void TopToWire(const engine::StepResult& result, const engine::TopRange& range, Columns* wire) {
  wire->add_num_top(range.count);
  for (uint32_t i = 0; i < range.count; ++i) {
    const engine::TokenLogprob& top = result.top_logprobs[range.begin + i];
    wire->add_top_token(top.token);
    wire->add_top_logprob(top.logprob);
  }
}

// Columns that a step fills only where some row needs them.
void RareColumnsToWire(const engine::StepResult& result, v1::RowResults* wire) {
  bool finishes = false, ranks = false;
  for (const engine::RowOutcome& row : result.rows) {
    finishes |= row.finish != engine::FinishReason::kNone;
    ranks |= row.rank != 0;
  }
  for (const engine::RowOutcome& row : result.rows) {
    if (finishes) wire->add_finish_reason(static_cast<v1::FinishReason>(row.finish));
    if (row.has_logits) wire->add_logits_row(row.row);
    if (!ranks) continue;
    wire->add_rank(row.rank);
    TopToWire(result, row.top, wire);
  }
  if (!result.logits.empty())
    wire->mutable_logits()->Add(result.logits.begin(), result.logits.end());
}

void AcceptedToWire(const engine::StepResult& result, v1::AcceptedDrafts* wire) {
  bool ranks = false;
  for (const engine::AcceptedToken& token : result.accepted) ranks |= token.rank != 0;
  for (const engine::RowOutcome& row : result.rows) wire->add_count(row.accepted.count);
  for (const engine::AcceptedToken& token : result.accepted) {
    wire->add_token(token.token);
    wire->add_logprob(token.logprob);
    if (!ranks) continue;
    wire->add_rank(token.rank);
    TopToWire(result, token.top, wire);
  }
}

void PromptLogprobsToWire(const engine::StepResult& result, v1::PromptLogprobs* wire) {
  wire->Clear();
  for (const engine::PromptLogprob& token : result.prompt_logprobs) {
    wire->add_row(token.row);
    wire->add_position(token.position);
    wire->add_logprob(token.logprob);
    wire->add_rank(token.rank);
    TopToWire(result, token.top, wire);
  }
}

// The column's values, so many of them.
template <typename T>
T* Column(int count, google::protobuf::RepeatedField<T>* column) {
  column->Resize(count, T{});  // keeps its capacity
  return column->mutable_data();
}

void RowsToWire(const engine::StepResult& result, v1::RowResults* wire) {
  const std::vector<engine::RowOutcome>& rows = result.rows;
  wire->Clear();  // keeps the columns' capacity
  const int count = static_cast<int>(rows.size());
  uint32_t* const ids = Column(count, wire->mutable_row());
  int* const status = Column(count, wire->mutable_status());
  bool* const sampled = Column(count, wire->mutable_sampled());
  uint32_t* const tokens = Column(count, wire->mutable_token());
  float* const logprobs = Column(count, wire->mutable_logprob());
  uint32_t* const contexts = Column(count, wire->mutable_context_length());
  for (int i = 0; i < count; ++i) {
    const engine::RowOutcome& row = rows[static_cast<size_t>(i)];
    ids[i] = row.row;
    status[i] = RowStatusToWire(row.status);
    sampled[i] = row.sampled;
    tokens[i] = row.sampled ? row.token : 0;
    logprobs[i] = row.sampled ? row.logprob : 0.0f;
    contexts[i] = row.context_length;
  }
  RareColumnsToWire(result, wire);
  if (!result.accepted.empty()) AcceptedToWire(result, wire->mutable_accepted());
}

void ReportToWire(const engine::StepReport& report, v1::StepReport* wire) {
  wire->set_graph(report.graph.data(), report.graph.size());
  wire->set_replayed(report.replayed);
  wire->set_rows(report.rows);
  wire->set_tokens(report.tokens);
  wire->set_padding_rows(report.padding_rows);
  wire->set_padding_tokens(report.padding_tokens);
  wire->set_attention_tree(report.attention_tree);
  wire->set_attention_leaf(report.attention_leaf);
  wire->set_other_rows(report.other_rows);
  wire->set_other_tokens(report.other_tokens);
}

// Of a request that ran several; of one step the response itself says all.
void StepsToWire(const engine::StepResult& result, v1::StepResponse* wire) {
  wire->clear_steps();
  if (result.steps.size() <= 1) return;
  for (const engine::SingleStep& step : result.steps) {
    v1::SingleStep* single = wire->add_steps();
    single->set_num_rows(step.num_rows);
    ReportToWire(step.report, single->mutable_report());
    single->set_device_ns(step.device_ns);
  }
}

// Rows that were refused alone.
void RowErrorsToWire(const engine::StepResult& result, v1::StepResponse* wire) {
  wire->clear_row_errors();
  for (const engine::RefusedRow& refused : result.refused_rows) {
    const absl::string_view message = refused.status.message().substr(0, kMaxRowErrorBytes);
    v1::RowError* error = wire->add_row_errors();
    error->set_row(refused.row);
    error->set_code(static_cast<int32_t>(refused.status.code()));
    error->set_message(message.data(), message.size());
  }
}

template <typename Wire>
void SetTrace(const TraceId& trace, Wire* wire) {
  if (trace.empty()) return wire->clear_trace_id();
  wire->set_trace_id(trace.bytes().data(), trace.bytes().size());
}

}  // namespace

void ResultToWire(const engine::StepResult& result, const StepTimes& times, bool omit_rows,
                  v1::StepResponse* wire) {
  wire->set_sequence(result.sequence);
  if (omit_rows) {
    wire->clear_rows();
  } else {
    RowsToWire(result, wire->mutable_rows());
  }
  if (omit_rows || result.prompt_logprobs.empty()) {
    wire->clear_prompt_logprobs();
  } else {
    PromptLogprobsToWire(result, wire->mutable_prompt_logprobs());
  }
  ReportToWire(result.report, wire->mutable_report());
  StepsToWire(result, wire);
  RowErrorsToWire(result, wire);
  v1::StepLedger* ledger = wire->mutable_ledger();
  ledger->set_wire_ns(times.converted_ns - times.received_ns);
  ledger->set_queue_ns(times.submitted_ns - times.converted_ns);
  ledger->set_validate_ns(result.ledger.validate_ns);
  ledger->set_ring_ns(result.ledger.ring_ns);
  ledger->set_launch_ns(result.ledger.launch_ns);
  ledger->set_device_ns(result.ledger.device_ns);
}

void StampsToWire(const engine::StepStamps* stamps, v1::StepResponse* wire) {
  if (stamps == nullptr) return wire->clear_stamps();
  v1::StepStamps* told = wire->mutable_stamps();
  told->set_begin_ns(stamps->begin_ns);
  told->clear_took_ns();
  uint64_t before = stamps->begin_ns;
  for (const uint64_t done : stamps->done_ns) {
    told->add_took_ns(done - before);
    before = done;
  }
}

void SetReplyTimes(const StepTimes& times, uint64_t replied_ns, v1::StepLedger* ledger) {
  ledger->set_reply_ns(replied_ns - times.result_ns);
  ledger->set_total_ns(replied_ns - times.received_ns);
}

void ErrorToWire(uint64_t sequence, const absl::Status& status, v1::StepError* wire) {
  wire->set_sequence(sequence);
  wire->set_code(static_cast<int32_t>(status.code()));
  wire->set_message(std::string(status.message()));
}

void TraceToWire(const TraceId& trace, v1::StepResponse* wire) { SetTrace(trace, wire); }

void TraceToWire(const TraceId& trace, v1::StepError* wire) { SetTrace(trace, wire); }

}  // namespace reprise::service
