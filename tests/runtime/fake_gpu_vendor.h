// SPDX-License-Identifier: Apache-2.0
// A GpuVendor without a GPU: it keeps account of what is alive, which device was current at each
// call, and fails on request. It runs no kernel. With it the code that CUDA and HIP share is
// tested, sanitizers included, where there is no GPU.
#ifndef REPRISE_TESTS_RUNTIME_FAKE_GPU_VENDOR_H_
#define REPRISE_TESTS_RUNTIME_FAKE_GPU_VENDOR_H_

#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_split.h"
#include "runtime/gpu/gpu_vendor.h"

namespace reprise::runtime {

// The machine behind the fake: shared by the test and the vendor. One thread.
struct FakeGpu {
  struct Call {
    std::string name;
    int device;
  };
  struct Kernel {
    std::string name;
    GpuKernelInfo info;
    bool has_code = true;
    size_t max_shared_bytes = 0;
  };
  struct Recording {
    int num_kernels = 0;
    int num_others = 0;
    std::vector<GpuCapturedNode> nodes = {};
  };

  int num_devices = 2;
  bool code_can_wait = false;  // GpuKernelInfo::can_wait, of all kernels
  int current = 0;
  size_t total_bytes = size_t{1} << 30;
  size_t free_bytes = size_t{1} << 29;
  size_t bytes_per_graph = 4096;
  std::map<std::string, absl::Status> fail;  // by call: returned once, instead of doing it
  std::vector<Call> calls;

  int live_allocations = 0;
  int live_mapped = 0;
  int live_libraries = 0;
  int live_execs = 0;
  std::map<void*, bool> streams;        // alive; value: busy
  std::map<void*, Recording> captures;  // of capturing streams
  std::map<void*, Recording> graphs;    // alive
  std::vector<std::unique_ptr<Kernel>> kernels;
  std::vector<std::string> launched;                 // kernel names, and "graph"
  std::vector<std::string> launched_early;           // or captured so
  std::map<void*, std::vector<std::byte>> set_args;  // of nodes in an executable graph
  uintptr_t next_handle = 1;

  void* NewHandle() { return reinterpret_cast<void*>(next_handle++); }
  int CountCalls(const std::string& name) const {
    int count = 0;
    for (const Call& call : calls) count += call.name == name;
    return count;
  }
};

// A fat binary of the fake: a line "name args_bytes static_shared_bytes" per kernel; "-" in front
// of the name: no code for this device. A fat binary that starts with "!" has none at all.
class FakeGpuVendor final : public GpuVendor {
 public:
  explicit FakeGpuVendor(FakeGpu* gpu) : gpu_(*gpu) {}
  DeviceKind kind() const override { return DeviceKind::kCuda; }

  absl::Status GetDeviceCount(int* count) const override {
    *count = gpu_.num_devices;
    return Enter("GetDeviceCount");
  }
  absl::Status GetProperties(int ordinal, DeviceProperties* properties) const override {
    *properties = {.kind = kind(),
                   .name = "Fake GPU",
                   .driver = "1.0",
                   .ordinal = ordinal,
                   .num_multiprocessors = 4,
                   .warp_size = 32,
                   .compute_capability = 90,
                   .max_shared_bytes = 200 << 10,
                   .shared_bytes_per_multiprocessor = 228 << 10,
                   .total_bytes = gpu_.total_bytes};
    return Enter("GetProperties");
  }
  absl::Status GetDevice(int* ordinal) const override {
    *ordinal = gpu_.current;
    return Enter("GetDevice");
  }
  absl::Status SetDevice(int ordinal) const override {
    absl::Status status = Enter("SetDevice");
    if (status.ok()) gpu_.current = ordinal;
    return status;
  }

  absl::Status Malloc(size_t bytes, void** data) const override {
    absl::Status status = Enter("Malloc");
    if (!status.ok()) return status;
    if (bytes > gpu_.free_bytes) return absl::ResourceExhaustedError("fakeMalloc: out of memory");
    *data = std::malloc(bytes);
    ++gpu_.live_allocations;
    return status;
  }
  absl::Status Free(void* data) const override {
    std::free(data);
    --gpu_.live_allocations;
    return Enter("Free");
  }
  absl::Status HostAllocMapped(size_t bytes, MappedPointers* pointers) const override {
    absl::Status status = Enter("HostAllocMapped");
    if (!status.ok()) return status;
    pointers->host = std::malloc(bytes);
    std::memset(pointers->host, 0xcd, bytes);
    pointers->device = pointers->host;
    ++gpu_.live_mapped;
    return status;
  }
  absl::Status HostFree(void* host) const override {
    std::free(host);
    --gpu_.live_mapped;
    return Enter("HostFree");
  }
  absl::Status MemGetInfo(size_t* free_bytes, size_t* total_bytes) const override {
    *free_bytes = gpu_.free_bytes;
    *total_bytes = gpu_.total_bytes;
    return Enter("MemGetInfo");
  }

