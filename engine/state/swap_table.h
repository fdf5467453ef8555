// SPDX-License-Identifier: Apache-2.0
// SwapTable: who has which place in swap space, or in export space, and how many tokens it had
// written in the block that was moved or copied there. It keeps numbers only, no memory. A place is
// whole blocks' worth: whoever is given one overwrites all of it. Threads: the caller orders all
// calls.
#ifndef REPRISE_ENGINE_STATE_SWAP_TABLE_H_
#define REPRISE_ENGINE_STATE_SWAP_TABLE_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"

namespace reprise::engine {

class SwapTable {
 public:
  using Holder = uint64_t;  // a session; 0 is nobody

  // What messages call the space, a place in it, and what places are asked for; all live as long as
  // the table.
  struct Words {
    const char* space = "swap space";
    const char* place = "swapped block";
    const char* many = "KV blocks";
  };
  // Places 0 .. num_places - 1, all free. Allocates nothing later.
  explicit SwapTable(uint32_t num_places) : SwapTable(num_places, Words()) {}
  SwapTable(uint32_t num_places, const Words& words);

  // One place for each entry of `num_tokens`; appends them to `places`. All or nothing. Errors:
  // ResourceExhausted (asked, free).
  absl::Status Allocate(Holder holder, std::span<const uint32_t> num_tokens,
                        std::vector<uint32_t>* places);
  // OK when the holder has all of them, each named once. Errors: OutOfRange (no such place),
  // PermissionDenied (not the holder's), InvalidArgument (named twice, or none named).
  absl::Status CheckHeld(Holder holder, std::span<const uint32_t> places);
  // REQUIRES: CheckHeld.
  void Free(std::span<const uint32_t> places);
  void FreeAll(Holder holder);
  // Appends those that the holder has.
  void List(Holder holder, std::vector<uint32_t>* places) const;

  uint32_t num_tokens(uint32_t place) const { return num_tokens_[place]; }
  uint32_t num_places() const { return static_cast<uint32_t>(holder_.size()); }
  uint32_t num_free() const { return static_cast<uint32_t>(free_.size()); }

 private:
  const Words words_;
  std::vector<Holder> holder_;        // by place; 0: free
  std::vector<uint32_t> num_tokens_;  // by place
  std::vector<uint32_t> free_;        // stack
  std::vector<uint64_t> stamps_;      // by place: stamp_ of the list that last named it
  uint64_t stamp_ = 0;
};

}  // namespace reprise::engine

#endif  // REPRISE_ENGINE_STATE_SWAP_TABLE_H_
