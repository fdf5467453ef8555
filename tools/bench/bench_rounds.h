// SPDX-License-Identifier: Apache-2.0
// BenchRounds: the loop of every benchmark over its rounds, with a progress line on a terminal and
// a line per round in a log.
#ifndef REPRISE_TOOLS_BENCH_BENCH_ROUNDS_H_
#define REPRISE_TOOLS_BENCH_BENCH_ROUNDS_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "tools/console.h"
#include "tools/signals.h"

namespace reprise::tools {

struct BenchRounds {
  uint32_t rounds = 1;
  uint64_t units = 1;          // of a round
  const char* unit = "units";  // what they are called: "replays", "steps"

  // Told how many units were measured since it was last told, and of what. An error ends the
  // measurement: a signal's.
  using Told = std::function<absl::Status(uint32_t units, const std::string& what)>;

  // Calls `measure_round` once for every round. What ends it early leaves the rounds that are
  // complete. Errors: measure_round's.
  absl::Status Measure(const Interrupt& interrupt, Console* console,
                       const std::function<absl::Status(const Told& told)>& measure_round) const;
};

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_BENCH_BENCH_ROUNDS_H_
