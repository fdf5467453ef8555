// SPDX-License-Identifier: Apache-2.0
// What SwapOut, SwapIn, SwapOutState and FreeSwapped do for a session that was found. None of them
// waits for the device. Errors: the engine's. Threads: free functions without state.
#ifndef REPRISE_SERVICE_KV_SWAP_CALLS_H_
#define REPRISE_SERVICE_KV_SWAP_CALLS_H_

#include "absl/status/status.h"
#include "reprise/v1/step_service.pb.h"
#include "service/service_host.h"

namespace reprise::service {

absl::Status SwapOut(const ServiceHost& host, const ServedSession& session,
                     const v1::SwapOutRequest& request, v1::SwapOutResponse* response);
absl::Status SwapIn(const ServiceHost& host, const ServedSession& session,
                    const v1::SwapInRequest& request, v1::SwapInResponse* response);
absl::Status SwapOutState(const ServiceHost& host, const ServedSession& session,
                          const v1::SwapOutStateRequest& request,
                          v1::SwapOutStateResponse* response);
absl::Status FreeSwapped(const ServiceHost& host, const ServedSession& session,
                         const v1::FreeSwappedRequest& request, v1::FreeSwappedResponse* response);

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_KV_SWAP_CALLS_H_
