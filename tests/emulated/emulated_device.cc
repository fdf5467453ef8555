// SPDX-License-Identifier: Apache-2.0
#include "tests/emulated/emulated_device.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/device/traits.h"
#include "runtime/host/host_executor.h"
#include "runtime/host/host_stream.h"
#include "runtime/status_macros.h"
#include "tests/emulated/emulated_kernels.h"

namespace reprise::testing {
namespace {

// The host device's memory and loader; streams of its own, which check launches against the
// properties of the unit.
class EmulatedDevice final : public runtime::Device {
 public:
  EmulatedDevice(std::unique_ptr<runtime::Device> host,
                 std::unique_ptr<runtime::HostExecutor> executor, runtime::MatrixUnit unit,
                 const runtime::TestDelays& delays)
      : host_(std::move(host)),
        executor_(std::move(executor)),
        properties_(host_->properties()),
        max_delay_us_(delays.max_us),
        next_delay_seed_(delays.seed) {
    const kernels::DeviceTraits traits = kernels::TraitsOf(unit);
    properties_.name = absl::StrCat("emulated ", NameOf(unit));
    properties_.warp_size = traits.warp_size;
    properties_.matrix_unit = unit;
    properties_.max_shared_bytes = static_cast<size_t>(traits.shared_bytes);
    properties_.shared_bytes_per_multiprocessor = static_cast<size_t>(traits.shared_bytes);
    // Of every machine, so that grids, and how often a block comes round, are the same everywhere.
    // With one thread it is one: blocks that wait for each other need a thread each.
    properties_.num_multiprocessors = std::min(2, properties_.num_multiprocessors);
    image_.kernels = EmulatedKernels(unit);
  }

  const runtime::DeviceProperties& properties() const override { return properties_; }
  absl::StatusOr<void*> Allocate(size_t bytes) override { return host_->Allocate(bytes); }
  void Free(void* data) override { host_->Free(data); }
  absl::StatusOr<runtime::MappedPointers> AllocateMapped(size_t bytes) override {
    return host_->AllocateMapped(bytes);
  }
  void FreeMapped(const runtime::MappedPointers& pointers) override { host_->FreeMapped(pointers); }
  absl::StatusOr<size_t> FreeBytes() const override { return host_->FreeBytes(); }
  absl::StatusOr<std::unique_ptr<runtime::Stream>> CreateStream() override {
    // The emulator has the blocks of a launch take turns: threads would wait for each other.
    return runtime::CreateHostStream(
        properties_, *executor_,
        {.max_us = max_delay_us_, .seed = next_delay_seed_.fetch_add(1), .one_thread = true});
  }
  absl::StatusOr<std::unique_ptr<runtime::Stream>> WrapStream(void* native) override {
    return host_->WrapStream(native);
  }
  // Whatever image is asked for, its kernels are those of the emulation.
  absl::StatusOr<std::unique_ptr<runtime::KernelModule>> Load(
      const runtime::KernelImage&) override {
    return host_->Load(image_);
  }

 private:
  const std::unique_ptr<runtime::Device> host_;
  const std::unique_ptr<runtime::HostExecutor> executor_;
  runtime::DeviceProperties properties_;
  const int max_delay_us_;
  std::atomic<uint64_t> next_delay_seed_;
  runtime::KernelImage image_;
};

}  // namespace

const char* NameOf(runtime::MatrixUnit unit) {
  switch (unit) {
    case runtime::MatrixUnit::kMma:
      return "mma";
    case runtime::MatrixUnit::kMfma:
      return "mfma";
    case runtime::MatrixUnit::kWmma:
      return "wmma";
    case runtime::MatrixUnit::kNone:
      break;
  }
  return "none";
}

absl::StatusOr<std::unique_ptr<runtime::Device>> CreateEmulatedDevice(
    runtime::MatrixUnit unit, const runtime::DeviceOptions& options,
    const runtime::TestDelays& delays) {
  REPRISE_ASSIGN_OR_RETURN(auto host, runtime::Device::Create(options));
  REPRISE_ASSIGN_OR_RETURN(auto executor,
                           runtime::HostExecutor::Create(host->properties().num_multiprocessors));
  return std::make_unique<EmulatedDevice>(std::move(host), std::move(executor), unit, delays);
}

}  // namespace reprise::testing
