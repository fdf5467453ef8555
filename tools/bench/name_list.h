// SPDX-License-Identifier: Apache-2.0
// Lists of names on a command line.
#ifndef REPRISE_TOOLS_BENCH_NAME_LIST_H_
#define REPRISE_TOOLS_BENCH_NAME_LIST_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace reprise::tools {

// "a,b": which of `known` are named, in the text's order. Errors: InvalidArgument with `what`, got,
// what may have been meant and what is allowed; on a name that comes twice too.
absl::StatusOr<std::vector<size_t>> ParseNameList(std::string_view what, std::string_view text,
                                                  const std::vector<std::string>& known);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_BENCH_NAME_LIST_H_
