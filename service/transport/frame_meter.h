// SPDX-License-Identifier: Apache-2.0
// FrameMeter: counts the HTTP/2 frames that a client sends on one connection, and says when there
// are more of a kind than any client needs. gRPC bounds the calls of a connection that are open at
// a time, not how often they are opened and reset, nor frames that belong to no call; each of these
// costs a server many times what it costs its sender.
// Threads: one at a time.
#ifndef REPRISE_SERVICE_TRANSPORT_FRAME_METER_H_
#define REPRISE_SERVICE_TRANSPORT_FRAME_METER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "service/transport/token_bucket.h"

namespace reprise::service {

// What of a connection's frames is counted together.
enum class FrameKind : uint8_t { kCall, kReset, kPing, kSettings, kOther };
inline constexpr size_t kNumFrameKinds = 5;

// Frames of each kind that one connection may send; DATA with a payload is bounded by HTTP/2's flow
// control alone. Generous for every client that works: a client's library pings about once for each
// message, answers each of the server's settings once, and gives back its windows twice a message.
struct FrameRates {
  Rate call = {.per_second = 5000, .burst = 2000};     // HEADERS
  Rate reset = {.per_second = 100, .burst = 200};      // RST_STREAM
  Rate ping = {.per_second = 2000, .burst = 2000};     // PING, and answers to the server's
  Rate settings = {.per_second = 10, .burst = 100};    // SETTINGS, and answers
  Rate other = {.per_second = 20000, .burst = 20000};  // all else, and DATA without a payload
};

class FrameMeter {
 public:
  // Of a connection that begins at `now_ns` (clock.h).
  FrameMeter(const FrameRates& rates, uint64_t now_ns);

  // Takes the next bytes that the client sent. False when a frame among them was one too many; what
  // follows it is not looked at.
  bool Receive(std::span<const std::byte> bytes, uint64_t now_ns);
  // Of the frame that was too many: "RST_STREAM frames: more than 100 a second".
  std::string Excess() const;

 private:
  // The header of a frame that has come whole.
  bool CountFrame(uint64_t now_ns);

  const FrameRates rates_;
  std::array<TokenBucket, kNumFrameKinds> buckets_;
  uint64_t skip_;  // bytes before the next frame's header: the preface, a payload
  std::array<std::byte, 9> header_ = {};
  size_t header_size_ = 0;  // of which have come
  FrameKind excess_ = FrameKind::kOther;
};

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_TRANSPORT_FRAME_METER_H_
