// SPDX-License-Identifier: Apache-2.0
// Histogram: times counted in buckets whose edges double, from 10 us to 84 s: a step of a small
// model takes tens of microseconds, and what takes longer than a minute is cut off by a timeout. A
// quantile read from it is off by less than a factor of two.
//
// Threads: every method from any thread. Observe is two relaxed additions, takes no lock and
// allocates nothing.
#ifndef REPRISE_SERVICE_METRICS_HISTOGRAM_H_
#define REPRISE_SERVICE_METRICS_HISTOGRAM_H_

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace reprise::service {

class Histogram {
 public:
  static constexpr uint64_t kFirstEdgeNs = 10'000;
  static constexpr size_t kNumEdges = 24;
  // Bucket i counts times of up to EdgeNs(i) that are above the edge before; the last one, behind
  // all edges, those above the last edge.
  static constexpr size_t kNumBuckets = kNumEdges + 1;
  static constexpr uint64_t EdgeNs(size_t edge) { return kFirstEdgeNs << edge; }
  static constexpr size_t BucketOf(uint64_t ns) {
    if (ns == 0) return 0;
    return std::min<size_t>(std::bit_width((ns - 1) / kFirstEdgeNs), kNumEdges);
  }

  void Observe(uint64_t ns) {
    counts_[BucketOf(ns)].fetch_add(1, std::memory_order_relaxed);
    sum_ns_.fetch_add(ns, std::memory_order_relaxed);
  }

  struct Snapshot {
    std::array<uint64_t, kNumBuckets> counts = {};
    uint64_t sum_ns = 0;
  };
  // Each number is right by itself; the sum may be ahead of the counts by what is observed now.
  Snapshot Read() const {
    Snapshot snapshot;
    for (size_t i = 0; i < kNumBuckets; ++i)
      snapshot.counts[i] = counts_[i].load(std::memory_order_relaxed);
    snapshot.sum_ns = sum_ns_.load(std::memory_order_relaxed);
    return snapshot;
  }

 private:
  std::array<std::atomic<uint64_t>, kNumBuckets> counts_ = {};
  std::atomic<uint64_t> sum_ns_ = 0;
};

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_METRICS_HISTOGRAM_H_
