// SPDX-License-Identifier: Apache-2.0
// FakeStepServer: a step server in a hundred lines, strict about the contract of reprise.v1 and
// with a "model" whose next token is a hash of the row's whole history. History is read back from
// KV blocks, so a block used by two rows, or written too early, shows as a wrong token. Everything
// a scheduler may do wrong is kept in `violations`.
#ifndef REPRISE_TESTS_TOOLS_FAKE_STEP_SERVER_H_
#define REPRISE_TESTS_TOOLS_FAKE_STEP_SERVER_H_

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tools/sched/channel.h"
#include "tools/sched/request.h"

namespace reprise::tools {

// The token that the fake model samples after `history`.
inline uint32_t NextToken(const std::vector<uint32_t>& history, uint32_t vocab_size,
                          uint64_t weights = 0) {
  uint64_t hash = 1469598103934665603u ^ weights;
  for (uint32_t token : history) hash = (hash ^ token) * 1099511628211u;
  return static_cast<uint32_t>((hash >> 17) % vocab_size);
}

// What a request must generate, computed without any server.
inline std::vector<uint32_t> ExpectedTokens(const Request& request, uint32_t vocab_size) {
  std::vector<uint32_t> history = request.prompt;
  std::vector<uint32_t> tokens;
  while (tokens.size() < request.max_new_tokens) {
    tokens.push_back(NextToken(history, vocab_size));
    history.push_back(tokens.back());
    for (const auto& stop : request.stop_sequences) {
      if (tokens.size() >= stop.size() && std::equal(stop.rbegin(), stop.rend(), tokens.rbegin())) {
        return tokens;
      }
    }
  }
  return tokens;
}

class FakeStepServer : public StepChannel, public BlockSource {
 public:
  explicit FakeStepServer(const ServerInfo& server)
      : limits_(server.limits), num_blocks_(server.num_blocks) {
    Start();
  }

  absl::Status Submit(const PlannedStep& step) override {
    StepOutcome& outcome = outcomes_.emplace_back();
    outcome.sequence = step.sequence;
    if (outcomes_.size() > limits_.pipeline_depth) Violate("more steps in flight than allowed");
    outcome.refusal = Check(step);
    if (!outcome.refusal.ok()) return absl::OkStatus();
    ++next_sequence_;
    Execute(step, &outcome);
    steps.push_back(step);
    return absl::OkStatus();
  }

  absl::Status Receive(StepOutcome* outcome) override {
    if (outcomes_.empty()) return absl::InternalError("nothing to receive");
    if (fail_after_results-- == 0) return Die();
    *outcome = outcomes_.front();
    outcomes_.pop_front();
    return absl::OkStatus();
  }

