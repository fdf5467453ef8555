// SPDX-License-Identifier: Apache-2.0
// DrainLimit: a session with a server that a signal has asked to end, and that does not: breaks it
// off after a while, so that a server that answers nothing cannot hold a command.
#ifndef REPRISE_TOOLS_SCHED_DRAIN_LIMIT_H_
#define REPRISE_TOOLS_SCHED_DRAIN_LIMIT_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "tools/sched/client.h"

namespace reprise::tools {

// How long a signal waits for the steps in flight.
inline constexpr std::chrono::seconds kDrainTime(5);

class DrainLimit {
 public:
  // GrpcClient::Cancel when `requested` has been true for kDrainTime. Both must outlive the limit.
  DrainLimit(GrpcClient* client, const std::atomic<bool>* requested);
  ~DrainLimit();
  DrainLimit(const DrainLimit&) = delete;
  DrainLimit& operator=(const DrainLimit&) = delete;

 private:
  void Watch();

  GrpcClient* client_;
  const std::atomic<bool>* requested_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ended_ = false;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_SCHED_DRAIN_LIMIT_H_
