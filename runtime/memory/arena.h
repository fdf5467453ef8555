// SPDX-License-Identifier: Apache-2.0
// Workspace in two phases: first everything is laid out and its bytes are known exactly, then one
// device buffer of just that size backs it. Step workspace is made this way before capture, so that
// the addresses inside captured graphs never move.
//
//   ArenaLayout layout;
//   auto q = layout.Add<uint16_t>(tokens * q_size, "q");
//   {
//     ArenaAlternatives alternatives(layout);  // never live at the same time: they share bytes
//     alternatives.Next();
//     gate = layout.Add<uint16_t>(tokens * mlp_size, "gate");
//     alternatives.Next();
//     logits = layout.Add<float>(rows * vocab, "logits");
//   }
//   std::puts(layout.ToString().c_str());
//   REPRISE_ASSIGN_OR_RETURN(Arena arena, Arena::Create(device, layout));
//   args.q = arena.Get(q);
//
// Threads: a layout belongs to one thread; Arena::Get may be called from any.
#ifndef REPRISE_RUNTIME_MEMORY_ARENA_H_
#define REPRISE_RUNTIME_MEMORY_ARENA_H_

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/check.h"
#include "runtime/device.h"
#include "runtime/memory/buffer.h"

namespace reprise::runtime {

inline constexpr size_t kArenaAlignment = 256;  // bytes, of every region; that of Device::Allocate

// Where a region of `count` elements will lie. A default handle belongs to no layout and must not
// be resolved.
template <typename T>
struct ArenaHandle {
  size_t offset = static_cast<size_t>(-1);
  size_t count = 0;
};

// One region as laid out. It occupies `reserved_bytes`, a multiple of kArenaAlignment, from
// `offset` on.
struct ArenaRegion {
  std::string name;
  size_t offset = 0;
  size_t bytes = 0;
  size_t reserved_bytes = 0;
};

class ArenaLayout {
 public:
  // Appends `count` elements of T, which may be zero. On overflow of size_t the layout remembers
  // the error and the handle is a default one; status() and Arena::Create report it.
  template <typename T>
  ArenaHandle<T> Add(size_t count, std::string_view name) {
    static_assert(alignof(T) <= kArenaAlignment);
    const size_t offset = AddBytes(count, sizeof(T), name);
    return status_.ok() ? ArenaHandle<T>{.offset = offset, .count = count} : ArenaHandle<T>{};
  }

  // OK, or ResourceExhausted naming the first region that did not fit the address space.
  const absl::Status& status() const { return status_; }
  // Exactly what the arena will allocate: the sum of `reserved_bytes`, where alternatives count
  // once, with the largest of them.
  size_t bytes() const { return end_; }
  // In the order of Add.
  std::span<const ArenaRegion> regions() const { return regions_; }
  // A line per region (offset, bytes, name) and one with the total.
  std::string ToString() const;

 private:
  friend class ArenaAlternatives;
  size_t AddBytes(size_t count, size_t element_bytes, std::string_view name);

  absl::Status status_;
  std::vector<ArenaRegion> regions_;
  size_t end_ = 0;
};

// While it lives, regions are laid out in alternatives that all start at the same offset. Nests.
class ArenaAlternatives {
 public:
  // `layout` must outlive this object.
  explicit ArenaAlternatives(ArenaLayout& layout)
      : layout_(layout), begin_(layout.end_), end_(layout.end_) {}
  ~ArenaAlternatives() { layout_.end_ = std::max(end_, layout_.end_); }
  ArenaAlternatives(const ArenaAlternatives&) = delete;
  ArenaAlternatives& operator=(const ArenaAlternatives&) = delete;

  // What is added from here on shares bytes with what was added before, since construction.
  void Next() {
    end_ = std::max(end_, layout_.end_);
    layout_.end_ = begin_;
  }

 private:
  ArenaLayout& layout_;
  const size_t begin_;
  size_t end_;
};

// One device buffer of layout.bytes(). Move-only; pointers stay valid across moves. Must not
// outlive its Device.
class Arena {
 public:
  Arena() = default;
  // Errors: the layout's status; those of Device::Allocate (InvalidArgument on a layout of zero
  // bytes, ResourceExhausted).
  static absl::StatusOr<Arena> Create(Device& device, const ArenaLayout& layout);

  // The region's first element; nullptr for a region of none. REQUIRES: a handle of this arena's
  // layout.
  template <typename T>
  T* Get(const ArenaHandle<T>& handle) const {
    if (handle.count == 0) return nullptr;
    REPRISE_CHECK(handle.offset < buffer_.bytes() &&
                  handle.count <= (buffer_.bytes() - handle.offset) / sizeof(T));
    return reinterpret_cast<T*>(buffer_.as<std::byte>() + handle.offset);
  }
  size_t bytes() const { return buffer_.bytes(); }
  // Of all bytes(), for filling them at once.
  void* data() const { return buffer_.data(); }

 private:
  explicit Arena(DeviceBuffer buffer) : buffer_(std::move(buffer)) {}
  DeviceBuffer buffer_;
};

}  // namespace reprise::runtime

#endif  // REPRISE_RUNTIME_MEMORY_ARENA_H_
