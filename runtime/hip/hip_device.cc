// SPDX-License-Identifier: Apache-2.0
// The HIP runtime behind GpuVendor, and the HIP device over it; see hip_device.h.
#include "runtime/hip/hip_device.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/gpu/gpu_device.h"
#include "runtime/gpu/gpu_vendor.h"
#include "runtime/hip/hip_api.h"
#include "runtime/hip/hip_library.h"
#include "runtime/status_macros.h"

namespace reprise::runtime {
namespace {

absl::StatusCode CodeOf(int error) {
  switch (error) {
    case hip::kOutOfMemory:
      return absl::StatusCode::kResourceExhausted;
    case hip::kNotReady:
    case hip::kNoDevice:
    case hip::kInsufficientDriver:
    case hip::kNotInitialized:
      return absl::StatusCode::kUnavailable;
    case hip::kInvalidValue:
    case hip::kInvalidConfiguration:
    case hip::kInvalidDevice:
    case hip::kInvalidHandle:
    case hip::kLaunchOutOfResources:
      return absl::StatusCode::kInvalidArgument;
    case hip::kNotFound:
    case hip::kNoBinaryForGpu:
    case hip::kInvalidDeviceFunction:
      return absl::StatusCode::kNotFound;
    case hip::kIllegalState:
    case hip::kStreamCaptureUnsupported:
    case hip::kStreamCaptureInvalidated:
    case hip::kStreamCaptureMerge:
    case hip::kStreamCaptureUnmatched:
    case hip::kStreamCaptureUnjoined:
    case hip::kStreamCaptureIsolation:
    case hip::kStreamCaptureImplicit:
    case hip::kStreamCaptureWrongThread:
      return absl::StatusCode::kFailedPrecondition;
    case hip::kNotSupported:
      return absl::StatusCode::kUnimplemented;
    default:
      return absl::StatusCode::kInternal;
  }
}

class HipVendor final : public GpuVendor {
 public:
  explicit HipVendor(hip::Library library) : library_(std::move(library)), api_(library_.api) {}

  DeviceKind kind() const override { return DeviceKind::kHip; }

  absl::Status GetDeviceCount(int* count) const override {
    *count = 0;
    return ToStatus(api_.hipGetDeviceCount(count), "hipGetDeviceCount");
  }
  absl::Status GetProperties(int ordinal, DeviceProperties* properties) const override;
  absl::Status GetDevice(int* ordinal) const override {
    return ToStatus(api_.hipGetDevice(ordinal), "hipGetDevice");
  }
  absl::Status SetDevice(int ordinal) const override {
    return ToStatus(api_.hipSetDevice(ordinal), "hipSetDevice");
  }

  absl::Status Malloc(size_t bytes, void** data) const override {
    return ToStatus(api_.hipMalloc(data, bytes), "hipMalloc");
  }
  absl::Status Free(void* data) const override { return ToStatus(api_.hipFree(data), "hipFree"); }
  absl::Status HostAllocMapped(size_t bytes, MappedPointers* pointers) const override;
  absl::Status HostFree(void* host) const override {
    return ToStatus(api_.hipHostFree(host), "hipHostFree");
  }
  absl::Status MemGetInfo(size_t* free_bytes, size_t* total_bytes) const override {
    return ToStatus(api_.hipMemGetInfo(free_bytes, total_bytes), "hipMemGetInfo");
  }
  absl::Status IpcGetHandle(void* data, std::string* handle) const override;
  absl::Status IpcOpenHandle(std::string_view handle, void** data) const override;
  absl::Status IpcClose(void* data) const override {
    return ToStatus(api_.hipIpcCloseMemHandle(data), "hipIpcCloseMemHandle");
  }

