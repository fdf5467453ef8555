// SPDX-License-Identifier: Apache-2.0
// The CUDA runtime behind GpuVendor, and the CUDA device over it; see cuda_device.h. Plain C++: no
// kernel is compiled here.
#include "runtime/cuda/cuda_device.h"

#include <cuda_runtime_api.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <mutex>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "runtime/cuda/cuda_captured_nodes.h"
#include "runtime/gpu/gpu_device.h"
#include "runtime/gpu/gpu_vendor.h"
#include "runtime/status_macros.h"

namespace reprise::runtime {
namespace {

constexpr size_t kHugePageBytes = size_t{2} << 20;
// Stages of uploads and rings. More is swap space, which is taken once, and counts as the driver's
// memory where it takes the pages and as the process's where they are registered.
constexpr size_t kMostRegisteredBytes = size_t{256} << 20;

absl::StatusCode CodeOf(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation:
      return absl::StatusCode::kResourceExhausted;
    case cudaErrorNotReady:
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorCallRequiresNewerDriver:
    case cudaErrorStubLibrary:
    case cudaErrorDevicesUnavailable:
    case cudaErrorSystemNotReady:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorCompatNotSupportedOnDevice:
      return absl::StatusCode::kUnavailable;
    case cudaErrorInvalidValue:
    case cudaErrorInvalidConfiguration:
    case cudaErrorInvalidDevice:
    case cudaErrorInvalidResourceHandle:
    case cudaErrorLaunchOutOfResources:
      return absl::StatusCode::kInvalidArgument;
    case cudaErrorSymbolNotFound:
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorInvalidDeviceFunction:
      return absl::StatusCode::kNotFound;
    case cudaErrorIllegalState:
    case cudaErrorStreamCaptureUnsupported:
    case cudaErrorStreamCaptureInvalidated:
    case cudaErrorStreamCaptureMerge:
    case cudaErrorStreamCaptureUnmatched:
    case cudaErrorStreamCaptureUnjoined:
    case cudaErrorStreamCaptureIsolation:
    case cudaErrorStreamCaptureImplicit:
    case cudaErrorStreamCaptureWrongThread:
      return absl::StatusCode::kFailedPrecondition;
    case cudaErrorNotSupported:
      return absl::StatusCode::kUnimplemented;
    default:
      return absl::StatusCode::kInternal;
  }
}

absl::Status ToStatus(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return absl::OkStatus();
  // The runtime keeps the last error per thread; an embedder that asks for it must not find one
  // that we have reported already.
  cudaGetLastError();
  return absl::Status(CodeOf(error), absl::StrCat(call, ": ", cudaGetErrorString(error), " (",
                                                  cudaGetErrorName(error), ")"));
}

cudaStream_t Native(GpuStreamHandle stream) { return static_cast<cudaStream_t>(stream.raw); }
cudaGraph_t Native(GpuGraphHandle graph) { return static_cast<cudaGraph_t>(graph.raw); }
cudaGraphExec_t Native(GpuExecHandle exec) { return static_cast<cudaGraphExec_t>(exec.raw); }
cudaLibrary_t Native(GpuLibraryHandle library) { return static_cast<cudaLibrary_t>(library.raw); }

// "CUDA 13.0, driver 580.95.05": what the driver supports, and its own version where the system
// tells it.
std::string DriverVersion() {
  int version = 0;
  if (cudaDriverGetVersion(&version) != cudaSuccess) return "";
  std::string text = absl::StrCat("CUDA ", version / 1000, ".", version % 1000 / 10);
  std::ifstream file("/proc/driver/nvidia/version");
  std::string line;
  if (!std::getline(file, line)) return text;
  // The version is the first word of digits and at least one dot.
  for (const absl::string_view word : absl::StrSplit(line, ' ', absl::SkipEmpty())) {
    if (word.find('.') != word.npos && word.find_first_not_of("0123456789.") == word.npos) {
      return absl::StrCat(text, ", driver ", word);
    }
  }
  return text;
}

class CudaVendor final : public GpuVendor {
 public:
  DeviceKind kind() const override { return DeviceKind::kCuda; }

  absl::Status GetDeviceCount(int* count) const override {
    *count = 0;  // left alone by the call when there is no driver
    return ToStatus(cudaGetDeviceCount(count), "cudaGetDeviceCount");
  }
  absl::Status GetProperties(int ordinal, DeviceProperties* properties) const override;
  absl::Status GetDevice(int* ordinal) const override {
    return ToStatus(cudaGetDevice(ordinal), "cudaGetDevice");
  }
  absl::Status SetDevice(int ordinal) const override {
    return ToStatus(cudaSetDevice(ordinal), "cudaSetDevice");
  }

