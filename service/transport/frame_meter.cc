// SPDX-License-Identifier: Apache-2.0
#include "service/transport/frame_meter.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace reprise::service {
namespace {

// RFC 9113: the connection preface of section 3.4, the frame header of 4.1, types and flags of 6.
constexpr uint64_t kPrefaceBytes = 24;
constexpr uint8_t kData = 0;
constexpr uint8_t kHeaders = 1;
constexpr uint8_t kRstStream = 3;
constexpr uint8_t kSettings = 4;
constexpr uint8_t kPing = 6;
constexpr uint8_t kContinuation = 9;
constexpr uint8_t kAck = 0x1;        // of SETTINGS
constexpr uint8_t kEndStream = 0x1;  // of DATA and HEADERS
constexpr uint8_t kEndHeaders = 0x4;
constexpr uint8_t kPadded = 0x8;

constexpr uint32_t kMostFreePings = 1000;

// What gRPC keeps for a piece of a message beside its bytes.
constexpr uint64_t kPieceBytes = 64;
// Messages are cut into pieces of 16 KiB, and where a window ends. Pieces below this are counted.
constexpr uint64_t kSmallPieceBytes = 256;

FrameKind KindOf(uint8_t type) {
  switch (type) {
    case kHeaders:
      return FrameKind::kCall;
    case kRstStream:
      return FrameKind::kReset;
    case kSettings:
      return FrameKind::kSettings;
    case kPing:
      return FrameKind::kPing;
    default:
      return FrameKind::kOther;
  }
}

const char* NameOf(FrameKind kind) {
  switch (kind) {
    case FrameKind::kCall:
      return "HEADERS frames";
    case FrameKind::kReset:
      return "RST_STREAM frames";
    case FrameKind::kPing:
      return "PING frames";
    case FrameKind::kSettings:
      return "SETTINGS frames";
    case FrameKind::kOther:
      break;
  }
  return "frames without a message, and small pieces of messages";
}

uint32_t BigEndian(const std::byte* bytes, int count) {
  uint32_t value = 0;
  for (int i = 0; i < count; ++i) value = value << 8 | std::to_integer<uint32_t>(bytes[i]);
  return value;
}

}  // namespace

const char* NameOf(CutReason reason) {
  switch (reason) {
    case CutReason::kCalls:
      return "calls";
    case CutReason::kResets:
      return "resets";
    case CutReason::kPings:
      return "pings";
    case CutReason::kSettings:
      return "settings";
    case CutReason::kOtherFrames:
      return "other_frames";
    case CutReason::kHeaderBytes:
      return "header_bytes";
    case CutReason::kUnfinishedBytes:
      return "unfinished_bytes";
  }
  return "other_frames";
}

bool PeerMeter::Take(FrameKind kind, uint64_t now_ns) {
  std::lock_guard lock(mutex_);
  if (kind == FrameKind::kCall) return calls_.Take(1, now_ns);
  return kind != FrameKind::kReset || resets_.Take(1, now_ns);
}

FrameMeter::FrameMeter(const FrameLimits& limits, std::shared_ptr<PeerMeter> peer, uint64_t now_ns)
    : limits_(limits),
      peer_(std::move(peer)),
      // In the order of FrameKind.
      buckets_{TokenBucket(limits.call, now_ns), TokenBucket(limits.reset, now_ns),
               TokenBucket(limits.ping, now_ns), TokenBucket(limits.settings, now_ns),
               TokenBucket(limits.other, now_ns)},
      left_(kPrefaceBytes) {}

bool FrameMeter::TooMuch(CutReason reason, std::string what) {
  cut_reason_ = reason;
  excess_ = std::move(what);
  return false;
}

bool FrameMeter::Receive(std::span<const std::byte> bytes, uint64_t now_ns) {
  while (!bytes.empty()) {
    if (left_ > 0) {
      const auto payload = bytes.first(std::min<uint64_t>(left_, bytes.size()));
      if (!TakePayload(payload)) return false;
      left_ -= payload.size();
      bytes = bytes.subspan(payload.size());
      if (left_ == 0 && !EndFrame(now_ns)) return false;
      continue;
    }
    const size_t taken = std::min(header_.size() - header_size_, bytes.size());
    std::memcpy(header_.data() + header_size_, bytes.data(), taken);
    header_size_ += taken;
    bytes = bytes.subspan(taken);
    if (header_size_ < header_.size()) continue;
    header_size_ = 0;
    if (!BeginFrame(now_ns)) return false;
    if (left_ == 0 && !EndFrame(now_ns)) return false;
  }
  return true;
}

