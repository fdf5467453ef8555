// SPDX-License-Identifier: Apache-2.0
// StepTurns: whose step runs next. Holds the steps that wait, and knows neither clock nor device:
// it is told what each step took.
//
// Order: the identity of the highest priority that has steps waiting goes first, always. Among
// those of equal priority it is the one that has had the least time of the device by its weight;
// among its sessions that which has had the least; and a session's steps run in the order in which
// they came. Time counts from when an identity, or a session, began to ask: having asked for
// nothing gives no claim on what others ask for now. A request of several steps counts as so many.
//
// Jobs may go along with the one whose turn it is, in the same replay. That one pays for it: it
// would have taken the device for as long without them. So accounts stay level among sessions that
// always find room beside each other, and who finds none is next soon.
//
// Threads: the caller orders all calls.
#ifndef REPRISE_SERVICE_STEP_TURNS_H_
#define REPRISE_SERVICE_STEP_TURNS_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "service/step_queue.h"

namespace reprise::service {

// What waits for its turn, and what is in flight: one moment's picture.
struct WaitingSteps {
  uint64_t requests = 0;        // that wait
  uint64_t in_flight = 0;       // requests on the device
  uint64_t launches = 0;        // of these requests, which may share one
  uint64_t sessions = 0;        // with requests that wait
  uint64_t oldest_wait_ns = 0;  // how long the longest has waited
  // Device time by which, of the sessions of one identity that wait, the most served is ahead of
  // the least served, since both began to ask: the largest of all identities. While steps run in
  // turn it is about one request's.
  uint64_t served_spread_ns = 0;
};

class StepTurns {
 public:
  // The job waits, in its session's queue.
  void Add(StepJob* job, StepQueue& queue);
  // The job whose turn it is; nullptr when none waits.
  StepJob* Next() const;
  // Sets `jobs` to `next` and, behind it, the oldest jobs of other queues of its priority which
  // `may` lets through, those whose turn is sooner first. At most `most` in all; allocates nothing
  // where `jobs` has room for as many.
  template <typename May>
  void ListJoint(StepJob* next, size_t most, May may, std::vector<StepJob*>* jobs) const {
    jobs->assign(1, next);
    const StepQueue* own = next->queue_;
    for (const StepShare* share = first_waiting_; share != nullptr; share = share->next_) {
      if (share->priority_ != own->share_.priority_) continue;
      for (const StepQueue* queue = share->first_waiting_; queue != nullptr; queue = queue->next_) {
        StepJob* job = queue->waiting_.front();
        if (queue == own || !may(*job)) continue;
        if (jobs->size() < most) {
          jobs->push_back(job);
          continue;
        }
        const auto last = std::max_element(jobs->begin() + 1, jobs->end(), IsBefore);
        if (last != jobs->end() && IsBefore(job, *last)) *last = job;
      }
    }
    std::sort(jobs->begin() + 1, jobs->end(), IsBefore);
  }
  // Takes a job that has its turn now, or one that goes along with it. REQUIRES: it is the oldest
  // of its queue.
  void TakeTurn(StepJob& job);
  void TakeAlong(StepJob& job);
  // The job of Next() has its turn; nullptr when none waits.
  StepJob* TakeNext();
  // Takes the queue's oldest; nullptr when none waits in it.
  StepJob* Take(StepQueue& queue);

  // What the share gets from now on; steps of its that wait have it too. REQUIRES: as StepShare's.
  void Set(StepShare& share, uint32_t weight, uint32_t priority);

  // What became of a job that was taken: it went to the device; it was refused, which took time as
  // well; it ran.
  static void NoteSubmitted(StepJob& job);
  static void NoteRefused(const StepJob& job);
  // num_steps: of the request, at least 1. device_ns: all of them together; 0 where they were lost.
  void NoteServed(StepJob& job, uint64_t num_steps, uint64_t device_ns);

  // WaitingSteps but for those in flight.
  WaitingSteps Look(uint64_t now_ns) const;

 private:
  void Link(StepShare& share);
  static void Link(StepShare& share, StepQueue& queue);
  void Unlink(StepShare& share);
  static void Unlink(StepShare& share, StepQueue& queue);
  StepShare* PickShare() const;
  static StepQueue* PickQueue(const StepShare& share);
  // Of two queues of a share, and of two jobs at the head of theirs.
  static bool IsSooner(const StepQueue& a, const StepQueue& b);
  static bool IsBefore(const StepJob* a, const StepJob* b);

  StepShare* first_waiting_ = nullptr;
  // By priority: served_ns_ of the share that ran last, before that turn. A share that comes back
  // from having nothing to do starts there.
  std::array<uint64_t, StepShare::kNumPriorities> turn_ns_ = {};
  uint64_t num_turns_ = 0;
  uint64_t num_waiting_ = 0;  // jobs
  // Of the step that ended last, of any session: what a session without one of its own is taken to
  // need for each of its steps.
  uint64_t latest_step_ns_ = 0;
};

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_STEP_TURNS_H_