  absl::Status StreamCreate(GpuStreamHandle* stream) const override {
    return ToStatus(api_.hipStreamCreateWithFlags(&stream->raw, hip::kStreamNonBlocking),
                    "hipStreamCreateWithFlags");
  }
  absl::Status StreamDestroy(GpuStreamHandle stream) const override {
    return ToStatus(api_.hipStreamDestroy(stream.raw), "hipStreamDestroy");
  }
  absl::Status StreamSynchronize(GpuStreamHandle stream) const override {
    return ToStatus(api_.hipStreamSynchronize(stream.raw), "hipStreamSynchronize");
  }
  absl::Status StreamQuery(GpuStreamHandle stream) const override {
    const int state = api_.hipStreamQuery(stream.raw);
    if (state != hip::kNotReady) return ToStatus(state, "hipStreamQuery");
    api_.hipGetLastError();
    return absl::Status(absl::StatusCode::kUnavailable, "");
  }
  absl::Status MemcpyAsync(void* dst, const void* src, size_t bytes, GpuCopy copy,
                           GpuStreamHandle stream) const override {
    const int kind =
        copy == GpuCopy::kHostToDevice ? hip::kMemcpyHostToDevice : hip::kMemcpyDeviceToHost;
    return ToStatus(api_.hipMemcpyAsync(dst, src, bytes, kind, stream.raw), "hipMemcpyAsync");
  }
  absl::Status MemsetAsync(void* dst, unsigned char value, size_t bytes,
                           GpuStreamHandle stream) const override {
    return ToStatus(api_.hipMemsetAsync(dst, value, bytes, stream.raw), "hipMemsetAsync");
  }

  absl::Status StreamIsCapturing(GpuStreamHandle stream, bool* capturing) const override;
  absl::Status StreamBeginCapture(GpuStreamHandle stream) const override {
    return ToStatus(api_.hipStreamBeginCapture(stream.raw, hip::kStreamCaptureModeThreadLocal),
                    "hipStreamBeginCapture");
  }
  absl::Status StreamEndCapture(GpuStreamHandle stream, GpuGraphHandle* graph) const override {
    return ToStatus(api_.hipStreamEndCapture(stream.raw, &graph->raw), "hipStreamEndCapture");
  }
  absl::Status GraphCountNodes(GpuGraphHandle graph, int* num_kernels,
                               int* num_others) const override;
  absl::Status GraphInstantiate(GpuGraphHandle graph, GpuExecHandle* exec) const override {
    return ToStatus(api_.hipGraphInstantiate(&exec->raw, graph.raw, nullptr, nullptr, 0),
                    "hipGraphInstantiate");
  }
  absl::Status GraphUpload(GpuExecHandle exec, GpuStreamHandle stream) const override {
    if (api_.hipGraphUpload == nullptr) return absl::OkStatus();
    return ToStatus(api_.hipGraphUpload(exec.raw, stream.raw), "hipGraphUpload");
  }
  absl::Status GraphLaunch(GpuExecHandle exec, GpuStreamHandle stream) const override {
    return ToStatus(api_.hipGraphLaunch(exec.raw, stream.raw), "hipGraphLaunch");
  }
  absl::Status GraphDestroy(GpuGraphHandle graph) const override {
    return ToStatus(api_.hipGraphDestroy(graph.raw), "hipGraphDestroy");
  }
  absl::Status GraphExecDestroy(GpuExecHandle exec) const override {
    return ToStatus(api_.hipGraphExecDestroy(exec.raw), "hipGraphExecDestroy");
  }

  absl::Status LibraryLoad(std::span<const std::byte> code,
                           GpuLibraryHandle* library) const override;
  absl::Status LibraryUnload(GpuLibraryHandle library) const override {
    return ToStatus(api_.hipModuleUnload(library.raw), "hipModuleUnload");
  }
  absl::Status LibraryFindKernels(GpuLibraryHandle library, std::span<const KernelDef> wanted,
                                  GpuKernelHandle* found) const override;
  absl::Status KernelGetInfo(GpuKernelHandle kernel, GpuKernelInfo* info) const override;
  // A block may use all shared memory that the device has; there is nothing to opt in to.
  // (hipFuncSetAttribute would want the address of a host function, which a module has none of.)
  absl::Status KernelSetMaxSharedBytes(GpuKernelHandle, size_t) const override {
    return absl::OkStatus();
  }
  absl::Status LaunchKernel(GpuKernelHandle kernel, const LaunchShape& shape, const void* args,
                            size_t args_bytes, bool early, GpuStreamHandle stream) const override;

 private:
  absl::Status ToStatus(int error, const char* call) const;
  absl::Status GetAttribute(int ordinal, hip::DeviceAttribute attribute, size_t* value) const;
  std::string VersionText() const;
  std::string Architecture(int ordinal) const;
  absl::Status GetKernelNodeType(int* type) const;

