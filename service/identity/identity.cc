// SPDX-License-Identifier: Apache-2.0
#include "service/identity/identity.h"

#include <algorithm>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"
#include "service/step_queue.h"

namespace reprise::service {
namespace {

absl::Status Refuse(size_t index, const char* field, const std::string& got,
                    const std::string& allowed) {
  return absl::InvalidArgumentError(
      absl::StrCat("identities[", index, "].", field, ": got ", got, ", allowed ", allowed));
}

absl::Status CheckRanges(const Identity& identity, size_t index) {
  if (!IsIdentityName(identity.name)) {
    return Refuse(
        index, "name", absl::StrCat("another text, of ", identity.name.size(), " bytes"),
        absl::StrCat("1 to ", kMaxIdentityNameBytes, " letters, digits, '.', '-' and '_'"));
  }
  if (identity.weight < 1 || identity.weight > StepShare::kMaxWeight) {
    return Refuse(index, "weight", absl::StrCat(identity.weight),
                  absl::StrCat("a whole number from 1 to ", StepShare::kMaxWeight));
  }
  if (identity.priority >= StepShare::kNumPriorities) {
    return Refuse(index, "priority", absl::StrCat(identity.priority),
                  absl::StrCat("a whole number from 0 to ", StepShare::kNumPriorities - 1));
  }
  return absl::OkStatus();
}

// What may stand once in all identities.
class OnceInAll {
 public:
  absl::Status Check(const Identity& identity, size_t index) {
    if (!names_.insert(identity.name).second) {
      return Refuse(index, "name", absl::StrCat("\"", identity.name, "\" again"), "each name once");
    }
    for (const TokenDigest& token : identity.tokens) {
      if (!tokens_.emplace(token.bytes()).second) return Again(index, "token_sha256");
    }
    for (const uint32_t user : identity.unix_users) {
      if (!users_.insert(user).second) return Again(index, "unix_users");
    }
    for (const std::string& name : identity.certificate_names) {
      if (!certificates_.insert(name).second) return Again(index, "certificate_names");
    }
    return absl::OkStatus();
  }

 private:
  static absl::Status Again(size_t index, const char* field) {
    return Refuse(index, field, "one that stands before", "each once");
  }
  std::set<std::string> names_, tokens_, certificates_;
  std::set<uint32_t> users_;
};

}  // namespace

std::string_view NameOf(Role role) {
  switch (role) {
    case Role::kStep:
      return "step";
    case Role::kObserve:
      return "observe";
    case Role::kAdminister:
      return "administer";
  }
  return "";
}

std::string Roles::ToText() const {
  std::string text;
  for (const Role role : {Role::kStep, Role::kObserve, Role::kAdminister}) {
    if (!Has(role)) continue;
    if (!text.empty()) text += ", ";
    text += NameOf(role);
  }
  return text;
}

bool IsIdentityName(std::string_view name) {
  const bool legal = std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return absl::ascii_isalnum(c) || c == '.' || c == '-' || c == '_';
  });
  return legal && !name.empty() && name.size() <= kMaxIdentityNameBytes;
}

absl::Status CheckIdentities(const std::vector<Identity>& identities) {
  OnceInAll once;
  for (size_t i = 0; i < identities.size(); ++i) {
    REPRISE_RETURN_IF_ERROR(CheckRanges(identities[i], i));
    REPRISE_RETURN_IF_ERROR(once.Check(identities[i], i));
  }
  return absl::OkStatus();
}

}  // namespace reprise::service
