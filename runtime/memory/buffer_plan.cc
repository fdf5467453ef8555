// SPDX-License-Identifier: Apache-2.0
#include "runtime/memory/buffer_plan.h"

#include <algorithm>
#include <utility>

#include "runtime/check.h"
#include "runtime/status_macros.h"

namespace reprise::runtime {
namespace {

// A region of raw bytes; a count that overflows ends in the layout's status.
ArenaHandle<std::byte> AddRegion(ArenaLayout& layout, const std::string& name, size_t count,
                                 size_t element_bytes) {
  const size_t limit = static_cast<size_t>(-1) / element_bytes;
  return layout.Add<std::byte>(count > limit ? static_cast<size_t>(-1) : count * element_bytes,
                               name);
}

}  // namespace

void BufferPlan::AddBuffer(size_t count, size_t element_bytes, std::string_view name, bool shared,
                           std::function<void(void*)> user) {
  const auto known = std::find_if(buffers_.begin(), buffers_.end(),
                                  [name](const Buffer& b) { return b.name == name; });
  if (known == buffers_.end()) {
    buffers_.push_back({.name = std::string(name),
                        .element_bytes = element_bytes,
                        .count = count,
                        .shared = shared});
    buffers_.back().users.push_back(std::move(user));
    return;
  }
  // One name is one buffer, of one kind of elements.
  REPRISE_CHECK(shared && known->shared && known->element_bytes == element_bytes);
  known->count = std::max(known->count, count);
  known->users.push_back(std::move(user));
}

std::vector<BufferPlan::Region> BufferPlan::regions() const {
  std::vector<Region> regions;
  for (const Buffer& b : buffers_)
    regions.push_back({.name = b.name, .bytes = b.count * b.element_bytes});
  return regions;
}

absl::StatusOr<size_t> BufferPlan::bytes() const {
  ArenaLayout layout;
  for (const Buffer& b : buffers_) AddRegion(layout, b.name, b.count, b.element_bytes);
  REPRISE_RETURN_IF_ERROR(layout.status());
  return layout.bytes();
}

absl::StatusOr<Arena> BufferPlan::Allocate(Device& device) const {
  ArenaLayout layout;
  std::vector<ArenaHandle<std::byte>> regions;
  for (const Buffer& b : buffers_)
    regions.push_back(AddRegion(layout, b.name, b.count, b.element_bytes));
  REPRISE_ASSIGN_OR_RETURN(Arena arena, Arena::Create(device, layout));
  for (size_t i = 0; i < buffers_.size(); ++i)
    for (const auto& user : buffers_[i].users) user(arena.Get(regions[i]));
  return arena;
}

}  // namespace reprise::runtime
