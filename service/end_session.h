// SPDX-License-Identifier: Apache-2.0
// EndSession: the end of a session that the registry has let go of. Threads: a free function
// without state.
#ifndef REPRISE_SERVICE_END_SESSION_H_
#define REPRISE_SERVICE_END_SESSION_H_

#include "service/service_host.h"
#include "service/session_registry.h"
#include "service/telemetry.h"

namespace reprise::service {

// Refuses the session's steps that wait; what it holds is free after its steps in flight, and so is
// what a profile of it has captured.
inline void EndSession(const ServiceHost& host, ServedSession& session, SessionEnd end) {
  host.pipeline.CloseSession(session.info.id, session.queue);
  host.profile.Release(session.info.id);
  host.telemetry.NoteSessionEnded(host.sessions.OriginOf(session), session.info.id, end);
}

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_END_SESSION_H_
