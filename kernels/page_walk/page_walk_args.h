// SPDX-License-Identifier: Apache-2.0
// Arguments of the page walk. See page_walk.h.
#ifndef REPRISE_KERNELS_PAGE_WALK_PAGE_WALK_ARGS_H_
#define REPRISE_KERNELS_PAGE_WALK_PAGE_WALK_ARGS_H_

#include <cstdint>

#include "kernels/attention/kv_layout.h"

namespace reprise::kernels {

// A page is a block of the KV cache. A run is what one head has of its keys, or of its values:
// block_size tokens, contiguous. A page has 2 * num_kv_heads runs.

// 16-byte vectors that one thread reads together and that become one word.
inline constexpr int kPageWalkVectors = 8;
// The largest run: a round of so many runs has fewer groups than f32 counts exactly.
inline constexpr int64_t kPageWalkMaxRunBytes = 1 << 21;
inline constexpr uint32_t kPageWalkRound = 1024;  // runs
// Blocks of the grid for each multiprocessor: with 256 threads and kPageWalkVectors loads each,
// 128 KiB are in flight on a multiprocessor.
inline constexpr int kPageWalkBlocksPerMultiprocessor = 4;

// The live tokens [begin, end) of one page; begin < end <= block_size.
struct WalkedPage {
  uint32_t block = 0;  // of the KV cache
  uint32_t begin = 0;
  uint32_t end = 0;
  uint32_t reserved = 0;
};
static_assert(sizeof(WalkedPage) == 16);

struct PageWalkArgs {
  const void* kv_cache = nullptr;       // one layer, as `kv` says; 16-byte aligned
  const WalkedPage* pages = nullptr;    // [max_pages]
  const uint32_t* num_pages = nullptr;  // live count
  uint32_t* matches = nullptr;          // [PageWalkGrid]
  KvLayout kv = {};
  uint32_t pattern = 0;
  // Set by the launch.
  uint32_t token_vectors = 0;  // 16-byte vectors of one token in a panel (KvLayout), or in a run
  uint32_t panel_vectors = 0;  // of a panel
  uint32_t run_vectors = 0;    // of a run
  uint32_t run_groups = 0;     // groups of kPageWalkVectors vectors in a run, the last one partial
};

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_PAGE_WALK_PAGE_WALK_ARGS_H_
