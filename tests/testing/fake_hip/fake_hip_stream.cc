// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/fake_hip/fake_hip_stream.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <numeric>
#include <utility>

namespace reprise::testing {
namespace {

// Of exactly this size, so that AddressSanitizer sees what lies beyond; undefined on purpose.
class SharedMemory {
 public:
  explicit SharedMemory(size_t bytes) {
    if (posix_memalign(reinterpret_cast<void**>(&data_), 64, std::max<size_t>(bytes, 1)) != 0)
      throw std::bad_alloc();
    std::memset(data_, 0xcd, bytes);
  }
  ~SharedMemory() { std::free(data_); }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  std::byte* data() const { return data_; }

 private:
  std::byte* data_ = nullptr;
};

}  // namespace

void FakeHipLaunch::operator()() const {
  const SharedMemory shared(shared_bytes);
  const size_t num_blocks = size_t{grid_x} * grid_y;
  // A step that has no divisor in common with the number of blocks visits each once.
  size_t step = std::min<size_t>(7919, std::max<size_t>(num_blocks, 1));
  while (std::gcd(step, num_blocks) != 1) --step;
  size_t block_index = num_blocks == 0 ? 0 : first_block % num_blocks;
  for (size_t i = 0; i < num_blocks; ++i) {
    run({.block_x = static_cast<unsigned>(block_index % grid_x),
         .block_y = static_cast<unsigned>(block_index / grid_x),
         .grid_x = grid_x,
         .grid_y = grid_y,
         .block_threads = block,
         .shared = shared.data(),
         .shared_bytes = shared_bytes},
        args.data());
    block_index = (block_index + step) % num_blocks;
  }
}

FakeHipStream::FakeHipStream(int device, Faults faults)
    : device_(device), faults_(std::move(faults)) {
  queue_.reserve(1024);
  thread_ = std::thread([this] { Run(); });
}

FakeHipStream::~FakeHipStream() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void FakeHipStream::Enqueue(std::shared_ptr<const FakeHipNodes> nodes) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (queue_.size() == queue_.capacity()) {
      queue_.erase(queue_.begin(), queue_.begin() + static_cast<ptrdiff_t>(head_));
      head_ = 0;
    }
    queue_.push_back(std::move(nodes));
  }
  changed_.notify_all();
}

void FakeHipStream::Wait() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return IsEmpty() && !busy_; });
}

bool FakeHipStream::IsIdle() {
  std::lock_guard<std::mutex> lock(mutex_);
  return IsEmpty() && !busy_;
}

void FakeHipStream::Run() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stop_ || !IsEmpty(); });
    if (IsEmpty()) return;
    std::shared_ptr<const FakeHipNodes> nodes = std::move(queue_[head_++]);
    if (IsEmpty()) {
      queue_.clear();
      head_ = 0;
    }
    busy_ = true;
    lock.unlock();
    try {
      for (const auto& node : *nodes) {
        if (!faults_.reported() && node->run) node->run();
      }
    } catch (...) {
      faults_.report();
    }
    nodes = nullptr;
    lock.lock();
    busy_ = false;
    if (IsEmpty()) changed_.notify_all();
  }
}

}  // namespace reprise::testing
