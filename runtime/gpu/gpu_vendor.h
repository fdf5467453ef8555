// SPDX-License-Identifier: Apache-2.0
// GpuVendor: the calls of a GPU vendor's runtime library that Reprise needs, one method each.
// GpuDevice (gpu_device.h) is written over it once; cuda_device.cc implements it for CUDA,
// hip_device.cc for HIP, and the tests without a GPU. A method wraps a call, it does not rename it:
// where vendors differ in arguments (graph instantiation, launch attributes, upload), the
// difference ends here.
//
// Every method but the named exceptions acts on the calling thread's current device. Handles are
// the vendor's own pointers. Errors: absl::Status with the vendor's call, its error name and text;
// the code says what a caller can do about it: ResourceExhausted (memory), Unavailable (no device
// or driver, or not ready yet), InvalidArgument (launch configuration), FailedPrecondition (capture
// state), NotFound (no such symbol, no code for this device), Internal (all else, faults included).
// Threads: as the vendor's library, that is any.
#ifndef REPRISE_RUNTIME_GPU_GPU_VENDOR_H_
#define REPRISE_RUNTIME_GPU_GPU_VENDOR_H_

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "runtime/captured_node.h"
#include "runtime/device.h"

namespace reprise::runtime {

// Distinct types, so that a graph is never passed for its executable form.
struct GpuStreamHandle {
  void* raw = nullptr;
};
struct GpuGraphHandle {
  void* raw = nullptr;
};
struct GpuExecHandle {
  void* raw = nullptr;
};
struct GpuLibraryHandle {
  void* raw = nullptr;
};
struct GpuKernelHandle {
  void* raw = nullptr;
};

enum class GpuCopy { kHostToDevice, kDeviceToHost };

// What a loaded kernel is, read from its code.
struct GpuKernelInfo {
  size_t static_shared_bytes = 0;
  size_t args_bytes = 0;  // of its one parameter; 0 where the vendor cannot tell
  bool can_wait = false;  // compiled where KernelDef::waits_for_previous is of effect
};

// A node of a captured graph, and the vendor's handle of it.
struct GpuCapturedNode {
  CapturedNode node;
  void* raw = nullptr;
};

class GpuVendor {
 public:
  virtual ~GpuVendor() = default;

  virtual DeviceKind kind() const = 0;

  // Devices. GetDeviceCount and GetProperties need no current device.
  virtual absl::Status GetDeviceCount(int* count) const = 0;
  virtual absl::Status GetProperties(int ordinal, DeviceProperties* properties) const = 0;
  // The device of the calling thread's current context, whoever made that context.
  virtual absl::Status GetDevice(int* ordinal) const = 0;
  virtual absl::Status SetDevice(int ordinal) const = 0;

  // Memory.
  virtual absl::Status Malloc(size_t bytes, void** data) const = 0;
  virtual absl::Status Free(void* data) const = 0;
  virtual absl::Status HostAllocMapped(size_t bytes, MappedPointers* pointers) const = 0;
  virtual absl::Status HostFree(void* host) const = 0;
  virtual absl::Status MemGetInfo(size_t* free_bytes, size_t* total_bytes) const = 0;
  // Memory that processes share: `data` is all that one Malloc returned. Only where a vendor has
  // such calls.
  virtual absl::Status IpcGetHandle(void* /*data*/, std::string* /*handle*/) const {
    return absl::UnimplementedError("memory that processes share");
  }
  virtual absl::Status IpcOpenHandle(std::string_view /*handle*/, void** /*data*/) const {
    return absl::UnimplementedError("memory that processes share");
  }
  virtual absl::Status IpcClose(void* /*data*/) const {
    return absl::UnimplementedError("memory that processes share");
  }

