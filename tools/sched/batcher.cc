// SPDX-License-Identifier: Apache-2.0
#include "tools/sched/batcher.h"

#include <algorithm>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/check.h"
#include "runtime/status_macros.h"

namespace reprise::tools {
namespace {

uint32_t OrElse(uint32_t wish, uint32_t most) { return wish == 0 ? most : std::min(wish, most); }

bool EndsWith(std::span<const uint32_t> tokens, std::span<const uint32_t> tail) {
  return tail.size() <= tokens.size() &&
         std::equal(tail.begin(), tail.end(), tokens.end() - static_cast<ptrdiff_t>(tail.size()));
}

// Token at `position` of what a row has to prefill.
uint32_t InputToken(const Request& request, uint32_t position) {
  return position < request.prompt.size() ? request.prompt[position]
                                          : request.tokens[position - request.prompt.size()];
}

void InsertInOrder(Request* request, std::vector<Request*>* list) {
  const auto before = [](const Request* a, const Request* b) { return GoesBefore(*a, *b); };
  list->insert(std::upper_bound(list->begin(), list->end(), request, before), request);
}

void Clear(PlannedStep* step) {
  step->drop.clear();
  step->add.clear();
  step->append.clear();
  step->chunks.clear();
  step->continue_rows.clear();
  step->continue_all = false;
  step->num_steps = 1;
}

}  // namespace

absl::Status CheckBatcherOptions(const ServerInfo& server, const BatcherOptions& options) {
  if (options.preemption == Preemption::kSwap && server.num_swap_blocks == 0) {
    return absl::InvalidArgumentError(
        "preempt: got swap, and the server has no swap space; allowed: recompute, or a server with "
        "--swap-space");
  }
  const uint32_t most = server.limits.max_steps_per_request;
  if (options.steps_per_request >= 1 && options.steps_per_request <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("steps-per-request: got ",
                                                 options.steps_per_request, ", allowed: 1 to ",
                                                 most, ", the server's --max-steps-per-request"));
}

Batcher::Batcher(const ServerInfo& server, const BatcherOptions& options, BlockManager* blocks)
    : limits_(server.limits),
      num_blocks_(server.num_blocks),
      options_(options),
      // A step must be able to run every resident row.
      max_rows_(OrElse(options.max_rows, std::min(limits_.max_rows, limits_.max_step_tokens))),
      step_tokens_(OrElse(options.step_tokens, limits_.max_prompt_tokens)),
      max_steps_(options.steps_per_request),
      blocks_(blocks),
      row_limit_(max_rows_) {}

bool Batcher::idle() const { return num_waiting() == 0 && rows_.empty() && flights_.empty(); }

uint32_t Batcher::BlocksFor(uint64_t tokens) const {
  return static_cast<uint32_t>((tokens + limits_.block_size - 1) / limits_.block_size);
}

// The last token generated is never written to the KV cache.
uint64_t Batcher::FinalContext(const Request& request) const {
  return request.prompt.size() + request.max_new_tokens - 1;
}

absl::Status Batcher::Add(Request* request) {
  const auto refuse = [request](auto... parts) {
    return absl::InvalidArgumentError(absl::StrCat("request ", request->id, ": ", parts...));
  };
  if (request->prompt.empty()) return refuse("prompt: got 0 tokens, allowed: at least 1");
  if (request->max_new_tokens == 0) return refuse("max_new_tokens: got 0, allowed: at least 1");
  for (uint32_t token : request->prompt) {
    if (token >= limits_.vocab_size) {
      return refuse("token: got ", token, ", allowed: below ", limits_.vocab_size);
    }
  }
  const uint64_t context = FinalContext(*request);
  if (context > limits_.max_context_length) {
    return refuse("context: got ", request->prompt.size(), " prompt and ", request->max_new_tokens,
                  " new tokens, allowed: ", limits_.max_context_length, " together");
  }
  if (BlocksFor(context) + 1 > num_blocks_) {
    return refuse("blocks: got ", BlocksFor(context), " for ", context,
                  " tokens of context, allowed: ", num_blocks_ - 1, ", the whole pool");
  }
  Enqueue(request);
  return absl::OkStatus();
}

void Batcher::Enqueue(Request* request) { InsertInOrder(request, &waiting_); }

void Batcher::Touch(Request* request) {
  Flight& flight = flights_.back();
  if (request->planned_in == flight.sequence) return;
  request->planned_in = flight.sequence;
  flight.before.emplace_back(request, request->plan);
  ++request->in_flight;
}

absl::StatusOr<bool> Batcher::Plan(PlannedStep* step) {
  Clear(step);
  step->sequence = next_sequence_;
  step->mode = options_.eager ? engine::ExecutionMode::kEager : engine::ExecutionMode::kReplay;
  starved_ = false;
  continuing_.clear();
  flights_.emplace_back().sequence = next_sequence_;
  RetireRows();

  if (!options_.prefill_first) REPRISE_RETURN_IF_ERROR(PlanContinues(step));
  const size_t num_decoding = step->continue_rows.size();
  if (num_decoding < step_tokens_) {
    const auto budget = static_cast<uint32_t>(step_tokens_ - num_decoding);
    // Rows that run come before rows that could.
    if (!starved_) REPRISE_RETURN_IF_ERROR(Admit(budget, step));
    PlanChunks(budget, step);
  }
  if (options_.prefill_first && step->chunks.empty()) REPRISE_RETURN_IF_ERROR(PlanContinues(step));
  if (step->chunks.empty() && !starved_) REPRISE_RETURN_IF_ERROR(PlanRepeats(step));

  const bool runs = !step->chunks.empty() || !step->continue_rows.empty();
  // Drops ride along with the next step that runs something; where none is in sight, they go alone.
  const bool flushes = !pending_drops_.empty() && flights_.size() == 1;
  if (!runs && !flushes) {
    REPRISE_CHECK(flights_.back().before.empty());
    flights_.pop_back();
    return false;
  }
  if (step->continue_all) step->continue_rows.clear();
  step->drop = std::exchange(pending_drops_, {});
  flights_.back().drop = step->drop;
  ++next_sequence_;
  return true;
}

void Batcher::RetireRows() {
  const std::vector<Request*> rows = rows_;
  for (Request* request : rows) {
    if (request->in_flight == 0 && (request->finished() || request->preempted)) Retire(request);
  }
}

// The row leaves the server with the next step; its blocks are free for any row of that step.
void Batcher::Retire(Request* request) {
  const uint32_t row = std::exchange(request->plan.row, 0);
  pending_drops_.push_back(row);
  by_row_.erase(row);
  rows_.erase(std::find(rows_.begin(), rows_.end(), request));
  if (!request->finished()) {
    request->preempted = false;
    ++request->num_preemptions;
    if (options_.preemption == Preemption::kSwap && request->plan.context > 0) {
      leaving_[row] = request;
      return;
    }
    Enqueue(request);
  }
  blocks_->Release(request->blocks, next_sequence_);
  request->blocks.clear();
}

absl::Status Batcher::SwapOut(Request* request, uint64_t sequence) {
  std::vector<uint32_t>& blocks = request->blocks;
  const uint32_t used = BlocksFor(request->plan.context);
  blocks_->Release({blocks.begin() + used, blocks.end()}, sequence);
  blocks.resize(used);
  REPRISE_ASSIGN_OR_RETURN(const bool swapped, blocks_->SwapOut(&blocks, &request->swapped));
  request->swapped_context = swapped ? request->plan.context : 0;
  blocks_->Release(blocks, sequence);
  blocks.clear();
  Enqueue(request);
  return absl::OkStatus();
}

absl::Status Batcher::PlanContinues(PlannedStep* step) {
  size_t eligible = 0;  // rows that the server would run for continue_all
  const std::vector<Request*> rows = rows_;
  for (Request* request : rows) {
    if (request->plan.row == 0) continue;  // preempted by an older row just now
    eligible += request->plan.continues;
    if (!request->plan.continues || request->finished() || request->preempted) continue;
    if (request->plan.samples == request->max_new_tokens) continue;
    Continuing row{.request = request, .append = kNoAppend};
    REPRISE_ASSIGN_OR_RETURN(const bool grown, Grow(&row, step));
    if (!grown) {
      if (request->plan.row == 0) --eligible;  // it was the youngest itself
      continue;
    }
    Touch(request);
    ++request->plan.context;
    ++request->plan.samples;
    step->continue_rows.push_back(request->plan.row);
    continuing_.push_back(row);
  }
  step->continue_all = eligible > 0 && eligible == step->continue_rows.size();
  return absl::OkStatus();
}

absl::Status Batcher::PlanRepeats(PlannedStep* step) {
  for (Continuing& row : continuing_) {
    Request& request = *row.request;
    RowPlan& plan = request.plan;
    const uint32_t wanted = std::min(max_steps_ - 1, request.max_new_tokens - plan.samples);
    const uint32_t needed = BlocksFor(plan.context + wanted);
    // One at a time: the last few blocks of the pool are of use too.
    for (bool taken = true; taken && request.blocks.size() < needed;) {
      REPRISE_ASSIGN_OR_RETURN(taken, blocks_->Take(1, &request.blocks));
    }
    SendBlocks(&row, std::min(needed, static_cast<uint32_t>(request.blocks.size())), step);
    // Beyond its blocks it pauses. A stop that cannot be known yet is the server's to see.
    const uint32_t tokens = std::min(wanted, plan.blocks_sent * limits_.block_size - plan.context);
    plan.context += tokens;
    plan.samples += tokens;
    step->num_steps = std::max(step->num_steps, 1 + tokens);
  }
  return absl::OkStatus();
}

void Batcher::SendBlocks(Continuing* row, uint32_t count, PlannedStep* step) {
  Request& request = *row->request;
  const uint32_t sent = request.plan.blocks_sent;
  if (sent >= count) return;
  Touch(&request);
  if (row->append == kNoAppend) {
    row->append = step->append.size();
    step->append.push_back({.row = request.plan.row});
  }
  std::vector<uint32_t>& blocks = step->append[row->append].blocks;
  blocks.insert(blocks.end(), request.blocks.begin() + sent, request.blocks.begin() + count);
  request.plan.blocks_sent = count;
}

absl::StatusOr<bool> Batcher::Grow(Continuing* row, PlannedStep* step) {
  Request* request = row->request;
  const uint32_t needed = BlocksFor(request->plan.context + 1);
  if (needed > request->blocks.size()) {
    const auto missing = static_cast<uint32_t>(needed - request->blocks.size());
    REPRISE_ASSIGN_OR_RETURN(bool taken, blocks_->Take(missing, &request->blocks));
    if (!taken) {
      PreemptYoungest();
      if (request->plan.row != 0) {
        REPRISE_ASSIGN_OR_RETURN(taken, blocks_->Take(missing, &request->blocks));
      }
    }
    if (!taken) {
      starved_ = true;
      return false;
    }
  }
  SendBlocks(row, needed, step);
  return true;
}

// One victim at a time: while one is still in flight, or its blocks are on their way to swap space,
// whoever starves waits for them.
void Batcher::PreemptYoungest(int64_t below) {
  const auto preempted = [](const Request* request) { return request->preempted; };
  if (!leaving_.empty() || std::any_of(rows_.begin(), rows_.end(), preempted)) return;
  const auto found = std::find_if(rows_.rbegin(), rows_.rend(),
                                  [](const Request* request) { return !request->finished(); });
  if (found == rows_.rend() || (*found)->priority >= below) return;
  Request* victim = *found;
  victim->preempted = true;
  if (victim->in_flight == 0) Retire(victim);
}

uint64_t Batcher::PromptTokensBefore(const Request& request) const {
  uint64_t tokens = 0;
  for (const Request* row : rows_) {
    if (row->preempted || !GoesBefore(*row, request)) continue;
    tokens += row->plan.input - std::min(row->plan.input, row->plan.context);
  }
  return tokens;
}

absl::StatusOr<bool> Batcher::TakeBlocks(Request* request, uint32_t count) {
  if (request->swapped.empty()) return blocks_->Take(count, &request->blocks);
  std::vector<uint32_t> more;  // than come back
  const auto missing = static_cast<uint32_t>(count - request->swapped.size());
  REPRISE_ASSIGN_OR_RETURN(const bool taken, blocks_->Take(missing, &more));
  if (!taken) return false;
  REPRISE_ASSIGN_OR_RETURN(const BlockManager::SwappedIn result,
                           blocks_->SwapIn(&request->swapped, &request->blocks));
  if (result == BlockManager::SwappedIn::kDone) {
    request->blocks.insert(request->blocks.end(), more.begin(), more.end());
    ++request->num_swaps;
    return true;
  }
  blocks_->PutBack(more, next_sequence_);
  if (result == BlockManager::SwappedIn::kNoRoom) return false;
  request->swapped_context = 0;
  return blocks_->Take(count, &request->blocks);
}

absl::Status Batcher::Admit(uint32_t budget, PlannedStep* step) {
  while (!waiting_.empty() && PromptTokensBefore(*waiting_.front()) < budget) {
    Request* request = waiting_.front();
    const auto input = static_cast<uint32_t>(request->prompt.size() + request->tokens.size());
    // One token more than the prompt, so that a row admitted is not at once a row that starves.
    const uint32_t needed = BlocksFor(std::min<uint64_t>(input + 1, FinalContext(*request)));
    bool taken = false;
    if (rows_.size() < row_limit_) {
      REPRISE_ASSIGN_OR_RETURN(taken, TakeBlocks(request, needed));
    }
    if (!taken) {
      PreemptYoungest(request->priority);
      return absl::OkStatus();
    }
    waiting_.erase(waiting_.begin());
    Touch(request);
    request->plan = {.row = next_row_++,
                     .input = input,
                     .context = std::exchange(request->swapped_context, 0),
                     .samples = static_cast<uint32_t>(request->tokens.size()),
                     .blocks_sent = needed,
                     .continues = false};
    InsertInOrder(request, &rows_);
    by_row_[request->plan.row] = request;
    AddRow(request, step);
  }
  return absl::OkStatus();
}

void Batcher::AddRow(Request* request, PlannedStep* step) {
  engine::SamplingParams sampling = request->sampling.View();
  // With one step in a request no row is planned beyond its length. Of several, the device ends it.
  const auto generated = static_cast<uint32_t>(request->tokens.size());
  if (max_steps_ > 1) sampling.max_new_tokens = request->max_new_tokens - generated;
  engine::StepDraft::Add& add = step->add.emplace_back();
  add.row = request->plan.row;
  add.blocks = request->blocks;
  add.context_length = request->plan.context;
  add.sampling = sampling;
  if (!engine::HasPenalties(sampling)) return;
  // Tokens behind the prompt's were sampled before a preemption.
  add.prompt_length = static_cast<uint32_t>(request->prompt.size());
  for (uint32_t i = 0; i < add.context_length; ++i) add.history.push_back(InputToken(*request, i));
}

void Batcher::PlanChunks(uint32_t budget, PlannedStep* step) {
  for (Request* request : rows_) {
    if (budget == 0) return;
    if (request->preempted || request->plan.context >= request->plan.input) continue;
    Touch(request);
    RowPlan& plan = request->plan;
    const uint32_t count = std::min(budget, plan.input - plan.context);
    engine::StepDraft::Chunk& chunk = step->chunks.emplace_back();
    chunk.row = plan.row;
    for (uint32_t i = 0; i < count; ++i) {
      chunk.tokens.push_back(InputToken(*request, plan.context + i));
    }
    plan.context += count;
    chunk.sample = plan.context == plan.input;
    plan.continues = chunk.sample;
    plan.samples += chunk.sample;
    budget -= count;
  }
}

absl::Status Batcher::Apply(const StepOutcome& outcome, Progress* progress) {
  progress->advanced.clear();
  progress->ended.clear();
  if (flights_.empty() || flights_.front().sequence != outcome.sequence) {
    return absl::InternalError(absl::StrCat("step order: got the result of step ", outcome.sequence,
                                            ", expected that of step ",
                                            flights_.empty() ? 0 : flights_.front().sequence));
  }
  for (const engine::RowOutcome& row : outcome.rows) {
    const auto found = by_row_.find(row.row);
    if (found == by_row_.end()) {
      return absl::InternalError(absl::StrCat("step ", outcome.sequence, ": got a result for row ",
                                              row.row, ", which is not one of this session"));
    }
    REPRISE_RETURN_IF_ERROR(TakeRow(outcome, row, found->second, progress));
  }
  const Flight& flight = flights_.front();
  for (auto& [request, before] : flight.before) {
    --request->in_flight;
    // Otherwise it would wait for its tokens for ever.
    if (request->in_flight != 0 || request->finished()) continue;
    if (request->tokens.size() != request->plan.samples) {
      return absl::InternalError(
          absl::StrCat("request ", request->id, ": got ", request->tokens.size(),
                       " tokens by step ", outcome.sequence, ", expected ", request->plan.samples));
    }
  }
  REPRISE_RETURN_IF_ERROR(blocks_->Acknowledge(outcome.sequence));
  for (const uint32_t row : flight.drop) {
    const auto found = leaving_.find(row);
    if (found == leaving_.end()) continue;
    Request* request = found->second;
    leaving_.erase(found);
    REPRISE_RETURN_IF_ERROR(SwapOut(request, outcome.sequence));
  }
  flights_.pop_front();
  return absl::OkStatus();
}

absl::Status Batcher::TakeRow(const StepOutcome& outcome, const engine::RowOutcome& row,
                              Request* request, Progress* progress) {
  if (request->finished()) return absl::OkStatus();  // was on its way when the request ended
  if (row.status == engine::RowStatus::kStopped) {
    return absl::InternalError(absl::StrCat("request ", request->id, ": row ", row.row,
                                            " is reported as one that had stopped, but no earlier "
                                            "result says why"));
  }
  if (row.finish == FinishReason::kNoCandidate) {
    // The token that the result shows is none.
    request->finish = FinishReason::kNoCandidate;
    request->error =
        absl::StrCat("no token can be sampled after ", request->prompt.size(), " prompt and ",
                     request->tokens.size(), " new tokens: every logit is NaN or minus infinity");
  } else if (row.sampled) {
    TakeToken(request, row.token);
    if (request->sampling.numbers.num_logprobs != 0) {
      const auto top = std::span(outcome.top_logprobs).subspan(row.top.begin, row.top.count);
      request->chances.push_back({row.logprob, row.rank, {top.begin(), top.end()}});
    }
    progress->advanced.push_back(request);
  }
  // The row does nothing any more, whether the request names such an end or not.
  if (!request->finished()) request->finish = row.finish;
  if (request->finished()) progress->ended.push_back(request);
  return absl::OkStatus();
}

void Batcher::TakeToken(Request* request, uint32_t token) {
  request->tokens.push_back(token);
  for (const auto& stop : request->stop_sequences) {
    if (EndsWith(request->tokens, stop)) request->finish = FinishReason::kStopToken;
  }
  const std::vector<uint32_t>& stops = request->sampling.stop_tokens;
  if (std::find(stops.begin(), stops.end(), token) != stops.end())
    request->finish = FinishReason::kStopToken;
  if (!request->finished() && request->tokens.size() == request->max_new_tokens) {
    request->finish = FinishReason::kLength;
  }
}

void Batcher::Undo() {
  if (flights_.empty()) return;
  const uint64_t last = flights_.back().sequence;
  next_sequence_ = flights_.front().sequence;
  std::vector<uint32_t> drops;
  for (const Flight& flight : flights_)
    drops.insert(drops.end(), flight.drop.begin(), flight.drop.end());
  pending_drops_.insert(pending_drops_.begin(), drops.begin(), drops.end());
  for (auto flight = flights_.rbegin(); flight != flights_.rend(); ++flight) {
    for (auto& [request, before] : flight->before) {
      if (before.row == 0) {
        by_row_.erase(request->plan.row);
        rows_.erase(std::find(rows_.begin(), rows_.end(), request));
        blocks_->Release(request->blocks, last);
        request->blocks.clear();
        request->preempted = false;
        Enqueue(request);
      }
      request->plan = before;
      request->planned_in = 0;
      --request->in_flight;
    }
  }
  flights_.clear();
}

}  // namespace reprise::tools
