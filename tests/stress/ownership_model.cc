// SPDX-License-Identifier: Apache-2.0
#include "tests/stress/ownership_model.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <new>
#include <thread>

#include "absl/strings/str_cat.h"
#include "runtime/check.h"

namespace reprise::stress {
namespace {

constexpr uint32_t kMaxOffers = 32;
constexpr size_t kTokenBytes = 16;

struct Block {
  uint64_t users;  // bits of slots
  bool shared;
};

struct Slot {
  OwnershipModel::Holding holding;
  bool certain;
  uint64_t doubts;
  std::array<char, kTokenBytes> token;
  bool parked;
};

// Nobody is killed or frozen while holding it, since that is done under it. It is no futex: a
// frozen process that waits for one takes the wake-up that the others wait for.
class Mutex {
 public:
  void lock() {
    while (held_.test_and_set(std::memory_order_acquire))
      std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  void unlock() { held_.clear(std::memory_order_release); }

 private:
  std::atomic_flag held_;
};

class Lock {
 public:
  explicit Lock(Mutex& mutex) : mutex_(mutex) { mutex_.lock(); }
  ~Lock() { mutex_.unlock(); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  Mutex& mutex_;
};

uint64_t BitOf(uint32_t slot) { return uint64_t{1} << slot; }

}  // namespace

struct OwnershipModel::Shared {
  Mutex mutex;
  uint32_t num_slots = 0;
  std::array<Block, kMaxModelBlocks> blocks = {};
  std::array<Slot, kMaxSlots> slots = {};
  std::array<Text, kNumTexts> texts = {};
  std::array<Offer, kMaxOffers> offers = {};
  uint32_t num_offers = 0;  // that were ever made
  std::array<std::atomic<uint64_t>, static_cast<size_t>(Count::kEnd)> counts = {};
  std::atomic<bool> paused = false;
  std::atomic<bool> stopped = false;
  std::array<char, 512> failure = {};

