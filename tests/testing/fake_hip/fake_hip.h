// SPDX-License-Identifier: Apache-2.0
// What tests and the fake HIP library (fake_hip_library.h) agree on: what counts as device code,
// and the exported calls by which a test sets up the machine, injects errors and counts. The
// library is opened at run time like the real one; nothing links it.
//
// The fake runs kernels as host functions, one thread per stream, the blocks of a launch one after
// another in an order that changes from launch to launch. It is strict where the real library may
// be: mapped memory has another address on the device, fresh memory is poisoned, work of one
// device's stream never runs another device's function, a capture is spoilt by what the HIP
// reference forbids in it, and after a fault every call fails.
#ifndef REPRISE_TESTS_TESTING_FAKE_HIP_FAKE_HIP_H_
#define REPRISE_TESTS_TESTING_FAKE_HIP_FAKE_HIP_H_

#include <cstddef>

#include "runtime/device.h"

namespace reprise::testing {

// A kernel of a code object. It sees what a kernel of the host device sees.
struct FakeHipKernel {
  const char* name = nullptr;
  runtime::HostKernelFn run = nullptr;
  size_t args_bytes = 0;  // 0: any size is taken
  size_t static_shared_bytes = 0;
};

inline constexpr char kFakeHipMagic[16] = "fake HIP code 1";

// What the bytes of a fake code object are: this struct. It and what it points at outlive the
// module.
struct FakeHipCodeObject {
  char magic[16] = {};                 // kFakeHipMagic
  const char* architecture = nullptr;  // "gfx942"; null: every device
  const FakeHipKernel* kernels = nullptr;
  size_t num_kernels = 0;
};

// The machine that the library pretends to be. All of its devices are alike and share one memory.
struct FakeHipMachine {
  int num_devices = 2;  // 0: hipGetDeviceCount says hipErrorNoDevice
  const char* name = "Fake Instinct";
  const char* architecture = "gfx942:sramecc+:xnack-";
  int num_multiprocessors = 4;
  int warp_size = 64;
  int shared_bytes = 64 << 10;
  size_t total_bytes = size_t{2} << 30;
  size_t bytes_per_graph = 4096;  // that an executable graph takes
  // What loading code without a part for the device says: hipErrorNoBinaryForGpu, or
  // hipErrorInvalidImage as newer releases do.
  int no_code_error = 209;
};

// What is alive.
struct FakeHipCounts {
  int allocations = 0;
  int mapped = 0;
  int streams = 0;
  int graphs = 0;
  int execs = 0;
  int modules = 0;
};

// Exported by the library under these names, beside HIP's own.
extern "C" {
// Joins every stream, frees everything, and goes back to a machine as above without faults.
// REQUIRES: no call in flight.
using FakeHipReset = void (*)();
// To be changed between calls.
using FakeHipGetMachine = FakeHipMachine* (*)();
using FakeHipGetCounts = void (*)(FakeHipCounts* counts);
// Calls of this name since the reset.
using FakeHipCountCalls = int (*)(const char* call);
// The next call of this name does nothing and returns `error`.
using FakeHipFail = void (*)(const char* call, int error);
}
inline constexpr char kFakeHipReset[] = "reprise_fake_hip_reset";
inline constexpr char kFakeHipGetMachine[] = "reprise_fake_hip_machine";
inline constexpr char kFakeHipGetCounts[] = "reprise_fake_hip_counts";
inline constexpr char kFakeHipCountCalls[] = "reprise_fake_hip_calls";
inline constexpr char kFakeHipFail[] = "reprise_fake_hip_fail";

}  // namespace reprise::testing

#endif  // REPRISE_TESTS_TESTING_FAKE_HIP_FAKE_HIP_H_
