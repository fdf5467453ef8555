// SPDX-License-Identifier: Apache-2.0
// Streams and graphs of the fake HIP library: a thread with a queue, and lists of nodes. What the
// calls mean is in the *_calls.cc files.
#ifndef REPRISE_TESTS_TESTING_FAKE_HIP_FAKE_HIP_STREAM_H_
#define REPRISE_TESTS_TESTING_FAKE_HIP_FAKE_HIP_STREAM_H_

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "runtime/device.h"

namespace reprise::testing {

enum class FakeHipNodeType { kKernel, kMemcpy, kMemset, kEmpty };

struct FakeHipNode {
  FakeHipNodeType type = FakeHipNodeType::kEmpty;
  std::function<void()> run;  // may throw: a fault
};

using FakeHipNodes = std::vector<std::shared_ptr<FakeHipNode>>;

// A launch with its arguments copied. Calling it runs all blocks.
struct FakeHipLaunch {
  runtime::HostKernelFn run = nullptr;
  unsigned grid_x = 1, grid_y = 1, block = 1;
  size_t shared_bytes = 0;
  std::vector<std::byte> args;
  size_t first_block = 0;  // where the shuffled order begins
  void operator()() const;
};

// One stream: runs what it is given in order on a thread of its own. `fault` is told of an
// exception; once `faulted` says so, work is dropped unrun.
class FakeHipStream {
 public:
  struct Faults {
    std::function<void()> report;
    std::function<bool()> reported;
  };
  FakeHipStream(int device, Faults faults);
  // Ends when the queue is empty.
  ~FakeHipStream();

  int device() const { return device_; }
  // All of `nodes`, as one item.
  void Enqueue(std::shared_ptr<const FakeHipNodes> nodes);
  void Wait();
  bool IsIdle();

  // A capture, guarded by the library's lock.
  struct Capture {
    std::thread::id thread;
    bool spoilt = false;
    FakeHipNodes nodes;
  };
  std::unique_ptr<Capture> capture;

 private:
  void Run();
  bool IsEmpty() const { return head_ == queue_.size(); }

  const int device_;
  const Faults faults_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // From head_ on. A launch allocates nothing, as the real library's does not in the steady state.
  std::vector<std::shared_ptr<const FakeHipNodes>> queue_;
  size_t head_ = 0;
  bool busy_ = false;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace reprise::testing

#endif  // REPRISE_TESTS_TESTING_FAKE_HIP_FAKE_HIP_STREAM_H_
