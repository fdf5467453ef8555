// SPDX-License-Identifier: Apache-2.0
#include "graphs/stamped_graphs.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/linear/linear_args.h"
#include "kernels/stamp/stamp.h"
#include "runtime/status_macros.h"

namespace reprise::graphs {
namespace {

LaunchLabel LabelOf(std::string_view kernel, const void* args, size_t args_bytes) {
  LaunchLabel label{.kernel = std::string(kernel), .op = OpOfKernel(kernel), .shape = ""};
  if (label.op.starts_with("linear") && args_bytes == sizeof(kernels::LinearArgs)) {
    kernels::LinearArgs linear;
    std::memcpy(&linear, args, sizeof(linear));
    label.shape = absl::StrCat(linear.out_features, "x", linear.in_features);
  }
  return label;
}

// A stream in front of another one. What is not a launch goes through as it is.
class ForwardingStream : public runtime::Stream {
 public:
  explicit ForwardingStream(runtime::Stream& stream) : stream_(stream) {}
  absl::Status EnqueueHost(std::function<void()> work) override {
    return stream_.EnqueueHost(std::move(work));
  }
  absl::Status CopyToDevice(void* dst, const void* src, size_t bytes) override {
    return stream_.CopyToDevice(dst, src, bytes);
  }
  absl::Status CopyToHost(void* dst, const void* src, size_t bytes) override {
    return stream_.CopyToHost(dst, src, bytes);
  }
  absl::Status Fill(void* dst, unsigned char value, size_t bytes) override {
    return stream_.Fill(dst, value, bytes);
  }
  absl::Status Synchronize() override { return stream_.Synchronize(); }
  absl::Status Query() override { return stream_.Query(); }
  absl::Status BeginCapture() override { return stream_.BeginCapture(); }
  absl::StatusOr<std::unique_ptr<runtime::CapturedGraph>> EndCapture() override {
    return stream_.EndCapture();
  }
  void AbortCapture() override { stream_.AbortCapture(); }
  void* native_handle() const override { return stream_.native_handle(); }

 protected:
  runtime::Stream& stream_;
};

// Launches nothing: writes down what would be launched.
class ListingStream final : public ForwardingStream {
 public:
  ListingStream(runtime::Stream& stream, std::vector<LaunchLabel>& launches)
      : ForwardingStream(stream), launches_(launches) {}
  absl::Status Launch(const runtime::Kernel& kernel, const runtime::LaunchShape&, const void* args,
                      size_t args_bytes) override {
    launches_.push_back(LabelOf(kernel.name, args, args_bytes));
    return absl::OkStatus();
  }

 private:
  std::vector<LaunchLabel>& launches_;
};

// Launch number i is followed by a stamp into stamps[i].
class StampingStream final : public ForwardingStream {
 public:
  StampingStream(runtime::Stream& stream, const kernels::KernelSet& kernels,
                 std::span<uint64_t> stamps)
      : ForwardingStream(stream), kernels_(kernels), stamps_(stamps) {}
  absl::Status Launch(const runtime::Kernel& kernel, const runtime::LaunchShape& shape,
                      const void* args, size_t args_bytes) override {
    if (next_ == stamps_.size()) {
      return absl::InternalError(absl::StrCat(
          "launch ", next_, " of a twin; counted before: ", stamps_.size(), " launches"));
    }
    REPRISE_RETURN_IF_ERROR(stream_.Launch(kernel, shape, args, args_bytes));
    return kernels::Stamp(stream_, kernels_, {.out = &stamps_[next_++]});
  }

 private:
  const kernels::KernelSet& kernels_;
  const std::span<uint64_t> stamps_;  // device memory
  size_t next_ = 0;
};

}  // namespace

std::string OpOfKernel(std::string_view kernel) {
  constexpr std::string_view kProject = "reprise_";
  if (kernel.starts_with(kProject)) kernel.remove_prefix(kProject.size());
  for (const std::string_view dtype : {"_f32", "_bf16", "_f16"}) {
    const size_t at = kernel.find(dtype);
    if (at == kernel.npos) continue;
    const std::string_view rest = kernel.substr(at + dtype.size());
    if (rest.empty() || rest.front() == '_') return std::string(kernel.substr(0, at));
  }
  return std::string(kernel);
}

absl::StatusOr<std::unique_ptr<StampedGraphs>> StampedGraphs::Create(
    runtime::Device& device, runtime::Stream& stream, const kernels::KernelSet& kernels,
    GraphManagerOptions options, const EnqueueFn& enqueue) {
  if (enqueue == nullptr) return absl::InvalidArgumentError("the enqueue function is empty");
  REPRISE_ASSIGN_OR_RETURN(const BucketTable table,
                           BucketTable::Create(options.buckets, options.name_prefix));
  std::unique_ptr<StampedGraphs> twins(new StampedGraphs(stream));
  twins->launches_.resize(table.buckets().size());
  size_t most = 1;
  for (const Bucket& bucket : table.buckets()) {
    std::vector<LaunchLabel>& launches = twins->launches_[static_cast<size_t>(bucket.index)];
    ListingStream listing(stream, launches);
    REPRISE_RETURN_IF_ERROR(enqueue(listing, bucket));
    most = std::max(most, launches.size());
  }
  REPRISE_ASSIGN_OR_RETURN(twins->stamps_,
                           runtime::DeviceBuffer::Create(device, most * sizeof(uint64_t)));
  REPRISE_RETURN_IF_ERROR(stream.Fill(twins->stamps_.data(), 0, twins->stamps_.bytes()));
  auto stamped = [&kernels, enqueue, words = twins->stamps_.as<uint64_t>(), self = twins.get()](
                     runtime::Stream& s, const Bucket& bucket) {
    const size_t count = self->launches_[static_cast<size_t>(bucket.index)].size();
    StampingStream stamping(s, kernels, {words, count});
    return enqueue(stamping, bucket);
  };
  REPRISE_ASSIGN_OR_RETURN(twins->graphs_,
                           GraphManager::Create(stream, std::move(options), std::move(stamped)));
  return twins;
}

absl::StatusOr<std::span<const LaunchLabel>> StampedGraphs::LaunchesOf(int64_t size) const {
  REPRISE_ASSIGN_OR_RETURN(const Bucket* bucket, graphs_->table().SmallestThatFits(size));
  return std::span<const LaunchLabel>(launches_[static_cast<size_t>(bucket->index)]);
}

absl::Status StampedGraphs::Read(int64_t size, std::vector<uint64_t>* done_ns) {
  REPRISE_ASSIGN_OR_RETURN(const std::span<const LaunchLabel> launches, LaunchesOf(size));
  done_ns->resize(launches.size());
  REPRISE_RETURN_IF_ERROR(
      stream_.CopyToHost(done_ns->data(), stamps_.data(), launches.size() * sizeof(uint64_t)));
  return stream_.Synchronize();
}

}  // namespace reprise::graphs
