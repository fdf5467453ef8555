// SPDX-License-Identifier: Apache-2.0
// The shared memory of the block that one OS thread runs: dynamic memory first, then the static
// variables in the order in which they are first asked for, red zones around all of it. It knows
// what may be touched; what has been touched by whom is shadow.h's.
#ifndef REPRISE_TESTS_EMULATOR_ARENA_H_
#define REPRISE_TESTS_EMULATOR_ARENA_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/emulator/emulator.h"

namespace reprise::emulator {

class Arena {
 public:
  // Offsets count from the arena's beginning. Shared memory's own addresses count from the dynamic
  // memory, kLeadBytes later.
  static constexpr size_t kLeadBytes = 64 << 10;
  static constexpr size_t kTailBytes = 64 << 10;
  static constexpr size_t kBytes = kLeadBytes + kMaxDynamicBytes + kMaxStaticBytes + kTailBytes;

  // Throws std::runtime_error when there is no memory to be had.
  Arena();
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // A block's memory: contents poisoned (0xff: NaN in every floating format), no static variables.
  // REQUIRES: dynamic_bytes <= kMaxDynamicBytes.
  void Begin(size_t dynamic_bytes);
  // Of the block's dynamic memory and static variables, as a compiler would lay them out: the
  // dynamic memory behind the variables, aligned to 1024 bytes.
  void Limit(size_t bytes) { limit_bytes_ = bytes; }

  std::byte* begin() const { return memory_; }
  std::byte* dynamic() const { return memory_ + kLeadBytes; }
  // The variable of `key`; nullptr and why in `*error` when it was another size before, or memory
  // is used up, the block's or the arena's.
  void* Static(const void* key, size_t bytes, size_t alignment, std::string* error);

  bool Holds(size_t offset, size_t bytes) const {
    return (offset >= kLeadBytes && offset + bytes <= dynamic_end_) || IsInStatic(offset, bytes);
  }
  // "shared memory + 0x40", "static shared variable (64 bytes) + 0x4".
  std::string Describe(size_t offset) const;

 private:
  struct Variable {
    const void* key = nullptr;
    size_t offset = 0;
    size_t bytes = 0;
  };
  bool IsInStatic(size_t offset, size_t bytes) const;

  std::byte* memory_ = nullptr;
  size_t dynamic_end_ = kLeadBytes;  // offset
  size_t end_ = kLeadBytes;          // offset behind the last static variable
  size_t limit_bytes_ = kBytes;
  size_t static_bytes_ = 0;          // of all variables, without red zones
  std::vector<Variable> variables_;  // by offset
};

}  // namespace reprise::emulator

#endif  // REPRISE_TESTS_EMULATOR_ARENA_H_
