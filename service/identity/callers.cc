// SPDX-License-Identifier: Apache-2.0
#include "service/identity/callers.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "grpc/grpc_security_constants.h"
#include "grpcpp/server_context.h"
#include "runtime/status_macros.h"
#include "service/identity/user_tag.h"

namespace reprise::service {
namespace {

std::string_view ViewOf(grpc::string_ref text) { return {text.data(), text.size()}; }

std::vector<Identity> OrAnyone(const std::vector<Identity>& identities) {
  if (!identities.empty()) return identities;
  return {Identity{.name = "anyone", .roles = Roles::All()}};
}

// Calls `note` with the certificate's names as Identity writes them.
template <typename Note>
void ForEachName(const grpc::AuthContext& connection, const Note& note) {
  constexpr std::pair<const char*, const char*> kKinds[] = {{GRPC_PEER_DNS_PROPERTY_NAME, "dns:"},
                                                            {GRPC_PEER_URI_PROPERTY_NAME, "uri:"},
                                                            {GRPC_X509_CN_PROPERTY_NAME, "cn:"}};
  for (const auto& [property, prefix] : kKinds) {
    for (const grpc::string_ref& name : connection.FindPropertyValues(property)) {
      note(prefix + std::string(name.data(), name.size()));
    }
  }
}

bool IsOverTls(const grpc::AuthContext& connection) {
  const auto types = connection.FindPropertyValues(GRPC_TRANSPORT_SECURITY_TYPE_PROPERTY_NAME);
  return types.size() == 1 && ViewOf(types[0]) == GRPC_SSL_TRANSPORT_SECURITY_TYPE;
}

}  // namespace

Callers::Proofs::Proofs(const std::vector<Identity>& of) : identities(of) {
  for (size_t i = 0; i < identities.size(); ++i) {
    for (const TokenDigest& token : identities[i].tokens) tokens.emplace_back(token, i);
    for (const uint32_t user : identities[i].unix_users) by_user.emplace(user, i);
    for (const std::string& name : identities[i].certificate_names) by_certificate.emplace(name, i);
  }
}

Callers::Callers(const std::vector<Identity>& identities)
    : has_identities_(!identities.empty()),
      proofs_(OrAnyone(identities)),
      max_users_(proofs_.by_user.size() + kMaxMoreUsers) {
  for (const Identity& identity : proofs_.identities) {
    Account& account = accounts_.emplace_back(identity, has_identities_);
    account.may_have_sessions = identity.roles.Allow(Role::kStep);
    account_of_.push_back(&account);
  }
  for (const auto& [user, place] : proofs_.by_user) users_ever_.insert(user);
}

bool Callers::KnowsUser(uint32_t user) const {
  const std::shared_lock lock(mutex_);
  return proofs_.by_user.contains(user);
}

// ---- replacing them ----

const Identity* Callers::IdentityOf(std::string_view name) const {
  const auto found = std::ranges::find(proofs_.identities, name, &Identity::name);
  return found == proofs_.identities.end() ? nullptr : &*found;
}

Account* Callers::FindAccount(std::string_view name) {
  const auto found = std::ranges::find(accounts_, name, &Account::name);
  return found == accounts_.end() ? nullptr : &*found;
}

void Callers::ForEachAccount(const AccountFn& fn) {
  const std::unique_lock lock(mutex_);
  for (Account& account : accounts_) fn(account, IdentityOf(account.name));
}

absl::Status Callers::CheckUsers(const std::vector<Identity>& identities) const {
  absl::flat_hash_set<uint32_t> users = users_ever_;
  for (const Identity& identity : identities)
    users.insert(identity.unix_users.begin(), identity.unix_users.end());
  if (users.size() <= max_users_) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "unix_users: got ", users.size(), " different users since the start of the server, allowed ",
      max_users_, ": start it again for more"));
}

