// SPDX-License-Identifier: Apache-2.0
// FrameMeter: follows the HTTP/2 frames that a client sends on one connection, and says when there
// is more of something than any client needs. gRPC 1.51 bounds the calls of a connection that are
// open at a time, once the client has acknowledged its settings, and the size of a message, once it
// has come whole. It bounds neither how often calls are opened and reset, nor frames that belong to
// no call, nor header blocks, nor messages on their way.
// Threads: one at a time; PeerMeter any.
#ifndef REPRISE_SERVICE_TRANSPORT_FRAME_METER_H_
#define REPRISE_SERVICE_TRANSPORT_FRAME_METER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "service/transport/token_bucket.h"

namespace reprise::service {

// What of a connection's frames is counted together.
enum class FrameKind : uint8_t { kCall, kReset, kPing, kSettings, kOther };
inline constexpr size_t kNumFrameKinds = 5;

// What there was too much of: the first are of frames, in the order of FrameKind.
enum class CutReason : uint8_t {
  kCalls,
  kResets,
  kPings,
  kSettings,
  kOtherFrames,
  kHeaderBytes,
  kUnfinishedBytes
};
inline constexpr size_t kNumCutReasons = 7;
// "calls", "resets", "pings", "settings", "other_frames", "header_bytes", "unfinished_bytes".
const char* NameOf(CutReason reason);
// Takes what there was too much of, and the same in words.
using CutCallback = std::function<void(CutReason, const std::string&)>;

// What one connection may send. Generous for every client that works: a client's library pings at
// most about once for each message that it receives, answers each of the server's settings once,
// and gives back its windows twice a message.
struct FrameLimits {
  Rate call = {.per_second = 5000, .burst = 2000};  // HEADERS
  Rate reset = {.per_second = 250, .burst = 300};   // RST_STREAM
  // PING, and answers to the server's; not those between which it sent DATA with a payload.
  Rate ping = {.per_second = 2000, .burst = 2000};
  Rate settings = {.per_second = 10, .burst = 100};  // SETTINGS, and answers
  // All else, DATA without a payload, and DATA of a few bytes that does not end its message.
  Rate other = {.per_second = 20000, .burst = 20000};
  // Of one call's headers, as they come.
  uint64_t max_header_bytes = 64 << 10;
  // Of messages that have not come whole, all calls together, with what gRPC takes for each piece.
  uint64_t max_unfinished_bytes = 16 << 20;
  // Opened before the client has acknowledged the server's settings, which say how many may be open
  // at a time. Clients take 100 for granted until they know.
  uint32_t max_calls_before_settings = 100;
};

// What all connections of a peer share, so that many of them are no way around the limits of one.
class PeerMeter {
 public:
  PeerMeter(const Rate& calls, const Rate& resets, uint64_t now_ns)
      : calls_(calls, now_ns), resets_(resets, now_ns) {}
  // False when that is one too many.
  bool Take(FrameKind kind, uint64_t now_ns);

 private:
  std::mutex mutex_;
  TokenBucket calls_ ABSL_GUARDED_BY(mutex_);
  TokenBucket resets_ ABSL_GUARDED_BY(mutex_);
};

class FrameMeter {
 public:
  // Of a connection that begins at `now_ns` (clock.h). `peer` may be null.
  FrameMeter(const FrameLimits& limits, std::shared_ptr<PeerMeter> peer, uint64_t now_ns);

  // Takes the next bytes that the client sent. False when there was too much of something among
  // them; what follows it is not looked at.
  bool Receive(std::span<const std::byte> bytes, uint64_t now_ns);
  // Of what was too much: "RST_STREAM frames: more than 300 at once or 250 a second".
  const std::string& excess() const { return excess_; }
  CutReason cut_reason() const { return cut_reason_; }

 private:
  // The messages of one call: five bytes, of which four are the length, and the message, over and
  // over (gRPC over HTTP/2).
  struct Messages {
    std::array<std::byte, 5> prefix = {};
    size_t prefix_size = 0;   // of which have come
    uint64_t left = 0;        // of the message's bytes
    uint64_t unfinished = 0;  // of them those that have come, and kPieceBytes for each piece
  };

  // The header of a frame that has come whole.
  bool BeginFrame(uint64_t now_ns);
  bool CountFrame(FrameKind kind, uint64_t now_ns);
  // Bytes of the payload of the frame that is being read.
  bool TakePayload(std::span<const std::byte> bytes);
  bool TakeData(std::span<const std::byte> bytes);
  bool EndFrame(uint64_t now_ns);
  // The end of a DATA frame with a payload.
  bool EndPiece(uint64_t now_ns);
  void ForgetCall(uint32_t stream);
  bool TooMuch(CutReason reason, std::string what);

  const FrameLimits limits_;
  const std::shared_ptr<PeerMeter> peer_;
  std::array<TokenBucket, kNumFrameKinds> buckets_;

  // The frame that is being read. At first the connection's preface, as if it were the payload of
  // one that nobody knows.
  std::array<std::byte, 9> header_ = {};
  size_t header_size_ = 0;  // of which have come
  uint64_t left_;           // bytes of its payload that are still to come
  uint64_t length_ = 0;     // of its payload
  uint8_t type_ = 0xff;
  uint8_t flags_ = 0;
  uint32_t stream_ = 0;
  uint64_t padding_ = 0;          // bytes at the payload's end
  bool padding_is_next_ = false;  // its length comes first

  bool settings_acknowledged_ = false;
  uint32_t calls_before_settings_ = 0;
  uint32_t free_pings_ = 0;
  uint64_t header_bytes_ = 0;  // of the header block that is not at its end
  uint64_t unfinished_bytes_ = 0;
  absl::flat_hash_map<uint32_t, Messages> calls_;  // with messages that have not come whole
  std::string excess_;
  CutReason cut_reason_ = CutReason::kOtherFrames;
};

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_TRANSPORT_FRAME_METER_H_
