// SPDX-License-Identifier: Apache-2.0
// TraceId: the id of a trace that a call or a step belongs to, as OpenTelemetry and W3C's Trace
// Context have it: 16 bytes that the client chose. The server passes it on and makes none. Threads:
// a value.
#ifndef REPRISE_SERVICE_TRACE_ID_H_
#define REPRISE_SERVICE_TRACE_ID_H_

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace reprise::service {

class TraceId {
 public:
  static constexpr size_t kBytes = 16;
  // The header of a call that carries one.
  static constexpr char kTraceparent[] = "traceparent";

  // None.
  TraceId() = default;
  // The trace-id of a traceparent header ("00-<32 digits>-<16 digits>-<2 digits>", lower-case
  // hexadecimal), of this version or a later one. None where the header is malformed, as the
  // standard wants it: a call does not fail for it.
  static TraceId FromTraceparent(std::string_view header);
  // REQUIRES: CheckTraceId(bytes).ok(). None for no bytes.
  static TraceId FromBytes(std::string_view bytes);

  bool empty() const { return !set_; }
  // 16, or none.
  std::string_view bytes() const { return {bytes_.data(), set_ ? kBytes : 0}; }
  // 32 lower-case digits, or "".
  std::string Hex() const;

 private:
  std::array<char, kBytes> bytes_ = {};
  bool set_ = false;
};

// Errors: InvalidArgument where a step's trace_id has neither 16 bytes nor none.
absl::Status CheckTraceId(std::string_view bytes);

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_TRACE_ID_H_