absl::StatusOr<Callers::Change> Callers::Replace(const std::vector<Identity>& identities,
                                                 const AccountFn& set_up) {
  if (!has_identities_) {
    return absl::FailedPreconditionError(
        "identities: got some for a server that serves everyone, allowed: for one that was started "
        "with identities");
  }
  const std::unique_lock lock(mutex_);
  REPRISE_RETURN_IF_ERROR(CheckUsers(identities));
  Change change;
  Proofs next(identities);
  std::vector<Account*> account_of;
  for (const Identity& identity : next.identities) {
    const Identity* before = IdentityOf(identity.name);
    if (before == nullptr) ++change.added;
    if (before != nullptr && !(*before == identity)) ++change.changed;
    Account* account = FindAccount(identity.name);
    account_of.push_back(account != nullptr ? account : &accounts_.emplace_back(identity, true));
  }
  for (const Identity& before : proofs_.identities) {
    if (std::ranges::find(identities, before.name, &Identity::name) == identities.end())
      ++change.removed;
  }
  for (const Identity& identity : identities)
    users_ever_.insert(identity.unix_users.begin(), identity.unix_users.end());
  std::swap(proofs_, next);
  // New ones first: only they may run out of memory, and nothing has changed by then.
  for (auto it = accounts_.rbegin(); it != accounts_.rend(); ++it) {
    Account& account = *it;
    const Identity* identity = IdentityOf(account.name);
    try {
      set_up(account, identity);
    } catch (...) {
      std::swap(proofs_, next);
      throw;
    }
    account.may_have_sessions = identity != nullptr && identity->roles.Allow(Role::kStep);
    account.max_sessions = identity == nullptr ? 0 : identity->quota.max_sessions;
    account.max_blocks = identity == nullptr ? 0 : identity->quota.max_blocks;
  }
  account_of_.swap(account_of);
  return change;
}

// ---- whose call it is ----

absl::StatusOr<Account*> Callers::Authorize(const grpc::CallbackServerContext& context, Role role,
                                            std::string_view method) {
  const std::shared_lock lock(mutex_);
  if (!has_identities_) return &accounts_.front();
  REPRISE_ASSIGN_OR_RETURN(const size_t place, Identify(context));
  const Identity& identity = proofs_.identities[place];
  if (identity.roles.Allow(role)) return account_of_[place];
  return absl::PermissionDeniedError(
      absl::StrCat(std::string(method), ": got the identity ", identity.name, " with the roles ",
                   identity.roles.ToText(), ", allowed with the role ", std::string(NameOf(role))));
}

absl::StatusOr<size_t> Callers::Identify(const grpc::CallbackServerContext& context) const {
  const auto& metadata = context.client_metadata();
  const auto sent = metadata.equal_range("authorization");
  if (sent.first != sent.second) {
    if (std::next(sent.first) != sent.second) {
      return absl::UnauthenticatedError("authorization: got it several times, allowed once");
    }
    return FindToken(ViewOf(sent.first->second));
  }
  const std::shared_ptr<const grpc::AuthContext> connection = context.auth_context();
  if (connection != nullptr && IsOverTls(*connection)) return FindCertificate(*connection);
  if (connection != nullptr) {
    const std::optional<uint32_t> user = UserTag::Read(*connection);
    const auto found = user.has_value() ? proofs_.by_user.find(*user) : proofs_.by_user.end();
    if (found != proofs_.by_user.end()) return found->second;
  }
  return absl::UnauthenticatedError(
      "identity: got no proof of one, allowed: a bearer token, a client certificate, or a user of "
      "a unix socket, that this server knows");
}

absl::StatusOr<size_t> Callers::FindToken(std::string_view authorization) const {
  constexpr absl::string_view kScheme = "Bearer ";
  const absl::string_view text(authorization.data(), authorization.size());
  const std::string_view token =
      absl::StartsWithIgnoreCase(text, kScheme) ? authorization.substr(kScheme.size()) : "";
  if (!IsBearerToken(token)) {
    return absl::UnauthenticatedError(absl::StrCat(
        "authorization: got no token of a bearer, allowed: \"Bearer \" and a token of at most ",
        TokenDigest::kMaxTokenBytes, " bytes"));
  }
  const TokenDigest digest = TokenDigest::Of(token);
  std::optional<size_t> found;
  for (const auto& [known, place] : proofs_.tokens) {
    if (known.Is(digest)) found = place;
  }
  if (found.has_value()) return *found;
  return absl::UnauthenticatedError(
      "authorization: got a token of no identity, allowed: one that this server knows");
}

absl::StatusOr<size_t> Callers::FindCertificate(const grpc::AuthContext& connection) const {
  std::optional<size_t> place;
  bool several = false;
  bool any = false;
  ForEachName(connection, [&](const std::string& name) {
    any = true;
    const auto found = proofs_.by_certificate.find(name);
    if (found == proofs_.by_certificate.end()) return;
    several = several || (place.has_value() && *place != found->second);
    place = found->second;
  });
  if (several) {
    return absl::UnauthenticatedError(
        "client certificate: got names of several identities, allowed: of one");
  }
  if (place.has_value()) return *place;
  return absl::UnauthenticatedError(
      any ? "client certificate: got names of no identity, allowed: one that this server knows"
          : "identity: got no proof of one, allowed: a bearer token, or a client certificate, that "
            "this server knows");
}

}  // namespace reprise::service
