// SPDX-License-Identifier: Apache-2.0
// What instrumented kernels call before every access to memory. Kernels are compiled with
// -fsanitize=thread, which makes g++ emit these calls, and the program is not linked with that
// sanitizer's runtime: these definitions take its place. An access to a fiber's own stack, which is
// nearly every one, costs a load and a comparison.
//
// Names and signatures: the calls that g++ 12 emits (gcc/sanitizer.def), which libtsan declares in
// tsan_interface.h and tsan_interface_atomic.h.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tests/emulator/block_runner.h"

namespace reprise::emulator {
namespace {

// Not inlined, so that what stands before it saves no registers.
template <AccessKind kKind>
[[gnu::noinline]] void CheckOfBlock(uintptr_t at, size_t bytes, const void* caller) {
  BlockRunner* const runner = running_block.runner;
  if (runner == nullptr || bytes == 0) return;
  const uintptr_t offset = at - running_block.shared_begin;
  if (offset < Arena::kAllBytes) return runner->Access<kKind>(offset, bytes, PlaceOf(caller));
  runner->AccessGlobal<kKind>(reinterpret_cast<const void*>(at), bytes, PlaceOf(caller));
}

template <AccessKind kKind>
inline void Check(const volatile void* address, size_t bytes, const void* caller) {
  const auto at = reinterpret_cast<uintptr_t>(address);
  if (at - running_block.private_begin < PrivateMemory::kBytes) [[likely]]
    return;
  CheckOfBlock<kKind>(at, bytes, caller);
}

}  // namespace
}  // namespace reprise::emulator

#define REPRISE_CHECK_ACCESS(kind, address, bytes)                                  \
  ::reprise::emulator::Check<::reprise::emulator::AccessKind::kind>(address, bytes, \
                                                                    __builtin_return_address(0))

extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_read(void** p) { REPRISE_CHECK_ACCESS(kRead, p, sizeof(*p)); }
void __tsan_vptr_update(void** p, void*) { REPRISE_CHECK_ACCESS(kWrite, p, sizeof(*p)); }
void __tsan_read_range(void* p, size_t bytes) { REPRISE_CHECK_ACCESS(kRead, p, bytes); }
void __tsan_write_range(void* p, size_t bytes) { REPRISE_CHECK_ACCESS(kWrite, p, bytes); }

#define REPRISE_ACCESS(bytes)                                                            \
  void __tsan_read##bytes(void* p) { REPRISE_CHECK_ACCESS(kRead, p, bytes); }            \
  void __tsan_write##bytes(void* p) { REPRISE_CHECK_ACCESS(kWrite, p, bytes); }          \
  void __tsan_volatile_read##bytes(void* p) { REPRISE_CHECK_ACCESS(kRead, p, bytes); }   \
  void __tsan_volatile_write##bytes(void* p) { REPRISE_CHECK_ACCESS(kWrite, p, bytes); } \
  void __tsan_unaligned_read##bytes(void* p) { REPRISE_CHECK_ACCESS(kRead, p, bytes); }  \
  void __tsan_unaligned_write##bytes(void* p) { REPRISE_CHECK_ACCESS(kWrite, p, bytes); }
REPRISE_ACCESS(1)
REPRISE_ACCESS(2)
REPRISE_ACCESS(4)
REPRISE_ACCESS(8)
REPRISE_ACCESS(16)
#undef REPRISE_ACCESS

// The order asked for is ignored: the strongest is never wrong.
#define REPRISE_ATOMIC_UPDATE(bits, type, name)                          \
  type __tsan_atomic##bits##_##name(volatile type* p, type value, int) { \
    REPRISE_CHECK_ACCESS(kAtomicUpdate, p, sizeof(type));                \
    return __atomic_##name(p, value, __ATOMIC_SEQ_CST);                  \
  }
#define REPRISE_ATOMIC_COMPARE(bits, type, strength, is_weak)                             \
  int __tsan_atomic##bits##_compare_exchange_##strength(volatile type* p, type* expected, \
                                                        type value, int, int) {           \
    REPRISE_CHECK_ACCESS(kAtomicUpdate, p, sizeof(type));                                 \
    return __atomic_compare_exchange_n(p, expected, value, is_weak, __ATOMIC_SEQ_CST,     \
                                       __ATOMIC_SEQ_CST);                                 \
  }
#define REPRISE_ATOMIC(bits, type)                                         \
  type __tsan_atomic##bits##_load(const volatile type* p, int) {           \
    REPRISE_CHECK_ACCESS(kAtomicRead, p, sizeof(type));                    \
    return __atomic_load_n(p, __ATOMIC_SEQ_CST);                           \
  }                                                                        \
  void __tsan_atomic##bits##_store(volatile type* p, type value, int) {    \
    REPRISE_CHECK_ACCESS(kAtomicWrite, p, sizeof(type));                   \
    __atomic_store_n(p, value, __ATOMIC_SEQ_CST);                          \
  }                                                                        \
  type __tsan_atomic##bits##_exchange(volatile type* p, type value, int) { \
    REPRISE_CHECK_ACCESS(kAtomicUpdate, p, sizeof(type));                  \
    return __atomic_exchange_n(p, value, __ATOMIC_SEQ_CST);                \
  }                                                                        \
  REPRISE_ATOMIC_UPDATE(bits, type, fetch_add)                             \
  REPRISE_ATOMIC_UPDATE(bits, type, fetch_sub)                             \
  REPRISE_ATOMIC_UPDATE(bits, type, fetch_and)                             \
  REPRISE_ATOMIC_UPDATE(bits, type, fetch_or)                              \
  REPRISE_ATOMIC_UPDATE(bits, type, fetch_xor)                             \
  REPRISE_ATOMIC_UPDATE(bits, type, fetch_nand)                            \
  REPRISE_ATOMIC_COMPARE(bits, type, strong, false)                        \
  REPRISE_ATOMIC_COMPARE(bits, type, weak, true)
REPRISE_ATOMIC(8, uint8_t)
REPRISE_ATOMIC(16, uint16_t)
REPRISE_ATOMIC(32, uint32_t)
REPRISE_ATOMIC(64, uint64_t)
#undef REPRISE_ATOMIC
#undef REPRISE_ATOMIC_COMPARE
#undef REPRISE_ATOMIC_UPDATE

void __tsan_atomic_thread_fence(int) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
void __tsan_atomic_signal_fence(int) { __atomic_signal_fence(__ATOMIC_SEQ_CST); }

// Calls of the C library are not instrumented: instrumented_library.h directs them here.
void* reprise_emulated_memcpy(void* to, const void* from, size_t bytes) {
  REPRISE_CHECK_ACCESS(kRead, from, bytes);
  REPRISE_CHECK_ACCESS(kWrite, to, bytes);
  return std::memcpy(to, from, bytes);
}
void* reprise_emulated_memmove(void* to, const void* from, size_t bytes) {
  REPRISE_CHECK_ACCESS(kRead, from, bytes);
  REPRISE_CHECK_ACCESS(kWrite, to, bytes);
  return std::memmove(to, from, bytes);
}
void* reprise_emulated_memset(void* to, int value, size_t bytes) {
  REPRISE_CHECK_ACCESS(kWrite, to, bytes);
  return std::memset(to, value, bytes);
}

}  // extern "C"
