// SPDX-License-Identifier: Apache-2.0
// CaptureWorker: a thread that captures buckets one after another, and hands each result to the
// thread that asks for it. Part of GraphManager's mode kBackground; it knows numbers of buckets and
// a function, and touches nothing of the manager's.
//
// Threads: any but the worker's own.
#ifndef REPRISE_GRAPHS_CAPTURE_WORKER_H_
#define REPRISE_GRAPHS_CAPTURE_WORKER_H_

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "graphs/bucket.h"
#include "runtime/device.h"

namespace reprise::graphs {

struct CaptureResult {
  CapturedBucket captured;
  std::unique_ptr<runtime::CapturedGraph> graph;
};

class CaptureWorker {
 public:
  using CaptureFn = std::function<absl::StatusOr<CaptureResult>(int bucket)>;
  struct Done {
    int bucket = 0;
    absl::StatusOr<CaptureResult> result;
  };

  // Errors: ResourceExhausted when there is no thread.
  static absl::StatusOr<std::unique_ptr<CaptureWorker>> Start(CaptureFn capture);
  // Ends what is under way and drops the rest.
  ~CaptureWorker();

  // Puts a bucket at the end of the queue, or at its front. Nothing where it is under way.
  void Append(int bucket);
  void Prepend(int bucket);
  // Takes a bucket, or all, out of the queue. A bucket that is under way ends first; its result is
  // dropped.
  void Cancel(int bucket);
  void CancelQueued();
  // Blocks until a bucket is neither queued nor under way.
  void Wait(int bucket);
  // Blocks until nothing is.
  void WaitAll();

  // Whether TakeDone has something to give; one atomic read.
  bool has_done() const { return num_done_.load(std::memory_order_acquire) != 0; }
  std::vector<Done> TakeDone();

 private:
  static constexpr int kNone = -1;

  explicit CaptureWorker(CaptureFn capture) : capture_(std::move(capture)) {}
  void Loop();
  bool Busy(int bucket) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Remove(int bucket) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const CaptureFn capture_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<int> queue_ ABSL_GUARDED_BY(mutex_);
  int under_way_ ABSL_GUARDED_BY(mutex_) = kNone;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Done> done_ ABSL_GUARDED_BY(mutex_);
  std::atomic<size_t> num_done_{0};
  std::thread thread_;
};

}  // namespace reprise::graphs

#endif  // REPRISE_GRAPHS_CAPTURE_WORKER_H_
