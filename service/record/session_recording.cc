// SPDX-License-Identifier: Apache-2.0
// SessionRecording: the part of recorder.h that the threads of a session's calls run.
#include <new>

#include "service/record/recorder.h"

namespace reprise::service {

SessionRecording::~SessionRecording() { shared_->ended.store(true, std::memory_order_release); }

void SessionRecording::AddStep(uint64_t submitted_ns, v1::StepRequest* step,
                               v1::StepResponse* answer) {
  if (!shared_->wanted.load(std::memory_order_relaxed)) return;
  step->clear_session();
  // Whoever replays it has no profile.
  step->clear_stamped();
  step->clear_unpadded();
  v1::SessionRecord record;
  // The record views both, and owns neither.
  record.unsafe_arena_set_allocated_step(step);
  record.unsafe_arena_set_allocated_answer(answer);
  Add(&record, submitted_ns);
  record.unsafe_arena_release_step();
  record.unsafe_arena_release_answer();
}

template <typename Fill>
void SessionRecording::AddFilled(const Fill& fill) {
  const uint64_t now_ns = NowNs();
  try {
    v1::SessionRecord record;
    fill(&record);
    Add(&record, now_ns);
  } catch (const std::bad_alloc&) {
    Lose(RecordLoss::kOutOfMemory);
  }
}

void SessionRecording::AddAllocate(const v1::AllocateRequest& request,
                                   const v1::AllocateResponse& response) {
  AddFilled([&](v1::SessionRecord* record) {
    record->mutable_allocate()->set_count(request.count());
    *record->mutable_allocated() = response;
  });
}

void SessionRecording::AddFree(const v1::FreeRequest& request) {
  AddFilled([&](v1::SessionRecord* record) {
    *record->mutable_free()->mutable_blocks() = request.blocks();
  });
}

void SessionRecording::Add(v1::SessionRecord* record, uint64_t at_ns) {
  if (!shared_->wanted.load(std::memory_order_relaxed)) return;
  record->set_time_ns(at_ns - started_ns_);
  if (const std::optional<RecordLoss> loss = recorder_.Push(shared_, *record)) Lose(*loss);
}

void SessionRecording::Lose(RecordLoss loss) {
  if (!shared_->wanted.exchange(false, std::memory_order_relaxed)) return;
  shared_->lost_for.store(loss, std::memory_order_relaxed);
  shared_->lost.store(true, std::memory_order_release);
}

}  // namespace reprise::service
