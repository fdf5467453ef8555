// SPDX-License-Identifier: Apache-2.0
// The host device; see host_device.h.
#include "runtime/host/host_device.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "runtime/byte_count.h"
#include "runtime/host/host_executor.h"
#include "runtime/host/host_shared_memory.h"
#include "runtime/host/host_stream.h"
#include "runtime/shared_memory.h"
#include "runtime/status_macros.h"

namespace reprise::runtime {
namespace {

constexpr size_t kAllocationAlignment = 256;
constexpr int kMaxHostThreads = 1024;
// Smaller allocations are not checked against the free memory: reading it costs more than they do.
constexpr size_t kCheckedAllocationBytes = size_t{1} << 20;

absl::string_view Abseil(std::string_view s) { return {s.data(), s.size()}; }

// The value after "<key> :" in one of the kernel's text files, or "".
std::string ReadField(const char* path, absl::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const std::pair<absl::string_view, absl::string_view> field =
        absl::StrSplit(line, absl::MaxSplits(':', 1));
    if (absl::StripAsciiWhitespace(field.first) == key) {
      return std::string(absl::StripAsciiWhitespace(field.second));
    }
  }
  return "";
}

absl::StatusOr<size_t> ReadMemoryBytes(absl::string_view key) {
  const std::string field = ReadField("/proc/meminfo", key);
  uint64_t kib = 0;
  if (!absl::SimpleAtoi(absl::StripSuffix(field, " kB"), &kib)) {
    return absl::UnavailableError(
        absl::StrCat("/proc/meminfo: ", key, " is '", field, "'; a size in kB is expected"));
  }
  return static_cast<size_t>(kib) * 1024;
}

class HostModule final : public KernelModule {
 public:
  explicit HostModule(absl::flat_hash_map<absl::string_view, const KernelDef*> kernels)
      : kernels_(std::move(kernels)) {}

  absl::StatusOr<Kernel> Find(std::string_view name) const override {
    const auto it = kernels_.find(Abseil(name));
    if (it == kernels_.end()) {
      return absl::NotFoundError(
          absl::StrCat("kernel '", Abseil(name), "': no such kernel in this image"));
    }
    if (it->second->host == nullptr) {
      return absl::NotFoundError(
          absl::StrCat("kernel '", Abseil(name), "' has no code for the host device"));
    }
    return Kernel{.handle = it->second, .name = it->second->name};
  }

 private:
  const absl::flat_hash_map<absl::string_view, const KernelDef*> kernels_;
};

class HostDevice final : public Device, public SharedMemory {
 public:
  HostDevice(DeviceProperties properties, std::unique_ptr<HostExecutor> executor,
             const TestDelays& delays)
      : properties_(std::move(properties)), executor_(std::move(executor)), delays_(delays) {}

  const DeviceProperties& properties() const override { return properties_; }
  absl::StatusOr<void*> Allocate(size_t bytes) override;
  void Free(void* data) override { std::free(data); }
  absl::StatusOr<MappedPointers> AllocateMapped(size_t bytes) override;
  void FreeMapped(const MappedPointers& pointers) override { std::free(pointers.host); }
  absl::StatusOr<size_t> FreeBytes() const override { return ReadMemoryBytes("MemAvailable"); }
  absl::StatusOr<std::unique_ptr<Stream>> CreateStream() override {
    TestDelays delays = delays_;
    delays.seed += num_streams_.fetch_add(1);
    return CreateHostStream(properties_, *executor_, delays);
  }
  absl::StatusOr<std::unique_ptr<Stream>> WrapStream(void*) override {
    return absl::UnimplementedError(
        "WrapStream: the host device has no native streams; use CreateStream");
  }
  absl::StatusOr<std::unique_ptr<KernelModule>> Load(const KernelImage& image) override;

  absl::StatusOr<SharedAllocation> AllocateShared(size_t bytes) override;
  void FreeShared(void* data) override { shared_.Release(data); }
  absl::StatusOr<void*> OpenShared(std::string_view handle, size_t bytes) override {
    return shared_.Open(handle, bytes);
  }
  void CloseShared(void* data) override { shared_.Release(data); }

 private:
  // OK where the machine has room for an allocation of so many bytes.
  absl::Status CheckRoom(size_t bytes) const;

