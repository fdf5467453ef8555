// SPDX-License-Identifier: Apache-2.0
#include "graphs/graph_nodes.h"

#include <functional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "graphs/forwarding_stream.h"
#include "runtime/status_macros.h"

namespace reprise::graphs {
namespace {

using Kind = GraphNode::Kind;

GraphNode KernelNode(const runtime::Kernel& kernel, const runtime::LaunchShape& shape,
                     size_t argument_bytes) {
  const runtime::LaunchLabel& label = shape.label;
  const bool has_shape = label.rows != 0 || label.columns != 0;
  return {.kind = Kind::kKernel,
          .kernel = std::string(kernel.name),
          .op = std::string(label.op.empty() ? kernel.name : label.op),
          .shape = has_shape ? absl::StrCat(label.rows, "x", label.columns) : "",
          .grid_x = shape.grid_x,
          .grid_y = shape.grid_y,
          .block = shape.block,
          .shared_bytes = shape.shared_bytes,
          .argument_bytes = argument_bytes,
          .from_table = label.from_table};
}

// Enqueues nothing: writes down what would be.
class ListingStream final : public ForwardingStream {
 public:
  explicit ListingStream(runtime::Stream& stream) : ForwardingStream(stream) {}

  absl::Status Launch(const runtime::Kernel& kernel, const runtime::LaunchShape& shape, const void*,
                      size_t args_bytes) override {
    nodes_.push_back(KernelNode(kernel, shape, args_bytes));
    return absl::OkStatus();
  }
  absl::Status EnqueueHost(std::function<void()>) override { return Add(Kind::kHost); }
  absl::Status CopyToDevice(void*, const void*, size_t) override { return Add(Kind::kCopy); }
  absl::Status CopyToHost(void*, const void*, size_t) override { return Add(Kind::kCopy); }
  absl::Status Fill(void*, unsigned char, size_t) override { return Add(Kind::kFill); }

  std::vector<GraphNode> TakeNodes() { return std::move(nodes_); }

 private:
  absl::Status Add(Kind kind) {
    nodes_.emplace_back().kind = kind;
    return absl::OkStatus();
  }

  std::vector<GraphNode> nodes_;
};

}  // namespace

std::string_view NameOf(GraphNode::Kind kind) {
  switch (kind) {
    case Kind::kKernel:
      return "kernel";
    case Kind::kHost:
      return "host";
    case Kind::kCopy:
      return "copy";
    case Kind::kFill:
      return "fill";
  }
  return "";
}

std::string LabelOf(const GraphNode& node) {
  if (node.kind != Kind::kKernel) return std::string(NameOf(node.kind));
  return node.shape.empty() ? node.op : absl::StrCat(node.op, " ", node.shape);
}

absl::StatusOr<std::vector<GraphNode>> ListNodes(runtime::Stream& stream, const Bucket& bucket,
                                                 const EnqueueFn& enqueue) {
  if (enqueue == nullptr) return absl::InvalidArgumentError("the enqueue function is empty");
  ListingStream listing(stream);
  REPRISE_RETURN_IF_ERROR(enqueue(listing, bucket));
  return listing.TakeNodes();
}

}  // namespace reprise::graphs
