// SPDX-License-Identifier: Apache-2.0
// Blocks that sessions of one account read together: every refusal, and a random life against a
// plain model of who owns what.
#include "engine/state/shared_blocks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/state/block_ledger.h"
#include "engine/state/row_table.h"
#include "engine/state/session_table.h"
#include "tests/testing/number.h"
#include "tests/testing/status_codes.h"
#include "tests/testing/status_matchers.h"

namespace reprise::engine {
namespace {

using ::reprise::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr uint32_t kBlockSize = 4;
using ::reprise::testing::kDenied;
using ::reprise::testing::kExhausted;
using ::reprise::testing::kExists;
using ::reprise::testing::kInvalid;
using ::reprise::testing::kNotFound;
using ::reprise::testing::kPrecondition;
using ::reprise::testing::kRange;

// A pool of 39 blocks, and rows of at most 8.
class Pool {
 public:
  SessionId Open(AccountId account, const SessionLimits& limits = {}) {
    return sessions_.Open(limits, account).id;
  }
  AccountId OpenAccount(uint32_t max_blocks = 0) {
    return sessions_.OpenAccount({.max_blocks = max_blocks});
  }
  absl::StatusOr<std::vector<uint32_t>> Allocate(SessionId id, uint32_t count) {
    Session& session = **sessions_.Find(id);
    if (const absl::Status room = session.CheckBlocks(count); !room.ok()) return room;
    std::vector<uint32_t> blocks;
    if (const absl::Status taken = ledger_.Allocate(id, count, &blocks); !taken.ok()) return taken;
    session.AddBlocks(count);
    return blocks;
  }
  // The same, full of the session's tokens.
  std::vector<uint32_t> Fill(SessionId id, uint32_t count) {
    const auto blocks = Allocate(id, count);
    EXPECT_TRUE(blocks.ok()) << blocks.status();
    for (const uint32_t block : *blocks) Write(block);
    return *blocks;
  }
  // Its holder fills it.
  void Write(uint32_t block) { ledger_.NoteWritten(block, kBlockSize); }
  absl::Status Free(SessionId id, const std::vector<uint32_t>& blocks) {
    const absl::Status freed = ledger_.Free(id, blocks);
    if (freed.ok()) (*sessions_.Find(id))->RemoveBlocks(static_cast<uint32_t>(blocks.size()));
    return freed;
  }
  absl::Status Share(SessionId id, const std::string& name, const std::vector<uint32_t>& blocks) {
    return shared().Share(id, **sessions_.Find(id), name, blocks, kBlockSize);
  }
  absl::StatusOr<std::vector<uint32_t>> Adopt(SessionId id, const std::string& name) {
    const auto blocks = shared().Adopt(id, **sessions_.Find(id), name);
    if (!blocks.ok()) return blocks.status();
    return std::vector<uint32_t>(blocks->begin(), blocks->end());
  }
  absl::Status Release(SessionId id, const std::string& name,
                       std::vector<uint32_t>* freed = nullptr) {
    return shared().Release(id, **sessions_.Find(id), name, freed);
  }
  absl::Status Close(SessionId id, std::vector<uint32_t>* freed = nullptr) {
    return sessions_.Close(id, freed);
  }
  // A row of the session over these blocks.
  uint32_t AddRow(SessionId id, uint32_t row, const std::vector<uint32_t>& blocks) {
    Session& session = **sessions_.Find(id);
    const uint32_t before = session.rows.count;
    const uint32_t slot = rows_.Add(id, row, session.rows);
    session.NoteRows(before);
    rows_.state(slot).table_length = static_cast<uint32_t>(blocks.size());
    for (size_t i = 0; i < blocks.size(); ++i) {
      rows_.table(slot)[i] = blocks[i];
      ledger_.AddRow(blocks[i]);
    }
    return slot;
  }
  void DropRow(SessionId id, uint32_t slot) {
    Session& session = **sessions_.Find(id);
    const uint32_t before = session.rows.count;
    for (const uint32_t block : rows_.table(slot).first(rows_.state(slot).table_length))
      ledger_.RemoveRow(block);
    rows_.Remove(slot, session.rows);
    session.NoteRows(before);
  }
  SessionUse Use(SessionId id) { return *sessions_.Use(id); }
  const BlockLedger& ledger() const { return ledger_; }
  SharedBlocks& shared() { return sessions_.shared_blocks(); }

