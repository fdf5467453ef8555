// SPDX-License-Identifier: Apache-2.0
// What atomics and fences order, and threads that wait for a word. See block_runner.h.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "absl/strings/str_cat.h"
#include "tests/emulator/block_runner.h"

namespace reprise::emulator {
namespace {

constexpr int kFlagPatienceSeconds = 15;
// Of blocks that wait for each other: counts threads that went on, of all of them.
constinit std::atomic<uint64_t> num_steps_of_all = 0;

}  // namespace

Order::Released& BlockRunner::ReleasedAt(const void* address) {
  auto it = std::find_if(atomics_.begin(), atomics_.end(),
                         [&](const auto& atomic) { return atomic.first == address; });
  if (it == atomics_.end()) it = atomics_.insert(it, {address, {}});
  return it->second;
}

void BlockRunner::OrderByAtomic(const void* address) {
  if (!kChecksAccesses) return;
  order_.Acquire(current_->id, Order::Share(&ReleasedAt(address)));
  ReleaseByAtomic(address);
}

void BlockRunner::ReleaseByAtomic(const void* address) {
  if (!kChecksAccesses) return;
  CheckClocks(order_.Release(&ReleasedAt(address)));
  Fence();
  // What it releases includes itself.
  if (IsGlobal(address)) grid_->Atomic(address, /*reads=*/false, /*writes=*/true);
}

// It takes its turn among the threads that can go on, and looks again. Threads are picked at
// random, so that many looks without anybody else's turn say that nobody else can go on.
void BlockRunner::WaitAtLeast(const uint32_t* address, uint32_t value, Place place) {
  Thread& self = *current_;
  auto& word = *const_cast<uint32_t*>(address);
  auto since = std::chrono::steady_clock::now();
  uint64_t steps = num_steps_of_all;
  self.place = place;
  self.polls = true;
  while (std::atomic_ref(word).load(std::memory_order_acquire) < value) {
    if (!runs_beside_others_) {
      if (++idle_looks_ > 64 * num_threads_) FailNeverAdded(address, value, place);
    } else if (++idle_looks_ > 4 * num_threads_) {
      const auto now = std::chrono::steady_clock::now();
      if (const uint64_t all = num_steps_of_all; all != steps) {
        steps = all;
        since = now;
      }
      if (now - since > std::chrono::seconds(kFlagPatienceSeconds))
        FailNeverAdded(address, value, place);
      std::this_thread::sleep_for(std::chrono::microseconds(20));
      idle_looks_ = 0;
    }
    MakeReady(self.id);
    GoOn();
  }
  self.polls = false;
  idle_looks_ = 0;
  AccessAny<AccessKind::kAtomicRead>(address, sizeof(*address), place);
  if (!kChecksAccesses) return;
  order_.Acquire(self.id, Order::Share(&ReleasedAt(address)));
  Fence();
}

void BlockRunner::CountStep() {
  idle_looks_ = 0;
  if (runs_beside_others_) num_steps_of_all.fetch_add(1, std::memory_order_relaxed);
}

void BlockRunner::FailNeverAdded(const uint32_t* address, uint32_t value, Place place) {
  Fail([&] {
    return absl::StrCat("a word that is waited for is ", *address, ", and nobody adds to it; ",
                        NameOf(current_->id), " waits for ", value, "\n  at ", Describe(place),
                        DescribeWaiting());
  });
}

void BlockRunner::Fence() {
  if (!kChecksAccesses) return;
  grid_->Fence();
  CheckClocks(order_.StepOn());
}

}  // namespace reprise::emulator
