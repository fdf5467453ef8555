// SPDX-License-Identifier: Apache-2.0
// Callers: which identity a call comes from, and whether its roles allow the call. What an identity
// has of the server is its Account. A call's proof is, in this order: its bearer token, where it
// sends one; the name in the client certificate of its connection, which gRPC has verified; the
// user at the other end of its unix socket, by the tag of that connection (user_tag.h). Without
// identities everyone is one account that may do everything. Asked once per call: nothing of it is
// on the way of a stream's steps.
//
// Identities may be replaced while calls are made. An identity goes on by its name: its account
// stays, and so do its sessions. The account of one that is gone stays as well, without proofs, for
// sessions that still end, and for an identity of that name that comes back.
// Threads: every method from any thread.
#ifndef REPRISE_SERVICE_IDENTITY_CALLERS_H_
#define REPRISE_SERVICE_IDENTITY_CALLERS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "engine/session_info.h"
#include "grpcpp/support/server_callback.h"
#include "service/identity/identity.h"
#include "service/step_queue.h"

namespace reprise::service {

// An identity, and what its sessions have together. Outlives them.
struct Account {
  // `proven`: whether its calls had to prove the identity.
  Account(const Identity& of, bool proven)
      : name(of.name),
        is_proven(proven),
        share(of.weight, of.priority),
        max_sessions(of.quota.max_sessions),
        max_blocks(of.quota.max_blocks) {}
  // What logs call it: "" where it is everyone.
  std::string_view log_name() const {
    return is_proven ? std::string_view(name) : std::string_view();
  }

  const std::string name;
  const bool is_proven;
  StepShare share;
  std::atomic<uint32_t> max_sessions;  // 0: as many as the server has
  std::atomic<uint32_t> max_blocks;    // of all its sessions together; 0: as many as the pool has
  // False once its identity is gone, or has no role that allows sessions any more.
  std::atomic<bool> may_have_sessions = true;
  // The engine's, for the quota. Set before any session is opened.
  engine::AccountId engine_account = 0;
};

class Callers {
 public:
  // Users of unix sockets that may come in by Replace, beside those of the start, before the server
  // has to be started again.
  static constexpr size_t kMaxMoreUsers = 64;

  // `identities`: none: everyone is one. REQUIRES: CheckIdentities.
  explicit Callers(const std::vector<Identity>& identities);

  // Whether calls have to prove an identity.
  bool has_identities() const { return has_identities_; }
  bool KnowsUser(uint32_t user) const;
  // Different users that were ever known are no more than this.
  size_t max_users() const { return max_users_; }

  // An account and what its identity is now; nullptr: it is gone.
  using AccountFn = std::function<void(Account&, const Identity*)>;
  void ForEachAccount(const AccountFn& fn);

  struct Change {
    uint32_t added = 0;
    uint32_t changed = 0;
    uint32_t removed = 0;
  };
  // From now on these are the identities. `set_up` is called for every account, a new one's before
  // any call can find it. Errors (nothing changed): FailedPrecondition (more users than max_users,
  // or a server that was made without identities). REQUIRES: CheckIdentities; one identity or more.
  absl::StatusOr<Change> Replace(const std::vector<Identity>& identities, const AccountFn& set_up);

  // The account of a call of `method` that needs `role`. Errors, which never repeat a token:
  // Unauthenticated (no proof, or one of no identity); PermissionDenied (what, got, allowed).
  absl::StatusOr<Account*> Authorize(const grpc::CallbackServerContext& context, Role role,
                                     std::string_view method);

 private:
  // What is looked up for calls.
  struct Proofs {
    explicit Proofs(const std::vector<Identity>& of);
    std::vector<Identity> identities;
    std::vector<std::pair<TokenDigest, size_t>> tokens;  // and places in `identities`
    absl::flat_hash_map<uint32_t, size_t> by_user;
    absl::flat_hash_map<std::string, size_t> by_certificate;
  };

  absl::StatusOr<size_t> Identify(const grpc::CallbackServerContext& context) const
      ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  // All tokens are compared, whichever it is.
  absl::StatusOr<size_t> FindToken(std::string_view authorization) const
      ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<size_t> FindCertificate(const grpc::AuthContext& connection) const
      ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  absl::Status CheckUsers(const std::vector<Identity>& identities) const
      ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  // nullptr: none has that name.
  Account* FindAccount(std::string_view name) ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  // Of the account with that name, among those that `proofs_` has; nullptr: none.
  const Identity* IdentityOf(std::string_view name) const ABSL_SHARED_LOCKS_REQUIRED(mutex_);

  const bool has_identities_;
  mutable std::shared_mutex mutex_;
  std::deque<Account> accounts_ ABSL_GUARDED_BY(mutex_);
  Proofs proofs_ ABSL_GUARDED_BY(mutex_);
  // Of the identities, by their places.
  std::vector<Account*> account_of_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_set<uint32_t> users_ever_ ABSL_GUARDED_BY(mutex_);
  const size_t max_users_;
};

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_IDENTITY_CALLERS_H_