 private:
  RowTable rows_{16, 8};
  BlockLedger ledger_{40};
  SessionTable sessions_{rows_, ledger_, 1};
};

TEST(SharedBlocks, AreReadByAllSessionsThatAdoptThemAndWrittenByNone) {
  Pool pool;
  const AccountId account = pool.OpenAccount();
  const SessionId one = pool.Open(account), two = pool.Open(account), three = pool.Open(account);
  const std::vector<uint32_t> blocks = pool.Fill(one, 3);
  ASSERT_OK(pool.Share(one, "system", {blocks[1], blocks[0]}));
  const auto adopted = pool.Adopt(two, "system");
  ASSERT_TRUE(adopted.ok()) << adopted.status();
  EXPECT_THAT(*adopted, ElementsAre(blocks[1], blocks[0]));
  for (const SessionId user : {one, two}) {
    EXPECT_OK(pool.ledger().CheckHeld(user, blocks[0]));
    EXPECT_THAT(pool.ledger().CheckOwned(user, blocks[0]), StatusIs(kPrecondition, "is shared"));
  }
  EXPECT_THAT(pool.ledger().CheckHeld(three, blocks[0]), StatusIs(kDenied, "not held"));
  EXPECT_OK(pool.ledger().CheckOwned(one, blocks[2]));
  EXPECT_THAT(pool.Free(one, {blocks[2], blocks[0]}), StatusIs(kPrecondition, "is shared"));
  EXPECT_THAT(pool.Free(two, {blocks[0]}), StatusIs(kPrecondition, "is shared"));
}

TEST(SharedBlocks, AreFreeWhenTheLastUserGoes) {
  Pool pool;
  const AccountId account = pool.OpenAccount();
  const SessionId one = pool.Open(account), two = pool.Open(account), three = pool.Open(account);
  const uint32_t free_before = pool.ledger().num_free();
  ASSERT_OK(pool.Share(one, "p", pool.Fill(one, 2)));
  ASSERT_TRUE(pool.Adopt(two, "p").ok());
  ASSERT_TRUE(pool.Adopt(three, "p").ok());
  ASSERT_TRUE(pool.Adopt(three, "p").ok());  // twice is once
  ASSERT_OK(pool.Close(one));
  EXPECT_EQ(pool.ledger().num_free(), free_before - 2);
  std::vector<uint32_t> freed;
  ASSERT_OK(pool.Release(three, "p", &freed));
  EXPECT_THAT(freed, IsEmpty());
  EXPECT_THAT(pool.Release(three, "p"), StatusIs(kNotFound, "can use no blocks"));
  ASSERT_OK(pool.Close(two, &freed));
  EXPECT_THAT(freed, UnorderedElementsAre(1, 2));
  EXPECT_EQ(pool.ledger().num_free(), free_before);
  EXPECT_EQ(pool.shared().num_names(), 0u);
  // Nobody reads what was in them, not even of the same account.
  const auto again = pool.Allocate(three, 2);
  ASSERT_TRUE(again.ok());
  for (const uint32_t block : *again) {
    EXPECT_TRUE(pool.ledger().HasOthersTokens(block));
    EXPECT_EQ(pool.ledger().num_written(block), 0u);
  }
}

TEST(SharedBlocks, OfAnotherAccountAreAsIfThereWereNone) {
  Pool pool;
  const AccountId mine = pool.OpenAccount(), theirs = pool.OpenAccount();
  const SessionId one = pool.Open(mine), other = pool.Open(theirs);
  const absl::Status before = pool.Adopt(other, "p").status();
  ASSERT_OK(pool.Share(one, "p", pool.Fill(one, 1)));
  EXPECT_THAT(pool.Adopt(other, "p").status(), StatusIs(kNotFound, "can use no blocks"));
  EXPECT_EQ(pool.Adopt(other, "p").status(), before);
  EXPECT_EQ(pool.Release(other, "p"), before);
  // The name is theirs to use.
  EXPECT_OK(pool.Share(other, "p", pool.Fill(other, 2)));
  EXPECT_THAT(*pool.Adopt(one, "p"), ElementsAre(1));
  EXPECT_THAT(*pool.Adopt(other, "p"), ElementsAre(2, 3));
}

TEST(SharedBlocks, CountOnceForAnAccountAndForEachSessionThatUsesThem) {
  Pool pool;
  const AccountId account = pool.OpenAccount(/*max_blocks=*/6);
  const SessionId one = pool.Open(account);
  const SessionId two = pool.Open(account, {.max_blocks = 5});
  ASSERT_OK(pool.Share(one, "p", pool.Fill(one, 4)));
  EXPECT_EQ(pool.Use(one).num_blocks, 0u);
  EXPECT_EQ(pool.Use(one).num_shared, 4u);
  ASSERT_TRUE(pool.Allocate(two, 2).ok());
  EXPECT_THAT(pool.Adopt(two, "p").status(),
              StatusIs(kExhausted, "holds 2 of the 5 that a session may have"));
  EXPECT_THAT(pool.Allocate(one, 1).status(), StatusIs(kExhausted, "hold 6 of the 6"));
  ASSERT_OK(pool.Free(two, {5}));
  ASSERT_TRUE(pool.Adopt(two, "p").ok());
  EXPECT_EQ(pool.Use(two).num_shared, 4u);
  EXPECT_THAT(pool.Allocate(two, 1).status(), StatusIs(kExhausted, "holds 5 of the 5"));
  EXPECT_TRUE(pool.Allocate(one, 1).ok());
  ASSERT_OK(pool.Close(one));
  EXPECT_THAT(pool.Allocate(pool.Open(account), 2).status(), StatusIs(kExhausted, "hold 5 of"));
  ASSERT_OK(pool.Close(two));
  EXPECT_TRUE(pool.Allocate(pool.Open(account), 6).ok());
}

TEST(SharedBlocks, StayWhileARowOfTheSessionHasThem) {
  Pool pool;
  const AccountId account = pool.OpenAccount();
  const SessionId one = pool.Open(account), two = pool.Open(account);
  ASSERT_OK(pool.Share(one, "p", pool.Fill(one, 2)));
  ASSERT_TRUE(pool.Adopt(two, "p").ok());
  const uint32_t slot = pool.AddRow(two, 7, {1, 2});
  EXPECT_THAT(pool.Release(two, "p"), StatusIs(kPrecondition, "drop it first"));
  EXPECT_OK(pool.Release(one, "p"));
  pool.DropRow(two, slot);
  EXPECT_OK(pool.Release(two, "p"));
  EXPECT_EQ(pool.ledger().num_free(), 39u);
}

TEST(SharedBlocks, RefusedSharingChangesNothing) {
  Pool pool;
  const AccountId account = pool.OpenAccount();
  const SessionId one = pool.Open(account), two = pool.Open(account);
  const std::vector<uint32_t> blocks = pool.Fill(one, 9);
  const std::vector<uint32_t> partly = *pool.Allocate(one, 1);
  const std::vector<uint32_t> others = pool.Fill(two, 1);
  ASSERT_OK(pool.Share(one, "taken", {blocks[8]}));
  const auto refused = [&](const std::string& name, const std::vector<uint32_t>& named,
                           absl::StatusCode code, const char* says) {
    EXPECT_THAT(pool.Share(one, name, named), StatusIs(code, says));
    EXPECT_OK(pool.ledger().CheckOwned(one, blocks[0]));
    EXPECT_EQ(pool.Use(one).num_blocks, 9u);
    EXPECT_EQ(pool.shared().num_names(), 1u);
  };
  refused("", {blocks[0]}, kInvalid, "name: got 0 bytes, allowed 1 to 64");
  refused(std::string(65, 'a'), {blocks[0]}, kInvalid, "name: got 65 bytes");
  refused("p", {}, kRange, "blocks: got 0, allowed 1 to 8");
  refused("p", blocks, kRange, "blocks: got 9, allowed 1 to 8");
  refused("p", {blocks[0], 99}, kRange, "block 99 does not exist");
  refused("p", {blocks[0], others[0]}, kDenied, "another session");
  refused("p", {blocks[0], partly[0]}, kPrecondition, "written 0 of its 4 tokens");
  refused("p", {blocks[0], blocks[8]}, kPrecondition, "block 9 is shared");
  refused("p", {blocks[0], blocks[1], blocks[0]}, kInvalid, "block 1 is named twice");
  refused("taken", {blocks[0]}, kExists, "under which blocks are shared already");
}

// ---- a random life ----

// Who owns what, as plainly as it can be said.
struct Model {
  struct Shared {
    std::vector<uint32_t> blocks;
    std::set<SessionId> users;
  };
  std::map<SessionId, AccountId> sessions;
  std::map<uint32_t, SessionId> owned;
  std::set<uint32_t> full;
  std::map<std::pair<AccountId, std::string>, Shared> shared;

