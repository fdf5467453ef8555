// SPDX-License-Identifier: Apache-2.0
// The host's mirror of resident rows: lookup, order, reuse of slots.
#include "engine/state/row_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "tests/testing/number.h"

namespace reprise::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Row ids of a list, first to last; checks the links both ways.
std::vector<uint32_t> RowsOf(const RowTable& table, const RowList& list) {
  std::vector<uint32_t> rows;
  uint32_t previous = kNoSlot;
  for (uint32_t slot = list.first; slot != kNoSlot; slot = table.state(slot).next) {
    EXPECT_EQ(table.state(slot).previous, previous);
    previous = slot;
    rows.push_back(table.state(slot).row);
    if (rows.size() > table.max_rows()) break;  // a ring
  }
  EXPECT_EQ(list.last, previous);
  EXPECT_EQ(list.count, rows.size());
  return rows;
}

TEST(RowTable, FindsRowsBySessionAndId) {
  RowTable table(4, 3);
  RowList one, two;
  EXPECT_EQ(table.Find(1, 7), kNoSlot);
  const uint32_t a = table.Add(1, 7, one);
  const uint32_t b = table.Add(2, 7, two);
  EXPECT_NE(a, b);
  EXPECT_EQ(table.Find(1, 7), a);
  EXPECT_EQ(table.Find(2, 7), b);
  EXPECT_EQ(table.Find(3, 7), kNoSlot);
  EXPECT_EQ(table.Find(1, 8), kNoSlot);
  EXPECT_EQ(table.state(b).session, 2u);
  EXPECT_EQ(table.state(b).row, 7u);
  table.Remove(a, one);
  EXPECT_EQ(table.Find(1, 7), kNoSlot);
  EXPECT_EQ(table.Find(2, 7), b);
}

TEST(RowTable, HasExactlyMaxRowsSlots) {
  RowTable table(5, 1);
  RowList list;
  std::set<uint32_t> slots;
  for (uint32_t row = 0; row < 5; ++row) {
    EXPECT_EQ(table.num_free(), 5 - row);
    const uint32_t slot = table.Add(1, row, list);
    EXPECT_LT(slot, 5u);
    slots.insert(slot);
  }
  EXPECT_EQ(slots.size(), 5u);
  EXPECT_EQ(table.num_free(), 0u);
  table.Remove(table.Find(1, 3), list);
  EXPECT_EQ(table.num_free(), 1u);
}

TEST(RowTable, ListKeepsTheOrderOfAdding) {
  RowTable table(6, 1);
  RowList list, other;
  for (const uint32_t row : {40u, 10u, 30u, 20u}) table.Add(1, row, list);
  table.Add(2, 99, other);
  EXPECT_THAT(RowsOf(table, list), ElementsAre(40, 10, 30, 20));
  table.Remove(table.Find(1, 10), list);  // from the middle
  EXPECT_THAT(RowsOf(table, list), ElementsAre(40, 30, 20));
  table.Remove(table.Find(1, 40), list);  // the first
  table.Remove(table.Find(1, 20), list);  // the last
  EXPECT_THAT(RowsOf(table, list), ElementsAre(30));
  table.Add(1, 10, list);
  EXPECT_THAT(RowsOf(table, list), ElementsAre(30, 10));
  table.Remove(table.Find(1, 30), list);
  table.Remove(table.Find(1, 10), list);
  EXPECT_THAT(RowsOf(table, list), IsEmpty());
  EXPECT_THAT(RowsOf(table, other), ElementsAre(99));
}

TEST(RowTable, ReusedSlotHasFreshState) {
  RowTable table(1, 2);
  RowList list;
  const uint32_t slot = table.Add(1, 5, list);
  RowState& state = table.state(slot);
  EXPECT_TRUE(state.needs_reset);
  state.context_length = 9;
  state.table_length = 2;
  state.can_continue = true;
  state.needs_reset = false;
  state.sampling = {.temperature = 2.0f, .seed = 3};
  table.Remove(slot, list);
  ASSERT_EQ(table.Add(2, 6, list), slot);
  EXPECT_EQ(state.context_length, 0u);
  EXPECT_EQ(state.table_length, 0u);
  EXPECT_FALSE(state.can_continue);
  EXPECT_TRUE(state.needs_reset);
  EXPECT_EQ(state.sampling.temperature, 0.0f);
  EXPECT_EQ(state.sampling.seed, 0u);
  EXPECT_EQ(state.previous, kNoSlot);
  EXPECT_EQ(state.next, kNoSlot);
}

TEST(RowTable, TablesOfSlotsDoNotOverlap) {
  RowTable table(3, 4);
  for (uint32_t slot = 0; slot < 3; ++slot) {
    ASSERT_EQ(table.table(slot).size(), 4u);
    std::fill(table.table(slot).begin(), table.table(slot).end(), 100 + slot);
  }
  for (uint32_t slot = 0; slot < 3; ++slot)
    EXPECT_THAT(table.table(slot), ::testing::Each(100 + slot));
}

// Keys drawn from few values, in a table that is often full: probing runs collide and close gaps.
TEST(RowTable, AgreesWithAPlainMapOverARandomLife) {
  for (const uint32_t max_rows : {1u, 2u, 7u, 64u}) {
    RowTable table(max_rows, 1);
    std::map<uint64_t, RowList> lists;
    std::map<uint64_t, std::vector<uint32_t>> order;
    std::map<std::pair<uint64_t, uint32_t>, uint32_t> slots;
    testing::Random random(max_rows);
    const auto session_of = [&] { return uint64_t{1} << (16 * random.Below(4)); };
    for (int i = 0; i < 5000; ++i) {
      const uint64_t session = session_of();
      const uint32_t row = random.Below(2) == 0 ? random.Below(max_rows) : 0u - random.Below(9);
      const auto found = slots.find({session, row});
      const uint32_t slot = table.Find(session, row);
      ASSERT_EQ(slot, found == slots.end() ? kNoSlot : found->second);
      if (found != slots.end()) {
        table.Remove(slot, lists[session]);
        slots.erase(found);
        std::erase(order[session], row);
      } else if (table.num_free() > 0) {
        slots[{session, row}] = table.Add(session, row, lists[session]);
        order[session].push_back(row);
      }
      ASSERT_EQ(table.num_free(), max_rows - slots.size());
      ASSERT_EQ(RowsOf(table, lists[session]), order[session]);
    }
    for (const auto& [key, slot] : slots) EXPECT_EQ(table.Find(key.first, key.second), slot);
  }
}

}  // namespace
}  // namespace reprise::engine
