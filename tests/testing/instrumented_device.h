// SPDX-License-Identifier: Apache-2.0
// InstrumentedDevice: a device that does what the one inside it does, and counts: bytes held, and
// every call on its streams outside a capture. Replays, or any one call, can be made to fail. For
// tests of what a step costs, what an engine holds and what it does with a fault.
#ifndef REPRISE_TESTS_TESTING_INSTRUMENTED_DEVICE_H_
#define REPRISE_TESTS_TESTING_INSTRUMENTED_DEVICE_H_

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "runtime/device.h"

namespace reprise::testing {

// Calls so far; those on streams only outside a capture.
struct DeviceCalls {
  int allocations = 0;  // Allocate and AllocateMapped
  int frees = 0;
  int launches = 0;
  int replays = 0;
  int copies = 0;  // copies, fills, host functions
  int waits = 0;   // Synchronize
  bool operator==(const DeviceCalls&) const = default;
};

// A launch outside a capture.
struct RecordedLaunch {
  std::string kernel;
  std::vector<std::byte> args;
};

class InstrumentedDevice final : public runtime::Device {
 public:
  explicit InstrumentedDevice(std::unique_ptr<runtime::Device> inner) : inner_(std::move(inner)) {}

  DeviceCalls calls() const;
  size_t device_bytes() const { return device_bytes_; }  // held by Allocate
  size_t mapped_bytes() const { return mapped_bytes_; }  // held by AllocateMapped
  // Launches since the last call of this.
  std::vector<RecordedLaunch> TakeLaunches();
  // Every replay from here on fails so, the next `num_good` aside, and nothing of it is enqueued.
  void FailReplays(const absl::Status& status, int num_good = 0);
  // The `call`-th call from here on, counted from 1, fails so, once, and does nothing, but for
  // Synchronize, which waits: of all calls of the device, its streams and graphs that may fail, in
  // a capture too, but for polling.
  void FailCall(int call, const absl::Status& status);
  // Whether FailCall's call has been made.
  bool call_failed() const;

  const runtime::DeviceProperties& properties() const override { return inner_->properties(); }
  absl::StatusOr<void*> Allocate(size_t bytes) override;
  void Free(void* data) override;
  absl::StatusOr<runtime::MappedPointers> AllocateMapped(size_t bytes) override;
  void FreeMapped(const runtime::MappedPointers& pointers) override;
  absl::StatusOr<size_t> FreeBytes() const override;
  absl::StatusOr<std::unique_ptr<runtime::Stream>> CreateStream() override;
  absl::StatusOr<std::unique_ptr<runtime::Stream>> WrapStream(void* native) override {
    return inner_->WrapStream(native);
  }
  absl::StatusOr<std::unique_ptr<runtime::KernelModule>> Load(
      const runtime::KernelImage& image) override;

 private:
  friend class InstrumentedStream;
  friend class InstrumentedGraph;

  // What the call that is made now has to fail with, or OK.
  absl::Status BeginCall() const;

  const std::unique_ptr<runtime::Device> inner_;
  std::atomic<int> allocations_{0}, frees_{0}, launches_{0}, replays_{0}, copies_{0}, waits_{0};
  std::atomic<size_t> device_bytes_{0}, mapped_bytes_{0};
  mutable std::mutex mutex_;
  std::unordered_map<void*, size_t> sizes_ ABSL_GUARDED_BY(mutex_);
  std::vector<RecordedLaunch> recorded_ ABSL_GUARDED_BY(mutex_);
  absl::Status replay_status_ ABSL_GUARDED_BY(mutex_);
  int num_good_replays_ ABSL_GUARDED_BY(mutex_) = 0;  // before those that end so
  absl::Status call_status_ ABSL_GUARDED_BY(mutex_);
  mutable int calls_left_ ABSL_GUARDED_BY(mutex_) = 0;  // to that which ends so; 0: it has, or none
};

}  // namespace reprise::testing

#endif  // REPRISE_TESTS_TESTING_INSTRUMENTED_DEVICE_H_
