// SPDX-License-Identifier: Apache-2.0
// What `run` and `sched` have in common: options that say what to generate and what to report.
#ifndef REPRISE_TOOLS_GENERATE_FLAGS_H_
#define REPRISE_TOOLS_GENERATE_FLAGS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "tools/cli.h"
#include "tools/sched/workload.h"

namespace reprise::tools {

struct GenerateFlags {
  WorkloadOptions workload;
  bool eager = false;
  uint32_t steps_per_request = 1;
  bool quiet = false;  // no generated text
  uint64_t warmup_steps = 0;
  std::string json_file;
};

// `flags` must outlive `app`.
void AddGenerateOptions(CLI::App* app, GenerateFlags* flags);

// Usage error unless prompts come from exactly one place. `others`: how many further sources the
// command has and got. `allowed`: all of them, for the message.
absl::Status CheckPrompts(const WorkloadOptions& workload, int others, const std::string& allowed);

// Random tokens are no text worth reading.
bool ShowsText(const GenerateFlags& flags);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_GENERATE_FLAGS_H_
