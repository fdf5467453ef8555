// SPDX-License-Identifier: Apache-2.0
// How the blocks of a cluster come together. Whoever runs blocks of a grid brings them one by one,
// on any threads; the emulator runs those of a cluster as one (block_runner.h), once the last of
// them has come.
//
// So a cluster needs no locks, its schedule follows from the seed alone, and that nobody can go on
// is known at once. What one block does to another is found as what threads of one block do to each
// other is:
//
//   - a peer's store is a copy in flight until it lands, and lands at some switch of threads. What
//     has landed may be read after a wait for its phase;
//
//   - a store over what may still be read or written is a race. An arrival at a peer's barrier
//     orders as one at the block's own does, for shared memory. On global memory it orders nothing
//     between blocks, as the contract says, which SyncCluster, fences and atomics do.
#ifndef REPRISE_TESTS_EMULATOR_CLUSTER_H_
#define REPRISE_TESTS_EMULATOR_CLUSTER_H_

namespace reprise::emulator {

// What the blocks of one cluster have in common, and no other cluster under way.
struct ClusterKey {
  void (*body)(void*) = nullptr;
  const void* argument = nullptr;
  unsigned first_x = 0, y = 0;  // of its first block
  bool operator==(const ClusterKey&) const = default;
};

// Whether all other blocks of the cluster, `num_blocks` in all, have come before block_x; if so,
// the next block with this key is of another launch. Throws std::runtime_error where the same block
// comes twice. Thread: any.
bool IsLastOfCluster(const ClusterKey& key, unsigned num_blocks, unsigned block_x);

}  // namespace reprise::emulator

#endif  // REPRISE_TESTS_EMULATOR_CLUSTER_H_
