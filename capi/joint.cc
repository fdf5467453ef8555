// SPDX-License-Identifier: Apache-2.0
// Requests of several sessions in one launch, of reprise.h.
#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "capi/call.h"
#include "capi/handles.h"
#include "capi/reprise.h"
#include "engine/decode_engine.h"
#include "engine/step_draft.h"
#include "runtime/status_macros.h"

namespace reprise::capi {
namespace {

using engine::JointRequest;

absl::Status CheckRequests(const reprise_engine* engine, reprise_session* const* sessions,
                           const reprise_step* const* steps, size_t count) {
  REPRISE_RETURN_IF_ERROR(CheckHandle(engine));
  REPRISE_RETURN_IF_ERROR(CheckArray("sessions", sessions, count));
  REPRISE_RETURN_IF_ERROR(CheckArray("steps", steps, count));
  for (size_t i = 0; i < count; ++i) {
    REPRISE_RETURN_IF_ERROR(CheckHandle(sessions[i]));
    REPRISE_RETURN_IF_ERROR(CheckHandle(steps[i]));
    if (sessions[i]->shared != engine->shared) {
      return absl::InvalidArgumentError(
          absl::StrCat("session ", i, " is of another engine; allowed: sessions of this one"));
    }
  }
  return absl::OkStatus();
}

// From asking for the sessions' last numbers to submitting the next ones. Threads lock sessions in
// one order.
std::vector<std::unique_lock<std::mutex>> LockNumbering(reprise_session* const* sessions,
                                                        size_t count) {
  std::vector<reprise_session*> distinct(sessions, sessions + count);
  std::sort(distinct.begin(), distinct.end(), std::less<>());
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  std::vector<std::unique_lock<std::mutex>> locks;
  for (reprise_session* session : distinct) locks.emplace_back(session->numbering);
  return locks;
}

reprise_joint_outcome NumberOf(JointRequest::Outcome outcome) {
  switch (outcome) {
    case JointRequest::Outcome::kTaken:
      return REPRISE_JOINT_TAKEN;
    case JointRequest::Outcome::kRefused:
      return REPRISE_JOINT_REFUSED;
    case JointRequest::Outcome::kLeft:
      break;
  }
  return REPRISE_JOINT_LEFT;
}

absl::Status SubmitJoint(const reprise_engine* engine, reprise_session* const* sessions,
                         const reprise_step* const* steps, size_t count,
                         reprise_joint_outcome* outcomes, reprise_error* errors, uint64_t* ticket) {
  REPRISE_RETURN_IF_ERROR(CheckRequests(engine, sessions, steps, count));
  REPRISE_RETURN_IF_ERROR(CheckArray("outcomes", outcomes, count));
  REPRISE_RETURN_IF_ERROR(CheckNotNull("ticket", ticket));
  engine::DecodeEngine& decode = *engine->shared->engine;
  const auto locks = LockNumbering(sessions, count);
  std::deque<engine::DraftView> views;
  std::vector<JointRequest> requests;
  for (size_t i = 0; i < count; ++i) {
    const engine::SessionInfo& info = sessions[i]->info;
    REPRISE_ASSIGN_OR_RETURN(const engine::SessionUse use, decode.session_use(info.id));
    views.emplace_back(steps[i]->draft, info, use.last_sequence + 1);
    requests.push_back({.request = &views.back().request()});
  }
  REPRISE_ASSIGN_OR_RETURN(*ticket, decode.SubmitJoint(requests));
  for (size_t i = 0; i < count; ++i) {
    outcomes[i] = NumberOf(requests[i].outcome);
    if (errors != nullptr) Report(requests[i].status, &errors[i]);
  }
  return absl::OkStatus();
}

absl::Status WaitJoint(const reprise_engine* engine, uint64_t ticket,
                       reprise_result* const* results, size_t num_results) {
  REPRISE_RETURN_IF_ERROR(CheckHandle(engine));
  REPRISE_RETURN_IF_ERROR(CheckArray("results", results, num_results));
  const std::span<reprise_result* const> given(results, num_results);
  for (size_t i = 0; i < num_results; ++i) {
    REPRISE_RETURN_IF_ERROR(CheckHandle(given[i]));
    if (std::find(given.begin(), given.begin() + static_cast<std::ptrdiff_t>(i), given[i]) !=
        given.begin() + static_cast<std::ptrdiff_t>(i)) {
      return absl::InvalidArgumentError(absl::StrCat("result ", i, " is there twice"));
    }
  }
  // They keep their memory.
  std::vector<engine::StepResult> taken;
  for (reprise_result* result : given) taken.push_back(std::move(result->result));
  const absl::Status status = engine->shared->engine->WaitJoint(ticket, taken);
  for (size_t i = 0; i < num_results; ++i) given[i]->result = std::move(taken[i]);
  REPRISE_RETURN_IF_ERROR(status);
  for (reprise_result* result : given) result->Fill();
  return absl::OkStatus();
}

}  // namespace
}  // namespace reprise::capi

using reprise::capi::Call;

reprise_code reprise_engine_submit_joint(reprise_engine* engine, reprise_session* const* sessions,
                                         const reprise_step* const* steps, size_t count,
                                         reprise_joint_outcome* outcomes, reprise_error* errors,
                                         uint64_t* ticket, reprise_error* error) {
  return Call(error, [&] {
    return reprise::capi::SubmitJoint(engine, sessions, steps, count, outcomes, errors, ticket);
  });
}

reprise_code reprise_engine_wait_joint(reprise_engine* engine, uint64_t ticket,
                                       reprise_result* const* results, size_t num_results,
                                       reprise_error* error) {
  return Call(error,
              [&] { return reprise::capi::WaitJoint(engine, ticket, results, num_results); });
}
