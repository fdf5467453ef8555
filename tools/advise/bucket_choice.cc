// SPDX-License-Identifier: Apache-2.0
#include "tools/advise/bucket_choice.h"

#include <algorithm>
#include <limits>

namespace reprise::tools {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::infinity();
constexpr size_t kNone = std::numeric_limits<size_t>::max();

// The cheapest sets whose largest bucket is a given candidate: one for each number of buckets.
struct Best {
  double cost = kUnknown;
  size_t before = kNone;  // the next smaller bucket's place among the candidates
};

}  // namespace

double CostOf(std::span<const StepGroup> groups, std::span<const int64_t> buckets,
              const BucketCostFn& cost) {
  double sum = 0;
  for (const StepGroup& group : groups) {
    const auto bucket = std::lower_bound(buckets.begin(), buckets.end(), group.size);
    if (bucket == buckets.end()) return kUnknown;
    sum += group.weight * cost(group, *bucket);
  }
  return sum;
}

std::vector<BucketChoice> ChooseBuckets(std::span<const StepGroup> groups,
                                        std::span<const int64_t> candidates, size_t max_buckets,
                                        const BucketCostFn& cost) {
  const size_t most = std::min(max_buckets, candidates.size());
  // best[k][j]: of k + 1 buckets, the largest of which is candidate j, for all steps up to its
  // size.
  std::vector<std::vector<Best>> best(most, std::vector<Best>(candidates.size()));
  for (size_t j = 0; j < candidates.size(); ++j) {
    const auto end =
        std::upper_bound(groups.begin(), groups.end(), candidates[j],
                         [](int64_t size, const StepGroup& group) { return size < group.size; });
    auto group = end;
    double of_j = 0;  // steps that candidate j gets when the next smaller bucket is candidate i
    for (size_t i = j; i-- > 0;) {
      for (; group != groups.begin() && std::prev(group)->size > candidates[i]; --group)
        of_j += std::prev(group)->weight * cost(*std::prev(group), candidates[j]);
      for (size_t k = 1; k < most; ++k) {
        const double all = best[k - 1][i].cost + of_j;
        if (all < best[k][j].cost) best[k][j] = {.cost = all, .before = i};
      }
    }
    for (; group != groups.begin(); --group)
      of_j += std::prev(group)->weight * cost(*std::prev(group), candidates[j]);
    best[0][j].cost = of_j;
  }
  std::vector<BucketChoice> choices;
  for (size_t k = 0; k < most; ++k) {
    BucketChoice choice{.buckets = {}, .cost = best[k].back().cost};
    size_t j = candidates.size() - 1;
    for (size_t left = k; j != kNone; j = best[left--][j].before)
      choice.buckets.push_back(candidates[j]);
    std::reverse(choice.buckets.begin(), choice.buckets.end());
    choices.push_back(std::move(choice));
  }
  return choices;
}

}  // namespace reprise::tools
