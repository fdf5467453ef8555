// SPDX-License-Identifier: Apache-2.0
#include "runtime/host/host_program.h"

#include <string>

namespace reprise::runtime {
namespace {

CapturedNode Describe(const WorkItem& item) {
  if (const auto* kernel = std::get_if<KernelWork>(&item)) {
    const auto* args = static_cast<const std::byte*>(kernel->args.data());
    return {.name = std::string(kernel->kernel->name),
            .grid_x = kernel->shape.grid_x,
            .grid_y = kernel->shape.grid_y,
            .block = kernel->shape.block,
            .shared_bytes = kernel->shape.shared_bytes,
            .args = {args, args + kernel->args.bytes()}};
  }
  if (const auto* copy = std::get_if<CopyWork>(&item)) {
    return {.kind = CapturedNode::Kind::kCopy,
            .name = "copy",
            .args = ArgsBytes(CopyNodeArgs{.dst = copy->dst, .src = copy->src})};
  }
  if (const auto* fill = std::get_if<FillWork>(&item)) {
    return {.kind = CapturedNode::Kind::kFill,
            .name = "fill",
            .args = ArgsBytes(FillNodeArgs{.dst = fill->dst})};
  }
  return {.kind = CapturedNode::Kind::kOther, .name = "host function", .opaque = true};
}

}  // namespace

std::vector<CapturedNode> ListNodes(const HostProgram& program) {
  std::vector<CapturedNode> nodes;
  for (const WorkItem& item : program.nodes) {
    const int place = static_cast<int>(nodes.size());
    CapturedNode& node = nodes.emplace_back(Describe(item));
    node.index = place;
    if (place > 0) node.waits.push_back({.node = place - 1});
  }
  return nodes;
}

std::shared_ptr<HostProgram> WithArgs(const HostProgram& program, size_t node,
                                      std::span<const std::byte> args) {
  auto changed = std::make_shared<HostProgram>(program);
  WorkItem& item = changed->nodes[node];
  if (auto* copy = std::get_if<CopyWork>(&item)) {
    const auto to = ArgsFromBytes<CopyNodeArgs>(args);
    copy->dst = to.dst;
    copy->src = to.src;
  } else if (auto* fill = std::get_if<FillWork>(&item)) {
    fill->dst = ArgsFromBytes<FillNodeArgs>(args).dst;
  } else {
    std::get<KernelWork>(item).args = HostArgs(args.data(), args.size());
  }
  return changed;
}

}  // namespace reprise::runtime
