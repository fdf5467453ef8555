// SPDX-License-Identifier: Apache-2.0
// The shared memory of the block that one OS thread runs: dynamic memory first, then the static
// variables in the order in which they are first asked for, red zones around all of it. It knows
// what may be touched; what has been touched by whom is shadow.h's.
//
// Blocks of a cluster have one each, laid out alike, one behind the other; one of them is the
// selected block's, and what is asked here is asked for that block, where nothing else is said.
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
  // Offsets count from the arena's beginning, kBytes for each block. Shared memory's own addresses
  // count from the block's dynamic memory, kLeadBytes behind its beginning.
  static constexpr size_t kLeadBytes = 64 << 10;
  static constexpr size_t kTailBytes = 64 << 10;
  static constexpr size_t kBytes = kLeadBytes + kMaxDynamicBytes + kMaxStaticBytes + kTailBytes;
  static constexpr size_t kAllBytes = kMaxClusterBlocks * kBytes;

  // Throws std::runtime_error when there is no memory to be had.
  Arena();
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // The blocks' memory: contents poisoned (0xff: NaN in every floating format), no static
  // variables. Selects block 0. REQUIRES: dynamic_bytes <= kMaxDynamicBytes.
  void Begin(unsigned num_blocks, size_t dynamic_bytes);
  void Select(unsigned block) { own_begin_ = block * kBytes; }
  // Of a block's dynamic memory and static variables, as a compiler would lay them out: the
  // dynamic memory behind the variables, aligned to 1024 bytes.
  void Limit(size_t bytes) { limit_bytes_ = bytes; }

  std::byte* begin() const { return memory_; }  // of all blocks
  size_t own_begin() const { return own_begin_; }
  std::byte* dynamic() const { return memory_ + own_begin_ + kLeadBytes; }
  // The variable of `key`; nullptr and why in `*error` when it was another size before, or memory
  // is used up, the block's or the arena's.
  void* Static(const void* key, size_t bytes, size_t alignment, std::string* error);

  bool Holds(size_t offset, size_t bytes) const { return HoldsInBlock(offset - own_begin_, bytes); }
  // Of any block; the offset counts from that block's beginning.
  bool HoldsInBlock(size_t offset, size_t bytes) const {
    if (offset >= kBytes) return false;  // an access from before it too
    return (offset >= kLeadBytes && offset + bytes <= dynamic_end_) || IsInStatic(offset, bytes);
  }
  // "dynamic shared memory (1024 bytes) + 64", "static shared variable (64 bytes) + 4"; of a
  // cluster, with the block. Of any block's offset.
  std::string Describe(size_t offset) const;

 private:
  struct Variable {  // of each block
    const void* key = nullptr;
    size_t offset = 0;
    size_t bytes = 0;
  };
  bool IsInStatic(size_t offset, size_t bytes) const;
  // For the first time: the contents are poisoned.
  void AllowInAll(size_t offset, size_t bytes);
  std::string DescribeInBlock(size_t offset) const;

  std::byte* memory_ = nullptr;
  unsigned num_blocks_ = 1;
  size_t own_begin_ = 0;             // offset of the selected block's
  size_t dynamic_end_ = kLeadBytes;  // this and what follows: from a block's beginning
  size_t end_ = kLeadBytes;          // behind the last static variable
  size_t limit_bytes_ = kBytes;
  size_t static_bytes_ = 0;          // of all variables, without red zones
  std::vector<Variable> variables_;  // by offset
};

}  // namespace reprise::emulator

#endif  // REPRISE_TESTS_EMULATOR_ARENA_H_
