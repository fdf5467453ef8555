// SPDX-License-Identifier: Apache-2.0
#include "tools/config_file.h"

#include <cstdint>
#include <fstream>
#include <map>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"
#include "tools/input_file.h"
#include "tools/suggestion.h"

namespace reprise::tools {
namespace {

enum class Kind : uint8_t { kText, kNumber, kBool, kArray };

struct Setting {
  std::string key;
  Kind kind = Kind::kText;
  std::vector<std::string> values;
};

absl::Status Refuse(const std::string& message) { return absl::InvalidArgumentError(message); }

// The line up to its comment. CLI11 ends a value at "#" even between quotes, and knows no escapes.
absl::StatusOr<std::string> WithoutComment(const std::string& line) {
  char quote = '\0';
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quote == '\0' && c == '#') return line.substr(0, i);
    if (quote != '\0' && c == '#') return Refuse("got \"#\" between quotes, allowed: none there");
    if (quote == '"' && c == '\\')
      return Refuse("got a backslash between \"\", allowed: between ''");
    if (quote == '\0' && (c == '"' || c == '\'')) {
      quote = c;
    } else if (c == quote) {
      quote = '\0';
    }
  }
  if (quote != '\0') return Refuse("got a quote that nothing ends, allowed: a value on one line");
  return line;
}

absl::StatusOr<Kind> KindOf(std::string_view value) {
  const char first = value.front();
  if (first == '[') {
    if (value.ends_with(']')) return Kind::kArray;
    return Refuse("got an array that does not end here, allowed: one on one line");
  }
  if (first == '"' || first == '\'') {
    if (value.find(first, 1) == value.size() - 1) return Kind::kText;
    return Refuse("got more behind a text's quotes, allowed: one value");
  }
  if (value == "true" || value == "false") return Kind::kBool;
  double number = 0;
  if (absl::SimpleAtod(absl::string_view(value.data(), value.size()), &number))
    return Kind::kNumber;
  return Refuse(absl::StrCat("got ", std::string(value),
                             ", allowed: a text between quotes, a number, true, false, or an array "
                             "of these"));
}

// A line that holds something.
absl::StatusOr<Setting> ParseSetting(const std::string& line) {
  if (line.front() == '[')
    return Refuse(absl::StrCat("got the section ", line, ", allowed: KEY = VALUE alone"));
  const size_t equals = line.find('=');
  Setting setting;
  setting.key = line.substr(0, equals);
  absl::StripAsciiWhitespace(&setting.key);
  std::string value = equals == line.npos ? "" : line.substr(equals + 1);
  absl::StripAsciiWhitespace(&value);
  if (setting.key.empty() || value.empty())
    return Refuse(absl::StrCat("got ", line, ", allowed: KEY = VALUE"));
  const absl::StatusOr<Kind> kind = KindOf(value);
  if (!kind.ok()) return Refuse(absl::StrCat(setting.key, ": ", kind.status().message()));
  setting.kind = *kind;
  std::istringstream text(line);
  for (const CLI::ConfigItem& item : CLI::ConfigTOML().from_config(text))
    setting.values.insert(setting.values.end(), item.inputs.begin(), item.inputs.end());
  return setting;
}

// The option of that key; nullptr: there is none.
CLI::Option* OptionOf(const std::string& key, CLI::App* app) {
  CLI::Option* option = app->get_option_no_throw("--" + key);
  return option != nullptr && option->get_configurable() ? option : nullptr;
}

absl::Status UnknownKey(const std::string& key, const CLI::App& app) {
  std::vector<std::string> keys;
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_configurable()) continue;
    keys.insert(keys.end(), option->get_lnames().begin(), option->get_lnames().end());
  }
  const std::string near = Suggestion(key, keys);
  return Refuse(absl::StrCat("unknown key \"", key, "\"",
                             near.empty() ? "" : absl::StrCat("; did you mean \"", near, "\"?"),
                             " (keys are options of ", app.get_name(), " without dashes)"));
}

