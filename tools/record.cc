// SPDX-License-Identifier: Apache-2.0
#include "tools/record.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tools/atomic_file.h"

namespace reprise::tools {
namespace {

std::string HostName() {
  char name[256] = {};
  if (gethostname(name, sizeof(name) - 1) != 0) return "";
  return name;
}

// The reason is errno's, which the failed call has left behind.
absl::Status CannotWrite(const std::string& path) {
  const std::string reason = errno != 0 ? std::generic_category().message(errno) : "unknown reason";
  return absl::UnavailableError(absl::StrCat("cannot write \"", path, "\": ", reason));
}

// Replaces what is not UTF-8: an argument can be any bytes.
std::string Text(const nlohmann::json& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

bool IsListOfNumbers(const nlohmann::json& json) {
  return json.is_array() && std::all_of(json.begin(), json.end(), [](const nlohmann::json& item) {
           return item.is_number();
         });
}

// A line for every value, but one for a list of numbers: there are thousands of samples.
void Append(const nlohmann::json& json, size_t indent, std::string* out) {
  if (!json.is_structured() || json.empty() || IsListOfNumbers(json)) {
    absl::StrAppend(out, Text(json));
    return;
  }
  const char* separator = "";
  absl::StrAppend(out, json.is_object() ? "{" : "[");
  for (const auto& [name, value] : json.items()) {
    absl::StrAppend(out, separator, "\n", std::string(indent + 2, ' '));
    if (json.is_object()) absl::StrAppend(out, Text(name), ": ");
    Append(value, indent + 2, out);
    separator = ",";
  }
  absl::StrAppend(out, "\n", std::string(indent, ' '), json.is_object() ? "}" : "]");
}

std::string Dump(const nlohmann::json& json) {
  std::string text;
  Append(json, 0, &text);
  return text + "\n";
}

}  // namespace

nlohmann::json RecordOf(const std::string& command, const Invocation& invocation) {
  nlohmann::json commit = nullptr;
  if (!invocation.commit.empty()) commit = invocation.commit;
  return {{"command", command},
          {"version", REPRISE_VERSION},
          {"argv", invocation.argv},
          {"date", absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::Now(), absl::UTCTimeZone())},
          {"host", HostName()},
          {"commit", std::move(commit)}};
}

absl::Status PrepareRecord(const std::string& path, Console* console) {
  if (path.empty()) return absl::OkStatus();
  if (path == kStdoutFile) {
    console->ReserveStdout();
    return absl::OkStatus();
  }
  std::error_code error;
  const bool existed = std::filesystem::exists(path, error);
  errno = 0;
  if (!std::ofstream(path, std::ios::app)) return CannotWrite(path);
  if (!existed) std::filesystem::remove(path, error);
  return absl::OkStatus();
}

absl::Status WriteText(const std::string& path, const std::string& text) {
  const absl::Status whole = WriteAtomically(path, text);
  if (!absl::IsPermissionDenied(whole)) return whole;
  // The file itself may be written all the same.
  errno = 0;
  std::ofstream file(path);
  file << text;
  file.close();
  if (!file) return CannotWrite(path);
  return absl::OkStatus();
}

absl::Status WriteRecord(const std::string& path, const nlohmann::json& json, Console* console) {
  if (path.empty()) return absl::OkStatus();
  if (path != kStdoutFile) return WriteText(path, Dump(json));
  console->PrintData(Dump(json));
  return console->status();
}

absl::StatusOr<RecordLines> RecordLines::Open(const std::string& path, Console* console) {
  RecordLines lines(path, console);
  if (path.empty() || path == kStdoutFile) return lines;
  errno = 0;
  lines.file_.open(path);
  if (!lines.file_) return CannotWrite(path);
  return lines;
}

void RecordLines::Write(const nlohmann::json& json) {
  if (path_.empty()) return;
  const std::string line = Text(json) + "\n";
  if (path_ == kStdoutFile) {
    console_->PrintData(line);
    return;
  }
  errno = 0;
  file_ << line << std::flush;
  if (!file_ && status_.ok()) status_ = CannotWrite(path_);
}

absl::Status RecordLines::Close() {
  if (path_ == kStdoutFile) return console_->status();
  if (!file_.is_open()) return absl::OkStatus();
  errno = 0;
  file_.close();
  if (!file_ && status_.ok()) status_ = CannotWrite(path_);
  return status_;
}

}  // namespace reprise::tools
