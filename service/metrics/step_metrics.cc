// SPDX-License-Identifier: Apache-2.0
#include "service/metrics/step_metrics.h"

namespace reprise::service {
namespace {

void NoteStep(const engine::SingleStep& step, GraphMetrics* graph) {
  graph->steps.Add();
  graph->rows.Add(step.report.rows);
  graph->tokens.Add(step.report.tokens);
  if (!step.report.is_first) return;  // the rest is the replay's
  graph->replays.Add();
  if (step.report.padding_rows > 0) graph->padding_rows.Add(step.report.padding_rows);
  if (step.report.padding_tokens > 0) graph->padding_tokens.Add(step.report.padding_tokens);
  graph->device.Observe(step.device_ns);
}

uint64_t NumPromptTokens(const engine::StepRequest& request) {
  uint64_t count = 0;
  for (const engine::RowChunk& chunk : request.chunks) count += chunk.tokens.size();
  return count;
}

}  // namespace

StepMetrics::StepMetrics(const std::vector<std::string>& graphs) { AddGraphs(graphs); }

void StepMetrics::AddGraphs(const std::vector<std::string>& graphs) {
  const std::lock_guard lock(naming_);
  for (const std::string& name : graphs) {
    if (graphs_.size() == kMaxGraphs) return;
    if (&GraphOf(name) != &other_) continue;
    std::atomic<GraphMetrics*>& link = graphs_.empty() ? first_ : graphs_.back().next;
    link.store(&graphs_.emplace_back(name), std::memory_order_release);
  }
}

GraphMetrics& StepMetrics::GraphOf(std::string_view name) {
  GraphMetrics* graph = first_.load(std::memory_order_acquire);
  while (graph != nullptr && graph->name != name)
    graph = graph->next.load(std::memory_order_acquire);
  return graph == nullptr ? other_ : *graph;
}

void StepMetrics::NoteAnswered(const engine::StepRequest& request, const StepTimes& times,
                               const engine::StepResult& result, uint64_t answered_ns) {
  for (const engine::SingleStep& step : result.steps) {
    NoteStep(step, &GraphOf(step.report.graph));
    if (!step.report.replayed) eager_steps_.Add();
  }
  GraphMetrics& first = GraphOf(result.report.graph);
  first.wall.Observe(answered_ns - times.received_ns);
  first.queue.Observe(times.submitted_ns - times.converted_ns);
  const engine::StepLedger& ledger = result.ledger;
  first.launch.Observe(ledger.validate_ns + ledger.ring_ns +
                       (result.report.is_first ? ledger.launch_ns : 0));
  sampled_tokens_.Add(engine::NumSampledTokens(result));
  for (const engine::RowDraft& draft : request.drafts) draft_tokens_.Add(draft.tokens.size());
  accepted_tokens_.Add(result.accepted.size());
  if (!request.chunks.empty()) prompt_tokens_.Add(NumPromptTokens(request));
}

}  // namespace reprise::service
