// SPDX-License-Identifier: Apache-2.0
// StepResult: what a caller learns of one step, as plain structs. step_request.h has what it asked.
#ifndef REPRISE_ENGINE_STEP_RESULT_H_
#define REPRISE_ENGINE_STEP_RESULT_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "engine/session_info.h"
#include "kernels/step/finish_reason.h"

namespace reprise::engine {

// Identifies a submitted step, between Submit and Wait.
using StepTicket = uint64_t;

using kernels::FinishReason;

enum class RowStatus : uint8_t {
  kRan = 0,      // ran; `sampled` says whether a token came out
  kStopped = 1,  // had stopped on the device in an earlier step and did nothing
  // Had no room for its next token, in its block table or below max_context_length, and did
  // nothing. Only in later steps of a request.
  kPaused = 2,
};

// One of the likeliest tokens, likeliest first (equal logits: lower id first).
struct TokenLogprob {
  uint32_t token = 0;
  float logprob = 0.0f;
};
// A range of entries of StepResult::top_logprobs.
struct TopRange {
  uint32_t begin = 0;
  uint32_t count = 0;
};

// How likely the model took a given token to be.
struct PromptLogprob {
  uint32_t row = 0;
  uint32_t position = 0;  // of the token, in the row's context
  float logprob = 0.0f;
  uint32_t rank = 0;  // 1: the likeliest
  TopRange top = {};
};

// A draft that was accepted: a token that the row has sampled before `RowOutcome::token`.
struct AcceptedToken {
  uint32_t token = 0;
  // As RowOutcome has them.
  float logprob = 0.0f;
  uint32_t rank = 0;
  TopRange top = {};
};
// A range of entries of StepResult::accepted.
struct AcceptedRange {
  uint32_t begin = 0;
  uint32_t count = 0;
};

// One row that ran in a step, in request order: chunks first, then continues.
struct RowOutcome {
  uint32_t row = 0;
  RowStatus status = RowStatus::kRan;
  bool sampled = false;
  uint32_t token = 0;  // sampled token id, when sampled
  // When sampled: the log-softmax of the model's own logits at `token`, before bias, masks,
  // penalties and temperature.
  float logprob = 0.0f;
  uint32_t context_length = 0;                // tokens in the row's KV after this step
  FinishReason finish = FinishReason::kNone;  // why this step's token was its last
  // With num_logprobs: the place of `token` among all, 1 for the likeliest, and the likeliest.
  uint32_t rank = 0;
  TopRange top = {};
  AcceptedRange accepted = {};  // of its drafts; they count in context_length
  bool has_logits = false;  // its logits are in StepResult::logits, behind those of rows before it
};

// A row that was refused alone: StepRequest::isolate_bad_rows.
struct RefusedRow {
  uint32_t row = 0;
  absl::Status status;  // as DecodeEngine::Submit would refuse the request for it
};

// Where the request's time went, nanoseconds.
struct StepLedger {
  uint64_t validate_ns = 0;  // host: checking the request and planning on the host's mirror
  uint64_t ring_ns = 0;      // host: writing the metadata ring
  uint64_t launch_ns = 0;    // host: one graph launch per step
  uint64_t device_ns = 0;    // device clock: first node's start to the publishing node of the last
  uint64_t total_ns = 0;     // host: Submit entered to result seen by Wait
};

struct StepReport {
  // For instance "decode/8" or "mixed/256"; valid as long as the engine is.
  std::string_view graph = {};
  bool replayed = false;  // false only for ExecutionMode::kEager
  uint32_t rows = 0;      // rows that ran
  uint32_t tokens = 0;    // query tokens that ran
  // Of requests of other sessions that ran in the same replay (SubmitJoint).
  uint32_t other_rows = 0;
  uint32_t other_tokens = 0;
  // Of these requests it is the first: it stands for the replay where replays are counted.
  bool is_first = true;
  uint32_t padding_rows = 0;    // decode buckets: capacity - all rows; 0 for mixed ones
  uint32_t padding_tokens = 0;  // bucket capacity in tokens - all tokens
  // The attention tree that was in force, and the leaf of its batch's part that the step came to;
  // AttentionTreeInfo names it.
  uint64_t attention_tree = 0;
  uint32_t attention_leaf = 0;
};

// One step of a request.
struct SingleStep {
  uint32_t num_rows = 0;  // of StepResult::rows, behind those of the steps before it
  StepReport report;
  uint64_t device_ns = 0;  // as StepLedger's, of this step alone
};

struct StepResult {
  SessionId session = 0;
  uint64_t sequence = 0;
  // Capacities are kept when a result is reused.
  std::vector<RowOutcome> rows;  // of all steps, one step after another
  // In order: num_steps of the request, or fewer, at least 1: last steps in which no row could have
  // run, by its room and its max_new_tokens, are not launched.
  std::vector<SingleStep> steps = {};
  std::vector<AcceptedToken> accepted = {};
  std::vector<TokenLogprob> top_logprobs = {};
  std::vector<PromptLogprob> prompt_logprobs = {};
  std::vector<float> logits = {};  // vocab_size for each row that has_logits
  // With isolate_bad_rows: those that did not take part, each once. They have no entry in `rows`.
  std::vector<RefusedRow> refused_rows = {};
  StepReport report;  // of the first step
  StepLedger ledger;
};

// Of all rows and steps, accepted drafts among them.
inline uint32_t NumSampledTokens(const StepResult& result) {
  auto count = static_cast<uint32_t>(result.accepted.size());
  for (const RowOutcome& row : result.rows) count += row.sampled ? 1 : 0;
  return count;
}

}  // namespace reprise::engine

#endif  // REPRISE_ENGINE_STEP_RESULT_H_
