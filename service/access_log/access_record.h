// SPDX-License-Identifier: Apache-2.0
// AccessRecord: what the access log says of one step request or one session, in memory of its own,
// so that it can be handed to another thread without an allocation. Threads: a value.
#ifndef REPRISE_SERVICE_ACCESS_LOG_ACCESS_RECORD_H_
#define REPRISE_SERVICE_ACCESS_LOG_ACCESS_RECORD_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "service/trace_id.h"

namespace reprise::service {

// The beginning of a text, cut between two characters of UTF-8.
template <size_t size>
class ShortText {
 public:
  ShortText() = default;
  explicit ShortText(std::string_view text) {
    size_t end = std::min(text.size(), size);
    while (end < text.size() && end > 0 && (text[end] & 0xc0) == 0x80) --end;
    std::copy_n(text.begin(), end, bytes_.begin());
    used_ = static_cast<uint8_t>(end);
  }
  std::string_view text() const { return {bytes_.data(), used_}; }

 private:
  static_assert(size < 256);
  uint8_t used_ = 0;
  std::array<char, size> bytes_ = {};
};

struct AccessRecord {
  enum class Event : uint8_t {
    kStep,           // a step request was answered or refused
    kStepRepeated,   // a unary step was given the answer of the same request sent before
    kSessionOpened,  // detail: what the client calls itself
    kSessionDetached,
    kSessionResumed,
    kSessionEnded  // detail: why
  };
  Event event = Event::kStep;
  absl::StatusCode code = absl::StatusCode::kOk;
  int64_t time_ns = 0;   // since 1970
  uint64_t session = 0;  // the engine's number of it, which gives nobody access; 0: not known
  uint64_t sequence = 0;
  uint32_t steps = 0;  // of the request, that ran
  uint32_t rows = 0;   // of its first step, as the next
  uint32_t tokens = 0;
  uint32_t sampled = 0;  // of all steps
  uint64_t queue_ns = 0;
  uint64_t device_ns = 0;
  uint64_t wall_ns = 0;
  TraceId trace;
  ShortText<24> graph;
  ShortText<64> peer;
  ShortText<64> identity;  // its name; "": the server has none
  ShortText<200> detail;   // of a refused step: the message
};

// One line of JSON, without its end. docs/metrics.md lists the fields.
std::string AccessLine(const AccessRecord& record);

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_ACCESS_LOG_ACCESS_RECORD_H_
