// SPDX-License-Identifier: Apache-2.0
// The ownership run: a server, clients of four identities that are processes of their own, and what
// harms them: they are killed, frozen until the server gives them up, and thawed. Every few seconds
// all rest, and what the server says that each holds is compared with the model.
#ifndef REPRISE_TESTS_STRESS_OWNERSHIP_H_
#define REPRISE_TESTS_STRESS_OWNERSHIP_H_

#include <cstdint>

namespace reprise::stress {

struct OwnershipOptions {
  int seconds = 10;
  uint32_t clients = 64;
  uint64_t seed = 1;
  int audit_seconds = 10;  // between two
};

// Failures are gtest's.
void RunOwnership(const OwnershipOptions& options);

}  // namespace reprise::stress

#endif  // REPRISE_TESTS_STRESS_OWNERSHIP_H_
