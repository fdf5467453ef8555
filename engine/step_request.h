// SPDX-License-Identifier: Apache-2.0
// StepRequest: what a caller asks of one step, or of several in a row, as plain structs that view
// the caller's arrays.
// step_result.h has what it learns, step_draft.h the same with arrays of its own.
//
// A step names rows. A row is one sequence being generated; it stays resident on the device between
// steps (block table, context length, last token, sampling state). Row ids are the caller's own
// numbers, unique within its session. Within one step the operations apply in this order: drop,
// copies, add, append, masks, prefixes, then the rows that run (chunks, continues).
#ifndef REPRISE_ENGINE_STEP_REQUEST_H_
#define REPRISE_ENGINE_STEP_REQUEST_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "absl/status/status.h"
#include "engine/sampling_params.h"
#include "engine/session_info.h"

namespace reprise::engine {

// Copies a KV block, all layers of it, before any row of the step runs: what a row needs that forks
// in the middle of a block, and what shares the blocks before it. Both are the session's; tokens of
// `source` were written by earlier steps; `destination` is in the table of no row that is resident
// once the step's drops are done, and in no other copy. From this step on the session has written
// there what it had in `source`, and no more.
struct BlockCopy {
  uint32_t source = 0;
  uint32_t destination = 0;
};

// Makes a row resident. It runs in this step only if a chunk names it too. blocks: its block table
// so far; position p lives in blocks[p / block_size]. context_length: how many tokens' KV those
// blocks already hold (prefix reuse); 0 for a fresh row. Of a model whose rows carry state beside
// their KV (StepLimits::row_state_bytes) a row with context says where its state comes from.
struct RowAdd {
  uint32_t row = 0;
  SamplingParams sampling;
  uint32_t context_length = 0;
  std::span<const uint32_t> blocks;
  // For penalties: the ids of those context_length tokens. Needed when context_length > 0 and the
  // row has a penalty; ignored without one.
  std::span<const uint32_t> history = {};
  // For penalties: given tokens (of `history` and of chunks) from this position on count as sampled
  // ones, which is how a row goes on that was dropped and is computed again. 0: all count as
  // prompt.
  uint32_t prompt_length = 0;
  // Of a model whose rows carry state, with context: the row of this session whose state the new
  // one begins with. It is resident before the step, stays so in it, and has as many tokens of
  // context as the new one, by steps that have all been waited for. The copy is made ahead of the
  // step: `fork_of` may run in it.
  std::optional<uint32_t> fork_of = {};
  // Instead: state that DecodeEngine::SwapOutState has moved to swap space, of a row that had as
  // many tokens of context as this one. Its place there is free from this step on.
  std::optional<uint32_t> swapped_state = {};
};

// Replaces the tokens that a row may sample, from this step on. Empty: all.
struct RowMask {
  uint32_t row = 0;
  std::span<const std::byte> allowed_tokens;
};

// Grows a row's block table.
struct RowAppend {
  uint32_t row = 0;
  std::span<const uint32_t> blocks;
};

// From this step on, rows whose block tables begin with the same num_blocks blocks, which hold
// tokens of theirs, are a group: where the device can, their attention reads these blocks once for
// several rows, as long as each runs one query token in a step. The rows of a group that runs
// already are named by the group's number, with its number of blocks; they keep to it until they
// are dropped or named again.
// A row's bits depend on num_blocks, and not on the group's other rows, nor on whether there are
// any; they differ from those of a row of no group.
struct PrefixGroup {
  uint32_t group = 0;       // the caller's number, unique within its session; 0: of no group
  uint32_t num_blocks = 0;  // 0 for group 0 alone
  std::span<const uint32_t> rows;
};

// Runs `tokens` at the row's next positions. With `sample`, a next token is sampled after the last
// of them and the row may continue from it; without, the row waits for its next chunk (chunked
// prefill).
// `prompt_logprobs`: the result reports how likely the model took each given token but the first to
// be, and also the token behind the last one, where `next_token` names it. So the chunks of a
// prompt report what the whole prompt would, if each names the first token of the next.
// `next_token` is allowed only with `prompt_logprobs`.
struct RowChunk {
  uint32_t row = 0;
  bool sample = false;
  std::span<const uint32_t> tokens;
  bool prompt_logprobs = false;
  std::optional<uint32_t> next_token = {};
};

// Tokens that a row is expected to sample next, in order, of a row that continues in this step. The
// step runs them behind the row's last token and samples behind each, as the row would one token at
// a time: by its parameters, with the random numbers of those positions, and as if the drafts
// before had been sampled. Drafts are accepted up to the first that is not what was sampled there,
// or at which the row stops; the token sampled in its place, or behind the last draft, is the row's
// token of this step (RowOutcome::accepted, token). So the row samples what it would have sampled
// without drafts, in fewer steps. A row of several tokens goes through the prefill attention
// kernel, on GPUs with other rounding than that of single tokens (docs/architecture.md).
// The row must have room for all of its drafts. Not with num_steps of more than 1, nor for rows
// that return their logits. Drafts of a row that has stopped are left out with it.
struct RowDraft {
  uint32_t row = 0;
  std::span<const uint32_t> tokens;  // at least 1; of all rows at most limits.max_draft_tokens
};

enum class ExecutionMode : uint8_t {
  kReplay,  // one captured graph, the smallest that fits
  kEager,   // the same kernels launched one by one, only when asked for; the same bits
};

// Views: the caller keeps the arrays alive until Submit returns.
struct StepRequest {
  SessionId session = 0;
  uint64_t epoch = 0;     // of the session, from OpenSession
  uint64_t sequence = 0;  // 1 for the session's first step, then +1 each
  std::span<const uint32_t> drop;
  std::span<const BlockCopy> copies = {};  // at most limits.max_rows
  std::span<const RowAdd> add;
  std::span<const RowAppend> append;
  std::span<const RowMask> masks = {};
  std::span<const PrefixGroup> prefixes = {};
  std::span<const RowChunk> chunks;
  // Rows that run one decode token from their last sampled token. `continue_all`: every resident
  // row of the session whose last run sampled, that is not known to have stopped, and that no chunk
  // of this step names, in the order in which the rows were added; `continue_rows` must then be
  // empty.
  std::span<const uint32_t> continue_rows;
  bool continue_all = false;
  // Of rows that continue in this step, each at most once.
  std::span<const RowDraft> drafts = {};
  ExecutionMode mode = ExecutionMode::kReplay;
  // How many steps the request runs, 1 to limits.max_steps_per_request. The first is what is said
  // above. In later steps every row that samples in the first continues, as if so many requests
  // had named it in continue_rows, with the same bits; all of them are launched at once. The device
  // decides what becomes of a row: one that has stopped does nothing, and one that has no room for
  // its next token pauses (RowStatus). A row that has paused goes on with a request that appends
  // blocks. Last steps in which no row has room or max_new_tokens left for a token are not run: the
  // result has fewer. The request takes one sequence number and one place in the pipeline. Blocks
  // that these tokens may go to must be the row's alone. With more than 1 no row may return its
  // logits, nor have drafts whose result has not been waited for.
  uint32_t num_steps = 1;
  // A row with an entry that is wrong is refused alone: all that the request says of the row is
  // left out, nothing of the row changes, the result names it (StepResult::refused_rows), and the
  // rest runs. Where false, the whole request is refused. What is no row's fault refuses all of it
  // in either case: order, copies, num_steps, limits of what is left, prefix groups that are wrong
  // in themselves, more than max_rows bad rows. A row that is named twice where once is allowed is
  // one bad row. Of rows that would write to one block none runs. In a new prefix group a row is
  // bad whose table differs from that of the group's first row.
  bool isolate_bad_rows = false;
};

// Requests that one SubmitJoint takes at most.
inline constexpr uint32_t kMaxJointRequests = 64;

// One of the requests that DecodeEngine::SubmitJoint is to run in one replay.
struct JointRequest {
  enum class Outcome : uint8_t {
    kTaken,    // submitted
    kRefused,  // by `status`, as Submit would; nothing of it has changed
    // Does not fit beside those taken before it, by its kind or by a limit; nothing of it has
    // changed, and it may be submitted behind them.
    kLeft,
  };
  const StepRequest* request = nullptr;
  Outcome outcome = Outcome::kLeft;
  absl::Status status = {};
};

}  // namespace reprise::engine

#endif  // REPRISE_ENGINE_STEP_REQUEST_H_
