// SPDX-License-Identifier: Apache-2.0
// The inside of the fake HIP library, which the files of its calls (*_calls.cc) share: what is
// alive, and what every call does first. The calls mean what the HIP Runtime API Reference says, as
// far as Reprise makes use of it. Numbers are written out, so that a wrong one in
// runtime/hip/hip_api.h shows as a failing test.
//
// Compiled twice: as the library of a current release, and with FAKE_HIP_ROCM_5_2 as that of ROCm
// 5.2, which numbers node types from 1, knows hipDeviceProp_t in its older layout only, has no
// texts for errors, and no hipGraphUpload.
#ifndef REPRISE_TESTS_TESTING_FAKE_HIP_FAKE_HIP_LIBRARY_H_
#define REPRISE_TESTS_TESTING_FAKE_HIP_FAKE_HIP_LIBRARY_H_

#include <atomic>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tests/testing/fake_hip/fake_hip.h"
#include "tests/testing/fake_hip/fake_hip_stream.h"

#define FAKE_HIP_EXPORT extern "C" __attribute__((visibility("default")))

namespace reprise::testing::fake_hip {

// hipError_t.
enum Error : int {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kInvalidConfiguration = 9,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kInvalidImage = 200,
  kInvalidHandle = 400,
  kIllegalState = 401,
  kNotFound = 500,
  kNotReady = 600,
  kLaunchFailure = 719,
  kCaptureUnsupported = 900,
  kCaptureInvalidated = 901,
  kCaptureWrongThread = 908,
};

// Host memory at a second address, the device's.
struct Mapping {
  size_t bytes = 0;
  void* host = nullptr;
  void* device = nullptr;
};

struct Module {
  int device = 0;
  const FakeHipCodeObject* code = nullptr;
};

struct Function {
  const Module* module = nullptr;
  const FakeHipKernel* kernel = nullptr;
};

struct Graph {
  FakeHipNodes nodes;
};

// An executable graph.
struct Exec {
  std::shared_ptr<const FakeHipNodes> nodes;
  size_t bytes = 0;
};

// What is alive, by handle or address, and what tests asked for.
struct State {
  std::mutex mutex;
  std::atomic<int> fault{0};
  FakeHipMachine machine;
  size_t used_bytes = 0;
  size_t num_launches = 0;
  std::map<void*, size_t> allocations;
  std::map<void*, Mapping> mapped;
  std::map<void*, std::shared_ptr<FakeHipStream>> streams;
  std::map<void*, std::unique_ptr<Graph>> graphs;
  std::map<void*, std::unique_ptr<Exec>> execs;
  std::map<void*, std::unique_ptr<Module>> modules;
  std::map<void*, std::unique_ptr<Function>> functions;
  // Made, by name. Waiting for a step may call the one that is here from the start, and allocates
  // nothing.
  std::map<std::string, int, std::less<>> calls = {{"hipStreamQuery", 0}};
  std::map<std::string, int, std::less<>> failures;  // of the next call, by name
};
State& TheState();

struct Thread {
  int device = 0;
  int last_error = kSuccess;
};
Thread& ThisThread();

inline size_t FreeBytes(const State& state) { return state.machine.total_bytes - state.used_bytes; }

// Frees both views (memory_calls.cc).
void Unmap(const Mapping& mapping);

// One call: holds the lock, counts, and knows the error that the call has to return at once.
class Call {
 public:
  explicit Call(const char* name);
  bool failed() const { return error_ != kSuccess; }
  int Return(int error) {
    if (error != kSuccess) ThisThread().last_error = error;
    return error;
  }
  int Return() { return Return(error_); }
  // Fails a call that a capture of this thread forbids, and spoils that capture.
  bool ForbiddenInCapture();
  // Null, and the call has failed, without such a stream.
  std::shared_ptr<FakeHipStream> Find(void* stream);
  // Waits without the lock; what a call finds afterwards is the fault, if any.
  int WaitFor(const std::vector<std::shared_ptr<FakeHipStream>>& streams);
  int WaitForAll();
  // Runs a node in stream order, or records it, and returns.
  int Submit(void* stream, FakeHipNodeType type, std::function<void()> run);

  State& state;

 private:
  std::unique_lock<std::mutex> lock_;
  int error_ = kSuccess;
};

#define FAKE_HIP_CALL(name) \
  Call call(#name);         \
  if (call.failed()) return call.Return()
#define FAKE_HIP_CALL_FORBIDDEN_IN_CAPTURE(name) \
  FAKE_HIP_CALL(name);                           \
  if (call.ForbiddenInCapture()) return call.Return()

}  // namespace reprise::testing::fake_hip

#endif  // REPRISE_TESTS_TESTING_FAKE_HIP_FAKE_HIP_LIBRARY_H_
