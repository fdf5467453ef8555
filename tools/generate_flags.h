// SPDX-License-Identifier: Apache-2.0
// What `run` and `sched` have in common: options that say what to generate and what to report.
#ifndef REPRISE_TOOLS_GENERATE_FLAGS_H_
#define REPRISE_TOOLS_GENERATE_FLAGS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/cli.h"
#include "tools/sched/workload.h"

namespace reprise::tools {

struct GenerateFlags {
  WorkloadOptions workload;  // without what files hold
  std::string prompts_file = {}, prompt_tokens_file = {};
  bool eager = false;
  uint32_t steps_per_request = 1;
  bool quiet = false;  // no generated text
  uint64_t warmup_steps = 0;
  std::string json_file;
  std::string json_lines_file;
};

// `flags` must outlive `app`.
void AddGenerateOptions(CLI::App* app, GenerateFlags* flags);

// Usage error unless prompts come from exactly one place. `others`: how many further sources of
// prompts the command has and got. `allowed`: all of them, for the message.
absl::Status CheckGenerateFlags(const GenerateFlags& flags, int others, const std::string& allowed);

// `flags.workload`, and the prompts of the file where there is one. Errors: those of the file.
absl::StatusOr<WorkloadOptions> ReadWorkload(const GenerateFlags& flags);

// Random tokens are no text worth reading.
bool ShowsText(const GenerateFlags& flags);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_GENERATE_FLAGS_H_
