// SPDX-License-Identifier: Apache-2.0
// Files of numbers by name, a line for each record: CSV with a header that names its columns in any
// order, or an object of JSON in each line. What may be left out may be an empty cell too.
//
//   rows,tokens        {"rows": 4, "tokens": 131}
//   4,131
#ifndef REPRISE_TOOLS_NUMBER_LINES_H_
#define REPRISE_TOOLS_NUMBER_LINES_H_

#include <istream>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace reprise::tools {

// What a field may be.
struct NumberField {
  const char* name;
  double min = 0, max = 0;  // whole numbers themselves
  bool whole = true;
  std::optional<double> otherwise =
      {};  // its value where it is left out; unset: it has to be there
};

// The records in the file's order, each with a value for every field. `what` is a record's name in
// messages ("request"). Errors: NotFound names a file that cannot be read; InvalidArgument a
// directory; the line and what in it is wrong, got, allowed; a file without records.
absl::StatusOr<std::vector<std::vector<double>>> ReadNumberLines(
    const std::string& path, std::span<const NumberField> fields, std::string_view what);
// The same of what has been opened; `name` begins the messages.
absl::StatusOr<std::vector<std::vector<double>>> ReadNumberLines(
    std::istream& in, const std::string& name, std::span<const NumberField> fields,
    std::string_view what);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_NUMBER_LINES_H_