  absl::Status StreamCreate(GpuStreamHandle* stream) const override {
    absl::Status status = Enter("StreamCreate");
    if (!status.ok()) return status;
    stream->raw = gpu_.NewHandle();
    gpu_.streams[stream->raw] = false;
    return status;
  }
  absl::Status StreamDestroy(GpuStreamHandle stream) const override {
    gpu_.streams.erase(stream.raw);
    return Enter("StreamDestroy");
  }
  absl::Status StreamSynchronize(GpuStreamHandle stream) const override {
    gpu_.streams[stream.raw] = false;
    return Enter("StreamSynchronize");
  }
  absl::Status StreamQuery(GpuStreamHandle stream) const override {
    absl::Status status = Enter("StreamQuery");
    if (status.ok() && gpu_.streams[stream.raw])
      return absl::UnavailableError("fakeStreamQuery: busy");
    return status;
  }
  absl::Status MemcpyAsync(void* dst, const void* src, size_t bytes, GpuCopy,
                           GpuStreamHandle stream) const override {
    absl::Status status = Enter("MemcpyAsync");
    if (status.ok() && !RecordOther(stream, CapturedNode::Kind::kCopy, "copy",
                                    ArgsBytes(CopyNodeArgs{.dst = dst, .src = src})))
      std::memcpy(dst, src, bytes);
    return status;
  }
  absl::Status MemsetAsync(void* dst, unsigned char value, size_t bytes,
                           GpuStreamHandle stream) const override {
    absl::Status status = Enter("MemsetAsync");
    if (status.ok() && !RecordOther(stream, CapturedNode::Kind::kFill, "fill",
                                    ArgsBytes(FillNodeArgs{.dst = dst})))
      std::memset(dst, value, bytes);
    return status;
  }

  absl::Status StreamIsCapturing(GpuStreamHandle stream, bool* capturing) const override {
    *capturing = gpu_.captures.count(stream.raw) > 0;
    return Enter("StreamIsCapturing");
  }
  absl::Status StreamBeginCapture(GpuStreamHandle stream) const override {
    absl::Status status = Enter("StreamBeginCapture");
    if (status.ok()) gpu_.captures[stream.raw] = {};
    return status;
  }
  absl::Status StreamEndCapture(GpuStreamHandle stream, GpuGraphHandle* graph) const override {
    const auto recording = gpu_.captures.extract(stream.raw);
    absl::Status status = Enter("StreamEndCapture");
    if (!status.ok()) return status;
    graph->raw = gpu_.NewHandle();
    gpu_.graphs[graph->raw] = recording.mapped();
    return status;
  }
  absl::Status GraphCountNodes(GpuGraphHandle graph, int* num_kernels,
                               int* num_others) const override {
    *num_kernels = gpu_.graphs.at(graph.raw).num_kernels;
    *num_others = gpu_.graphs.at(graph.raw).num_others;
    return Enter("GraphCountNodes");
  }
  absl::Status GraphInstantiate(GpuGraphHandle, GpuExecHandle* exec) const override {
    absl::Status status = Enter("GraphInstantiate");
    if (!status.ok()) return status;
    exec->raw = gpu_.NewHandle();
    ++gpu_.live_execs;
    return status;
  }
  absl::Status GraphUpload(GpuExecHandle, GpuStreamHandle) const override {
    absl::Status status = Enter("GraphUpload");
    if (status.ok()) gpu_.free_bytes -= gpu_.bytes_per_graph;
    return status;
  }
  absl::Status GraphLaunch(GpuExecHandle, GpuStreamHandle stream) const override {
    absl::Status status = Enter("GraphLaunch");
    if (!status.ok()) return status;
    gpu_.launched.push_back("graph");
    gpu_.streams[stream.raw] = true;
    return status;
  }
  bool tells_nodes() const override { return true; }
  absl::Status GraphListNodes(GpuGraphHandle graph,
                              std::vector<GpuCapturedNode>* nodes) const override {
    *nodes = gpu_.graphs.at(graph.raw).nodes;
    return Enter("GraphListNodes");
  }
  absl::Status GraphExecSetNodeArgs(GpuExecHandle, const GpuCapturedNode& node,
                                    std::span<const std::byte> args) const override {
    absl::Status status = Enter("GraphExecSetNodeArgs");
    if (status.ok()) gpu_.set_args[node.raw].assign(args.begin(), args.end());
    return status;
  }
  bool IsAddress(const void* address) const override {
    Enter("IsAddress").IgnoreError();
    return address != nullptr;
  }
  absl::Status GraphDestroy(GpuGraphHandle graph) const override {
    gpu_.graphs.erase(graph.raw);
    return Enter("GraphDestroy");
  }
  absl::Status GraphExecDestroy(GpuExecHandle) const override {
    --gpu_.live_execs;
    return Enter("GraphExecDestroy");
  }

