// SPDX-License-Identifier: Apache-2.0
// Finds and changes the pointers among the arguments of captured nodes. In a kernel's, a pointer is
// a word of eight bytes, at a multiple of eight, that the device knows as an address.
#ifndef REPRISE_GRAPHS_GRAPH_POINTERS_H_
#define REPRISE_GRAPHS_GRAPH_POINTERS_H_

#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graphs/memory_range.h"
#include "graphs/pointer_report.h"
#include "runtime/device.h"

namespace reprise::graphs {

// All but the graph's name. Errors: Unimplemented where the device does not tell; the driver's.
absl::StatusOr<AuditReport> AuditPointers(runtime::CapturedGraph& graph,
                                          std::span<const MemoryRange> owners);

// Makes later replays use `to` wherever `graph` has an address in `from`, which has the same size,
// and adds to the report. Returns false, having changed nothing, where not every node can be told.
// Errors: the driver's; some nodes may be changed then.
absl::StatusOr<bool> MovePointers(runtime::CapturedGraph& graph, const MemoryRange& from, void* to,
                                  MoveReport* report);

}  // namespace reprise::graphs

#endif  // REPRISE_GRAPHS_GRAPH_POINTERS_H_
