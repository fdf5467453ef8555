// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/instrumented_device.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <utility>

#include "runtime/status_macros.h"

namespace reprise::testing {

using runtime::CapturedGraph;
using runtime::Kernel;
using runtime::LaunchShape;
using runtime::MappedPointers;
using runtime::Stream;

class InstrumentedStream final : public Stream {
 public:
  InstrumentedStream(InstrumentedDevice& device, std::unique_ptr<Stream> inner)
      : device_(device), inner_(std::move(inner)) {}

  absl::Status Launch(const Kernel& kernel, const LaunchShape& shape, const void* args,
                      size_t args_bytes) override {
    REPRISE_RETURN_IF_ERROR(device_.BeginCall());
    if (!capturing_) {
      ++device_.launches_;
      const auto* bytes = static_cast<const std::byte*>(args);
      std::lock_guard<std::mutex> lock(device_.mutex_);
      device_.recorded_.push_back({std::string(kernel.name), {bytes, bytes + args_bytes}});
    }
    return inner_->Launch(kernel, shape, args, args_bytes);
  }
  absl::Status EnqueueHost(std::function<void()> work) override {
    REPRISE_RETURN_IF_ERROR(device_.BeginCall());
    Copied();
    return inner_->EnqueueHost(std::move(work));
  }
  absl::Status CopyToDevice(void* dst, const void* src, size_t bytes) override {
    REPRISE_RETURN_IF_ERROR(device_.BeginCall());
    Copied();
    return inner_->CopyToDevice(dst, src, bytes);
  }
  absl::Status CopyToHost(void* dst, const void* src, size_t bytes) override {
    REPRISE_RETURN_IF_ERROR(device_.BeginCall());
    Copied();
    return inner_->CopyToHost(dst, src, bytes);
  }
  absl::Status Fill(void* dst, unsigned char value, size_t bytes) override {
    REPRISE_RETURN_IF_ERROR(device_.BeginCall());
    Copied();
    return inner_->Fill(dst, value, bytes);
  }
  absl::Status Synchronize() override {
    if (const absl::Status failed = device_.BeginCall(); !failed.ok()) {
      // Of a device whose wait fails nothing runs any more.
      inner_->Synchronize().IgnoreError();
      return failed;
    }
    ++device_.waits_;
    return inner_->Synchronize();
  }
  absl::Status Query() override { return inner_->Query(); }
  bool WaitUntil(const std::function<bool()>& done,
                 std::chrono::steady_clock::time_point deadline) override {
    return inner_->WaitUntil(done, deadline);
  }
  absl::Status BeginCapture() override {
    REPRISE_RETURN_IF_ERROR(device_.BeginCall());
    capturing_ = true;
    return inner_->BeginCapture();
  }
  absl::StatusOr<std::unique_ptr<CapturedGraph>> EndCapture() override;
  void AbortCapture() override {
    capturing_ = false;
    inner_->AbortCapture();
  }
  void* native_handle() const override { return inner_->native_handle(); }

  Stream& inner() { return *inner_; }

 private:
  void Copied() {
    if (!capturing_) ++device_.copies_;
  }
  InstrumentedDevice& device_;
  const std::unique_ptr<Stream> inner_;
  bool capturing_ = false;
};

class InstrumentedGraph final : public CapturedGraph {
 public:
  InstrumentedGraph(InstrumentedDevice& device, std::unique_ptr<CapturedGraph> inner)
      : device_(device), inner_(std::move(inner)) {}

  absl::Status Replay(Stream& stream) override {
    REPRISE_RETURN_IF_ERROR(device_.BeginCall());
    ++device_.replays_;
    {
      std::lock_guard<std::mutex> lock(device_.mutex_);
      if (device_.num_good_replays_ == 0) REPRISE_RETURN_IF_ERROR(device_.replay_status_);
      device_.num_good_replays_ = std::max(device_.num_good_replays_ - 1, 0);
    }
    return inner_->Replay(static_cast<InstrumentedStream&>(stream).inner());
  }
  int num_kernel_nodes() const override { return inner_->num_kernel_nodes(); }
  int num_other_nodes() const override { return inner_->num_other_nodes(); }
  size_t device_bytes() const override { return inner_->device_bytes(); }

