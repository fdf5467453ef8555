// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/name_list.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tools/suggestion.h"

namespace reprise::tools {

absl::StatusOr<std::vector<size_t>> ParseNameList(std::string_view what, std::string_view text,
                                                  const std::vector<std::string>& known) {
  std::vector<size_t> chosen;
  for (const std::string& name :
       std::vector<std::string>(absl::StrSplit(absl::string_view(text.data(), text.size()), ','))) {
    const auto found = std::find(known.begin(), known.end(), name);
    if (found == known.end()) {
      const std::string near = Suggestion(name, known);
      return absl::InvalidArgumentError(
          absl::StrCat(std::string(what), ": got \"", name, "\"",
                       near.empty() ? "" : absl::StrCat("; did you mean \"", near, "\"?"),
                       near.empty() ? ", " : " ", "allowed: ", absl::StrJoin(known, ", ")));
    }
    const auto index = static_cast<size_t>(found - known.begin());
    if (std::find(chosen.begin(), chosen.end(), index) != chosen.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat(std::string(what), ": got \"", name, "\" twice, allowed: every name once"));
    }
    chosen.push_back(index);
  }
  return chosen;
}

}  // namespace reprise::tools
