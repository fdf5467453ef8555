// SPDX-License-Identifier: Apache-2.0
#include "graphs/profiled_graphs.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "graphs/forwarding_stream.h"
#include "graphs/graph_nodes.h"
#include "runtime/status_macros.h"

namespace reprise::graphs {
namespace {

ProfiledLaunch LaunchOf(GraphNode node) {
  return {
      .kernel = std::move(node.kernel), .op = std::move(node.op), .shape = std::move(node.shape)};
}

// Launch number i is followed by a stamp into stamps[i].
class StampingStream final : public ForwardingStream {
 public:
  StampingStream(runtime::Stream& stream, const StampFn& stamp, std::span<uint64_t> stamps)
      : ForwardingStream(stream), stamp_(stamp), stamps_(stamps) {}
  absl::Status Launch(const runtime::Kernel& kernel, const runtime::LaunchShape& shape,
                      const void* args, size_t args_bytes) override {
    if (next_ == stamps_.size()) return Miscounted(next_ + 1);
    REPRISE_RETURN_IF_ERROR(stream_.Launch(kernel, shape, args, args_bytes));
    return stamp_(stream_, &stamps_[next_++]);
  }
  // Internal unless every launch that was listed has been enqueued.
  absl::Status CheckComplete() const {
    return next_ == stamps_.size() ? absl::OkStatus() : Miscounted(next_);
  }

 private:
  absl::Status Miscounted(size_t launches) const {
    return absl::InternalError(absl::StrCat("launch ", launches, " of a profiled graph is ",
                                            launches > stamps_.size() ? "one too many" : "the last",
                                            "; ", stamps_.size(), " launches were listed before"));
  }

  const StampFn& stamp_;
  const std::span<uint64_t> stamps_;  // device memory
  size_t next_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ProfiledGraphs>> ProfiledGraphs::Create(runtime::Device& device,
                                                                       runtime::Stream& stream,
                                                                       const StampFn& stamp,
                                                                       GraphManagerOptions options,
                                                                       const EnqueueFn& enqueue) {
  if (enqueue == nullptr) return absl::InvalidArgumentError("the enqueue function is empty");
  if (stamp == nullptr) return absl::InvalidArgumentError("the stamp function is empty");
  REPRISE_ASSIGN_OR_RETURN(const BucketTable table,
                           BucketTable::Create(options.buckets, options.name_prefix));
  std::unique_ptr<ProfiledGraphs> profiled(new ProfiledGraphs(stream));
  profiled->launches_.resize(table.buckets().size());
  size_t most = 1;
  for (const Bucket& bucket : table.buckets()) {
    std::vector<ProfiledLaunch>& launches = profiled->launches_[static_cast<size_t>(bucket.index)];
    REPRISE_ASSIGN_OR_RETURN(std::vector<GraphNode> nodes, ListNodes(stream, bucket, enqueue));
    for (GraphNode& node : nodes) {
      if (node.kind == GraphNode::Kind::kKernel) launches.push_back(LaunchOf(std::move(node)));
    }
    most = std::max(most, launches.size());
  }
  REPRISE_ASSIGN_OR_RETURN(profiled->stamps_,
                           runtime::DeviceBuffer::Create(device, most * sizeof(uint64_t)));
  REPRISE_RETURN_IF_ERROR(stream.Fill(profiled->stamps_.data(), 0, profiled->stamps_.bytes()));
  auto stamped = [stamp, enqueue, words = profiled->stamps_.as<uint64_t>(), self = profiled.get()](
                     runtime::Stream& s, const Bucket& bucket) {
    const size_t count = self->launches_[static_cast<size_t>(bucket.index)].size();
    StampingStream stamping(s, stamp, {words, count});
    const absl::Status enqueued = enqueue(stamping, bucket);
    return enqueued.ok() ? stamping.CheckComplete() : enqueued;
  };
  REPRISE_ASSIGN_OR_RETURN(profiled->graphs_,
                           GraphManager::Create(stream, std::move(options), std::move(stamped)));
  return profiled;
}

absl::StatusOr<std::span<const ProfiledLaunch>> ProfiledGraphs::LaunchesOf(int64_t size) const {
  REPRISE_ASSIGN_OR_RETURN(const Bucket* bucket, graphs_->table().SmallestThatFits(size));
  return std::span<const ProfiledLaunch>(launches_[static_cast<size_t>(bucket->index)]);
}

absl::Status ProfiledGraphs::Read(int64_t size, std::vector<uint64_t>* done_ns) {
  REPRISE_ASSIGN_OR_RETURN(const std::span<const ProfiledLaunch> launches, LaunchesOf(size));
  done_ns->resize(launches.size());
  REPRISE_RETURN_IF_ERROR(
      stream_.CopyToHost(done_ns->data(), stamps_.data(), launches.size() * sizeof(uint64_t)));
  return stream_.Synchronize();
}

}  // namespace reprise::graphs
