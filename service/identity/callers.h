// SPDX-License-Identifier: Apache-2.0
// Callers: which identity a call comes from, and whether its roles allow the call. What an identity
// has of the server is its Account. A call's proof is, in this order: its bearer token, where it
// sends one; the name in the client certificate of its connection, which gRPC has verified; the
// user at the other end of its unix socket, by the tag of that connection (user_tag.h). Without
// identities everyone is one account that may do everything. Asked once per call: nothing of it is
// on the way of a stream's steps.
// Threads: every method from any thread.
#ifndef REPRISE_SERVICE_IDENTITY_CALLERS_H_
#define REPRISE_SERVICE_IDENTITY_CALLERS_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "engine/session_info.h"
#include "grpcpp/support/server_callback.h"
#include "service/identity/identity.h"
#include "service/step_queue.h"

namespace reprise::service {

// An identity, and what its sessions have together. Outlives them.
struct Account {
  // `proven`: whether its calls had to prove the identity.
  Account(Identity of, bool proven)
      : identity(std::move(of)), is_proven(proven), share(identity.weight, identity.priority) {}
  // What logs call it: "" where it is everyone.
  std::string_view log_name() const {
    return is_proven ? std::string_view(identity.name) : std::string_view();
  }

  const Identity identity;
  const bool is_proven;
  StepShare share;
  // The engine's, for the quota. Set before any session is opened.
  engine::AccountId engine_account = 0;
};

class Callers {
 public:
  // `identities`: none: everyone is one. REQUIRES: CheckIdentities.
  explicit Callers(std::vector<Identity> identities);

  // Whether calls have to prove an identity.
  bool has_identities() const { return has_identities_; }
  std::deque<Account>& accounts() { return accounts_; }
  // Number of the account whose identity names the user.
  std::optional<size_t> AccountOfUser(uint32_t user) const;

  // The account of a call of `method` that needs `role`. Errors, which never repeat a token:
  // Unauthenticated (no proof, or one of no identity); PermissionDenied (what, got, allowed).
  absl::StatusOr<Account*> Authorize(const grpc::CallbackServerContext& context, Role role,
                                     std::string_view method);

 private:
  absl::StatusOr<Account*> Identify(const grpc::CallbackServerContext& context);
  // All tokens are compared, whichever it is.
  absl::StatusOr<Account*> FindToken(std::string_view authorization);
  absl::StatusOr<Account*> FindCertificate(const grpc::AuthContext& connection);

  const bool has_identities_;
  std::deque<Account> accounts_;
  absl::flat_hash_map<uint32_t, size_t> by_user_;
  absl::flat_hash_map<std::string, size_t> by_certificate_;
};

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_IDENTITY_CALLERS_H_
