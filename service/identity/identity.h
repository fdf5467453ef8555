// SPDX-License-Identifier: Apache-2.0
// Identity: someone who may use the server: how a client proves to be it, what it may do, and what
// it gets of what all share. docs/identity.md says what each field means to an operator.
// Threads: values.
#ifndef REPRISE_SERVICE_IDENTITY_IDENTITY_H_
#define REPRISE_SERVICE_IDENTITY_IDENTITY_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "service/identity/token_digest.h"

namespace reprise::service {

enum class Role : uint8_t {
  kStep,        // sessions, steps and blocks
  kObserve,     // what the server is: Describe, reflection
  kAdminister,  // what changes the server for everyone, such as SetAttentionTree
};

std::string_view NameOf(Role role);
// "step, observe, administer"; those of `Roles` in the same order.
inline constexpr std::string_view kRoleNames = "step, observe, administer";

class Roles {
 public:
  constexpr Roles() = default;
  static constexpr Roles All() { return Roles(7); }
  void Add(Role role) { bits_ |= BitOf(role); }
  // As given; without what a role implies.
  bool Has(Role role) const { return (bits_ & BitOf(role)) != 0; }
  // Whether they allow what needs `role`: every role allows to observe.
  bool Allow(Role role) const { return Has(role) || (role == Role::kObserve && bits_ != 0); }
  bool empty() const { return bits_ == 0; }
  bool operator==(const Roles& other) const = default;
  std::string ToText() const;

 private:
  explicit constexpr Roles(uint8_t bits) : bits_(bits) {}
  static constexpr uint8_t BitOf(Role role) {
    return static_cast<uint8_t>(1u << static_cast<unsigned>(role));
  }
  uint8_t bits_ = 0;
};

// What all sessions of an identity may have together. 0: what the server has.
struct Quota {
  uint32_t max_sessions = 0;
  uint32_t max_rows = 0;
  uint32_t max_blocks = 0;

  bool operator==(const Quota& other) const = default;
};

struct Identity {
  std::string name;
  Roles roles = {};
  // Proofs; one is enough.
  std::vector<TokenDigest> tokens = {};
  std::vector<uint32_t> unix_users = {};
  // "dns:NAME" and "uri:NAME" (subject alternative names), "cn:NAME" (common name).
  std::vector<std::string> certificate_names = {};
  Quota quota = {};
  uint32_t weight = 1;    // see StepShare
  uint32_t priority = 0;  // higher goes first

  bool operator==(const Identity& other) const = default;
};

inline constexpr size_t kMaxIdentityNameBytes = 64;
// Letters, digits, '.', '-' and '_', 1 to kMaxIdentityNameBytes of them.
bool IsIdentityName(std::string_view name);

// That names, weights and priorities are in their ranges, and that no name and no proof stands
// twice. Errors: InvalidArgument (the place, "identities[1].weight", got, allowed), which never
// repeat a proof.
absl::Status CheckIdentities(const std::vector<Identity>& identities);

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_IDENTITY_IDENTITY_H_
