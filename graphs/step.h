// SPDX-License-Identifier: Apache-2.0
// What a step is, as plain structs: what a caller asks (StepRequest) and what it learns
// (StepResult). No protobuf, no device.
//
// A step names rows. A row is one sequence being generated; it stays resident on the device between
// steps (block table, context length, last token, sampling state). Row ids are the caller's own
// numbers, unique within its session. Within one step the operations apply in this order: drop,
// add, append, then the rows that run (chunks, continues).
#ifndef REPRISE_GRAPHS_STEP_H_
#define REPRISE_GRAPHS_STEP_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace reprise::graphs {

using SessionId = uint64_t;

// temperature: >= 0 and finite; 0 is greedy (lowest token id wins a tie). seed: keys the row's
// counter-based random numbers; the same (seed, context, model) draws the same token whatever else
// is in the batch.
struct SamplingParams {
  float temperature = 0.0f;
  uint64_t seed = 0;
};

// Makes a row resident. It runs in this step only if a chunk names it too.
// blocks: its block table so far, position p lives in blocks[p / block_size]. context_length:
// tokens whose KV those blocks already hold (prefix reuse); 0 for a fresh row.
struct RowAdd {
  uint32_t row = 0;
  SamplingParams sampling;
  uint32_t context_length = 0;
  std::span<const uint32_t> blocks;
};

// Grows a row's block table.
struct RowAppend {
  uint32_t row = 0;
  std::span<const uint32_t> blocks;
};

// Runs `tokens` at the row's next positions. With `sample`, a next token is sampled after the last
// of them and the row may continue from it; without, the row waits for its next chunk (chunked
// prefill).
struct RowChunk {
  uint32_t row = 0;
  bool sample = false;
  std::span<const uint32_t> tokens;
};

enum class ExecutionMode : uint8_t {
  kReplay,   // one captured graph, the smallest that fits
  kEager,    // the same kernels launched one by one, only when asked for; the same bits
  kStamped,  // the decode graph's twin with a stamp behind every kernel, captured before by
             // DecodeEngine::CaptureTwins; for measuring; the same bits
};

// Views: the caller keeps the arrays alive until Submit returns.
struct StepRequest {
  SessionId session = 0;
  uint64_t epoch = 0;     // of the session, from OpenSession
  uint64_t sequence = 0;  // 1 for the session's first step, then +1 each
  std::span<const uint32_t> drop;
  std::span<const RowAdd> add;
  std::span<const RowAppend> append;
  std::span<const RowChunk> chunks;
  // Rows that run one decode token from their last sampled token. `continue_all`: every resident
  // row of the session whose last run sampled and that no chunk of this step names, in the order in
  // which the rows were added; `continue_rows` must then be empty.
  std::span<const uint32_t> continue_rows;
  bool continue_all = false;
  ExecutionMode mode = ExecutionMode::kReplay;
};

enum class RowStatus : uint8_t {
  kRan = 0,      // ran; `sampled` says whether a token came out
  kStopped = 1,  // had stopped on the device in an earlier step and did nothing
};

// One row that ran, in request order: chunks first, then continues.
struct RowOutcome {
  uint32_t row = 0;
  RowStatus status = RowStatus::kRan;
  bool sampled = false;
  uint32_t token = 0;           // sampled token id, when sampled
  float logprob = 0.0f;         // log-softmax of the unscaled logits at `token`, when sampled
  uint32_t context_length = 0;  // tokens in the row's KV after this step
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
  std::vector<RowOutcome> rows;  // capacity is kept when a result is reused
  StepReport report;
  StepLedger ledger;
};

}  // namespace reprise::graphs

#endif  // REPRISE_GRAPHS_STEP_H_
