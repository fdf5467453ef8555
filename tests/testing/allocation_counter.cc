// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/allocation_counter.h"

#include <malloc.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace reprise::testing {
namespace {

thread_local uint64_t num_allocations = 0;
std::atomic<uint64_t> num_allocations_of_all = 0;
std::atomic<uint64_t> num_held_bytes = 0;
std::atomic<size_t> too_large = ~size_t{0};
thread_local bool exempt = false;

void* Counted(size_t bytes, size_t alignment) {
  ++num_allocations;
  num_allocations_of_all.fetch_add(1, std::memory_order_relaxed);
  void* data = nullptr;
  if (!exempt && bytes >= too_large.load(std::memory_order_relaxed)) return nullptr;
  const size_t at_least_one = bytes == 0 ? 1 : bytes;
  if (alignment <= alignof(std::max_align_t)) {
    data = std::malloc(at_least_one);
  } else if (posix_memalign(&data, alignment, at_least_one) != 0) {
    data = nullptr;
  }
  if (data != nullptr)
    num_held_bytes.fetch_add(malloc_usable_size(data), std::memory_order_relaxed);
  return data;
}

void Release(void* data) {
  if (data == nullptr) return;
  num_held_bytes.fetch_sub(malloc_usable_size(data), std::memory_order_relaxed);
  std::free(data);
}

void* CountedOrThrow(size_t bytes, size_t alignment) {
  void* data = Counted(bytes, alignment);
  if (data == nullptr) throw std::bad_alloc();
  return data;
}

}  // namespace

uint64_t NumAllocationsOfThisThread() { return num_allocations; }
uint64_t NumAllocations() { return num_allocations_of_all.load(std::memory_order_relaxed); }
uint64_t NumHeldBytes() { return num_held_bytes.load(std::memory_order_relaxed); }

LargeAllocationsFail::LargeAllocationsFail(size_t bytes) {
  exempt = true;
  too_large = bytes;
}
LargeAllocationsFail::~LargeAllocationsFail() {
  too_large = ~size_t{0};
  exempt = false;
}

}  // namespace reprise::testing

using reprise::testing::Counted;
using reprise::testing::CountedOrThrow;
using reprise::testing::Release;

constexpr size_t kDefault = alignof(std::max_align_t);

void* operator new(size_t bytes) { return CountedOrThrow(bytes, kDefault); }
void* operator new[](size_t bytes) { return CountedOrThrow(bytes, kDefault); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  return CountedOrThrow(bytes, static_cast<size_t>(alignment));
}
void* operator new[](size_t bytes, std::align_val_t alignment) {
  return CountedOrThrow(bytes, static_cast<size_t>(alignment));
}
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return Counted(bytes, kDefault);
}
void* operator new[](size_t bytes, const std::nothrow_t&) noexcept {
  return Counted(bytes, kDefault);
}
void operator delete(void* data) noexcept { Release(data); }
void operator delete[](void* data) noexcept { Release(data); }
void operator delete(void* data, size_t) noexcept { Release(data); }
void operator delete[](void* data, size_t) noexcept { Release(data); }
void operator delete(void* data, std::align_val_t) noexcept { Release(data); }
void operator delete[](void* data, std::align_val_t) noexcept { Release(data); }
void operator delete(void* data, size_t, std::align_val_t) noexcept { Release(data); }
void operator delete[](void* data, size_t, std::align_val_t) noexcept { Release(data); }
void operator delete(void* data, const std::nothrow_t&) noexcept { Release(data); }
void operator delete[](void* data, const std::nothrow_t&) noexcept { Release(data); }
