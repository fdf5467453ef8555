// SPDX-License-Identifier: Apache-2.0
#include "service/session_registry.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace reprise::service {

absl::StatusOr<std::shared_ptr<ServedSession>> SessionRegistry::Open(engine::DecodeEngine& engine) {
  std::lock_guard lock(mutex_);
  if (sessions_.size() >= max_sessions_) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "sessions: ", sessions_.size(), " are open; allowed: ", max_sessions_, " (max_sessions)"));
  }
  sessions_.reserve(max_sessions_);
  auto session = std::make_shared<ServedSession>();  // before the engine's: it may throw
  session->info = engine.OpenSession(limits_);
  sessions_.push_back(session);
  return session;
}

absl::StatusOr<std::shared_ptr<ServedSession>> SessionRegistry::Find(std::string_view token) const {
  if (token.size() != SessionToken::kBytes) {
    return absl::InvalidArgumentError(absl::StrCat("session: got ", token.size(),
                                                   " bytes, allowed ", SessionToken::kBytes,
                                                   ", as Opened.session gave them"));
  }
  std::shared_ptr<ServedSession> found;
  std::lock_guard lock(mutex_);
  for (const std::shared_ptr<ServedSession>& session : sessions_) {
    if (session->token.Is(token)) found = session;
  }
  if (found != nullptr) {
    found->last_asked_ns.store(NowNs(), std::memory_order_relaxed);
    return found;
  }
  return absl::NotFoundError("session: got a token of none, allowed that of an open StepStream");
}

void SessionRegistry::Forget(const ServedSession& session) {
  std::lock_guard lock(mutex_);
  std::erase_if(sessions_, [&session](const auto& open) { return open.get() == &session; });
}

}  // namespace reprise::service
