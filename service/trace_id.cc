// SPDX-License-Identifier: Apache-2.0
#include "service/trace_id.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace reprise::service {
namespace {

// Of a traceparent: version, trace-id, parent-id and flags.
constexpr size_t kVersionEnd = 2;
constexpr size_t kTraceEnd = kVersionEnd + 1 + 2 * TraceId::kBytes;
constexpr size_t kParentEnd = kTraceEnd + 1 + 16;
constexpr size_t kFlagsEnd = kParentEnd + 1 + 2;

int DigitOf(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

bool IsHex(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return DigitOf(c) >= 0; });
}

bool IsZero(std::string_view digits) { return digits.find_first_not_of('0') == digits.npos; }

bool IsTraceparent(std::string_view header) {
  if (header.size() < kFlagsEnd) return false;
  for (const size_t dash : {kVersionEnd, kTraceEnd, kParentEnd}) {
    if (header[dash] != '-') return false;
  }
  const std::string_view version = header.substr(0, kVersionEnd);
  const std::string_view trace = header.substr(kVersionEnd + 1, 2 * TraceId::kBytes);
  const std::string_view parent = header.substr(kTraceEnd + 1, 16);
  const std::string_view flags = header.substr(kParentEnd + 1, 2);
  if (!IsHex(version) || !IsHex(trace) || !IsHex(parent) || !IsHex(flags)) return false;
  if (version == "ff" || IsZero(trace) || IsZero(parent)) return false;
  // Later versions may go on behind another dash.
  return header.size() == kFlagsEnd || (version != "00" && header[kFlagsEnd] == '-');
}

}  // namespace

TraceId TraceId::FromTraceparent(std::string_view header) {
  TraceId id;
  if (!IsTraceparent(header)) return id;
  for (size_t i = 0; i < kBytes; ++i) {
    const char* digits = &header[kVersionEnd + 1 + 2 * i];
    id.bytes_[i] = static_cast<char>(DigitOf(digits[0]) << 4 | DigitOf(digits[1]));
  }
  id.set_ = true;
  return id;
}

TraceId TraceId::FromBytes(std::string_view bytes) {
  TraceId id;
  if (bytes.size() != kBytes) return id;
  std::copy(bytes.begin(), bytes.end(), id.bytes_.begin());
  id.set_ = true;
  return id;
}

std::string TraceId::Hex() const {
  return absl::BytesToHexString({bytes().data(), bytes().size()});
}

absl::Status CheckTraceId(std::string_view bytes) {
  if (bytes.empty() || bytes.size() == TraceId::kBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("trace_id: got ", bytes.size(), " bytes, allowed ",
                                                 TraceId::kBytes, " or none"));
}

}  // namespace reprise::service
