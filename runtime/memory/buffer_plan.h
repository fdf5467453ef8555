// SPDX-License-Identifier: Apache-2.0
// BufferPlan: device buffers that are declared once, each by its owner, and come into being
// together. An owner names the pointer that it will use; when all have declared theirs, the bytes
// are known exactly, one allocation holds them, and every pointer is set.
//
//   BufferPlan plan;
//   plan.Add(&counters_, num_counters, "linear.counters");
//   plan.ShareElements(&qkv_, tokens * qkv_size, dtype, "attention.qkv");  // of all layers in turn
//   REPRISE_ASSIGN_OR_RETURN(arena_, plan.Allocate(device));
//
// Threads: external ordering.
#ifndef REPRISE_RUNTIME_MEMORY_BUFFER_PLAN_H_
#define REPRISE_RUNTIME_MEMORY_BUFFER_PLAN_H_

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/device.h"
#include "runtime/dtype.h"
#include "runtime/memory/arena.h"

namespace reprise::runtime {

class BufferPlan {
 public:
  // A buffer of `count` elements; none: the pointer stays null. `*pointer` is null until Allocate,
  // and must still be there then.
  template <typename T>
  void Add(T** pointer, size_t count, std::string_view name) {
    AddBuffer(count, sizeof(T), name, false,
              [pointer](void* at) { *pointer = static_cast<T*>(at); });
    *pointer = nullptr;
  }
  void AddElements(void** pointer, size_t count, DType dtype, std::string_view name) {
    AddBuffer(count, SizeOf(dtype), name, false, [pointer](void* at) { *pointer = at; });
    *pointer = nullptr;
  }
  // The same for users that take turns: all buffers of one name are one, as large as the largest of
  // them.
  template <typename T>
  void Share(T** pointer, size_t count, std::string_view name) {
    AddBuffer(count, sizeof(T), name, true,
              [pointer](void* at) { *pointer = static_cast<T*>(at); });
    *pointer = nullptr;
  }
  void ShareElements(void** pointer, size_t count, DType dtype, std::string_view name) {
    AddBuffer(count, SizeOf(dtype), name, true, [pointer](void* at) { *pointer = at; });
    *pointer = nullptr;
  }

  struct Region {
    std::string_view name;
    size_t bytes = 0;
  };
  // One per buffer, in the order in which the names came. Valid until the next declaration.
  std::vector<Region> regions() const;
  // What Allocate will take, exactly. Errors: ResourceExhausted beyond the address space.
  absl::StatusOr<size_t> bytes() const;
  // One allocation for all buffers; every pointer is set to its own, kArenaAlignment-aligned, in
  // the order in which the names came. Errors: as bytes(), and the device's.
  absl::StatusOr<Arena> Allocate(Device& device) const;

 private:
  struct Buffer {
    std::string name;
    size_t element_bytes = 0;
    size_t count = 0;  // of the largest user
    bool shared = false;
    std::vector<std::function<void(void*)>> users = {};
  };

  void AddBuffer(size_t count, size_t element_bytes, std::string_view name, bool shared,
                 std::function<void(void*)> user);

  std::vector<Buffer> buffers_;
};

}  // namespace reprise::runtime

#endif  // REPRISE_RUNTIME_MEMORY_BUFFER_PLAN_H_
