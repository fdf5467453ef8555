// SPDX-License-Identifier: Apache-2.0
// Amounts of memory in messages: exact, and in a unit that a person can compare.
#ifndef REPRISE_RUNTIME_BYTE_COUNT_H_
#define REPRISE_RUNTIME_BYTE_COUNT_H_

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace reprise::runtime {

// "4096 bytes", "6291456 bytes (6.00 MiB)", "4294967296 bytes (4.00 GiB)".
inline std::string ByteCount(uint64_t bytes) {
  constexpr uint64_t kMiB = uint64_t{1} << 20;
  constexpr uint64_t kGiB = uint64_t{1} << 30;
  const std::string exact = absl::StrCat(bytes, " bytes");
  if (bytes < kMiB) return exact;
  const bool large = bytes >= kGiB;
  return absl::StrFormat("%s (%.2f %s)", exact,
                         static_cast<double>(bytes) / static_cast<double>(large ? kGiB : kMiB),
                         large ? "GiB" : "MiB");
}

}  // namespace reprise::runtime

#endif  // REPRISE_RUNTIME_BYTE_COUNT_H_
