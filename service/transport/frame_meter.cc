// SPDX-License-Identifier: Apache-2.0
#include "service/transport/frame_meter.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace reprise::service {
namespace {

// RFC 9113: the connection preface of section 3.4, the frame header of 4.1, the types of 6.
constexpr uint64_t kPrefaceBytes = 24;
constexpr uint8_t kData = 0;
constexpr uint8_t kHeaders = 1;
constexpr uint8_t kRstStream = 3;
constexpr uint8_t kSettings = 4;
constexpr uint8_t kPing = 6;

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

}  // namespace

FrameMeter::FrameMeter(const FrameRates& rates, uint64_t now_ns)
    : rates_(rates),
      // In the order of FrameKind.
      buckets_{TokenBucket(rates.call, now_ns), TokenBucket(rates.reset, now_ns),
               TokenBucket(rates.ping, now_ns), TokenBucket(rates.settings, now_ns),
               TokenBucket(rates.other, now_ns)},
      skip_(kPrefaceBytes) {}

bool FrameMeter::Receive(std::span<const std::byte> bytes, uint64_t now_ns) {
  while (!bytes.empty()) {
    if (skip_ > 0) {
      const size_t skipped = std::min<uint64_t>(skip_, bytes.size());
      skip_ -= skipped;
      bytes = bytes.subspan(skipped);
      continue;
    }
    const size_t taken = std::min(header_.size() - header_size_, bytes.size());
    std::memcpy(header_.data() + header_size_, bytes.data(), taken);
    header_size_ += taken;
    bytes = bytes.subspan(taken);
    if (header_size_ == header_.size() && !CountFrame(now_ns)) return false;
  }
  return true;
}

bool FrameMeter::CountFrame(uint64_t now_ns) {
  const auto byte = [this](size_t i) { return std::to_integer<uint32_t>(header_[i]); };
  skip_ = byte(0) << 16 | byte(1) << 8 | byte(2);
  header_size_ = 0;
  const auto type = static_cast<uint8_t>(byte(3));
  if (type == kData && skip_ > 0) return true;
  const FrameKind kind = KindOf(type);
  if (buckets_[static_cast<size_t>(kind)].Take(1, now_ns)) return true;
  excess_ = kind;
  return false;
}

std::string FrameMeter::Excess() const {
  const auto text = [](const char* frames, const Rate& rate) {
    return absl::StrCat(frames, ": more than ", rate.burst, " at once or ", rate.per_second,
                        " a second");
  };
  switch (excess_) {
    case FrameKind::kCall:
      return text("HEADERS frames", rates_.call);
    case FrameKind::kReset:
      return text("RST_STREAM frames", rates_.reset);
    case FrameKind::kPing:
      return text("PING frames", rates_.ping);
    case FrameKind::kSettings:
      return text("SETTINGS frames", rates_.settings);
    case FrameKind::kOther:
      break;
  }
  return text("frames without a message", rates_.other);
}

}  // namespace reprise::service
