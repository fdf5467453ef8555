// SPDX-License-Identifier: Apache-2.0
// Reaching a server: the channel, the standard health check, and errors that say which server and
// why. What is said over the channel is sched/client.h's business.
#ifndef REPRISE_TOOLS_CONNECTION_H_
#define REPRISE_TOOLS_CONNECTION_H_

#include <atomic>
#include <chrono>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "grpcpp/channel.h"
#include "grpcpp/support/status.h"

namespace reprise::tools {

// A channel to `address` (see address.h), in plain text and without any proxy. Connects when it is
// first used.
std::shared_ptr<grpc::Channel> OpenChannel(const std::string& address);

// Same code, "`what`: message".
absl::Status FromGrpc(const grpc::Status& status, const std::string& what);

// Asks grpc.health.v1.Health until it says SERVING or `wait` is over; asks once when `wait` is 0.
// Errors: Unavailable says that nobody answers (and why) or what health said; Unimplemented:
// something answers that has no health service; Cancelled when `interrupted` (may be null) turns
// true.
absl::Status WaitUntilServing(const std::shared_ptr<grpc::Channel>& channel,
                              const std::string& address, std::chrono::nanoseconds wait,
                              const std::atomic<bool>* interrupted);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_CONNECTION_H_
