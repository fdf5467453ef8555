// SPDX-License-Identifier: Apache-2.0
#include "tools/sched/block_manager.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/tools/fake_step_server.h"

namespace reprise::tools {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

ServerInfo Pool(uint32_t num_blocks) {
  return {.limits = {.block_size = 4, .max_rows = 4, .pipeline_depth = 2},
          .num_blocks = num_blocks};
}

TEST(BlockManager, AsksInBatchesAndServesFromThem) {
  FakeStepServer server(Pool(101));
  BlockManager blocks(&server, {.batch = 8});
  std::vector<uint32_t> row;
  for (int i = 0; i < 8; ++i) EXPECT_TRUE(*blocks.Take(1, &row));
  EXPECT_EQ(server.num_allocates, 1u);
  EXPECT_TRUE(*blocks.Take(20, &row));
  EXPECT_EQ(server.num_allocates, 2u);
  EXPECT_THAT(row, SizeIs(28));
  EXPECT_EQ(blocks.held_blocks(), 28u);
}

TEST(BlockManager, TakesWhatIsNeededWhenAWholeBatchIsNotThere) {
  FakeStepServer server(Pool(6));
  BlockManager blocks(&server, {.batch = 8});
  std::vector<uint32_t> row;
  EXPECT_TRUE(*blocks.Take(3, &row));
  EXPECT_EQ(blocks.free_blocks(), 0u);
  EXPECT_EQ(server.num_pool_blocks(), 2u);
}

TEST(BlockManager, DoesNotAskAnEmptyServerAgainUntilToldTo) {
  FakeStepServer server(Pool(3));
  BlockManager blocks(&server, {.batch = 8});
  std::vector<uint32_t> row;
  EXPECT_FALSE(*blocks.Take(3, &row));
  EXPECT_THAT(row, IsEmpty());
  const uint64_t asked = server.num_allocates;
  EXPECT_FALSE(*blocks.Take(1, &row));
  EXPECT_EQ(server.num_allocates, asked);
  blocks.RetryServer();
  EXPECT_TRUE(*blocks.Take(1, &row));
}

TEST(BlockManager, ReusesReleasedBlocksAtOnce) {
  FakeStepServer server(Pool(5));
  BlockManager blocks(&server, {.batch = 4});
  std::vector<uint32_t> first;
  ASSERT_TRUE(*blocks.Take(4, &first));
  blocks.Release(first, /*sequence=*/7);
  std::vector<uint32_t> second;
  EXPECT_TRUE(*blocks.Take(4, &second));
  EXPECT_THAT(second, ::testing::UnorderedElementsAreArray(first));
}

TEST(BlockManager, ReturnsSurplusOnlyAfterTheDroppingStepIsDone) {
  FakeStepServer server(Pool(101));
  BlockManager blocks(&server, {.batch = 4});
  std::vector<uint32_t> row;
  ASSERT_TRUE(*blocks.Take(40, &row));
  blocks.Release(row, /*sequence=*/5);
  ASSERT_TRUE(blocks.Acknowledge(4).ok());
  EXPECT_EQ(server.num_held_blocks(), 40u);
  ASSERT_TRUE(blocks.Acknowledge(5).ok());
  EXPECT_EQ(server.num_held_blocks(), 4u);
  EXPECT_EQ(blocks.held_blocks(), 4u);
  ASSERT_TRUE(blocks.ReturnAll().ok());
  EXPECT_EQ(server.num_held_blocks(), 0u);
  EXPECT_THAT(server.violations, IsEmpty());
}

TEST(BlockManager, PassesOnErrorsOfTheSource) {
  class Broken : public BlockSource {
   public:
    absl::StatusOr<std::vector<uint32_t>> Allocate(uint32_t) override {
      return absl::UnavailableError("gone");
    }
    absl::Status Free(const std::vector<uint32_t>&) override { return absl::OkStatus(); }
  } source;
  BlockManager blocks(&source, {});
  std::vector<uint32_t> row;
  EXPECT_EQ(blocks.Take(1, &row).status().code(), absl::StatusCode::kUnavailable);
}

// ---- swap space ----

class BlockManagerSwap : public ::testing::Test {
 protected:
  void SetUp() override {
    server_.swap_room = 6;
    server_.max_swap_call = 2;
    ASSERT_TRUE(*blocks_.Take(5, &row_));
  }
  FakeStepServer server_{Pool(11)};
  BlockManager blocks_{&server_, {.batch = 4, .max_swap = 2}};
  std::vector<uint32_t> row_;
  std::vector<uint32_t> swapped_;
};

TEST_F(BlockManagerSwap, MovesBlocksOutAndBackInCallsOfTheServersSize) {
  EXPECT_TRUE(*blocks_.SwapOut(&row_, &swapped_));
  EXPECT_THAT(row_, IsEmpty());
  EXPECT_THAT(swapped_, SizeIs(5));
  EXPECT_EQ(blocks_.held_blocks(), 0u);
  EXPECT_EQ(*blocks_.SwapIn(&swapped_, &row_), BlockManager::SwappedIn::kDone);
  EXPECT_THAT(row_, SizeIs(5));
  EXPECT_THAT(swapped_, IsEmpty());
  EXPECT_EQ(server_.num_swapped_blocks(), 0u);
  EXPECT_EQ(blocks_.held_blocks(), 5u);
  EXPECT_THAT(server_.violations, IsEmpty());
}

TEST_F(BlockManagerSwap, KeepsNothingThereWhereNotAllHasRoom) {
  server_.swap_room = 3;
  EXPECT_FALSE(*blocks_.SwapOut(&row_, &swapped_));
  EXPECT_THAT(row_, SizeIs(3));  // of the first call nothing is left
  EXPECT_THAT(swapped_, IsEmpty());
  EXPECT_EQ(server_.num_swapped_blocks(), 0u);
  EXPECT_EQ(blocks_.held_blocks(), 3u);
}

TEST_F(BlockManagerSwap, ForgetsBlocksWhoseCallWasLost) {
  server_.lose_swap_outs = 1;
  EXPECT_FALSE(*blocks_.SwapOut(&row_, &swapped_));
  EXPECT_THAT(row_, SizeIs(3));
  EXPECT_EQ(blocks_.held_blocks(), 3u);
  EXPECT_EQ(server_.num_held_blocks(), 3u);
}

TEST_F(BlockManagerSwap, GivesItsFreeBlocksToTheServerForThoseThatComeBack) {
  ASSERT_TRUE(*blocks_.SwapOut(&row_, &swapped_));
  std::vector<uint32_t> other;
  ASSERT_TRUE(*blocks_.Take(4, &other));
  ASSERT_TRUE(*blocks_.Take(4, &other));
  blocks_.Release({other.begin() + 5, other.end()}, /*sequence=*/0);
  EXPECT_EQ(*blocks_.SwapIn(&swapped_, &row_), BlockManager::SwappedIn::kDone);
}

TEST_F(BlockManagerSwap, LeavesThemThereWhileThePoolIsFull) {
  ASSERT_TRUE(*blocks_.SwapOut(&row_, &swapped_));
  server_.blocks_of_others = 9;
  EXPECT_EQ(*blocks_.SwapIn(&swapped_, &row_), BlockManager::SwappedIn::kNoRoom);
  EXPECT_THAT(swapped_, SizeIs(5));
  server_.blocks_of_others = 0;
  EXPECT_EQ(*blocks_.SwapIn(&swapped_, &row_), BlockManager::SwappedIn::kNoRoom);  // not asked
  blocks_.RetryServer();
  EXPECT_EQ(*blocks_.SwapIn(&swapped_, &row_), BlockManager::SwappedIn::kDone);
}

TEST_F(BlockManagerSwap, HoldsNoPartOfARowThatDoesNotFit) {
  ASSERT_TRUE(*blocks_.SwapOut(&row_, &swapped_));
  server_.blocks_of_others = 7;
  EXPECT_EQ(*blocks_.SwapIn(&swapped_, &row_), BlockManager::SwappedIn::kLost);
  EXPECT_THAT(row_, IsEmpty());
  EXPECT_THAT(swapped_, IsEmpty());
  EXPECT_EQ(server_.num_swapped_blocks(), 0u);
  EXPECT_EQ(blocks_.free_blocks(), 2u);
}

}  // namespace
}  // namespace reprise::tools
