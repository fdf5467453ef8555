// SPDX-License-Identifier: Apache-2.0
// The Device of every GPU: memory and code. Its streams and graphs are in gpu_stream.cc; the
// vendor's calls behind gpu_vendor.h.
#include "runtime/gpu/gpu_device.h"

#include <unistd.h>

#include <cstring>
#include <deque>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "runtime/byte_count.h"
#include "runtime/gpu/gpu_stream.h"
#include "runtime/shared_memory.h"
#include "runtime/status_macros.h"

namespace reprise::runtime {
namespace {

constexpr size_t kDriverPageBytes = size_t{2} << 20;

absl::string_view Abseil(std::string_view s) { return {s.data(), s.size()}; }

// Pinned memory is the host's own.
size_t HostMemoryBytes() {
  return static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

std::span<const std::span<const std::byte>> CodeFor(DeviceKind kind, const KernelImage& image) {
  return kind == DeviceKind::kHip ? image.hip_code_objects : image.cuda_fatbins;
}

// A kernel of the image, or why this device cannot run it.
struct ModuleEntry {
  Kernel kernel;
  absl::Status missing;
};

class GpuModule final : public KernelModule {
 public:
  explicit GpuModule(absl::flat_hash_map<std::string, ModuleEntry> entries)
      : entries_(std::move(entries)) {}
  absl::StatusOr<Kernel> Find(std::string_view name) const override {
    const auto it = entries_.find(Abseil(name));
    if (it == entries_.end()) {
      return absl::NotFoundError(
          absl::StrCat("kernel '", Abseil(name), "': no such kernel in this image"));
    }
    if (!it->second.missing.ok()) return it->second.missing;
    return it->second.kernel;
  }

 private:
  const absl::flat_hash_map<std::string, ModuleEntry> entries_;
};

class GpuDevice final : public Device, public SharedMemory {
 public:
  explicit GpuDevice(GpuContext context) : context_(std::move(context)) {}
  ~GpuDevice() override {
    GpuDeviceGuard guard(context_);
    for (const GpuLibraryHandle library : libraries_) {
      LogIfError("unloading kernels", vendor().LibraryUnload(library));
    }
  }

  const DeviceProperties& properties() const override { return context_.properties; }
  absl::StatusOr<void*> Allocate(size_t bytes) override;
  void Free(void* data) override;
  absl::StatusOr<MappedPointers> AllocateMapped(size_t bytes) override;
  void FreeMapped(const MappedPointers& pointers) override;
  absl::StatusOr<size_t> FreeBytes() const override;
  absl::StatusOr<std::unique_ptr<Stream>> CreateStream() override {
    return CreateGpuStream(context_);
  }
  absl::StatusOr<std::unique_ptr<Stream>> WrapStream(void* native) override {
    return WrapGpuStream(context_, native);
  }
  absl::StatusOr<std::unique_ptr<KernelModule>> Load(const KernelImage& image) override;

  absl::StatusOr<SharedAllocation> AllocateShared(size_t bytes) override;
  void FreeShared(void* data) override { Free(data); }
  absl::StatusOr<void*> OpenShared(std::string_view handle, size_t bytes) override;
  void CloseShared(void* data) override;

 private:
  const GpuVendor& vendor() const { return *context_.vendor; }
  // Libraries of the image's code that fits this device. `why` tells about the rest, or that there
  // is none.
  absl::StatusOr<std::vector<GpuLibraryHandle>> LoadLibraries(const KernelImage& image,
                                                              absl::Status* why)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The first of `candidates` that this device can run. NotFound when there is none.
  absl::StatusOr<Kernel> LoadKernel(const KernelDef& def,
                                    const std::vector<GpuKernelHandle>& candidates)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Missing(std::string_view name, const absl::Status& why) const;

  const GpuContext context_;
  std::mutex mutex_;
  // Kept until the device goes, because a Kernel is valid as long as the device.
  std::vector<GpuLibraryHandle> libraries_ ABSL_GUARDED_BY(mutex_);
  std::deque<GpuKernel> kernels_ ABSL_GUARDED_BY(mutex_);  // addresses stay
};

absl::StatusOr<void*> GpuDevice::Allocate(size_t bytes) {
  if (bytes == 0) return absl::InvalidArgumentError("Allocate: 0 bytes; allowed: at least 1");
  GpuDeviceGuard guard(context_);
  REPRISE_RETURN_IF_ERROR(guard.status());
  void* data = nullptr;
  const bool possible = bytes <= properties().total_bytes;
  const absl::Status status =
      possible ? vendor().Malloc(bytes, &data) : absl::ResourceExhaustedError("");
  if (absl::IsResourceExhausted(status)) {
    REPRISE_ASSIGN_OR_RETURN(const size_t free_bytes, FreeBytes());
    return absl::ResourceExhaustedError(absl::StrCat(Abseil(NameOf(kind())), ":",
                                                     properties().ordinal, ": ", ByteCount(bytes),
                                                     " asked, ", ByteCount(free_bytes), " free"));
  }
  if (!status.ok()) return status;
  return data;
}

void GpuDevice::Free(void* data) {
  if (data == nullptr) return;
  GpuDeviceGuard guard(context_);
  LogIfError("freeing device memory", vendor().Free(data));
}

absl::StatusOr<MappedPointers> GpuDevice::AllocateMapped(size_t bytes) {
  if (bytes == 0) return absl::InvalidArgumentError("AllocateMapped: 0 bytes; allowed: at least 1");
  if (bytes > HostMemoryBytes()) {
    return absl::ResourceExhaustedError(absl::StrCat("pinned host memory: ", ByteCount(bytes),
                                                     " asked, ", ByteCount(HostMemoryBytes()),
                                                     " in the machine"));
  }
  GpuDeviceGuard guard(context_);
  REPRISE_RETURN_IF_ERROR(guard.status());
  MappedPointers pointers;
  REPRISE_RETURN_IF_ERROR(vendor().HostAllocMapped(bytes, &pointers));
  std::memset(pointers.host, 0, bytes);
  return pointers;
}

void GpuDevice::FreeMapped(const MappedPointers& pointers) {
  if (pointers.host == nullptr) return;
  GpuDeviceGuard guard(context_);
  LogIfError("freeing mapped memory", vendor().HostFree(pointers.host));
}

absl::StatusOr<size_t> GpuDevice::FreeBytes() const {
  GpuDeviceGuard guard(context_);
  REPRISE_RETURN_IF_ERROR(guard.status());
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  REPRISE_RETURN_IF_ERROR(vendor().MemGetInfo(&free_bytes, &total_bytes));
  return free_bytes;
}

// Whole pages of the driver: smaller allocations lie in one that a handle would give away with
// them.
absl::StatusOr<SharedAllocation> GpuDevice::AllocateShared(size_t bytes) {
  SharedAllocation shared;
  REPRISE_ASSIGN_OR_RETURN(
      shared.data, Allocate((bytes + kDriverPageBytes - 1) / kDriverPageBytes * kDriverPageBytes));
  GpuDeviceGuard guard(context_);
  absl::Status status = guard.status();
  if (status.ok()) status = vendor().IpcGetHandle(shared.data, &shared.handle);
  if (status.ok()) return shared;
  Free(shared.data);
  return status;
}

absl::StatusOr<void*> GpuDevice::OpenShared(std::string_view handle, size_t /*bytes*/) {
  GpuDeviceGuard guard(context_);
  REPRISE_RETURN_IF_ERROR(guard.status());
  void* data = nullptr;
  REPRISE_RETURN_IF_ERROR(vendor().IpcOpenHandle(handle, &data));
  return data;
}

void GpuDevice::CloseShared(void* data) {
  GpuDeviceGuard guard(context_);
  LogIfError("closing another process's memory", vendor().IpcClose(data));
}

absl::StatusOr<std::unique_ptr<KernelModule>> GpuDevice::Load(const KernelImage& image) {
  GpuDeviceGuard guard(context_);
  REPRISE_RETURN_IF_ERROR(guard.status());
  std::lock_guard<std::mutex> lock(mutex_);
  absl::Status why;
  REPRISE_ASSIGN_OR_RETURN(const std::vector<GpuLibraryHandle> libraries,
                           LoadLibraries(image, &why));
  std::vector<std::vector<GpuKernelHandle>> candidates(image.kernels.size());
  for (const GpuLibraryHandle library : libraries) {
    std::vector<GpuKernelHandle> found(image.kernels.size());
    REPRISE_RETURN_IF_ERROR(vendor().LibraryFindKernels(library, image.kernels, found.data()));
    for (size_t i = 0; i < found.size(); ++i) {
      if (found[i].raw != nullptr) candidates[i].push_back(found[i]);
    }
  }
  absl::flat_hash_map<std::string, ModuleEntry> entries;
  for (size_t i = 0; i < candidates.size(); ++i) {
    const std::string_view name = image.kernels[i].name;
    const auto [entry, is_new] = entries.try_emplace(std::string(name));
    if (!is_new) {
      return absl::InvalidArgumentError(
          absl::StrCat("kernel '", Abseil(name), "' is in the image twice"));
    }
    auto kernel = LoadKernel(image.kernels[i], candidates[i]);
    if (kernel.ok()) {
      entry->second.kernel = *kernel;
    } else if (absl::IsNotFound(kernel.status())) {
      entry->second.missing = Missing(name, why.ok() ? kernel.status() : why);
    } else {
      return absl::Status(kernel.status().code(),
                          absl::StrCat("kernel '", Abseil(name), "': ", kernel.status().message()));
    }
  }
  return std::make_unique<GpuModule>(std::move(entries));
}

absl::StatusOr<std::vector<GpuLibraryHandle>> GpuDevice::LoadLibraries(const KernelImage& image,
                                                                       absl::Status* why) {
  std::vector<GpuLibraryHandle> libraries;
  const auto all_code = CodeFor(kind(), image);
  if (all_code.empty()) {
    *why = absl::NotFoundError(
        absl::StrCat("the image carries none for device '", Abseil(NameOf(kind())), "'"));
  }
  for (const std::span<const std::byte> code : all_code) {
    GpuLibraryHandle library;
    absl::Status status = vendor().LibraryLoad(code, &library);
    if (absl::IsNotFound(status)) {
      *why = std::move(status);
      continue;
    }
    REPRISE_RETURN_IF_ERROR(status);
    libraries_.push_back(library);
    libraries.push_back(library);
  }
  return libraries;
}

absl::StatusOr<Kernel> GpuDevice::LoadKernel(const KernelDef& def,
                                             const std::vector<GpuKernelHandle>& candidates) {
  absl::Status missing = absl::NotFoundError("it is in none of the image's code");
  for (const GpuKernelHandle handle : candidates) {
    GpuKernelInfo info;
    absl::Status loaded = vendor().KernelGetInfo(handle, &info);
    if (absl::IsNotFound(loaded)) {
      missing = std::move(loaded);
      continue;
    }
    REPRISE_RETURN_IF_ERROR(loaded);
    const size_t dynamic_bytes = properties().max_shared_bytes - info.static_shared_bytes;
    REPRISE_RETURN_IF_ERROR(vendor().KernelSetMaxSharedBytes(handle, dynamic_bytes));
    kernels_.push_back({.handle = handle,
                        .args_bytes = info.args_bytes,
                        .max_dynamic_shared_bytes = dynamic_bytes,
                        .begins_early = def.waits_for_previous && info.can_wait});
    return Kernel{.handle = &kernels_.back(), .name = def.name};
  }
  return missing;
}

absl::Status GpuDevice::Missing(std::string_view name, const absl::Status& why) const {
  return absl::NotFoundError(absl::StrCat("kernel '", Abseil(name), "' has no code for ",
                                          properties().name, " (", Abseil(NameOf(kind())), ":",
                                          properties().ordinal, "): ", why.message()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> CreateGpuDevice(std::unique_ptr<const GpuVendor> vendor,
                                                        int ordinal) {
  const absl::string_view name = Abseil(NameOf(vendor->kind()));
  if (ordinal < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("device '", name, "': ordinal is ", ordinal, "; allowed: 0 or more"));
  }
  int count = 0;
  const absl::Status counted = vendor->GetDeviceCount(&count);
  if (!counted.ok()) {
    return absl::UnavailableError(absl::StrCat("device '", name, "': ", counted.message()));
  }
  if (ordinal >= count) {
    return absl::UnavailableError(
        absl::StrCat("device '", name, "': ordinal is ", ordinal, "; this machine has ", count));
  }
  DeviceProperties properties;
  REPRISE_RETURN_IF_ERROR(vendor->GetProperties(ordinal, &properties));
  auto device = std::make_unique<GpuDevice>(
      GpuContext{.vendor = std::move(vendor), .properties = std::move(properties)});
  // Makes the context now, so that a device that is taken or broken is an error here and not at the
  // first allocation.
  REPRISE_RETURN_IF_ERROR(device->FreeBytes().status());
  return device;
}

}  // namespace reprise::runtime