  absl::Status LibraryLoad(std::span<const std::byte> fatbin,
                           GpuLibraryHandle* library) const override {
    absl::Status status = Enter("LibraryLoad");
    if (!status.ok()) return status;
    const std::string text(reinterpret_cast<const char*>(fatbin.data()), fatbin.size());
    if (text[0] == '!')
      return absl::NotFoundError("fakeLibraryLoad: no kernel image for this device");
    library->raw = new std::string(text);
    ++gpu_.live_libraries;
    return status;
  }
  absl::Status LibraryUnload(GpuLibraryHandle library) const override {
    delete static_cast<std::string*>(library.raw);
    --gpu_.live_libraries;
    return Enter("LibraryUnload");
  }
  absl::Status LibraryFindKernels(GpuLibraryHandle library, std::span<const KernelDef> wanted,
                                  GpuKernelHandle* found) const override {
    absl::Status status = Enter("LibraryFindKernels");
    if (!status.ok()) return status;
    const auto& text = *static_cast<std::string*>(library.raw);
    for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
      const std::vector<std::string> words = absl::StrSplit(line, ' ');
      const bool has_code = words[0][0] != '-';
      const std::string name = words[0].substr(has_code ? 0 : 1);
      for (size_t i = 0; i < wanted.size(); ++i) {
        if (wanted[i].name != name) continue;
        auto kernel = std::make_unique<FakeGpu::Kernel>();
        kernel->name = name;
        kernel->has_code = has_code;
        kernel->info = {.static_shared_bytes = std::stoul(words[2]),
                        .args_bytes = std::stoul(words[1])};
        found[i].raw = kernel.get();
        gpu_.kernels.push_back(std::move(kernel));
      }
    }
    return status;
  }
  absl::Status KernelGetInfo(GpuKernelHandle kernel, GpuKernelInfo* info) const override {
    absl::Status status = Enter("KernelGetInfo");
    if (!status.ok()) return status;
    *info = Get(kernel).info;
    info->can_wait = gpu_.code_can_wait;
    return Get(kernel).has_code ? status
                                : absl::NotFoundError("fakeKernelGetInfo: no kernel image");
  }
  absl::Status KernelSetMaxSharedBytes(GpuKernelHandle kernel, size_t bytes) const override {
    Get(kernel).max_shared_bytes = bytes;
    return Enter("KernelSetMaxSharedBytes");
  }
  absl::Status LaunchKernel(GpuKernelHandle kernel, const LaunchShape&, const void* args,
                            size_t args_bytes, bool early, GpuStreamHandle stream) const override {
    absl::Status status = Enter("LaunchKernel");
    if (!status.ok()) return status;
    if (early) gpu_.launched_early.push_back(Get(kernel).name);
    if (const auto it = gpu_.captures.find(stream.raw); it != gpu_.captures.end()) {
      const auto* bytes = static_cast<const std::byte*>(args);
      ++it->second.num_kernels;
      it->second.nodes.push_back({.node = {.index = static_cast<int>(it->second.nodes.size()),
                                           .name = Get(kernel).name,
                                           .args = {bytes, bytes + args_bytes}},
                                  .raw = gpu_.NewHandle()});
    } else {
      gpu_.launched.push_back(Get(kernel).name);
      gpu_.streams[stream.raw] = true;
    }
    return status;
  }

 private:
  static FakeGpu::Kernel& Get(GpuKernelHandle kernel) {
    return *static_cast<FakeGpu::Kernel*>(kernel.raw);
  }
  absl::Status Enter(const char* call) const {
    gpu_.calls.push_back({call, gpu_.current});
    const auto failure = gpu_.fail.extract(call);
    return failure.empty() ? absl::OkStatus() : failure.mapped();
  }
  // True when the stream is capturing.
  bool RecordOther(GpuStreamHandle stream, CapturedNode::Kind kind, const char* name,
                   std::vector<std::byte> args) const {
    const auto it = gpu_.captures.find(stream.raw);
    if (it == gpu_.captures.end()) return false;
    ++it->second.num_others;
    it->second.nodes.push_back({.node = {.index = static_cast<int>(it->second.nodes.size()),
                                         .kind = kind,
                                         .name = name,
                                         .args = std::move(args)},
                                .raw = gpu_.NewHandle()});
    return true;
  }

  FakeGpu& gpu_;
};

}  // namespace reprise::runtime

#endif  // REPRISE_TESTS_RUNTIME_FAKE_GPU_VENDOR_H_
