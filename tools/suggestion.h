// SPDX-License-Identifier: Apache-2.0
// What someone meant who typed a name that there is not.
#ifndef REPRISE_TOOLS_SUGGESTION_H_
#define REPRISE_TOOLS_SUGGESTION_H_

#include <string>
#include <string_view>
#include <vector>

namespace reprise::tools {

// The one of `known` that `typed` begins, or that takes the fewest changes of a character
// (inserted, dropped, replaced, or swapped with its neighbour): at most one in three. "" when none
// is that near. Leading dashes do not count.
std::string Suggestion(std::string_view typed, const std::vector<std::string>& known);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_SUGGESTION_H_
