// SPDX-License-Identifier: Apache-2.0
// Streams and captured graphs of a GPU; see gpu_stream.h.
#include "runtime/gpu/gpu_stream.h"

#include <cstdio>
#include <functional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/captured_node.h"
#include "runtime/launch_check.h"
#include "runtime/status_macros.h"

namespace reprise::runtime {
namespace {

absl::string_view Abseil(std::string_view s) { return {s.data(), s.size()}; }

// A graph as captured, not yet executable.
class GraphOwner {
 public:
  explicit GraphOwner(const GpuVendor& vendor) : vendor_(vendor) {}
  ~GraphOwner() {
    if (graph.raw != nullptr) LogIfError("destroying a graph", vendor_.GraphDestroy(graph));
  }
  GraphOwner(const GraphOwner&) = delete;
  GraphOwner& operator=(const GraphOwner&) = delete;
  GpuGraphHandle graph;

 private:
  const GpuVendor& vendor_;
};

class GpuStream final : public Stream, public KeepsNodes {
 public:
  GpuStream(const GpuContext& context, GpuStreamHandle stream, bool owned)
      : context_(context), stream_(stream), owned_(owned) {}
  ~GpuStream() override;

  absl::Status Launch(const Kernel& kernel, const LaunchShape& shape, const void* args,
                      size_t args_bytes) override;
  absl::Status EnqueueHost(std::function<void()>) override {
    return absl::UnimplementedError(absl::StrCat("EnqueueHost: device '",
                                                 Abseil(NameOf(vendor().kind())),
                                                 "' runs kernels only; allowed: device 'host'"));
  }
  absl::Status CopyToDevice(void* dst, const void* src, size_t bytes) override;
  absl::Status CopyToHost(void* dst, const void* src, size_t bytes) override;
  absl::Status Fill(void* dst, unsigned char value, size_t bytes) override;
  absl::Status Synchronize() override;
  absl::Status Query() override;
  absl::Status BeginCapture() override;
  absl::StatusOr<std::unique_ptr<CapturedGraph>> EndCapture() override;
  void AbortCapture() override;
  void* native_handle() const override { return stream_.raw; }
  void KeepNodes() override { keeps_nodes_ = vendor().tells_nodes(); }

  absl::Status Replay(const GpuContext& context, GpuExecHandle exec);

 private:
  const GpuVendor& vendor() const { return *context_.vendor; }
  // FailedPrecondition while capturing. A wait or a query during capture would spoil the capture
  // itself.
  absl::Status RefuseWhileCapturing(absl::string_view call) const;
  absl::Status Copy(std::string_view call, void* dst, const void* src, size_t bytes, GpuCopy copy);

  const GpuContext& context_;
  const GpuStreamHandle stream_;
  const bool owned_;
  bool capturing_ = false;  // begun here
  bool keeps_nodes_ = false;
};

class GpuGraph : public CapturedGraph {
 public:
  explicit GpuGraph(const GpuContext& context) : context_(context) {}
  ~GpuGraph() override {
    if (exec_.raw == nullptr) return;
    GpuDeviceGuard guard(context_);
    LogIfError("destroying a captured graph", context_.vendor->GraphExecDestroy(exec_));
  }
  // Counts nodes, instantiates, uploads and measures what that took of the device's memory.
  absl::Status Instantiate(GpuGraphHandle graph, GpuStreamHandle stream);

  absl::Status Replay(Stream& stream) override {
    auto* gpu_stream = dynamic_cast<GpuStream*>(&stream);
    if (gpu_stream == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("a graph captured on ",
                                                     Abseil(NameOf(context_.properties.kind)),
                                                     " cannot be replayed on another device"));
    }
    return gpu_stream->Replay(context_, exec_);
  }
  int num_kernel_nodes() const override { return num_kernel_nodes_; }
  int num_other_nodes() const override { return num_other_nodes_; }
  size_t device_bytes() const override { return device_bytes_; }

 protected:
  const GpuContext& context() const { return context_; }
  GpuExecHandle exec() const { return exec_; }

 private:
  const GpuContext& context_;
  GpuExecHandle exec_;
  int num_kernel_nodes_ = 0;
  int num_other_nodes_ = 0;
  size_t device_bytes_ = 0;
};

// A graph that also keeps what it was made from, by whose nodes its own are told apart.
class GpuGraphWithNodes final : public GpuGraph, public CapturedNodeAccess {
 public:
  GpuGraphWithNodes(const GpuContext& context, std::unique_ptr<GraphOwner> captured)
      : GpuGraph(context), captured_(std::move(captured)) {}
  absl::StatusOr<std::span<const CapturedNode>> List() override;
  absl::Status SetArgs(size_t node, std::span<const std::byte> args) override;
  bool IsAddress(uint64_t word) override {
    GpuDeviceGuard guard(context());
    return guard.status().ok() && context().vendor->IsAddress(reinterpret_cast<void*>(word));
  }