  absl::Status Malloc(size_t bytes, void** data) const override {
    return ToStatus(cudaMalloc(data, bytes), "cudaMalloc");
  }
  absl::Status Free(void* data) const override { return ToStatus(cudaFree(data), "cudaFree"); }
  absl::Status HostAllocMapped(size_t bytes, MappedPointers* pointers) const override;
  absl::Status HostFree(void* host) const override;
  absl::Status MemGetInfo(size_t* free_bytes, size_t* total_bytes) const override {
    return ToStatus(cudaMemGetInfo(free_bytes, total_bytes), "cudaMemGetInfo");
  }
  absl::Status IpcGetHandle(void* data, std::string* handle) const override;
  absl::Status IpcOpenHandle(std::string_view handle, void** data) const override;
  absl::Status IpcClose(void* data) const override {
    return ToStatus(cudaIpcCloseMemHandle(data), "cudaIpcCloseMemHandle");
  }

  absl::Status StreamCreate(GpuStreamHandle* stream) const override;
  absl::Status StreamDestroy(GpuStreamHandle stream) const override {
    return ToStatus(cudaStreamDestroy(Native(stream)), "cudaStreamDestroy");
  }
  absl::Status StreamSynchronize(GpuStreamHandle stream) const override {
    return ToStatus(cudaStreamSynchronize(Native(stream)), "cudaStreamSynchronize");
  }
  absl::Status StreamQuery(GpuStreamHandle stream) const override {
    const cudaError_t state = cudaStreamQuery(Native(stream));
    if (state != cudaErrorNotReady) return ToStatus(state, "cudaStreamQuery");
    cudaGetLastError();
    return absl::Status(absl::StatusCode::kUnavailable, "");
  }
  absl::Status MemcpyAsync(void* dst, const void* src, size_t bytes, GpuCopy copy,
                           GpuStreamHandle stream) const override {
    const cudaMemcpyKind kind =
        copy == GpuCopy::kHostToDevice ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost;
    return ToStatus(cudaMemcpyAsync(dst, src, bytes, kind, Native(stream)), "cudaMemcpyAsync");
  }
  absl::Status MemsetAsync(void* dst, unsigned char value, size_t bytes,
                           GpuStreamHandle stream) const override {
    return ToStatus(cudaMemsetAsync(dst, value, bytes, Native(stream)), "cudaMemsetAsync");
  }

  absl::Status StreamIsCapturing(GpuStreamHandle stream, bool* capturing) const override;
  absl::Status StreamBeginCapture(GpuStreamHandle stream) const override {
    return ToStatus(cudaStreamBeginCapture(Native(stream), cudaStreamCaptureModeThreadLocal),
                    "cudaStreamBeginCapture");
  }
  absl::Status StreamEndCapture(GpuStreamHandle stream, GpuGraphHandle* graph) const override;
  absl::Status GraphCountNodes(GpuGraphHandle graph, int* num_kernels,
                               int* num_others) const override;
  absl::Status GraphInstantiate(GpuGraphHandle graph, GpuExecHandle* exec) const override;
  absl::Status GraphUpload(GpuExecHandle exec, GpuStreamHandle stream) const override {
    return ToStatus(cudaGraphUpload(Native(exec), Native(stream)), "cudaGraphUpload");
  }
  absl::Status GraphLaunch(GpuExecHandle exec, GpuStreamHandle stream) const override {
    return ToStatus(cudaGraphLaunch(Native(exec), Native(stream)), "cudaGraphLaunch");
  }
  absl::Status GraphDestroy(GpuGraphHandle graph) const override {
    return ToStatus(cudaGraphDestroy(Native(graph)), "cudaGraphDestroy");
  }
  absl::Status GraphExecDestroy(GpuExecHandle exec) const override {
    return ToStatus(cudaGraphExecDestroy(Native(exec)), "cudaGraphExecDestroy");
  }

  bool tells_nodes() const override { return true; }
  absl::Status GraphListNodes(GpuGraphHandle graph,
                              std::vector<GpuCapturedNode>* nodes) const override {
    return ListCudaNodes(Native(graph), nodes);
  }
  absl::Status GraphExecSetNodeArgs(GpuExecHandle exec, const GpuCapturedNode& node,
                                    std::span<const std::byte> args) const override {
    return SetCudaNodeArgs(Native(exec), node, args);
  }
  bool IsAddress(const void* address) const override;

