// SPDX-License-Identifier: Apache-2.0
// Results of reprise.h: what a step gave, as columns.
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "capi/call.h"
#include "capi/handles.h"
#include "capi/reprise.h"
#include "engine/step_result.h"
#include "runtime/status_macros.h"

namespace {

using reprise::engine::StepResult;

// A column: `field(element)` of each of `elements`. Keeps its capacity.
template <typename T, typename Elements, typename Field>
void Column(const Elements& elements, const Field& field, std::vector<T>* column) {
  column->clear();
  for (const auto& element : elements) column->push_back(field(element));
}

void FillRows(const StepResult& result, reprise_result::Columns* to) {
  const auto& rows = result.rows;
  Column(
      rows, [](const auto& r) { return r.row; }, &to->row);
  Column(
      rows, [](const auto& r) { return static_cast<int32_t>(r.status); }, &to->status);
  Column(
      rows, [](const auto& r) { return uint8_t{r.sampled}; }, &to->sampled);
  Column(
      rows, [](const auto& r) { return r.token; }, &to->token);
  Column(
      rows, [](const auto& r) { return r.logprob; }, &to->logprob);
  Column(
      rows, [](const auto& r) { return r.context_length; }, &to->context_length);
  Column(
      rows, [](const auto& r) { return static_cast<int32_t>(r.finish); }, &to->finish);
  Column(
      rows, [](const auto& r) { return r.rank; }, &to->rank);
  Column(
      rows, [](const auto& r) { return r.top.begin; }, &to->top_begin);
  Column(
      rows, [](const auto& r) { return r.top.count; }, &to->top_count);
  Column(
      rows, [](const auto& r) { return uint8_t{r.has_logits}; }, &to->has_logits);
  Column(
      rows, [](const auto& r) { return r.accepted.begin; }, &to->accepted_begin);
  Column(
      rows, [](const auto& r) { return r.accepted.count; }, &to->accepted_count);
}

void FillAccepted(const StepResult& result, reprise_result::Columns* to) {
  const auto& accepted = result.accepted;
  Column(
      accepted, [](const auto& a) { return a.token; }, &to->accepted_token);
  Column(
      accepted, [](const auto& a) { return a.logprob; }, &to->accepted_logprob);
  Column(
      accepted, [](const auto& a) { return a.rank; }, &to->accepted_rank);
  Column(
      accepted, [](const auto& a) { return a.top.begin; }, &to->accepted_top_begin);
  Column(
      accepted, [](const auto& a) { return a.top.count; }, &to->accepted_top_count);
}

void FillLogprobs(const StepResult& result, reprise_result::Columns* to) {
  Column(
      result.top_logprobs, [](const auto& t) { return t.token; }, &to->top_token);
  Column(
      result.top_logprobs, [](const auto& t) { return t.logprob; }, &to->top_logprob);
  const auto& prompt = result.prompt_logprobs;
  Column(
      prompt, [](const auto& p) { return p.row; }, &to->prompt_row);
  Column(
      prompt, [](const auto& p) { return p.position; }, &to->prompt_position);
  Column(
      prompt, [](const auto& p) { return p.logprob; }, &to->prompt_logprob);
  Column(
      prompt, [](const auto& p) { return p.rank; }, &to->prompt_rank);
  Column(
      prompt, [](const auto& p) { return p.top.begin; }, &to->prompt_top_begin);
  Column(
      prompt, [](const auto& p) { return p.top.count; }, &to->prompt_top_count);
}

void FillSteps(const StepResult& result, reprise_result::Columns* to) {
  const auto& steps = result.steps;
  Column(
      steps, [](const auto& s) { return s.num_rows; }, &to->step_num_rows);
  Column(
      steps, [](const auto& s) { return std::string(s.report.graph); }, &to->step_graph);
  Column(
      to->step_graph, [](const auto& name) { return name.c_str(); }, &to->step_graph_text);
  Column(
      steps, [](const auto& s) { return uint8_t{s.report.replayed}; }, &to->step_replayed);
  Column(
      steps, [](const auto& s) { return s.report.padding_rows; }, &to->step_padding_rows);
  Column(
      steps, [](const auto& s) { return s.report.padding_tokens; }, &to->step_padding_tokens);
  Column(
      steps, [](const auto& s) { return s.device_ns; }, &to->step_device_ns);
  Column(
      steps, [](const auto& s) { return s.report.tokens; }, &to->step_query_tokens);
  Column(
      steps, [](const auto& s) { return s.report.attention_tree; }, &to->step_attention_tree);
}

void FillRefusals(const StepResult& result, reprise_result::Columns* to) {
  const auto& refused = result.refused_rows;
  Column(
      refused, [](const auto& r) { return r.row; }, &to->refused_row);
  Column(
      refused, [](const auto& r) { return static_cast<int32_t>(r.status.code()); },
      &to->refused_code);
  Column(
      refused, [](const auto& r) { return std::string(r.status.message()); }, &to->refused_message);
  Column(
      to->refused_message, [](const auto& text) { return text.c_str(); },
      &to->refused_message_text);
}

reprise_result_view ViewOf(const reprise_result& result) {
  const reprise_result::Columns& from = result.columns;
  reprise_result_view view = {};
  view.sequence = result.result.sequence;
  view.num_rows = from.row.size();
  view.row = from.row.data();
  view.status = from.status.data();
  view.sampled = from.sampled.data();
  view.token = from.token.data();
  view.logprob = from.logprob.data();
  view.context_length = from.context_length.data();
  view.finish = from.finish.data();
  view.rank = from.rank.data();
  view.top_begin = from.top_begin.data();
  view.top_count = from.top_count.data();
  view.has_logits = from.has_logits.data();
  view.num_top = from.top_token.size();
  view.top_token = from.top_token.data();
  view.top_logprob = from.top_logprob.data();
  view.num_steps = from.step_num_rows.size();
  view.step_num_rows = from.step_num_rows.data();
  view.step_graph = from.step_graph_text.data();
  view.step_replayed = from.step_replayed.data();
  view.step_padding_rows = from.step_padding_rows.data();
  view.step_padding_tokens = from.step_padding_tokens.data();
  view.step_device_ns = from.step_device_ns.data();
  view.num_prompt = from.prompt_row.size();
  view.prompt_row = from.prompt_row.data();
  view.prompt_position = from.prompt_position.data();
  view.prompt_logprob = from.prompt_logprob.data();
  view.prompt_rank = from.prompt_rank.data();
  view.prompt_top_begin = from.prompt_top_begin.data();
  view.prompt_top_count = from.prompt_top_count.data();
  view.num_logit_rows = result.num_logit_rows;
  view.logits = result.result.logits.data();
  view.num_refused = from.refused_row.size();
  view.refused_row = from.refused_row.data();
  view.refused_code = from.refused_code.data();
  view.refused_message = from.refused_message_text.data();
  view.validate_ns = result.result.ledger.validate_ns;
  view.ring_ns = result.result.ledger.ring_ns;
  view.launch_ns = result.result.ledger.launch_ns;
  view.device_ns = result.result.ledger.device_ns;
  view.total_ns = result.result.ledger.total_ns;
  view.accepted_begin = from.accepted_begin.data();
  view.accepted_count = from.accepted_count.data();
  view.num_accepted = from.accepted_token.size();
  view.accepted_token = from.accepted_token.data();
  view.accepted_logprob = from.accepted_logprob.data();
  view.accepted_rank = from.accepted_rank.data();
  view.accepted_top_begin = from.accepted_top_begin.data();
  view.accepted_top_count = from.accepted_top_count.data();
  view.num_sampled = NumSampledTokens(result.result);
  view.step_query_tokens = from.step_query_tokens.data();
  view.step_attention_tree = from.step_attention_tree.data();
  return view;
}

}  // namespace

void reprise_result::Fill() {
  FillRows(result, &columns);
  FillAccepted(result, &columns);
  FillLogprobs(result, &columns);
  FillSteps(result, &columns);
  FillRefusals(result, &columns);
  num_logit_rows = 0;
  for (const uint8_t has : columns.has_logits) num_logit_rows += has;
}

reprise_code reprise_result_create(reprise_result** result, reprise_error* error) {
  return reprise::capi::Call(error, [&]() -> absl::Status {
    REPRISE_RETURN_IF_ERROR(reprise::capi::CheckNotNull("result", result));
    *result = new reprise_result();
    return absl::OkStatus();
  });
}

reprise_code reprise_result_destroy(reprise_result* result) {
  return reprise::capi::Destroy(result);
}

reprise_code reprise_result_get(const reprise_result* result, reprise_result_view* view,
                                reprise_error* error) {
  return reprise::capi::Call(error, [&]() -> absl::Status {
    REPRISE_RETURN_IF_ERROR(reprise::capi::CheckHandle(result));
    return reprise::capi::WriteStruct(ViewOf(*result), view);
  });
}
