// SPDX-License-Identifier: Apache-2.0
// Which launches are under way; see launch.h.
#include "tests/emulator/launch.h"

#include <memory>
#include <vector>

namespace reprise::emulator {

void Launch::BeginBlock(const Order& order, unsigned x, unsigned y) {
  if (!has_begun) {
    grid.BeginLaunch();
    global.BeginLaunch();
    has_begun = true;
  }
  grid.BeginBlock(order, x, y);
  global.BeginBlock(order);
}

struct LaunchTurn::Entry {
  Key key;
  uint64_t num_begun = 0;
  uint64_t num_ended = 0;  // all of them: free for another launch
  std::mutex turn;
  Launch launch;
};

struct LaunchTurn::Table {
  std::mutex mutex;
  std::vector<std::unique_ptr<Entry>> entries;  // as many as have ever been under way at once

  Entry* Begin(const Key& key) {
    std::lock_guard<std::mutex> lock(mutex);
    Entry* free = nullptr;
    for (const auto& entry : entries) {
      if (entry->num_ended == entry->key.num_blocks) {
        if (free == nullptr) free = entry.get();
      } else if (entry->key == key && entry->num_begun < key.num_blocks) {
        ++entry->num_begun;
        return entry.get();
      }
    }
    if (free == nullptr) {
      entries.push_back(std::make_unique<Entry>());
      free = entries.back().get();
    }
    free->key = key;
    free->num_begun = 1;
    free->num_ended = 0;
    free->launch.has_begun = false;
    return free;
  }
  void End(Entry* entry) {
    std::lock_guard<std::mutex> lock(mutex);
    ++entry->num_ended;
  }
};

LaunchTurn::Table& LaunchTurn::AllLaunches() {
  static auto* const table = new Table;
  return *table;
}

LaunchTurn::LaunchTurn(const Key& key) : entry_(AllLaunches().Begin(key)) {
  entry_->turn.lock();
  Launch& launch = entry_->launch;
  if (launch.max_clock <= kMaxFirstClock) return;
  // Clocks start anew, in the midst of a launch if need be.
  launch.max_clock = 0;
  launch.has_begun = false;
  launch.global.Forget();
}

LaunchTurn::~LaunchTurn() {
  entry_->turn.unlock();
  AllLaunches().End(entry_);
}

Launch& LaunchTurn::launch() { return entry_->launch; }

}  // namespace reprise::emulator
