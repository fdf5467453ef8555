// SPDX-License-Identifier: Apache-2.0
#include "graphs/captured_nodes.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
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
  CapturedNodes captured;
  captured.num_other_nodes = graph->num_other_nodes();
  std::copy_if(all.begin(), all.end(), std::back_inserter(captured.kernels),
               [](const runtime::CapturedNode& node) {
                 return node.kind == runtime::CapturedNode::Kind::kKernel;
               });
  return captured;
}

absl::Status CheckCaptured(std::span<const GraphNode> enqueued, const CapturedNodes& captured) {
  size_t next = 0;  // of the captured kernels
  int num_others = 0;
  for (size_t i = 0; i < enqueued.size(); ++i) {
    const GraphNode& node = enqueued[i];
    if (node.kind != GraphNode::Kind::kKernel) {
      ++num_others;
      continue;
    }
    const std::string difference = next < captured.kernels.size()
                                       ? DifferenceOf(node, captured.kernels[next])
                                       : "enqueued, and not captured";
    ++next;
    if (difference.empty()) continue;
    return absl::InternalError(absl::StrCat(
        "node ", i, " (", node.op, node.shape.empty() ? "" : " ", node.shape, "): ", difference));
  }
  if (next < captured.kernels.size()) {
    const runtime::CapturedNode& node = captured.kernels[next];
    return absl::InternalError(absl::StrCat("node ", node.index, " of the captured graph (",
                                            node.name, "): captured, and not enqueued"));
  }
  if (num_others == captured.num_other_nodes) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("nodes that are no kernels: ", num_others, " enqueued, ",
                                          captured.num_other_nodes, " captured"));
}

}  // namespace reprise::graphs
