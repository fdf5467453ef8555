// SPDX-License-Identifier: Apache-2.0
// For benchmarks alone: what fails ends the program with its message. Code that a step reaches
// returns its status.
//
//   const auto stream = Check(device->CreateStream());
//   Check(stream->Synchronize());
#ifndef REPRISE_TESTS_KERNELS_BENCHMARK_CHECK_H_
#define REPRISE_TESTS_KERNELS_BENCHMARK_CHECK_H_

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace reprise::kernels {

inline void Check(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}
// The value.
template <typename T>
T Check(absl::StatusOr<T> value) {
  Check(value.status());
  return *std::move(value);
}

}  // namespace reprise::kernels

#endif  // REPRISE_TESTS_KERNELS_BENCHMARK_CHECK_H_
