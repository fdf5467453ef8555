// SPDX-License-Identifier: Apache-2.0
// HostExecutor: runs the blocks of one kernel on the threads of the host device. It knows nothing
// of streams or order between kernels: Run returns when every block has run, and a stream
// (host_stream.h) calls it once per kernel.
#ifndef REPRISE_RUNTIME_HOST_HOST_EXECUTOR_H_
#define REPRISE_RUNTIME_HOST_HOST_EXECUTOR_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/device.h"
#include "runtime/host/spin_wait.h"

namespace reprise::runtime {

// Largest dynamic shared memory of a block on the host device.
inline constexpr size_t kMaxHostSharedBytes = size_t{1} << 20;

// The shared memory of the blocks that one thread runs, kMaxHostSharedBytes of it, aligned to 64
// bytes. The operating system commits what is touched, so nothing ever grows. One thread at a time.
class HostScratch {
 public:
  // Errors: ResourceExhausted.
  static absl::StatusOr<HostScratch> Create();
  // The first `bytes` bytes. Under AddressSanitizer the rest is out of bounds until the next call.
  std::byte* Use(size_t bytes);

 private:
  struct Release {
    void operator()(std::byte* data) const;
  };
  std::unique_ptr<std::byte, Release> data_;
  size_t used_bytes_ = kMaxHostSharedBytes;
};

// One kernel with its arguments. `args` and `name` stay valid until Run returns.
struct HostLaunch {
  HostKernelFn fn = nullptr;
  std::string_view name;
  LaunchShape shape;
  const void* args = nullptr;
  uint64_t order_seed = 0;  // 0: blocks start in index order; else in a pseudo-random order
  bool one_thread = false;  // see TestDelays
};

class HostExecutor {
 public:
  // num_threads: how many threads run the blocks of a kernel, the caller of Run among them.
  // Errors: ResourceExhausted when threads or scratch cannot be had.
  static absl::StatusOr<std::unique_ptr<HostExecutor>> Create(int num_threads);
  // No Run may be under way.
  ~HostExecutor();
  HostExecutor(const HostExecutor&) = delete;
  HostExecutor& operator=(const HostExecutor&) = delete;

  int num_threads() const { return num_threads_; }

  // Runs every block of `launch` and returns when all are done; the calling thread takes part, with
  // `scratch`. Blocks run concurrently and in any order. A grid of one block wakes nobody. Any
  // thread may call: while the workers are busy with another caller's kernel, this one runs on the
  // calling thread alone. Errors: Internal when a block threw, with its message; the other blocks
  // have run all the same.
  absl::Status Run(const HostLaunch& launch, HostScratch& scratch);

 private:
  struct Blocks;  // a claimed range
  HostExecutor(int num_threads, std::chrono::nanoseconds spin_time);

  void WorkerLoop(HostScratch scratch);
  void Publish(const HostLaunch& launch, uint64_t num_blocks);
  // Runs blocks of the published launch until none is left to claim, then reports them as done.
  void TakePart(HostScratch& scratch);
  bool Claim(Blocks* blocks);
  void RecordError(std::string error);

  const int num_threads_;
  std::vector<std::thread> workers_;
  std::mutex submit_;  // held by the caller whose kernel the workers run

  // Written by the submitter before `remaining_` is published; read only by threads that hold a
  // claimed block not yet reported in `done_`, which keeps the submitter from moving on.
  const HostLaunch* launch_ = nullptr;
  uint64_t num_blocks_ = 0;

  // Blocks nobody has claimed yet. A claim is a successful subtraction, so a thread that comes
  // late, or that slept through whole kernels, can only ever claim a block of the launch published
  // right now.
  alignas(64) std::atomic<uint64_t> remaining_{0};
  alignas(64) std::atomic<uint64_t> done_{0};
  std::atomic<bool> stop_{false};
  SpinWait work_wait_;  // workers: until there are blocks
  SpinWait done_wait_;  // submitter: until all blocks are done

  std::mutex error_mutex_;
  std::string error_ ABSL_GUARDED_BY(error_mutex_);  // the first one of the current launch
};

}  // namespace reprise::runtime

#endif  // REPRISE_RUNTIME_HOST_HOST_EXECUTOR_H_
