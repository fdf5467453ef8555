// SPDX-License-Identifier: Apache-2.0
#include "tools/sched/arrival_trace.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <fstream>
#include <limits>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "nlohmann/json.hpp"
#include "runtime/status_macros.h"

namespace reprise::tools {
namespace {

constexpr double kMaxSeconds = 1e9;
constexpr double kMaxTokens = 1u << 24;

// What a field may be.
struct Field {
  const char* name;
  double min = 0;
  double max = 0;
  bool whole = true;
};
constexpr size_t kPriority = 3;
constexpr std::array<Field, 4> kFields = {
    Field{"time_s", 0, kMaxSeconds, false}, Field{"prompt_tokens", 1, kMaxTokens},
    Field{"new_tokens", 1, kMaxTokens}, Field{"priority", -1e9, 1e9}};

// A request's fields; none: left out.
using Values = std::array<std::optional<double>, kFields.size()>;

std::string FieldNames() {
  return absl::StrJoin(kFields, ", ", [](std::string* out, const Field& field) {
    absl::StrAppend(out, field.name);
  });
}

// The field's number in kFields; its size: there is none of that name.
size_t FieldOf(const std::string& name) {
  const auto found = std::find_if(kFields.begin(), kFields.end(),
                                  [name](const Field& field) { return name == field.name; });
  return static_cast<size_t>(found - kFields.begin());
}

absl::Status UnknownField(const std::string& name) {
  return absl::InvalidArgumentError(
      absl::StrCat("got the field \"", name, "\", allowed: ", FieldNames()));
}

absl::Status CheckValue(const Field& field, std::optional<double> value, const std::string& shown) {
  const bool right = value && *value >= field.min && *value <= field.max &&
                     (!field.whole || *value == std::floor(*value));
  if (right) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(field.name, ": got ", shown, ", allowed: a ",
                                                 field.whole ? "whole " : "", "number from ",
                                                 field.min, " to ", field.max));
}

absl::StatusOr<TracedRequest> RequestOf(const Values& values) {
  for (size_t i = 0; i < kFields.size(); ++i) {
    if (!values[i] && i != kPriority)
      return absl::InvalidArgumentError(absl::StrCat("got no ", kFields[i].name));
  }
  return TracedRequest{.arrival_ns = static_cast<uint64_t>(std::llround(*values[0] * 1e9)),
                       .prompt_tokens = static_cast<uint32_t>(*values[1]),
                       .new_tokens = static_cast<uint32_t>(*values[2]),
                       .priority = static_cast<int32_t>(values[kPriority].value_or(0))};
}

absl::StatusOr<TracedRequest> RequestOfJson(const std::string& line) {
  const nlohmann::json json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object())
    return absl::InvalidArgumentError("got no JSON object, allowed: one in each line");
  Values values;
  for (const auto& [name, value] : json.items()) {
    const size_t field = FieldOf(name);
    if (field == kFields.size()) return UnknownField(name);
    const auto number = value.is_number() ? std::optional(value.get<double>()) : std::nullopt;
    REPRISE_RETURN_IF_ERROR(CheckValue(kFields[field], number, value.dump()));
    values[field] = number;
  }
  return RequestOf(values);
}

std::vector<std::string> CellsOf(const std::string& line) {
  std::vector<std::string> cells = absl::StrSplit(line, ',');
  for (std::string& cell : cells) absl::StripAsciiWhitespace(&cell);
  return cells;
}

// Which field each column has.
absl::StatusOr<std::vector<size_t>> ColumnsOf(const std::string& header) {
  std::vector<size_t> columns;
  for (const std::string& name : CellsOf(header)) {
    const size_t field = FieldOf(name);
    if (field == kFields.size()) return UnknownField(name);
    if (std::find(columns.begin(), columns.end(), field) != columns.end())
      return absl::InvalidArgumentError(absl::StrCat("got ", name, " twice"));
    columns.push_back(field);
  }
  return columns;
}

absl::StatusOr<TracedRequest> RequestOfCsv(const std::string& line,
                                           const std::vector<size_t>& columns) {
  const std::vector<std::string> texts = CellsOf(line);
  if (texts.size() != columns.size()) {
    return absl::InvalidArgumentError(absl::StrCat("got ", texts.size(), " columns, allowed: the ",
                                                   columns.size(), " of the header"));
  }
  Values values;
  for (size_t i = 0; i < texts.size(); ++i) {
    double number = 0;
    const bool is_number = absl::SimpleAtod(texts[i], &number);
    const auto value = is_number ? std::optional(number) : std::nullopt;
    REPRISE_RETURN_IF_ERROR(
        CheckValue(kFields[columns[i]], value, absl::StrCat("\"", texts[i], "\"")));
    values[columns[i]] = value;
  }
  return RequestOf(values);
}

}  // namespace

absl::StatusOr<std::vector<TracedRequest>> ReadArrivalTrace(const std::string& path) {
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(absl::StrCat("cannot read \"", path, "\""));
  std::vector<TracedRequest> requests;
  std::vector<size_t> columns;
  uint64_t number = 0;
  const auto located = [&path, &number](const absl::Status& status) {
    return absl::Status(status.code(), absl::StrCat(path, ":", number, ": ", status.message()));
  };
  for (std::string line; std::getline(file, line);) {
    ++number;
    absl::StripAsciiWhitespace(&line);
    if (line.empty()) continue;
    const bool is_json = columns.empty() && line.front() == '{';
    if (!is_json && columns.empty()) {
      auto header = ColumnsOf(line);
      if (!header.ok()) return located(header.status());
      columns = *std::move(header);
      continue;
    }
    const auto request = is_json ? RequestOfJson(line) : RequestOfCsv(line, columns);
    if (!request.ok()) return located(request.status());
    requests.push_back(*request);
  }
  if (requests.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": got no request, allowed: CSV or lines of JSON with ", FieldNames()));
  }
  std::stable_sort(
      requests.begin(), requests.end(),
      [](const TracedRequest& a, const TracedRequest& b) { return a.arrival_ns < b.arrival_ns; });
  return requests;
}

}  // namespace reprise::tools
