// SPDX-License-Identifier: Apache-2.0
#include "graphs/memory_snapshot.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/status_macros.h"

namespace reprise::graphs {

absl::StatusOr<MemorySnapshot> MemorySnapshot::Take(runtime::Stream& stream,
                                                    std::span<const MemoryRange> memory) {
  MemorySnapshot snapshot;
  snapshot.memory_ = memory;
  absl::Status copied;
  for (const MemoryRange& range : memory) {
    std::vector<std::byte>& content = snapshot.contents_.emplace_back(range.bytes);
    if (copied.ok()) copied = stream.CopyToHost(content.data(), range.data, range.bytes);
  }
  // Also after an error: what was enqueued before it writes into the contents.
  const absl::Status ran = stream.Synchronize();
  REPRISE_RETURN_IF_ERROR(copied);
  REPRISE_RETURN_IF_ERROR(ran);
  return snapshot;
}

absl::Status MemorySnapshot::PutBack(runtime::Stream& stream) const {
  absl::Status copied;
  for (size_t i = 0; i < memory_.size() && copied.ok(); ++i) {
    copied = stream.CopyToDevice(memory_[i].data, contents_[i].data(), memory_[i].bytes);
  }
  const absl::Status ran = stream.Synchronize();
  return copied.ok() ? ran : copied;
}

std::string MemorySnapshot::FirstDifference(const MemorySnapshot& a, std::string_view name_a,
                                            const MemorySnapshot& b, std::string_view name_b) {
  for (size_t i = 0; i < a.memory_.size(); ++i) {
    const auto& left = a.contents_[i];
    const auto [x, y] = std::mismatch(left.begin(), left.end(), b.contents_[i].begin());
    if (x == left.end()) continue;
    return absl::StrFormat(
        "'%s' differs at byte %d of %d: %s 0x%02x, %s 0x%02x", a.memory_[i].name, x - left.begin(),
        left.size(), absl::string_view(name_a.data(), name_a.size()), std::to_integer<unsigned>(*x),
        absl::string_view(name_b.data(), name_b.size()), std::to_integer<unsigned>(*y));
  }
  return "";
}

size_t MemorySnapshot::bytes() const {
  size_t bytes = 0;
  for (const MemoryRange& range : memory_) bytes += range.bytes;
  return bytes;
}

}  // namespace reprise::graphs
