// SPDX-License-Identifier: Apache-2.0
// Driver: the scheduler's loop. Admits requests as they arrive, keeps the pipeline full, takes
// results in order, stamps times. It joins a Batcher to a StepChannel; policy lives in the former,
// transport in the latter.
#ifndef REPRISE_TOOLS_SCHED_DRIVER_H_
#define REPRISE_TOOLS_SCHED_DRIVER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/sched/batcher.h"
#include "tools/sched/channel.h"
#include "tools/sched/request.h"

namespace reprise::tools {

// Nanoseconds since the start of the run. Tests bring their own.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual uint64_t NowNs() = 0;
  virtual void SleepNs(uint64_t ns) = 0;
};

// Starts at 0 when it is made.
class SteadyClock : public Clock {
 public:
  SteadyClock();
  uint64_t NowNs() override;
  void SleepNs(uint64_t ns) override;

 private:
  uint64_t start_ns_;
};

// A step, or several of one request, whose result is in hand.
struct FinishedStep {
  bool prefill = false;         // carried prompt tokens
  uint64_t draft_tokens = 0;    // that its rows brought
  uint64_t context_tokens = 0;  // KV tokens that its rows held after it, summed over its steps
  uint64_t result_ns = 0;       // when the result was in hand
};

// Where a run stands, for a progress line.
struct DriverState {
  size_t num_requests = 0;
  size_t num_finished = 0;
  size_t num_resident = 0;
  size_t num_waiting = 0;
  uint64_t num_tokens = 0;
  uint64_t now_ns = 0;
};

// Told what happens, on the driver's thread. A slow listener slows the run.
class DriverListener {
 public:
  virtual ~DriverListener() = default;
  virtual void OnArrival(const Request&) {}
  // `request.tokens[index]` is new; there may be further ones behind it already.
  virtual void OnToken(const Request&, size_t /*index*/) {}
  virtual void OnFinished(const Request&) {}
  virtual void OnStep(const StepOutcome&, const FinishedStep&) {}
  virtual void OnState(const DriverState&) {}
};

struct DriverOptions {
  uint32_t pipeline_depth = 2;
  uint64_t timeout_ns = 0;  // of the whole run; 0: none
  // Set by another thread to stop; may be null.
  const std::atomic<bool>* interrupted = nullptr;
};

class Driver {
 public:
  // All must outlive the driver. `blocks` is the batcher's.
  Driver(Batcher* batcher, BlockManager* blocks, StepChannel* channel, Clock* clock,
         DriverListener* listener, const DriverOptions& options)
      : batcher_(batcher),
        blocks_(blocks),
        channel_(channel),
        clock_(clock),
        listener_(listener),
        options_(options) {}

  // Runs all requests, which are sorted by arrival, to their end, over another session where the
  // channel has lost one and opens it. Errors: a request that can never run; the channel's; a
  // refused step; DeadlineExceeded; Cancelled when interrupted, after the results of the steps in
  // flight. What was generated until then stays in the requests. A request that failed by itself is
  // no error here: see FailureOf.
  absl::Status Run(std::vector<Request>* requests);

 private:
  struct InFlight {
    bool prefill = false;
    bool adds_rows = false;
    uint64_t draft_tokens = 0;
  };
  absl::Status RunToEnd();
  // One turn of the loop. False: all is done.
  absl::StatusOr<bool> Advance();
  // After `error`: OK where the channel has another session, in which everything begins again.
  absl::Status BeginAgain(const absl::Status& error);
  absl::Status AdmitArrivals();
  // True when a step was submitted.
  absl::StatusOr<bool> SubmitNext();
  absl::Status ReceiveOne();
  // Tells what the last result brought.
  void TellProgress(uint64_t now);
  absl::Status HandleRefusal(const absl::Status& refusal);
  // Nothing can run and nothing is in flight: waits for an arrival, or for blocks or rows that
  // other sessions hold.
  absl::Status WaitForWork();
  absl::Status CheckStop();
  // Takes the results of what is in flight, as far as they come.
  void FinishSteps();
  // Now and then asks again what a server had no room for.
  void RetryRoom(uint64_t now);
  void ReportState();

  Batcher* batcher_;
  BlockManager* blocks_;
  StepChannel* channel_;
  Clock* clock_;
  DriverListener* listener_;
  const DriverOptions options_;

  std::vector<Request>* requests_ = nullptr;
  size_t next_arrival_ = 0;
  size_t num_finished_ = 0;
  uint64_t num_tokens_ = 0;
  uint64_t retry_at_ns_ = 0;
  std::deque<InFlight> in_flight_;
  PlannedStep step_;
  StepOutcome outcome_;
  Batcher::Progress progress_;
};

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_SCHED_DRIVER_H_