bool FrameMeter::BeginFrame(uint64_t now_ns) {
  length_ = left_ = BigEndian(header_.data(), 3);
  type_ = std::to_integer<uint8_t>(header_[3]);
  flags_ = std::to_integer<uint8_t>(header_[4]);
  stream_ = BigEndian(header_.data() + 5, 4) & 0x7fffffff;
  padding_ = 0;
  padding_is_next_ = type_ == kData && (flags_ & kPadded) != 0;
  if (type_ == kSettings && (flags_ & kAck) != 0) settings_acknowledged_ = true;
  if (type_ == kHeaders || type_ == kContinuation) {
    header_bytes_ += left_;
    if (header_bytes_ > limits_.max_header_bytes) {
      return TooMuch(CutReason::kHeaderBytes, absl::StrCat("headers of a call: more than ",
                                                           limits_.max_header_bytes, " bytes"));
    }
    if ((flags_ & kEndHeaders) != 0) header_bytes_ = 0;
  }
  if (type_ == kHeaders && !settings_acknowledged_ &&
      ++calls_before_settings_ > limits_.max_calls_before_settings) {
    return TooMuch(CutReason::kCalls,
                   absl::StrCat("calls before the server's SETTINGS are acknowledged: more than ",
                                limits_.max_calls_before_settings));
  }
  if (type_ == kData && left_ > 0) {
    free_pings_ = std::min(free_pings_ + 1, kMostFreePings);
    return true;
  }
  if (type_ == kPing && free_pings_ > 0) {
    --free_pings_;
    return true;
  }
  return CountFrame(KindOf(type_), now_ns);
}

bool FrameMeter::CountFrame(FrameKind kind, uint64_t now_ns) {
  const auto reason = static_cast<CutReason>(kind);
  if (!buckets_[static_cast<size_t>(kind)].Take(1, now_ns)) {
    const Rate rates[] = {limits_.call, limits_.reset, limits_.ping, limits_.settings,
                          limits_.other};
    const Rate& rate = rates[static_cast<size_t>(kind)];
    return TooMuch(reason, absl::StrCat(NameOf(kind), ": more than ", rate.burst, " at once or ",
                                        rate.per_second, " a second"));
  }
  if (peer_ == nullptr || peer_->Take(kind, now_ns)) return true;
  return TooMuch(reason, absl::StrCat(NameOf(kind), " of all its connections: too many"));
}

bool FrameMeter::TakePayload(std::span<const std::byte> bytes) {
  if (type_ != kData) return true;
  uint64_t left = left_;
  if (padding_is_next_) {
    padding_ = std::to_integer<uint64_t>(bytes[0]);
    padding_is_next_ = false;
    bytes = bytes.subspan(1);
    --left;
  }
  // Of what is left, the padding comes last.
  const uint64_t data = left - std::min(left, padding_);
  return TakeData(bytes.first(std::min<uint64_t>(data, bytes.size())));
}

bool FrameMeter::TakeData(std::span<const std::byte> bytes) {
  if (bytes.empty()) return true;
  Messages& call = calls_[stream_];
  while (!bytes.empty()) {
    if (call.prefix_size < call.prefix.size()) {
      const size_t taken = std::min(call.prefix.size() - call.prefix_size, bytes.size());
      std::memcpy(call.prefix.data() + call.prefix_size, bytes.data(), taken);
      call.prefix_size += taken;
      bytes = bytes.subspan(taken);
      if (call.prefix_size == call.prefix.size()) call.left = BigEndian(&call.prefix[1], 4);
    } else {
      const size_t taken = std::min<uint64_t>(call.left, bytes.size());
      call.left -= taken;
      call.unfinished += taken;
      unfinished_bytes_ += taken;
      bytes = bytes.subspan(taken);
    }
    if (call.prefix_size == call.prefix.size() && call.left == 0) {
      unfinished_bytes_ -= call.unfinished;
      call = {};
    }
  }
  if (call.prefix_size == 0) calls_.erase(stream_);
  if (unfinished_bytes_ <= limits_.max_unfinished_bytes) return true;
  return TooMuch(CutReason::kUnfinishedBytes,
                 absl::StrCat("messages that have not come whole: more than ",
                              limits_.max_unfinished_bytes, " bytes"));
}

bool FrameMeter::EndPiece(uint64_t now_ns) {
  const auto found = calls_.find(stream_);
  if (found == calls_.end()) return true;
  found->second.unfinished += kPieceBytes;
  unfinished_bytes_ += kPieceBytes;
  return length_ >= kSmallPieceBytes || CountFrame(FrameKind::kOther, now_ns);
}

bool FrameMeter::EndFrame(uint64_t now_ns) {
  if (type_ == kData && length_ > 0 && !EndPiece(now_ns)) return false;
  const bool ends_call =
      type_ == kRstStream || ((type_ == kData || type_ == kHeaders) && (flags_ & kEndStream) != 0);
  if (ends_call) ForgetCall(stream_);
  return true;
}

void FrameMeter::ForgetCall(uint32_t stream) {
  const auto found = calls_.find(stream);
  if (found == calls_.end()) return;
  unfinished_bytes_ -= found->second.unfinished;
  calls_.erase(found);
}

}  // namespace reprise::service