  const DeviceProperties properties_;
  const std::unique_ptr<HostExecutor> executor_;
  const TestDelays delays_;
  std::atomic<uint64_t> num_streams_{0};
  HostSharedMemory shared_;
};

absl::Status HostDevice::CheckRoom(size_t bytes) const {
  if (bytes == 0) return absl::InvalidArgumentError("Allocate: 0 bytes; allowed: at least 1");
  if (bytes < kCheckedAllocationBytes) return absl::OkStatus();
  // The system promises more memory than it has; asking it first turns a later kill into an error
  // here.
  REPRISE_ASSIGN_OR_RETURN(const size_t free_bytes, FreeBytes());
  if (bytes <= free_bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("host: ", ByteCount(bytes), " asked, ", ByteCount(free_bytes), " free"));
}

absl::StatusOr<SharedAllocation> HostDevice::AllocateShared(size_t bytes) {
  REPRISE_RETURN_IF_ERROR(CheckRoom(bytes));
  return shared_.Allocate(bytes);
}

absl::StatusOr<void*> HostDevice::Allocate(size_t bytes) {
  REPRISE_RETURN_IF_ERROR(CheckRoom(bytes));
  // posix_memalign keeps the exact size, so that AddressSanitizer sees the first byte beyond it.
  void* data = nullptr;
  if (posix_memalign(&data, kAllocationAlignment, bytes) != 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("host: ", ByteCount(bytes), " asked, but the system has none left"));
  }
  return data;
}

absl::StatusOr<MappedPointers> HostDevice::AllocateMapped(size_t bytes) {
  REPRISE_ASSIGN_OR_RETURN(void* data, Allocate(bytes));
  std::memset(data, 0, bytes);
  return MappedPointers{.host = data, .device = data};
}

absl::StatusOr<std::unique_ptr<KernelModule>> HostDevice::Load(const KernelImage& image) {
  absl::flat_hash_map<absl::string_view, const KernelDef*> kernels;
  for (const KernelDef& kernel : image.kernels) {
    if (!kernels.emplace(Abseil(kernel.name), &kernel).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("kernel '", Abseil(kernel.name), "' is in the image twice"));
    }
  }
  return std::make_unique<HostModule>(std::move(kernels));
}

absl::Status CheckOptions(const DeviceOptions& options, const TestDelays& delays) {
  if (options.ordinal != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("host device: ordinal is ", options.ordinal, "; allowed: 0"));
  }
  if (options.host_threads < 0 || options.host_threads > kMaxHostThreads) {
    return absl::InvalidArgumentError(
        absl::StrCat("host device: host_threads is ", options.host_threads,
                     "; allowed: 0 (one per core) to ", kMaxHostThreads));
  }
  if (delays.max_us < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("host device: the delays' max_us is ", delays.max_us, "; allowed: 0 or more"));
  }
  if (delays.slow_us < 0) {
    return absl::InvalidArgumentError(absl::StrCat("host device: the delays' slow_us is ",
                                                   delays.slow_us, "; allowed: 0 or more"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> CreateHostDevice(const DeviceOptions& options,
                                                         const TestDelays& delays) {
  REPRISE_RETURN_IF_ERROR(CheckOptions(options, delays));
  const int num_cores =
      std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, kMaxHostThreads);
  DeviceProperties properties;
  properties.kind = DeviceKind::kHost;
  properties.name = ReadField("/proc/cpuinfo", "model name");
  if (properties.name.empty()) properties.name = "CPU";
  properties.num_multiprocessors = options.host_threads > 0 ? options.host_threads : num_cores;
  properties.max_shared_bytes = kMaxHostSharedBytes;
  properties.shared_bytes_per_multiprocessor = kMaxHostSharedBytes;
  REPRISE_ASSIGN_OR_RETURN(properties.total_bytes, ReadMemoryBytes("MemTotal"));
  REPRISE_ASSIGN_OR_RETURN(std::unique_ptr<HostExecutor> executor,
                           HostExecutor::Create(properties.num_multiprocessors));
  return std::make_unique<HostDevice>(std::move(properties), std::move(executor), delays);
}

}  // namespace reprise::runtime
