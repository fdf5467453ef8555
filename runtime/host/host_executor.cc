// SPDX-License-Identifier: Apache-2.0
// The worker threads of the host device; see host_executor.h.
#include "runtime/host/host_executor.h"

#include <algorithm>
#include <exception>
#include <numeric>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace reprise::runtime {
namespace {

constexpr size_t kScratchAlignment = 64;

uint64_t Mix(uint64_t x) {  // splitmix64's finaliser
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// The order in which blocks start: i -> (offset + i * step) mod n, a permutation because step and n
// share no factor.
class BlockOrder {
 public:
  BlockOrder(uint64_t n, uint64_t seed) : n_(n) {
    // The product below must fit 64 bits.
    if (seed == 0 || n >= (uint64_t{1} << 32)) return;
    offset_ = Mix(seed) % n;
    step_ = std::max<uint64_t>(1, Mix(seed + 1) % n);
    while (std::gcd(step_, n) != 1) ++step_;
  }
  uint64_t operator()(uint64_t i) const {
    return step_ == 1 && offset_ == 0 ? i : (offset_ + i * step_) % n_;
  }

 private:
  uint64_t n_;
  uint64_t offset_ = 0;
  uint64_t step_ = 1;
};

uint64_t NumBlocks(const LaunchShape& shape) { return uint64_t{shape.grid_x} * shape.grid_y; }

// Runs blocks first .. first + count - 1 of the start order. Returns what a block threw, or "".
std::string RunBlocks(const HostLaunch& launch, uint64_t first, uint64_t count,
                      HostScratch& scratch) {
  const LaunchShape& shape = launch.shape;
  const BlockOrder order(NumBlocks(shape), launch.order_seed);
  HostBlockContext context{.block_x = 0,
                           .block_y = 0,
                           .grid_x = shape.grid_x,
                           .grid_y = shape.grid_y,
                           .block_threads = shape.block,
                           .shared = scratch.Use(shape.shared_bytes),
                           .shared_bytes = shape.shared_bytes,
                           .cooperative = shape.cooperative};
  std::string error;
  for (uint64_t i = first; i < first + count; ++i) {
    const uint64_t block = order(i);
    context.block_x = static_cast<unsigned>(block % shape.grid_x);
    context.block_y = static_cast<unsigned>(block / shape.grid_x);
    try {
      launch.fn(context, launch.args);
    } catch (const std::exception& e) {
      error =
          absl::StrCat("block (", context.block_x, ", ", context.block_y, ") threw: ", e.what());
    } catch (...) {
      error = absl::StrCat("block (", context.block_x, ", ", context.block_y, ") threw");
    }
  }
  return error;
}

absl::Status ToStatus(const HostLaunch& launch, const std::string& error) {
  if (error.empty()) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(
      "kernel '", absl::string_view(launch.name.data(), launch.name.size()), "' on host: ", error));
}

}  // namespace

absl::StatusOr<HostScratch> HostScratch::Create() {
  HostScratch scratch;
  scratch.data_.reset(
      static_cast<std::byte*>(std::aligned_alloc(kScratchAlignment, kMaxHostSharedBytes)));
  if (scratch.data_ == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat("host device: no ", kMaxHostSharedBytes,
                                                     " bytes for a thread's shared memory"));
  }
  return scratch;
}

std::byte* HostScratch::Use(size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  if (bytes != used_bytes_) {
    ASAN_UNPOISON_MEMORY_REGION(data_.get(), bytes);
    ASAN_POISON_MEMORY_REGION(data_.get() + bytes, kMaxHostSharedBytes - bytes);
  }
#endif
  used_bytes_ = bytes;
  return data_.get();
}

void HostScratch::Release::operator()(std::byte* data) const {
#if defined(__SANITIZE_ADDRESS__)
  ASAN_UNPOISON_MEMORY_REGION(data, kMaxHostSharedBytes);
#endif
  std::free(data);
}

struct HostExecutor::Blocks {
  uint64_t first = 0;
  uint64_t count = 0;
};

