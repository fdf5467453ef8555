// SPDX-License-Identifier: Apache-2.0
#include "graphs/capture_worker.h"

#include <algorithm>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace reprise::graphs {

absl::StatusOr<std::unique_ptr<CaptureWorker>> CaptureWorker::Start(CaptureFn capture) {
  std::unique_ptr<CaptureWorker> worker(new CaptureWorker(std::move(capture)));
  try {
    worker->thread_ = std::thread(&CaptureWorker::Loop, worker.get());
  } catch (const std::system_error& e) {
    return absl::ResourceExhaustedError(absl::StrCat("no thread for captures: ", e.what()));
  }
  return worker;
}

CaptureWorker::~CaptureWorker() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

bool CaptureWorker::Busy(int bucket) const {
  return under_way_ == bucket || std::find(queue_.begin(), queue_.end(), bucket) != queue_.end();
}

void CaptureWorker::Remove(int bucket) {
  queue_.erase(std::remove(queue_.begin(), queue_.end(), bucket), queue_.end());
}

void CaptureWorker::Append(int bucket) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!Busy(bucket)) queue_.push_back(bucket);
  }
  changed_.notify_all();
}

void CaptureWorker::Prepend(int bucket) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    Remove(bucket);
    if (under_way_ != bucket) queue_.push_front(bucket);
  }
  changed_.notify_all();
}

void CaptureWorker::Cancel(int bucket) {
  std::unique_lock<std::mutex> lock(mutex_);
  Remove(bucket);
  changed_.wait(lock, [&] { return under_way_ != bucket; });
  done_.erase(std::remove_if(done_.begin(), done_.end(),
                             [&](const Done& done) { return done.bucket == bucket; }),
              done_.end());
  num_done_.store(done_.size(), std::memory_order_release);
}

void CaptureWorker::CancelQueued() {
  std::lock_guard<std::mutex> lock(mutex_);
  queue_.clear();
}

void CaptureWorker::Wait(int bucket) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] { return !Busy(bucket); });
}

void CaptureWorker::WaitAll() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] { return queue_.empty() && under_way_ == kNone; });
}

std::vector<CaptureWorker::Done> CaptureWorker::TakeDone() {
  std::lock_guard<std::mutex> lock(mutex_);
  num_done_.store(0, std::memory_order_release);
  return std::exchange(done_, {});
}

void CaptureWorker::Loop() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stop_ || !queue_.empty(); });
    if (stop_) return;
    const int bucket = queue_.front();
    queue_.pop_front();
    under_way_ = bucket;
    lock.unlock();
    auto result = capture_(bucket);
    lock.lock();
    under_way_ = kNone;
    done_.push_back({.bucket = bucket, .result = std::move(result)});
    num_done_.store(done_.size(), std::memory_order_release);
    changed_.notify_all();
  }
}

}  // namespace reprise::graphs
