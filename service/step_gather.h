// SPDX-License-Identifier: Apache-2.0
// StepGather: whether a step that could run now waits a moment, so that steps of other sessions
// that are about to come run in one replay with it: a replay of many rows takes hardly longer than
// one of a single row.
//
// It waits only for sessions that are expected: whose client sent its last step within the bound
// after the answer before it, and one that could have run beside this one. While one of these has a
// step in flight, others' steps wait until that is done, behind which they would run anyway; then,
// with nothing in flight, for the answer to come back as a step, at most max_wait, and at most a
// quarter of what the last step took: one that comes later waits for a whole replay, and the others
// for its own. Sessions that come later, or not again, are not waited for the next time.
//
// It knows neither steps nor device: it is told what happens. Threads: the caller orders all calls.
#ifndef REPRISE_SERVICE_STEP_GATHER_H_
#define REPRISE_SERVICE_STEP_GATHER_H_

#include <algorithm>
#include <cstdint>

namespace reprise::service {

class StepGather {
 public:
  static constexpr uint64_t kUntilTheNextAnswer = ~uint64_t{0};

  // What is known of one session. Outlives what StepGather is told of it until Forget.
  class Pace {
   public:
    Pace() = default;
    Pace(const Pace&) = delete;
    Pace& operator=(const Pace&) = delete;

   private:
    friend class StepGather;
    static constexpr uint64_t kUnknown = ~uint64_t{0};
    uint32_t waiting_ = 0;    // steps
    uint32_t in_flight_ = 0;  // steps
    uint64_t came_ns_ = 0;    // the last one
    uint64_t answered_ns_ = 0;
    uint64_t think_ns_ = kUnknown;  // from its last answer to its next step
    uint32_t kind_ = 0;             // of the step that went to the device last
    bool is_recent_ = false;        // in the list below
    Pace* previous_ = nullptr;
    Pace* next_ = nullptr;
  };

  // 0: no step waits for others.
  explicit StepGather(uint64_t max_wait_ns) : max_wait_ns_(max_wait_ns) {}

  // A step of the session came; went to the device; left the queue without that; was answered,
  // having taken `step_ns`.
  void NoteCame(Pace& pace, uint64_t now_ns);
  // `kind`: steps of one kind can share a replay.
  void NoteSubmitted(Pace& pace, uint32_t kind);
  void NoteRefused(Pace& pace);
  void NoteAnswered(Pace& pace, uint64_t now_ns, uint64_t step_ns);
  // The session ends; nobody waits for it any more.
  void Forget(Pace& pace);

  // Until when steps of that kind that wait are to be held: 0 when not at all,
  // kUntilTheNextAnswer, or a time after `now_ns`.
  uint64_t HoldUntil(uint64_t now_ns, uint32_t kind);

 private:
  uint64_t BoundNs() const { return std::min(max_wait_ns_, latest_step_ns_ / 4); }
  void Link(Pace& pace);
  void Unlink(Pace& pace);

  const uint64_t max_wait_ns_;
  uint64_t latest_step_ns_ = 0;
  uint32_t in_flight_ = 0;  // steps of all sessions
  Pace* first_ = nullptr;   // sessions with steps in flight, or answered not long ago
};

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_STEP_GATHER_H_
