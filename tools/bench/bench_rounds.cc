// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/bench_rounds.h"

#include <chrono>

#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"
#include "tools/units.h"

namespace reprise::tools {

absl::Status BenchRounds::Measure(
    const Interrupt& interrupt, Console* console,
    const std::function<absl::Status(const Told& told)>& measure_round) const {
  const uint64_t total = rounds * units;
  uint64_t done = 0;
  for (uint32_t round = 0; round < rounds; ++round) {
    const auto start = std::chrono::steady_clock::now();
    const auto told = [&](uint32_t more, const std::string& what) {
      done += more;
      console->Progress(absl::StrCat(
          "bench ",
          ProgressBar(static_cast<double>(done), static_cast<double>(total), 20, *console), " ",
          FormatCount(done), " / ", FormatCount(total), " ", unit, ", round ", round + 1, " of ",
          rounds, ", ", what));
      return interrupt.status();
    };
    REPRISE_RETURN_IF_ERROR(measure_round(told));
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - start;
    console->Note(absl::StrCat("measured: round ", round + 1, " of ", rounds, " in ",
                               FormatDuration(took.count())));
  }
  return absl::OkStatus();
}

}  // namespace reprise::tools
