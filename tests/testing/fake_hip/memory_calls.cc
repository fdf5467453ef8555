// SPDX-License-Identifier: Apache-2.0
// The fake HIP library: memory of the device, and pinned memory mapped to it.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "tests/testing/fake_hip/fake_hip_library.h"

namespace reprise::testing::fake_hip {
namespace {

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

}  // namespace

void Unmap(const Mapping& mapping) {
  munmap(mapping.host, mapping.bytes);
  munmap(mapping.device, mapping.bytes);
}

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

#ifndef FAKE_HIP_ROCM_5_2
// hipIpcMemHandle_t: here the address, which every user of the library can follow.
struct FakeIpcHandle {
  char reserved[64];
};

FAKE_HIP_EXPORT int hipIpcGetMemHandle(FakeIpcHandle* handle, void* data) {
  FAKE_HIP_CALL_FORBIDDEN_IN_CAPTURE(hipIpcGetMemHandle);
  if (call.state.allocations.count(data) == 0) return call.Return(kInvalidValue);
  std::memset(handle->reserved, 0, sizeof(handle->reserved));
  std::memcpy(handle->reserved, &data, sizeof(data));
  return call.Return(kSuccess);
}

FAKE_HIP_EXPORT int hipIpcOpenMemHandle(void** data, FakeIpcHandle handle, unsigned flags) {
  FAKE_HIP_CALL_FORBIDDEN_IN_CAPTURE(hipIpcOpenMemHandle);
  if (flags != 1) return call.Return(kInvalidValue);  // hipIpcMemLazyEnablePeerAccess
  std::memcpy(data, handle.reserved, sizeof(*data));
  return call.Return(call.state.allocations.count(*data) == 0 ? kInvalidValue : kSuccess);
}

FAKE_HIP_EXPORT int hipIpcCloseMemHandle(void* data) {
  FAKE_HIP_CALL_FORBIDDEN_IN_CAPTURE(hipIpcCloseMemHandle);
  return call.Return(call.state.allocations.count(data) == 0 ? kInvalidValue : kSuccess);
}
#endif

FAKE_HIP_EXPORT int hipMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  FAKE_HIP_CALL(hipMemGetInfo);
  *free_bytes = FreeBytes(call.state);
  *total_bytes = call.state.machine.total_bytes;
  return call.Return(kSuccess);
}

}  // namespace reprise::testing::fake_hip
