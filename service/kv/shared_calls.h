// SPDX-License-Identifier: Apache-2.0
// What ShareBlocks, AdoptBlocks and ReleaseBlocks do for a session that was found. None of them
// waits for the device, but that AdoptBlocks of a session that is recorded reads what is in the
// blocks. Errors: the engine's. Threads: free functions without state; AdoptBlocks of a session
// that is recorded from the KV queue's thread alone.
#ifndef REPRISE_SERVICE_KV_SHARED_CALLS_H_
#define REPRISE_SERVICE_KV_SHARED_CALLS_H_

#include <string>

#include "absl/status/status.h"
#include "reprise/v1/step_service.pb.h"
#include "service/service_host.h"

namespace reprise::service {

absl::Status ShareBlocks(const ServiceHost& host, const ServedSession& session,
                         const v1::ShareBlocksRequest& request, v1::ShareBlocksResponse* response);
// `model`: its fingerprint; "": not known.
absl::Status AdoptBlocks(const ServiceHost& host, const std::string& model,
                         const ServedSession& session, const v1::AdoptBlocksRequest& request,
                         v1::AdoptBlocksResponse* response);
absl::Status ReleaseBlocks(const ServiceHost& host, const ServedSession& session,
                           const v1::ReleaseBlocksRequest& request,
                           v1::ReleaseBlocksResponse* response);

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_KV_SHARED_CALLS_H_
