// SPDX-License-Identifier: Apache-2.0
// The blocks of one launch: what they share, and their taking turns. Whoever runs blocks of a grid
// says nothing about launches, so the first block of a kernel with its arguments begins one, and it
// ends with the last block of its grid.
#ifndef REPRISE_TESTS_EMULATOR_LAUNCH_H_
#define REPRISE_TESTS_EMULATOR_LAUNCH_H_

#include <cstdint>
#include <mutex>

#include "tests/emulator/global_shadow.h"
#include "tests/emulator/grid_order.h"
#include "tests/emulator/order.h"

namespace reprise::emulator {

// Belongs to whoever has its turn.
struct Launch {
  GridOrder grid;
  GlobalShadow global{grid};
  uint32_t max_clock = 0;  // of any block so far
  bool has_begun = false;

  // `order` is that of block (x, y), begun above max_clock, or of the cluster that begins there.
  void BeginBlock(const Order& order, unsigned x, unsigned y);
};

// One block's turn, from construction to destruction.
class LaunchTurn {
 public:
  // What the blocks of a launch have in common. One that has not ended has no other like it.
  struct Key {
    void (*body)(void*) = nullptr;
    const void* argument = nullptr;
    uint64_t num_blocks = 1;
    bool operator==(const Key&) const = default;
  };

  // Waits until no other block of the launch runs.
  explicit LaunchTurn(const Key& key);
  ~LaunchTurn();
  LaunchTurn(const LaunchTurn&) = delete;
  LaunchTurn& operator=(const LaunchTurn&) = delete;

  Launch& launch();

 private:
  struct Entry;
  struct Table;
  static Table& AllLaunches();

  Entry* const entry_;
};

}  // namespace reprise::emulator

#endif  // REPRISE_TESTS_EMULATOR_LAUNCH_H_