  absl::Status LibraryLoad(std::span<const std::byte> fatbin,
                           GpuLibraryHandle* library) const override;
  absl::Status LibraryUnload(GpuLibraryHandle library) const override {
    return ToStatus(cudaLibraryUnload(Native(library)), "cudaLibraryUnload");
  }
  absl::Status LibraryFindKernels(GpuLibraryHandle library, std::span<const KernelDef> wanted,
                                  GpuKernelHandle* found) const override;
  absl::Status KernelGetInfo(GpuKernelHandle kernel, GpuKernelInfo* info) const override;
  absl::Status KernelSetMaxSharedBytes(GpuKernelHandle kernel, size_t bytes) const override {
    return ToStatus(cudaFuncSetAttribute(kernel.raw, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                         static_cast<int>(bytes)),
                    "cudaFuncSetAttribute");
  }
  absl::Status LaunchKernel(GpuKernelHandle kernel, const LaunchShape& shape, const void* args,
                            size_t args_bytes, bool early, GpuStreamHandle stream) const override;

 private:
  bool RegisterHugePages(size_t bytes, MappedPointers* pointers) const;

  mutable std::mutex mutex_;
  // What RegisterHugePages took, in bytes.
  mutable absl::flat_hash_map<void*, size_t> registered_ ABSL_GUARDED_BY(mutex_);
};

absl::Status CudaVendor::IpcGetHandle(void* data, std::string* handle) const {
  cudaIpcMemHandle_t native;
  REPRISE_RETURN_IF_ERROR(ToStatus(cudaIpcGetMemHandle(&native, data), "cudaIpcGetMemHandle"));
  handle->assign(native.reserved, sizeof(native.reserved));
  return absl::OkStatus();
}

absl::Status CudaVendor::IpcOpenHandle(std::string_view handle, void** data) const {
  cudaIpcMemHandle_t native;
  if (handle.size() != sizeof(native.reserved)) {
    return absl::FailedPreconditionError(
        absl::StrCat("shared memory of another process: got a handle of ", handle.size(),
                     " bytes, allowed: one of CUDA, of ", sizeof(native.reserved)));
  }
  std::memcpy(native.reserved, handle.data(), handle.size());
  return ToStatus(cudaIpcOpenMemHandle(data, native, cudaIpcMemLazyEnablePeerAccess),
                  "cudaIpcOpenMemHandle");
}

absl::Status CudaVendor::GetProperties(int ordinal, DeviceProperties* properties) const {
  cudaDeviceProp cuda;
  REPRISE_RETURN_IF_ERROR(
      ToStatus(cudaGetDeviceProperties(&cuda, ordinal), "cudaGetDeviceProperties"));
  *properties = {.kind = DeviceKind::kCuda,
                 .name = cuda.name,
                 .driver = DriverVersion(),
                 .architecture = absl::StrCat("sm_", 10 * cuda.major + cuda.minor),
                 .ordinal = ordinal,
                 .num_multiprocessors = cuda.multiProcessorCount,
                 .warp_size = cuda.warpSize,
                 .compute_capability = 10 * cuda.major + cuda.minor,
                 .matrix_unit = cuda.major >= 8 ? MatrixUnit::kMma : MatrixUnit::kNone,
                 .max_shared_bytes = cuda.sharedMemPerBlockOptin,
                 .shared_bytes_per_multiprocessor = cuda.sharedMemPerMultiprocessor,
                 .total_bytes = cuda.totalGlobalMem};
  return absl::OkStatus();
}

absl::Status CudaVendor::HostAllocMapped(size_t bytes, MappedPointers* pointers) const {
  if (bytes >= kHugePageBytes && bytes <= kMostRegisteredBytes &&
      RegisterHugePages(bytes, pointers))
    return absl::OkStatus();
  REPRISE_RETURN_IF_ERROR(
      ToStatus(cudaHostAlloc(&pointers->host, bytes, cudaHostAllocMapped | cudaHostAllocPortable),
               "cudaHostAlloc"));
  absl::Status status = ToStatus(cudaHostGetDevicePointer(&pointers->device, pointers->host, 0),
                                 "cudaHostGetDevicePointer");
  if (!status.ok()) cudaFreeHost(pointers->host);
  return status;
}

// Whole huge pages, where the system has such, which no child process gets: a page that a fork left
// to both would be copied at the next write, and the device would go on with the old one. nullptr
// where there is no memory.
void* MapHugePages(size_t bytes) {
  const size_t mapped = bytes + kHugePageBytes;
  void* const all =
      mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (all == MAP_FAILED) return nullptr;
  auto* const begin = static_cast<std::byte*>(all);
  const size_t before = -reinterpret_cast<uintptr_t>(begin) % kHugePageBytes;
  if (before > 0) munmap(begin, before);
  munmap(begin + before + bytes, kHugePageBytes - before);
  // Advice: small pages do as well.
  madvise(begin + before, bytes, MADV_HUGEPAGE);
  madvise(begin + before, bytes, MADV_DONTFORK);
  madvise(begin + before, bytes, MADV_DONTDUMP);
  return begin + before;
}

// The driver pins page by page, a third of a millisecond for each MiB of the small pages that
// cudaHostAlloc takes, and other calls wait meanwhile. False, and nothing is taken, where there is
// no memory or the driver does not register it: cudaHostAlloc says then what is wrong.
bool CudaVendor::RegisterHugePages(size_t bytes, MappedPointers* pointers) const {
  const size_t whole = (bytes + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
  void* const host = MapHugePages(whole);
  if (host == nullptr) return false;
  if (cudaHostRegister(host, whole, cudaHostRegisterMapped | cudaHostRegisterPortable) ==
      cudaSuccess) {
    if (cudaHostGetDevicePointer(&pointers->device, host, 0) == cudaSuccess) {
      pointers->host = host;
      std::lock_guard lock(mutex_);
      registered_.emplace(host, whole);
      return true;
    }
    cudaHostUnregister(host);
  }
  cudaGetLastError();  // forgets it
  munmap(host, whole);
  return false;
}

absl::Status CudaVendor::HostFree(void* host) const {
  size_t bytes = 0;  // of registered memory
  {
    std::lock_guard lock(mutex_);
    const auto found = registered_.find(host);
    if (found != registered_.end()) {
      bytes = found->second;
      registered_.erase(found);
    }
  }
  if (bytes == 0) return ToStatus(cudaFreeHost(host), "cudaFreeHost");
  const absl::Status status = ToStatus(cudaHostUnregister(host), "cudaHostUnregister");
  // What the driver may still reach stays.
  if (status.ok()) munmap(host, bytes);
  return status;
}

absl::Status CudaVendor::StreamCreate(GpuStreamHandle* stream) const {
  cudaStream_t native = nullptr;
  REPRISE_RETURN_IF_ERROR(ToStatus(cudaStreamCreateWithFlags(&native, cudaStreamNonBlocking),
                                   "cudaStreamCreateWithFlags"));
  stream->raw = native;
  return absl::OkStatus();
}

absl::Status CudaVendor::StreamIsCapturing(GpuStreamHandle stream, bool* capturing) const {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  REPRISE_RETURN_IF_ERROR(
      ToStatus(cudaStreamIsCapturing(Native(stream), &status), "cudaStreamIsCapturing"));
  *capturing = status != cudaStreamCaptureStatusNone;
  return absl::OkStatus();
}

absl::Status CudaVendor::StreamEndCapture(GpuStreamHandle stream, GpuGraphHandle* graph) const {
  cudaGraph_t native = nullptr;
  const cudaError_t error = cudaStreamEndCapture(Native(stream), &native);
  graph->raw = native;
  return ToStatus(error, "cudaStreamEndCapture");
}

absl::Status CudaVendor::GraphCountNodes(GpuGraphHandle graph, int* num_kernels,
                                         int* num_others) const {
  *num_kernels = 0;
  *num_others = 0;
  size_t count = 0;
  REPRISE_RETURN_IF_ERROR(
      ToStatus(cudaGraphGetNodes(Native(graph), nullptr, &count), "cudaGraphGetNodes"));
  if (count == 0) return absl::OkStatus();
  std::vector<cudaGraphNode_t> nodes(count);
  REPRISE_RETURN_IF_ERROR(
      ToStatus(cudaGraphGetNodes(Native(graph), nodes.data(), &count), "cudaGraphGetNodes"));
  for (const cudaGraphNode_t node : nodes) {
    cudaGraphNodeType type;
    REPRISE_RETURN_IF_ERROR(ToStatus(cudaGraphNodeGetType(node, &type), "cudaGraphNodeGetType"));
    ++*(type == cudaGraphNodeTypeKernel ? num_kernels : num_others);
  }
  return absl::OkStatus();
}

absl::Status CudaVendor::GraphInstantiate(GpuGraphHandle graph, GpuExecHandle* exec) const {
  cudaGraphExec_t native = nullptr;
  REPRISE_RETURN_IF_ERROR(
      ToStatus(cudaGraphInstantiate(&native, Native(graph), /*flags=*/0), "cudaGraphInstantiate"));
  exec->raw = native;
  return absl::OkStatus();
}

bool CudaVendor::IsAddress(const void* address) const {
  cudaPointerAttributes attributes = {};
  if (cudaPointerGetAttributes(&attributes, address) != cudaSuccess) {
    cudaGetLastError();
    return false;
  }
  return attributes.type != cudaMemoryTypeUnregistered;
}

absl::Status CudaVendor::LibraryLoad(std::span<const std::byte> fatbin,
                                     GpuLibraryHandle* library) const {
  cudaLibrary_t native = nullptr;
  REPRISE_RETURN_IF_ERROR(ToStatus(
      cudaLibraryLoadData(&native, fatbin.data(), nullptr, nullptr, 0, nullptr, nullptr, 0),
      "cudaLibraryLoadData"));
  library->raw = native;
  return absl::OkStatus();
}

// Lists the library's kernels instead of asking for each by name: a name that is not there is an
// error of the driver's, and compute-sanitizer reports every one.
absl::Status CudaVendor::LibraryFindKernels(GpuLibraryHandle library,
                                            std::span<const KernelDef> wanted,
                                            GpuKernelHandle* found) const {
  unsigned count = 0;
  REPRISE_RETURN_IF_ERROR(
      ToStatus(cudaLibraryGetKernelCount(&count, Native(library)), "cudaLibraryGetKernelCount"));
  std::vector<cudaKernel_t> kernels(count);
  REPRISE_RETURN_IF_ERROR(
      ToStatus(cudaLibraryEnumerateKernels(kernels.data(), count, Native(library)),
               "cudaLibraryEnumerateKernels"));
  absl::flat_hash_map<std::string, cudaKernel_t> by_name;
  for (const cudaKernel_t kernel : kernels) {
    const char* name = nullptr;
    REPRISE_RETURN_IF_ERROR(ToStatus(cudaFuncGetName(&name, kernel), "cudaFuncGetName"));
    by_name.emplace(name, kernel);
  }
  for (size_t i = 0; i < wanted.size(); ++i) {
    const auto it = by_name.find(absl::string_view(wanted[i].name.data(), wanted[i].name.size()));
    if (it != by_name.end()) found[i].raw = it->second;
  }
  return absl::OkStatus();
}

absl::Status CudaVendor::KernelGetInfo(GpuKernelHandle kernel, GpuKernelInfo* info) const {
  cudaFuncAttributes attributes;
  REPRISE_RETURN_IF_ERROR(
      ToStatus(cudaFuncGetAttributes(&attributes, kernel.raw), "cudaFuncGetAttributes"));
  info->static_shared_bytes = attributes.sharedSizeBytes;
  info->can_wait = attributes.ptxVersion >= 90;
  size_t offset = 0;
  return ToStatus(cudaFuncGetParamInfo(kernel.raw, 0, &offset, &info->args_bytes),
                  "cudaFuncGetParamInfo");
}

// The runtime knows the size of the argument from the code; GpuStream has compared it already.
absl::Status CudaVendor::LaunchKernel(GpuKernelHandle kernel, const LaunchShape& shape,
                                      const void* args, size_t /*args_bytes*/, bool early,
                                      GpuStreamHandle stream) const {
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(shape.grid_x, shape.grid_y, 1);
  config.blockDim = dim3(shape.block, 1, 1);
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = Native(stream);
  cudaLaunchAttribute attribute = {};
  if (shape.cooperative) {
    attribute.id = cudaLaunchAttributeCooperative;
    attribute.val.cooperative = 1;
  } else {
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
  }
  config.attrs = &attribute;
  config.numAttrs = shape.cooperative || early ? 1 : 0;
  void* params[] = {const_cast<void*>(args)};
  return ToStatus(cudaLaunchKernelExC(&config, kernel.raw, params), "cudaLaunchKernelExC");
}

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> CreateCudaDevice(const DeviceOptions& options) {
  return CreateGpuDevice(std::make_unique<CudaVendor>(), options.ordinal);
}

int CountCudaDevices(std::string* why) {
  int count = 0;
  const absl::Status status = CudaVendor().GetDeviceCount(&count);
  if (why == nullptr) return count;
  if (!status.ok()) {
    *why = std::string(status.message());
  } else if (count == 0) {
    *why = "cudaGetDeviceCount: no device";
  }
  return count;
}

}  // namespace reprise::runtime
