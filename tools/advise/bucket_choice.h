// SPDX-License-Identifier: Apache-2.0
// Which buckets of one kind cost least for the steps of a trace. A step replays the smallest bucket
// that fits, so that buckets cut the sizes into intervals, and the best cut of all is found by
// dynamic programming. Knows no engine and no device; a cost is any number.
#ifndef REPRISE_TOOLS_ADVISE_BUCKET_CHOICE_H_
#define REPRISE_TOOLS_ADVISE_BUCKET_CHOICE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace reprise::tools {

// All steps of one size.
struct StepGroup {
  int64_t size = 0;      // that a bucket needs: rows, or query tokens
  double weight = 0;     // how many steps
  double tokens = 0;     // query tokens of one, in the mean
  double kv_tokens = 0;  // that its rows attend over, in the mean
};

// Of one step of the group in a bucket that fits; infinity where it is not known.
using BucketCostFn = std::function<double(const StepGroup& group, int64_t capacity)>;

struct BucketChoice {
  std::vector<int64_t> buckets;  // ascending
  double cost = 0;               // of all steps together
};

// All steps together, each in the smallest of `buckets` (ascending) that fits; infinity where one
// fits none.
double CostOf(std::span<const StepGroup> groups, std::span<const int64_t> buckets,
              const BucketCostFn& cost);

// For 1, 2, ... max_buckets buckets the set of that many that costs least, out of `candidates`; the
// largest is always one of them. `groups` and `candidates` ascend; no group is larger than the last
// candidate. Shorter where there are fewer candidates. Exact; takes candidates^2 x (max_buckets +
// groups per candidate) steps.
std::vector<BucketChoice> ChooseBuckets(std::span<const StepGroup> groups,
                                        std::span<const int64_t> candidates, size_t max_buckets,
                                        const BucketCostFn& cost);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_ADVISE_BUCKET_CHOICE_H_
