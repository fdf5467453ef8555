// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/fake_hip/fake_hip_device.h"

#include <dlfcn.h>

#include <cstring>
#include <deque>
#include <mutex>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "runtime/status_macros.h"

namespace reprise::testing {
namespace {

using runtime::KernelDef;
using runtime::KernelImage;

template <typename Function>
void Resolve(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  if (*function == nullptr) throw std::runtime_error(std::string("no symbol ") + name);
}

// Does what the device inside it does, and swaps the code of what is loaded.
class FakeHipDevice final : public runtime::Device {
 public:
  FakeHipDevice(FakeHipDeviceOptions options, std::unique_ptr<runtime::Device> inner)
      : options_(std::move(options)), inner_(std::move(inner)), properties_(inner_->properties()) {
    // The host's functions have none of the kernels that use matrix units.
    if (options_.host_functions) properties_.matrix_unit = runtime::MatrixUnit::kNone;
  }

  const runtime::DeviceProperties& properties() const override { return properties_; }
  absl::StatusOr<void*> Allocate(size_t bytes) override { return inner_->Allocate(bytes); }
  void Free(void* data) override { inner_->Free(data); }
  absl::StatusOr<runtime::MappedPointers> AllocateMapped(size_t bytes) override {
    return inner_->AllocateMapped(bytes);
  }
  void FreeMapped(const runtime::MappedPointers& pointers) override {
    inner_->FreeMapped(pointers);
  }
  absl::StatusOr<size_t> FreeBytes() const override { return inner_->FreeBytes(); }
  absl::StatusOr<std::unique_ptr<runtime::Stream>> CreateStream() override {
    return inner_->CreateStream();
  }
  absl::StatusOr<std::unique_ptr<runtime::Stream>> WrapStream(void* native) override {
    return inner_->WrapStream(native);
  }
  absl::StatusOr<std::unique_ptr<runtime::KernelModule>> Load(const KernelImage& image) override;

 private:
  std::vector<KernelDef> KernelsFor(const KernelImage& image) const;

  const FakeHipDeviceOptions options_;
  std::mutex mutex_;
  std::deque<FakeHipCode> code_ ABSL_GUARDED_BY(mutex_);  // addresses stay
  const std::unique_ptr<runtime::Device> inner_;          // unloads from the others
  runtime::DeviceProperties properties_;
};

std::vector<KernelDef> FakeHipDevice::KernelsFor(const KernelImage& image) const {
  std::vector<KernelDef> kernels = options_.kernels;
  if (!options_.host_functions) return kernels;
  for (const KernelDef& kernel : image.kernels) {
    bool replaced = false;
    for (const KernelDef& own : options_.kernels) replaced |= own.name == kernel.name;
    if (!replaced && kernel.name.find("_native_") == std::string_view::npos)
      kernels.push_back(kernel);
  }
  return kernels;
}

absl::StatusOr<std::unique_ptr<runtime::KernelModule>> FakeHipDevice::Load(
    const KernelImage& image) {
  const std::vector<KernelDef> kernels = KernelsFor(image);
  std::span<const std::byte> code;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    code = code_.emplace_back(kernels).bytes();
  }
  KernelImage swapped = image;
  swapped.hip_code_objects = {&code, 1};
  return inner_->Load(swapped);
}

}  // namespace

std::string FakeHipPath(FakeHipRelease release) {
  return release == FakeHipRelease::kCurrent ? REPRISE_FAKE_HIP : REPRISE_FAKE_HIP_ROCM_5_2;
}

std::string LackingHipPath() { return REPRISE_LACKING_HIP; }

FakeHip::FakeHip(FakeHipRelease release) {
  // Stays open, as the library does that the device opens.
  void* library = dlopen(FakeHipPath(release).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw std::runtime_error(dlerror());
  Resolve(library, kFakeHipReset, &reset_);
  Resolve(library, kFakeHipGetMachine, &get_machine_);
  Resolve(library, kFakeHipGetCounts, &get_counts_);
  Resolve(library, kFakeHipCountCalls, &count_calls_);
  Resolve(library, kFakeHipFail, &fail_);
}

FakeHipCode::FakeHipCode(std::span<const KernelDef> kernels, std::string architecture)
    : architecture_(std::move(architecture)) {
  names_.reserve(kernels.size());  // names must not move
  for (const KernelDef& kernel : kernels) {
    if (kernel.host == nullptr) continue;
    names_.emplace_back(kernel.name);
    kernels_.push_back({.name = names_.back().c_str(), .run = kernel.host});
  }
  std::memcpy(object_.magic, kFakeHipMagic, sizeof(kFakeHipMagic));
  object_.architecture = architecture_.empty() ? nullptr : architecture_.c_str();
  object_.kernels = kernels_.data();
  object_.num_kernels = kernels_.size();
}

absl::StatusOr<std::unique_ptr<runtime::Device>> MakeFakeHipDevice(
    const FakeHipDeviceOptions& options) {
  REPRISE_ASSIGN_OR_RETURN(auto inner,
                           runtime::Device::Create({.kind = runtime::DeviceKind::kHip,
                                                    .ordinal = options.ordinal,
                                                    .hip_library = FakeHipPath(options.release)}));
  return std::make_unique<FakeHipDevice>(options, std::move(inner));
}

}  // namespace reprise::testing
