// SPDX-License-Identifier: Apache-2.0
// What a caller of reprise.h wants of a graph manager, as the manager takes it: options, and
// functions that call those of the caller.
#ifndef REPRISE_CAPI_GRAPH_OPTIONS_H_
#define REPRISE_CAPI_GRAPH_OPTIONS_H_

#include <cstddef>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "capi/handles.h"
#include "capi/reprise.h"
#include "graphs/bucket.h"
#include "graphs/graph_manager.h"
#include "graphs/memory_range.h"

namespace reprise::capi {

// Functions are given `context`. Views `manager`, whose streams they are given too and which
// outlives what comes of it. Errors: InvalidArgument (field, got, allowed).
absl::StatusOr<graphs::GraphManagerOptions> ManagerOptions(const reprise_graph_options& given,
                                                           void* context,
                                                           reprise_graph_manager& manager);

// Of both kinds of functions that enqueue exactly one is there. Errors: InvalidArgument.
absl::StatusOr<graphs::EnqueueFn> Enqueuing(const reprise_graph_options& given,
                                            reprise_enqueue_fn enqueue, void* context,
                                            reprise_graph_manager& manager);

// Errors: InvalidArgument (a range without name).
absl::StatusOr<std::vector<graphs::MemoryRange>> MemoryRanges(std::string_view name,
                                                              const reprise_memory_range* ranges,
                                                              size_t num_ranges);

}  // namespace reprise::capi

#endif  // REPRISE_CAPI_GRAPH_OPTIONS_H_
