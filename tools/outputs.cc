// SPDX-License-Identifier: Apache-2.0
#include "tools/outputs.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "tools/cli.h"
#include "tools/record.h"

namespace reprise::tools {
namespace {

namespace fs = std::filesystem;

// Every option that names a file to write.
constexpr std::array<std::string_view, 13> kOutputs = {
    "--access-log", "--csv",      "--dot", "--html",         "--journal", "--json", "--json-lines",
    "--layer-svg",  "--markdown", "--out", "--serve-config", "--svg",     "--trace"};
// Arguments that name a file to read and whose type does not say so, and directories of such files.
constexpr std::array<std::string_view, 5> kInputs = {"A", "B", "PROFILE", "--model", "MODEL_DIR"};

bool Has(const auto& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Where a file is, or will be.
fs::path PlaceOf(const std::string& path) {
  std::error_code error;
  return fs::weakly_canonical(fs::absolute(path, error), error);
}

bool IsSameFile(const std::string& a, const std::string& b) {
  if (a == kStdoutFile || b == kStdoutFile) return a == b;
  std::error_code error;
  if (fs::exists(a, error) && !fs::is_regular_file(a, error)) return false;
  return fs::equivalent(a, b, error) || PlaceOf(a) == PlaceOf(b);
}

// Whether a file of that name in a model's directory is a part of the model.
bool IsOfModel(const std::string& name) {
  constexpr std::array<std::string_view, 4> kNames = {
      "config.json", "generation_config.json", "hf_quant_config.json", "special_tokens_map.json"};
  return Has(kNames, name) || name.starts_with("tokenizer") || name.starts_with("chat_template") ||
         name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json");
}

// Whether `path` is `input`, or a part of the model in that directory.
bool IsOf(const std::string& path, const std::string& input) {
  if (IsSameFile(path, input)) return true;
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return false;
  for (fs::directory_iterator file(input, error), end; !error && file != end;
       file.increment(error)) {
    const fs::path& part = file->path();
    if (IsOfModel(part.filename().string()) && IsSameFile(path, part.string())) return true;
  }
  return false;
}

}  // namespace

absl::Status CheckOutputs(const std::vector<NamedFile>& outputs,
                          const std::vector<NamedFile>& inputs) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    const auto& [option, path] = outputs[i];
    if (path.empty()) continue;
    const std::string got = absl::StrCat(option, ": got \"", path, "\", ");
    for (size_t j = 0; j < i; ++j) {
      if (!IsSameFile(path, outputs[j].path)) continue;
      return UsageError(absl::StrCat(got, "and so does ", outputs[j].option, ", allowed: ",
                                     path == kStdoutFile ? "one of them" : "another file"));
    }
    for (const NamedFile& input : inputs) {
      if (path == kStdoutFile || !IsOf(path, input.path)) continue;
      return UsageError(
          absl::StrCat(got, "which is read (", input.option, "), allowed: another file"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckOutputsOf(const CLI::App& app) {
  std::vector<NamedFile> outputs, inputs;
  for (const CLI::Option* option : app.get_options()) {
    const std::string name = option->get_name();
    const bool is_output = Has(kOutputs, name);
    const bool is_file = option->get_type_name().find("FILE") != std::string::npos;
    if (!is_output && !is_file && !Has(kInputs, name)) continue;
    for (const std::string& path : option->results())
      (is_output ? outputs : inputs).push_back({name, path});
  }
  return CheckOutputs(outputs, inputs);
}

}  // namespace reprise::tools
