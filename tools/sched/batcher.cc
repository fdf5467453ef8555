// SPDX-License-Identifier: Apache-2.0
#include "tools/sched/batcher.h"

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
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

// Tokens that a row has to prefill: the prompt, and after a preemption what had been generated.
uint32_t InputLength(const Request& request) {
  return static_cast<uint32_t>(request.prompt.size() + request.tokens.size());
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
  step->drafts.clear();
  step->num_steps = 1;
}

}  // namespace

absl::Status CheckBatcherOptions(const ServerInfo& server, const BatcherOptions& options) {
  if (options.preemption == Preemption::kSwap && server.num_swap_blocks == 0) {
    return absl::InvalidArgumentError(
        "preempt: got swap, and the server has no swap space; allowed: recompute, or a server with "
        "--swap-space");
  }
  if (options.draft.any() && server.limits.max_draft_tokens == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("draft: got ", NameOf(options.draft),
                     ", and the server takes no drafts; allowed: none, or a server with "
                     "--max-draft-tokens"));
  }
  if (options.draft.any() && options.steps_per_request > 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "steps-per-request: got ", options.steps_per_request, " with --draft, allowed with it: 1"));
  }
  const uint32_t most = server.limits.max_steps_per_request;
  if (options.steps_per_request >= 1 && options.steps_per_request <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("steps-per-request: got ",
                                                 options.steps_per_request, ", allowed: 1 to ",
                                                 most, ", the server's --max-steps-per-request"));
}

Batcher::Batcher(const ServerInfo& server, const BatcherOptions& options, BlockManager* blocks)
    : limits_(server.limits),
      num_blocks_(server.usable_blocks()),
      has_whole_pool_(num_blocks_ + 1 == server.num_blocks),
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

absl::Status Batcher::Check(const Request& request) const {
  const auto refuse = [&request](std::string_view what, auto... parts) {
    return absl::InvalidArgumentError(absl::StrCat(std::string(what), " of prompt ",
                                                   request.prompt_index + 1, ": got ", parts...));
  };
  if (request.prompt.empty()) return refuse("tokens", "0, allowed: at least 1");
  if (request.max_new_tokens == 0) return refuse("max_new_tokens", "0, allowed: at least 1");
  for (uint32_t token : request.prompt) {
    if (token >= limits_.vocab_size) {
      return refuse("token", token, ", allowed: below ", limits_.vocab_size);
    }
  }
  const uint64_t context = FinalContext(request);
  if (context > limits_.max_context_length) {
    return refuse("context", request.prompt.size(), " prompt and ", request.max_new_tokens,
                  " new tokens, allowed: ", limits_.max_context_length, " together");
  }
  if (BlocksFor(context) > num_blocks_) {
    return refuse("blocks", BlocksFor(context), " for ", context,
                  " tokens of context, allowed: ", num_blocks_,
                  has_whole_pool_ ? ", the whole pool" : ", which a session may hold");
  }
  return absl::OkStatus();
}

