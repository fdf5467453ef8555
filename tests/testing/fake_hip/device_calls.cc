// SPDX-License-Identifier: Apache-2.0
// The fake HIP library: errors, release, devices.
#include <algorithm>
#include <cstring>
#include <iterator>

#include "tests/testing/fake_hip/fake_hip_library.h"

namespace reprise::testing::fake_hip {
namespace {

#if FAKE_HIP_ROCM_5_2
constexpr int kVersion = 50221153;  // 5.2.21153
#else
constexpr int kVersion = 70125312;  // 7.1.25312
#endif

bool IsDevice(const State& state, int device) {
  return device >= 0 && device < state.machine.num_devices;
}
struct ErrorText {
  int error;
  const char* name;
  const char* text;
};
constexpr ErrorText kErrorTexts[] = {
    {kSuccess, "hipSuccess", "no error"},
    {kInvalidValue, "hipErrorInvalidValue", "invalid argument"},
    {kOutOfMemory, "hipErrorOutOfMemory", "out of memory"},
    {kInvalidConfiguration, "hipErrorInvalidConfiguration", "invalid configuration argument"},
    {kNoDevice, "hipErrorNoDevice", "no ROCm-capable device is detected"},
    {kInvalidDevice, "hipErrorInvalidDevice", "invalid device ordinal"},
    {kInvalidImage, "hipErrorInvalidImage", "device kernel image is invalid"},
    {209, "hipErrorNoBinaryForGpu", "no kernel image is available for execution on the device"},
    {kInvalidHandle, "hipErrorInvalidHandle", "invalid resource handle"},
    {kIllegalState, "hipErrorIllegalState", "the operation cannot be performed in this state"},
    {kNotFound, "hipErrorNotFound", "named symbol not found"},
    {kNotReady, "hipErrorNotReady", "device not ready"},
    {kLaunchFailure, "hipErrorLaunchFailure", "unspecified launch failure"},
    {kCaptureUnsupported, "hipErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {kCaptureInvalidated, "hipErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {kCaptureWrongThread, "hipErrorStreamCaptureWrongThread",
     "attempt to terminate a thread-local capture sequence from another thread"},
};

const ErrorText& Find(int error) {
  static constexpr ErrorText kUnknown = {-1, "hipErrorUnknown", "unknown error"};
  const auto* found = std::find_if(std::begin(kErrorTexts), std::end(kErrorTexts),
                                   [error](const ErrorText& e) { return e.error == error; });
  return found == std::end(kErrorTexts) ? kUnknown : *found;
}

int WriteProperties(Call& call, char* properties, int device, size_t name_offset) {
  if (!IsDevice(call.state, device)) return call.Return(kInvalidDevice);
  std::strcpy(properties, call.state.machine.name);
  std::strcpy(properties + name_offset, call.state.machine.architecture);
  return call.Return(kSuccess);
}

}  // namespace

FAKE_HIP_EXPORT const char* hipGetErrorName(int error) { return Find(error).name; }

FAKE_HIP_EXPORT const char* hipGetErrorString(int error) {
#if FAKE_HIP_ROCM_5_2
  return Find(error).name;
#else
  return Find(error).text;
#endif
}

FAKE_HIP_EXPORT int hipGetLastError() {
  const int error = ThisThread().last_error;
  ThisThread().last_error = kSuccess;
  return error;
}

FAKE_HIP_EXPORT int hipRuntimeGetVersion(int* version) {
  FAKE_HIP_CALL(hipRuntimeGetVersion);
  *version = kVersion;
  return call.Return(kSuccess);
}

FAKE_HIP_EXPORT int hipGetDeviceCount(int* count) {
  FAKE_HIP_CALL(hipGetDeviceCount);
  if (call.state.machine.num_devices == 0) return call.Return(kNoDevice);
  *count = call.state.machine.num_devices;
  return call.Return(kSuccess);
}

FAKE_HIP_EXPORT int hipDeviceGetAttribute(int* value, int attribute, int device) {
  FAKE_HIP_CALL(hipDeviceGetAttribute);
  const FakeHipMachine& machine = call.state.machine;
  if (!IsDevice(call.state, device)) return call.Return(kInvalidDevice);
  switch (attribute) {
    case 63:  // hipDeviceAttributeMultiprocessorCount
      *value = machine.num_multiprocessors;
      return call.Return(kSuccess);
    case 74:     // hipDeviceAttributeMaxSharedMemoryPerBlock
    case 10002:  // hipDeviceAttributeMaxSharedMemoryPerMultiprocessor
      *value = machine.shared_bytes;
      return call.Return(kSuccess);
    case 87:  // hipDeviceAttributeWarpSize
      *value = machine.warp_size;
      return call.Return(kSuccess);
    default:
      return call.Return(kInvalidValue);
  }
}

FAKE_HIP_EXPORT int hipDeviceGetName(char* name, int bytes, int device) {
  FAKE_HIP_CALL(hipDeviceGetName);
  if (!IsDevice(call.state, device)) return call.Return(kInvalidDevice);
  std::strncpy(name, call.state.machine.name, static_cast<size_t>(bytes));
  return call.Return(kSuccess);
}

FAKE_HIP_EXPORT int hipDeviceTotalMem(size_t* bytes, int device) {
  FAKE_HIP_CALL(hipDeviceTotalMem);
  if (!IsDevice(call.state, device)) return call.Return(kInvalidDevice);
  *bytes = call.state.machine.total_bytes;
  return call.Return(kSuccess);
}

FAKE_HIP_EXPORT int hipGetDeviceProperties(char* properties, int device) {
  FAKE_HIP_CALL(hipGetDeviceProperties);
  std::memset(properties, 0, 792);
  return WriteProperties(call, properties, device, 396);
}

#if !FAKE_HIP_ROCM_5_2
FAKE_HIP_EXPORT int hipGetDevicePropertiesR0600(char* properties, int device) {
  FAKE_HIP_CALL(hipGetDevicePropertiesR0600);
  std::memset(properties, 0, 1472);
  return WriteProperties(call, properties, device, 1160);
}
#endif

FAKE_HIP_EXPORT int hipGetDevice(int* device) {
  FAKE_HIP_CALL(hipGetDevice);
  *device = ThisThread().device;
  return call.Return(kSuccess);
}

FAKE_HIP_EXPORT int hipSetDevice(int device) {
  FAKE_HIP_CALL(hipSetDevice);
  if (!IsDevice(call.state, device)) return call.Return(kInvalidDevice);
  ThisThread().device = device;
  return call.Return(kSuccess);
}

}  // namespace reprise::testing::fake_hip
