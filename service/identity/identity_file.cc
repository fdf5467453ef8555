// SPDX-License-Identifier: Apache-2.0
#include "service/identity/identity_file.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "nlohmann/json.hpp"
#include "runtime/status_macros.h"
#include "service/identity/private_file.h"
#include "service/step_queue.h"

namespace reprise::service {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxShownBytes = 64;
// Stands for every user of another namespace that this one does not know.
constexpr uint32_t kOverflowUser = 65534;

// The line of each value of a file, by its path: "identities[0].roles".
using Lines = absl::flat_hash_map<std::string, size_t>;

// Where in which file.
struct Place {
  std::string file;
  std::string path;  // "identities[0].roles"
  const Lines* lines = nullptr;

  Place Of(std::string_view field) const {
    return {file, path.empty() ? std::string(field) : absl::StrCat(path, ".", std::string(field)),
            lines};
  }
  Place At(size_t index) const { return {file, absl::StrCat(path, "[", index, "]"), lines}; }
  // "who.json: line 7: identities[0].roles: "; of a field that is not there the line of its object.
  std::string Name() const {
    const auto found = lines == nullptr ? Lines::const_iterator() : lines->find(path);
    const bool has_line = lines != nullptr && found != lines->end();
    return absl::StrCat(file, ": ", has_line ? absl::StrCat("line ", found->second, ": ") : "",
                        path, path.empty() ? "" : ": ");
  }
  absl::Status Refuse(std::string_view got, std::string_view allowed) const {
    return absl::InvalidArgumentError(
        absl::StrCat(Name(), "got ", std::string(got), ", allowed ", std::string(allowed)));
  }
};

// A name that may stand in an error: never a value that may be a secret.
std::string Shown(std::string_view text) {
  const std::string escaped = absl::CHexEscape(std::string(text.substr(0, kMaxShownBytes)));
  return absl::StrCat("\"", escaped, text.size() > kMaxShownBytes ? "..." : "", "\"");
}

std::string KindOf(const Json& json) {
  if (json.is_array()) return "a list";
  if (json.is_object()) return "an object";
  if (json.is_string()) return "a text";
  if (json.is_number()) return "a number";
  return json.is_boolean() ? "true or false" : "null";
}

// ---- text to JSON ----

// Goes through a text for the parser, and counts its lines.
class TextReader {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  // `line`: of what was read last but one, since the parser looks a character ahead of a number.
  TextReader(const char* at, size_t* line) : at_(at), line_(line) {}
  reference operator*() const { return *at_; }
  TextReader& operator++() {
    if (was_newline_) ++*line_;
    was_newline_ = *at_ == '\n';
    ++at_;
    return *this;
  }
  bool operator==(const TextReader& other) const { return at_ == other.at_; }
  bool operator!=(const TextReader& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  size_t* line_;
  bool was_newline_ = false;
};

// Follows the parser: finds keys that stand twice in an object, of which it would keep the last,
// and the line of every value.
class ParseWatch {
 public:
  explicit ParseWatch(const size_t& line) : line_(line) {}

  void See(Json::parse_event_t event, const Json& parsed) {
    switch (event) {
      case Json::parse_event_t::object_start:
      case Json::parse_event_t::array_start:
        NoteValue();
        open_.push_back({.path = path_, .is_list = event == Json::parse_event_t::array_start});
        break;
      case Json::parse_event_t::object_end:
      case Json::parse_event_t::array_end:
        open_.pop_back();
        break;
      case Json::parse_event_t::key:
        open_.back().key = parsed.get<std::string>();
        if (!open_.back().keys.insert(open_.back().key).second && twice_.empty()) {
          twice_ = open_.back().key;
          twice_line_ = line_;
        }
        break;
      case Json::parse_event_t::value:
        NoteValue();
        break;
    }
  }
  const std::string& twice() const { return twice_; }
  size_t twice_line() const { return twice_line_; }
  Lines TakeLines() { return std::move(lines_); }

