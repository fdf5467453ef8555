// SPDX-License-Identifier: Apache-2.0
#include "graphs/graph_pointers.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "runtime/captured_node.h"
#include "runtime/status_macros.h"

namespace reprise::graphs {
namespace {

using runtime::CapturedNode;

bool Owns(const MemoryRange& range, uint64_t address) {
  const auto begin = reinterpret_cast<uint64_t>(range.data);
  return address >= begin && address - begin < range.bytes;
}

// Calls `visit(offset, word)` for each.
template <typename Visit>
void ForEachWord(std::span<const std::byte> args, Visit visit) {
  for (size_t offset = 0; offset + sizeof(uint64_t) <= args.size(); offset += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, args.data() + offset, sizeof(word));
    visit(offset, word);
  }
}

int Count(std::span<const CapturedNode> nodes, bool (*counts)(const CapturedNode&)) {
  return static_cast<int>(std::count_if(nodes.begin(), nodes.end(), counts));
}
bool IsKernel(const CapturedNode& node) { return node.kind == CapturedNode::Kind::kKernel; }
bool IsOpaque(const CapturedNode& node) { return node.opaque; }

}  // namespace

absl::StatusOr<AuditReport> AuditPointers(runtime::CapturedGraph& graph,
                                          std::span<const MemoryRange> owners) {
  runtime::CapturedNodeAccess* access = runtime::NodesOf(graph);
  if (access == nullptr) {
    return absl::UnimplementedError("this device does not tell the arguments of captured nodes");
  }
  REPRISE_ASSIGN_OR_RETURN(const std::span<const CapturedNode> nodes, access->List());
  AuditReport report{.num_kernels = Count(nodes, IsKernel), .num_untold = Count(nodes, IsOpaque)};
  for (const CapturedNode& node : nodes) {
    ForEachWord(node.args, [&](size_t offset, uint64_t word) {
      const bool owned = std::any_of(owners.begin(), owners.end(),
                                     [&](const MemoryRange& range) { return Owns(range, word); });
      // A kernel's words may be anything; those of copies and fills are addresses.
      if (!owned && IsKernel(node) && !access->IsAddress(word)) return;
      ++report.num_pointers;
      if (owned) return;
      report.foreign.push_back(
          {.node = node.index, .kernel = node.name, .offset = offset, .address = word});
    });
  }
  return report;
}

absl::StatusOr<bool> MovePointers(runtime::CapturedGraph& graph, const MemoryRange& from, void* to,
                                  MoveReport* report) {
  runtime::CapturedNodeAccess* access = runtime::NodesOf(graph);
  if (access == nullptr) return false;
  REPRISE_ASSIGN_OR_RETURN(const std::span<const CapturedNode> nodes, access->List());
  if (Count(nodes, IsOpaque) > 0) return false;
  const uint64_t distance = reinterpret_cast<uint64_t>(to) - reinterpret_cast<uint64_t>(from.data);
  int num_changed = 0;
  const auto start = std::chrono::steady_clock::now();
  for (size_t i = 0; i < nodes.size(); ++i) {
    std::vector<std::byte> args = nodes[i].args;
    bool changed = false;
    ForEachWord(nodes[i].args, [&](size_t offset, uint64_t word) {
      if (!Owns(from, word)) return;
      const uint64_t moved = word + distance;
      std::memcpy(args.data() + offset, &moved, sizeof(moved));
      changed = true;
    });
    if (!changed) continue;
    REPRISE_RETURN_IF_ERROR(access->SetArgs(i, args));
    ++num_changed;
  }
  if (num_changed == 0) return true;
  report->num_graphs += 1;
  report->num_nodes += num_changed;
  report->update_ns += static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - start)
          .count());
  return true;
}

}  // namespace reprise::graphs
