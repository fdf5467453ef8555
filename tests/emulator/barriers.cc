// SPDX-License-Identifier: Apache-2.0
// Barriers in shared memory, and copies that land later. See block_runner.h.
//
// A copy's target is overwritten with poison when the copy starts, and bears the mark of a copy in
// flight until it lands; the source is read when it lands. A copy of a thread lands when that
// thread waits, a bulk copy at a pseudo-random switch of threads, at the latest when nobody else
// can go on.
#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/emulator/block_runner.h"

namespace reprise::emulator {
namespace {

constexpr int kPoison = 0xff;
constexpr uint32_t kChanceToLand = 8;  // one in

// AddressSanitizer guards what is in flight where the shadow does not.
void Guard([[maybe_unused]] std::byte* target, [[maybe_unused]] size_t bytes) {
  std::memset(target, kPoison, bytes);
#if defined(__SANITIZE_ADDRESS__)
  ASAN_POISON_MEMORY_REGION(target, bytes);
#endif
}

void Unguard([[maybe_unused]] std::byte* target, [[maybe_unused]] size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  ASAN_UNPOISON_MEMORY_REGION(target, bytes);
#endif
}

}  // namespace

void BlockRunner::CopyAsync(void* shared, const void* global, size_t bytes, Place place) {
  const size_t offset = SharedOffset(shared, "the target of CopyAsync", place);
  const bool is_size = bytes == 4 || bytes == 8 || bytes == 16;
  if (!is_size || offset % bytes != 0 || reinterpret_cast<uintptr_t>(global) % bytes != 0) {
    Fail([&] {
      return absl::StrCat("CopyAsync of ", bytes, " bytes to ", arena_.Describe(offset),
                          "; allowed: 4, 8 or 16 bytes, from and to multiples of them\n  ",
                          NameOf(current_->id), " at ", Describe(place));
    });
  }
  AccessIfShared<AccessKind::kWrite>(shared, bytes, place);
  if (global != nullptr) AccessAny<AccessKind::kRead>(global, bytes, place);
  MarkInFlight(offset, bytes, place);
  current_->copies.push_back({.offset = offset,
                              .from = global,
                              .bytes = bytes,
                              .group = current_->num_committed,
                              .place = place});
}

void BlockRunner::CopyAsyncWait(int pending, Place place) {
  if (pending < 0) {
    Fail([&] {
      return absl::StrCat("CopyAsyncWait(", pending, "); allowed: 0 or more\n  at ",
                          Describe(place));
    });
  }
  Thread& self = *current_;
  // Groups before this one land.
  const uint32_t end =
      self.num_committed - std::min(self.num_committed, static_cast<uint32_t>(pending));
  size_t num_landed = 0;
  for (const AsyncCopy& copy : self.copies) {
    if (copy.group >= end) break;
    // The source may be read until now.
    if (copy.from != nullptr) AccessAny<AccessKind::kRead>(copy.from, copy.bytes, copy.place);
    Land(copy, order_.epoch());
    ++num_landed;
  }
  self.copies.erase(self.copies.begin(), self.copies.begin() + static_cast<ptrdiff_t>(num_landed));
}

void BlockRunner::MarkInFlight(size_t offset, size_t bytes, Place place) {
  if (kChecksAccesses) {
    shadow_.Stamp(offset, bytes, {.epoch = kInFlight, .place = place});
    stamped_.emplace_back(offset, bytes);
  }
  Guard(arena_.begin() + offset, bytes);
}

void BlockRunner::Land(const AsyncCopy& copy, Epoch epoch) {
  std::byte* const target = arena_.begin() + copy.offset;
  Unguard(target, copy.bytes);
  if (copy.from != nullptr) {
    std::memcpy(target, copy.from, copy.bytes);
  } else {
    std::memset(target, 0, copy.bytes);
  }
  if (kChecksAccesses) {
    shadow_.Stamp(copy.offset, copy.bytes, {.epoch = epoch, .place = copy.place});
  }
}

void BlockRunner::BarrierInit(uint64_t* barrier, uint32_t arrivals, Place place) {
  const size_t offset = SharedOffset(barrier, "the barrier", place);
  AccessIfShared<AccessKind::kWrite>(barrier, sizeof(*barrier), place);
  const bool is_again = std::any_of(barriers_.begin(), barriers_.end(),
                                    [&](const Barrier& b) { return b.offset == offset; });
  if (arrivals == 0 || is_again || barriers_.size() == kMaxBarriers) {
    Fail([&] {
      return absl::StrCat("BarrierInit for ", arrivals, " arrivals, ", barriers_.size(),
                          " barriers so far", is_again ? ", this one among them" : "",
                          "; allowed: at least 1 arrival, ", kMaxBarriers,
                          " barriers, each initialised once\n  at ", Describe(place));
    });
  }
  *barrier = kBarrierMagic | barriers_.size();
  barriers_.push_back({.offset = offset, .expected = arrivals, .missing = arrivals});
}

BlockRunner::Barrier& BlockRunner::FindBarrier(const uint64_t* barrier, Place place) {
  const size_t offset = SharedOffset(barrier, "the barrier", place);
  // Whoever uses it must come after its initialisation.
  AccessIfShared<AccessKind::kAtomicRead>(barrier, sizeof(*barrier), place);
  return BarrierAt(offset, place);
}

void BlockRunner::FailNoBarrier(size_t offset, Place place) {
  Fail([&] {
    return absl::StrCat("no barrier was initialised at ", arena_.Describe(offset), "\n  ",
                        NameOf(current_->id), " at ", Describe(place));
  });
}

void BlockRunner::BarrierArrive(uint64_t* barrier, uint32_t bytes, Place place) {
  Arrive(FindBarrier(barrier, place), bytes, place);
}

void BlockRunner::Arrive(Barrier& b, uint32_t bytes, Place place) {
  if (b.missing == 0 || b.num_complete >= kMaxPhases) {
    Fail([&] {
      return absl::StrCat("more than ", b.expected, " arrivals in phase ", b.num_complete,
                          " of the barrier at ", arena_.Describe(b.offset), "\n  ",
                          NameOf(current_->id), " at ", Describe(place));
    });
  }
  if (kChecksAccesses) CheckClocks(order_.Release(&b.released));
  b.bytes += bytes;
  --b.missing;
  CompleteIfDone(b);
}

void BlockRunner::BarrierArriveAfterCopies(uint64_t* barrier, Place place) {
  Barrier& b = FindBarrier(barrier, place);
  std::vector<AsyncCopy>& copies = current_->copies;
  uint32_t bytes = 0;
  for (const AsyncCopy& copy : copies) bytes += static_cast<uint32_t>(copy.bytes);
  if (!copies.empty()) {
    ++b.num_copies;
    bulk_copies_.push_back({.copies = std::move(copies),
                            .thread = current_->id,
                            .barrier = static_cast<uint32_t>(&b - barriers_.data())});
    copies.clear();
  }
  BarrierArrive(barrier, bytes, place);
}

void BlockRunner::CompleteIfDone(Barrier& barrier) {
  if (barrier.missing != 0 || barrier.bytes != 0) return;
  barrier.missing = barrier.expected;
  const uint32_t phase = barrier.num_complete++;
  const auto index = static_cast<uint32_t>(&barrier - barriers_.data());
  if (kChecksAccesses) {
    if (barrier.num_copies > 0) {
      order_.ReleasePhases(&barrier.released, index, barrier.num_complete);
    }
    barrier.completed = Order::Share(&barrier.released);
  }
  for (unsigned i = 0; i < num_threads_; ++i) {
    const Thread& thread = *threads_[i];
    if (thread.waits != Waits::kBarrier || thread.barrier != index || thread.phase != phase)
      continue;
    AcquirePhase(barrier, i);
    MakeReady(i);
  }
}

void BlockRunner::AcquirePhase(Barrier& barrier, unsigned thread) {
  if (!kChecksAccesses) return;
  // A block barrier took away what was there.
  if (barrier.completed == nullptr && barrier.num_copies > 0) {
    const auto index = static_cast<unsigned>(&barrier - barriers_.data());
    Order::Released phases;
    order_.ReleasePhases(&phases, index, barrier.num_complete);
    barrier.completed = Order::Share(&phases);
  }
  order_.Acquire(thread, barrier.completed);
}

void BlockRunner::CheckPhase(const Barrier& b, uint32_t phase, Place place) {
  if (phase <= b.num_complete && phase + 1 >= b.num_complete) return;
  Fail([&] {
    return absl::StrCat("wait for phase ", phase, " of the barrier at ", arena_.Describe(b.offset),
                        ", whose phase ", b.num_complete,
                        " is under way; allowed: this one or the one before it\n  ",
                        NameOf(current_->id), " at ", Describe(place));
  });
}

void BlockRunner::BarrierWait(uint64_t* barrier, uint32_t phase, bool for_peers, Place place) {
  Barrier& b = FindBarrier(barrier, place);
  CheckPhase(b, phase, place);
  b.num_waited = std::max(b.num_waited, phase + 1);
  const auto index = static_cast<uint32_t>(&b - barriers_.data());
  Thread& self = *current_;
  self.place = place;
  if (phase < b.num_complete) {
    AcquirePhase(b, self.id);
    MakeReady(self.id);
    GoOn();
  } else {
    self.waits = Waits::kBarrier;
    self.barrier = index;
    self.phase = phase;
    GoOn();
    // A GPU's thread looks again and again, and sees a phase's parity alone.
    if (barriers_[index].num_complete > phase + 1) FailOvertaken(barriers_[index], phase, place);
  }
  if (!for_peers && barriers_[index].num_sent_phases > 0) [[unlikely]] {
    Fail([&] {
      return absl::StrCat("BarrierWait on the barrier at ",
                          arena_.Describe(barriers_[index].offset),
                          ", at which peers arrive or for which they store; allowed: "
                          "BarrierWaitForPeers\n  ",
                          NameOf(current_->id), " at ", Describe(place));
    });
  }
}

// Takes its turn and looks again, as WaitAtLeast.
void BlockRunner::BarrierWaitForEither(uint64_t* a, uint64_t* b, uint32_t phase, Place place) {
  Thread& self = *current_;
  self.place = place;
  self.polls = true;
  for (const uint64_t* const barrier : {a, b})
    CheckPhase(FindBarrier(barrier, place), phase, place);
  const auto is_done = [&](const uint64_t* barrier) {
    return FindBarrier(barrier, place).num_complete > phase;
  };
  while (!is_done(a) && !is_done(b)) {
    if (++idle_looks_ > 64 * num_threads_ && bulk_copies_.empty() && peer_stores_.empty()) {
      Fail([&] {
        return absl::StrCat("phase ", phase, " completes neither of the barrier at ",
                            arena_.Describe(FindBarrier(a, place).offset), " nor of the one at ",
                            arena_.Describe(FindBarrier(b, place).offset), "\n  ", NameOf(self.id),
                            " at ", Describe(place), DescribeWaiting());
      });
    }
    MakeReady(self.id);
    GoOn();
  }
  self.polls = false;
  idle_looks_ = 0;
  BarrierWait(is_done(a) ? a : b, phase, /*for_peers=*/false, place);
}

void BlockRunner::FailOvertaken(const Barrier& barrier, uint32_t phase, Place place) {
  Fail([&] {
    return absl::StrCat("overtaken: phase ", phase + 1, " of the barrier at ",
                        arena_.Describe(barrier.offset), " completed while ", NameOf(current_->id),
                        " waited for phase ", phase, "\n  at ", Describe(place));
  });
}

void BlockRunner::CopyBulk(void* shared, const void* global, size_t bytes, uint64_t* barrier,
                           Place place) {
  Barrier& b = FindBarrier(barrier, place);
  const size_t offset = SharedOffset(shared, "the target of CopyBulk", place);
  if (bytes % 16 != 0 || offset % 16 != 0 || reinterpret_cast<uintptr_t>(global) % 16 != 0) {
    Fail([&] {
      return absl::StrCat("CopyBulk of ", bytes, " bytes to ", arena_.Describe(offset),
                          "; allowed: multiples of 16 bytes, from and to multiples of 16\n  at ",
                          Describe(place));
    });
  }
  pieces_.assign(1, {.offset = offset, .from = global, .bytes = bytes, .group = 0, .place = place});
  StartBulk(b);
}

void BlockRunner::CopyTile(void* shared, const runtime::TileMap& map, const int32_t* at, int rank,
                           uint64_t* barrier, Place place) {
  Barrier& b = FindBarrier(barrier, place);
  const size_t offset = SharedOffset(shared, "the target of CopyTile", place);
  runtime::TiledMatrix matrix;
  std::memcpy(&matrix, map.bytes, sizeof(matrix));
  const size_t alignment = matrix.swizzled ? 1024 : 128;
  if (matrix.rank != rank || std::any_of(at, at + rank, [](int32_t i) { return i < 0; }) ||
      (offset - Arena::kLeadBytes) % alignment != 0) {
    Fail([&] {
      return absl::StrCat("CopyTile of a matrix of rank ", matrix.rank, " to ",
                          arena_.Describe(offset), "; allowed: rank ", rank,
                          ", from elements that are not negative, to multiples of ", alignment,
                          "\n  at ", Describe(place));
    });
  }
  CutTile(matrix, at, offset, place);
  StartBulk(b);
}

// Row by row, as the tile lies in shared memory.
void BlockRunner::CutTile(const runtime::TiledMatrix& matrix, const int32_t* at, size_t offset,
                          Place place) {
  constexpr int32_t kChunk = 16 / runtime::kTileElementBytes;
  pieces_.clear();
  const auto add = [&](size_t to, const std::byte* from, int32_t elements) {
    if (elements <= 0) return;
    pieces_.push_back({.offset = offset + to,
                       .from = from,
                       .bytes = static_cast<size_t>(elements) * runtime::kTileElementBytes,
                       .group = 0,
                       .place = place});
  };
  int32_t rows = 1;
  for (int i = 1; i < matrix.rank; ++i) rows *= matrix.tile[i];
  const int32_t step = matrix.swizzled ? kChunk : matrix.tile[0];
  for (int32_t row = 0; row < rows; ++row) {
    const std::byte* from = static_cast<const std::byte*>(matrix.data);
    bool inside = true;
    for (int32_t i = 1, rest = row; i < matrix.rank; ++i) {
      const int64_t index = int64_t{at[i]} + rest % matrix.tile[i];
      inside = inside && index < matrix.sizes[i];
      from += index * matrix.strides[i];
      rest /= matrix.tile[i];
    }
    for (int32_t column = 0; column < matrix.tile[0]; column += step) {
      const int32_t chunk = column / kChunk;
      const int32_t lands =
          row * matrix.tile[0] + (matrix.swizzled ? (chunk ^ (row % 8)) * kChunk : column);
      const int32_t left = inside ? matrix.sizes[0] - at[0] - column : 0;
      const int32_t live = std::clamp(left, 0, step);
      const auto to = static_cast<size_t>(lands) * runtime::kTileElementBytes;
      add(to, from + (int64_t{at[0]} + column) * runtime::kTileElementBytes, live);
      add(to + static_cast<size_t>(live) * runtime::kTileElementBytes, nullptr, step - live);
    }
  }
}

void BlockRunner::StartBulk(Barrier& barrier) {
  for (const AsyncCopy& copy : pieces_) {
    AccessIfShared<AccessKind::kWrite>(arena_.begin() + copy.offset, copy.bytes, copy.place);
    if (copy.from != nullptr) AccessAny<AccessKind::kRead>(copy.from, copy.bytes, copy.place);
    MarkInFlight(copy.offset, copy.bytes, copy.place);
  }
  ++barrier.num_copies;
  bulk_copies_.push_back({.copies = pieces_,
                          .thread = current_->id,
                          .barrier = static_cast<uint32_t>(&barrier - barriers_.data())});
}

void BlockRunner::LandBulk(size_t index) {
  const BulkCopy bulk = std::move(bulk_copies_[index]);
  bulk_copies_.erase(bulk_copies_.begin() + static_cast<ptrdiff_t>(index));
  Barrier& barrier = barriers_[bulk.barrier];
  for (const AsyncCopy& copy : bulk.copies) {
    Land(copy, Order::CopyEpoch(bulk.barrier, barrier.num_complete));
    barrier.bytes -= static_cast<int64_t>(copy.bytes);
  }
  CompleteIfDone(barrier);
}

void BlockRunner::LandSomeBulk() {
  if (random_.Below(kChanceToLand) != 0) return;
  LandBulk(random_.Below(static_cast<uint32_t>(bulk_copies_.size())));
}

void BlockRunner::LandOne() {
  const size_t i = random_.Below(static_cast<uint32_t>(bulk_copies_.size() + peer_stores_.size()));
  if (i < bulk_copies_.size()) return LandBulk(i);
  LandStore(i - bulk_copies_.size());
}

}  // namespace reprise::emulator
