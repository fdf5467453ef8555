// SPDX-License-Identifier: Apache-2.0
#include "service/session_admin.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"
#include "service/clock.h"
#include "service/end_session.h"

namespace reprise::service {
namespace {

constexpr uint32_t kDefaultSessions = 100;  // of one answer
constexpr uint32_t kMaxSessions = 1000;
constexpr size_t kMaxReasonBytes = 256;

uint64_t Milliseconds(uint64_t ns) { return ns / 1'000'000; }

// A session may have ended by now: what it holds is then nothing.
void ViewToWire(const SessionView& view, const engine::DecodeEngine& engine, uint64_t now_ns,
                v1::SessionStatus* wire) {
  const ServedSession& session = *view.session;
  const engine::SessionUse use = engine.session_use(session.info.id).value_or(engine::SessionUse{});
  const uint64_t asked_ns =
      session.IsInUse() ? now_ns : session.last_asked_ns.load(std::memory_order_relaxed);
  wire->set_id(session.info.id);
  wire->set_identity(std::string(session.account.log_name()));
  wire->set_peer(view.peer);
  wire->set_client(session.client);
  wire->set_age_ms(Milliseconds(now_ns - std::min(now_ns, session.opened_ns)));
  wire->set_idle_ms(Milliseconds(now_ns - std::min(now_ns, asked_ns)));
  wire->set_attached(view.attached);
  wire->set_resume_grace_ms(Milliseconds(session.grace_ns));
  wire->set_grace_left_ms(Milliseconds(view.grace_left_ns));
  wire->set_rows(use.num_rows);
  wire->set_blocks(use.num_blocks);
  wire->set_shared_blocks(use.num_shared);
  wire->set_swapped_blocks(use.num_swapped);
  wire->set_last_sequence(use.last_sequence);
  wire->set_requests(session.num_requests.load(std::memory_order_relaxed));
  wire->set_joint_requests(session.num_joint_requests.load(std::memory_order_relaxed));
}

void EndEvicted(const ServiceHost& host, const SessionRegistry::Evicted& evicted,
                const absl::Status& why) {
  for (const std::shared_ptr<SessionStream>& stream : evicted.streams) stream->LoseSession(why);
  EndSession(host, *evicted.session, SessionEnd::kEvicted);
}

}  // namespace

absl::Status ListSessions(const ServiceHost& host, const v1::ListSessionsRequest& request,
                          v1::ListSessionsResponse* response) {
  if (request.max_sessions() > kMaxSessions) {
    return absl::OutOfRangeError(absl::StrCat("max_sessions: got ", request.max_sessions(),
                                              ", allowed at most ", kMaxSessions));
  }
  const size_t most = request.max_sessions() == 0 ? kDefaultSessions : request.max_sessions();
  const uint64_t now_ns = NowNs();
  std::vector<SessionView> views = host.sessions.List(request.after(), most + 1, now_ns);
  response->set_more(views.size() > most);
  if (response->more()) views.pop_back();
  for (const SessionView& view : views)
    ViewToWire(view, host.engine, now_ns, response->add_sessions());
  return absl::OkStatus();
}

absl::Status EvictSession(const ServiceHost& host, const v1::EvictSessionRequest& request) {
  if (request.reason().size() > kMaxReasonBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("reason: got ", request.reason().size(), " bytes, allowed ", kMaxReasonBytes));
  }
  const absl::Status why = absl::AbortedError(
      absl::StrCat("the session was evicted by an administrator",
                   request.reason().empty() ? "" : absl::StrCat(": ", request.reason())));
  REPRISE_ASSIGN_OR_RETURN(const SessionRegistry::Evicted evicted,
                           host.sessions.Evict(request.id(), why));
  EndEvicted(host, evicted, why);
  return absl::OkStatus();
}

uint32_t EvictSessionsOf(const ServiceHost& host, const Account& account) {
  const absl::Status why = absl::AbortedError(
      absl::StrCat("the session was ended, because its identity ", account.name, " was taken out"));
  uint32_t ended = 0;
  while (const auto evicted = host.sessions.EvictOneOf(account, why)) {
    EndEvicted(host, *evicted, why);
    ++ended;
  }
  return ended;
}

}  // namespace reprise::service
