// SPDX-License-Identifier: Apache-2.0
// What a GraphManager says of its buckets.
#ifndef REPRISE_GRAPHS_GRAPH_REPORT_H_
#define REPRISE_GRAPHS_GRAPH_REPORT_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "graphs/bucket.h"

namespace reprise::graphs {

// What one run was.
struct ReplayReport {
  std::string_view graph;  // bucket name; valid as long as the manager
  int64_t capacity = 0;
  int64_t padding = 0;   // the bucket's cells that the batch leaves empty
  int64_t tokens = 1;    // the bucket's second dimension
  bool replayed = true;  // false: it ran launch by launch
};

enum class BucketState : uint8_t {
  kPending,   // not captured yet: by mode kLazy, or kBackground has not come to it
  kCaptured,  // has a graph
  kFailed,    // its capture ended with an error
  kEvicted,   // had a graph, which made room for others; its next use captures it again
};
// "pending", "captured", "failed", "evicted".
std::string_view NameOf(BucketState state);

// One bucket, from the manager's creation on.
struct BucketReport {
  Bucket bucket;
  BucketState state = BucketState::kPending;
  absl::Status error;  // of kFailed
  // Of the last capture that ended well.
  int num_kernel_nodes = 0;
  int num_other_nodes = 0;
  uint64_t capture_ns = 0;
  // What its graph holds of the device right now, as measured; 0 without a graph.
  size_t graph_bytes = 0;
  uint64_t num_captures = 0;
  uint64_t num_evictions = 0;
  uint64_t num_replays = 0;
  uint64_t num_eager_runs = 0;  // warm-up aside
  // Over all runs: cells that batches asked for, and those that were left empty.
  uint64_t used_cells = 0;
  uint64_t padding_cells = 0;
};

}  // namespace reprise::graphs

#endif  // REPRISE_GRAPHS_GRAPH_REPORT_H_