  std::vector<uint32_t> OwnedBy(SessionId id) const {
    std::vector<uint32_t> blocks;
    for (const auto& [block, owner] : owned)
      if (owner == id) blocks.push_back(block);
    return blocks;
  }
  bool MayRead(SessionId id, uint32_t block) const {
    const auto own = owned.find(block);
    if (own != owned.end() && own->second == id) return true;
    for (const auto& [name, one] : shared) {
      if (one.users.contains(id) && std::ranges::find(one.blocks, block) != one.blocks.end())
        return true;
    }
    return false;
  }
  size_t NumShared(SessionId id) const {
    size_t count = 0;
    for (const auto& [name, one] : shared) count += one.users.contains(id) ? one.blocks.size() : 0;
    return count;
  }
  size_t NumUsed() const {
    size_t count = owned.size();
    for (const auto& [name, one] : shared) count += one.blocks.size();
    return count;
  }
  void Leave(std::pair<AccountId, std::string> name, SessionId id) {
    shared[name].users.erase(id);
    if (shared[name].users.empty()) shared.erase(name);
  }
};

class RandomLife {
 public:
  explicit RandomLife(uint32_t seed) : random_(seed) {
    for (AccountId& account : accounts_) account = pool_.OpenAccount();
  }

  void Act() {
    if (model_.sessions.empty() || (model_.sessions.size() < 6 && random_.Below(12) == 0)) {
      const AccountId account = accounts_[random_.Below(2)];
      model_.sessions[pool_.Open(account)] = account;
      return;
    }
    const SessionId id = AnySession();
    switch (random_.Below(6)) {
      case 0:
        return Allocate(id);
      case 1:
        return Free(id);
      case 2:
        return Share(id);
      case 3:
        return Adopt(id);
      case 4:
        return Release(id);
      default:
        if (random_.Below(5) == 0) Evict(id);
    }
  }

