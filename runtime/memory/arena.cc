// SPDX-License-Identifier: Apache-2.0
// Layout and backing of workspace; see arena.h.
#include "runtime/memory/arena.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/status_macros.h"

namespace reprise::runtime {

size_t ArenaLayout::AddBytes(size_t count, size_t element_bytes, std::string_view name) {
  if (!status_.ok()) return 0;
  size_t bytes = 0;
  size_t padded = 0;
  size_t end = 0;
  if (__builtin_mul_overflow(count, element_bytes, &bytes) ||
      __builtin_add_overflow(bytes, kArenaAlignment - 1, &padded) ||
      __builtin_add_overflow(end_, padded / kArenaAlignment * kArenaAlignment, &end)) {
    status_ = absl::ResourceExhaustedError(
        absl::StrCat("workspace region '", absl::string_view(name.data(), name.size()),
                     "': ", count, " elements of ", element_bytes, " bytes after ", end_,
                     " bytes; more than can be addressed"));
    return 0;
  }
  regions_.push_back(
      {.name = std::string(name), .offset = end_, .bytes = bytes, .reserved_bytes = end - end_});
  return std::exchange(end_, end);
}

std::string ArenaLayout::ToString() const {
  std::string text;
  for (const ArenaRegion& region : regions_) {
    absl::StrAppendFormat(&text, "%14d %14d  %s\n", region.offset, region.bytes, region.name);
  }
  absl::StrAppendFormat(&text, "%14s %14d  total\n", "", end_);
  return text;
}

absl::StatusOr<Arena> Arena::Create(Device& device, const ArenaLayout& layout) {
  REPRISE_RETURN_IF_ERROR(layout.status());
  REPRISE_ASSIGN_OR_RETURN(DeviceBuffer buffer, DeviceBuffer::Create(device, layout.bytes()));
  return Arena(std::move(buffer));
}

}  // namespace reprise::runtime
