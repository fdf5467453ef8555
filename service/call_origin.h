// SPDX-License-Identifier: Apache-2.0
// CallOrigin: where a call comes from: its peer, the identity that it proved, and the trace that
// its metadata names. Threads: a value.
#ifndef REPRISE_SERVICE_CALL_ORIGIN_H_
#define REPRISE_SERVICE_CALL_ORIGIN_H_

#include <string>
#include <string_view>

#include "grpcpp/server_context.h"
#include "service/trace_id.h"

namespace reprise::service {

struct CallOrigin {
  std::string peer;  // as gRPC writes it: "ipv4:192.0.2.7:40122", "unix:"
  TraceId trace;     // of the call's traceparent; none where it has not exactly one
  // Its name, which outlives the call; "" where the server has no identities.
  std::string_view identity = {};
};

// Without a peer where there is no memory for it.
CallOrigin OriginOf(const grpc::CallbackServerContext& context,
                    std::string_view identity = {}) noexcept;

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_CALL_ORIGIN_H_
