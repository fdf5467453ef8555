// SPDX-License-Identifier: Apache-2.0
// Joint: requests of several sessions that a test submits together.
#ifndef REPRISE_TESTS_ENGINE_JOINT_H_
#define REPRISE_TESTS_ENGINE_JOINT_H_

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "engine/decode_engine.h"
#include "engine/step_draft.h"
#include "tests/testing/engine_driver.h"
#include "tests/testing/status_matchers.h"

namespace reprise::engine {

using Outcome = JointRequest::Outcome;

// One request of each driver's session, submitted together.
class Joint {
 public:
  Joint(std::vector<testing::EngineDriver*> drivers, std::vector<StepDraft> drafts)
      : drivers_(std::move(drivers)), drafts_(std::move(drafts)), requests_(drafts_.size()) {
    for (size_t i = 0; i < drafts_.size(); ++i) {
      testing::EngineDriver& driver = *drivers_[i];
      views_.push_back(
          std::make_unique<DraftView>(drafts_[i], driver.session(), driver.sequence()));
      requests_[i].request = &views_[i]->request();
    }
  }

  // Counts the steps of those taken.
  absl::StatusOr<StepTicket> Submit() {
    absl::StatusOr<StepTicket> ticket = drivers_[0]->engine().SubmitJoint(requests_);
    if (!ticket.ok()) return ticket;
    for (size_t i = 0; i < requests_.size(); ++i) {
      if (requests_[i].outcome == Outcome::kTaken) drivers_[i]->CountStep();
    }
    return ticket;
  }
  // All are taken and waited for.
  std::vector<StepResult> Run() {
    const auto ticket = Submit();
    EXPECT_OK(ticket.status());
    std::vector<StepResult> results(requests_.size());
    for (size_t i = 0; i < requests_.size(); ++i) {
      EXPECT_EQ(requests_[i].outcome, Outcome::kTaken) << i << ": " << requests_[i].status;
    }
    EXPECT_OK(drivers_[0]->engine().WaitJoint(ticket.value_or(0), results));
    return results;
  }
  std::vector<Outcome> outcomes() const {
    std::vector<Outcome> all;
    for (const JointRequest& joint : requests_) all.push_back(joint.outcome);
    return all;
  }
  const absl::Status& status(size_t i) const { return requests_[i].status; }

 private:
  std::vector<testing::EngineDriver*> drivers_;
  const std::vector<StepDraft> drafts_;
  std::vector<std::unique_ptr<DraftView>> views_;
  std::vector<JointRequest> requests_;
};

}  // namespace reprise::engine

#endif  // REPRISE_TESTS_ENGINE_JOINT_H_
