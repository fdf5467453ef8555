// SPDX-License-Identifier: Apache-2.0
#include "service/identity/callers.h"

#include <iterator>
#include <memory>
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

std::deque<Account> AccountsOf(std::vector<Identity> identities) {
  std::deque<Account> accounts;
  for (Identity& identity : identities) accounts.emplace_back(std::move(identity), true);
  if (accounts.empty()) {
    accounts.emplace_back(Identity{.name = "anyone", .roles = Roles::All()}, false);
  }
  return accounts;
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

Callers::Callers(std::vector<Identity> identities)
    : has_identities_(!identities.empty()), accounts_(AccountsOf(std::move(identities))) {
  for (size_t i = 0; i < accounts_.size(); ++i) {
    for (const uint32_t user : accounts_[i].identity.unix_users) by_user_.emplace(user, i);
    for (const std::string& name : accounts_[i].identity.certificate_names) {
      by_certificate_.emplace(name, i);
    }
  }
}

std::optional<size_t> Callers::AccountOfUser(uint32_t user) const {
  const auto found = by_user_.find(user);
  if (found == by_user_.end()) return std::nullopt;
  return found->second;
}

absl::StatusOr<Account*> Callers::Authorize(const grpc::CallbackServerContext& context, Role role,
                                            std::string_view method) {
  if (!has_identities_) return &accounts_.front();
  REPRISE_ASSIGN_OR_RETURN(Account * account, Identify(context));
  const Identity& identity = account->identity;
  if (identity.roles.Allow(role)) return account;
  return absl::PermissionDeniedError(
      absl::StrCat(std::string(method), ": got the identity ", identity.name, " with the roles ",
                   identity.roles.ToText(), ", allowed with the role ", std::string(NameOf(role))));
}

absl::StatusOr<Account*> Callers::Identify(const grpc::CallbackServerContext& context) {
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
    const std::optional<size_t> account = UserTag::Read(*connection);
    if (account.has_value()) return &accounts_.at(*account);
  }
  return absl::UnauthenticatedError(
      "identity: got no proof of one, allowed: a bearer token, a client certificate, or a user of "
      "a unix socket, that this server knows");
}

absl::StatusOr<Account*> Callers::FindToken(std::string_view authorization) {
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
  Account* found = nullptr;
  for (Account& account : accounts_) {
    for (const TokenDigest& known : account.identity.tokens) {
      if (known.Is(digest)) found = &account;
    }
  }
  if (found != nullptr) return found;
  return absl::UnauthenticatedError(
      "authorization: got a token of no identity, allowed: one that this server knows");
}

absl::StatusOr<Account*> Callers::FindCertificate(const grpc::AuthContext& connection) {
  std::optional<size_t> account;
  bool several = false;
  bool any = false;
  ForEachName(connection, [&](const std::string& name) {
    any = true;
    const auto found = by_certificate_.find(name);
    if (found == by_certificate_.end()) return;
    several = several || (account.has_value() && *account != found->second);
    account = found->second;
  });
  if (several) {
    return absl::UnauthenticatedError(
        "client certificate: got names of several identities, allowed: of one");
  }
  if (account.has_value()) return &accounts_.at(*account);
  return absl::UnauthenticatedError(
      any ? "client certificate: got names of no identity, allowed: one that this server knows"
          : "identity: got no proof of one, allowed: a bearer token, or a client certificate, that "
            "this server knows");
}

}  // namespace reprise::service
