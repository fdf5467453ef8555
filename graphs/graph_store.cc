// SPDX-License-Identifier: Apache-2.0
#include "graphs/graph_store.h"

#include <utility>

#include "runtime/status_macros.h"

namespace reprise::graphs {
namespace {

void CountCells(const Bucket& bucket, const BatchShape& batch, BucketReport* report) {
  const int64_t used = batch.rows * batch.tokens;
  report->used_cells += static_cast<uint64_t>(used);
  report->padding_cells += static_cast<uint64_t>(bucket.cells() - used);
}

}  // namespace

std::string_view NameOf(BucketState state) {
  switch (state) {
    case BucketState::kPending:
      return "pending";
    case BucketState::kCaptured:
      return "captured";
    case BucketState::kFailed:
      return "failed";
    case BucketState::kEvicted:
      return "evicted";
  }
  return "";
}

GraphStore::GraphStore(runtime::Stream& stream, std::span<const Bucket> buckets,
                       const GraphLimits& limits)
    : stream_(&stream), limits_(limits), entries_(buckets.size()) {
  for (const Bucket& bucket : buckets) {
    At(bucket.index).report.bucket = bucket;
    captured_.push_back({.bucket = bucket});
  }
}

// Waits for the stream where the last replay of the graph may not have ended: a graph in flight is
// never destroyed.
absl::Status GraphStore::Drop(Entry& entry) {
  if (entry.graph == nullptr) return absl::OkStatus();
  if (entry.last_use > ended_use_) {
    REPRISE_RETURN_IF_ERROR(stream_->Synchronize());
    ended_use_ = num_uses_;
  }
  entry.graph = nullptr;
  bytes_ -= entry.report.graph_bytes;
  entry.report.graph_bytes = 0;
  --num_graphs_;
  return absl::OkStatus();
}

absl::Status GraphStore::Put(int bucket, CaptureResult result) {
  Entry& entry = At(bucket);
  REPRISE_RETURN_IF_ERROR(Drop(entry));
  entry.graph = std::move(result.graph);
  entry.last_use = 0;  // the new graph's
  entry.report.state = BucketState::kCaptured;
  entry.report.error = absl::OkStatus();
  entry.report.graph_bytes = result.captured.device_bytes;
  ++entry.report.num_captures;
  captured_[static_cast<size_t>(bucket)] = std::move(result.captured);
  bytes_ += entry.report.graph_bytes;
  ++num_graphs_;
  return absl::OkStatus();
}

absl::Status GraphStore::Fail(int bucket, const absl::Status& error) {
  Entry& entry = At(bucket);
  REPRISE_RETURN_IF_ERROR(Drop(entry));
  entry.report.state = BucketState::kFailed;
  entry.report.error = error;
  return absl::OkStatus();
}

absl::Status GraphStore::Evict(int bucket) {
  Entry& entry = At(bucket);
  REPRISE_RETURN_IF_ERROR(Drop(entry));
  entry.report.state = BucketState::kEvicted;
  ++entry.report.num_evictions;
  return absl::OkStatus();
}

bool GraphStore::over_limit() const {
  return (limits_.max_bytes != 0 && bytes_ > limits_.max_bytes) ||
         (limits_.max_graphs != 0 && num_graphs_ > limits_.max_graphs);
}

absl::Status GraphStore::Trim(int keep) {
  while (over_limit()) {
    int victim = -1;
    for (const CapturedBucket& captured : captured_) {
      const int i = captured.bucket.index;
      if (i == keep || At(i).graph == nullptr) continue;
      if (victim < 0 || At(i).last_use < At(victim).last_use) victim = i;
    }
    if (victim < 0) return absl::OkStatus();
    REPRISE_RETURN_IF_ERROR(Evict(victim));
  }
  return absl::OkStatus();
}

void GraphStore::CountReplay(const Bucket& bucket, const BatchShape& batch) {
  Entry& entry = At(bucket.index);
  entry.last_use = ++num_uses_;
  ++entry.report.num_replays;
  CountCells(bucket, batch, &entry.report);
}

void GraphStore::CountEagerRun(const Bucket& bucket, const BatchShape& batch) {
  Entry& entry = At(bucket.index);
  ++entry.report.num_eager_runs;
  CountCells(bucket, batch, &entry.report);
}

std::vector<BucketReport> GraphStore::Report() const {
  std::vector<BucketReport> reports;
  for (const CapturedBucket& captured : captured_) {
    BucketReport& report = reports.emplace_back(At(captured.bucket.index).report);
    report.num_kernel_nodes = captured.num_kernel_nodes;
    report.num_other_nodes = captured.num_other_nodes;
    report.capture_ns = captured.capture_ns;
  }
  return reports;
}

}  // namespace reprise::graphs