  // Streams. Created ones do not wait for the default stream.
  virtual absl::Status StreamCreate(GpuStreamHandle* stream) const = 0;
  virtual absl::Status StreamDestroy(GpuStreamHandle stream) const = 0;
  virtual absl::Status StreamSynchronize(GpuStreamHandle stream) const = 0;
  // Unavailable while work is pending.
  virtual absl::Status StreamQuery(GpuStreamHandle stream) const = 0;
  virtual absl::Status MemcpyAsync(void* dst, const void* src, size_t bytes, GpuCopy copy,
                                   GpuStreamHandle stream) const = 0;
  virtual absl::Status MemsetAsync(void* dst, unsigned char value, size_t bytes,
                                   GpuStreamHandle stream) const = 0;

  // Capture, in thread-local mode. After StreamEndCapture the capture is over, whatever it
  // returned.
  virtual absl::Status StreamIsCapturing(GpuStreamHandle stream, bool* capturing) const = 0;
  virtual absl::Status StreamBeginCapture(GpuStreamHandle stream) const = 0;
  virtual absl::Status StreamEndCapture(GpuStreamHandle stream, GpuGraphHandle* graph) const = 0;
  virtual absl::Status GraphCountNodes(GpuGraphHandle graph, int* num_kernels,
                                       int* num_others) const = 0;
  virtual absl::Status GraphInstantiate(GpuGraphHandle graph, GpuExecHandle* exec) const = 0;
  // Moves the executable graph to the device ahead of its first launch; does nothing where a vendor
  // has no such call.
  virtual absl::Status GraphUpload(GpuExecHandle exec, GpuStreamHandle stream) const = 0;
  virtual absl::Status GraphLaunch(GpuExecHandle exec, GpuStreamHandle stream) const = 0;
  virtual absl::Status GraphDestroy(GpuGraphHandle graph) const = 0;
  // A graph in flight ends first.
  virtual absl::Status GraphExecDestroy(GpuExecHandle exec) const = 0;

  // The nodes of a captured graph; see captured_node.h. Only where a vendor says that it tells.
  virtual bool tells_nodes() const { return false; }
  virtual absl::Status GraphListNodes(GpuGraphHandle /*graph*/,
                                      std::vector<GpuCapturedNode>* /*nodes*/) const {
    return absl::UnimplementedError("the nodes of a captured graph");
  }
  // `graph`, from which `exec` was made, is not changed. args: as many bytes as the node has.
  virtual absl::Status GraphExecSetNodeArgs(GpuExecHandle /*exec*/, const GpuCapturedNode& /*node*/,
                                            std::span<const std::byte> /*args*/) const {
    return absl::UnimplementedError("other arguments for a captured node");
  }
  virtual bool IsAddress(const void* /*address*/) const { return false; }

  // Code: a fat binary or a code object, which stays valid until LibraryUnload. NotFound without
  // code for the current device, where the vendor tells that early.
  virtual absl::Status LibraryLoad(std::span<const std::byte> code,
                                   GpuLibraryHandle* library) const = 0;
  virtual absl::Status LibraryUnload(GpuLibraryHandle library) const = 0;
  // Writes to found[i] the kernel named wanted[i].name; leaves it alone when the library has none
  // of that name.
  virtual absl::Status LibraryFindKernels(GpuLibraryHandle library,
                                          std::span<const KernelDef> wanted,
                                          GpuKernelHandle* found) const = 0;
  // Loads the kernel onto the current device if it is not there yet, so that no launch has to.
  // NotFound without code for it.
  virtual absl::Status KernelGetInfo(GpuKernelHandle kernel, GpuKernelInfo* info) const = 0;
  // The most dynamic shared memory that launches of this kernel may ask for.
  virtual absl::Status KernelSetMaxSharedBytes(GpuKernelHandle kernel, size_t bytes) const = 0;
  // `args`: the one argument struct, of `args_bytes` > 0; copied. early: the kernel may begin
  // before the one before it has ended; only where GpuKernelInfo::can_wait, and of no effect on a
  // cooperative launch.
  virtual absl::Status LaunchKernel(GpuKernelHandle kernel, const LaunchShape& shape,
                                    const void* args, size_t args_bytes, bool early,
                                    GpuStreamHandle stream) const = 0;
};

}  // namespace reprise::runtime

#endif  // REPRISE_RUNTIME_GPU_GPU_VENDOR_H_