 private:
  // A list or an object that has not ended.
  struct Open {
    std::string path;
    bool is_list = false;
    size_t next = 0;       // of a list
    std::string key = {};  // of an object: the last one
    std::set<std::string> keys = {};
  };
  // A value begins, or has been read.
  void NoteValue() {
    const Place in{"", open_.empty() ? "" : open_.back().path};
    path_ = open_.empty()          ? ""
            : open_.back().is_list ? in.At(open_.back().next++).path
                                   : in.Of(open_.back().key).path;
    lines_.emplace(path_, line_);
  }

  const size_t& line_;
  std::vector<Open> open_;
  std::string path_;  // of the last value
  Lines lines_;
  std::string twice_;
  size_t twice_line_ = 0;
};

// "line 3, column 7" of the `byte`-th, counted from 1.
std::string LineAndColumn(std::string_view text, size_t byte) {
  const std::string_view before = text.substr(0, byte == 0 ? 0 : byte - 1);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const size_t end_of_line = before.rfind('\n');
  const size_t column =
      end_of_line == before.npos ? before.size() + 1 : before.size() - end_of_line;
  return absl::StrCat("line ", line, ", column ", column);
}

absl::StatusOr<Json> ParseJson(std::string_view text, const Place& place, Lines* lines) {
  size_t line = 1;
  ParseWatch watch(line);
  Json json;
  try {
    json = Json::parse(TextReader(text.data(), &line), TextReader(text.data() + text.size(), &line),
                       [&watch](int /*depth*/, Json::parse_event_t event, Json& parsed) {
                         watch.See(event, parsed);
                         return true;
                       });
  } catch (const Json::parse_error& error) {
    // Its own words repeat the text.
    return Place{place.file, LineAndColumn(text, error.byte)}.Refuse("no JSON", "JSON");
  } catch (const Json::exception&) {
    return place.Refuse("no JSON", "JSON");
  }
  if (!watch.twice().empty()) {
    return Place{place.file, absl::StrCat("line ", watch.twice_line())}.Refuse(
        absl::StrCat("the field ", Shown(watch.twice()), " twice in one object"), "once");
  }
  *lines = watch.TakeLines();
  return json;
}

// ---- fields ----

absl::Status CheckFields(const Json& json, const Place& place,
                         const std::set<std::string>& allowed) {
  const std::string names = absl::StrJoin(allowed, ", ");
  if (!json.is_object()) {
    return place.Refuse(KindOf(json), absl::StrCat("an object with the fields ", names));
  }
  for (const auto& [name, value] : json.items()) {
    if (!allowed.contains(name)) {
      return place.Refuse(absl::StrCat("the field ", Shown(name)), names);
    }
  }
  return absl::OkStatus();
}

// A whole number of the field, if it is there.
absl::Status ReadNumber(const Json& json, const Place& place, std::string_view field, uint32_t min,
                        uint32_t max, uint32_t* value) {
  const auto found = json.find(std::string(field));
  if (found == json.end()) return absl::OkStatus();
  const std::string allowed = absl::StrCat("a whole number from ", min, " to ", max);
  if (!found->is_number_unsigned()) {
    const bool number = found->is_number();
    return place.Of(field).Refuse(number ? found->dump() : KindOf(*found), allowed);
  }
  const auto number = found->get<uint64_t>();
  if (number < min || number > max) return place.Of(field).Refuse(absl::StrCat(number), allowed);
  *value = static_cast<uint32_t>(number);
  return absl::OkStatus();
}

// Calls `read` with each entry of the list, if there is one, and its place.
template <typename Read>
absl::Status ReadList(const Json& json, const Place& place, std::string_view field,
                      const Read& read) {
  const auto found = json.find(std::string(field));
  if (found == json.end()) return absl::OkStatus();
  const Place list = place.Of(field);
  if (!found->is_array()) return list.Refuse(KindOf(*found), "a list");
  if (found->empty()) return list.Refuse("an empty list", "one entry or more, or no such field");
  for (size_t i = 0; i < found->size(); ++i) {
    REPRISE_RETURN_IF_ERROR(read((*found)[i], list.At(i)));
  }
  return absl::OkStatus();
}

absl::Status ReadName(const Json& json, const Place& place, Identity* identity) {
  const std::string allowed =
      absl::StrCat("a text of 1 to ", kMaxIdentityNameBytes, " letters, digits, '.', '-' and '_'");
  const auto found = json.find("name");
  if (found == json.end()) return place.Refuse("no field \"name\"", allowed);
  if (!found->is_string()) return place.Of("name").Refuse(KindOf(*found), allowed);
  const auto& name = found->get_ref<const std::string&>();
  if (!IsIdentityName(name)) return place.Of("name").Refuse(Shown(name), allowed);
  identity->name = name;
  return absl::OkStatus();
}

absl::Status ReadRoles(const Json& json, const Place& place, Roles* roles) {
  const std::string allowed = absl::StrCat("any of ", std::string(kRoleNames));
  REPRISE_RETURN_IF_ERROR(
      ReadList(json, place, "roles", [&](const Json& entry, const Place& at) -> absl::Status {
        if (!entry.is_string()) return at.Refuse(KindOf(entry), allowed);
        for (const Role role : {Role::kStep, Role::kObserve, Role::kAdminister}) {
          if (entry.get_ref<const std::string&>() != NameOf(role)) continue;
          if (roles->Has(role)) return at.Refuse(Shown(NameOf(role)) + " again", "once");
          roles->Add(role);
          return absl::OkStatus();
        }
        return at.Refuse(Shown(entry.get_ref<const std::string&>()), allowed);
      }));
  return roles->empty() ? place.Refuse("no field \"roles\"", allowed) : absl::OkStatus();
}

// A plain token that stands there by mistake is not repeated.
absl::Status ReadToken(const Json& entry, const Place& at, Identity* identity) {
  constexpr std::string_view kAllowed = "64 hexadecimal digits, the SHA-256 of a token";
  if (!entry.is_string()) return at.Refuse(KindOf(entry), kAllowed);
  const auto& text = entry.get_ref<const std::string&>();
  const std::optional<TokenDigest> digest = TokenDigest::FromHex(text);
  if (!digest.has_value()) {
    return at.Refuse(absl::StrCat("another text, of ", text.size(), " bytes"), kAllowed);
  }
  if (digest->Is(TokenDigest::Of(""))) return at.Refuse("that of an empty text", kAllowed);
  identity->tokens.push_back(*digest);
  return absl::OkStatus();
}

absl::Status ReadUser(const Json& entry, const Place& at, Identity* identity) {
  constexpr std::string_view kAllowed = "the number of a user, not its name";
  if (!entry.is_number_unsigned() ||
      entry.get<uint64_t>() >= std::numeric_limits<uint32_t>::max()) {
    return at.Refuse(entry.is_number() ? entry.dump() : KindOf(entry), kAllowed);
  }
  const auto user = entry.get<uint32_t>();
  if (user == kOverflowUser) {
    return at.Refuse(absl::StrCat(user, ", whom the system names in place of users that it cannot"),
                     "any other user");
  }
  identity->unix_users.push_back(user);
  return absl::OkStatus();
}

absl::Status ReadCertificateName(const Json& entry, const Place& at, Identity* identity) {
  constexpr std::string_view kAllowed = "\"dns:NAME\", \"uri:NAME\" or \"cn:NAME\"";
  if (!entry.is_string()) return at.Refuse(KindOf(entry), kAllowed);
  const auto& text = entry.get_ref<const std::string&>();
  const size_t colon = text.find(':');
  const std::string kind = text.substr(0, colon);
  const bool known = kind == "dns" || kind == "uri" || kind == "cn";
  if (colon == text.npos || !known || colon + 1 == text.size()) {
    return at.Refuse(Shown(text), kAllowed);
  }
  if (kind == "dns" && text.find('*') != text.npos) {
    return at.Refuse(Shown(text), "one name, without '*'");
  }
  identity->certificate_names.push_back(text);
  return absl::OkStatus();
}

absl::Status ReadProofs(const Json& json, const Place& place, Identity* identity) {
  const auto with = [identity](auto read) {
    return
        [identity, read](const Json& entry, const Place& at) { return read(entry, at, identity); };
  };
  REPRISE_RETURN_IF_ERROR(ReadList(json, place, "token_sha256", with(ReadToken)));
  REPRISE_RETURN_IF_ERROR(ReadList(json, place, "unix_users", with(ReadUser)));
  REPRISE_RETURN_IF_ERROR(ReadList(json, place, "certificate_names", with(ReadCertificateName)));
  if (identity->tokens.empty() && identity->unix_users.empty() &&
      identity->certificate_names.empty()) {
    return place.Refuse("nothing that proves it",
                        "one or more of token_sha256, unix_users, certificate_names");
  }
  return absl::OkStatus();
}

absl::StatusOr<Identity> ReadIdentity(const Json& json, const Place& place) {
  constexpr uint32_t kMost = std::numeric_limits<uint32_t>::max();
  REPRISE_RETURN_IF_ERROR(
      CheckFields(json, place,
                  {"certificate_names", "max_blocks", "max_rows", "max_sessions", "name",
                   "priority", "roles", "token_sha256", "unix_users", "weight"}));
  Identity identity;
  REPRISE_RETURN_IF_ERROR(ReadName(json, place, &identity));
  REPRISE_RETURN_IF_ERROR(ReadRoles(json, place, &identity.roles));
  REPRISE_RETURN_IF_ERROR(ReadProofs(json, place, &identity));
  Quota& quota = identity.quota;
  REPRISE_RETURN_IF_ERROR(
      ReadNumber(json, place, "max_sessions", 1, 1u << 16, &quota.max_sessions));
  REPRISE_RETURN_IF_ERROR(ReadNumber(json, place, "max_rows", 1, kMost, &quota.max_rows));
  REPRISE_RETURN_IF_ERROR(ReadNumber(json, place, "max_blocks", 1, kMost, &quota.max_blocks));
  REPRISE_RETURN_IF_ERROR(
      ReadNumber(json, place, "weight", 1, StepShare::kMaxWeight, &identity.weight));
  REPRISE_RETURN_IF_ERROR(
      ReadNumber(json, place, "priority", 0, StepShare::kNumPriorities - 1, &identity.priority));
  return identity;
}

}  // namespace

absl::StatusOr<std::vector<Identity>> ParseIdentities(std::string_view text,
                                                      const std::string& file) {
  Lines lines;
  const Place place{file, "", &lines};
  REPRISE_ASSIGN_OR_RETURN(const Json json, ParseJson(text, place, &lines));
  REPRISE_RETURN_IF_ERROR(CheckFields(json, place, {"identities"}));
  std::vector<Identity> identities;
  REPRISE_RETURN_IF_ERROR(
      ReadList(json, place, "identities", [&](const Json& entry, const Place& at) -> absl::Status {
        REPRISE_ASSIGN_OR_RETURN(Identity identity, ReadIdentity(entry, at));
        identities.push_back(std::move(identity));
        return absl::OkStatus();
      }));
  if (identities.empty()) return place.Refuse("no field \"identities\"", "a list of them");
  const absl::Status checked = CheckIdentities(identities);
  if (checked.ok()) return identities;
  // It begins with the place.
  const auto [path, rest] = std::pair<std::string, std::string>(
      absl::StrSplit(checked.message(), absl::MaxSplits(": ", 1)));
  return absl::InvalidArgumentError(absl::StrCat(Place{file, path, &lines}.Name(), rest));
}

absl::StatusOr<std::vector<Identity>> ReadIdentities(const std::string& path) {
  REPRISE_ASSIGN_OR_RETURN(const std::string text,
                           ReadPrivateFile("identities", path, FileKind::kTrusted));
  return ParseIdentities(text, path);
}

}  // namespace reprise::service