 private:
  const std::unique_ptr<GraphOwner> captured_;
  std::vector<GpuCapturedNode> gpu_nodes_;  // once they were asked for
  std::vector<CapturedNode> nodes_;         // the same, as later replays have them
};

absl::StatusOr<std::span<const CapturedNode>> GpuGraphWithNodes::List() {
  if (!nodes_.empty()) return nodes_;
  GpuDeviceGuard guard(context());
  REPRISE_RETURN_IF_ERROR(guard.status());
  std::vector<GpuCapturedNode> found;
  REPRISE_RETURN_IF_ERROR(context().vendor->GraphListNodes(captured_->graph, &found));
  gpu_nodes_ = std::move(found);
  for (const GpuCapturedNode& node : gpu_nodes_) nodes_.push_back(node.node);
  return nodes_;
}

absl::Status GpuGraphWithNodes::SetArgs(size_t node, std::span<const std::byte> args) {
  REPRISE_RETURN_IF_ERROR(List().status());
  REPRISE_RETURN_IF_ERROR(CheckSetArgs(nodes_, node, args));
  GpuDeviceGuard guard(context());
  REPRISE_RETURN_IF_ERROR(guard.status());
  REPRISE_RETURN_IF_ERROR(context().vendor->GraphExecSetNodeArgs(exec(), gpu_nodes_[node], args));
  nodes_[node].args.assign(args.begin(), args.end());
  return absl::OkStatus();
}

absl::Status GpuGraph::Instantiate(GpuGraphHandle graph, GpuStreamHandle stream) {
  const GpuVendor& vendor = *context_.vendor;
  size_t before = 0;
  size_t after = 0;
  size_t total = 0;
  REPRISE_RETURN_IF_ERROR(vendor.GraphCountNodes(graph, &num_kernel_nodes_, &num_other_nodes_));
  REPRISE_RETURN_IF_ERROR(vendor.MemGetInfo(&before, &total));
  REPRISE_RETURN_IF_ERROR(vendor.GraphInstantiate(graph, &exec_));
  REPRISE_RETURN_IF_ERROR(vendor.GraphUpload(exec_, stream));
  REPRISE_RETURN_IF_ERROR(vendor.StreamSynchronize(stream));
  REPRISE_RETURN_IF_ERROR(vendor.MemGetInfo(&after, &total));
  // Others may have freed memory meanwhile; then the measurement says nothing.
  device_bytes_ = before > after ? before - after : 0;
  return absl::OkStatus();
}

GpuStream::~GpuStream() {
  AbortCapture();
  if (!owned_) return;
  GpuDeviceGuard guard(context_);
  LogIfError("draining a stream", vendor().StreamSynchronize(stream_));
  LogIfError("destroying a stream", vendor().StreamDestroy(stream_));
}

absl::Status GpuStream::Launch(const Kernel& kernel, const LaunchShape& shape, const void* args,
                               size_t args_bytes) {
  REPRISE_RETURN_IF_ERROR(CheckLaunch(context_.properties, kernel, shape, args, args_bytes));
  const auto& loaded = *static_cast<const GpuKernel*>(kernel.handle);
  if (loaded.args_bytes != 0 && args_bytes != loaded.args_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("kernel '", Abseil(kernel.name),
                                                   "': args_bytes is ", args_bytes,
                                                   "; its argument has ", loaded.args_bytes));
  }
  if (shape.shared_bytes > loaded.max_dynamic_shared_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "kernel '", Abseil(kernel.name), "': shared_bytes is ", shape.shared_bytes,
        "; allowed beside its static shared memory: 0 to ", loaded.max_dynamic_shared_bytes));
  }
  GpuDeviceGuard guard(context_);
  REPRISE_RETURN_IF_ERROR(guard.status());
  absl::Status status =
      vendor().LaunchKernel(loaded.handle, shape, args, args_bytes, loaded.begins_early, stream_);
  if (status.ok()) return status;
  return absl::Status(status.code(),
                      absl::StrCat("kernel '", Abseil(kernel.name), "', grid ", shape.grid_x, " x ",
                                   shape.grid_y, ", block ", shape.block, ", shared ",
                                   shape.shared_bytes, " bytes: ", status.message()));
}

absl::Status GpuStream::Copy(std::string_view call, void* dst, const void* src, size_t bytes,
                             GpuCopy copy) {
  REPRISE_RETURN_IF_ERROR(CheckTransfer(call, dst, src, bytes));
  if (bytes == 0) return absl::OkStatus();
  GpuDeviceGuard guard(context_);
  REPRISE_RETURN_IF_ERROR(guard.status());
  return vendor().MemcpyAsync(dst, src, bytes, copy, stream_);
}

absl::Status GpuStream::CopyToDevice(void* dst, const void* src, size_t bytes) {
  return Copy("CopyToDevice", dst, src, bytes, GpuCopy::kHostToDevice);
}

absl::Status GpuStream::CopyToHost(void* dst, const void* src, size_t bytes) {
  return Copy("CopyToHost", dst, src, bytes, GpuCopy::kDeviceToHost);
}

