// SPDX-License-Identifier: Apache-2.0
// SessionRecording: the part of recorder.h that the threads of a session's calls run.
#include <new>

#include "service/record/kv_records.h"
#include "service/record/recorder.h"

namespace reprise::service {

SessionRecording::~SessionRecording() { shared_->ended.store(true, std::memory_order_release); }

void SessionRecording::AddStep(uint64_t submitted_ns, v1::StepRequest* step,
                               v1::StepResponse* answer) {
  if (!goes_on()) return;
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
void SessionRecording::AddFilled(uint64_t at_ns, const Fill& fill) {
  if (!goes_on()) return;
  try {
    v1::SessionRecord record;
    fill(&record);
    Add(&record, at_ns);
  } catch (const std::bad_alloc&) {
    Lose(RecordLoss::kOutOfMemory);
  }
}

void SessionRecording::AddAllocate(const v1::AllocateRequest& request,
                                   const v1::AllocateResponse& response) {
  AddFilled(NowNs(), [&](v1::SessionRecord* record) {
    record->mutable_allocate()->set_count(request.count());
    *record->mutable_allocated() = response;
  });
}

void SessionRecording::AddFree(const v1::FreeRequest& request) {
  AddFilled(NowNs(), [&](v1::SessionRecord* record) {
    *record->mutable_free()->mutable_blocks() = request.blocks();
  });
}

void SessionRecording::AddSwapOut(uint64_t at_ns, std::span<const uint32_t> blocks,
                                  std::span<const uint32_t> swapped) {
  AddFilled(at_ns, [&](v1::SessionRecord* record) {
    record->mutable_swap_out()->mutable_blocks()->Assign(blocks.begin(), blocks.end());
    record->mutable_swapped_out()->mutable_swapped()->Assign(swapped.begin(), swapped.end());
  });
}

void SessionRecording::AddSwapIn(uint64_t at_ns, std::span<const uint32_t> swapped,
                                 std::span<const uint32_t> blocks) {
  AddFilled(at_ns, [&](v1::SessionRecord* record) {
    record->mutable_swap_in()->mutable_swapped()->Assign(swapped.begin(), swapped.end());
    record->mutable_swapped_in()->mutable_blocks()->Assign(blocks.begin(), blocks.end());
  });
}

void SessionRecording::AddSwapOutState(uint64_t at_ns, uint32_t row,
                                       const engine::SwappedState& state) {
  AddFilled(at_ns, [&](v1::SessionRecord* record) {
    record->mutable_swap_out_state()->set_row(row);
    record->mutable_swapped_out_state()->set_swapped_state(state.place);
    record->mutable_swapped_out_state()->set_context_length(state.context_length);
  });
}

void SessionRecording::AddFreeSwapped(uint64_t at_ns, std::span<const uint32_t> swapped,
                                      std::span<const uint32_t> states) {
  AddFilled(at_ns, [&](v1::SessionRecord* record) {
    v1::FreeSwappedRequest* freed = record->mutable_free_swapped();
    freed->mutable_swapped()->Assign(swapped.begin(), swapped.end());
    freed->mutable_swapped_states()->Assign(states.begin(), states.end());
  });
}

void SessionRecording::AddShare(uint64_t at_ns, std::string_view name,
                                std::span<const uint32_t> blocks) {
  AddFilled(at_ns, [&](v1::SessionRecord* record) {
    record->mutable_share()->set_name(SharedNameDigest(name));
    record->mutable_share()->mutable_blocks()->Assign(blocks.begin(), blocks.end());
  });
}

void SessionRecording::AddAdopted(uint64_t at_ns, std::span<const uint32_t> blocks) {
  AddFilled(at_ns, [&](v1::SessionRecord* record) {
    record->mutable_adopted()->mutable_blocks()->Assign(blocks.begin(), blocks.end());
  });
}

void SessionRecording::AddRelease(uint64_t at_ns, std::string_view name) {
  AddFilled(at_ns, [&](v1::SessionRecord* record) {
    record->mutable_release()->set_name(SharedNameDigest(name));
  });
}

void SessionRecording::AddWrite(uint64_t at_ns, v1::WriteBlocksRequest* write) {
  if (!goes_on()) return;
  write->clear_session();
  if (!recorder_.AwaitRoom(write->ByteSizeLong(), at_ns)) {
    Lose(RecordLoss::kOverflow);
    return;
  }
  v1::SessionRecord record;
  // The record views it, and does not own it.
  record.unsafe_arena_set_allocated_write(write);
  Add(&record, at_ns);
  record.unsafe_arena_release_write();
}

bool SessionRecording::HasRoomFor(uint64_t more_bytes) {
  if (!goes_on()) return false;
  const RecordCounters& counters = recorder_.counters();
  if (counters.bytes.load(std::memory_order_relaxed) + more_bytes <= counters.limit_bytes)
    return true;
  Lose(RecordLoss::kLimit);
  return false;
}

void SessionRecording::Add(v1::SessionRecord* record, uint64_t at_ns) {
  if (!goes_on()) return;
  record->set_time_ns(at_ns - started_ns_);
  if (const std::optional<RecordLoss> loss = recorder_.Push(shared_, *record)) Lose(*loss);
}

void SessionRecording::Lose(RecordLoss loss) {
  if (!shared_->wanted.exchange(false, std::memory_order_relaxed)) return;
  shared_->lost_for.store(loss, std::memory_order_relaxed);
  shared_->lost.store(true, std::memory_order_release);
}

}  // namespace reprise::service
