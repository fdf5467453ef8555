// SPDX-License-Identifier: Apache-2.0
// Fibers: stacks of their own that one OS thread runs in turns. Nothing here knows of GPUs, and
// nothing schedules: who runs next is block_runner.h's. An exception must not leave a fiber's
// entry.
#ifndef REPRISE_TESTS_EMULATOR_FIBER_H_
#define REPRISE_TESTS_EMULATOR_FIBER_H_

#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace reprise::emulator {

// Where something stands that is not running: a fiber, or the OS thread while a fiber runs on it.
struct Suspended {
  void* stack_pointer = nullptr;
  // For AddressSanitizer alone: its second stack, and the extent of the first.
  void* fake_stack = nullptr;
  const void* stack_bottom = nullptr;
  size_t stack_bytes = 0;
};

// Extents of the calling OS thread's stack, for a Suspended that Switch will fill.
Suspended DescribeThisThread();

// One fiber's stack, with a page below it that faults, in memory of others.
class FiberStack {
 public:
#if defined(__SANITIZE_ADDRESS__)
  static constexpr size_t kBytes = 532 << 10;
#else
  static constexpr size_t kBytes = 148 << 10;
#endif
  // `memory`: kBytes, aligned to a page, zero and mapped for reading and writing; outlives the
  // stack. `colour` shifts the stack's top, so that the hot ends of many stacks share the cache.
  // Throws std::runtime_error when the page below cannot be protected.
  FiberStack(std::byte* memory, unsigned colour);
  ~FiberStack();
  FiberStack(const FiberStack&) = delete;
  FiberStack& operator=(const FiberStack&) = delete;

  // A fiber that calls `entry`, which must not return, when it is switched to. What stood on the
  // stack before is forgotten.
  Suspended Prepare(void (*entry)());

 private:
  std::byte* memory_ = nullptr;
  size_t colour_bytes_ = 0;
};

// Saves the callee-saved registers on the stack, keeps the stack pointer in `*from`, goes on at
// `to`. System V ABI, x86-64.
extern "C" void reprise_switch_stacks(void** from, void* to);

// Suspends what runs here in `from` and goes on at `to`. Returns when `from` is switched to.
inline void Switch(Suspended& from, const Suspended& to) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&from.fake_stack, to.stack_bottom, to.stack_bytes);
#endif
  reprise_switch_stacks(&from.stack_pointer, to.stack_pointer);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(from.fake_stack, nullptr, nullptr);
#endif
}

// The first thing that a fiber's entry calls.
inline void BeginFiber() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
#endif
}

// Leaves a fiber for good. Its stack can be prepared anew.
[[noreturn]] void LeaveForGood(const Suspended& to);

}  // namespace reprise::emulator

#endif  // REPRISE_TESTS_EMULATOR_FIBER_H_
