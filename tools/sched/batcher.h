// SPDX-License-Identifier: Apache-2.0
// Batcher: the scheduling policy. It decides what the next step runs and takes in what came out of
// it. It knows no transport and no clock, so that every decision can be tested by itself. It is not
// thread-safe.
//
// Policy (continuous batching): every step runs all rows that decode, and spends what is left of
// its token budget on prompts, oldest first, cut into chunks where they do not fit. A request is
// admitted when the blocks of its whole prompt are there. A row that cannot get a block to grow
// preempts the youngest row: that one is dropped, and computed again from its prompt and the tokens
// it had. Or its blocks go to swap space once it is dropped, and come back before it goes on; where
// there is no room for them, it is computed again too.
//
// Requests of a higher priority come before others wherever "oldest first" is said, and a request
// that cannot be admitted preempts the youngest row of the lowest priority, if that is lower.
//
// Where a request may run several steps, those that carry no prompt tokens do: a row gets the
// blocks for all its tokens, as far as there are any, and pauses where they end. It goes on with
// the next request. Prompts are not kept waiting for such a row's later steps by its blocks: nobody
// is preempted for them, and none are taken while a row starves.
//
// Rows may bring drafts, guesses at their next tokens that the step verifies. One step is in flight
// at a time then, because it is known only behind it what a guess begins with. Drafts take what
// prompts leave of a step's tokens, and blocks that nobody else wants.
//
// Steps are planned before the results of earlier ones are known (pipelining). A length is known
// ahead, so no row is planned beyond it. A stop token is not: the row may already be in the next
// step, whose tokens for it are thrown away. A row is dropped once nothing of it is in flight; that
// keeps steps independent of each other, so that a refused one can be undone exactly.
#ifndef REPRISE_TOOLS_SCHED_BATCHER_H_
#define REPRISE_TOOLS_SCHED_BATCHER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/sched/block_manager.h"
#include "tools/sched/channel.h"
#include "tools/sched/ngram_guess.h"
#include "tools/sched/request.h"

namespace reprise::tools {

// What becomes of the KV of a row that is preempted.
enum class Preemption : uint8_t {
  kRecompute,  // it is computed again
  kSwap,       // it waits in swap space
};

struct BatcherOptions {
  uint32_t max_rows = 0;     // resident rows; 0: what the server allows
  uint32_t step_tokens = 0;  // of a step that carries prompt tokens; 0: what the server allows
  // No row decodes while a resident one has prompt tokens left: two clean phases, for measuring.
  bool prefill_first = false;
  bool eager = false;              // ask for eager execution in every step
  uint32_t steps_per_request = 1;  // at most
  Preemption preemption = Preemption::kRecompute;
  NgramOptions draft = {};
};

// Errors: InvalidArgument for more steps per request than the server takes, for swapping without
// swap space, for drafts that the server does not take, or beside several steps per request.
absl::Status CheckBatcherOptions(const ServerInfo& server, const BatcherOptions& options);

class Batcher {
 public:
  // `blocks` must outlive the batcher. REQUIRES: CheckBatcherOptions is OK.
  Batcher(const ServerInfo& server, const BatcherOptions& options, BlockManager* blocks);

  // Whether a request can ever run. Errors: InvalidArgument names the prompt: empty, a token beyond
  // the vocabulary, more context or blocks than the server has.
  absl::Status Check(const Request& request) const;
  // A request arrived; it must outlive the batcher. Ids must ascend. Errors: those of Check.
  absl::Status Add(Request* request);

  // Plans the next step, or several in one request; it may consist of drops alone. False: there is
  // nothing to do now, `step` is unspecified. Errors: those of the block source.
  absl::StatusOr<bool> Plan(PlannedStep* step);

  // What the outcome of a step came to.
  struct Progress {
    std::vector<Request*> advanced;  // got a token; of several steps once for each token
    std::vector<Request*> ended;     // are finished now, with a token or without
  };
  // Takes in the outcome of the oldest step in flight; `progress` is replaced. A row without any
  // token to sample ends its request as an error; the others go on. Errors: Internal when the
  // server answers something that was not asked, or less than was; those of the block source.
  absl::Status Apply(const StepOutcome& outcome, Progress* progress);

  // All steps in flight were refused: takes them back, as if never planned.
  void Undo();
  // The session is gone, and another one begins. Every request that has not finished waits, and is
  // computed again from where its row began. The tokens that it had since then come again: they are
  // no progress, and one that differs ends the request as an error.
  void BeginAgain();
  // Keeps to the rows that are resident now, until LiftRowLimit: the server has no room for more.
  void LimitRows() { row_limit_ = rows_.size(); }
  void LiftRowLimit() { row_limit_ = max_rows_; }

