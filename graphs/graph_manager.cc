// SPDX-License-Identifier: Apache-2.0
// Buckets, their capture and their replay; see graph_manager.h.
#include "graphs/graph_manager.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"

namespace reprise::graphs {
namespace {

// The same error, saying which bucket and what was being done to it.
absl::Status InBucket(const absl::Status& status, const Bucket& bucket, absl::string_view doing) {
  if (status.ok()) return status;
  return absl::Status(status.code(),
                      absl::StrCat("bucket '", bucket.name, "', ", doing, ": ", status.message()));
}

// Launch by launch, to its end, so that a fault shows here with the bucket's name and lazily loaded
// code is loaded before capture.
absl::Status WarmUp(runtime::Stream& stream, const Bucket& bucket, const EnqueueFn& enqueue) {
  const absl::Status enqueued = enqueue(stream, bucket);
  // Also after an error: what was enqueued before it must not outlive what it works on.
  const absl::Status ran = stream.Synchronize();
  return enqueued.ok() ? ran : enqueued;
}

absl::StatusOr<std::unique_ptr<runtime::CapturedGraph>> Capture(runtime::Stream& stream,
                                                                const Bucket& bucket,
                                                                const EnqueueFn& enqueue) {
  REPRISE_RETURN_IF_ERROR(stream.BeginCapture());
  const absl::Status enqueued = enqueue(stream, bucket);
  if (!enqueued.ok()) {
    stream.AbortCapture();
    return enqueued;
  }
  return stream.EndCapture();
}

CapturedBucket Describe(const Bucket& bucket, const runtime::CapturedGraph& graph,
                        std::chrono::steady_clock::duration took) {
  return {.bucket = bucket,
          .num_kernel_nodes = graph.num_kernel_nodes(),
          .num_other_nodes = graph.num_other_nodes(),
          .capture_ns = static_cast<uint64_t>(
              std::chrono::duration_cast<std::chrono::nanoseconds>(took).count()),
          .device_bytes = graph.device_bytes()};
}

}  // namespace

absl::StatusOr<BucketTable> BucketTable::Create(std::vector<int64_t> capacities,
                                                std::string_view prefix) {
  if (capacities.empty()) return absl::InvalidArgumentError("no buckets; allowed: at least one");
  std::sort(capacities.begin(), capacities.end());
  capacities.erase(std::unique(capacities.begin(), capacities.end()), capacities.end());
  if (capacities.front() < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("bucket capacity is ", capacities.front(), "; allowed: at least 1"));
  }
  BucketTable table;
  for (const int64_t capacity : capacities) {
    table.buckets_.push_back(
        {.index = static_cast<int>(table.buckets_.size()),
         .capacity = capacity,
         .name = absl::StrCat(absl::string_view(prefix.data(), prefix.size()), "/", capacity)});
  }
  return table;
}

std::vector<int64_t> BucketTable::PowersOfTwoUpTo(int64_t max) {
  std::vector<int64_t> capacities;
  if (max < 1) return capacities;
  for (int64_t capacity = 1; capacity < max; capacity *= 2) {
    capacities.push_back(capacity);
    if (capacity > max / 2) break;  // the next one would pass `max`, or overflow
  }
  capacities.push_back(max);
  return capacities;
}

absl::StatusOr<const Bucket*> BucketTable::SmallestThatFits(int64_t size) const {
  if (size < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("size is ", size, "; allowed: 1 to ", max_capacity()));
  }
  const auto it = std::lower_bound(
      buckets_.begin(), buckets_.end(), size,
      [](const Bucket& bucket, int64_t wanted) { return bucket.capacity < wanted; });
  if (it == buckets_.end()) {
    return absl::OutOfRangeError(
        absl::StrCat("size is ", size, "; the largest bucket is '", buckets_.back().name, "'"));
  }
  return &*it;
}

absl::StatusOr<std::unique_ptr<GraphManager>> GraphManager::Create(runtime::Stream& stream,
                                                                   GraphManagerOptions options,
                                                                   EnqueueFn enqueue) {
  if (enqueue == nullptr) return absl::InvalidArgumentError("the enqueue function is empty");
  REPRISE_ASSIGN_OR_RETURN(BucketTable table,
                           BucketTable::Create(std::move(options.buckets), options.name_prefix));
  // An older fault, or a capture that is under way, is the caller's and not the first bucket's.
  REPRISE_RETURN_IF_ERROR(stream.Synchronize());
  std::unique_ptr<GraphManager> manager(
      new GraphManager(stream, std::move(table), std::move(enqueue)));
  const std::span<const Bucket> buckets = manager->table_.buckets();
  manager->graphs_.resize(buckets.size());
  manager->captured_.resize(buckets.size());
  // Largest first: what the driver sets aside for the largest serves the others.
  for (size_t done = 0; done < buckets.size(); ++done) {
    const Bucket& bucket = buckets[buckets.size() - 1 - done];
    if (options.warm_up) {
      REPRISE_RETURN_IF_ERROR(
          InBucket(WarmUp(stream, bucket, manager->enqueue_), bucket, "warm-up"));
    }
    const auto start = std::chrono::steady_clock::now();
    auto graph = Capture(stream, bucket, manager->enqueue_);
    if (!graph.ok()) return InBucket(graph.status(), bucket, "capture");
    manager->captured_[bucket.index] =
        Describe(bucket, **graph, std::chrono::steady_clock::now() - start);
    manager->graphs_[bucket.index] = *std::move(graph);
    if (options.progress) {
      options.progress({.done = static_cast<int>(done) + 1,
                        .total = static_cast<int>(buckets.size()),
                        .bucket = bucket.name});
    }
  }
  return manager;
}

absl::StatusOr<ReplayReport> GraphManager::Replay(int64_t size) {
  REPRISE_ASSIGN_OR_RETURN(const Bucket* bucket, table_.SmallestThatFits(size));
  const absl::Status status = graphs_[bucket->index]->Replay(stream_);
  if (!status.ok()) return InBucket(status, *bucket, "replay");
  return ReplayReport{
      .graph = bucket->name, .capacity = bucket->capacity, .padding = bucket->capacity - size};
}

absl::StatusOr<ReplayReport> GraphManager::RunEager(int64_t size) {
  REPRISE_ASSIGN_OR_RETURN(const Bucket* bucket, table_.SmallestThatFits(size));
  const absl::Status status = enqueue_(stream_, *bucket);
  if (!status.ok()) return InBucket(status, *bucket, "eager run");
  return ReplayReport{
      .graph = bucket->name, .capacity = bucket->capacity, .padding = bucket->capacity - size};
}

}  // namespace reprise::graphs
