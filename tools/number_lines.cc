// SPDX-License-Identifier: Apache-2.0
#include "tools/number_lines.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <fstream>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "nlohmann/json.hpp"
#include "runtime/status_macros.h"
#include "tools/input_file.h"

namespace reprise::tools {
namespace {

using Fields = std::span<const NumberField>;
// A record's fields; none: left out.
using Values = std::vector<std::optional<double>>;

std::string FieldNames(Fields fields) {
  return absl::StrJoin(fields, ", ", [](std::string* out, const NumberField& field) {
    absl::StrAppend(out, field.name);
  });
}

// The field's number; their count: there is none of that name.
size_t FieldOf(Fields fields, const std::string& name) {
  const auto found = std::find_if(fields.begin(), fields.end(),
                                  [&name](const NumberField& field) { return name == field.name; });
  return static_cast<size_t>(found - fields.begin());
}

absl::Status UnknownField(Fields fields, const std::string& name) {
  return absl::InvalidArgumentError(
      absl::StrCat("got the field \"", name, "\", allowed: ", FieldNames(fields)));
}

absl::Status CheckValue(const NumberField& field, std::optional<double> value,
                        const std::string& shown) {
  const bool right = value && *value >= field.min && *value <= field.max &&
                     (!field.whole || *value == std::floor(*value));
  if (right) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      field.name, ": got ", shown, ", allowed: a ", field.whole ? "whole " : "", "number from ",
      static_cast<int64_t>(field.min), " to ", static_cast<int64_t>(field.max)));
}

absl::StatusOr<std::vector<double>> RecordOf(Fields fields, const Values& values) {
  std::vector<double> record;
  for (size_t i = 0; i < fields.size(); ++i) {
    const std::optional<double> value = values[i] ? values[i] : fields[i].otherwise;
    if (!value) return absl::InvalidArgumentError(absl::StrCat("got no ", fields[i].name));
    record.push_back(*value);
  }
  return record;
}

absl::StatusOr<std::vector<double>> RecordOfJson(Fields fields, const std::string& line) {
  const nlohmann::json json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object())
    return absl::InvalidArgumentError("got no JSON object, allowed: one in each line");
  Values values(fields.size());
  for (const auto& [name, value] : json.items()) {
    const size_t field = FieldOf(fields, name);
    if (field == fields.size()) return UnknownField(fields, name);
    const auto number = value.is_number() ? std::optional(value.get<double>()) : std::nullopt;
    REPRISE_RETURN_IF_ERROR(CheckValue(fields[field], number, value.dump()));
    values[field] = number;
  }
  return RecordOf(fields, values);
}

std::vector<std::string> CellsOf(const std::string& line) {
  std::vector<std::string> cells = absl::StrSplit(line, ',');
  for (std::string& cell : cells) absl::StripAsciiWhitespace(&cell);
  return cells;
}

// Which field each column has.
absl::StatusOr<std::vector<size_t>> ColumnsOf(Fields fields, const std::string& header) {
  std::vector<size_t> columns;
  for (const std::string& name : CellsOf(header)) {
    const size_t field = FieldOf(fields, name);
    if (field == fields.size()) return UnknownField(fields, name);
    if (std::find(columns.begin(), columns.end(), field) != columns.end())
      return absl::InvalidArgumentError(absl::StrCat("got ", name, " twice"));
    columns.push_back(field);
  }
  return columns;
}

absl::StatusOr<std::vector<double>> RecordOfCsv(Fields fields, const std::string& line,
                                                const std::vector<size_t>& columns) {
  const std::vector<std::string> texts = CellsOf(line);
  if (texts.size() != columns.size()) {
    return absl::InvalidArgumentError(absl::StrCat("got ", texts.size(), " columns, allowed: the ",
                                                   columns.size(), " of the header"));
  }
  Values values(fields.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    if (texts[i].empty() && fields[columns[i]].otherwise) continue;
    double number = 0;
    const bool is_number = absl::SimpleAtod(texts[i], &number);
    const auto value = is_number ? std::optional(number) : std::nullopt;
    REPRISE_RETURN_IF_ERROR(
        CheckValue(fields[columns[i]], value, absl::StrCat("\"", texts[i], "\"")));
    values[columns[i]] = value;
  }
  return RecordOf(fields, values);
}

}  // namespace

absl::StatusOr<std::vector<std::vector<double>>> ReadNumberLines(const std::string& path,
                                                                 Fields fields,
                                                                 std::string_view what) {
  REPRISE_ASSIGN_OR_RETURN(std::ifstream file, OpenInputFile("", path));
  return ReadNumberLines(file, path, fields, what);
}

absl::StatusOr<std::vector<std::vector<double>>> ReadNumberLines(std::istream& in,
                                                                 const std::string& name,
                                                                 Fields fields,
                                                                 std::string_view what) {
  std::vector<std::vector<double>> records;
  std::vector<size_t> columns;
  uint64_t number = 0;
  const auto located = [&name, &number](const absl::Status& status) {
    return absl::Status(status.code(), absl::StrCat(name, ":", number, ": ", status.message()));
  };
  for (std::string line; std::getline(in, line);) {
    ++number;
    absl::StripAsciiWhitespace(&line);
    if (line.empty()) continue;
    const bool is_json = columns.empty() && line.front() == '{';
    if (!is_json && columns.empty()) {
      auto header = ColumnsOf(fields, line);
      if (!header.ok()) return located(header.status());
      columns = *std::move(header);
      continue;
    }
    auto record = is_json ? RecordOfJson(fields, line) : RecordOfCsv(fields, line, columns);
    if (!record.ok()) return located(record.status());
    records.push_back(*std::move(record));
  }
  if (!records.empty()) return records;
  return absl::InvalidArgumentError(absl::StrCat(name, ": got no ", std::string(what),
                                                 ", allowed: CSV or lines of JSON with ",
                                                 FieldNames(fields)));
}

}  // namespace reprise::tools
