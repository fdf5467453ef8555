// SPDX-License-Identifier: Apache-2.0
// Device: the one interface to a machine that runs kernels: `host` (threads of this process),
// `cuda` and `hip`. It knows memory, streams, captured graphs and how to launch a kernel by handle;
// it knows nothing of models or steps.
//
//   REPRISE_ASSIGN_OR_RETURN(auto device, Device::Create({.kind = DeviceKind::kHost}));
//   REPRISE_ASSIGN_OR_RETURN(auto stream, device->CreateStream());
//   REPRISE_RETURN_IF_ERROR(stream->BeginCapture());
//   ... stream->Launch(kernel, shape, args) ...
//   REPRISE_ASSIGN_OR_RETURN(auto graph, stream->EndCapture());
//   REPRISE_RETURN_IF_ERROR(graph->Replay(*stream));
//
// Threads: a Device may be used from any thread. A Stream, while capturing, belongs to the
// capturing thread; otherwise its calls need external ordering (one thread at a time). Different
// streams are independent.
#ifndef REPRISE_RUNTIME_DEVICE_H_
#define REPRISE_RUNTIME_DEVICE_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/matrix_unit.h"

namespace reprise::runtime {

enum class DeviceKind : uint8_t { kHost, kCuda, kHip };

// "host", "cuda", "hip".
std::string_view NameOf(DeviceKind kind);

// What a kernel or a planner may ask of the machine. Read once at creation.
struct DeviceProperties {
  DeviceKind kind = DeviceKind::kHost;
  std::string name;               // "NVIDIA H200", or the CPU's model name
  std::string driver;             // driver version, "" on the host
  std::string architecture = {};  // "sm_90", "gfx942"; "" on the host or where the driver is silent
  int ordinal = 0;                // device index among its kind
  int num_multiprocessors = 1;    // SMs; worker threads on the host
  int warp_size = 1;              // lanes of a warp; 64 on CDNA, 32 on RDNA; 1 on the host
  int compute_capability = 0;     // 10 * major + minor on CUDA, 0 elsewhere
  MatrixUnit matrix_unit = MatrixUnit::kNone;
  size_t max_shared_bytes = 0;  // largest dynamic shared memory of one block
  size_t shared_bytes_per_multiprocessor = 0;
  size_t total_bytes = 0;  // memory of the device
};

// What whoever enqueues a launch calls it, for those who measure (graphs/profiled_graphs.h). No
// device reads it. Plain words: it costs a launch no allocation.
struct LaunchLabel {
  std::string_view op = {};  // static storage: "rms_norm"; "": goes by the kernel's name
  // Of the matrix that this launch works on, where there is one; shown as "<rows>x<columns>".
  int64_t rows = 0;
  int64_t columns = 0;
  // Whether a table that was measured on the device chose the kernel, and not the op itself.
  bool from_table = false;
};

// The static shape of a launch. Never depends on live lengths.
struct LaunchShape {
  unsigned grid_x = 1;
  unsigned grid_y = 1;
  unsigned block = 1;       // threads of a block; the host runs a block as one call
  size_t shared_bytes = 0;  // dynamic shared memory
  // All blocks run at once, so that they may wait for each other; a grid of which the device cannot
  // hold all blocks is refused. It does not begin before the kernel ahead of it has ended.
  bool cooperative = false;
  LaunchLabel label = {};
};

// One block of a kernel as the host device runs it: `args` points at the launch's copied argument
// struct, `shared` at `shared_bytes` of scratch, aligned to 64 bytes, contents undefined.
struct HostBlockContext {
  unsigned block_x, block_y, grid_x, grid_y;
  unsigned block_threads;
  std::byte* shared;
  size_t shared_bytes;
  bool cooperative = false;  // LaunchShape's
};
using HostKernelFn = void (*)(const HostBlockContext& context, const void* args);

// A kernel as a catalogue names it. Every kernel takes exactly one argument: a trivially copyable
// struct by value.
struct KernelDef {
  std::string_view name;        // the extern "C" symbol in device code
  HostKernelFn host = nullptr;  // nullptr: not available on the host device
  // Its device code waits itself until the kernel before it in the stream has ended (on CUDA
  // griddepcontrol.wait), in at least one block of every launch; until then it writes nothing, and
  // reads nothing that that kernel writes. Where devices can, it begins while the other still runs.
  bool waits_for_previous = false;
};

// All the code that one binary carries for its kernels. Views of static storage.
struct KernelImage {
  std::span<const KernelDef> kernels;
  std::span<const std::span<const std::byte>> cuda_fatbins;  // empty when built without nvcc
  // Clang offload bundles, or code objects of one GPU each; empty when built without clang. HIP
  // passes over those that do not fit the device. Each starts at a page boundary (4,096 bytes),
  // as the compiler's own sections do: the library may map the file that it lies in.
  std::span<const std::span<const std::byte>> hip_code_objects = {};
};

// A loaded kernel: a plain handle, valid as long as the Device that loaded it.
struct Kernel {
  const void* handle = nullptr;
  std::string_view name;
};

// Kernels of one image, resolved for one device. Owned by the caller, must not outlive the Device.
class KernelModule {
 public:
  virtual ~KernelModule() = default;
  // Errors: NotFound names the kernel and the device when this build carries no code for it.
  virtual absl::StatusOr<Kernel> Find(std::string_view name) const = 0;
};

class Stream;

// An instantiated graph: replays the captured launches with their captured arguments.
class CapturedGraph {
 public:
  virtual ~CapturedGraph() = default;
  // Enqueues one replay. Asynchronous; one launch call to the driver. Errors: the driver's, named.
  virtual absl::Status Replay(Stream& stream) = 0;
  // Kernel nodes and all other nodes; other nodes are zero in our own programs.
  virtual int num_kernel_nodes() const = 0;
  virtual int num_other_nodes() const = 0;
  // Device memory the driver took at instantiation and upload, as measured; 0 on the host.
  virtual size_t device_bytes() const = 0;
};

class Stream {
 public:
  virtual ~Stream() = default;

