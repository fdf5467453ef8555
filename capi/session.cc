// SPDX-License-Identifier: Apache-2.0
// Sessions of reprise.h, and the steps that they run.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
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

reprise_session::~reprise_session() {
  if (shared == nullptr) return;
  // It was opened here and is closed here alone.
  static_cast<void>(shared->engine->CloseSession(info.id));
}

namespace reprise::capi {
namespace {

absl::Status CheckAccount(const SharedEngine& engine, uint32_t account) {
  const uint32_t num_accounts = engine.num_accounts;
  if (account != 0 && account <= num_accounts) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat("account is ", account, "; ", num_accounts,
                                          " were opened, which are numbered from 1 on"));
}

// Limits of an account.
absl::StatusOr<engine::SessionLimits> AccountLimits(const reprise_session_limits* given) {
  reprise_session_limits limits = {};
  if (given != nullptr) REPRISE_RETURN_IF_ERROR(ReadStruct(given, &limits));
  if (limits.max_swapped != 0 || limits.account != 0) {
    return absl::InvalidArgumentError(absl::StrCat("session limits: max_swapped is ",
                                                   limits.max_swapped, ", account is ",
                                                   limits.account, "; allowed of an account: 0"));
  }
  return engine::SessionLimits{.max_rows = limits.max_rows, .max_blocks = limits.max_blocks};
}

absl::Status OpenSession(const reprise_engine* engine, const reprise_session_limits* given,
                         reprise_session** session) {
  REPRISE_RETURN_IF_ERROR(CheckHandle(engine));
  REPRISE_RETURN_IF_ERROR(CheckNotNull("session", session));
  reprise_session_limits limits = {};
  if (given != nullptr) REPRISE_RETURN_IF_ERROR(ReadStruct(given, &limits));
  if (limits.account != 0) REPRISE_RETURN_IF_ERROR(CheckAccount(*engine->shared, limits.account));
  auto made = std::make_unique<reprise_session>();
  made->info = engine->shared->engine->OpenSession({.max_rows = limits.max_rows,
                                                    .max_blocks = limits.max_blocks,
                                                    .max_swapped = limits.max_swapped},
                                                   limits.account);
  made->shared = engine->shared;
  *session = made.release();
  return absl::OkStatus();
}

absl::Status OpenAccount(const reprise_engine* engine, const reprise_session_limits* given,
                         uint32_t* account) {
  REPRISE_RETURN_IF_ERROR(CheckHandle(engine));
  REPRISE_RETURN_IF_ERROR(CheckNotNull("account", account));
  REPRISE_ASSIGN_OR_RETURN(const engine::SessionLimits limits, AccountLimits(given));
  SharedEngine& shared = *engine->shared;
  *account = shared.engine->OpenAccount(limits);
  // Others may open some at the same time.
  uint32_t known = shared.num_accounts;
  while (known < *account && !shared.num_accounts.compare_exchange_weak(known, *account)) {
  }
  return absl::OkStatus();
}

// Hands the request to `run`, under the session's next number.
template <typename Run>
absl::Status WithNextNumber(reprise_session* session, const reprise_step* step, const Run& run) {
  REPRISE_RETURN_IF_ERROR(CheckHandle(session));
  REPRISE_RETURN_IF_ERROR(CheckHandle(step));
  const std::lock_guard<std::mutex> lock(session->numbering);
  REPRISE_ASSIGN_OR_RETURN(const engine::SessionUse use,
                           session->shared->engine->session_use(session->info.id));
  const engine::DraftView view(step->draft, session->info, use.last_sequence + 1);
  return run(view.request());
}

}  // namespace
}  // namespace reprise::capi

using reprise::capi::Call;
using reprise::capi::CheckArray;
using reprise::capi::CheckHandle;
using reprise::capi::CheckNotNull;

reprise_code reprise_session_open(reprise_engine* engine, const reprise_session_limits* limits,
                                  reprise_session** session, reprise_error* error) {
  return Call(error, [&] { return reprise::capi::OpenSession(engine, limits, session); });
}

reprise_code reprise_engine_open_account(reprise_engine* engine,
                                         const reprise_session_limits* limits, uint32_t* account,
                                         reprise_error* error) {
  return Call(error, [&] { return reprise::capi::OpenAccount(engine, limits, account); });
}

