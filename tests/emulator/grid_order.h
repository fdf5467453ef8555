// SPDX-License-Identifier: Apache-2.0
// Which accesses of a launch's blocks happened before which, where order.h ends: between blocks.
// Blocks of a launch run one after another here, which orders nothing; fences and atomics do:
//
//   write; FenceDevice; [barriers;] atomic  ->  atomic on the same word; [barriers;] FenceDevice;
//   read
//
// FenceDevice is sequentially consistent on every target, so a fence may stand on either side of a
// barrier: what counts is that the write comes before some fence, that one before the atomic, and
// the same backwards on the other side. An atomic without a fence behind it tells a thread
// something that it may not rely on yet.
//
// A thread's past is told by a Fenced: what its block has done before some fence. It knows memory
// only as the words that atomics meet on; global_shadow.h asks it about two accesses.
#ifndef REPRISE_TESTS_EMULATOR_GRID_ORDER_H_
#define REPRISE_TESTS_EMULATOR_GRID_ORDER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "tests/emulator/order.h"

namespace reprise::emulator {

class GridOrder {
 public:
  struct Block {
    Epoch first = 0;  // epochs of a launch's blocks ascend
    unsigned x = 0, y = 0;
  };

  // Forgets the launch before.
  void BeginLaunch();
  // `order` is the block's, its threads have done nothing yet, and outlives the block.
  void BeginBlock(const Order& order, unsigned x, unsigned y);

  // ---- of the block's current thread ----

  // REQUIRES: the thread's epoch is a new one afterwards (Order::StepOn).
  void Fence();
  // An atomic on `address` has been done.
  void Atomic(const void* address, bool reads, bool writes) {
    if (!has_fenced_ && told_at_.empty()) return;
    Meet(address, reads, writes);
  }
  // All threads of the block meet; comes before Order::MeetBlock.
  void MeetBlock() {
    if (!fences_.empty() || !told_.empty() || !sure_.empty()) Fold();
  }

  // Whether fences and atomics put what has epoch `e`, of this launch, before what the thread does
  // next. Barriers of its own block are order.h's.
  bool IsBefore(Epoch e) { return (all_sure_ != nullptr || !sure_.empty()) && IsKnown(e); }

  // Everything below is older than the launch.
  Epoch first_epoch() const { return blocks_.front().first; }
  const Block& BlockOf(Epoch e) const { return blocks_[IndexOf(e)]; }

 private:
  // Accesses of one block: all below `base`, and of each thread those up to its clock.
  struct Fenced {
    Epoch base = 0;
    std::vector<uint32_t> clocks;
    bool Covers(Epoch e) const { return e < base || ClockOf(e) <= clocks[IdOf(e)]; }
    bool Covers(const Fenced& other) const;
  };
  // Of all blocks, by index; null where nothing is known.
  using Past = std::shared_ptr<const std::vector<std::shared_ptr<const Fenced>>>;

  // A fence of this block since its threads met.
  struct FenceMark {
    Epoch at = 0;
    Epoch block_base = 0, warp_base = 0;
    std::vector<uint32_t> known;  // clocks of others, where barriers in shared memory told them
  };
  // What thread IdOf(at) has known since then.
  struct PastMark {
    Epoch at = 0;
    Past past;
  };

  // Marks that a thread does not know yet. It learns of each once, and for good.
  struct Unknown {
    size_t next = 0;              // marks from here on were not looked at
    std::vector<uint32_t> older;  // of those ahead of it
  };
  // What a thread has gathered since the block's threads met.
  struct Thread {
    uint64_t meeting = 0;  // of another meeting: nothing yet
    Unknown fences, told_marks, sure_marks;
    std::shared_ptr<const Fenced> fenced;
    Past told, sure;
    Past last_told, last_sure;  // its own last marks
    // What it passed on last, and of what that was made.
    Past released;
    std::shared_ptr<const Fenced> released_fenced;
    Past released_sure;
  };

  Thread& Self();
  // Calls `learn` with each of `marks` that the current thread has come to know.
  template <typename Mark, typename Learn>
  void Gather(const std::vector<Mark>& marks, Unknown* unknown, const Learn& learn);
  void Gather(const std::vector<PastMark>& marks, Unknown* unknown, Past* past);
  void Meet(const void* address, bool reads, bool writes);
  void Fold();
  bool IsKnown(Epoch e);
  size_t IndexOf(Epoch e) const;
  bool Covers(const Past& past, size_t block, Epoch e) const;
  // What the current thread may pass on; null: nothing.
  Past Release();
  // `fenced`, as the last block's, and what `sure` has of all.
  Past Together(std::shared_ptr<const Fenced> fenced, const Past& sure) const;
  void Add(const FenceMark& mark, Fenced* to) const;
  // Either one itself where it has all that the other has.
  static Past Join(const Past& a, const Past& b);

  // ---- the launch ----
  std::vector<Block> blocks_;
  absl::flat_hash_map<const void*, Past> told_at_;  // by the words that atomics meet on

  // ---- the block, as all its threads know it ----
  const Order* order_ = nullptr;
  bool has_fenced_ = false;
  std::shared_ptr<const Fenced> fenced_;
  Past all_told_;  // by atomics, with no fence behind them yet
  Past all_sure_;  // with one
  Past released_;  // of fenced_ and all_sure_

  // ---- the block, since its threads met ----
  uint64_t meeting_ = 0;
  std::vector<FenceMark> fences_;
  std::vector<PastMark> told_, sure_;
  std::vector<Thread> threads_;
};

}  // namespace reprise::emulator

#endif  // REPRISE_TESTS_EMULATOR_GRID_ORDER_H_
