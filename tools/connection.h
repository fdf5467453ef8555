// SPDX-License-Identifier: Apache-2.0
// Reaching a server: the channel, what proves who the client is, the standard health check, and
// errors that say which server and why. What is said over the channel is sched/client.h's business.
#ifndef REPRISE_TOOLS_CONNECTION_H_
#define REPRISE_TOOLS_CONNECTION_H_

#include <atomic>
#include <chrono>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/status.h"

namespace reprise::tools {

// Files may be "": none.
struct ConnectionOptions {
  std::string address = {};  // see address.h
  std::string tls_ca = {};   // what the server's certificate is checked by; none: plain text
  std::string tls_certificate = {};  // the client's own, over TLS
  std::string tls_key = {};
  std::string token_file = {};  // a bearer's token, sent with every call
};

class Connection {
 public:
  // Without any proxy. Connects when it is first used. Errors name the file that cannot be read,
  // that others may write or, of secrets, read, or that is not what it should be.
  static absl::StatusOr<Connection> Open(const ConnectionOptions& options);

  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }
  // Makes the call one of the token's identity. Before the call starts.
  void Prove(grpc::ClientContext* context) const;

 private:
  std::shared_ptr<grpc::Channel> channel_;
  std::string authorization_;  // "": none
};

// Same code, "`what`: message".
absl::Status FromGrpc(const grpc::Status& status, const std::string& what);

// Asks grpc.health.v1.Health until it says SERVING or `wait` is over; asks once when `wait` is 0.
// Errors: Unavailable says that nobody answers (and why) or what health said; Unimplemented:
// something answers that has no health service; Cancelled when `interrupted` (may be null) turns
// true.
absl::Status WaitUntilServing(const std::shared_ptr<grpc::Channel>& channel,
                              const std::string& address, std::chrono::nanoseconds wait,
                              const std::atomic<bool>* interrupted);

// What WaitUntilServing has found, in a word: "SERVING", another that health said, "UNREACHABLE"
// where nobody answers, "UNKNOWN" where what answers tells nothing.
std::string ServingStatusOf(const absl::Status& waited);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_CONNECTION_H_
