// SPDX-License-Identifier: Apache-2.0
// GraphManager: captures one graph per bucket at start and replays the smallest that fits. It knows
// sizes and a callable that enqueues work, and no models; an embedder uses it with kernels, a
// stream and a context of its own.
//
//   auto manager = GraphManager::Create(*stream, {.buckets = {1, 2, 4, 8}},
//       [&](runtime::Stream& s, const Bucket& bucket) {
//         return s.Launch(my_kernel, ShapeFor(bucket.capacity), args);
//       });
//   auto replay = (*manager)->Replay(5);   // replays the graph of bucket 8, reports 3 of padding
//
// Threads: Create and Replay use the given stream, one thread at a time.
#ifndef REPRISE_GRAPHS_GRAPH_MANAGER_H_
#define REPRISE_GRAPHS_GRAPH_MANAGER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/device.h"

namespace reprise::graphs {

// One captured size. `capacity` counts whatever the embedder batches by: rows, tokens, requests.
struct Bucket {
  int index = 0;
  int64_t capacity = 0;
  std::string name;  // "<prefix>/<capacity>"
};

// Sorted, distinct bucket capacities and the rule that picks one.
class BucketTable {
 public:
  // Sorts and removes duplicates. Errors: InvalidArgument on none, or a capacity < 1.
  static absl::StatusOr<BucketTable> Create(std::vector<int64_t> capacities,
                                            std::string_view prefix);
  // 1, 2, 4, ... and `max` itself.
  static std::vector<int64_t> PowersOfTwoUpTo(int64_t max);

  // The smallest bucket with capacity >= size. Errors: InvalidArgument on size < 1; OutOfRange
  // (got, largest).
  absl::StatusOr<const Bucket*> SmallestThatFits(int64_t size) const;
  std::span<const Bucket> buckets() const { return buckets_; }
  int64_t max_capacity() const { return buckets_.back().capacity; }

 private:
  std::vector<Bucket> buckets_;
};

// Enqueues the whole work of one bucket on `stream`: launches only, no allocation, no
// synchronisation. Called once eagerly for warm-up (if asked for), once under capture, and again
// for every eager run.
using EnqueueFn = std::function<absl::Status(runtime::Stream& stream, const Bucket& bucket)>;

struct CaptureProgress {
  int done = 0;
  int total = 0;
  std::string_view bucket;  // the one just captured
};

struct GraphManagerOptions {
  std::vector<int64_t> buckets;  // capacities, any order
  std::string name_prefix = "graph";
  // Run each bucket once eagerly before capturing it: drivers load some things at their first use.
  bool warm_up = true;
  std::function<void(const CaptureProgress&)> progress = {};
};

// What was captured, per bucket.
struct CapturedBucket {
  Bucket bucket;
  int num_kernel_nodes = 0;
  int num_other_nodes = 0;
  uint64_t capture_ns = 0;  // capture + instantiate + upload
  size_t device_bytes = 0;  // measured
};

// What one replay was.
struct ReplayReport {
  std::string_view graph;  // bucket name; valid as long as the manager
  int64_t capacity = 0;
  int64_t padding = 0;  // capacity - size
};

class GraphManager {
 public:
  // Captures every bucket, largest first. Errors: what `enqueue` or the capture returned, with the
  // bucket's name.
  static absl::StatusOr<std::unique_ptr<GraphManager>> Create(runtime::Stream& stream,
                                                              GraphManagerOptions options,
                                                              EnqueueFn enqueue);

  // Enqueues one replay of the smallest bucket that fits. Errors: OutOfRange when none fits;
  // nothing was enqueued then.
  absl::StatusOr<ReplayReport> Replay(int64_t size);
  // Runs the same bucket's work launch by launch. Same kernels, same arguments, same bits.
  absl::StatusOr<ReplayReport> RunEager(int64_t size);

  const BucketTable& table() const { return table_; }
  std::span<const CapturedBucket> captured() const { return captured_; }

 private:
  GraphManager(runtime::Stream& stream, BucketTable table, EnqueueFn enqueue)
      : stream_(stream), table_(std::move(table)), enqueue_(std::move(enqueue)) {}

  runtime::Stream& stream_;
  BucketTable table_;
  EnqueueFn enqueue_;
  std::vector<std::unique_ptr<runtime::CapturedGraph>> graphs_;  // by bucket index
  std::vector<CapturedBucket> captured_;                         // by bucket index
};

}  // namespace reprise::graphs

#endif  // REPRISE_GRAPHS_GRAPH_MANAGER_H_
