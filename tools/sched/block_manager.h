// SPDX-License-Identifier: Apache-2.0
// BlockManager: the session's KV blocks on the scheduler's side. Takes them from the server in
// batches, so that a growing row rarely costs a call, reuses those of finished rows, and gives back
// what is more than a small reserve. Not thread-safe.
#ifndef REPRISE_TOOLS_SCHED_BLOCK_MANAGER_H_
#define REPRISE_TOOLS_SCHED_BLOCK_MANAGER_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/sched/channel.h"

namespace reprise::tools {

struct BlockManagerOptions {
  uint32_t batch = 32;  // blocks asked for at once; also the reserve that is kept when rows finish
  uint32_t max_swap = 1024;  // blocks of one call to swap space
};

class BlockManager {
 public:
  // `source` must outlive the manager.
  BlockManager(BlockSource* source, BlockManagerOptions options)
      : source_(source), options_(options) {}

  // True: `count` blocks were appended to `blocks`. False: neither the free list nor the server has
  // them; nothing changed. After a False the server is not asked again until RetryServer or
  // Release, so that a starved scheduler does not pay for a call in every step. Errors: the
  // source's, other than ResourceExhausted.
  absl::StatusOr<bool> Take(uint32_t count, std::vector<uint32_t>* blocks);

  // Takes `blocks` back from a row that step `sequence` drops. Rows of that step and of later ones
  // may use them at once; the server gets them only after that step's result, because until then
  // their row is resident there.
  void Release(const std::vector<uint32_t>& blocks, uint64_t sequence);
  // The result of step `sequence` has been read: gives what is more than the reserve back to the
  // server.
  absl::Status Acknowledge(uint64_t sequence);
  // Gives back every free block that the server may have. Blocks of resident rows stay.
  absl::Status ReturnAll();
  // The session is gone, and all its blocks with it: there are none.
  void Forget();

  // Moves blocks, in which their rows' KV is, to swap space; no resident row has them. True: they
  // are in `swapped`, in their order. False: there is no room, or what came of it is not known;
  // `swapped` is empty, and the KV is lost. `blocks` keeps those that the session still has.
  absl::StatusOr<bool> SwapOut(std::vector<uint32_t>* blocks, std::vector<uint32_t>* swapped);
  enum class SwappedIn : uint8_t {
    kDone,    // `blocks` has them, in their order, and `swapped` is empty
    kNoRoom,  // nothing has changed
    kLost,    // their KV is; both are empty
  };
  absl::StatusOr<SwappedIn> SwapIn(std::vector<uint32_t>* swapped, std::vector<uint32_t>* blocks);
  // What a row carries beside its KV. Nothing: there is no room.
  absl::StatusOr<std::optional<uint32_t>> SwapOutState(uint32_t row);
  absl::Status FreeSwappedState(uint32_t state) { return source_->FreeSwappedState(state); }
  // Takes back blocks that were taken for step `sequence` and not used: there are no more of them
  // than before. As with Release, rows that the step drops may have had them.
  void PutBack(const std::vector<uint32_t>& blocks, uint64_t sequence);

  // Others may have freed blocks meanwhile.
  void RetryServer() { server_is_empty_ = false; }

  size_t free_blocks() const { return free_.size(); }
  uint32_t held_blocks() const { return held_; }  // free ones and those of rows

 private:
  struct FreeBlock {
    uint32_t block;
    uint64_t usable_by_server_after;  // sequence of the step that drops the row that used it
  };
  absl::StatusOr<bool> AskServer(uint32_t count);
  absl::Status ReturnDownTo(size_t keep);
  // The next `max_swap` of `blocks` from `begin` on.
  std::vector<uint32_t> Part(const std::vector<uint32_t>& blocks, size_t begin) const;

  BlockSource* source_;
  BlockManagerOptions options_;
  std::deque<FreeBlock> free_;  // used from the back, returned from the front
  uint32_t held_ = 0;
  uint64_t acknowledged_ = 0;
  bool server_is_empty_ = false;
};

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_SCHED_BLOCK_MANAGER_H_