  const hip::Library library_;
  const hip::Api& api_;
};

absl::Status HipVendor::ToStatus(int error, const char* call) const {
  if (error == hip::kSuccess) return absl::OkStatus();
  // The library keeps the last error per thread; an embedder that asks for it must not find one
  // that we have reported already.
  api_.hipGetLastError();
  const absl::string_view text = api_.hipGetErrorString(error);
  const absl::string_view name = api_.hipGetErrorName(error);
  // ROCm 5.2 has no texts and gives the name for both.
  return absl::Status(CodeOf(error), text == name
                                         ? absl::StrCat(call, ": ", name)
                                         : absl::StrCat(call, ": ", text, " (", name, ")"));
}

absl::Status HipVendor::GetAttribute(int ordinal, hip::DeviceAttribute attribute,
                                     size_t* value) const {
  int got = 0;
  REPRISE_RETURN_IF_ERROR(
      ToStatus(api_.hipDeviceGetAttribute(&got, attribute, ordinal), "hipDeviceGetAttribute"));
  *value = static_cast<size_t>(std::max(got, 0));
  return absl::OkStatus();
}

// "HIP 6.1.40093, libamdhip64.so.6, driver 6.7.0"; the last where the kernel module has a version
// of its own.
std::string HipVendor::VersionText() const {
  int version = 0;
  std::string text;
  if (api_.hipRuntimeGetVersion(&version) == hip::kSuccess) {
    text = absl::StrCat("HIP ", version / 10000000, ".", version / 100000 % 100, ".",
                        version % 100000, ", ");
  }
  absl::StrAppend(&text, library_.name);
  std::ifstream file("/sys/module/amdgpu/version");
  std::string driver;
  if (std::getline(file, driver)) absl::StrAppend(&text, ", driver ", driver);
  return text;
}

// "gfx942"; "" where the library does not tell in a layout that we know. The rest of AMD's own
// name, as in "gfx90a:sramecc+:xnack-", are settings.
std::string HipVendor::Architecture(int ordinal) const {
  alignas(16) char properties[hip::kDevicePropertiesBytes] = {};
  const bool r0600 = api_.hipGetDevicePropertiesR0600 != nullptr;
  const auto get = r0600 ? api_.hipGetDevicePropertiesR0600 : api_.hipGetDeviceProperties;
  if (get == nullptr || get(properties, ordinal) != hip::kSuccess) return "";
  const char* name =
      properties + (r0600 ? hip::kArchitectureOffsetR0600 : hip::kArchitectureOffset);
  const std::string_view text(name, strnlen(name, hip::kArchitectureBytes));
  if (!text.starts_with("gfx")) return "";
  return std::string(text.substr(0, text.find(':')));
}

// CDNA 2 and 3 have MFMA as our kernels use it, RDNA 3 WMMA.
MatrixUnit MatrixUnitOf(const std::string& architecture) {
  if (architecture == "gfx90a" || architecture.starts_with("gfx94")) return MatrixUnit::kMfma;
  if (architecture.starts_with("gfx11")) return MatrixUnit::kWmma;
  return MatrixUnit::kNone;
}

absl::Status HipVendor::GetProperties(int ordinal, DeviceProperties* properties) const {
  char name[256] = {};
  REPRISE_RETURN_IF_ERROR(
      ToStatus(api_.hipDeviceGetName(name, sizeof(name) - 1, ordinal), "hipDeviceGetName"));
  size_t multiprocessors = 0, warp_size = 0, block_shared = 0, shared = 0, total = 0;
  REPRISE_RETURN_IF_ERROR(GetAttribute(ordinal, hip::kMultiprocessorCount, &multiprocessors));
  REPRISE_RETURN_IF_ERROR(GetAttribute(ordinal, hip::kWarpSize, &warp_size));
  REPRISE_RETURN_IF_ERROR(GetAttribute(ordinal, hip::kMaxSharedMemoryPerBlock, &block_shared));
  REPRISE_RETURN_IF_ERROR(GetAttribute(ordinal, hip::kMaxSharedMemoryPerMultiprocessor, &shared));
  REPRISE_RETURN_IF_ERROR(ToStatus(api_.hipDeviceTotalMem(&total, ordinal), "hipDeviceTotalMem"));
  if ((warp_size != 32 && warp_size != 64) || multiprocessors == 0 || block_shared == 0) {
    return absl::InternalError(absl::StrCat(
        "device 'hip': ", library_.name, " says of ordinal ", ordinal, ": warp size ", warp_size,
        ", ", multiprocessors, " multiprocessors, ", block_shared,
        " bytes of shared memory for a block; allowed: warp size 32 or 64, and some of the "
        "others"));
  }
  const std::string architecture = Architecture(ordinal);
  *properties = {.kind = DeviceKind::kHip,
                 .name = name[0] == '\0' ? "AMD GPU" : name,
                 .driver = VersionText(),
                 .architecture = architecture,
                 .ordinal = ordinal,
                 .num_multiprocessors = static_cast<int>(multiprocessors),
                 .warp_size = static_cast<int>(warp_size),
                 .matrix_unit = MatrixUnitOf(architecture),
                 .max_shared_bytes = block_shared,
                 .shared_bytes_per_multiprocessor = std::max(shared, block_shared),
                 .total_bytes = total};
  return absl::OkStatus();
}

// Coherent, so that the host sees what a running kernel writes, and the other way round, without
// waiting for the kernel's end.
absl::Status HipVendor::HostAllocMapped(size_t bytes, MappedPointers* pointers) const {
  REPRISE_RETURN_IF_ERROR(
      ToStatus(api_.hipHostMalloc(
                   &pointers->host, bytes,
                   hip::kHostMallocMapped | hip::kHostMallocPortable | hip::kHostMallocCoherent),
               "hipHostMalloc"));
  absl::Status status = ToStatus(api_.hipHostGetDevicePointer(&pointers->device, pointers->host, 0),
                                 "hipHostGetDevicePointer");
  if (!status.ok()) api_.hipHostFree(pointers->host);
  return status;
}

absl::Status HipVendor::IpcGetHandle(void* data, std::string* handle) const {
  // A library has all three or none of them.
  if (api_.hipIpcGetMemHandle == nullptr || api_.hipIpcOpenMemHandle == nullptr ||
      api_.hipIpcCloseMemHandle == nullptr) {
    return absl::UnimplementedError(
        "memory that processes share: this HIP library has no hipIpcGetMemHandle");
  }
  hip::IpcMemHandle native;
  REPRISE_RETURN_IF_ERROR(ToStatus(api_.hipIpcGetMemHandle(&native, data), "hipIpcGetMemHandle"));
  handle->assign(native.reserved, sizeof(native.reserved));
  return absl::OkStatus();
}

absl::Status HipVendor::IpcOpenHandle(std::string_view handle, void** data) const {
  if (api_.hipIpcOpenMemHandle == nullptr || api_.hipIpcCloseMemHandle == nullptr) {
    return absl::UnimplementedError(
        "memory that processes share: this HIP library has no hipIpcOpenMemHandle");
  }
  hip::IpcMemHandle native;
  if (handle.size() != sizeof(native.reserved)) {
    return absl::FailedPreconditionError(
        absl::StrCat("shared memory of another process: got a handle of ", handle.size(),
                     " bytes, allowed: one of HIP, of ", sizeof(native.reserved)));
  }
  std::memcpy(native.reserved, handle.data(), handle.size());
  return ToStatus(api_.hipIpcOpenMemHandle(data, native, hip::kIpcMemLazyEnablePeerAccess),
                  "hipIpcOpenMemHandle");
}

absl::Status HipVendor::StreamIsCapturing(GpuStreamHandle stream, bool* capturing) const {
  int status = hip::kStreamCaptureStatusNone;
  REPRISE_RETURN_IF_ERROR(
      ToStatus(api_.hipStreamIsCapturing(stream.raw, &status), "hipStreamIsCapturing"));
  *capturing = status != hip::kStreamCaptureStatusNone;
  return absl::OkStatus();
}

// Releases number node types differently (hip_api.h), so an empty node, made for the purpose, tells
// the number.
absl::Status HipVendor::GetKernelNodeType(int* type) const {
  void* graph = nullptr;
  void* node = nullptr;
  REPRISE_RETURN_IF_ERROR(ToStatus(api_.hipGraphCreate(&graph, 0), "hipGraphCreate"));
  absl::Status status =
      ToStatus(api_.hipGraphAddEmptyNode(&node, graph, nullptr, 0), "hipGraphAddEmptyNode");
  if (status.ok()) status = ToStatus(api_.hipGraphNodeGetType(node, type), "hipGraphNodeGetType");
  *type -= hip::kEmptyNodeTypeLessKernel;
  status.Update(ToStatus(api_.hipGraphDestroy(graph), "hipGraphDestroy"));
  return status;
}

absl::Status HipVendor::GraphCountNodes(GpuGraphHandle graph, int* num_kernels,
                                        int* num_others) const {
  *num_kernels = 0;
  *num_others = 0;
  size_t count = 0;
  REPRISE_RETURN_IF_ERROR(
      ToStatus(api_.hipGraphGetNodes(graph.raw, nullptr, &count), "hipGraphGetNodes"));
  if (count == 0) return absl::OkStatus();
  std::vector<void*> nodes(count);
  REPRISE_RETURN_IF_ERROR(
      ToStatus(api_.hipGraphGetNodes(graph.raw, nodes.data(), &count), "hipGraphGetNodes"));
  int kernel_type = 0;
  REPRISE_RETURN_IF_ERROR(GetKernelNodeType(&kernel_type));
  for (void* node : nodes) {
    int type = 0;
    REPRISE_RETURN_IF_ERROR(ToStatus(api_.hipGraphNodeGetType(node, &type), "hipGraphNodeGetType"));
    ++*(type == kernel_type ? num_kernels : num_others);
  }
  return absl::OkStatus();
}

// Code without a part for this device is hipErrorNoBinaryForGpu in some releases and
// hipErrorInvalidImage in others (7.x), so both mean that there is no code here; the message keeps
// them apart.
absl::Status HipVendor::LibraryLoad(std::span<const std::byte> code,
                                    GpuLibraryHandle* library) const {
  if (code.empty()) {
    return absl::InvalidArgumentError("hipModuleLoadData: the code object has 0 bytes");
  }
  const int error = api_.hipModuleLoadData(&library->raw, code.data());
  absl::Status status = ToStatus(error, "hipModuleLoadData");
  return error == hip::kInvalidImage ? absl::NotFoundError(status.message()) : status;
}

absl::Status HipVendor::LibraryFindKernels(GpuLibraryHandle library,
                                           std::span<const KernelDef> wanted,
                                           GpuKernelHandle* found) const {
  for (size_t i = 0; i < wanted.size(); ++i) {
    void* function = nullptr;
    const std::string name(wanted[i].name);
    absl::Status status = ToStatus(api_.hipModuleGetFunction(&function, library.raw, name.c_str()),
                                   "hipModuleGetFunction");
    if (absl::IsNotFound(status)) continue;
    REPRISE_RETURN_IF_ERROR(status);
    found[i].raw = function;
  }
  return absl::OkStatus();
}

// The library does not tell the size of a kernel's parameter.
absl::Status HipVendor::KernelGetInfo(GpuKernelHandle kernel, GpuKernelInfo* info) const {
  int bytes = 0;
  REPRISE_RETURN_IF_ERROR(
      ToStatus(api_.hipFuncGetAttribute(&bytes, hip::kFunctionSharedSizeBytes, kernel.raw),
               "hipFuncGetAttribute"));
  info->static_shared_bytes = static_cast<size_t>(std::max(bytes, 0));
  return absl::OkStatus();
}

// The arguments go as one buffer with its size, which the library copies, at capture too. The other
// form, an array of pointers, leaves the size to the code object's own word: a struct that host and
// device code see differently would be read beyond its end.
absl::Status HipVendor::LaunchKernel(GpuKernelHandle kernel, const LaunchShape& shape,
                                     const void* args, size_t args_bytes, bool /*early*/,
                                     GpuStreamHandle stream) const {
  if (shape.cooperative)
    return absl::UnimplementedError("a cooperative launch on hip; allowed: plain launches");
  void* extra[] = {hip::kLaunchParamBufferPointer, const_cast<void*>(args),
                   hip::kLaunchParamBufferSize, &args_bytes, hip::kLaunchParamEnd};
  return ToStatus(
      api_.hipModuleLaunchKernel(kernel.raw, shape.grid_x, shape.grid_y, 1, shape.block, 1, 1,
                                 static_cast<unsigned>(shape.shared_bytes), stream.raw,
                                 /*params=*/nullptr, extra),
      "hipModuleLaunchKernel");
}

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> CreateHipDevice(const DeviceOptions& options) {
  auto library = hip::OpenLibrary(options.hip_library);
  if (!library.ok()) {
    return absl::Status(library.status().code(),
                        absl::StrCat("device 'hip': ", library.status().message()));
  }
  return CreateGpuDevice(std::make_unique<HipVendor>(*std::move(library)), options.ordinal);
}

int CountHipDevices(std::string* why, std::string_view library_path) {
  int count = 0;
  auto library = hip::OpenLibrary(library_path);
  absl::Status status = library.status();
  if (status.ok()) status = HipVendor(*std::move(library)).GetDeviceCount(&count);
  if (!status.ok()) count = 0;
  if (why == nullptr) return count;
  if (!status.ok()) {
    *why = std::string(status.message());
  } else if (count == 0) {
    *why = "hipGetDeviceCount: no device";
  }
  return count;
}

}  // namespace reprise::runtime