absl::Status Batcher::Add(Request* request) {
  REPRISE_RETURN_IF_ERROR(Check(*request));
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
  // Drafts are guessed from what the step in flight samples.
  if (options_.draft.any() && !flights_.empty()) return false;
  Clear(step);
  step->sequence = next_sequence_;
  step->mode = options_.eager ? engine::ExecutionMode::kEager : engine::ExecutionMode::kReplay;
  starved_ = false;
  continuing_.clear();
  flights_.emplace_back().sequence = next_sequence_;
  REPRISE_RETURN_IF_ERROR(FreeLostStates());
  REPRISE_RETURN_IF_ERROR(RetireRows());

  if (!options_.prefill_first) REPRISE_RETURN_IF_ERROR(PlanContinues(step));
  const size_t num_decoding = step->continue_rows.size();
  if (num_decoding < step_tokens_) {
    const auto budget = static_cast<uint32_t>(step_tokens_ - num_decoding);
    // Rows that run come before rows that could.
    if (!starved_) REPRISE_RETURN_IF_ERROR(Admit(budget, step));
    PlanChunks(budget, step);
  }
  if (options_.prefill_first && step->chunks.empty()) REPRISE_RETURN_IF_ERROR(PlanContinues(step));
  if (options_.draft.any() && !starved_) REPRISE_RETURN_IF_ERROR(PlanDrafts(step));
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

absl::Status Batcher::RetireRows() {
  const std::vector<Request*> rows = rows_;
  for (Request* request : rows) {
    if (request->in_flight != 0 || (!request->finished() && !request->preempted)) continue;
    REPRISE_RETURN_IF_ERROR(Retire(request));
  }
  return absl::OkStatus();
}

// The row leaves the server with the next step; its blocks are free for any row of that step.
absl::Status Batcher::Retire(Request* request) {
  bool swaps = false;
  // Where this fails, the request is still among the rows.
  if (!request->finished()) {
    REPRISE_ASSIGN_OR_RETURN(swaps, SwapOutState(request, request->plan.row));
  }
  const uint32_t row = std::exchange(request->plan.row, 0);
  pending_drops_.push_back(row);
  by_row_.erase(row);
  rows_.erase(std::find(rows_.begin(), rows_.end(), request));
  if (!request->finished()) {
    request->preempted = false;
    ++request->num_preemptions;
    if (swaps) {
      leaving_[row] = request;
      return absl::OkStatus();
    }
    Enqueue(request);
  }
  blocks_->Release(request->blocks, next_sequence_);
  request->blocks.clear();
  return absl::OkStatus();
}

absl::StatusOr<bool> Batcher::SwapOutState(Request* request, uint32_t row) {
  if (options_.preemption != Preemption::kSwap || request->plan.context == 0) return false;
  if (limits_.row_state_bytes == 0) return true;
  REPRISE_ASSIGN_OR_RETURN(request->swapped_state, blocks_->SwapOutState(row));
  return request->swapped_state.has_value();
}

absl::Status Batcher::LoseSwapped(Request* request) {
  request->swapped_context = 0;
  if (!request->swapped_state.has_value()) return absl::OkStatus();
  const uint32_t state = *std::exchange(request->swapped_state, std::nullopt);
  return blocks_->FreeSwappedState(state);
}

absl::Status Batcher::FreeLostStates() {
  for (; !lost_states_.empty(); lost_states_.pop_back())
    REPRISE_RETURN_IF_ERROR(blocks_->FreeSwappedState(lost_states_.back()));
  return absl::OkStatus();
}

absl::Status Batcher::SwapOut(Request* request, uint64_t sequence) {
  std::vector<uint32_t>& blocks = request->blocks;
  const uint32_t used = BlocksFor(request->plan.context);
  blocks_->Release({blocks.begin() + used, blocks.end()}, sequence);
  blocks.resize(used);
  REPRISE_ASSIGN_OR_RETURN(const bool swapped, blocks_->SwapOut(&blocks, &request->swapped));
  request->swapped_context = request->plan.context;
  if (!swapped) REPRISE_RETURN_IF_ERROR(LoseSwapped(request));
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
    REPRISE_RETURN_IF_ERROR(TakeRoom(plan.context + wanted, &row, step));
    // Beyond its blocks it pauses. A stop that cannot be known yet is the server's to see.
    const uint32_t tokens = std::min(wanted, plan.blocks_sent * limits_.block_size - plan.context);
    plan.context += tokens;
    plan.samples += tokens;
    step->num_steps = std::max(step->num_steps, 1 + tokens);
  }
  return absl::OkStatus();
}

