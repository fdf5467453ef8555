// SPDX-License-Identifier: Apache-2.0
// Stacks and the switch between them; see fiber.h.
#include "tests/emulator/fiber.h"

#include <pthread.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "absl/strings/str_cat.h"

#if !defined(__x86_64__)
#error "reprise_switch_stacks is written for x86-64 alone"
#endif

namespace reprise::emulator {
namespace {

constexpr size_t kGuardBytes = 4096;
constexpr size_t kColourRangeBytes = 16 << 10;
// Distance of two neighbours' tops in cache sets: odd in units of a line, so that all sets are
// used.
constexpr size_t kColourBytes = 5 * 64;
// Kernels keep fragments of matrices on their stacks; AddressSanitizer puts red zones between them.
#if defined(__SANITIZE_ADDRESS__)
constexpr size_t kUsableBytes = 512 << 10;
#else
constexpr size_t kUsableBytes = 128 << 10;
#endif
static_assert(FiberStack::kBytes == kGuardBytes + kUsableBytes + kColourRangeBytes);

}  // namespace

// rdi: where to keep the stack pointer, rsi: the one to go on with.
asm(R"(
  .text
  .p2align 4
  .globl reprise_switch_stacks
  .type reprise_switch_stacks, @function
reprise_switch_stacks:
  .cfi_startproc
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .cfi_endproc
  .size reprise_switch_stacks, . - reprise_switch_stacks
)");

Suspended DescribeThisThread() {
  Suspended self;
  pthread_attr_t attributes;
  void* bottom = nullptr;
  size_t bytes = 0;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) {
    throw std::runtime_error("emulator: pthread_getattr_np failed");
  }
  pthread_attr_getstack(&attributes, &bottom, &bytes);
  pthread_attr_destroy(&attributes);
  self.stack_bottom = bottom;
  self.stack_bytes = bytes;
  return self;
}

FiberStack::FiberStack(std::byte* memory, unsigned colour)
    : memory_(memory), colour_bytes_((colour * kColourBytes) % kColourRangeBytes) {
  if (mprotect(memory, kGuardBytes, PROT_NONE) != 0) {
    throw std::runtime_error(
        absl::StrCat("emulator: no stack for a fiber: ", std::strerror(errno)));
  }
}

FiberStack::~FiberStack() {
#if defined(__SANITIZE_ADDRESS__)
  ASAN_UNPOISON_MEMORY_REGION(memory_, kBytes);
#endif
}

Suspended FiberStack::Prepare(void (*entry)()) {
#if defined(__SANITIZE_ADDRESS__)
  // Frames that were left for good keep their red zones.
  ASAN_UNPOISON_MEMORY_REGION(memory_ + kGuardBytes, kBytes - kGuardBytes);
#endif
  auto* const top = reinterpret_cast<void**>(memory_ + kBytes - colour_bytes_);
  // What reprise_switch_stacks pops: six registers, then its own return address, which is the
  // entry. The entry's return address is null, where unwinding ends.
  void** const first = top - 8;
  for (int i = 0; i < 8; ++i) first[i] = nullptr;
  first[6] = reinterpret_cast<void*>(entry);
  Suspended fiber;
  fiber.stack_pointer = first;
  fiber.stack_bottom = memory_ + kGuardBytes;
  fiber.stack_bytes = kBytes - kGuardBytes;
  return fiber;
}

// Not instrumented: the first call takes away the memory that its variables would lie in.
__attribute__((no_sanitize_address)) void LeaveForGood(const Suspended& to) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(nullptr, to.stack_bottom, to.stack_bytes);
#endif
  void* nowhere = nullptr;
  reprise_switch_stacks(&nowhere, to.stack_pointer);
  std::abort();  // nobody switches to it again
}

}  // namespace reprise::emulator
