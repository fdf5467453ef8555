// SPDX-License-Identifier: Apache-2.0
// Who holds which block: against a plain model, and every refusal.
#include "engine/state/block_ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "tests/testing/number.h"
#include "tests/testing/status_codes.h"
#include "tests/testing/status_matchers.h"

namespace reprise::engine {
namespace {

using ::reprise::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

using ::reprise::testing::kDenied;
using ::reprise::testing::kExhausted;
using ::reprise::testing::kInvalid;
using ::reprise::testing::kPrecondition;
using ::reprise::testing::kRange;

std::vector<uint32_t> Allocate(BlockLedger& ledger, uint64_t holder, uint32_t count) {
  std::vector<uint32_t> blocks;
  EXPECT_OK(ledger.Allocate(holder, count, &blocks));
  return blocks;
}

// What a refusal must not change.
struct Holdings {
  uint32_t num_free = 0;
  std::vector<bool> held_by_one = {}, held_by_two = {};
  std::vector<uint32_t> next = {};  // that the next Allocate calls would hand out, in order
  bool operator==(const Holdings&) const = default;
};

Holdings HoldingsOf(const BlockLedger& ledger) {
  Holdings h{.num_free = ledger.num_free()};
  for (uint32_t block = 1; block < ledger.num_blocks(); ++block) {
    h.held_by_one.push_back(ledger.CheckHeld(1, block).ok());
    h.held_by_two.push_back(ledger.CheckHeld(2, block).ok());
  }
  BlockLedger copy = ledger;
  if (h.num_free > 0) h.next = Allocate(copy, 3, h.num_free);
  return h;
}

TEST(BlockLedger, ScratchBlockIsNeverHandedOut) {
  BlockLedger ledger(5);
  EXPECT_EQ(ledger.num_blocks(), 5u);
  EXPECT_EQ(ledger.num_free(), 4u);
  EXPECT_THAT(Allocate(ledger, 1, 4), ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(ledger.num_free(), 0u);
  EXPECT_THAT(ledger.CheckHeld(1, 0), StatusIs(kRange, "block 0 does not exist; allowed: 1 to 4"));
  EXPECT_THAT(ledger.CheckHeld(0, 0), StatusIs(kRange, "block 0"));
}

TEST(BlockLedger, AllocateAppendsAndMostRecentlyFreedComesFirst) {
  BlockLedger ledger(9);
  std::vector<uint32_t> blocks = {77};
  ASSERT_OK(ledger.Allocate(1, 2, &blocks));
  EXPECT_THAT(blocks, ElementsAre(77, 1, 2));
  ASSERT_OK(ledger.Allocate(1, 3, &blocks));
  EXPECT_THAT(blocks, ElementsAre(77, 1, 2, 3, 4, 5));
  const std::vector<uint32_t> freed = {2, 4};
  ASSERT_OK(ledger.Free(1, freed));
  EXPECT_THAT(Allocate(ledger, 2, 3), ElementsAre(4, 2, 6));
}

TEST(BlockLedger, AllocateIsAllOrNothing) {
  BlockLedger ledger(6);
  Allocate(ledger, 1, 2);
  const Holdings before = HoldingsOf(ledger);
  std::vector<uint32_t> out = {9};
  EXPECT_THAT(ledger.Allocate(2, 4, &out),
              StatusIs(kExhausted, "asked for 4 KV blocks; 3 of 5 are free"));
  EXPECT_THAT(ledger.Allocate(2, 0xffffffffu, &out), StatusIs(kExhausted, "4294967295"));
  EXPECT_THAT(ledger.Allocate(2, 0, &out), StatusIs(kInvalid, "0 blocks; allowed: at least 1"));
  EXPECT_THAT(out, ElementsAre(9));
  EXPECT_EQ(HoldingsOf(ledger), before);
}

TEST(BlockLedger, LedgerOfTheScratchBlockAloneHasNothingToGive) {
  BlockLedger ledger(1);
  std::vector<uint32_t> out;
  EXPECT_THAT(ledger.Allocate(1, 1, &out), StatusIs(kExhausted, "0 of 0 are free"));
}

TEST(BlockLedger, HeldBlocksAreTheHoldersAlone) {
  BlockLedger ledger(6);
  Allocate(ledger, 1, 2);
  Allocate(ledger, 2, 1);
  EXPECT_OK(ledger.CheckHeld(1, 2));
  EXPECT_THAT(ledger.CheckHeld(2, 2), StatusIs(kDenied, "block 2"));
  EXPECT_THAT(ledger.CheckHeld(1, 3), StatusIs(kDenied, "another session"));
  EXPECT_THAT(ledger.CheckHeld(1, 4), StatusIs(kDenied, "it is free"));
  EXPECT_THAT(ledger.CheckHeld(1, 6), StatusIs(kRange, "block 6"));
  EXPECT_THAT(ledger.CheckHeld(1, 0xffffffffu), StatusIs(kRange, "block 4294967295"));
}

TEST(BlockLedger, RefusedFreeChangesNothing) {
  BlockLedger ledger(12);
  Allocate(ledger, 1, 6);  // 1 .. 6
  Allocate(ledger, 2, 2);  // 7, 8
  ledger.AddRow(5);
  const Holdings before = HoldingsOf(ledger);
  const auto free = [&](std::vector<uint32_t> blocks) { return ledger.Free(1, blocks); };
  EXPECT_THAT(free({1, 2, 7}), StatusIs(kDenied, "block 7"));
  EXPECT_THAT(free({1, 2, 9}), StatusIs(kDenied, "block 9"));
  EXPECT_THAT(free({1, 0}), StatusIs(kRange, "block 0"));
  EXPECT_THAT(free({1, 2, 12}), StatusIs(kRange, "block 12"));
  EXPECT_THAT(free({12, 1}), StatusIs(kRange, "block 12"));
  EXPECT_THAT(free({3, 1, 2, 3}), StatusIs(kInvalid, "block 3 is named twice"));
  EXPECT_THAT(free({3, 3}), StatusIs(kInvalid, "block 3 is named twice"));
  EXPECT_THAT(free({9, 9}), StatusIs(kDenied, "block 9"));
  EXPECT_THAT(free({4, 5, 6}), StatusIs(kPrecondition, "block 5"));
  EXPECT_EQ(HoldingsOf(ledger), before);
}

TEST(BlockLedger, FreedBlockCannotBeFreedAgain) {
  BlockLedger ledger(4);
  const std::vector<uint32_t> blocks = Allocate(ledger, 1, 2);
  ASSERT_OK(ledger.Free(1, blocks));
  EXPECT_EQ(ledger.num_free(), 3u);
  EXPECT_THAT(ledger.Free(1, blocks), StatusIs(kDenied, "it is free"));
  EXPECT_EQ(ledger.num_free(), 3u);
  EXPECT_OK(ledger.Free(1, {}));
}

TEST(BlockLedger, BlockCanBeFreedOnceTheLastRowLetsGo) {
  BlockLedger ledger(4);
  const std::vector<uint32_t> blocks = Allocate(ledger, 1, 1);
  ledger.AddRow(1);
  ledger.AddRow(1);
  EXPECT_EQ(ledger.rows_naming(1), 2u);
  ledger.RemoveRow(1);
  EXPECT_THAT(ledger.Free(1, blocks), StatusIs(kPrecondition, "1 resident row"));
  ledger.RemoveRow(1);
  EXPECT_OK(ledger.Free(1, blocks));
}

TEST(BlockLedger, FreeAllTakesTheHoldersBlocksAlone) {
  BlockLedger ledger(8);
  Allocate(ledger, 1, 2);
  Allocate(ledger, 2, 3);
  Allocate(ledger, 1, 1);
  std::vector<uint32_t> freed;
  ledger.FreeAll(1, &freed);
  EXPECT_THAT(freed, UnorderedElementsAre(1, 2, 6));
  EXPECT_EQ(ledger.num_free(), 4u);
  EXPECT_OK(ledger.CheckHeld(2, 4));
  freed.clear();
  ledger.FreeAll(1, &freed);
  EXPECT_THAT(freed, IsEmpty());
}

TEST(BlockLedger, AgreesWithAPlainModelOverARandomLife) {
  constexpr uint32_t kBlocks = 40;
  BlockLedger ledger(kBlocks);
  std::map<uint64_t, std::set<uint32_t>> held;
  testing::Random random(7);
  for (int i = 0; i < 3000; ++i) {
    const uint64_t holder = 1 + random.Below(3);
    size_t num_held = 0;
    for (const auto& [unused, blocks] : held) num_held += blocks.size();
    ASSERT_EQ(ledger.num_free(), kBlocks - 1 - num_held);
    if (random.Below(2) == 0) {
      const uint32_t count = 1 + random.Below(12);
      std::vector<uint32_t> blocks;
      const absl::Status status = ledger.Allocate(holder, count, &blocks);
      ASSERT_EQ(status.ok(), count <= kBlocks - 1 - num_held) << status.ToString();
      for (const uint32_t block : blocks) {
        ASSERT_TRUE(block >= 1 && block < kBlocks);
        for (const auto& [unused, others] : held) ASSERT_FALSE(others.contains(block));
        held[holder].insert(block);
      }
      continue;
    }
    std::set<uint32_t> chosen;
    for (const uint32_t block : held[holder])
      if (random.Below(3) == 0) chosen.insert(block);
    std::vector<uint32_t> blocks(chosen.begin(), chosen.end());
    const bool spoil = random.Below(4) == 0;
    if (spoil) blocks.push_back(random.Below(kBlocks + 2));
    const bool good =
        !spoil || (held[holder].contains(blocks.back()) && !chosen.contains(blocks.back()));
    ASSERT_EQ(ledger.Free(holder, blocks).ok(), good);
    if (good)
      for (const uint32_t block : blocks) held[holder].erase(block);
  }
}

// ---- whose tokens are in a block ----

TEST(BlockLedgerTokens, CountFromNothingWheneverABlockIsGiven) {
  BlockLedger ledger(3);
  const uint32_t block = Allocate(ledger, 1, 1)[0];
  EXPECT_EQ(ledger.num_written(block), 0u);
  ledger.NoteWritten(block, 3);
  ledger.NoteWritten(block, 2);
  EXPECT_EQ(ledger.num_written(block), 3u);
  EXPECT_OK(ledger.Free(1, std::vector<uint32_t>{block}));
  EXPECT_EQ(Allocate(ledger, 1, 1)[0], block);
  EXPECT_EQ(ledger.num_written(block), 0u);
}

TEST(BlockLedgerTokens, AreOthersUntilTheyAreCleared) {
  BlockLedger ledger(3);
  const uint32_t block = Allocate(ledger, 1, 1)[0];
  EXPECT_FALSE(ledger.HasOthersTokens(block));
  ledger.NoteWritten(block, 1);
  EXPECT_FALSE(ledger.HasOthersTokens(block));
  const std::vector<uint32_t> blocks = {block};
  EXPECT_OK(ledger.Free(1, blocks));
  EXPECT_EQ(Allocate(ledger, 1, 1)[0], block);
  EXPECT_FALSE(ledger.HasOthersTokens(block)) << "its own";
  EXPECT_OK(ledger.Free(1, blocks));
  EXPECT_EQ(Allocate(ledger, 2, 1)[0], block);
  EXPECT_TRUE(ledger.HasOthersTokens(block));
  // Given on without a write or a clear: still those of the first.
  EXPECT_OK(ledger.Free(2, blocks));
  EXPECT_EQ(Allocate(ledger, 3, 1)[0], block);
  EXPECT_TRUE(ledger.HasOthersTokens(block));
  ledger.NoteCleared(block);
  EXPECT_FALSE(ledger.HasOthersTokens(block));
}

TEST(BlockLedgerTokens, OfAFilledPoolCountAsWritten) {
  BlockLedger ledger(3, 16);
  EXPECT_EQ(ledger.num_written(Allocate(ledger, 1, 1)[0]), 16u);
}

}  // namespace
}  // namespace reprise::engine
