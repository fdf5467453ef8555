// SPDX-License-Identifier: Apache-2.0
// What blocks of a cluster do with each other; see cluster.h and block_runner.h.
#include "tests/emulator/cluster.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <stdexcept>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/emulator/block_runner.h"

namespace reprise::emulator {
namespace {

constexpr uint32_t kChanceToLand = 8;  // one in
constexpr uint32_t kMostAtOnce = 64;   // stores that land at one switch of threads

// Clusters of which some blocks have come.
struct Table {
  struct Entry {
    ClusterKey key;
    uint32_t have_come = 0;  // bit i: block i
  };
  std::mutex mutex;
  std::vector<Entry> entries;
};

Table& AllClusters() {
  static auto* const table = new Table;
  return *table;
}

}  // namespace

bool IsLastOfCluster(const ClusterKey& key, unsigned num_blocks, unsigned block_x) {
  Table& table = AllClusters();
  std::lock_guard<std::mutex> lock(table.mutex);
  auto it = std::find_if(table.entries.begin(), table.entries.end(),
                         [&](const Table::Entry& entry) { return entry.key == key; });
  if (it == table.entries.end()) it = table.entries.insert(it, {key, 0});
  const uint32_t bit = uint32_t{1} << (block_x - key.first_x);
  const bool is_again = (it->have_come & bit) != 0;
  it->have_come |= bit;
  const bool is_last = it->have_come == (uint32_t{1} << num_blocks) - 1;
  if (is_last || is_again) table.entries.erase(it);
  if (is_again) {
    throw std::runtime_error(absl::StrCat("emulator: block (", block_x, ", ", key.y,
                                          ") came twice, before the others of its cluster"));
  }
  return is_last;
}

void BlockRunner::SyncCluster(Place place) {
  Thread& self = *current_;
  if (cluster_.num_arrived++ == 0) cluster_.place = place;
  if (place != cluster_.place) CheckSamePlace("cluster barrier", cluster_.place, place);
  self.waits = Waits::kCluster;
  self.place = place;
  if (cluster_.num_arrived == num_threads_) {
    cluster_ = {};
    MeetAll();
    for (unsigned i = 0; i < num_threads_; ++i) {
      threads_[i]->read_at = 0;
      MakeReady(i);
    }
    std::fill_n(unfinished_.begin(), num_threads_ / warp_size_, UnfinishedRead{});
  }
  GoOn();
}

uint32_t BlockRunner::PeerAddress(uint32_t address, int block, Place place) {
  if (address >> 28 == kPeerTag) FailPeerAddress(address, place);
  if (block < 0 || static_cast<unsigned>(block) >= num_blocks_ || address >> kPeerBlockShift != 0) {
    Fail([&] {
      return absl::StrCat("PeerAddress of ", address, " in block ", block, " of the cluster",
                          "; allowed: shared addresses, blocks 0 to ", num_blocks_ - 1, "\n  ",
                          NameOf(current_->id), " at ", Describe(place));
    });
  }
  return kPeerTag << 28 | static_cast<uint32_t>(block) << kPeerBlockShift | address;
}

void BlockRunner::FailPeerAddress(uint32_t address, Place place) {
  Fail([&] {
    return absl::StrCat("an address that PeerAddress returned (0x", absl::Hex(address),
                        ") taken for one of the block's own; allowed: StoreAtPeer and "
                        "BarrierArriveAtPeer\n  ",
                        NameOf(current_->id), " at ", Describe(place));
  });
}

size_t BlockRunner::PeerOffset(uint32_t at_peer, size_t bytes, const char* what, Place place) {
  const unsigned block = at_peer >> kPeerBlockShift & 0xf;
  const size_t in_block = Arena::kLeadBytes + (at_peer & ((uint32_t{1} << kPeerBlockShift) - 1));
  const bool is_peer = at_peer >> 28 == kPeerTag && block < num_blocks_;
  if (!is_peer || in_block % bytes != 0 || !arena_.HoldsInBlock(in_block, bytes)) {
    Fail([&] {
      return absl::StrCat(what, " is 0x", absl::Hex(at_peer), "; allowed: what PeerAddress ",
                          "returned, for shared memory at a multiple of ", bytes, " bytes\n  ",
                          NameOf(current_->id), " at ", Describe(place));
    });
  }
  if (num_ended_of_block_[block] == block_threads_) {
    Fail([&] {
      return absl::StrCat(what, " is in ", NameOfBlock(block), ", which has ended\n  ",
                          NameOf(current_->id), " at ", Describe(place));
    });
  }
  return block * Arena::kBytes + in_block;
}

BlockRunner::Barrier& BlockRunner::PeerBarrier(uint32_t at_peer, Place place) {
  const size_t offset = PeerOffset(at_peer, sizeof(uint64_t), "the peer's barrier", place);
  if (kChecksAccesses) {
    const Shadow::Conflict conflict =
        shadow_.Access<AccessKind::kAtomicRead>(offset, sizeof(uint64_t), place);
    if (conflict) FailConflict(AccessKind::kAtomicRead, sizeof(uint64_t), conflict, place);
  }
  return BarrierAt(offset, place);
}

void BlockRunner::StoreAtPeer(uint32_t at_peer, const void* value, uint32_t barrier_at_peer,
                              Place place) {
  PeerStore store{.value = {},
                  .offset = PeerOffset(at_peer, sizeof(store.value), "the target", place),
                  .thread = current_->id,
                  .barrier = 0,
                  .place = place};
  Barrier& barrier = PeerBarrier(barrier_at_peer, place);
  store.barrier = static_cast<uint32_t>(&barrier - barriers_.data());
  if (barrier.offset / Arena::kBytes != store.offset / Arena::kBytes) {
    Fail([&] {
      return absl::StrCat("StoreAtPeer to ", arena_.Describe(store.offset), " for the barrier at ",
                          arena_.Describe(barrier.offset), "; allowed: both in one block\n  ",
                          NameOf(current_->id), " at ", Describe(place));
    });
  }
  std::memcpy(store.value.data(), value, store.value.size());
  if (kChecksAccesses) {
    const Shadow::Conflict conflict =
        shadow_.Access<AccessKind::kWrite>(store.offset, store.value.size(), place);
    if (conflict) FailConflict(AccessKind::kWrite, store.value.size(), conflict, place);
  }
  MarkInFlight(store.offset, store.value.size(), place);
  ++barrier.num_copies;
  peer_stores_.push_back(store);
}

void BlockRunner::LandStore(size_t index) {
  const PeerStore store = peer_stores_[index];
  peer_stores_[index] = peer_stores_.back();
  peer_stores_.pop_back();
  Barrier& barrier = barriers_[store.barrier];
  Land({.offset = store.offset,
        .from = store.value.data(),
        .bytes = store.value.size(),
        .group = 0,
        .place = store.place},
       Order::CopyEpoch(store.barrier, barrier.num_complete));
  barrier.bytes -= static_cast<int64_t>(store.value.size());
  barrier.num_sent_phases = barrier.num_complete + 1;
  CompleteIfDone(barrier);
}

// Lanes store many at a time.
void BlockRunner::LandSomeStores() {
  if (random_.Below(kChanceToLand) != 0) return;
  const auto num = static_cast<uint32_t>(peer_stores_.size());
  for (uint32_t i = random_.Below(std::min(num, kMostAtOnce)) + 1; i > 0; --i)
    LandStore(random_.Below(static_cast<uint32_t>(peer_stores_.size())));
}

void BlockRunner::BarrierArriveAtPeer(uint32_t barrier_at_peer, Place place) {
  Barrier& barrier = PeerBarrier(barrier_at_peer, place);
  CheckReadsAreFinished(place);
  if (barrier.offset / Arena::kBytes != current_->block)
    barrier.num_sent_phases = barrier.num_complete + 1;
  Arrive(barrier, 0, place);
}

// Lanes may have gone on when one of them arrives for all: what counts is what they had read when
// they met.
void BlockRunner::NoteUnfinishedReads(unsigned warp) {
  unfinished_[warp] = {};
  for (unsigned i = warp * warp_size_; i < (warp + 1) * warp_size_; ++i) {
    if (const Place read_at = threads_[i]->read_at; read_at != 0)
      unfinished_[warp] = {.thread = i, .place = read_at};
  }
}

// A peer's store can overtake a read that was asked for before: seen on an H200.
void BlockRunner::CheckReadsAreFinished(Place place) {
  UnfinishedRead read = unfinished_[current_->id / warp_size_];
  if (current_->read_at != 0) read = {.thread = current_->id, .place = current_->read_at};
  if (read.place == 0) return;
  Fail([&] {
    return absl::StrCat("BarrierArriveAtPeer before reads have finished:\n  ", NameOf(read.thread),
                        ": read at ", Describe(read.place),
                        "\n  with no FinishSharedReads between it and the SyncWarp before\n  ",
                        NameOf(current_->id), ": arrival at ", Describe(place));
  });
}

// A block's memory is gone with its last thread.
void BlockRunner::EndThreadOfCluster() {
  const unsigned block = current_->block;
  if (++num_ended_of_block_[block] < block_threads_) return;
  for (const PeerStore& store : peer_stores_) {
    if (store.offset / Arena::kBytes != block) continue;
    Fail([&] {
      return absl::StrCat(NameOfBlock(block), " ended with a peer's store in flight, to ",
                          arena_.Describe(store.offset), "\n  ", NameOf(store.thread), " at ",
                          Describe(store.place));
    });
  }
}

// What blocks sent and nobody waited for, whether or not it came in time, or "".
std::string BlockRunner::FindUnreceived() const {
  for (const Barrier& barrier : barriers_) {
    if (barrier.num_waited >= barrier.num_sent_phases) continue;
    return absl::StrCat("a block ended without waiting for its peers: nobody waited for phase ",
                        barrier.num_sent_phases - 1, " of the barrier at ",
                        arena_.Describe(barrier.offset),
                        ", in which they arrive or for which they store");
  }
  return "";
}

}  // namespace reprise::emulator