reprise_code reprise_engine_set_account_limits(reprise_engine* engine, uint32_t account,
                                               const reprise_session_limits* limits,
                                               reprise_error* error) {
  return Call(error, [&]() -> absl::Status {
    REPRISE_RETURN_IF_ERROR(CheckHandle(engine));
    REPRISE_RETURN_IF_ERROR(reprise::capi::CheckAccount(*engine->shared, account));
    REPRISE_ASSIGN_OR_RETURN(const auto read, reprise::capi::AccountLimits(limits));
    engine->shared->engine->SetAccountLimits(account, read);
    return absl::OkStatus();
  });
}

reprise_code reprise_session_destroy(reprise_session* session) {
  return reprise::capi::Destroy(session);
}

reprise_code reprise_session_get_use(const reprise_session* session, reprise_session_use* use,
                                     reprise_error* error) {
  return Call(error, [&]() -> absl::Status {
    REPRISE_RETURN_IF_ERROR(CheckHandle(session));
    REPRISE_ASSIGN_OR_RETURN(const reprise::engine::SessionUse from,
                             session->shared->engine->session_use(session->info.id));
    reprise_session_use value = {};
    value.num_rows = from.num_rows;
    value.num_blocks = from.num_blocks;
    value.num_steps = from.last_sequence;
    value.num_shared = from.num_shared;
    value.num_swapped = from.num_swapped;
    return reprise::capi::WriteStruct(value, use);
  });
}

reprise_code reprise_session_allocate_blocks(reprise_session* session, uint32_t count,
                                             uint32_t* blocks, reprise_error* error) {
  return Call(error, [&]() -> absl::Status {
    REPRISE_RETURN_IF_ERROR(CheckHandle(session));
    REPRISE_RETURN_IF_ERROR(CheckNotNull("blocks", blocks));
    REPRISE_ASSIGN_OR_RETURN(const std::vector<uint32_t> allocated,
                             session->shared->engine->AllocateBlocks(session->info.id, count));
    std::copy(allocated.begin(), allocated.end(), blocks);
    return absl::OkStatus();
  });
}

reprise_code reprise_session_free_blocks(reprise_session* session, const uint32_t* blocks,
                                         size_t num_blocks, reprise_error* error) {
  return Call(error, [&]() -> absl::Status {
    REPRISE_RETURN_IF_ERROR(CheckHandle(session));
    REPRISE_RETURN_IF_ERROR(CheckArray("blocks", blocks, num_blocks));
    return session->shared->engine->FreeBlocks(session->info.id, {blocks, num_blocks});
  });
}

reprise_code reprise_session_step(reprise_session* session, const reprise_step* step,
                                  reprise_result* result, reprise_error* error) {
  return Call(error, [&]() -> absl::Status {
    REPRISE_RETURN_IF_ERROR(CheckHandle(result));
    return reprise::capi::WithNextNumber(
        session, step, [&](const reprise::engine::StepRequest& request) -> absl::Status {
          const std::lock_guard<std::mutex> turn(session->shared->stepping);
          REPRISE_RETURN_IF_ERROR(session->shared->engine->Step(request, &result->result));
          result->Fill();
          return absl::OkStatus();
        });
  });
}

reprise_code reprise_session_submit(reprise_session* session, const reprise_step* step,
                                    uint64_t* ticket, reprise_error* error) {
  return Call(error, [&]() -> absl::Status {
    REPRISE_RETURN_IF_ERROR(CheckNotNull("ticket", ticket));
    return reprise::capi::WithNextNumber(
        session, step, [&](const reprise::engine::StepRequest& request) -> absl::Status {
          REPRISE_ASSIGN_OR_RETURN(*ticket, session->shared->engine->Submit(request));
          return absl::OkStatus();
        });
  });
}

reprise_code reprise_engine_wait(reprise_engine* engine, uint64_t ticket, reprise_result* result,
                                 reprise_error* error) {
  return Call(error, [&]() -> absl::Status {
    REPRISE_RETURN_IF_ERROR(CheckHandle(engine));
    REPRISE_RETURN_IF_ERROR(CheckHandle(result));
    REPRISE_RETURN_IF_ERROR(engine->shared->engine->Wait(ticket, &result->result));
    result->Fill();
    return absl::OkStatus();
  });
}
