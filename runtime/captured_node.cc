// SPDX-License-Identifier: Apache-2.0
#include "runtime/captured_node.h"

#include "absl/strings/str_cat.h"

namespace reprise::runtime {

absl::Status CheckSetArgs(std::span<const CapturedNode> nodes, size_t node,
                          std::span<const std::byte> args) {
  if (node >= nodes.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("node is ", node, "; allowed: less than ", nodes.size()));
  }
  if (nodes[node].opaque || nodes[node].kind == CapturedNode::Kind::kOther) {
    return absl::InvalidArgumentError(absl::StrCat("node ", node, " ('", nodes[node].name,
                                                   "'): its arguments cannot be changed"));
  }
  if (args.size() != nodes[node].args.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("node ", node, " ('", nodes[node].name, "'): args has ", args.size(),
                     " bytes; its arguments have ", nodes[node].args.size()));
  }
  return absl::OkStatus();
}

}  // namespace reprise::runtime