  // Of users of a block other than the slot, those that are certain.
  uint64_t CertainOthers(const Block& block, uint32_t slot) const {
    uint64_t others = block.users & ~BitOf(slot), certain = 0;
    for (; others != 0; others &= others - 1) {
      const auto other = static_cast<uint32_t>(std::countr_zero(others));
      if (slots[other].certain) certain |= BitOf(other);
    }
    return certain;
  }
};

std::unique_ptr<OwnershipModel> OwnershipModel::Make(const std::string& path, uint32_t num_slots) {
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  REPRISE_CHECK(file >= 0 && ftruncate(file, sizeof(Shared)) == 0);
  close(file);
  std::unique_ptr<OwnershipModel> model = Map(path);
  new (model->shared_) Shared();
  model->shared_->num_slots = num_slots;
  return model;
}

std::unique_ptr<OwnershipModel> OwnershipModel::Map(const std::string& path) {
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  REPRISE_CHECK(file >= 0);
  void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  REPRISE_CHECK(memory != MAP_FAILED);
  close(file);
  return std::unique_ptr<OwnershipModel>(new OwnershipModel(static_cast<Shared*>(memory)));
}

std::array<Text, kNumTexts>& OwnershipModel::texts() { return shared_->texts; }

// ---- a client's session ----

uint64_t OwnershipModel::Begin(uint32_t slot, uint32_t identity, std::string_view token,
                               uint64_t doubts) {
  End(slot);
  const Lock lock(shared_->mutex);
  Slot& own = shared_->slots[slot];
  own.holding = {.has_session = true,
                 .life = own.holding.life + 1,
                 .identity = identity,
                 .blocks = 0,
                 .shared = 0,
                 .swapped = 0,
                 .exported = 0,
                 .rows = 0};
  own.certain = own.doubts == doubts;
  token.copy(own.token.data(), own.token.size());
  return own.holding.life;
}

void OwnershipModel::End(uint32_t slot) {
  const Lock lock(shared_->mutex);
  Slot& own = shared_->slots[slot];
  own.certain = false;
  own.holding.has_session = false;
  for (Block& block : shared_->blocks) block.users &= ~BitOf(slot);
}

void OwnershipModel::Harm(uint32_t slot, const std::function<void()>& act) {
  const Lock lock(shared_->mutex);
  shared_->slots[slot].certain = false;
  ++shared_->slots[slot].doubts;
  act();
}

uint64_t OwnershipModel::NumDoubts(uint32_t slot) {
  const Lock lock(shared_->mutex);
  return shared_->slots[slot].doubts;
}

uint64_t OwnershipModel::DoubtsOf(uint32_t slot) {
  const Lock lock(shared_->mutex);
  const Slot& own = shared_->slots[slot];
  return own.certain ? 0 : own.doubts;
}

bool OwnershipModel::Settle(uint32_t slot, uint64_t doubts, std::span<const uint32_t> held) {
  const Lock lock(shared_->mutex);
  Slot& own = shared_->slots[slot];
  if (own.doubts != doubts) return false;
  own.certain = true;
  for (const uint32_t block : held) {
    if ((shared_->blocks[block].users & BitOf(slot)) != 0) continue;
    FailLocked(absl::StrCat("block ", block, " of session ", slot, ".", own.holding.life,
                            ", which was open all the time, was given to another"));
  }
  return true;
}

std::string OwnershipModel::TokenOfAnother(uint32_t slot, uint32_t identity, uint64_t random) {
  const Lock lock(shared_->mutex);
  for (uint32_t i = 0; i < shared_->num_slots; ++i) {
    const auto other = static_cast<uint32_t>((random + i) % shared_->num_slots);
    const Slot& victim = shared_->slots[other];
    if (other == slot || !victim.holding.has_session || victim.holding.identity == identity)
      continue;
    return {victim.token.data(), victim.token.size()};
  }
  return std::string(kTokenBytes, static_cast<char>(random));
}

// ---- blocks ----

bool OwnershipModel::Claim(uint32_t slot, std::span<const uint32_t> blocks) {
  const Lock lock(shared_->mutex);
  Slot& own = shared_->slots[slot];
  if (!own.certain) return false;
  for (const uint32_t id : blocks) {
    if (id == 0 || id >= kMaxModelBlocks) {
      FailLocked(absl::StrCat("block ", id, " was given to session ", slot, ".", own.holding.life));
      continue;
    }
    Block& block = shared_->blocks[id];
    const uint64_t others = shared_->CertainOthers(block, slot);
    if (others != 0 || (block.users & BitOf(slot)) != 0) {
      FailLocked(absl::StrCat("block ", id, " was given to session ", slot, ".", own.holding.life,
                              " and belongs to slot ",
                              others == 0 ? slot : std::countr_zero(others)));
    }
    block = {.users = BitOf(slot), .shared = false};
  }
  own.holding.blocks += static_cast<uint32_t>(blocks.size());
  return true;
}

void OwnershipModel::LetGo(uint32_t slot, std::span<const uint32_t> blocks) {
  const Lock lock(shared_->mutex);
  Slot& own = shared_->slots[slot];
  for (const uint32_t id : blocks) {
    Block& block = shared_->blocks[id];
    if (own.certain && (block.users & BitOf(slot)) == 0) {
      FailLocked(absl::StrCat("block ", id, " of session ", slot, ".", own.holding.life,
                              " was given to another"));
    }
    block.users &= ~BitOf(slot);
    --(block.shared ? own.holding.shared : own.holding.blocks);
  }
}

void OwnershipModel::Share(uint32_t slot, std::span<const uint32_t> blocks) {
  const Lock lock(shared_->mutex);
  Slot& own = shared_->slots[slot];
  for (const uint32_t id : blocks) {
    if ((shared_->blocks[id].users & BitOf(slot)) != 0) shared_->blocks[id].shared = true;
    --own.holding.blocks;
    ++own.holding.shared;
  }
}

bool OwnershipModel::Adopt(uint32_t slot, std::span<const uint32_t> blocks) {
  const Lock lock(shared_->mutex);
  Slot& own = shared_->slots[slot];
  if (!own.certain) return false;
  for (const uint32_t id : blocks) {
    Block& block = shared_->blocks[id];
    if (!block.shared && shared_->CertainOthers(block, slot) != 0) {
      FailLocked(absl::StrCat("block ", id, " was shared with session ", slot, ".",
                              own.holding.life, " and belongs to another alone"));
    }
    block.users |= BitOf(slot);
    block.shared = true;
  }
  own.holding.shared += static_cast<uint32_t>(blocks.size());
  return true;
}

void OwnershipModel::SetSwapped(uint32_t slot, uint32_t count) {
  const Lock lock(shared_->mutex);
  shared_->slots[slot].holding.swapped = count;
}

void OwnershipModel::SetExported(uint32_t slot, uint32_t count) {
  const Lock lock(shared_->mutex);
  shared_->slots[slot].holding.exported = count;
}

void OwnershipModel::SetRows(uint32_t slot, uint32_t count) {
  const Lock lock(shared_->mutex);
  shared_->slots[slot].holding.rows = count;
}

void OwnershipModel::Post(const Offer& offer) {
  const Lock lock(shared_->mutex);
  shared_->offers[shared_->num_offers++ % kMaxOffers] = offer;
}

bool OwnershipModel::TakeOffer(bool is_copy, uint32_t identity, uint64_t random, Offer* offer) {
  const Lock lock(shared_->mutex);
  const uint32_t count = std::min(shared_->num_offers, kMaxOffers);
  bool found = false;
  uint64_t left = random % 3;
  for (uint32_t i = 1; i <= count; ++i) {
    const Offer& made = shared_->offers[(shared_->num_offers - i) % kMaxOffers];
    if (made.is_copy != is_copy) continue;
    if (identity != kNumIdentities && made.identity != identity) continue;
    *offer = made;
    found = true;
    if (left-- == 0) break;
  }
  return found;
}

// ---- audits ----

void OwnershipModel::Pause(bool pause) { shared_->paused = pause; }
void OwnershipModel::Stop() { shared_->stopped = true; }
bool OwnershipModel::paused() { return shared_->paused; }
bool OwnershipModel::stopped() { return shared_->stopped; }

void OwnershipModel::Park(uint32_t slot, bool parked) {
  const Lock lock(shared_->mutex);
  shared_->slots[slot].parked = parked;
}

bool OwnershipModel::IsParked(uint32_t slot) {
  const Lock lock(shared_->mutex);
  return shared_->slots[slot].parked;
}

OwnershipModel::Holding OwnershipModel::HoldingOf(uint32_t slot) {
  const Lock lock(shared_->mutex);
  return shared_->slots[slot].holding;
}

uint32_t OwnershipModel::NumBlocks() {
  const Lock lock(shared_->mutex);
  return static_cast<uint32_t>(
      std::ranges::count_if(shared_->blocks, [](const Block& block) { return block.users != 0; }));
}

void OwnershipModel::Add(Count count, uint64_t amount) {
  shared_->counts[static_cast<size_t>(count)] += amount;
}
uint64_t OwnershipModel::Get(Count count) { return shared_->counts[static_cast<size_t>(count)]; }

void OwnershipModel::Fail(std::string_view what) {
  const Lock lock(shared_->mutex);
  FailLocked(what);
}

void OwnershipModel::FailLocked(std::string_view what) {
  if (shared_->failure[0] == '\0') what.copy(shared_->failure.data(), shared_->failure.size() - 1);
}

std::string OwnershipModel::Failure() {
  const Lock lock(shared_->mutex);
  return shared_->failure.data();
}

}  // namespace reprise::stress