absl::Status Batcher::TakeRoom(uint32_t tokens, Continuing* row, PlannedStep* step) {
  Request& request = *row->request;
  const uint32_t needed = BlocksFor(tokens);
  // One at a time: the last few blocks of the pool are of use too.
  for (bool taken = true; taken && request.blocks.size() < needed;) {
    REPRISE_ASSIGN_OR_RETURN(taken, blocks_->Take(1, &request.blocks));
  }
  SendBlocks(row, std::min(needed, static_cast<uint32_t>(request.blocks.size())), step);
  return absl::OkStatus();
}

// A row's plan counts none of its drafts: nothing else of it is planned until it is known how many
// are accepted.
absl::Status Batcher::PlanDrafts(PlannedStep* step) {
  size_t used = continuing_.size();
  for (const engine::StepDraft::Chunk& chunk : step->chunks) used += chunk.tokens.size();
  if (used >= step_tokens_) return absl::OkStatus();
  uint32_t budget = std::min(step_tokens_ - static_cast<uint32_t>(used), limits_.max_draft_tokens);
  for (Continuing& row : continuing_) {
    Request& request = *row.request;
    const RowPlan& plan = request.plan;
    if (request.preempted) continue;
    const uint32_t most =
        std::min({budget, options_.draft.max_tokens, request.max_new_tokens - plan.samples,
                  limits_.max_context_length - plan.context});
    std::vector<uint32_t> guess =
        GuessByNgram(request.prompt, request.tokens, options_.draft.length, most);
    if (guess.empty()) continue;
    REPRISE_RETURN_IF_ERROR(
        TakeRoom(plan.context + static_cast<uint32_t>(guess.size()), &row, step));
    const uint32_t room = plan.blocks_sent * limits_.block_size - plan.context;
    if (guess.size() > room) guess.resize(room);
    if (guess.empty()) continue;
    budget -= static_cast<uint32_t>(guess.size());
    step->drafts.push_back({.row = plan.row, .tokens = std::move(guess)});
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
      REPRISE_RETURN_IF_ERROR(PreemptYoungest());
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
absl::Status Batcher::PreemptYoungest(int64_t below) {
  const auto preempted = [](const Request* request) { return request->preempted; };
  if (!leaving_.empty() || std::any_of(rows_.begin(), rows_.end(), preempted))
    return absl::OkStatus();
  const auto found = std::find_if(rows_.rbegin(), rows_.rend(),
                                  [](const Request* request) { return !request->finished(); });
  if (found == rows_.rend() || (*found)->priority >= below) return absl::OkStatus();
  Request* victim = *found;
  victim->preempted = true;
  return victim->in_flight == 0 ? Retire(victim) : absl::OkStatus();
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
  REPRISE_RETURN_IF_ERROR(LoseSwapped(request));
  return blocks_->Take(count, &request->blocks);
}

absl::Status Batcher::Admit(uint32_t budget, PlannedStep* step) {
  while (!waiting_.empty() && PromptTokensBefore(*waiting_.front()) < budget) {
    Request* request = waiting_.front();
    // One token more than the prompt, so that a row admitted is not at once a row that starves.
    const uint64_t context = std::min<uint64_t>(InputLength(*request) + 1, FinalContext(*request));
    const uint32_t needed = BlocksFor(context);
    bool taken = false;
    if (rows_.size() < row_limit_) {
      REPRISE_ASSIGN_OR_RETURN(taken, TakeBlocks(request, needed));
    }
    if (!taken) {
      return PreemptYoungest(request->priority);
    }
    waiting_.erase(waiting_.begin());
    Touch(request);
    if (request->swapped_context == 0) ChooseInput(request);
    request->plan = {.row = next_row_++,
                     .input = InputLength(*request),
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

void Batcher::ChooseInput(Request* request) {
  if (request->tokens.size() < request->had.tokens.size()) return Rewind(request);
  request->computed = static_cast<uint32_t>(request->tokens.size());
}

void Batcher::Rewind(Request* request) {
  request->tokens.resize(request->computed);
  request->chances.resize(std::min<size_t>(request->chances.size(), request->computed));
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
  add.swapped_state = request->returning_state =
      std::exchange(request->swapped_state, std::nullopt);
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
    REPRISE_RETURN_IF_ERROR(SwapOut(found->second, outcome.sequence));
    leaving_.erase(found);
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
  request->plan.context += row.accepted.count;
  request->plan.samples += row.accepted.count;
  const auto chance_of = [&outcome](const auto& from) {
    const auto top = std::span(outcome.top_logprobs).subspan(from.top.begin, from.top.count);
    return Request::Chance{from.logprob, from.rank, {top.begin(), top.end()}};
  };
  const auto accepted = std::span(outcome.accepted).subspan(row.accepted.begin, row.accepted.count);
  for (const engine::AcceptedToken& token : accepted) {
    TakeSampled({token.token, chance_of(token)}, request, progress);
    if (!request->finished()) continue;
    progress->ended.push_back(request);
    return absl::OkStatus();
  }
  if (row.finish == FinishReason::kNoCandidate) {
    // The token that the result shows is none.
    request->finish = FinishReason::kNoCandidate;
    request->error =
        absl::StrCat("no token can be sampled after ", request->prompt.size(), " prompt and ",
                     request->tokens.size(), " new tokens: every logit is NaN or minus infinity");
  } else if (row.sampled) {
    TakeSampled({row.token, chance_of(row)}, request, progress);
  }
  // The row does nothing any more, whether the request names such an end or not.
  if (!request->finished()) request->finish = row.finish;
  if (request->finished()) progress->ended.push_back(request);
  return absl::OkStatus();
}

void Batcher::TakeSampled(const Sampled& sampled, Request* request, Progress* progress) {
  if (Differs(request, sampled.token)) {
    request->finish = FinishReason::kNoCandidate;
    request->error =
        absl::StrCat("the server that came back sampled token ", sampled.token, " behind ",
                     request->prompt.size(), " prompt and ", request->tokens.size(),
                     " new tokens, and the one before had "
                     "sampled ",
                     request->had.tokens[request->tokens.size()]);
    request->Restore();
    return;
  }
  TakeToken(request, sampled.token);
  if (request->sampling.numbers.num_logprobs != 0) request->chances.push_back(sampled.chance);
  if (request->tokens.size() > request->had.tokens.size()) progress->advanced.push_back(request);
}

bool Batcher::Differs(Request* request, uint32_t token) {
  const size_t position = request->tokens.size();
  const std::vector<uint32_t>& had = request->had.tokens;
  return position < had.size() && had[position] != token;
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
        // Its blocks have come back, and its state has not: it is computed again.
        if (request->returning_state.has_value()) lost_states_.push_back(*request->returning_state);
        Enqueue(request);
      }
      request->plan = before;
      request->planned_in = 0;
      --request->in_flight;
    }
  }
  flights_.clear();
}

void Batcher::BeginAgain() {
  std::vector<Request*> requests = std::exchange(waiting_, {});
  requests.insert(requests.end(), rows_.begin(), rows_.end());
  for (const auto& [row, request] : leaving_) requests.push_back(request);
  rows_.clear();
  leaving_.clear();
  by_row_.clear();
  pending_drops_.clear();
  lost_states_.clear();
  flights_.clear();
  next_sequence_ = 1;
  row_limit_ = max_rows_;
  for (Request* request : requests) {
    request->plan = {};
    request->blocks.clear();
    request->swapped.clear();
    request->swapped_context = 0;
    request->swapped_state = std::nullopt;
    request->in_flight = 0;
    request->preempted = false;
    request->planned_in = 0;
    if (request->finished()) continue;
    if (request->tokens.size() > request->had.tokens.size())
      request->had = {.tokens = request->tokens, .chances = request->chances};
    Rewind(request);
    Enqueue(request);
  }
}

}  // namespace reprise::tools