 private:
  InstrumentedDevice& device_;
  const std::unique_ptr<CapturedGraph> inner_;
};

absl::StatusOr<std::unique_ptr<CapturedGraph>> InstrumentedStream::EndCapture() {
  capturing_ = false;
  if (const absl::Status failed = device_.BeginCall(); !failed.ok()) {
    inner_->AbortCapture();
    return failed;
  }
  REPRISE_ASSIGN_OR_RETURN(auto graph, inner_->EndCapture());
  return std::make_unique<InstrumentedGraph>(device_, std::move(graph));
}

DeviceCalls InstrumentedDevice::calls() const {
  return {.allocations = allocations_,
          .frees = frees_,
          .launches = launches_,
          .replays = replays_,
          .copies = copies_,
          .waits = waits_};
}

std::vector<RecordedLaunch> InstrumentedDevice::TakeLaunches() {
  std::lock_guard<std::mutex> lock(mutex_);
  return std::exchange(recorded_, {});
}

void InstrumentedDevice::FailReplays(const absl::Status& status, int num_good) {
  std::lock_guard<std::mutex> lock(mutex_);
  replay_status_ = status;
  num_good_replays_ = num_good;
}

void InstrumentedDevice::FailCall(int call, const absl::Status& status) {
  std::lock_guard<std::mutex> lock(mutex_);
  call_status_ = status;
  calls_left_ = call;
}

bool InstrumentedDevice::call_failed() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return calls_left_ == 0 && !call_status_.ok();
}

absl::Status InstrumentedDevice::BeginCall() const {
  std::lock_guard<std::mutex> lock(mutex_);
  if (calls_left_ == 0 || --calls_left_ > 0) return absl::OkStatus();
  return call_status_;
}

absl::StatusOr<size_t> InstrumentedDevice::FreeBytes() const {
  REPRISE_RETURN_IF_ERROR(BeginCall());
  return inner_->FreeBytes();
}

absl::StatusOr<std::unique_ptr<runtime::KernelModule>> InstrumentedDevice::Load(
    const runtime::KernelImage& image) {
  REPRISE_RETURN_IF_ERROR(BeginCall());
  return inner_->Load(image);
}

absl::StatusOr<void*> InstrumentedDevice::Allocate(size_t bytes) {
  REPRISE_RETURN_IF_ERROR(BeginCall());
  ++allocations_;
  REPRISE_ASSIGN_OR_RETURN(void* data, inner_->Allocate(bytes));
  device_bytes_ += bytes;
  std::lock_guard<std::mutex> lock(mutex_);
  sizes_[data] = bytes;
  return data;
}

void InstrumentedDevice::Free(void* data) {
  ++frees_;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    device_bytes_ -= sizes_[data];
    sizes_.erase(data);
  }
  inner_->Free(data);
}

absl::StatusOr<MappedPointers> InstrumentedDevice::AllocateMapped(size_t bytes) {
  REPRISE_RETURN_IF_ERROR(BeginCall());
  ++allocations_;
  REPRISE_ASSIGN_OR_RETURN(const MappedPointers pointers, inner_->AllocateMapped(bytes));
  mapped_bytes_ += bytes;
  std::lock_guard<std::mutex> lock(mutex_);
  sizes_[pointers.host] = bytes;
  return pointers;
}

void InstrumentedDevice::FreeMapped(const MappedPointers& pointers) {
  ++frees_;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    mapped_bytes_ -= sizes_[pointers.host];
    sizes_.erase(pointers.host);
  }
  inner_->FreeMapped(pointers);
}

absl::StatusOr<std::unique_ptr<Stream>> InstrumentedDevice::CreateStream() {
  REPRISE_RETURN_IF_ERROR(BeginCall());
  REPRISE_ASSIGN_OR_RETURN(auto stream, inner_->CreateStream());
  return std::make_unique<InstrumentedStream>(*this, std::move(stream));
}

}  // namespace reprise::testing
