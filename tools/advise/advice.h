// SPDX-License-Identifier: Apache-2.0
// Advice: the buckets that a trace of steps wants, beside those that there are and powers of two.
// Numbers in, numbers out: reads no file, loads no model. docs/advise.md has the method.
#ifndef REPRISE_TOOLS_ADVISE_ADVICE_H_
#define REPRISE_TOOLS_ADVISE_ADVICE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/advise/batch_trace.h"
#include "tools/advise/bucket_choice.h"
#include "tools/advise/bucket_cost.h"

namespace reprise::tools {

// The buckets of an engine.
struct BucketSet {
  // Ascending; `mixed` is empty where it is not known, and no step of the trace needs one.
  std::vector<int64_t> decode, mixed;
  size_t num_graphs() const { return decode.size() + mixed.size(); }
  bool operator==(const BucketSet&) const = default;
};

// Which buckets are chosen; the others stay as they are.
enum class AdviseKind : uint8_t { kBoth, kDecode, kMixed };

struct AdviceOptions {
  BucketSet current;  // the largest of each kind stay: a server accepts as much as before
  double decode_bytes = 0, mixed_bytes = 0;  // that a graph of each kind takes
  size_t max_graphs = 0;                     // of both kinds together; 0: as many as there are now
  std::optional<uint64_t> max_bytes = {};    // of all graphs
  AdviseKind kind = AdviseKind::kBoth;
};

// What a set comes to over the trace.
struct SetCost {
  std::string_view name;  // "current", "powers of two", "advised"
  BucketSet set;
  double bytes = 0;  // of its graphs
  // Of a step, in the mean: BucketCost's unit. Unset where the profile does not tell.
  std::optional<double> cost = {};
  // Of what graphs had room for.
  double padding_share = 0;
};

struct Advice {
  double decode_steps = 0, mixed_steps = 0;  // of the trace
  std::optional<double> mean_context = {};   // of the rows; unset where no step tells
  std::vector<SetCost> sets = {};            // current, powers of two, advised
  // The best set of each number of graphs within the limits, fewest first; those that cost no less
  // than one before them are left out. The last one is advised.
  std::vector<SetCost> by_graphs = {};
  int64_t decode_grain = 1, mixed_grain = 1;  // candidates are multiples of it

  const SetCost& current() const { return sets[0]; }
  const SetCost& powers_of_two() const { return sets[1]; }
  const SetCost& advised() const { return sets.back(); }
};

// Errors: OutOfRange names a step that fits no bucket there is; FailedPrecondition where the
// profile covers too little, the trace has no step of the kind, or current.mixed is empty and
// should not be; ResourceExhausted where no set is within the limits.
absl::StatusOr<Advice> Advise(const BatchTrace& trace, const BucketCost& cost,
                              const AdviceOptions& options);

// Each step as the bucket that it would replay has it: sizes of decode steps are rows, of mixed
// ones query tokens; decode steps of more rows than the largest decode bucket has are mixed ones.
// Ascending. `default_context`: of steps that tell none.
struct StepGroups {
  std::vector<StepGroup> decode, mixed;
};
StepGroups GroupSteps(const std::vector<TracedStep>& steps, int64_t largest_decode,
                      double default_context);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_ADVISE_ADVICE_H_
