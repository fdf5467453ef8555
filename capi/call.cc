// SPDX-License-Identifier: Apache-2.0
#include "capi/call.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"

namespace reprise::capi {
namespace {

absl::string_view Abseil(std::string_view s) { return {s.data(), s.size()}; }

bool IsContinuationByte(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

// More than any version will have; what is larger was not initialised.
constexpr size_t kMaxStructBytes = 4096;

// The whole text, or as many whole characters of it as leave room for three dots.
void CopyMessage(absl::string_view text, reprise_error* error) {
  constexpr size_t kRoom = sizeof(error->message) - 1;
  constexpr absl::string_view kDots = "...";
  size_t length = text.size();
  if (length > kRoom) {
    length = kRoom - kDots.size();
    while (length > 0 && IsContinuationByte(text[length])) --length;
  }
  std::copy_n(text.data(), length, error->message);  // no bytes may be at NULL
  if (length < text.size()) {
    std::copy_n(kDots.data(), kDots.size(), error->message + length);
    length += kDots.size();
  }
  error->message[length] = '\0';
}

}  // namespace

reprise_code Report(const absl::Status& status, reprise_error* error) {
  const auto code = static_cast<reprise_code>(status.code());
  if (error != nullptr) {
    error->code = code;
    CopyMessage(status.message(), error);
  }
  return code;
}

absl::Status FromCaller(reprise_code code, const reprise_error& error, std::string_view doing) {
  if (code == REPRISE_OK) return absl::OkStatus();
  const bool known = code > REPRISE_OK && code <= REPRISE_UNAUTHENTICATED;
  const auto* end = std::find(error.message, error.message + sizeof(error.message), '\0');
  std::string message(error.message, end);
  if (message.empty()) message = absl::StrCat(Abseil(doing), " returned ", code);
  return absl::Status(known ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kUnknown,
                      message);
}

absl::Status CheckNotNull(std::string_view name, const void* pointer) {
  if (pointer != nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(Abseil(name), ": got NULL"));
}

absl::Status CheckArray(std::string_view name, const void* array, size_t count) {
  if (array != nullptr || count == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(Abseil(name), ": got NULL for ", count, " elements"));
}

absl::StatusOr<bool> ReadSwitch(std::string_view name, uint64_t value) {
  if (value <= 1) return value == 1;
  return absl::InvalidArgumentError(absl::StrCat(Abseil(name), " is ", value, "; allowed: 0, 1"));
}

absl::Status NotSuchAHandle(std::string_view name) {
  return absl::InvalidArgumentError(
      absl::StrCat(Abseil(name), ": got a handle of another kind, or one that was destroyed"));
}

absl::Status CheckStructSize(std::string_view name, size_t bytes, size_t first_bytes) {
  if (bytes >= first_bytes && bytes <= kMaxStructBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(Abseil(name), ": struct_size is ", bytes,
                                                 "; allowed: sizeof the struct, ", first_bytes,
                                                 " to ", kMaxStructBytes));
}

absl::Status CheckUnknownFields(std::string_view name, const void* given, size_t bytes,
                                size_t known) {
  const auto* begin = static_cast<const unsigned char*>(given);
  if (bytes <= known || std::all_of(begin + known, begin + bytes, [](int c) { return c == 0; }))
    return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(Abseil(name), ": struct_size is ", bytes, ", and beyond the ", known,
                   " bytes that reprise " REPRISE_VERSION
                   " knows something is set; allowed: zeros, or a newer library"));
}

}  // namespace reprise::capi

const char* reprise_version(void) { return REPRISE_VERSION; }

const char* reprise_code_name(reprise_code code) {
  static constexpr const char* kNames[] = {"OK",
                                           "CANCELLED",
                                           "UNKNOWN",
                                           "INVALID_ARGUMENT",
                                           "DEADLINE_EXCEEDED",
                                           "NOT_FOUND",
                                           "ALREADY_EXISTS",
                                           "PERMISSION_DENIED",
                                           "RESOURCE_EXHAUSTED",
                                           "FAILED_PRECONDITION",
                                           "ABORTED",
                                           "OUT_OF_RANGE",
                                           "UNIMPLEMENTED",
                                           "INTERNAL",
                                           "UNAVAILABLE",
                                           "DATA_LOSS",
                                           "UNAUTHENTICATED"};
  return code >= REPRISE_OK && code <= REPRISE_UNAUTHENTICATED ? kNames[code] : "UNKNOWN";
}