  void Check() {
    ASSERT_EQ(pool_.ledger().num_free(), 39 - model_.NumUsed());
    ASSERT_EQ(pool_.shared().num_names(), model_.shared.size());
    for (const auto& [id, account] : model_.sessions) {
      ASSERT_EQ(pool_.Use(id).num_blocks, model_.OwnedBy(id).size());
      ASSERT_EQ(pool_.Use(id).num_shared, model_.NumShared(id));
      for (uint32_t block = 1; block < 40; ++block) {
        ASSERT_EQ(pool_.ledger().CheckHeld(id, block).ok(), model_.MayRead(id, block))
            << "session " << id << ", block " << block;
        const auto own = model_.owned.find(block);
        ASSERT_EQ(pool_.ledger().CheckOwned(id, block).ok(),
                  own != model_.owned.end() && own->second == id);
      }
    }
  }
  // All that is left goes.
  void End() {
    while (!model_.sessions.empty()) Evict(model_.sessions.begin()->first);
    EXPECT_EQ(pool_.ledger().num_free(), 39u);
    EXPECT_EQ(pool_.shared().num_names(), 0u);
  }

 private:
  SessionId AnySession() {
    return std::next(model_.sessions.begin(),
                     random_.Below(static_cast<uint32_t>(model_.sessions.size())))
        ->first;
  }
  std::string AnyName() { return absl::StrCat("n", random_.Below(4)); }

