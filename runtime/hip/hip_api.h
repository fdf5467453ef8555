// SPDX-License-Identifier: Apache-2.0
// The part of the HIP runtime's C interface that Reprise calls: names, numbers and signatures,
// written down here, because HIP's headers are no build dependency. hip_library.h finds the
// functions in a library that is opened at run time; hip_device.cc is the only other user.
//
// Where the facts come from: the HIP Runtime API Reference (rocm.docs.amd.com/projects/HIP) and the
// public header hip/hip_runtime_api.h that it documents, as of HIP 5.2 and 7.x; the numbers were
// compared in 6.2 too. What is written here is the same in all of them, unless a comment says which
// number belongs to which release. What differs and could not be asked for in another way is not
// used: hipDeviceProp_t has one layout up to 5.7 and another since 6.0, hipGraphInstantiate has
// five arguments where CUDA has three, and hipFuncSetAttribute takes a host function's address and
// no function of a module.
#ifndef REPRISE_RUNTIME_HIP_HIP_API_H_
#define REPRISE_RUNTIME_HIP_HIP_API_H_

#include <cstddef>

namespace reprise::runtime::hip {

// hipError_t, passed as the int that it is.
enum Error : int {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNotInitialized = 3,
  kInvalidConfiguration = 9,
  kInsufficientDriver = 35,
  kInvalidDeviceFunction = 98,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kInvalidImage = 200,
  kNoBinaryForGpu = 209,
  kInvalidHandle = 400,
  kIllegalState = 401,
  kNotFound = 500,
  kNotReady = 600,
  kIllegalAddress = 700,
  kLaunchOutOfResources = 701,
  kLaunchFailure = 719,
  kNotSupported = 801,
  kStreamCaptureUnsupported = 900,
  kStreamCaptureInvalidated = 901,
  kStreamCaptureMerge = 902,
  kStreamCaptureUnmatched = 903,
  kStreamCaptureUnjoined = 904,
  kStreamCaptureIsolation = 905,
  kStreamCaptureImplicit = 906,
  kStreamCaptureWrongThread = 908,
};

// hipDeviceAttribute_t. Numbered so in ROCm 5.2 and later; 4.x counted otherwise, and its library
// has another name. hip_device.cc refuses a device whose answers make no sense.
enum DeviceAttribute : int {
  kMultiprocessorCount = 63,
  kMaxSharedMemoryPerBlock = 74,  // bytes
  kWarpSize = 87,
  kMaxSharedMemoryPerMultiprocessor = 10002,  // bytes; AMD's own range
};

// hipFunction_attribute.
inline constexpr int kFunctionSharedSizeBytes = 1;  // static shared memory

// hipGraphNodeType counts from kernel = 1 up to empty = 6 in ROCm 5.2 and from kernel = 0 up to
// empty = 5 in later ones: the distance is what holds for all.
inline constexpr int kEmptyNodeTypeLessKernel = 5;

inline constexpr unsigned kStreamNonBlocking = 0x1;
inline constexpr int kStreamCaptureModeThreadLocal = 1;
inline constexpr int kStreamCaptureStatusNone = 0;
inline constexpr int kMemcpyHostToDevice = 1;
inline constexpr int kMemcpyDeviceToHost = 2;
inline constexpr unsigned kHostMallocPortable = 0x1;
inline constexpr unsigned kHostMallocMapped = 0x2;
inline constexpr unsigned kHostMallocCoherent = 0x40000000;

// Keys of hipModuleLaunchKernel's last argument: {kBufferPointer, arguments, kBufferSize, &bytes,
// kEnd}.
inline void* const kLaunchParamBufferPointer = reinterpret_cast<void*>(1);
inline void* const kLaunchParamBufferSize = reinterpret_cast<void*>(2);
inline void* const kLaunchParamEnd = reinterpret_cast<void*>(3);

// Where gcnArchName lies in what hipGetDeviceProperties (to 5.7) and hipGetDevicePropertiesR0600
// (since 6.0) write. Both write less than kDevicePropertiesBytes: 792 and 1,472.
inline constexpr size_t kArchitectureOffset = 396;
inline constexpr size_t kArchitectureOffsetR0600 = 1160;
inline constexpr size_t kArchitectureBytes = 256;
inline constexpr size_t kDevicePropertiesBytes = 16384;

// hipIpcMemHandle_t, and the one flag of hipIpcOpenMemHandle.
struct IpcMemHandle {
  char reserved[64];
};
inline constexpr unsigned kIpcMemLazyEnablePeerAccess = 1;

// CALL(result, name, parameters). hipStream_t, hipGraph_t and the other handles are pointers and
// stand here as void*; hipDevice_t is the ordinal.
#define REPRISE_HIP_REQUIRED_CALLS(CALL)                                                        \
  CALL(const char*, hipGetErrorName, (int error))                                               \
  CALL(const char*, hipGetErrorString, (int error))                                             \
  CALL(int, hipGetLastError, ())                                                                \
  CALL(int, hipRuntimeGetVersion, (int* version))                                               \
  CALL(int, hipGetDeviceCount, (int* count))                                                    \
  CALL(int, hipDeviceGetAttribute, (int* value, int attribute, int device))                     \
  CALL(int, hipDeviceGetName, (char* name, int bytes, int device))                              \
  CALL(int, hipDeviceTotalMem, (size_t * bytes, int device))                                    \
  CALL(int, hipGetDevice, (int* device))                                                        \
  CALL(int, hipSetDevice, (int device))                                                         \
  CALL(int, hipMalloc, (void** data, size_t bytes))                                             \
  CALL(int, hipFree, (void* data))                                                              \
  CALL(int, hipHostMalloc, (void** data, size_t bytes, unsigned flags))                         \
  CALL(int, hipHostGetDevicePointer, (void** device, void* host, unsigned flags))               \
  CALL(int, hipHostFree, (void* data))                                                          \
  CALL(int, hipMemGetInfo, (size_t * free_bytes, size_t * total_bytes))                         \
  CALL(int, hipStreamCreateWithFlags, (void** stream, unsigned flags))                          \
  CALL(int, hipStreamDestroy, (void* stream))                                                   \
  CALL(int, hipStreamSynchronize, (void* stream))                                               \
  CALL(int, hipStreamQuery, (void* stream))                                                     \
  CALL(int, hipMemcpyAsync, (void* dst, const void* src, size_t bytes, int kind, void* stream)) \
  CALL(int, hipMemsetAsync, (void* dst, int value, size_t bytes, void* stream))                 \
  CALL(int, hipStreamIsCapturing, (void* stream, int* status))                                  \
  CALL(int, hipStreamBeginCapture, (void* stream, int mode))                                    \
  CALL(int, hipStreamEndCapture, (void* stream, void** graph))                                  \
  CALL(int, hipGraphCreate, (void** graph, unsigned flags))                                     \
  CALL(int, hipGraphAddEmptyNode,                                                               \
       (void** node, void* graph, void* const* dependencies, size_t num_dependencies))          \
  CALL(int, hipGraphGetNodes, (void* graph, void** nodes, size_t* num_nodes))                   \
  CALL(int, hipGraphNodeGetType, (void* node, int* type))                                       \
  CALL(int, hipGraphInstantiate,                                                                \
       (void** exec, void* graph, void** error_node, char* log, size_t log_bytes))              \
  CALL(int, hipGraphLaunch, (void* exec, void* stream))                                         \
  CALL(int, hipGraphDestroy, (void* graph))                                                     \
  CALL(int, hipGraphExecDestroy, (void* exec))                                                  \
  CALL(int, hipModuleLoadData, (void** module, const void* image))                              \
  CALL(int, hipModuleUnload, (void* module))                                                    \
  CALL(int, hipModuleGetFunction, (void** function, void* module, const char* name))            \
  CALL(int, hipFuncGetAttribute, (int* value, int attribute, void* function))                   \
  CALL(int, hipModuleLaunchKernel,                                                              \
       (void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,    \
        unsigned block_y, unsigned block_z, unsigned shared_bytes, void* stream, void** params, \
        void** extra))

// Null where the library has none: hipGraphUpload came after 5.2, hipGetDevicePropertiesR0600 with
// 6.0; hipGetDeviceProperties is what was before it. Without the hipIpc calls no memory is shared.
#define REPRISE_HIP_OPTIONAL_CALLS(CALL)                                             \
  CALL(int, hipGraphUpload, (void* exec, void* stream))                              \
  CALL(int, hipIpcGetMemHandle, (IpcMemHandle * handle, void* data))                 \
  CALL(int, hipIpcOpenMemHandle, (void** data, IpcMemHandle handle, unsigned flags)) \
  CALL(int, hipIpcCloseMemHandle, (void* data))                                      \
  CALL(int, hipGetDevicePropertiesR0600, (void* properties, int device))             \
  CALL(int, hipGetDeviceProperties, (void* properties, int device))

struct Api {
#define REPRISE_HIP_POINTER(result, name, parameters) result(*name) parameters = nullptr;
  REPRISE_HIP_REQUIRED_CALLS(REPRISE_HIP_POINTER)
  REPRISE_HIP_OPTIONAL_CALLS(REPRISE_HIP_POINTER)
#undef REPRISE_HIP_POINTER
};

}  // namespace reprise::runtime::hip

#endif  // REPRISE_RUNTIME_HIP_HIP_API_H_
