// SPDX-License-Identifier: Apache-2.0
// The fake HIP library's calls: what each means, by the HIP Runtime API Reference, as far as
// Reprise makes use of it. Numbers are written out, so that a wrong one in runtime/hip_api.h shows
// as a failing test. Compiled twice: as the library of a current release, and with
// FAKE_HIP_ROCM_5_2 as that of ROCm 5.2, which numbers node types from 1, knows hipDeviceProp_t in
// its older layout only, has no texts for errors, and no hipGraphUpload.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "tests/testing/fake_hip/fake_hip.h"
#include "tests/testing/fake_hip/fake_hip_stream.h"

#define FAKE_HIP_EXPORT extern "C" __attribute__((visibility("default")))

namespace reprise::testing {
namespace {

#if FAKE_HIP_ROCM_5_2
constexpr int kVersion = 50221153;  // 5.2.21153
constexpr int kFirstNodeType = 1;
#else
constexpr int kVersion = 70125312;  // 7.1.25312
constexpr int kFirstNodeType = 0;
#endif

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

struct Exec {
  std::shared_ptr<const FakeHipNodes> nodes;
  size_t bytes = 0;
};

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
  std::map<std::string, int, std::less<>> calls;
  std::map<std::string, int, std::less<>> failures;
};

// Never destroyed: streams that a test leaves behind may outlive every static object.
State& TheState() {
  static State* const state = new State;
  return *state;
}

struct Thread {
  int device = 0;
  int last_error = kSuccess;
};

Thread& ThisThread() {
  static thread_local Thread thread;
  return thread;
}

// One call: holds the lock, counts, and knows the error that the call has to return at once.
class Call {
 public:
  explicit Call(const char* name) : state(TheState()), lock_(state.mutex) {
    // Looked up without making a string of the name: a launch allocates nothing.
    const auto count = state.calls.find(std::string_view(name));
    if (count == state.calls.end()) {
      state.calls.emplace(name, 1);
    } else {
      ++count->second;
    }
    const auto failure = state.failures.find(std::string_view(name));
    if (failure == state.failures.end()) {
      error_ = state.fault;
    } else {
      error_ = failure->second;
      state.failures.erase(failure);
    }
  }
  bool failed() const { return error_ != kSuccess; }
  int Return(int error) {
    if (error != kSuccess) ThisThread().last_error = error;
    return error;
  }
  int Return() { return Return(error_); }
  // Fails a call that a capture of this thread forbids, and spoils that capture.
  bool ForbiddenInCapture() {
    bool forbidden = false;
    for (auto& [handle, stream] : state.streams) {
      if (stream->capture == nullptr || stream->capture->thread != std::this_thread::get_id())
        continue;
      stream->capture->spoilt = true;
      forbidden = true;
    }
    if (forbidden) error_ = kCaptureUnsupported;
    return forbidden;
  }
  std::shared_ptr<FakeHipStream> Find(void* stream) {
    const auto it = state.streams.find(stream);
    if (it != state.streams.end()) return it->second;
    error_ = kInvalidHandle;
    return nullptr;
  }
  // Waits without the lock; what a call finds afterwards is the fault, if any.
  int WaitFor(const std::vector<std::shared_ptr<FakeHipStream>>& streams) {
    lock_.unlock();
    for (const auto& stream : streams) stream->Wait();
    lock_.lock();
    return state.fault;
  }
  int WaitForAll() {
    std::vector<std::shared_ptr<FakeHipStream>> streams;
    for (const auto& [handle, stream] : state.streams) streams.push_back(stream);
    return WaitFor(streams);
  }

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

bool IsDevice(const State& state, int device) {
  return device >= 0 && device < state.machine.num_devices;
}

size_t FreeBytes(const State& state) { return state.machine.total_bytes - state.used_bytes; }

int TypeNumber(FakeHipNodeType type) {
  switch (type) {
    case FakeHipNodeType::kKernel:
      return kFirstNodeType;
    case FakeHipNodeType::kMemcpy:
      return kFirstNodeType + 1;
    case FakeHipNodeType::kMemset:
      return kFirstNodeType + 2;
    case FakeHipNodeType::kEmpty:
      return kFirstNodeType + 5;
  }
  return -1;
}

// Runs the node in stream order, or records it.
int Submit(Call& call, void* stream_handle, FakeHipNodeType type, std::function<void()> run) {
  const auto stream = call.Find(stream_handle);
  if (stream == nullptr) return call.Return();
  auto node = std::make_shared<FakeHipNode>();
  node->type = type;
  node->run = std::move(run);
  if (stream->capture != nullptr) {
    if (stream->capture->spoilt) return call.Return(kCaptureInvalidated);
    stream->capture->nodes.push_back(std::move(node));
  } else {
    stream->Enqueue(std::make_shared<const FakeHipNodes>(FakeHipNodes{std::move(node)}));
  }
  return call.Return(kSuccess);
}

// The same pages at two addresses, as a device sees host memory somewhere else.
bool MapTwice(size_t bytes, Mapping* mapping) {
  const int file = memfd_create("fake_hip", MFD_CLOEXEC);
  if (file < 0) return false;
  mapping->bytes = bytes;
  if (ftruncate(file, static_cast<off_t>(bytes)) == 0) {
    mapping->host = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    mapping->device = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  }
  close(file);
  const bool host = mapping->host != nullptr && mapping->host != MAP_FAILED;
  const bool device = mapping->device != nullptr && mapping->device != MAP_FAILED;
  if (host && device) return true;
  if (host) munmap(mapping->host, bytes);
  if (device) munmap(mapping->device, bytes);
  return false;
}

void Unmap(const Mapping& mapping) {
  munmap(mapping.host, mapping.bytes);
  munmap(mapping.device, mapping.bytes);
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

// --- For tests: fake_hip.h. ---

FAKE_HIP_EXPORT void reprise_fake_hip_reset() {
  State& state = TheState();
  state.streams.clear();
  std::lock_guard<std::mutex> lock(state.mutex);
  for (const auto& [data, bytes] : state.allocations) std::free(data);
  for (const auto& [host, mapping] : state.mapped) Unmap(mapping);
  state.allocations.clear();
  state.mapped.clear();
  state.graphs.clear();
  state.execs.clear();
  state.functions.clear();
  state.modules.clear();
  state.calls.clear();
  state.failures.clear();
  state.used_bytes = 0;
  state.fault = kSuccess;
  state.machine = {};
}

FAKE_HIP_EXPORT FakeHipMachine* reprise_fake_hip_machine() { return &TheState().machine; }

FAKE_HIP_EXPORT void reprise_fake_hip_counts(FakeHipCounts* counts) {
  State& state = TheState();
  std::lock_guard<std::mutex> lock(state.mutex);
  *counts = {.allocations = static_cast<int>(state.allocations.size()),
             .mapped = static_cast<int>(state.mapped.size()),
             .streams = static_cast<int>(state.streams.size()),
             .graphs = static_cast<int>(state.graphs.size()),
             .execs = static_cast<int>(state.execs.size()),
             .modules = static_cast<int>(state.modules.size())};
}

FAKE_HIP_EXPORT int reprise_fake_hip_calls(const char* call) {
  State& state = TheState();
  std::lock_guard<std::mutex> lock(state.mutex);
  const auto it = state.calls.find(std::string_view(call));
  return it == state.calls.end() ? 0 : it->second;
}

FAKE_HIP_EXPORT void reprise_fake_hip_fail(const char* call, int error) {
  State& state = TheState();
  std::lock_guard<std::mutex> lock(state.mutex);
  state.failures[call] = error;
}

// --- Errors and devices. ---

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

// --- Memory. ---

FAKE_HIP_EXPORT int hipMalloc(void** data, size_t bytes) {
  FAKE_HIP_CALL_FORBIDDEN_IN_CAPTURE(hipMalloc);
  if (bytes > FreeBytes(call.state)) return call.Return(kOutOfMemory);
  // The exact size, so that AddressSanitizer sees the first byte beyond it.
  if (posix_memalign(data, 256, bytes) != 0) return call.Return(kOutOfMemory);
  std::memset(*data, 0xcd, std::min<size_t>(bytes, size_t{64} << 20));
  call.state.allocations[*data] = bytes;
  call.state.used_bytes += bytes;
  return call.Return(kSuccess);
}

FAKE_HIP_EXPORT int hipFree(void* data) {
  FAKE_HIP_CALL_FORBIDDEN_IN_CAPTURE(hipFree);
  if (data == nullptr) return call.Return(kSuccess);
  if (call.state.allocations.count(data) == 0) return call.Return(kInvalidValue);
  if (const int fault = call.WaitForAll(); fault != kSuccess) return call.Return(fault);
  call.state.used_bytes -= call.state.allocations[data];
  call.state.allocations.erase(data);
  std::free(data);
  return call.Return(kSuccess);
}

FAKE_HIP_EXPORT int hipHostMalloc(void** data, size_t bytes, unsigned flags) {
  FAKE_HIP_CALL_FORBIDDEN_IN_CAPTURE(hipHostMalloc);
  // hipHostMallocMapped, and hipHostMallocCoherent, without which a running kernel and the host do
  // not see each other's writes.
  if ((flags & 0x2) == 0 || (flags & 0x40000000) == 0) return call.Return(kInvalidValue);
  Mapping mapping;
  if (!MapTwice(bytes, &mapping)) return call.Return(kOutOfMemory);
  std::memset(mapping.host, 0xcd, bytes);
  *data = mapping.host;
  call.state.mapped[mapping.host] = mapping;
  return call.Return(kSuccess);
}

FAKE_HIP_EXPORT int hipHostGetDevicePointer(void** device, void* host, unsigned flags) {
  FAKE_HIP_CALL(hipHostGetDevicePointer);
  const auto it = call.state.mapped.find(host);
  if (it == call.state.mapped.end() || flags != 0) return call.Return(kInvalidValue);
  *device = it->second.device;
  return call.Return(kSuccess);
}

FAKE_HIP_EXPORT int hipHostFree(void* data) {
  FAKE_HIP_CALL_FORBIDDEN_IN_CAPTURE(hipHostFree);
  const auto it = call.state.mapped.find(data);
  if (it == call.state.mapped.end()) return call.Return(kInvalidValue);
  if (const int fault = call.WaitForAll(); fault != kSuccess) return call.Return(fault);
  Unmap(call.state.mapped[data]);
  call.state.mapped.erase(data);
  return call.Return(kSuccess);
}

FAKE_HIP_EXPORT int hipMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  FAKE_HIP_CALL(hipMemGetInfo);
  *free_bytes = FreeBytes(call.state);
  *total_bytes = call.state.machine.total_bytes;
  return call.Return(kSuccess);
}

// --- Streams. ---

FAKE_HIP_EXPORT int hipStreamCreateWithFlags(void** stream, unsigned flags) {
  FAKE_HIP_CALL(hipStreamCreateWithFlags);
  if (flags != 1) return call.Return(kInvalidValue);  // hipStreamNonBlocking
  State& state = call.state;
  auto made = std::make_shared<FakeHipStream>(
      ThisThread().device,
      FakeHipStream::Faults{.report = [&state] { state.fault = kLaunchFailure; },
                            .reported = [&state] { return state.fault != kSuccess; }});
  *stream = made.get();
  state.streams[*stream] = std::move(made);
  return call.Return(kSuccess);
}

FAKE_HIP_EXPORT int hipStreamDestroy(void* stream) {
  std::shared_ptr<FakeHipStream> last;  // goes without the lock: its thread may want it
  FAKE_HIP_CALL(hipStreamDestroy);
  last = call.Find(stream);
  if (last == nullptr) return call.Return();
  call.state.streams.erase(stream);
  return call.Return(kSuccess);
}

FAKE_HIP_EXPORT int hipStreamSynchronize(void* stream) {
  FAKE_HIP_CALL(hipStreamSynchronize);
  const auto found = call.Find(stream);
  if (found == nullptr) return call.Return();
  if (found->capture != nullptr) {
    found->capture->spoilt = true;
    return call.Return(kCaptureUnsupported);
  }
  return call.Return(call.WaitFor({found}));
}

FAKE_HIP_EXPORT int hipStreamQuery(void* stream) {
  FAKE_HIP_CALL(hipStreamQuery);
  const auto found = call.Find(stream);
  if (found == nullptr) return call.Return();
  if (found->capture != nullptr) {
    found->capture->spoilt = true;
    return call.Return(kCaptureUnsupported);
  }
  const bool idle = found->IsIdle();
  // A fault is reported before the stream goes idle.
  if (call.state.fault != kSuccess) return call.Return(call.state.fault);
  return call.Return(idle ? kSuccess : kNotReady);
}

FAKE_HIP_EXPORT int hipMemcpyAsync(void* dst, const void* src, size_t bytes, int kind,
                                   void* stream) {
  FAKE_HIP_CALL(hipMemcpyAsync);
  if (kind != 1 && kind != 2) return call.Return(kInvalidValue);
  return Submit(call, stream, FakeHipNodeType::kMemcpy,
                [dst, src, bytes] { std::memcpy(dst, src, bytes); });
}

FAKE_HIP_EXPORT int hipMemsetAsync(void* dst, int value, size_t bytes, void* stream) {
  FAKE_HIP_CALL(hipMemsetAsync);
  return Submit(call, stream, FakeHipNodeType::kMemset,
                [dst, value, bytes] { std::memset(dst, value, bytes); });
}

// --- Capture and graphs. ---

FAKE_HIP_EXPORT int hipStreamIsCapturing(void* stream, int* status) {
  FAKE_HIP_CALL(hipStreamIsCapturing);
  const auto found = call.Find(stream);
  if (found == nullptr) return call.Return();
  *status = found->capture == nullptr ? 0 : found->capture->spoilt ? 2 : 1;
  return call.Return(kSuccess);
}

FAKE_HIP_EXPORT int hipStreamBeginCapture(void* stream, int mode) {
  FAKE_HIP_CALL(hipStreamBeginCapture);
  if (mode != 1) return call.Return(kInvalidValue);  // hipStreamCaptureModeThreadLocal
  const auto found = call.Find(stream);
  if (found == nullptr) return call.Return();
  if (found->capture != nullptr) return call.Return(kIllegalState);
  found->capture = std::make_unique<FakeHipStream::Capture>();
  found->capture->thread = std::this_thread::get_id();
  return call.Return(kSuccess);
}

// Whatever it returns, the capture is over, but for a thread that may not end it.
FAKE_HIP_EXPORT int hipStreamEndCapture(void* stream, void** graph) {
  Call call("hipStreamEndCapture");
  *graph = nullptr;
  const auto it = call.state.streams.find(stream);
  if (it == call.state.streams.end()) return call.Return(kInvalidHandle);
  FakeHipStream& found = *it->second;
  if (found.capture == nullptr) return call.Return(call.failed() ? call.Return() : kIllegalState);
  if (found.capture->thread != std::this_thread::get_id()) {
    found.capture->spoilt = true;
    return call.Return(kCaptureWrongThread);
  }
  const std::unique_ptr<FakeHipStream::Capture> capture = std::move(found.capture);
  if (call.failed()) return call.Return();
  if (capture->spoilt) return call.Return(kCaptureInvalidated);
  auto made = std::make_unique<Graph>();
  made->nodes = std::move(capture->nodes);
  *graph = made.get();
  call.state.graphs[*graph] = std::move(made);
  return call.Return(kSuccess);
}

FAKE_HIP_EXPORT int hipGraphCreate(void** graph, unsigned flags) {
  FAKE_HIP_CALL(hipGraphCreate);
  if (flags != 0) return call.Return(kInvalidValue);
  auto made = std::make_unique<Graph>();
  *graph = made.get();
  call.state.graphs[*graph] = std::move(made);
  return call.Return(kSuccess);
}

FAKE_HIP_EXPORT int hipGraphAddEmptyNode(void** node, void* graph, void* const* dependencies,
                                         size_t num_dependencies) {
  FAKE_HIP_CALL(hipGraphAddEmptyNode);
  const auto it = call.state.graphs.find(graph);
  if (it == call.state.graphs.end() || (dependencies == nullptr) != (num_dependencies == 0))
    return call.Return(kInvalidValue);
  it->second->nodes.push_back(std::make_shared<FakeHipNode>());
  *node = it->second->nodes.back().get();
  return call.Return(kSuccess);
}

FAKE_HIP_EXPORT int hipGraphGetNodes(void* graph, void** nodes, size_t* num_nodes) {
  FAKE_HIP_CALL(hipGraphGetNodes);
  const auto it = call.state.graphs.find(graph);
  if (it == call.state.graphs.end()) return call.Return(kInvalidValue);
  const FakeHipNodes& own = it->second->nodes;
  if (nodes != nullptr) {
    *num_nodes = std::min(*num_nodes, own.size());
    for (size_t i = 0; i < *num_nodes; ++i) nodes[i] = own[i].get();
  } else {
    *num_nodes = own.size();
  }
  return call.Return(kSuccess);
}

FAKE_HIP_EXPORT int hipGraphNodeGetType(void* node, int* type) {
  FAKE_HIP_CALL(hipGraphNodeGetType);
  if (node == nullptr) return call.Return(kInvalidValue);
  *type = TypeNumber(static_cast<FakeHipNode*>(node)->type);
  return call.Return(kSuccess);
}

FAKE_HIP_EXPORT int hipGraphInstantiate(void** exec, void* graph, void** error_node, char* log,
                                        size_t log_bytes) {
  FAKE_HIP_CALL(hipGraphInstantiate);
  const auto it = call.state.graphs.find(graph);
  if (it == call.state.graphs.end() || (log == nullptr) != (log_bytes == 0))
    return call.Return(kInvalidValue);
  if (error_node != nullptr) *error_node = nullptr;
  const size_t bytes = call.state.machine.bytes_per_graph;
  if (bytes > FreeBytes(call.state)) return call.Return(kOutOfMemory);
  auto made = std::make_unique<Exec>();
  made->nodes = std::make_shared<const FakeHipNodes>(it->second->nodes);
  made->bytes = bytes;
  call.state.used_bytes += bytes;
  *exec = made.get();
  call.state.execs[*exec] = std::move(made);
  return call.Return(kSuccess);
}

#if !FAKE_HIP_ROCM_5_2
FAKE_HIP_EXPORT int hipGraphUpload(void* exec, void* stream) {
  FAKE_HIP_CALL(hipGraphUpload);
  if (call.Find(stream) == nullptr) return call.Return();
  return call.Return(call.state.execs.count(exec) == 0 ? kInvalidValue : kSuccess);
}
#endif

FAKE_HIP_EXPORT int hipGraphLaunch(void* exec, void* stream) {
  FAKE_HIP_CALL(hipGraphLaunch);
  const auto it = call.state.execs.find(exec);
  if (it == call.state.execs.end()) return call.Return(kInvalidValue);
  const auto found = call.Find(stream);
  if (found == nullptr) return call.Return();
  if (found->capture != nullptr) {
    found->capture->spoilt = true;
    return call.Return(kCaptureUnsupported);
  }
  found->Enqueue(it->second->nodes);
  return call.Return(kSuccess);
}

FAKE_HIP_EXPORT int hipGraphDestroy(void* graph) {
  FAKE_HIP_CALL(hipGraphDestroy);
  return call.Return(call.state.graphs.erase(graph) == 0 ? kInvalidValue : kSuccess);
}

FAKE_HIP_EXPORT int hipGraphExecDestroy(void* exec) {
  FAKE_HIP_CALL(hipGraphExecDestroy);
  const auto it = call.state.execs.find(exec);
  if (it == call.state.execs.end()) return call.Return(kInvalidValue);
  call.state.used_bytes -= it->second->bytes;
  call.state.execs.erase(it);
  return call.Return(kSuccess);
}

// --- Code. ---

FAKE_HIP_EXPORT int hipModuleLoadData(void** module, const void* image) {
  FAKE_HIP_CALL_FORBIDDEN_IN_CAPTURE(hipModuleLoadData);
  if (std::memcmp(image, kFakeHipMagic, sizeof(kFakeHipMagic)) != 0)
    return call.Return(kInvalidImage);
  const auto* code = static_cast<const FakeHipCodeObject*>(image);
  const std::string device = call.state.machine.architecture;
  if (code->architecture != nullptr && code->architecture != device.substr(0, device.find(':')))
    return call.Return(call.state.machine.no_code_error);
  auto made = std::make_unique<Module>();
  made->device = ThisThread().device;
  made->code = code;
  *module = made.get();
  call.state.modules[*module] = std::move(made);
  return call.Return(kSuccess);
}

FAKE_HIP_EXPORT int hipModuleUnload(void* module) {
  FAKE_HIP_CALL_FORBIDDEN_IN_CAPTURE(hipModuleUnload);
  if (call.state.modules.count(module) == 0) return call.Return(kInvalidHandle);
  std::erase_if(call.state.functions,
                [module](const auto& entry) { return entry.second->module == module; });
  call.state.modules.erase(module);
  return call.Return(kSuccess);
}

FAKE_HIP_EXPORT int hipModuleGetFunction(void** function, void* module, const char* name) {
  FAKE_HIP_CALL(hipModuleGetFunction);
  const auto it = call.state.modules.find(module);
  if (it == call.state.modules.end()) return call.Return(kInvalidHandle);
  const FakeHipCodeObject& code = *it->second->code;
  for (size_t i = 0; i < code.num_kernels; ++i) {
    if (std::strcmp(code.kernels[i].name, name) != 0) continue;
    auto made = std::make_unique<Function>();
    made->module = it->second.get();
    made->kernel = &code.kernels[i];
    *function = made.get();
    call.state.functions[*function] = std::move(made);
    return call.Return(kSuccess);
  }
  return call.Return(kNotFound);
}

FAKE_HIP_EXPORT int hipFuncGetAttribute(int* value, int attribute, void* function) {
  FAKE_HIP_CALL(hipFuncGetAttribute);
  const auto it = call.state.functions.find(function);
  if (it == call.state.functions.end()) return call.Return(kInvalidHandle);
  if (attribute != 1) return call.Return(kInvalidValue);  // HIP_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES
  *value = static_cast<int>(it->second->kernel->static_shared_bytes);
  return call.Return(kSuccess);
}

// Arguments come in `extra`: {1, buffer, 2, &bytes, 3}. (The real library also takes an array of
// pointers; it knows sizes from the code object, which this one does not.)
FAKE_HIP_EXPORT int hipModuleLaunchKernel(void* function, unsigned grid_x, unsigned grid_y,
                                          unsigned grid_z, unsigned block_x, unsigned block_y,
                                          unsigned block_z, unsigned shared_bytes, void* stream,
                                          void** params, void** extra) {
  FAKE_HIP_CALL(hipModuleLaunchKernel);
  const auto key = [extra](int i) { return reinterpret_cast<size_t>(extra[i]); };
  if (params != nullptr || extra == nullptr || key(0) != 1 || key(2) != 2 || key(4) != 3)
    return call.Return(kInvalidValue);
  const auto it = call.state.functions.find(function);
  const auto found = call.Find(stream);
  if (it == call.state.functions.end() || found == nullptr) return call.Return(kInvalidHandle);
  if (found->device() != it->second->module->device) return call.Return(kInvalidHandle);
  if (grid_x == 0 || grid_y == 0 || grid_z != 1 || block_x == 0 || block_x > 1024 || block_y != 1 ||
      block_z != 1)
    return call.Return(kInvalidConfiguration);
  const FakeHipKernel& kernel = *it->second->kernel;
  const auto* args = static_cast<const std::byte*>(extra[1]);
  const size_t args_bytes = *static_cast<const size_t*>(extra[3]);
  if (kernel.args_bytes != 0 && kernel.args_bytes != args_bytes) return call.Return(kInvalidValue);
  if (shared_bytes + kernel.static_shared_bytes >
      static_cast<size_t>(call.state.machine.shared_bytes))
    return call.Return(kInvalidValue);
  FakeHipLaunch launch{.run = kernel.run,
                       .grid_x = grid_x,
                       .grid_y = grid_y,
                       .block = block_x,
                       .shared_bytes = shared_bytes,
                       .args = {args, args + args_bytes},
                       .first_block = call.state.num_launches++ * 104729};
  return Submit(call, stream, FakeHipNodeType::kKernel, std::move(launch));
}

}  // namespace reprise::testing
