// SPDX-License-Identifier: Apache-2.0
// What ShareBlocks, AdoptBlocks and ReleaseBlocks do for a session that was found. None of them
// waits for the device. Errors: the engine's. Threads: free functions without state.
#ifndef REPRISE_SERVICE_KV_SHARED_CALLS_H_
#define REPRISE_SERVICE_KV_SHARED_CALLS_H_

#include "absl/status/status.h"
#include "reprise/v1/step_service.pb.h"
#include "service/service_host.h"

namespace reprise::service {

absl::Status ShareBlocks(const ServiceHost& host, const ServedSession& session,
                         const v1::ShareBlocksRequest& request, v1::ShareBlocksResponse* response);
absl::Status AdoptBlocks(const ServiceHost& host, const ServedSession& session,
                         const v1::AdoptBlocksRequest& request, v1::AdoptBlocksResponse* response);
absl::Status ReleaseBlocks(const ServiceHost& host, const ServedSession& session,
                           const v1::ReleaseBlocksRequest& request,
                           v1::ReleaseBlocksResponse* response);

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_KV_SHARED_CALLS_H_
