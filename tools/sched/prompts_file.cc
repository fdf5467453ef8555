// SPDX-License-Identifier: Apache-2.0
#include "tools/sched/prompts_file.h"

#include <fstream>
#include <iostream>
#include <istream>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "runtime/status_macros.h"
#include "tools/input_file.h"
#include "tools/units.h"

namespace reprise::tools {
namespace {

constexpr uint64_t kMaxToken = std::numeric_limits<uint32_t>::max();
constexpr uint64_t kMaxNewTokens = 1u << 30;
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";  // of UTF-8

absl::Status Refuse(const std::string& what, const nlohmann::json& got,
                    const std::string& allowed) {
  // What is long is no help in a message.
  constexpr size_t kMostShown = 60;
  std::string shown = got.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  if (shown.size() > kMostShown) shown = absl::StrCat(shown.substr(0, kMostShown), "...");
  return absl::InvalidArgumentError(absl::StrCat(what, ": got ", shown, ", allowed: ", allowed));
}

bool IsUnsigned(const nlohmann::json& json, uint64_t min, uint64_t max) {
  return json.is_number_unsigned() && json.get<uint64_t>() >= min && json.get<uint64_t>() <= max;
}

absl::StatusOr<std::vector<uint32_t>> TokensOfJson(const nlohmann::json& json) {
  constexpr char kAllowed[] = "a list of token ids, at least one";
  if (!json.is_array() || json.empty()) return Refuse("tokens", json, kAllowed);
  std::vector<uint32_t> tokens;
  for (const nlohmann::json& token : json) {
    if (!IsUnsigned(token, 0, kMaxToken)) return Refuse("tokens", token, kAllowed);
    tokens.push_back(token.get<uint32_t>());
  }
  return tokens;
}

absl::StatusOr<FilePrompt> PromptOfJson(const std::string& line) {
  const nlohmann::json json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object())
    return absl::InvalidArgumentError("got no JSON object, allowed: one in each line");
  FilePrompt prompt;
  int num_prompts = 0;
  for (const auto& [name, value] : json.items()) {
    if (name == "prompt") {
      if (!value.is_string() || value.get_ref<const std::string&>().empty())
        return Refuse(name, value, "a text of at least one byte");
      prompt.prompt = value.get<std::string>();
      ++num_prompts;
    } else if (name == "tokens") {
      REPRISE_ASSIGN_OR_RETURN(prompt.prompt, TokensOfJson(value));
      ++num_prompts;
    } else if (name == "max_new_tokens") {
      if (!IsUnsigned(value, 1, kMaxNewTokens))
        return Refuse(name, value, absl::StrCat("a whole number from 1 to ", kMaxNewTokens));
      prompt.max_new_tokens = value.get<uint32_t>();
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat("got the field \"", name, "\", allowed: prompt, tokens, max_new_tokens"));
    }
  }
  if (num_prompts == 1) return prompt;
  return absl::InvalidArgumentError(absl::StrCat("got ", num_prompts == 0 ? "neither" : "both",
                                                 " of prompt and tokens, allowed: one of them"));
}

absl::StatusOr<FilePrompt> PromptOfPlain(const std::string& line, PlainLines plain) {
  if (plain == PlainLines::kText) return FilePrompt{.prompt = line};
  REPRISE_ASSIGN_OR_RETURN(const auto tokens, ParseUnsignedList(line, 0, kMaxToken));
  return FilePrompt{.prompt = std::vector<uint32_t>(tokens.begin(), tokens.end())};
}

absl::StatusOr<std::vector<FilePrompt>> ReadPrompts(std::istream& file, const std::string& name,
                                                    PlainLines plain) {
  std::vector<FilePrompt> prompts;
  std::optional<bool> is_json;
  uint64_t number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    if (number == 1 && line.starts_with(kByteOrderMark)) line.erase(0, kByteOrderMark.size());
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty()) continue;
    if (!is_json) is_json = line.front() == '{';
    auto prompt = *is_json ? PromptOfJson(line) : PromptOfPlain(line, plain);
    if (!prompt.ok()) {
      return absl::Status(prompt.status().code(),
                          absl::StrCat(name, ":", number, ": ", prompt.status().message()));
    }
    prompts.push_back(*std::move(prompt));
  }
  if (!prompts.empty()) return prompts;
  return absl::InvalidArgumentError(absl::StrCat(
      name, ": got no prompt, allowed: ", plain == PlainLines::kText ? "a text" : "token ids",
      " or JSON in each line"));
}

}  // namespace

absl::StatusOr<std::vector<FilePrompt>> ReadPromptsFile(const std::string& path, PlainLines plain) {
  if (path == "-") return ReadPrompts(std::cin, "stdin", plain);
  REPRISE_ASSIGN_OR_RETURN(std::ifstream file, OpenInputFile("prompts file: ", path));
  return ReadPrompts(file, path, plain);
}

}  // namespace reprise::tools
