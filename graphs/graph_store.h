// SPDX-License-Identifier: Apache-2.0
// GraphStore: the graphs of a GraphManager, their states and counts, and which of them goes when
// they are more than they may be. It captures nothing and picks no bucket. One thread at a time.
#ifndef REPRISE_GRAPHS_GRAPH_STORE_H_
#define REPRISE_GRAPHS_GRAPH_STORE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "graphs/bucket.h"
#include "graphs/capture_worker.h"
#include "graphs/graph_report.h"
#include "runtime/device.h"

namespace reprise::graphs {

// 0: no limit.
struct GraphLimits {
  size_t max_bytes = 0;
  size_t max_graphs = 0;
};

class GraphStore {
 public:
  // The graphs are replayed on `stream`, which outlives the store.
  GraphStore(runtime::Stream& stream, std::span<const Bucket> buckets, const GraphLimits& limits);

  // The same as if it had been made with this stream. REQUIRES: no replay is under way.
  void EnqueueOn(runtime::Stream& stream) { stream_ = &stream; }

  // nullptr where the bucket has none.
  runtime::CapturedGraph* graph(int bucket) const { return At(bucket).graph.get(); }
  const absl::Status& error(int bucket) const { return At(bucket).report.error; }
  std::span<const CapturedBucket> captured() const { return captured_; }

  // Keeps a new graph, in place of an older one. Errors: those of Evict.
  absl::Status Put(int bucket, CaptureResult result);
  // The bucket has this error and no graph. A graph that it had goes; errors: those of Evict.
  absl::Status Fail(int bucket, const absl::Status& error);
  // Destroys a graph, once no replay of it can be under way. Errors: the stream's faults; the graph
  // stays then.
  absl::Status Evict(int bucket);
  bool over_limit() const;
  // Evicts the least recently used graphs until the rest is within the limit, or is `keep` alone.
  absl::Status Trim(int keep);

  void CountReplay(const Bucket& bucket, const BatchShape& batch);
  void CountEagerRun(const Bucket& bucket, const BatchShape& batch);
  std::vector<BucketReport> Report() const;

 private:
  struct Entry {
    std::unique_ptr<runtime::CapturedGraph> graph;
    uint64_t last_use = 0;
    BucketReport report;  // but for what `captured_` has
  };
  Entry& At(int bucket) { return entries_[static_cast<size_t>(bucket)]; }
  const Entry& At(int bucket) const { return entries_[static_cast<size_t>(bucket)]; }
  absl::Status Drop(Entry& entry);

  runtime::Stream* stream_;
  const GraphLimits limits_;
  std::vector<Entry> entries_;            // by bucket index
  std::vector<CapturedBucket> captured_;  // by bucket index
  uint64_t num_uses_ = 0;
  // Every replay up to this one has ended.
  uint64_t ended_use_ = 0;
  size_t num_graphs_ = 0;
  size_t bytes_ = 0;
};

}  // namespace reprise::graphs

#endif  // REPRISE_GRAPHS_GRAPH_STORE_H_
