// SPDX-License-Identifier: Apache-2.0
#include "tools/config_file.h"

#include <cstdint>
#include <fstream>
#include <istream>
#include <map>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "runtime/status_macros.h"
#include "tools/input_file.h"
#include "tools/suggestion.h"

namespace reprise::tools {
namespace {

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

enum class Kind : uint8_t { kText, kNumber, kBool, kArray };

// A line's, or none where key is "".
struct Setting {
  std::string key;
  Kind kind = Kind::kText;
  std::vector<std::string> values;
  std::string comment;  // from "#" on
};

absl::Status Refuse(const std::string& message) { return absl::InvalidArgumentError(message); }

void SkipSpace(std::string_view* rest) {
  while (!rest->empty() && absl::ascii_isspace(static_cast<unsigned char>(rest->front())))
    rest->remove_prefix(1);
}

// A text whose quote `rest` begins with; takes it from there.
absl::StatusOr<std::string> TakeText(std::string_view* rest) {
  const char quote = rest->front();
  std::string text;
  for (size_t i = 1; i < rest->size(); ++i) {
    const char c = (*rest)[i];
    if (c == quote) {
      rest->remove_prefix(i + 1);
      return text;
    }
    if (c == '\\' && quote == '"') {
      const char escaped = ++i < rest->size() ? (*rest)[i] : '\0';
      if (escaped != '\\' && escaped != '"') {
        return Refuse(
            "got a backslash between \"\", allowed: \\\\ and \\\" there, or a text between ''");
      }
      text += escaped;
      continue;
    }
    text += c;
  }
  return Refuse("got a quote that nothing ends, allowed: a value on one line");
}

// One value, added to the setting's; takes it from `rest`.
absl::StatusOr<Kind> TakeValue(std::string_view* rest, Setting* setting) {
  if (rest->starts_with('"') || rest->starts_with('\'')) {
    REPRISE_ASSIGN_OR_RETURN(std::string text, TakeText(rest));
    setting->values.push_back(std::move(text));
    return Kind::kText;
  }
  const std::string value(rest->substr(0, rest->find_first_of(" \t\r,]#")));
  rest->remove_prefix(value.size());
  setting->values.push_back(value);
  if (value == "true" || value == "false") return Kind::kBool;
  double number = 0;
  const bool has_digit = value.find_first_of("0123456789") != value.npos;
  if (has_digit && absl::SimpleAtod(value, &number)) return Kind::kNumber;
  return Refuse(absl::StrCat("got ", value.empty() ? "no value" : value,
                             ", allowed: a text between quotes, a number, true, false, or an array "
                             "of these"));
}

absl::Status TakeArray(std::string_view* rest, Setting* setting) {
  for (rest->remove_prefix(1);;) {
    SkipSpace(rest);
    if (rest->starts_with(']')) break;
    if (rest->empty() || rest->starts_with('#'))
      return Refuse("got an array that does not end here, allowed: one on one line");
    REPRISE_ASSIGN_OR_RETURN(const Kind kind, TakeValue(rest, setting));
    if (kind == Kind::kBool)
      return Refuse(
          absl::StrCat("got ", setting->values.back(), " in an array, allowed: texts and numbers"));
    SkipSpace(rest);
    if (rest->starts_with(',')) {
      rest->remove_prefix(1);
    } else if (!rest->empty() && !rest->starts_with(']') && !rest->starts_with('#')) {
      return Refuse("got two values of an array without a comma, allowed: one between them");
    }
  }
  rest->remove_prefix(1);
  return absl::OkStatus();
}

absl::Status TakeValues(std::string_view* rest, Setting* setting) {
  if (rest->starts_with('[')) {
    setting->kind = Kind::kArray;
    REPRISE_RETURN_IF_ERROR(TakeArray(rest, setting));
  } else {
    REPRISE_ASSIGN_OR_RETURN(setting->kind, TakeValue(rest, setting));
  }
  SkipSpace(rest);
  if (!rest->empty() && !rest->starts_with('#'))
    return Refuse("got more behind a value, allowed: one value, or a comment behind \"#\"");
  setting->comment = std::string(*rest);
  return absl::OkStatus();
}

absl::StatusOr<Setting> ParseLine(std::string_view line) {
  SkipSpace(&line);
  Setting setting;
  if (line.empty() || line.starts_with('#')) return setting;
  std::string whole(line);
  absl::StripTrailingAsciiWhitespace(&whole);
  if (line.starts_with('['))
    return Refuse(absl::StrCat("got the section ", whole, ", allowed: KEY = VALUE alone"));
  const size_t equals = line.find('=');
  setting.key = std::string(line.substr(0, equals));
  absl::StripAsciiWhitespace(&setting.key);
  std::string_view rest = equals == line.npos ? "" : line.substr(equals + 1);
  SkipSpace(&rest);
  if (setting.key.empty() || rest.empty() || rest.starts_with('#'))
    return Refuse(absl::StrCat("got ", whole, ", allowed: KEY = VALUE"));
  const absl::Status status = TakeValues(&rest, &setting);
  if (!status.ok()) return Refuse(absl::StrCat(setting.key, ": ", status.message()));
  return setting;
}

std::string Quoted(const std::string& text) {
  if (text.find_first_of("\"\\") == text.npos) return absl::StrCat("\"", text, "\"");
  if (text.find('\'') == text.npos) return absl::StrCat("'", text, "'");
  return absl::StrCat("\"", absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"\"", "\\\""}}), "\"");
}

