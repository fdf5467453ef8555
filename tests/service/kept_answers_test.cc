// SPDX-License-Identifier: Apache-2.0
#include "service/kept_answers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace reprise::service {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr uint64_t kPlenty = 1 << 20;

std::vector<std::string> After(const KeptAnswers& kept, uint64_t sequence) {
  std::vector<std::string> texts;
  for (const grpc::Slice& slice : kept.After(sequence))
    texts.emplace_back(reinterpret_cast<const char*>(slice.begin()), slice.size());
  return texts;
}

TEST(KeptAnswers, AreTheLastOnesInOrder) {
  MemoryBudget memory(kPlenty, 1024);
  KeptAnswers kept(3, kPlenty);
  EXPECT_THAT(After(kept, 0), IsEmpty());
  EXPECT_EQ(kept.missing_through(), 0u);
  // Numbers that are missing were unary steps'.
  for (const uint64_t sequence : {1, 2, 5, 6, 7})
    kept.Add(sequence, grpc::Slice(std::to_string(sequence)), memory);
  EXPECT_THAT(After(kept, 2), ElementsAre("5", "6", "7"));
  EXPECT_THAT(After(kept, 5), ElementsAre("6", "7"));
  EXPECT_THAT(After(kept, 7), IsEmpty());
  EXPECT_EQ(kept.missing_through(), 2u);
}

TEST(KeptAnswers, HaveNoGaps) {
  MemoryBudget memory(kPlenty, 1024);
  KeptAnswers kept(4, 3000);
  kept.Add(1, grpc::Slice(std::string(400, 'a')), memory);
  kept.Add(2, grpc::Slice(std::string(400, 'b')), memory);
  EXPECT_EQ(kept.After(0).size(), 2u);
  EXPECT_EQ(memory.used(), 2400u);
  kept.Add(3, grpc::Slice(std::string(300, 'c')), memory);  // the oldest makes room
  EXPECT_EQ(kept.missing_through(), 1u);
  EXPECT_EQ(memory.used(), 2100u);
  kept.Add(4, grpc::Slice(std::string(1001, 'd')), memory);  // too large, whatever makes room
  EXPECT_EQ(kept.missing_through(), 4u);
  EXPECT_THAT(kept.After(0), IsEmpty());
  EXPECT_EQ(memory.used(), 0u);
  kept.Add(5, grpc::Slice("e"), memory);
  EXPECT_THAT(After(kept, 4), ElementsAre("e"));
  kept.NoteLost(6);
  EXPECT_EQ(kept.missing_through(), 6u);
  EXPECT_THAT(kept.After(0), IsEmpty());
}

TEST(KeptAnswers, OfASessionThatCannotBeResumedAreNone) {
  MemoryBudget memory(kPlenty, 1024);
  KeptAnswers kept(0, kPlenty);
  kept.Add(1, grpc::Slice("a"), memory);
  EXPECT_THAT(kept.After(0), IsEmpty());
  EXPECT_EQ(kept.missing_through(), 1u);
  EXPECT_EQ(memory.used(), 0u);
}

}  // namespace
}  // namespace reprise::service