absl::Status GpuStream::Fill(void* dst, unsigned char value, size_t bytes) {
  REPRISE_RETURN_IF_ERROR(CheckTransfer("Fill", dst, &value, bytes));
  if (bytes == 0) return absl::OkStatus();
  GpuDeviceGuard guard(context_);
  REPRISE_RETURN_IF_ERROR(guard.status());
  return vendor().MemsetAsync(dst, value, bytes, stream_);
}

absl::Status GpuStream::RefuseWhileCapturing(absl::string_view call) const {
  bool capturing = capturing_;
  // An embedder may capture its own stream behind our back.
  if (!owned_ && !capturing) {
    REPRISE_RETURN_IF_ERROR(vendor().StreamIsCapturing(stream_, &capturing));
  }
  if (!capturing) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(call, ": the stream is capturing"));
}

absl::Status GpuStream::Synchronize() {
  GpuDeviceGuard guard(context_);
  REPRISE_RETURN_IF_ERROR(guard.status());
  REPRISE_RETURN_IF_ERROR(RefuseWhileCapturing("Synchronize"));
  return vendor().StreamSynchronize(stream_);
}

absl::Status GpuStream::Query() {
  GpuDeviceGuard guard(context_);
  REPRISE_RETURN_IF_ERROR(guard.status());
  REPRISE_RETURN_IF_ERROR(RefuseWhileCapturing("Query"));
  return vendor().StreamQuery(stream_);
}

absl::Status GpuStream::BeginCapture() {
  GpuDeviceGuard guard(context_);
  REPRISE_RETURN_IF_ERROR(guard.status());
  REPRISE_RETURN_IF_ERROR(RefuseWhileCapturing("BeginCapture"));
  REPRISE_RETURN_IF_ERROR(vendor().StreamBeginCapture(stream_));
  capturing_ = true;
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<CapturedGraph>> GpuStream::EndCapture() {
  if (!capturing_) return absl::FailedPreconditionError("EndCapture: the stream is not capturing");
  GpuDeviceGuard guard(context_);
  REPRISE_RETURN_IF_ERROR(guard.status());
  capturing_ = false;
  auto captured = std::make_unique<GraphOwner>(vendor());
  REPRISE_RETURN_IF_ERROR(vendor().StreamEndCapture(stream_, &captured->graph));
  const GpuGraphHandle made_from = captured->graph;
  std::unique_ptr<GpuGraph> graph;
  if (keeps_nodes_) {
    graph = std::make_unique<GpuGraphWithNodes>(context_, std::move(captured));
  } else {
    graph = std::make_unique<GpuGraph>(context_);
  }
  REPRISE_RETURN_IF_ERROR(graph->Instantiate(made_from, stream_));
  return graph;
}

void GpuStream::AbortCapture() {
  if (!capturing_) return;
  GpuDeviceGuard guard(context_);
  capturing_ = false;
  GraphOwner captured(vendor());
  // A capture that a failed call has spoilt ends with an error, and that is why it is aborted:
  // nothing to report.
  vendor().StreamEndCapture(stream_, &captured.graph).IgnoreError();
}

absl::Status GpuStream::Replay(const GpuContext& context, GpuExecHandle exec) {
  if (&context != &context_) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a graph captured on ", Abseil(NameOf(context.properties.kind)), ":",
        context.properties.ordinal, " cannot be replayed on a stream of another device"));
  }
  if (capturing_) return absl::FailedPreconditionError("Replay: the stream is capturing");
  GpuDeviceGuard guard(context_);
  REPRISE_RETURN_IF_ERROR(guard.status());
  return vendor().GraphLaunch(exec, stream_);
}

}  // namespace

GpuDeviceGuard::GpuDeviceGuard(const GpuContext& context) : context_(context) {
  int current = -1;
  status_ = context_.vendor->GetDevice(&current);
  if (!status_.ok() || current == context_.properties.ordinal) return;
  status_ = context_.vendor->SetDevice(context_.properties.ordinal);
  if (status_.ok()) previous_ = current;
}

GpuDeviceGuard::~GpuDeviceGuard() {
  if (previous_ >= 0) {
    LogIfError("putting a thread's device back", context_.vendor->SetDevice(previous_));
  }
}

void LogIfError(std::string_view doing, const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "reprise: %.*s: %s\n", static_cast<int>(doing.size()), doing.data(),
               status.ToString().c_str());
}

absl::StatusOr<std::unique_ptr<Stream>> CreateGpuStream(const GpuContext& context) {
  GpuDeviceGuard guard(context);
  REPRISE_RETURN_IF_ERROR(guard.status());
  GpuStreamHandle stream;
  REPRISE_RETURN_IF_ERROR(context.vendor->StreamCreate(&stream));
  return std::make_unique<GpuStream>(context, stream, /*owned=*/true);
}

absl::StatusOr<std::unique_ptr<Stream>> WrapGpuStream(const GpuContext& context, void* native) {
  if (native == nullptr) {
    return absl::InvalidArgumentError(
        "WrapStream: null is the default stream, which cannot be captured");
  }
  return std::make_unique<GpuStream>(context, GpuStreamHandle{native}, /*owned=*/false);
}

}  // namespace reprise::runtime
