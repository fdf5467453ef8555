// SPDX-License-Identifier: Apache-2.0
// What a step is, as plain structs: what a caller asks (StepRequest) and what it learns
// (StepResult). No protobuf, no device.
//
// A step names rows. A row is one sequence being generated; it stays resident on the device between
// steps (block table, context length, last token, sampling state). Row ids are the caller's own
// numbers, unique within its session. Within one step the operations apply in this order: drop,
// add, append, masks, then the rows that run (chunks, continues).
#ifndef REPRISE_ENGINE_STEP_H_
#define REPRISE_ENGINE_STEP_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace reprise::engine {

using SessionId = uint64_t;

struct TokenBias {
  uint32_t token = 0;
  float bias = 0.0f;  // finite; added to the token's logit
};

// How a row samples, and when it stops by itself. kernels/sample/sample.h says what each number
// does and in which order. Everything but temperature and seed costs nothing in steps whose rows
// leave it at its default. Ranges, beyond which a step is refused, in brackets.
struct SamplingParams {
  float temperature = 0.0f;  // [0, inf) 0 is greedy: the lowest token id wins a tie
  uint64_t seed = 0;   // keys the row's counter-based random numbers; the same (seed, context,
                       // model) draws the same token whatever else is in the batch
  uint32_t top_k = 0;  // 0: all
  float top_p = 1.0f;  // (0, 1]
  float min_p = 0.0f;  // [0, 1]
  float repetition_penalty = 1.0f;             // (0, inf)
  float presence_penalty = 0.0f;               // finite
  float frequency_penalty = 0.0f;              // finite
  std::span<const TokenBias> logit_bias = {};  // at most 512 tokens, each once
  // A bit per token, bit t % 8 of byte t / 8, ceil(vocab / 8) bytes; empty: all are allowed.
  std::span<const std::byte> allowed_tokens = {};
  // The row stops when it samples one of these (at most 64, with the model's own where
  // stop_at_eos), which it still reports.
  std::span<const uint32_t> stop_tokens = {};
  bool stop_at_eos = false;
  uint32_t max_new_tokens =
      0;                    // the row stops when it has sampled so many since it was added; 0: none
  uint32_t min_tokens = 0;  // no stop token is sampled before so many were; <= max_new_tokens
  // [0, 32] Report the likeliest tokens and the sampled one's rank, under the model's own logits.
  uint32_t num_logprobs = 0;
  bool return_logits = false;  // report all the model's own logits
};

// Makes a row resident. It runs in this step only if a chunk names it too.
// blocks: its block table so far, position p lives in blocks[p / block_size]. context_length:
// tokens whose KV those blocks already hold (prefix reuse); 0 for a fresh row.
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

// Runs `tokens` at the row's next positions. With `sample`, a next token is sampled after the last
// of them and the row may continue from it; without, the row waits for its next chunk (chunked
// prefill).
// `prompt_logprobs`: report how likely the model held each given token but the first (and the one
// behind the last, where `next_token` names it), so that chunks of a prompt that name their
// successor's first token report what the whole prompt would. `next_token` only with
// `prompt_logprobs`.
struct RowChunk {
  uint32_t row = 0;
  bool sample = false;
  std::span<const uint32_t> tokens;
  bool prompt_logprobs = false;
  std::optional<uint32_t> next_token = {};
};

enum class ExecutionMode : uint8_t {
  kReplay,   // one captured graph, the smallest that fits
  kEager,    // the same kernels launched one by one, only when asked for; the same bits
  kStamped,  // the decode graph's profiled form, a stamp behind every kernel, captured before by
             // DecodeEngine::CaptureProfiledGraphs; for measuring; the same bits
};