  size_t num_waiting() const { return waiting_.size() + leaving_.size(); }
  size_t num_resident() const { return rows_.size(); }
  size_t num_in_flight() const { return flights_.size(); }
  // Nothing waits, runs or is in flight.
  bool idle() const;

 private:
  struct Flight {
    uint64_t sequence = 0;
    std::vector<std::pair<Request*, RowPlan>> before;  // every request the step names, as it was
    std::vector<uint32_t> drop;
  };

  uint32_t BlocksFor(uint64_t tokens) const;
  uint64_t FinalContext(const Request& request) const;
  // Notes that the step being planned names the request.
  void Touch(Request* request);
  absl::Status RetireRows();
  absl::Status Retire(Request* request);
  // Whether what the row carries beside its KV waits in swap space, where it carries any, and its
  // blocks are to follow.
  absl::StatusOr<bool> SwapOutState(Request* request, uint32_t row);
  // What waits in swap space is of no use any more: the request is computed again.
  absl::Status LoseSwapped(Request* request);
  absl::Status FreeLostStates();
  void Enqueue(Request* request);
  // The row has left the server: its blocks go to swap space.
  absl::Status SwapOut(Request* request, uint64_t sequence);
  // A row that continues in the step being planned. append: of its row in the step, or none.
  struct Continuing {
    Request* request;
    size_t append;
  };
  static constexpr size_t kNoAppend = ~size_t{0};
  static constexpr int64_t kAnyPriority = std::numeric_limits<int64_t>::max();

  absl::Status PlanContinues(PlannedStep* step);
  // Makes one step that rows continue in several, as far as rows want and have room for them.
  absl::Status PlanRepeats(PlannedStep* step);
  // Gives rows that continue drafts, as far as there is room for them.
  absl::Status PlanDrafts(PlannedStep* step);
  // Takes blocks for a row of `tokens`, as far as there are any, and sends its table.
  absl::Status TakeRoom(uint32_t tokens, Continuing* row, PlannedStep* step);
  // Sends the row's table up to `count` blocks.
  void SendBlocks(Continuing* row, uint32_t count, PlannedStep* step);
  absl::Status Admit(uint32_t budget, PlannedStep* step);
  // Prompt tokens that rows which go before the request still have to run.
  uint64_t PromptTokensBefore(const Request& request) const;
  // True when the request has `count` blocks; the first of them hold the KV of `swapped_context`
  // tokens.
  absl::StatusOr<bool> TakeBlocks(Request* request, uint32_t count);
  // Says what a row that is added is computed from.
  static void ChooseInput(Request* request);
  // Back to the tokens that its row was computed from.
  static void Rewind(Request* request);
  void AddRow(Request* request, PlannedStep* step);
  void PlanChunks(uint32_t budget, PlannedStep* step);
  // True when the row has the blocks for one more token; else it preempts or waits.
  absl::StatusOr<bool> Grow(Continuing* row, PlannedStep* step);
  // Of the rows with a priority below that.
  absl::Status PreemptYoungest(int64_t below = kAnyPriority);
  // One that the row has sampled, and what is known of it.
  struct Sampled {
    uint32_t token;
    Request::Chance chance;
  };
  void TakeSampled(const Sampled& sampled, Request* request, Progress* progress);
  absl::Status TakeRow(const StepOutcome& outcome, const engine::RowOutcome& row, Request* request,
                       Progress* progress);
  void TakeToken(Request* request, uint32_t token);
  // The row samples once more what the request had. True: another token came.
  static bool Differs(Request* request, uint32_t token);

  const kernels::StepLimits limits_;
  const uint32_t num_blocks_;  // that it may hold
  const bool has_whole_pool_;
  const BatcherOptions options_;
  const size_t max_rows_;
  const uint32_t step_tokens_;
  const uint32_t max_steps_;  // of a request
  BlockManager* blocks_;

  std::vector<Request*> waiting_;  // who goes first
  std::vector<Request*> rows_;     // resident, likewise
  absl::flat_hash_map<uint32_t, Request*> by_row_;
  std::vector<uint32_t> pending_drops_;  // for the next step
  // Preempted, by row: dropped, to be swapped out when the server has done it.
  absl::flat_hash_map<uint32_t, Request*> leaving_;
  std::vector<uint32_t> lost_states_;  // in swap space, of rows whose step was refused
  std::deque<Flight> flights_;         // oldest first; the last one while it is being planned
  uint64_t next_sequence_ = 1;
  uint32_t next_row_ = 1;
  size_t row_limit_;
  bool starved_ = false;                // in this plan a row could not grow
  std::vector<Continuing> continuing_;  // in this plan
};

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_SCHED_BATCHER_H_