absl::StatusOr<std::unique_ptr<HostExecutor>> HostExecutor::Create(int num_threads) {
  // Threads that have no core of their own would spin away the time of those that work.
  const bool oversubscribed = num_threads > static_cast<int>(std::thread::hardware_concurrency());
  std::unique_ptr<HostExecutor> executor(
      new HostExecutor(num_threads, oversubscribed ? std::chrono::nanoseconds(0) : kSpinTime));
  for (int i = 1; i < num_threads; ++i) {
    REPRISE_ASSIGN_OR_RETURN(HostScratch scratch, HostScratch::Create());
    try {
      executor->workers_.emplace_back(&HostExecutor::WorkerLoop, executor.get(),
                                      std::move(scratch));
    } catch (const std::system_error& e) {
      return absl::ResourceExhaustedError(
          absl::StrCat("host device: worker thread ", i, " of ", num_threads - 1, ": ", e.what()));
    }
  }
  return executor;
}

HostExecutor::HostExecutor(int num_threads, std::chrono::nanoseconds spin_time)
    : num_threads_(num_threads), work_wait_(spin_time), done_wait_(spin_time) {}

HostExecutor::~HostExecutor() {
  stop_.store(true, std::memory_order_seq_cst);
  work_wait_.Wake();
  for (std::thread& worker : workers_) worker.join();
}

absl::Status HostExecutor::Run(const HostLaunch& launch, HostScratch& scratch) {
  const uint64_t num_blocks = NumBlocks(launch.shape);
  std::unique_lock<std::mutex> submit(submit_, std::defer_lock);
  // Blocks that wait for each other need a thread each.
  if (launch.shape.cooperative && num_blocks > 1) submit.lock();
  if (num_blocks == 1 || workers_.empty() ||
      (!submit.owns_lock() && (launch.one_thread || !submit.try_lock()))) {
    return ToStatus(launch, RunBlocks(launch, 0, num_blocks, scratch));
  }
  Publish(launch, num_blocks);
  TakePart(scratch);
  done_wait_.Wait([&] { return done_.load(std::memory_order_seq_cst) == num_blocks; });
  std::lock_guard<std::mutex> lock(error_mutex_);
  return ToStatus(launch, std::exchange(error_, std::string()));
}

void HostExecutor::Publish(const HostLaunch& launch, uint64_t num_blocks) {
  launch_ = &launch;
  num_blocks_ = num_blocks;
  done_.store(0, std::memory_order_relaxed);
  remaining_.store(num_blocks, std::memory_order_seq_cst);
  work_wait_.Wake();
}

bool HostExecutor::Claim(Blocks* blocks) {
  uint64_t remaining = remaining_.load(std::memory_order_relaxed);
  while (remaining > 0) {
    // Shares shrink as the kernel runs out: few claims for many tiny blocks, and no long tail.
    const uint64_t count =
        std::max<uint64_t>(1, remaining / (2 * static_cast<uint64_t>(num_threads_)));
    if (remaining_.compare_exchange_weak(remaining, remaining - count, std::memory_order_acq_rel,
                                         std::memory_order_relaxed)) {
      blocks->first = num_blocks_ - remaining;
      blocks->count = count;
      return true;
    }
  }
  return false;
}

void HostExecutor::TakePart(HostScratch& scratch) {
  uint64_t num_run = 0;
  uint64_t num_blocks = 0;
  // Reporting once, after the last claim, keeps `launch_` alive in between.
  for (Blocks blocks; Claim(&blocks); num_run += blocks.count) {
    num_blocks = num_blocks_;
    std::string error = RunBlocks(*launch_, blocks.first, blocks.count, scratch);
    if (!error.empty()) RecordError(std::move(error));
  }
  if (num_run == 0) return;
  const uint64_t done = done_.fetch_add(num_run, std::memory_order_seq_cst) + num_run;
  if (done == num_blocks) done_wait_.Wake();
}

void HostExecutor::RecordError(std::string error) {
  std::lock_guard<std::mutex> lock(error_mutex_);
  if (error_.empty()) error_ = std::move(error);
}

void HostExecutor::WorkerLoop(HostScratch scratch) {
  while (!stop_.load(std::memory_order_seq_cst)) {
    work_wait_.Wait([&] {
      return remaining_.load(std::memory_order_seq_cst) > 0 ||
             stop_.load(std::memory_order_seq_cst);
    });
    TakePart(scratch);
  }
}

}  // namespace reprise::runtime
