// SPDX-License-Identifier: Apache-2.0
#include "engine/state/swap_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/testing/status_codes.h"
#include "tests/testing/status_matchers.h"

namespace reprise::engine {
namespace {

using ::reprise::testing::StatusIs;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

std::vector<uint32_t> Allocate(SwapTable& table, uint64_t holder, std::vector<uint32_t> tokens) {
  std::vector<uint32_t> places;
  EXPECT_OK(table.Allocate(holder, tokens, &places));
  return places;
}

TEST(SwapTable, KeepsHowManyTokensEachPlaceHas) {
  SwapTable table(4);
  const std::vector<uint32_t> places = Allocate(table, 1, {3, 0, 16});
  ASSERT_EQ(places.size(), 3u);
  EXPECT_EQ(table.num_tokens(places[0]), 3u);
  EXPECT_EQ(table.num_tokens(places[1]), 0u);
  EXPECT_EQ(table.num_tokens(places[2]), 16u);
  EXPECT_EQ(table.num_free(), 1u);
}

TEST(SwapTable, TakesAllOrNothing) {
  SwapTable table(2);
  std::vector<uint32_t> places;
  EXPECT_THAT(table.Allocate(1, std::vector<uint32_t>{1, 1, 1}, &places),
              StatusIs(absl::StatusCode::kResourceExhausted, "room for 2 of 2"));
  EXPECT_THAT(places, IsEmpty());
  EXPECT_THAT(Allocate(table, 1, {1, 1}), UnorderedElementsAre(0, 1));
  EXPECT_EQ(table.num_free(), 0u);
}

TEST(SwapTable, PlacesAreTheirHoldersAlone) {
  SwapTable table(3);
  const std::vector<uint32_t> own = Allocate(table, 1, {1});
  const std::vector<uint32_t> others = Allocate(table, 2, {1});
  const auto check = [&](std::vector<uint32_t> places) { return table.CheckHeld(1, places); };
  EXPECT_OK(check(own));
  using ::reprise::testing::kDenied;
  EXPECT_THAT(check({own[0], others[0]}), StatusIs(kDenied, "is not this session's"));
  EXPECT_THAT(check({2}), StatusIs(kDenied, "is not this session's"));  // free
  EXPECT_THAT(check({3}), StatusIs(absl::StatusCode::kOutOfRange, "less than 3"));
  EXPECT_THAT(check({4294967295u}), StatusIs(absl::StatusCode::kOutOfRange, "does not exist"));
  EXPECT_THAT(check({own[0], own[0]}),
              StatusIs(absl::StatusCode::kInvalidArgument, "is named twice"));
  EXPECT_THAT(check({}), StatusIs(absl::StatusCode::kInvalidArgument, "0 swapped blocks"));
}

TEST(SwapTable, FreesWhatIsNamedAndAllOfAHolder) {
  SwapTable table(5);
  const std::vector<uint32_t> first = Allocate(table, 1, {1, 1, 1});
  const std::vector<uint32_t> second = Allocate(table, 2, {1, 1});
  table.Free(std::vector<uint32_t>{first[1]});
  EXPECT_EQ(table.num_free(), 1u);
  table.FreeAll(1);
  EXPECT_EQ(table.num_free(), 3u);
  EXPECT_OK(table.CheckHeld(2, second));
  EXPECT_THAT(Allocate(table, 3, {1, 1, 1}), UnorderedElementsAre(first[0], first[1], first[2]));
}

TEST(SwapTable, WithoutPlacesNothingFits) {
  SwapTable table(0);
  std::vector<uint32_t> places;
  EXPECT_THAT(table.Allocate(1, std::vector<uint32_t>{1}, &places),
              StatusIs(absl::StatusCode::kResourceExhausted, "room for 0 of 0"));
}

}  // namespace
}  // namespace reprise::engine