  void Allocate(SessionId id) {
    const uint32_t count = 1 + random_.Below(6);
    const auto blocks = pool_.Allocate(id, count);
    ASSERT_EQ(blocks.ok(), count <= 39 - model_.NumUsed());
    if (!blocks.ok()) return;
    const bool full = random_.Below(4) != 0;
    for (const uint32_t block : *blocks) {
      // Whoever wrote there last, its tokens are not the new owner's to read.
      const auto writer = writer_.find(block);
      ASSERT_EQ(pool_.ledger().HasOthersTokens(block),
                writer != writer_.end() && writer->second != id);
      ASSERT_EQ(pool_.ledger().num_written(block), 0u);
      model_.owned[block] = id;
      model_.full.erase(block);
      if (!full) continue;
      pool_.Write(block);
      writer_[block] = id;
      model_.full.insert(block);
    }
  }
  void Free(SessionId id) {
    std::vector<uint32_t> chosen;
    for (uint32_t block = 1; block < 40; ++block)
      if (model_.MayRead(id, block) && random_.Below(3) == 0) chosen.push_back(block);
    const bool good =
        std::ranges::all_of(chosen, [&](uint32_t block) { return model_.owned.contains(block); });
    ASSERT_EQ(pool_.Free(id, chosen).ok(), good);
    if (!good) return;
    for (const uint32_t block : chosen) model_.owned.erase(block);
  }
  void Share(SessionId id) {
    std::vector<uint32_t> blocks = model_.OwnedBy(id);
    blocks.resize(std::min<size_t>(blocks.size(), random_.Below(4)));
    const std::pair name(model_.sessions[id], AnyName());
    const bool full =
        std::ranges::all_of(blocks, [&](uint32_t b) { return model_.full.contains(b); });
    const bool good = !blocks.empty() && full && !model_.shared.contains(name);
    ASSERT_EQ(pool_.Share(id, name.second, blocks).ok(), good);
    if (!good) return;
    for (const uint32_t block : blocks) model_.owned.erase(block);
    model_.shared[name] = {.blocks = blocks, .users = {id}};
  }
  void Adopt(SessionId id) {
    const std::pair name(model_.sessions[id], AnyName());
    const auto blocks = pool_.Adopt(id, name.second);
    ASSERT_EQ(blocks.ok(), model_.shared.contains(name));
    if (!blocks.ok()) return;
    ASSERT_EQ(*blocks, model_.shared[name].blocks);
    model_.shared[name].users.insert(id);
  }
  void Release(SessionId id) {
    const std::pair name(model_.sessions[id], AnyName());
    const auto found = model_.shared.find(name);
    const bool good = found != model_.shared.end() && found->second.users.contains(id);
    ASSERT_EQ(pool_.Release(id, name.second).ok(), good);
    if (good) model_.Leave(name, id);
  }
  void Evict(SessionId id) {
    ASSERT_OK(pool_.Close(id));
    std::erase_if(model_.owned, [id](const auto& one) { return one.second == id; });
    std::vector<std::pair<AccountId, std::string>> names;
    for (const auto& [name, one] : model_.shared)
      if (one.users.contains(id)) names.push_back(name);
    for (const auto& name : names) model_.Leave(name, id);
    model_.sessions.erase(id);
  }

  testing::Random random_;
  Pool pool_;
  Model model_;
  std::map<uint32_t, SessionId> writer_;  // by block: who wrote there last
  AccountId accounts_[2] = {};
};

TEST(SharedBlocks, AgreeWithAPlainModelOverARandomLife) {
  for (uint32_t seed = 1; seed <= 4; ++seed) {
    SCOPED_TRACE(seed);
    RandomLife life(seed);
    for (int i = 0; i < 4000; ++i) {
      life.Act();
      life.Check();
      if (::testing::Test::HasFatalFailure()) return;
    }
    life.End();
  }
}

}  // namespace
}  // namespace reprise::engine
