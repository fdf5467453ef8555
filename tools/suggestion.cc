// SPDX-License-Identifier: Apache-2.0
#include "tools/suggestion.h"

#include <algorithm>

namespace reprise::tools {
namespace {

// Shorter beginnings say too little.
constexpr size_t kLeastBeginning = 3;

std::string_view WithoutDashes(std::string_view name) {
  name.remove_prefix(std::min(name.find_first_not_of('-'), name.size()));
  return name;
}

// Optimal string alignment. Source: Damerau 1964.
size_t Distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> cost(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        cost[i][j] = i + j;
        continue;
      }
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1,
                             cost[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
      }
    }
  }
  return cost[a.size()][b.size()];
}

}  // namespace

std::string Suggestion(std::string_view typed, const std::vector<std::string>& known) {
  const std::string_view name = WithoutDashes(typed);
  std::string nearest;
  size_t least = std::max<size_t>(1, name.size() / 3) + 1;
  for (const std::string& candidate : known) {
    const std::string_view other = WithoutDashes(candidate);
    size_t distance = Distance(name, other);
    if (name.size() >= kLeastBeginning && other.starts_with(name)) {
      distance = std::min<size_t>(distance, 1);
    }
    if (distance >= least) continue;
    least = distance;
    nearest = candidate;
  }
  return nearest;
}

}  // namespace reprise::tools