absl::Status CheckKind(const Setting& setting, const CLI::Option& option) {
  const bool is_flag = option.get_expected_min() == 0;
  if (is_flag && setting.kind != Kind::kBool)
    return Refuse(absl::StrCat(setting.key, ": got no true and no false, allowed: one of them"));
  if (!is_flag && setting.kind == Kind::kBool) {
    return Refuse(absl::StrCat(setting.key, ": got ", setting.values.front(),
                               ", allowed: a text or a number (", option.get_type_name(), ")"));
  }
  const bool is_list = option.get_items_expected_max() > 1;
  if (setting.kind == Kind::kArray && (!is_list || setting.values.empty())) {
    return Refuse(absl::StrCat(setting.key, ": got an array",
                               setting.values.empty() ? " of nothing" : "",
                               is_list ? ", allowed: a value or several"
                                       : ", allowed: one value (a list is one text: \"1,2\")"));
  }
  return absl::OkStatus();
}

// Runs what the option does with values, once with the file's, which shows whether they are right,
// and again with the command line's.
absl::Status Apply(const Setting& setting, CLI::Option* option) {
  REPRISE_RETURN_IF_ERROR(CheckKind(setting, *option));
  const std::vector<std::string> asked = option->results();
  try {
    option->clear();
    option->add_result(setting.values);
    option->run_callback();
    if (asked.empty()) return absl::OkStatus();
    option->clear();
    option->add_result(asked);
    option->run_callback();
  } catch (const CLI::ParseError& error) {
    std::string_view message = error.what();
    if (message.starts_with("--")) message.remove_prefix(2);
    return Refuse(std::string(message));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ApplyConfigFile(const std::string& path, CLI::App* app) {
  REPRISE_ASSIGN_OR_RETURN(std::ifstream file, OpenInputFile("config: ", path));
  std::map<std::string, uint64_t> lines;  // of keys
  uint64_t number = 0;
  const auto apply = [&](const std::string& text) -> absl::Status {
    REPRISE_ASSIGN_OR_RETURN(std::string line, WithoutComment(text));
    absl::StripAsciiWhitespace(&line);
    if (line.empty()) return absl::OkStatus();
    REPRISE_ASSIGN_OR_RETURN(const Setting setting, ParseSetting(line));
    CLI::Option* option = OptionOf(setting.key, app);
    if (option == nullptr) return UnknownKey(setting.key, *app);
    const auto [first, is_new] = lines.emplace(setting.key, number);
    if (!is_new)
      return Refuse(absl::StrCat(setting.key, ": got it again, first in line ", first->second));
    return Apply(setting, option);
  };
  for (std::string line; std::getline(file, line);) {
    ++number;
    const absl::Status status = apply(line);
    if (!status.ok()) return UsageError(absl::StrCat(path, ":", number, ": ", status.message()));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> WithSettings(
    const std::string& path, std::string_view text,
    const std::vector<std::pair<std::string, std::string>>& settings) {
  std::map<std::string, uint64_t> lines;  // of keys
  std::istringstream in{std::string(text)};
  std::string out;
  uint64_t number = 0;
  const auto take = [&](const std::string& whole) -> absl::StatusOr<std::string> {
    REPRISE_ASSIGN_OR_RETURN(std::string line, WithoutComment(whole));
    const std::string comment = whole.substr(line.size());
    absl::StripAsciiWhitespace(&line);
    if (line.empty()) return whole;
    REPRISE_ASSIGN_OR_RETURN(const Setting setting, ParseSetting(line));
    const auto [first, is_new] = lines.emplace(setting.key, number);
    if (!is_new)
      return Refuse(absl::StrCat(setting.key, ": got it again, first in line ", first->second));
    for (const auto& [key, value] : settings) {
      if (key == setting.key)
        return absl::StrCat(key, " = \"", value, "\"", comment.empty() ? "" : "  ", comment);
    }
    return whole;
  };
  for (std::string line; std::getline(in, line);) {
    ++number;
    const absl::StatusOr<std::string> taken = take(line);
    if (!taken.ok())
      return UsageError(absl::StrCat(path, ":", number, ": ", taken.status().message()));
    absl::StrAppend(&out, *taken, "\n");
  }
  for (const auto& [key, value] : settings) {
    if (lines.find(key) == lines.end()) absl::StrAppend(&out, key, " = \"", value, "\"\n");
  }
  return out;
}

std::string ConfigText(const CLI::App& app) {
  return CLI::ConfigTOML().to_config(&app, /*default_also=*/true, /*write_description=*/false, "");
}

}  // namespace reprise::tools
