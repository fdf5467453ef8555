// SPDX-License-Identifier: Apache-2.0
// A linear table as people and files have it: JSON text that names kernels, and what it was made
// for. docs/tune_linear.md has the format.
#ifndef REPRISE_ENGINE_LINEAR_TABLE_TEXT_H_
#define REPRISE_ENGINE_LINEAR_TABLE_TEXT_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/linear/linear_table.h"
#include "runtime/dtype.h"

namespace reprise::engine {

// The largest text of a table, in bytes, and how many shapes and ranges of rows it may have.
inline constexpr size_t kMaxLinearTableBytes = size_t{1} << 20;
inline constexpr size_t kMaxLinearTableLayers = 256;
inline constexpr size_t kMaxLinearTableRanges = 64;  // of a shape

struct NamedLinearTable {
  std::string device;                            // that it was measured on: its name
  runtime::DType dtype = runtime::DType::kBf16;  // of activations
  // By shape; of a shape in ascending order of rows.
  kernels::LinearTable table = {};
};

// Errors: InvalidArgument with the path in the text, what, got, allowed: a key or a kernel that is
// not known, a kernel of other weights or activations, rows out of order, a shape that comes twice.
// Whether a device has the kernels, and with which bits, kernels::CheckLinearTable says.
absl::StatusOr<NamedLinearTable> ParseLinearTable(std::string_view text);

// Text that parses to the same table, indented. notes: a JSON object that readers skip; "" for
// none.
std::string LinearTableText(const NamedLinearTable& named, std::string_view notes = {});

// Whether the table was made for such an engine. Errors: FailedPrecondition where it was not.
absl::Status CheckTableSite(const NamedLinearTable& named, std::string_view device,
                            runtime::DType dtype);

}  // namespace reprise::engine

#endif  // REPRISE_ENGINE_LINEAR_TABLE_TEXT_H_
