// SPDX-License-Identifier: Apache-2.0
#include "tools/tune/journal.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "models/config/json_input.h"
#include "models/weights/file_input.h"
#include "runtime/status_macros.h"

namespace reprise::tools {
namespace {

using nlohmann::json;

std::string Line(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

absl::Status CannotWrite(const std::string& path, int error) {
  return absl::UnavailableError(
      absl::StrCat("cannot write \"", path, "\": ", std::generic_category().message(error)));
}

json ToJson(const JournalEntry& entry) {
  return {{"cell", entry.cell},       {"choice", entry.choice}, {"ns", entry.ns},
          {"replays", entry.replays}, {"spread", entry.spread}, {"seconds", entry.seconds}};
}

absl::StatusOr<JournalEntry> ReadEntry(std::string_view line, const std::string& where) {
  REPRISE_ASSIGN_OR_RETURN(const models::Json value, models::ParseJsonObject(line, where));
  const models::JsonFields fields(value, absl::StrCat(where, ": "));
  JournalEntry entry;
  for (const auto& [name, to] : {std::pair{"cell", &entry.cell}, {"choice", &entry.choice}}) {
    const models::Json* const found = fields.Find(name);
    if (found == nullptr || !found->is_object()) return fields.Refuse(name, "an object");
    *to = *found;
  }
  REPRISE_ASSIGN_OR_RETURN(entry.ns, fields.Positive("ns"));
  REPRISE_ASSIGN_OR_RETURN(const int64_t replays, fields.Integer("replays", 1, UINT32_MAX));
  entry.replays = static_cast<uint32_t>(replays);
  const models::Json* const spread = fields.Find("spread");
  if (spread == nullptr || !spread->is_number() || spread->get<double>() < 0)
    return fields.Refuse("spread", "a number from 0 on");
  entry.spread = spread->get<double>();
  REPRISE_ASSIGN_OR_RETURN(entry.seconds, fields.Positive("seconds"));
  return entry;
}

}  // namespace

std::string Differences(const json& journal, const json& got) {
  const json before = journal.flatten(), now = got.flatten();
  std::string out;
  const auto differ = [&](const std::string& pointer) {
    std::string name = pointer.substr(pointer.empty() ? 0 : 1);
    std::replace(name.begin(), name.end(), '/', '.');
    const auto show = [&](const json& side) {
      return side.contains(pointer) ? models::ShowJson(side[pointer]) : std::string("none");
    };
    absl::StrAppend(&out, out.empty() ? "" : "; ", name, ": ", show(before), ", got ", show(now));
  };
  for (const auto& [pointer, value] : before.items())
    if (!now.contains(pointer) || now[pointer] != value) differ(pointer);
  for (const auto& [pointer, value] : now.items())
    if (!before.contains(pointer)) differ(pointer);
  return out;
}

absl::StatusOr<std::unique_ptr<Journal>> Journal::Open(const std::string& path,
                                                       const json& header) {
  std::unique_ptr<Journal> journal(new Journal(path));
  if (!path.empty()) REPRISE_RETURN_IF_ERROR(journal->OpenFile(header));
  return journal;
}

Journal::~Journal() {
  if (descriptor_ >= 0) close(descriptor_);
}

absl::Status Journal::OpenFile(const json& header) {
  descriptor_ = open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0666);
  if (descriptor_ < 0) return CannotWrite(path_, errno);
  if (flock(descriptor_, LOCK_EX | LOCK_NB) != 0)
    return absl::FailedPreconditionError(
        absl::StrCat("journal: \"", path_, "\" is open in another process, allowed: one"));
  REPRISE_ASSIGN_OR_RETURN(std::string text, models::ReadFile(path_, kMaxJournalBytes));
  const size_t whole = text.rfind('\n') == std::string::npos ? 0 : text.rfind('\n') + 1;
  // Of a header, too, a run may have written a part alone.
  if (whole == 0 && Line(header).compare(0, text.size(), text) != 0)
    return absl::InvalidArgumentError(
        absl::StrCat("journal: \"", path_, "\" is none, allowed: a journal, or no file"));
  const bool is_cut = whole != text.size();
  text.resize(whole);
  // What is refused stays as it was.
  if (!text.empty()) REPRISE_RETURN_IF_ERROR(Read(text, header));
  if (is_cut && ftruncate(descriptor_, static_cast<off_t>(whole)) != 0)
    return CannotWrite(path_, errno);
  return text.empty() ? Write(Line(header)) : absl::OkStatus();
}

absl::Status Journal::Read(const std::string& text, const json& header) {
  size_t number = 0;
  for (size_t begin = 0; begin < text.size(); ++number) {
    const size_t end = text.find('\n', begin);
    const std::string_view line = std::string_view(text).substr(begin, end - begin);
    begin = end + 1;
    const std::string where = absl::StrCat("journal: \"", path_, "\" line ", number + 1);
    if (number > 0) {
      REPRISE_ASSIGN_OR_RETURN(JournalEntry entry, ReadEntry(line, where));
      Keep(std::move(entry));
      continue;
    }
    REPRISE_ASSIGN_OR_RETURN(const models::Json found, models::ParseJsonObject(line, where));
    if (found == header) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "journal: \"", path_, "\" was begun by another run: ", Differences(found, header),
        "; allowed: the same, or another journal"));
  }
  return absl::OkStatus();
}

absl::Status Journal::Write(const std::string& lines) {
  for (size_t done = 0; done < lines.size();) {
    const ssize_t written = write(descriptor_, lines.data() + done, lines.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return CannotWrite(path_, written < 0 ? errno : ENOSPC);
    done += static_cast<size_t>(written);
  }
  return absl::OkStatus();
}

void Journal::Keep(JournalEntry entry) {
  std::pair key(entry.cell.dump(), entry.choice.dump());
  entries_.insert_or_assign(std::move(key), std::move(entry));
}

const JournalEntry* Journal::Find(const json& cell, const json& choice) const {
  const auto found = entries_.find({cell.dump(), choice.dump()});
  return found == entries_.end() ? nullptr : &found->second;
}

absl::Status Journal::Append(std::span<const JournalEntry> entries) {
  std::string lines;
  for (const JournalEntry& entry : entries) lines += Line(ToJson(entry));
  if (descriptor_ >= 0) REPRISE_RETURN_IF_ERROR(Write(lines));
  for (const JournalEntry& entry : entries) Keep(entry);
  return absl::OkStatus();
}

}  // namespace reprise::tools
