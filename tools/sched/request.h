// SPDX-License-Identifier: Apache-2.0
// Request: one prompt to be completed, from arrival to its last token. Plain data; the batcher
// moves it along, the driver stamps its times.
#ifndef REPRISE_TOOLS_SCHED_REQUEST_H_
#define REPRISE_TOOLS_SCHED_REQUEST_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "engine/sampling_params.h"
#include "engine/step_result.h"

namespace reprise::tools {

// Of a request: kStopToken: an end-of-text token, a stop token or a stop sequence came; kLength:
// max_new_tokens were generated; kNoCandidate: it cannot go on, Request::error says why.
using engine::FinishReason;

// As reports name it.
inline std::string_view NameOf(FinishReason reason) {
  switch (reason) {
    case FinishReason::kNone:
      return "none";
    case FinishReason::kStopToken:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kNoCandidate:
      return "error";
  }
  return "unknown";
}

// What has been planned for a request, results awaited or not. A value, so that a refused step is
// undone by putting the old one back.
struct RowPlan {
  uint32_t row = 0;  // 0: not resident
  // Tokens to prefill: the prompt, and after a preemption what had been generated.
  uint32_t input = 0;
  uint32_t context = 0;      // tokens in the KV cache
  uint32_t samples = 0;      // tokens sampled so far, over the request's whole life
  uint32_t blocks_sent = 0;  // of Request::blocks, the first so many are in the row's table
  bool continues = false;    // its last run sampled
};

struct Request {
  // ---- asked ----
  uint32_t id = 0;  // 1, 2, ... in order of arrival
  std::vector<uint32_t> prompt;
  uint32_t prompt_index = 0;  // of the prompts that were given, from 0 on; of random ones its own
  uint32_t max_new_tokens = 0;
  uint64_t arrival_ns = 0;  // since the start of the run
  int32_t priority = 0;     // higher ones go first
  // Generation ends after any of these.
  std::vector<std::vector<uint32_t>> stop_sequences;
  engine::OwnedSamplingParams sampling = {};

  // ---- generated ----
  std::vector<uint32_t> tokens;
  std::vector<uint64_t> token_times_ns;  // since the start of the run, one per token
  struct Chance {
    float logprob = 0.0f;
    uint32_t rank = 0;
    std::vector<engine::TokenLogprob> top;
  };
  std::vector<Chance> chances;  // one per token, with num_logprobs
  FinishReason finish = FinishReason::kNone;
  std::string error = {};  // why, of one that failed
  uint32_t num_preemptions = 0;
  uint32_t num_swaps = 0;  // of the preemptions, those after which its KV came back

  // ---- scheduling; the batcher's own ----
  RowPlan plan;
  std::vector<uint32_t> blocks;
  std::vector<uint32_t> swapped;  // in swap space, while it waits
  uint32_t swapped_context = 0;   // tokens whose KV they hold
  // Of a model whose rows carry state beside their KV: what it is called there.
  std::optional<uint32_t> swapped_state = {};
  // The same, of the step that added its row.
  std::optional<uint32_t> returning_state = {};
  uint32_t in_flight = 0;   // steps that name the row and have no result yet
  bool preempted = false;   // to be dropped as soon as nothing is in flight
  uint32_t computed = 0;    // of `tokens`, those that its row has had as input
  uint64_t planned_in = 0;  // sequence of the last step that names the row

  // What it had when its session was lost. Those behind `computed` are sampled once more: the KV of
  // tokens that are read as input is rounded otherwise.
  struct Had {
    std::vector<uint32_t> tokens;
    std::vector<Chance> chances;
  };
  Had had;
  // Of a request that will not go on: it keeps what it had.
  void Restore();

  bool finished() const { return finish != FinishReason::kNone; }
  bool failed() const { return finish == FinishReason::kNoCandidate; }
};

// Who goes first: the higher priority, then who came earlier.
inline bool GoesBefore(const Request& a, const Request& b) {
  return a.priority != b.priority ? a.priority > b.priority : a.id < b.id;
}

// OK unless requests failed; then FailedPrecondition says how many, which ones and why.
absl::Status FailureOf(const std::vector<Request>& requests);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_SCHED_REQUEST_H_
