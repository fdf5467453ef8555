// SPDX-License-Identifier: Apache-2.0
// The real hip Device over the fake HIP library, so that everything above a Device runs on
// DeviceKind::kHip without a GPU: dlopen, GpuDevice, capture and replay are the ones that serve,
// only the library's other side is not.
//
//   ASSERT_OK_AND_ASSIGN(auto device, MakeFakeHipDevice());
//   auto engine = engine::DecodeEngine::Create(*device, ...);
#ifndef REPRISE_TESTS_TESTING_FAKE_HIP_FAKE_HIP_DEVICE_H_
#define REPRISE_TESTS_TESTING_FAKE_HIP_FAKE_HIP_DEVICE_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/device.h"
#include "tests/testing/fake_hip/fake_hip.h"

namespace reprise::testing {

enum class FakeHipRelease { kCurrent, kRocm52 };

// Where the library of a release was built, and one that lacks most calls.
std::string FakeHipPath(FakeHipRelease release = FakeHipRelease::kCurrent);
std::string LackingHipPath();

// The test's calls of a fake library (fake_hip.h). One instance of a library per process, whoever
// opened it.
class FakeHip {
 public:
  explicit FakeHip(FakeHipRelease release = FakeHipRelease::kCurrent);
  void Reset() { reset_(); }
  FakeHipMachine& machine() { return *get_machine_(); }
  FakeHipCounts counts() const {
    FakeHipCounts counts;
    get_counts_(&counts);
    return counts;
  }
  int CountCalls(const char* call) const { return count_calls_(call); }
  void Fail(const char* call, int error) { fail_(call, error); }

 private:
  FakeHipReset reset_ = nullptr;
  FakeHipGetMachine get_machine_ = nullptr;
  FakeHipGetCounts get_counts_ = nullptr;
  FakeHipCountCalls count_calls_ = nullptr;
  FakeHipFail fail_ = nullptr;
};

// The bytes of a code object with these kernels, for KernelImage::hip_code_objects. Kernels without
// a function are left out. Outlives the modules that are loaded from it.
class FakeHipCode {
 public:
  // `architecture`: as FakeHipCodeObject's; "" for every device.
  explicit FakeHipCode(std::span<const runtime::KernelDef> kernels, std::string architecture = "");
  FakeHipCode(const FakeHipCode&) = delete;
  FakeHipCode& operator=(const FakeHipCode&) = delete;
  std::span<const std::byte> bytes() const { return std::as_bytes(std::span(&object_, 1)); }

 private:
  const std::string architecture_;
  std::vector<std::string> names_;
  std::vector<FakeHipKernel> kernels_;
  FakeHipCodeObject object_;
};

struct FakeHipDeviceOptions {
  FakeHipRelease release = FakeHipRelease::kCurrent;
  int ordinal = 0;
  // Kernels that a loaded image gets instead of its own host functions of the same names, or beside
  // them: GPU kernels under an emulator, for instance.
  std::vector<runtime::KernelDef> kernels = {};
  // Whether a loaded image gets its own host functions, but for those that are native to the host
  // device ("_native_" in the name) and that no GPU would have. Such a device has no matrix unit.
  bool host_functions = true;
};

// A hip device whose Load gives every image a fake code object, as the options say, in place of the
// code that the image carries for HIP. Errors: the hip device's.
absl::StatusOr<std::unique_ptr<runtime::Device>> MakeFakeHipDevice(
    const FakeHipDeviceOptions& options = {});

}  // namespace reprise::testing

#endif  // REPRISE_TESTS_TESTING_FAKE_HIP_FAKE_HIP_DEVICE_H_
