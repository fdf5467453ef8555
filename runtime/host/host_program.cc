// SPDX-License-Identifier: Apache-2.0
#include "runtime/host/host_program.h"

#include <string>

namespace reprise::runtime {

std::vector<KernelNode> ListKernelNodes(const HostProgram& program) {
  std::vector<KernelNode> nodes;
  for (size_t i = 0; i < program.nodes.size(); ++i) {
    const auto* work = std::get_if<KernelWork>(&program.nodes[i]);
    if (work == nullptr) continue;
    const auto* args = static_cast<const std::byte*>(work->args.data());
    nodes.push_back({.index = static_cast<int>(i),
                     .kernel = std::string(work->kernel->name),
                     .grid_x = work->shape.grid_x,
                     .grid_y = work->shape.grid_y,
                     .block = work->shape.block,
                     .shared_bytes = work->shape.shared_bytes,
                     .args = {args, args + work->args.bytes()}});
  }
  return nodes;
}

std::shared_ptr<HostProgram> WithArgs(const HostProgram& program, int node,
                                      std::span<const std::byte> args) {
  auto copy = std::make_shared<HostProgram>(program);
  std::get<KernelWork>(copy->nodes[static_cast<size_t>(node)]).args =
      HostArgs(args.data(), args.size());
  return copy;
}

}  // namespace reprise::runtime