  // Another one in its place, while there are any.
  absl::Status Reopen(const absl::Status& error) override {
    if (!dead_ || restarts.empty()) return error;
    dead_ = false;
    fail_after_results = restarts.front().fail_after_results;
    fail_after_calls = restarts.front().fail_after_calls;
    restarts.pop_front();
    Start();
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<uint32_t>> Allocate(uint32_t count) override {
    if (fail_after_calls-- == 0) return Die();
    ++num_allocates;
    if (count == 0) return absl::InvalidArgumentError("zero blocks");
    if (count + blocks_of_others > pool_.size()) return absl::ResourceExhaustedError("pool");
    const std::vector<uint32_t> blocks(pool_.end() - count, pool_.end());
    pool_.resize(pool_.size() - count);
    held_.insert(blocks.begin(), blocks.end());
    return blocks;
  }

  absl::Status Free(const std::vector<uint32_t>& blocks) override {
    if (fail_after_calls-- == 0) return Die();
    for (uint32_t block : blocks) {
      if (held_.erase(block) == 0) Violate(absl::StrCat("freed block ", block, " not held"));
      for (const auto& [id, row] : rows_) {
        if (std::count(row.blocks.begin(), row.blocks.end(), block) > 0) {
          Violate(absl::StrCat("freed block ", block, " of resident row ", id));
        }
      }
      pool_.push_back(block);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<uint32_t>> SwapOut(const std::vector<uint32_t>& blocks) override {
    if (fail_after_calls-- == 0) return Die();
    CheckCall(blocks);
    if (swapped_.size() + blocks.size() > swap_room) return absl::ResourceExhaustedError("swap");
    std::vector<uint32_t> names;
    for (const uint32_t block : blocks) {
      names.push_back(next_swapped_++);
      for (uint32_t slot = 0; slot < limits_.block_size; ++slot)
        swapped_[names.back()].push_back(memory_[{block, slot}]);
    }
    num_swapped_out += blocks.size();
    const absl::Status freed = Free(blocks);
    if (!freed.ok()) return freed;
    if (lose_swap_outs-- > 0) {
      for (const uint32_t name : names) swapped_.erase(name);
      return absl::DataLossError("swap out");
    }
    return names;
  }

  absl::StatusOr<std::vector<uint32_t>> SwapIn(const std::vector<uint32_t>& names) override {
    CheckCall(names);
    if (lose_swap_ins-- > 0) {
      for (const uint32_t name : names) swapped_.erase(name);
      return absl::DataLossError("swap in");
    }
    const auto blocks = Allocate(static_cast<uint32_t>(names.size()));
    if (!blocks.ok()) return blocks.status();
    for (size_t i = 0; i < names.size(); ++i) {
      const auto found = swapped_.find(names[i]);
      if (found == swapped_.end()) return absl::PermissionDeniedError("not swapped out");
      for (uint32_t slot = 0; slot < limits_.block_size; ++slot)
        memory_[{(*blocks)[i], slot}] = found->second[slot];
      swapped_.erase(found);
    }
    return blocks;
  }

  absl::Status FreeSwapped(const std::vector<uint32_t>& names) override {
    for (const uint32_t name : names) {
      if (swapped_.erase(name) == 0) Violate(absl::StrCat("forgot ", name, ", not swapped out"));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<uint32_t> SwapOutState(uint32_t id) override {
    if (fail_after_calls-- == 0) return Die();
    const auto row = rows_.find(id);
    if (row == rows_.end()) Violate(absl::StrCat("swapped out the state of unknown row ", id));
    for (const StepOutcome& outcome : outcomes_) {
      for (const engine::RowOutcome& ran : outcome.rows)
        if (ran.row == id) Violate(absl::StrCat("swapped out the state of row ", id, " in flight"));
    }
    if (states_.size() >= state_room) return absl::ResourceExhaustedError("swap");
    states_[next_swapped_] = History(row->second);
    return next_swapped_++;
  }

  absl::Status FreeSwappedState(uint32_t state) override {
    if (states_.erase(state) == 0) Violate(absl::StrCat("forgot ", state, ", no swapped state"));
    return absl::OkStatus();
  }

  size_t num_swapped_states() const { return states_.size(); }
  size_t num_swapped_blocks() const { return swapped_.size(); }
  size_t num_rows() const { return rows_.size(); }
  size_t num_held_blocks() const { return held_.size(); }
  size_t num_pool_blocks() const { return pool_.size(); }

  std::vector<PlannedStep> steps;  // that ran
  std::vector<std::string> violations;
  uint32_t rows_of_others = 0;
  uint32_t blocks_of_others = 0;
  uint64_t num_refused = 0;
  uint64_t num_allocates = 0;
  uint32_t swap_room = 0;         // blocks
  uint32_t state_room = 0;        // rows' state
  uint32_t max_swap_call = 1024;  // likewise, of one call
  int64_t lose_swap_outs = 0;     // the next so many calls are made, and what came of them is lost
  int64_t lose_swap_ins = 0;
  uint64_t num_swapped_out = 0;
  uint64_t num_prompt_tokens = 0;  // run
  uint32_t num_paused = 0;         // rows in steps
  uint64_t num_sampled = 0;        // tokens
  // Of calls for blocks and for swap space, likewise of results: then the server is gone.
  int64_t fail_after_calls = -1;
  int64_t fail_after_results = -1;
  struct Restart {
    int64_t fail_after_results = -1;
    int64_t fail_after_calls = -1;
  };
  std::deque<Restart> restarts;
  uint64_t weights = 0;  // another model where it is another number
  // A row whose last token is this one has no candidate: it stops, and its result shows token 0.
  std::optional<uint32_t> dead_end = {};
  // Another model: the next token is the one so many before it.
  uint32_t period = 0;
  uint64_t num_drafts = 0, num_accepted = 0;  // tokens

 private:
  struct Row {
    std::vector<uint32_t> blocks;
    uint32_t context = 0;
    bool sampled = false;
    bool stopped = false;
    uint32_t last_token = 0;
    uint32_t num_samples = 0;
    uint32_t max_new_tokens = 0;  // 0: no bound
  };

  void Start() {
    pool_.clear();
    for (uint32_t block = num_blocks_ - 1; block > 0; --block) pool_.push_back(block);
    held_.clear();
    rows_.clear();
    memory_.clear();
    swapped_.clear();
    states_.clear();
    outcomes_.clear();
    next_sequence_ = 1;
  }

  absl::Status Die() {
    dead_ = true;
    return absl::UnavailableError("server gone");
  }

  void Violate(std::string what) { violations.push_back(std::move(what)); }

  void CheckCall(const std::vector<uint32_t>& names) {
    if (names.empty() || names.size() > max_swap_call)
      Violate(absl::StrCat("a swap of ", names.size(), " blocks"));
  }

  absl::Status Check(const PlannedStep& step) {
    if (step.sequence != next_sequence_) {
      ++num_refused;
      return absl::FailedPreconditionError("sequence");
    }
    for (uint32_t row : step.drop) {
      if (rows_.count(row) == 0) Violate(absl::StrCat("dropped unknown row ", row));
    }
    const bool adds = !step.add.empty();
    if (adds &&
        rows_.size() - step.drop.size() + step.add.size() + rows_of_others > limits_.max_rows) {
      ++num_refused;
      if (rows_of_others == 0) Violate("more rows than max_rows");
      return absl::ResourceExhaustedError("rows");
    }
    return absl::OkStatus();
  }

  void Grow(uint32_t id, const std::vector<uint32_t>& blocks) {
    Row& row = rows_[id];
    for (uint32_t block : blocks) {
      if (held_.count(block) == 0)
        Violate(absl::StrCat("row ", id, " names foreign block ", block));
      for (const auto& [other, other_row] : rows_) {
        if (std::count(other_row.blocks.begin(), other_row.blocks.end(), block) > 0) {
          Violate(absl::StrCat("block ", block, " of row ", other, " given to row ", id));
        }
      }
      row.blocks.push_back(block);
    }
  }

  void Write(uint32_t id, uint32_t token) {
    Row& row = rows_[id];
    const uint32_t at = row.context / limits_.block_size;
    if (at >= row.blocks.size()) {
      Violate(absl::StrCat("row ", id, " runs beyond its table at context ", row.context));
      return;
    }
    memory_[{row.blocks[at], row.context % limits_.block_size}] = token;
    ++row.context;
  }

  std::vector<uint32_t> History(const Row& row) {
    std::vector<uint32_t> history;
    for (uint32_t p = 0; p < row.context; ++p) {
      history.push_back(memory_[{row.blocks[p / limits_.block_size], p % limits_.block_size}]);
    }
    return history;
  }

  void CheckHistory(const engine::StepDraft::Add& add) {
    const bool needed = engine::HasPenalties(add.sampling);
    const std::vector<uint32_t> written = History(rows_[add.row]);
    if (add.history != (needed ? written : std::vector<uint32_t>()))
      Violate(absl::StrCat("row ", add.row, " has another history"));
  }

  // A row with context has the state of just these tokens.
  void TakeState(const engine::StepDraft::Add& add) {
    if (limits_.row_state_bytes == 0 || add.context_length == 0) {
      if (add.swapped_state) Violate(absl::StrCat("row ", add.row, " with a state for nothing"));
      return;
    }
    const auto state = add.swapped_state ? states_.find(*add.swapped_state) : states_.end();
    if (state == states_.end() || state->second != History(rows_[add.row]))
      return Violate(absl::StrCat("row ", add.row, " goes on without its state"));
    states_.erase(state);
  }

  uint32_t Next(const std::vector<uint32_t>& history) const {
    if (period != 0 && period <= history.size()) return history[history.size() - period];
    return NextToken(history, limits_.vocab_size, weights);
  }

  void Finish(uint32_t id, bool sample, StepOutcome* outcome) {
    Row& row = rows_[id];
    row.sampled = sample;
    const std::vector<uint32_t> history = History(row);
    FinishReason finish = FinishReason::kNone;
    if (sample) {
      const bool dead = !history.empty() && history.back() == dead_end;
      row.last_token = dead ? 0 : Next(history);
      ++num_sampled;
      if (++row.num_samples == row.max_new_tokens) finish = FinishReason::kLength;
      if (dead) finish = FinishReason::kNoCandidate;
    }
    row.stopped = finish != FinishReason::kNone;
    outcome->rows.push_back({.row = id,
                             .sampled = sample,
                             .token = sample ? row.last_token : 0,
                             .context_length = row.context,
                             .finish = finish});
  }

  void Execute(const PlannedStep& step, StepOutcome* outcome) {
    for (uint32_t row : step.drop) rows_.erase(row);
    for (const auto& add : step.add) {
      if (rows_.count(add.row) > 0) Violate(absl::StrCat("row ", add.row, " added twice"));
      Grow(add.row, add.blocks);
      rows_[add.row].context = add.context_length;
      CheckHistory(add);
      TakeState(add);
      rows_[add.row].max_new_tokens = add.sampling.max_new_tokens;
    }
    for (const auto& append : step.append) Grow(append.row, append.blocks);

    bool skips_stopped = false;
    std::vector<uint32_t> continues = step.continue_rows;
    if (step.continue_all) {
      if (!continues.empty()) Violate("continue_all with continue_rows");
      for (const auto& [id, row] : rows_) {
        const bool chunked = std::any_of(step.chunks.begin(), step.chunks.end(),
                                         [id = id](const auto& chunk) { return chunk.row == id; });
        skips_stopped |= row.stopped;
        if (row.sampled && !row.stopped && !chunked) continues.push_back(id);
      }
    }
    for (const auto& chunk : step.chunks) {
      if (chunk.tokens.empty()) Violate("empty chunk");
      for (uint32_t token : chunk.tokens) Write(chunk.row, token);
      num_prompt_tokens += chunk.tokens.size();
      Finish(chunk.row, chunk.sample, outcome);
      outcome->report.tokens += static_cast<uint32_t>(chunk.tokens.size());
    }
    for (uint32_t id : continues) {
      skips_stopped |= rows_[id].stopped;
      outcome->report.tokens += Continue(id, outcome, DraftsOf(step, id));
    }
    CheckDrafts(step, continues);
    const bool mixed = !step.chunks.empty() || !step.drafts.empty();
    const uint32_t capacity = mixed ? limits_.max_prompt_tokens : limits_.max_step_tokens;
    if (outcome->report.tokens == 0 && step.drop.empty() && !skips_stopped)
      Violate("an empty step");
    if (outcome->report.tokens > capacity)
      Violate(absl::StrCat("a step of ", outcome->report.tokens, " tokens"));
    outcome->report.graph = mixed ? "mixed" : "decode";
    outcome->report.replayed = true;
    outcome->report.rows = static_cast<uint32_t>(outcome->rows.size());
    outcome->steps = {{.num_rows = outcome->report.rows, .report = outcome->report}};
    Repeat(step, outcome);
  }

  static std::vector<uint32_t> DraftsOf(const PlannedStep& step, uint32_t row) {
    for (const auto& draft : step.drafts)
      if (draft.row == row) return draft.tokens;
    return {};
  }

  void CheckDrafts(const PlannedStep& step, const std::vector<uint32_t>& continues) {
    size_t count = 0;
    for (const auto& draft : step.drafts) {
      count += draft.tokens.size();
      if (draft.tokens.empty()) Violate("an empty draft");
      if (std::count(continues.begin(), continues.end(), draft.row) != 1)
        Violate(absl::StrCat("a draft of row ", draft.row, ", which does not continue"));
    }
    if (count > limits_.max_draft_tokens) Violate(absl::StrCat(count, " draft tokens"));
    if (count != 0 && step.num_steps != 1) Violate("drafts in several steps");
    num_drafts += count;
  }

  // The tokens that it ran: one and its drafts, or none of a row that has stopped.
  uint32_t Continue(uint32_t id, StepOutcome* outcome, const std::vector<uint32_t>& drafts = {}) {
    if (rows_[id].stopped) {
      outcome->rows.push_back(
          {.row = id, .status = engine::RowStatus::kStopped, .context_length = rows_[id].context});
      return 0;
    }
    if (!rows_[id].sampled) Violate(absl::StrCat("row ", id, " has nothing to continue from"));
    const uint64_t end = rows_[id].context + 1 + drafts.size();
    if (end > rows_[id].blocks.size() * limits_.block_size || end > limits_.max_context_length)
      Violate(absl::StrCat("row ", id, " has no room for its drafts"));
    Write(id, rows_[id].last_token);
    Finish(id, true, outcome);
    engine::AcceptedRange accepted{.begin = static_cast<uint32_t>(outcome->accepted.size())};
    for (const uint32_t draft : drafts) {
      if (rows_[id].stopped || rows_[id].last_token != draft) break;
      outcome->accepted.push_back({.token = draft});
      ++accepted.count;
      outcome->rows.pop_back();
      Write(id, draft);
      Finish(id, true, outcome);
    }
    outcome->rows.back().accepted = accepted;
    num_accepted += accepted.count;
    return 1 + static_cast<uint32_t>(drafts.size());
  }

  // Tokens that a row could bring in later steps.
  uint32_t NumRepeats(uint32_t id) {
    const Row& row = rows_[id];
    const uint64_t room =
        std::min<uint64_t>(row.blocks.size() * limits_.block_size, limits_.max_context_length);
    const auto left = static_cast<uint32_t>(room - std::min<uint64_t>(room, row.context));
    if (row.max_new_tokens == 0) return left;
    return std::min(left, row.max_new_tokens - std::min(row.max_new_tokens, row.num_samples));
  }

  // The later steps, of the rows that sampled in the first, as far as any of them can go.
  void Repeat(const PlannedStep& step, StepOutcome* outcome) {
    if (step.num_steps < 1 || step.num_steps > limits_.max_steps_per_request)
      Violate(absl::StrCat("num_steps is ", step.num_steps));
    std::vector<uint32_t> going_on;
    for (const engine::RowOutcome& row : outcome->rows)
      if (row.sampled) going_on.push_back(row.row);
    uint32_t num_repeats = 0;
    for (const uint32_t id : going_on) num_repeats = std::max(num_repeats, NumRepeats(id));
    for (uint32_t i = 1; i < step.num_steps && i <= num_repeats; ++i) {
      engine::SingleStep single{.num_rows = static_cast<uint32_t>(going_on.size()),
                                .report = {.graph = "decode", .replayed = true}};
      for (const uint32_t id : going_on) {
        const Row& row = rows_[id];
        const uint64_t room =
            std::min<uint64_t>(row.blocks.size() * limits_.block_size, limits_.max_context_length);
        if (!row.stopped && row.context >= room) {
          outcome->rows.push_back(
              {.row = id, .status = engine::RowStatus::kPaused, .context_length = row.context});
          ++num_paused;
        } else {
          single.report.tokens += Continue(id, outcome);
        }
      }
      single.report.rows = single.report.tokens;
      outcome->steps.push_back(single);
    }
  }

  const kernels::StepLimits limits_;
  const uint32_t num_blocks_;
  bool dead_ = false;
  std::vector<uint32_t> pool_;
  std::set<uint32_t> held_;
  std::map<uint32_t, Row> rows_;
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> memory_;  // (block, slot) -> token
  std::map<uint32_t, std::vector<uint32_t>> swapped_;         // name -> tokens
  std::map<uint32_t, std::vector<uint32_t>> states_;          // histories of rows, in swap space
  uint32_t next_swapped_ = 0;
  std::deque<StepOutcome> outcomes_;
  uint64_t next_sequence_ = 1;
};

}  // namespace reprise::tools

#endif  // REPRISE_TESTS_TOOLS_FAKE_STEP_SERVER_H_
