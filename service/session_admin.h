// SPDX-License-Identifier: Apache-2.0
// What an administrator does with the sessions of all clients: lists and evicts them. Who may ask
// is StepService's to say. Threads: any.
#ifndef REPRISE_SERVICE_SESSION_ADMIN_H_
#define REPRISE_SERVICE_SESSION_ADMIN_H_

#include "absl/status/status.h"
#include "reprise/v1/step_service.pb.h"
#include "service/service_host.h"

namespace reprise::service {

// Errors: OutOfRange (max_sessions).
absl::Status ListSessions(const ServiceHost& host, const v1::ListSessionsRequest& request,
                          v1::ListSessionsResponse* response);
// The session's stream is told; what it held is free after its steps in flight. Errors:
// InvalidArgument (reason), NotFound.
absl::Status EvictSession(const ServiceHost& host, const v1::EvictSessionRequest& request);
// Ends all sessions of an identity that may have none any more, as EvictSession ends one. How many.
uint32_t EvictSessionsOf(const ServiceHost& host, const Account& account);

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_SESSION_ADMIN_H_