// Views: the caller keeps the arrays alive until Submit returns.
struct StepRequest {
  SessionId session = 0;
  uint64_t epoch = 0;     // of the session, from OpenSession
  uint64_t sequence = 0;  // 1 for the session's first step, then +1 each
  std::span<const uint32_t> drop;
  std::span<const RowAdd> add;
  std::span<const RowAppend> append;
  std::span<const RowMask> masks = {};
  std::span<const RowChunk> chunks;
  // Rows that run one decode token from their last sampled token. `continue_all`: every resident
  // row of the session whose last run sampled, that is not known to have stopped, and that no chunk
  // of this step names, in the order in which the rows were added; `continue_rows` must then be
  // empty.
  std::span<const uint32_t> continue_rows;
  bool continue_all = false;
  ExecutionMode mode = ExecutionMode::kReplay;
};

enum class RowStatus : uint8_t {
  kRan = 0,      // ran; `sampled` says whether a token came out
  kStopped = 1,  // had stopped on the device in an earlier step and did nothing
};

// Why a row stopped. It stays resident, does nothing in steps that name it, and waits to be
// dropped.
enum class FinishReason : uint8_t {
  kNone = 0,         // goes on
  kStopToken = 1,    // sampled one of its stop tokens
  kLength = 2,       // has sampled max_new_tokens
  kNoCandidate = 3,  // no token had a logit above minus infinity: `token` is 0, `logprob` NaN
};

// One of the likeliest tokens, likeliest first (equal logits: lower id first).
struct TokenLogprob {
  uint32_t token = 0;
  float logprob = 0.0f;
};
// Entries of StepResult::top_logprobs.
struct TopRange {
  uint32_t begin = 0;
  uint32_t count = 0;
};

// How likely the model held a given token.
struct PromptLogprob {
  uint32_t row = 0;
  uint32_t position = 0;  // of the token, in the row's context
  float logprob = 0.0f;
  uint32_t rank = 0;  // 1: the likeliest
  TopRange top = {};
};

// One row that ran, in request order: chunks first, then continues.
struct RowOutcome {
  uint32_t row = 0;
  RowStatus status = RowStatus::kRan;
  bool sampled = false;
  uint32_t token = 0;    // sampled token id, when sampled
  float logprob = 0.0f;  // log-softmax of the model's own logits at `token`, when sampled: before
                         // bias, masks, penalties and temperature
  uint32_t context_length = 0;                // tokens in the row's KV after this step
  FinishReason finish = FinishReason::kNone;  // this step's token was its last
  // With num_logprobs: the place of `token` among all, 1 for the likeliest, and the likeliest.
  uint32_t rank = 0;
  TopRange top = {};
  bool has_logits = false;  // its logits are in StepResult::logits, behind those of rows before it
};

// Where the step's time went, nanoseconds.
struct StepLedger {
  uint64_t validate_ns = 0;  // host: checking the request and planning on the host's mirror
  uint64_t ring_ns = 0;      // host: writing the metadata ring
  uint64_t launch_ns = 0;    // host: the one graph launch
  uint64_t device_ns = 0;    // device clock: first node's start to the publishing node
  uint64_t total_ns = 0;     // host: Submit entered to result seen by Wait
};

struct StepReport {
  std::string_view graph =
      {};                     // for instance "decode/8" or "mixed/256"; valid as long as the engine
  bool replayed = false;      // false only for ExecutionMode::kEager
  uint32_t rows = 0;          // rows that ran
  uint32_t tokens = 0;        // query tokens that ran
  uint32_t padding_rows = 0;  // decode buckets: capacity - rows; 0 for mixed buckets
  uint32_t padding_tokens = 0;  // bucket capacity in tokens - tokens
};

struct StepResult {
  SessionId session = 0;
  uint64_t sequence = 0;
  // Capacities are kept when a result is reused.
  std::vector<RowOutcome> rows;
  std::vector<TokenLogprob> top_logprobs = {};
  std::vector<PromptLogprob> prompt_logprobs = {};
  std::vector<float> logits = {};  // vocab_size for each row that has_logits
  StepReport report;
  StepLedger ledger;
};

}  // namespace reprise::engine

#endif  // REPRISE_ENGINE_STEP_H_
