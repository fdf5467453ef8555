// SPDX-License-Identifier: Apache-2.0
#include "service/call_origin.h"

#include <new>

namespace reprise::service {

CallOrigin OriginOf(const grpc::CallbackServerContext& context,
                    std::string_view identity) noexcept {
  CallOrigin origin;
  origin.identity = identity;
  try {
    origin.peer = context.peer();
  } catch (const std::bad_alloc&) {
    // Less is said of the call, and it goes on.
  }
  const auto& metadata = context.client_metadata();
  const auto found = metadata.find(TraceId::kTraceparent);
  if (found != metadata.end() && metadata.count(TraceId::kTraceparent) == 1) {
    origin.trace =
        TraceId::FromTraceparent(std::string_view(found->second.data(), found->second.size()));
  }
  return origin;
}

}  // namespace reprise::service
