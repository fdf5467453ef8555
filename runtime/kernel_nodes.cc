// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernel_nodes.h"

#include "absl/strings/str_cat.h"

namespace reprise::runtime {

absl::Status CheckSetArgs(std::span<const KernelNode> nodes, size_t node,
                          std::span<const std::byte> args) {
  if (node >= nodes.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("kernel node is ", node, "; allowed: less than ", nodes.size()));
  }
  if (nodes[node].opaque) {
    return absl::InvalidArgumentError(absl::StrCat("kernel node ", node, " ('", nodes[node].kernel,
                                                   "'): its arguments cannot be told"));
  }
  if (args.size() != nodes[node].args.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("kernel node ", node, " ('", nodes[node].kernel, "'): args has ", args.size(),
                     " bytes; its arguments have ", nodes[node].args.size()));
  }
  return absl::OkStatus();
}

}  // namespace reprise::runtime