  // Enqueues (or, while capturing, records) one kernel. `args` is copied before the call returns.
  // Errors: InvalidArgument when the shape exceeds the device; the driver's error, named with the
  // kernel.
  virtual absl::Status Launch(const Kernel& kernel, const LaunchShape& shape, const void* args,
                              size_t args_bytes) = 0;
  template <typename Args>
  absl::Status Launch(const Kernel& kernel, const LaunchShape& shape, const Args& args) {
    static_assert(std::is_trivially_copyable_v<Args>);
    return Launch(kernel, shape, &args, sizeof(args));
  }

  // Runs a host function in stream order. Host device only (an embedder's own work on the CPU);
  // while capturing it is recorded and runs at every replay. Errors: Unimplemented on other
  // devices.
  virtual absl::Status EnqueueHost(std::function<void()> work) = 0;

  // Asynchronous copies and fills; not for the step's path. Host memory must stay valid until the
  // stream passes it.
  virtual absl::Status CopyToDevice(void* dst, const void* src, size_t bytes) = 0;
  virtual absl::Status CopyToHost(void* dst, const void* src, size_t bytes) = 0;
  virtual absl::Status Fill(void* dst, unsigned char value, size_t bytes) = 0;

  // Blocks until all enqueued work is done; reports any fault of it.
  virtual absl::Status Synchronize() = 0;
  // OK if idle, Unavailable (no text) while work pends, else the fault. No wait, no allocation.
  virtual absl::Status Query() = 0;

  // Waits for something that the stream's work brings about, as a word in mapped memory: returns
  // `done()` once it is true, or at the deadline. `done` must be safe to ask from this thread at
  // any time. From any thread. On the host device the thread sleeps, and asks whenever an enqueued
  // piece of work ends, so that it takes no core from the kernels; elsewhere it keeps asking.
  virtual bool WaitUntil(const std::function<bool()>& done,
                         std::chrono::steady_clock::time_point deadline);

  // Capture mode is thread-local: other threads may go on allocating. Errors: FailedPrecondition
  // when already capturing.
  virtual absl::Status BeginCapture() = 0;
  // Ends the capture and instantiates. After an error the stream is usable again.
  virtual absl::StatusOr<std::unique_ptr<CapturedGraph>> EndCapture() = 0;
  // Ends a capture and throws it away; no-op when not capturing.
  virtual void AbortCapture() = 0;

  // cudaStream_t on CUDA, hipStream_t on HIP, nullptr on the host. For an embedder's own launches.
  virtual void* native_handle() const = 0;
};

// Memory that host and device both address. `host == device` on the host device.
struct MappedPointers {
  void* host = nullptr;
  void* device = nullptr;
};

struct DeviceOptions {
  DeviceKind kind = DeviceKind::kHost;
  int ordinal = 0;       // which CUDA or HIP device
  int host_threads = 0;  // worker threads of the host device; 0: one per core
  // HIP only: the library to open, by name or path; empty: libamdhip64.so of ROCm 7, 6, 5. Read by
  // Device::Create alone.
  std::string_view hip_library = {};
};

class Device {
 public:
  virtual ~Device() = default;

  // Errors: Unavailable when the device, its driver or this build's code for it is missing; says
  // which.
  static absl::StatusOr<std::unique_ptr<Device>> Create(const DeviceOptions& options);

  virtual const DeviceProperties& properties() const = 0;
  DeviceKind kind() const { return properties().kind; }

  // Device memory, aligned to 256 bytes, contents undefined. Errors: ResourceExhausted (asked,
  // free), InvalidArgument on zero bytes. Prefer runtime/memory/buffer.h, which owns.
  virtual absl::StatusOr<void*> Allocate(size_t bytes) = 0;
  virtual void Free(void* data) = 0;
  // Pinned host memory that the device addresses too; zero-filled.
  virtual absl::StatusOr<MappedPointers> AllocateMapped(size_t bytes) = 0;
  virtual void FreeMapped(const MappedPointers& pointers) = 0;
  // Bytes that Allocate could still hand out, roughly (fragmentation, other processes).
  virtual absl::StatusOr<size_t> FreeBytes() const = 0;

  virtual absl::StatusOr<std::unique_ptr<Stream>> CreateStream() = 0;
  // Wraps an embedder's stream (cudaStream_t, hipStream_t), which must outlive the wrapper. Errors:
  // Unimplemented on the host.
  virtual absl::StatusOr<std::unique_ptr<Stream>> WrapStream(void* native) = 0;

  // `image` must outlive the device.
  virtual absl::StatusOr<std::unique_ptr<KernelModule>> Load(const KernelImage& image) = 0;
};

// Devices this process could create right now, best first (cuda, hip, host). Never fails: host is
// always there.
std::span<const DeviceKind> CompiledDeviceKinds();
// Number of usable CUDA devices; 0 with the reason in `why` when there is none.
int CountCudaDevices(std::string* why);
// The same for HIP; `library_path` as DeviceOptions::hip_library.
int CountHipDevices(std::string* why, std::string_view library_path = {});

}  // namespace reprise::runtime

#endif  // REPRISE_RUNTIME_DEVICE_H_
