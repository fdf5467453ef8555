// SPDX-License-Identifier: Apache-2.0
// StartProfile and ReadTelemetry: what administrators ask a server for that they profile. That the
// caller is one has been checked. Threads: any; StartProfile waits until no step is in flight.
#ifndef REPRISE_SERVICE_PROFILE_CALLS_H_
#define REPRISE_SERVICE_PROFILE_CALLS_H_

#include "absl/status/status.h"
#include "reprise/v1/step_service.pb.h"
#include "service/service_host.h"
#include "service/session_registry.h"

namespace reprise::service {

absl::Status StartProfile(const ServiceHost& host, const ServedSession& session,
                          const v1::StartProfileRequest& request,
                          v1::StartProfileResponse* response);
void ReadTelemetry(const ServiceHost& host, v1::ReadTelemetryResponse* response);

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_PROFILE_CALLS_H_
