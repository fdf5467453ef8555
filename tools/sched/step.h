// SPDX-License-Identifier: Apache-2.0
// What the scheduler asks of one step and what it learns, free of the transport: client.h carries
// it over gRPC, run/ into an engine in this process. The meaning of every field is that of
// proto/reprise/v1/step_service.proto.
#ifndef REPRISE_TOOLS_SCHED_STEP_H_
#define REPRISE_TOOLS_SCHED_STEP_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace reprise::tools {

// What the scheduler must know of the other side. From Describe, or from an engine's info.
struct ServerLimits {
  uint32_t block_size = 0;          // tokens
  uint32_t num_blocks = 0;          // of the pool, the scratch block included
  uint32_t max_rows = 0;            // resident rows, all sessions together
  uint32_t max_context_length = 0;  // tokens
  uint32_t max_step_tokens = 0;     // query tokens of one step
  uint32_t max_prompt_tokens =
      0;  // capacity of the largest mixed bucket: a step with chunks has at most that many tokens
  uint32_t pipeline_depth = 1;  // steps in flight
  uint32_t vocab_size = 0;
  std::vector<uint32_t> eos_token_ids = {};
  bool byte_tokens = false;  // an id below 256 is that byte
};

// Of a row's sampling, what is beyond temperature and seed. Fields left alone are off.
struct SamplingChoice {
  uint32_t top_k = 0;
  float top_p = 1.0f;
  float min_p = 0.0f;
  float repetition_penalty = 1.0f;
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  std::vector<uint32_t> logit_bias_tokens = {};
  std::vector<float> logit_bias = {};
  std::vector<uint32_t> stop_tokens = {};  // the row stops on the device
  uint32_t num_logprobs = 0;

  bool penalises() const {
    return repetition_penalty != 1.0f || presence_penalty != 0.0f || frequency_penalty != 0.0f;
  }
};

struct PlannedStep {
  struct Add {
    uint32_t row = 0;
    std::vector<uint32_t> blocks = {};
    float temperature = 0.0f;
    uint64_t seed = 0;
    SamplingChoice sampling = {};
    uint32_t prompt_length = 0;  // with penalties: of what the row is given, the rest was sampled
  };
  struct Append {
    uint32_t row = 0;
    std::vector<uint32_t> blocks = {};
  };
  struct Chunk {
    uint32_t row = 0;
    std::vector<uint32_t> tokens = {};
    bool sample = false;
  };

  uint64_t sequence = 0;
  std::vector<uint32_t> drop = {};
  std::vector<Add> add = {};
  std::vector<Append> append = {};
  std::vector<Chunk> chunks = {};
  std::vector<uint32_t> continue_rows = {};  // empty when continue_all
  bool continue_all = false;
  bool eager = false;
};

struct TokenChance {
  uint32_t token = 0;
  float logprob = 0.0f;
};

// Why a row stopped on the device, as its result says it.
enum class RowFinish : uint8_t {
  kNone,         // goes on
  kStopToken,    // sampled one of its stop tokens
  kLength,       // has sampled the most that it was given leave for
  kNoCandidate,  // no token had a logit above minus infinity; `token` is none
};

struct StepOutcome {
  struct Row {
    uint32_t row = 0;
    bool ran = true;  // false: had stopped on the device and did nothing
    bool sampled = false;
    uint32_t token = 0;
    float logprob = 0.0f;
    uint32_t context_length = 0;
    RowFinish finish = RowFinish::kNone;
    uint32_t rank = 0;                  // with num_logprobs: of `token`
    std::vector<TokenChance> top = {};  // likeliest first
  };
  // Where the step's time went, ns. The embedded library knows no wire, queue and reply: 0 there.
  struct Ledger {
    uint64_t wire_ns = 0;
    uint64_t queue_ns = 0;
    uint64_t validate_ns = 0;
    uint64_t ring_ns = 0;
    uint64_t launch_ns = 0;
    uint64_t device_ns = 0;
    uint64_t reply_ns = 0;
    uint64_t total_ns = 0;
  };

  uint64_t sequence = 0;
  // Not OK: the step was refused, nothing changed, and the rest is unset.
  absl::Status refusal = {};
  std::vector<Row> rows = {};
  std::string graph = {};
  bool replayed = false;
  uint32_t tokens = 0;
  uint32_t padding_rows = 0;
  uint32_t padding_tokens = 0;
  Ledger ledger = {};
  uint64_t round_trip_ns = 0;  // Submit entered to result in hand
};

// Carries steps in order. One thread. An error means that the channel is gone for good; a refused
// step is not an error but an outcome.
class StepChannel {
 public:
  virtual ~StepChannel() = default;
  virtual absl::Status Submit(const PlannedStep& step) = 0;
  // Blocks for the outcome of the oldest step that has none yet.
  virtual absl::Status Receive(StepOutcome* outcome) = 0;
};

// Where blocks come from.
class BlockSource {
 public:
  virtual ~BlockSource() = default;
  // All or nothing. ResourceExhausted: the pool lacks them right now.
  virtual absl::StatusOr<std::vector<uint32_t>> Allocate(uint32_t count) = 0;
  virtual absl::Status Free(const std::vector<uint32_t>& blocks) = 0;
};

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_SCHED_STEP_H_
