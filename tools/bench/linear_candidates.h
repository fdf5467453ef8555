// SPDX-License-Identifier: Apache-2.0
// The candidates of `reprise bench linear`: the one table of ways to compute a linear layer. To add
// one, write its line in linear_candidates.cc; measuring, checking, tables, JSON and charts take
// every entry alike.
#ifndef REPRISE_TOOLS_BENCH_LINEAR_CANDIDATES_H_
#define REPRISE_TOOLS_BENCH_LINEAR_CANDIDATES_H_

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/kernel_set.h"
#include "kernels/linear/linear_args.h"
#include "kernels/linear/linear_weights.h"
#include "runtime/device.h"

namespace reprise::tools {

// What a candidate is given to enqueue with, as a model's layers give it.
struct LinearBenchCall {
  runtime::Stream& stream;
  const kernels::KernelSet& kernels;
  const kernels::LinearWeights& weights;
  const kernels::LinearArgs& args;
  uint32_t max_rows = 1;  // that the graph is captured for
};

struct LinearCandidateEntry {
  std::string_view name;
  std::string_view description;
  absl::Status (*enqueue)(const LinearBenchCall& call) = nullptr;  // launches only
  // How the weights that it is given lie.
  kernels::WeightLayout layout = kernels::WeightLayout::kRowMajor;
};

// In the order in which tables show them.
std::span<const LinearCandidateEntry> LinearCandidates();

// "best,portable". Errors: InvalidArgument with what, got, a name that is near, allowed; and on a
// name that comes twice.
absl::StatusOr<std::vector<const LinearCandidateEntry*>> ParseLinearCandidates(
    std::string_view text);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_BENCH_LINEAR_CANDIDATES_H_
