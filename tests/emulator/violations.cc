// SPDX-License-Identifier: Apache-2.0
// What is said of accesses that are violations; see block_runner.h.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tests/emulator/block_runner.h"

namespace reprise::emulator {
namespace {

const char* VerbOf(AccessKind kind) {
  if (kind == AccessKind::kAtomicUpdate) return "atomic update";
  return Writes(kind) ? "write" : "read";
}

}  // namespace

std::string BlockRunner::NameOf(unsigned thread) const {
  if (num_blocks_ == 1) return NameInBlock(thread);
  return absl::StrCat(NameOfBlock(thread / block_threads_), ", ", NameInBlock(thread));
}

std::string BlockRunner::NameOfBlock(unsigned block) const {
  const ThreadIndex& first = threads_[0]->index;
  return absl::StrCat("block (", first.block_x + block, ", ", first.block_y, ")");
}

std::string BlockRunner::NameInBlock(unsigned thread) const {
  thread %= block_threads_;
  return absl::StrCat("thread ", thread, " (warp ", thread / warp_size_, ", lane ",
                      thread % warp_size_, ")");
}

std::string BlockRunner::DescribeSelf(AccessKind kind, size_t bytes, Place place) const {
  return absl::StrCat(NameOf(current_->id), ": ", VerbOf(kind), " of ", bytes, " bytes at ",
                      Describe(place));
}

void BlockRunner::FailOutOfBounds(AccessKind kind, size_t offset, size_t bytes, Place place) {
  Fail([&] {
    return absl::StrCat("out of bounds: ", arena_.Describe(offset), "\n  ",
                        DescribeSelf(kind, bytes, place));
  });
}

void BlockRunner::FailConflict(AccessKind kind, size_t bytes, const Shadow::Conflict& conflict,
                               Place place) {
  if (conflict.kind == Shadow::Conflict::Kind::kUninitialised) {
    WaitForGood(kind, bytes, conflict, place);
  }
  Fail([&] { return DescribeConflict(kind, bytes, conflict, place); });
}

void BlockRunner::FailTooEarly(AccessKind kind, size_t bytes,
                               const GlobalShadow::Conflict& conflict, Place place) {
  Fail([&] {
    return absl::StrCat("too early at 0x", absl::Hex(conflict.address),
                        ":\n  the launch before: ", conflict.earlier_wrote ? "write" : "read",
                        " at ", Describe(conflict.earlier.place), "\n  ",
                        DescribeSelf(kind, bytes, place),
                        "\n  and the thread has not waited for that launch");
  });
}

void BlockRunner::FailGlobalConflict(AccessKind kind, size_t bytes,
                                     const GlobalShadow::Conflict& conflict, Place place) {
  Fail([&] {
    const auto name = [](unsigned x, unsigned y) {
      return absl::StrCat("block (", x, ", ", y, "), ");
    };
    const Epoch epoch = conflict.earlier.epoch;
    const GridOrder::Block& earlier = grid_->BlockOf(epoch);
    return absl::StrCat(
        "race on global memory at 0x", absl::Hex(conflict.address), ":\n  ",
        name(earlier.x + IdOf(epoch) / block_threads_, earlier.y), NameInBlock(IdOf(epoch)), ": ",
        IsAtomic(epoch) ? "atomic " : "", conflict.earlier_wrote ? "write" : "read", " at ",
        Describe(conflict.earlier.place), "\n  ",
        num_blocks_ == 1 ? name(current_->index.block_x, current_->index.block_y) : "",
        DescribeSelf(kind, bytes, place), "\n  and nothing orders them");
  });
}

std::string BlockRunner::DescribeConflict(AccessKind kind, size_t bytes,
                                          const Shadow::Conflict& conflict, Place place) const {
  const std::string where = arena_.Describe(conflict.offset);
  const std::string self = DescribeSelf(kind, bytes, place);
  if (conflict.kind == Shadow::Conflict::Kind::kUninitialised) {
    return absl::StrCat("uninitialised: ", where, " was not written in this block\n  ", self);
  }
  const bool in_flight = conflict.earlier.epoch == kInFlight;
  return absl::StrCat(in_flight ? "copy in flight to " : "race on ", where, ":\n  ",
                      DescribeEarlier(conflict), "\n  ", self, "\n  and nothing orders them");
}

std::string BlockRunner::DescribeEarlier(const Shadow::Conflict& conflict) const {
  const Epoch epoch = conflict.earlier.epoch;
  const std::string place = Describe(conflict.earlier.place);
  if (epoch == kInFlight) {
    return absl::StrCat(NameOf(FindIssuer(conflict.offset)), ": copy started at ", place);
  }
  if (IsCopier(epoch)) {
    return absl::StrCat(num_blocks_ == 1 ? "bulk copy" : "bulk copy or peer's store",
                        " started at ", place);
  }
  const bool wrote = conflict.kind == Shadow::Conflict::Kind::kWrite;
  return absl::StrCat(NameOf(IdOf(epoch)), ": ", IsAtomic(epoch) ? "atomic " : "",
                      wrote ? "write" : "read", " at ", place);
}

unsigned BlockRunner::FindIssuer(size_t offset) const {
  const auto holds = [&](const AsyncCopy& copy) {
    return offset >= copy.offset && offset < copy.offset + copy.bytes;
  };
  for (const BulkCopy& bulk : bulk_copies_) {
    if (std::any_of(bulk.copies.begin(), bulk.copies.end(), holds)) return bulk.thread;
  }
  for (const PeerStore& store : peer_stores_) {
    if (offset - store.offset < store.value.size()) return store.thread;
  }
  unsigned i = 0;
  while (i + 1 < num_threads_ &&
         std::none_of(threads_[i]->copies.begin(), threads_[i]->copies.end(), holds)) {
    ++i;
  }
  return i;
}

}  // namespace reprise::emulator