bool IsPlainNumber(const std::string& text) {
  constexpr const char* kDigits = "0123456789";
  const size_t point = text.find_first_not_of(kDigits);
  if (point == text.npos) return !text.empty();
  return text[point] == '.' && point > 0 && point + 1 < text.size() &&
         text.find_first_not_of(kDigits, point + 1) == text.npos;
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

// What a file may begin with; "" where it does not.
std::string_view ByteOrderMarkOf(std::string_view first_line) {
  return first_line.starts_with(kByteOrderMark) ? kByteOrderMark : "";
}

absl::Status ApplyLines(const std::string& path, std::istream& in, CLI::App* app) {
  std::map<std::string, uint64_t> lines;  // of keys
  uint64_t number = 0;
  const auto apply = [&](const std::string& text) -> absl::Status {
    REPRISE_ASSIGN_OR_RETURN(const Setting setting, ParseLine(text));
    if (setting.key.empty()) return absl::OkStatus();
    CLI::Option* option = OptionOf(setting.key, app);
    if (option == nullptr) return UnknownKey(setting.key, *app);
    const auto [first, is_new] = lines.emplace(setting.key, number);
    if (!is_new)
      return Refuse(absl::StrCat(setting.key, ": got it again, first in line ", first->second));
    return Apply(setting, option);
  };
  for (std::string line; std::getline(in, line);) {
    if (++number == 1) line.erase(0, ByteOrderMarkOf(line).size());
    const absl::Status status = apply(line);
    if (!status.ok()) return UsageError(absl::StrCat(path, ":", number, ": ", status.message()));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ApplyConfigFile(const std::string& path, CLI::App* app) {
  REPRISE_ASSIGN_OR_RETURN(std::ifstream file, OpenInputFile("config: ", path));
  return ApplyLines(path, file, app);
}

absl::Status ApplyConfigText(const std::string& path, std::string_view text, CLI::App* app) {
  std::istringstream in{std::string(text)};
  return ApplyLines(path, in, app);
}

absl::StatusOr<std::string> WithSettings(
    const std::string& path, std::string_view text,
    const std::vector<std::pair<std::string, std::string>>& settings) {
  std::map<std::string, uint64_t> lines;  // of keys
  std::istringstream in{std::string(text)};
  std::string out;
  uint64_t number = 0;
  const auto take = [&](const std::string& whole) -> absl::StatusOr<std::string> {
    REPRISE_ASSIGN_OR_RETURN(const Setting setting, ParseLine(whole));
    if (setting.key.empty()) return whole;
    const auto [first, is_new] = lines.emplace(setting.key, number);
    if (!is_new)
      return Refuse(absl::StrCat(setting.key, ": got it again, first in line ", first->second));
    for (const auto& [key, value] : settings) {
      if (key == setting.key)
        return absl::StrCat(key, " = ", Quoted(value), setting.comment.empty() ? "" : "  ",
                            setting.comment);
    }
    return whole;
  };
  for (std::string line; std::getline(in, line);) {
    const std::string mark(++number == 1 ? ByteOrderMarkOf(line) : "");
    const absl::StatusOr<std::string> taken = take(line.substr(mark.size()));
    if (!taken.ok())
      return UsageError(absl::StrCat(path, ":", number, ": ", taken.status().message()));
    absl::StrAppend(&out, mark, *taken, "\n");
  }
  for (const auto& [key, value] : settings) {
    if (lines.find(key) == lines.end()) absl::StrAppend(&out, key, " = ", Quoted(value), "\n");
  }
  return out;
}

std::string ConfigText(const CLI::App& app) {
  std::string out;
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_configurable() || option->get_lnames().empty()) continue;
    const std::string& key = option->get_lnames().front();
    std::vector<std::string> values = option->results();
    const bool is_flag = option->get_expected_min() == 0;
    if (is_flag) values = {!values.empty() && option->as<bool>() ? "true" : "false"};
    if (values.empty() && !option->get_default_str().empty()) values = {option->get_default_str()};
    if (values.empty()) {
      absl::StrAppend(&out, "# ", key, " = ", option->get_type_name(), "\n");
      continue;
    }
    if (!is_flag)
      for (std::string& value : values) value = IsPlainNumber(value) ? value : Quoted(value);
    const std::string text = absl::StrJoin(values, ", ");
    absl::StrAppend(&out, key, " = ", values.size() > 1 ? absl::StrCat("[", text, "]") : text,
                    "\n");
  }
  return out;
}

}  // namespace reprise::tools
