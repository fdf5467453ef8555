// SPDX-License-Identifier: Apache-2.0
// Workload: which requests there are and when they arrive. The same options give the same requests
// on every machine.
#ifndef REPRISE_TOOLS_SCHED_WORKLOAD_H_
#define REPRISE_TOOLS_SCHED_WORKLOAD_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/sched/arrival_trace.h"
#include "tools/sched/channel.h"
#include "tools/sched/prompts_file.h"
#include "tools/sched/request.h"

namespace reprise::tools {

// Random numbers that are the same everywhere: the standard library's distributions are not.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t Next();
  double Uniform();                // [0, 1)
  uint64_t Below(uint64_t bound);  // [0, bound), bound >= 1

 private:
  uint64_t state_;
};

// How long prompts are: given lengths that repeat in order, or log-uniform in [min, max].
struct PromptLengths {
  std::vector<uint32_t> fixed;  // empty: the range
  uint32_t min = 0;
  uint32_t max = 0;
};

// "128", "128,512,2048" or "64..8192". Errors: InvalidArgument with what, got, allowed.
absl::StatusOr<PromptLengths> ParsePromptLengths(std::string_view text);

enum class Arrivals : uint8_t {
  kTogether,  // all at the start
  kFixed,     // evenly spaced
  kPoisson,   // exponential gaps
};

struct WorkloadOptions {
  // Prompts come from one of these: texts (of byte models), token ids, a file of either, random
  // tokens, or a trace, which has arrivals, lengths and priorities, and whose prompts are random
  // tokens. Requests beyond their number repeat them, but for a trace's.
  std::vector<std::string> texts;
  std::vector<std::vector<uint32_t>> token_prompts;
  std::vector<FilePrompt> file_prompts;
  bool random_prompts = false;
  PromptLengths prompt_lengths;  // of random prompts
  std::vector<TracedRequest> trace;

  uint32_t num_requests = 0;  // 0: one per prompt; of a trace the first so many
  uint32_t max_new_tokens = 128;
  uint64_t seed = 1;  // of everything random here; request i samples with seed + i
  Arrivals arrivals = Arrivals::kTogether;
  double rate = 0.0;                // requests per second; > 0 unless kTogether
  std::vector<int32_t> priorities;  // of the requests, in turn; empty: 0
  bool ignore_eos = false;
  std::vector<std::string> stop_texts;                // of byte models
  std::vector<std::vector<uint32_t>> stop_sequences;  // token ids
  engine::OwnedSamplingParams sampling;               // but for its seed
};

// Requests sorted by arrival, ids from 1 on. Errors: InvalidArgument: text for a model whose tokens
// are no bytes; no prompt; more requests than a trace has.
absl::StatusOr<std::vector<Request>> MakeWorkload(const WorkloadOptions& options,
                                                  const ServerInfo& server);

// Beginnings that the byte model that ships with Reprise knows how to go on from.
std::vector<std::string> DemoPrompts();

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_SCHED_WORKLOAD_H_
