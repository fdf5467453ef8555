// SPDX-License-Identifier: Apache-2.0
// What a GraphManager says of the pointers in its graphs.
#ifndef REPRISE_GRAPHS_POINTER_REPORT_H_
#define REPRISE_GRAPHS_POINTER_REPORT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace reprise::graphs {

// An address that a captured node was given and that is in no registered buffer.
struct ForeignPointer {
  int node = 0;        // of all nodes of the graph
  std::string kernel;  // as the driver calls it, or "copy" or "fill"
  // In a kernel's arguments, in bytes. Of a copy and a fill, 0 is where it writes, 8 where it
  // reads.
  size_t offset = 0;
  uint64_t address = 0;
  bool operator==(const ForeignPointer&) const = default;
};

struct AuditReport {
  std::string_view graph = {};  // valid as long as the manager
  int num_kernels = 0;
  int num_pointers = 0;  // in all kernels, copies and fills
  std::vector<ForeignPointer> foreign = {};
  // Nodes whose pointers cannot be told: host functions, graphs within the graph, copies and fills
  // of several lines, and kernels that were given their arguments in a form of their own.
  int num_untold = 0;
};

// What MoveBuffer has done.
struct MoveReport {
  int num_graphs = 0;      // that were changed in place
  int num_nodes = 0;       // in them
  uint64_t update_ns = 0;  // for all of these nodes
  int num_recaptured = 0;  // graphs that could not be changed in place
  uint64_t ns_per_node() const {
    return num_nodes == 0 ? 0 : update_ns / static_cast<uint64_t>(num_nodes);
  }
};

}  // namespace reprise::graphs

#endif  // REPRISE_GRAPHS_POINTER_REPORT_H_
