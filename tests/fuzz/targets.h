// SPDX-License-Identifier: Apache-2.0
// Everything that reads bytes from outside, each as a function of bytes: from clients, from files
// of models, operators and measurements, from other servers. A target takes whatever it is given
// and says no more than whether it took it; a crash, a sanitizer's word or a broken promise
// (REPRISE_CHECK) is the failure. docs/benchmarks/reliability.md says how to run them.
// Threads: one at a time.
#ifndef REPRISE_TESTS_FUZZ_TARGETS_H_
#define REPRISE_TESTS_FUZZ_TARGETS_H_

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace reprise::fuzz {

struct Target {
  std::string_view name;
  // Whether the bytes were taken.
  bool (*take)(std::string_view bytes);
  // Bytes that are taken, to begin with.
  std::vector<std::string> (*seeds)();
};

std::span<const Target> Targets();

}  // namespace reprise::fuzz

#endif  // REPRISE_TESTS_FUZZ_TARGETS_H_
