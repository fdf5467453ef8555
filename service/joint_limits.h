// SPDX-License-Identifier: Apache-2.0
// JointLimits: which steps of different sessions run in one replay. A row's bits do not depend on
// the rows beside it, so that nobody can tell but by the clock and by StepReport.other_rows. In an
// engine that is not batch invariant they do, and each request runs alone.
#ifndef REPRISE_SERVICE_JOINT_LIMITS_H_
#define REPRISE_SERVICE_JOINT_LIMITS_H_

#include <cstdint>

#include "engine/step_request.h"

namespace reprise::service {

struct JointLimits {
  // Requests of one replay. 1: each runs alone. At most kMaxRequests.
  uint32_t max_requests = kMaxRequests;
  // Given tokens that these bring together, of chunks and drafts. A request with more runs alone: a
  // prompt makes the replay longer for everyone in it.
  uint32_t max_given_tokens = 64;
  // Longest that a step waits for those of others which are expected; see StepGather. 0: never.
  uint64_t max_wait_us = 2000;

  static constexpr uint32_t kMaxRequests = engine::kMaxJointRequests;
};

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_JOINT_LIMITS_H_
