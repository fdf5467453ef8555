// SPDX-License-Identifier: Apache-2.0
// Included before everything else in instrumented kernels (cmake/reprise_emulator.cmake). g++ does
// not instrument calls of memcpy and its like, which it often turns into plain instructions late:
// here they become calls that check what they touch (instrumentation.cc), but for copies of one
// machine word, which it turns into instrumented accesses early. Kernels must not call
// __builtin_memcpy themselves.
#ifndef REPRISE_TESTS_EMULATOR_INSTRUMENTED_LIBRARY_H_
#define REPRISE_TESTS_EMULATOR_INSTRUMENTED_LIBRARY_H_

#include <stddef.h>

#define REPRISE_REPLACED extern inline __attribute__((gnu_inline, always_inline, artificial))

extern "C" {

void* reprise_emulated_memcpy(void* to, const void* from, size_t bytes) noexcept;
void* reprise_emulated_memmove(void* to, const void* from, size_t bytes) noexcept;
void* reprise_emulated_memset(void* to, int value, size_t bytes) noexcept;

REPRISE_REPLACED void* memcpy(void* to, const void* from, size_t bytes) noexcept {
  if (__builtin_constant_p(bytes) && (bytes == 16 || bytes == 8 || bytes == 4 || bytes == 2)) {
    return __builtin_memcpy(to, from, bytes);
  }
  return reprise_emulated_memcpy(to, from, bytes);
}
REPRISE_REPLACED void* memmove(void* to, const void* from, size_t bytes) noexcept {
  return reprise_emulated_memmove(to, from, bytes);
}
REPRISE_REPLACED void* memset(void* to, int value, size_t bytes) noexcept {
  return reprise_emulated_memset(to, value, bytes);
}

}  // extern "C"

#undef REPRISE_REPLACED

#endif  // REPRISE_TESTS_EMULATOR_INSTRUMENTED_LIBRARY_H_
