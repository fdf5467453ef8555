// SPDX-License-Identifier: Apache-2.0
#include "graphs/captured_nodes.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "graphs/capture_work.h"
#include "runtime/status_macros.h"

namespace reprise::graphs {
namespace {

std::string GridText(unsigned x, unsigned y, unsigned z) { return absl::StrCat(x, "x", y, "x", z); }

// "" where nothing differs.
std::string DifferenceOf(const GraphNode& enqueued, const runtime::CapturedNode& captured) {
  std::vector<std::string> differences;
  const auto compare = [&](const char* what, const std::string& before, const std::string& after) {
    if (before != after)
      differences.push_back(absl::StrCat(what, " ", before, " enqueued, ", after, " captured"));
  };
  if (!captured.name.empty()) compare("kernel", enqueued.kernel, captured.name);
  compare("grid", GridText(enqueued.grid_x, enqueued.grid_y, 1),
          GridText(captured.grid_x, captured.grid_y, captured.grid_z));
  compare("block", absl::StrCat(enqueued.block), absl::StrCat(captured.block));
  compare("shared bytes", absl::StrCat(enqueued.shared_bytes), absl::StrCat(captured.shared_bytes));
  if (!captured.opaque)
    compare("argument bytes", absl::StrCat(enqueued.argument_bytes),
            absl::StrCat(captured.args.size()));
  return absl::StrJoin(differences, "; ");
}

// A captured graph's nodes by what they are: drivers promise no order between kernels and others.
struct NodesByKind {
  explicit NodesByKind(const CapturedNodes& captured) {
    for (const runtime::CapturedNode& node : captured.nodes)
      (node.kind == runtime::CapturedNode::Kind::kKernel ? kernels : others).push_back(&node);
  }
  std::vector<const runtime::CapturedNode*> kernels, others;
};

// What an enqueued node that is no kernel is to a captured graph.
runtime::CapturedNode::Kind KindOf(const GraphNode& node) {
  using Kind = runtime::CapturedNode::Kind;
  switch (node.kind) {
    case GraphNode::Kind::kCopy:
      return Kind::kCopy;
    case GraphNode::Kind::kFill:
      return Kind::kFill;
    case GraphNode::Kind::kKernel:
      return Kind::kKernel;
    case GraphNode::Kind::kHost:
      break;
  }
  return Kind::kOther;
}

// "" where the node waits for `before` alone; the first one, for nothing.
std::string WaitsDifference(const runtime::CapturedNode& node,
                            const runtime::CapturedNode* before) {
  const bool same = before == nullptr
                        ? node.waits.empty()
                        : node.waits.size() == 1 && node.waits.front().node == before->index;
  if (same) return "";
  std::vector<int> waits;
  for (const runtime::CapturedNode::Wait& wait : node.waits) waits.push_back(wait.node);
  return absl::StrCat("enqueued behind ",
                      before == nullptr ? "nothing" : absl::StrCat("node ", before->index),
                      " of the captured graph, waits there for ",
                      waits.empty() ? "nothing" : absl::StrJoin(waits, ", "));
}

}  // namespace

absl::StatusOr<CapturedNodes> ListCapturedNodes(runtime::Stream& stream, const Bucket& bucket,
                                                const EnqueueFn& enqueue) {
  if (enqueue == nullptr) return absl::InvalidArgumentError("the enqueue function is empty");
  runtime::KeepNodes(stream);
  REPRISE_ASSIGN_OR_RETURN(const auto graph,
                           CaptureWork(stream, [&] { return enqueue(stream, bucket); }));
  runtime::CapturedNodeAccess* nodes = runtime::NodesOf(*graph);
  if (nodes == nullptr) {
    return absl::UnimplementedError(
        "this device does not tell the nodes of captured graphs; allowed: host, cuda");
  }
  REPRISE_ASSIGN_OR_RETURN(const std::span<const runtime::CapturedNode> all, nodes->List());
  return CapturedNodes{.nodes = {all.begin(), all.end()}};
}

absl::StatusOr<std::vector<GraphNode>> AsCaptured(std::vector<GraphNode> enqueued,
                                                  const CapturedNodes& captured) {
  const NodesByKind found_by_kind(captured);
  const auto num_others = static_cast<size_t>(
      std::count_if(enqueued.begin(), enqueued.end(),
                    [](const GraphNode& node) { return node.kind != GraphNode::Kind::kKernel; }));
  if (num_others != found_by_kind.others.size())
    return absl::InternalError(absl::StrCat("nodes that are no kernels: ", num_others,
                                            " enqueued, ", found_by_kind.others.size(),
                                            " captured"));
  size_t next_kernel = 0, next_other = 0;
  const runtime::CapturedNode* before = nullptr;
  for (size_t i = 0; i < enqueued.size(); ++i) {
    GraphNode& node = enqueued[i];
    const bool is_kernel = node.kind == GraphNode::Kind::kKernel;
    const auto& same_kind = is_kernel ? found_by_kind.kernels : found_by_kind.others;
    size_t& next = is_kernel ? next_kernel : next_other;
    const runtime::CapturedNode* const found = next < same_kind.size() ? same_kind[next] : nullptr;
    ++next;
    std::string difference;
    if (found == nullptr) {
      difference = "enqueued, and not captured";
    } else if (is_kernel) {
      difference = DifferenceOf(node, *found);
    } else if (found->kind != KindOf(node)) {
      difference =
          absl::StrCat(std::string(NameOf(node.kind)), " enqueued, ", found->name, " captured");
    }
    if (difference.empty()) difference = WaitsDifference(*found, before);
    if (!difference.empty())
      return absl::InternalError(absl::StrCat("node ", i, " (", LabelOf(node), "): ", difference));
    node.early = !found->waits.empty() && found->waits.front().early;
    before = found;
  }
  if (next_kernel < found_by_kind.kernels.size()) {
    const runtime::CapturedNode& node = *found_by_kind.kernels[next_kernel];
    return absl::InternalError(absl::StrCat("node ", node.index, " of the captured graph (",
                                            node.name, "): captured, and not enqueued"));
  }
  return enqueued;
}

}  // namespace reprise::graphs
