// SPDX-License-Identifier: Apache-2.0
// Accesses to shared memory that nothing orders are found, with both places; the same code with
// what orders them is not blamed.
#include <cstdint>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/emulator/emulator.h"
#include "tests/emulator/probe_kernels.h"
#include "tests/emulator/run_block.h"

namespace reprise::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

constexpr unsigned kThreads = 128;

class Races : public ::testing::TestWithParam<unsigned> {
 protected:
  void SetUp() override {
    if (!emulator::kChecksAccesses) {
      GTEST_SKIP() << "no race detector in AddressSanitizer's builds";
    }
  }
  // Several schedules each.
  std::string ErrorOfRace(void (*body)(void*), bool synchronised) {
    std::string all;
    for (uint64_t seed = 1; seed <= 10; ++seed) {
      emulator::SetScheduleSeed(seed);
      out_.assign(kThreads, 0);
      RaceArgs args{.out = out_.data(), .synchronised = synchronised};
      const std::string error =
          ErrorOf(body, &args,
                  {.threads = kThreads, .warp_size = GetParam(), .shared_bytes = 4 * kThreads});
      if (error.empty() && !synchronised) return "";
      all += error;
    }
    return all;
  }
  std::vector<uint32_t> out_;
};
INSTANTIATE_TEST_SUITE_P(Of, Races, ::testing::Values(32u, 64u));

TEST_P(Races, OfAWriteAndAReadAreFoundWithBothPlaces) {
  EXPECT_THAT(ErrorOfRace(&ReadNeighbour, false),
              AllOf(HasSubstr("race on dynamic shared memory (512 bytes)"),
                    ContainsRegex("race_kernels.cc:[0-9]+ \\(.*StoreWord\\)"),
                    ContainsRegex("race_kernels.cc:[0-9]+ \\(.*LoadWord\\)"),
                    ContainsRegex("race_kernels.cc:[0-9]+ \\(ReadNeighbour\\)"),
                    ContainsRegex("thread [0-9]+ \\(warp [0-9], lane [0-9]+\\): "),
                    HasSubstr("of 4 bytes")));
  EXPECT_EQ(ErrorOfRace(&ReadNeighbour, true), "");
  EXPECT_EQ(out_[5], 7u);
}

TEST_P(Races, OfAReadAndAWriteAreFoundWithBothPlaces) {
  EXPECT_THAT(ErrorOfRace(&OverwriteNeighbour, false),
              AllOf(HasSubstr("race on"), HasSubstr("LoadWord"), HasSubstr("StoreOver")));
  EXPECT_EQ(ErrorOfRace(&OverwriteNeighbour, true), "");
  EXPECT_EQ(out_[5], 5u);
}

TEST_P(Races, OfTwoWritesAreFoundWithBothPlaces) {
  EXPECT_THAT(ErrorOfRace(&WriteSameWord, false),
              AllOf(HasSubstr("race on"), HasSubstr("thread 0"), HasSubstr("thread 33"),
                    HasSubstr("StoreWord"), HasSubstr("StoreOver")));
  EXPECT_EQ(ErrorOfRace(&WriteSameWord, true), "");
  EXPECT_EQ(out_[0], 2u);
}

TEST_P(Races, WithinAWarpAreOrderedByItsBarrier) {
  EXPECT_THAT(ErrorOfRace(&ReadNeighbourInWarp, false), HasSubstr("race on"));
  EXPECT_EQ(ErrorOfRace(&ReadNeighbourInWarp, true), "");
}

TEST_P(Races, BetweenWarpsAreNotOrderedByTheirBarriers) {
  EXPECT_THAT(ErrorOfRace(&ReadOtherWarp, false), HasSubstr("race on"));
  EXPECT_EQ(ErrorOfRace(&ReadOtherWarp, true), "");
}

TEST_P(Races, AreNoneBetweenNeighbouringHalvesOfAWord) {
  EXPECT_THAT(ErrorOfRace(&StoreHalves, false), HasSubstr("race on"));
  EXPECT_EQ(ErrorOfRace(&StoreHalves, true), "");
  EXPECT_EQ(out_[7], 0x70006u);
}

TEST_P(Races, OfAHalfAndAWholeWordAreFound) {
  EXPECT_THAT(ErrorOfRace(&StoreOverlappingHalves, false), HasSubstr("race on"));
  EXPECT_EQ(ErrorOfRace(&StoreOverlappingHalves, true), "");
  EXPECT_EQ(out_[0], 7u << 16);
}

TEST_P(Races, AreNoneBetweenAtomics) {
  EXPECT_THAT(ErrorOfRace(&CountTogether, false), ::testing::Not(""));
  EXPECT_EQ(ErrorOfRace(&CountTogether, true), "");
  EXPECT_EQ(out_[3], 2 * kThreads);
}

TEST_P(Races, OfAnAtomicAndAPlainReadAreFound) {
  EXPECT_THAT(ErrorOfRace(&ReadCountTooEarly, false),
              AllOf(HasSubstr("race on"), HasSubstr("atomic")));
  EXPECT_EQ(ErrorOfRace(&ReadCountTooEarly, true), "");
}

TEST_P(Races, OfManyReadersAndOneWriterAreFound) {
  EXPECT_THAT(ErrorOfRace(&BroadcastThenOverwrite, false),
              AllOf(HasSubstr("race on"), HasSubstr("StoreOver")));
  EXPECT_EQ(ErrorOfRace(&BroadcastThenOverwrite, true), "");
}

TEST_P(Races, OfCopiedStructuresAreFound) {
  EXPECT_THAT(ErrorOfRace(&CopyStruct, false), ::testing::Not(""));
  EXPECT_EQ(ErrorOfRace(&CopyStruct, true), "");
  EXPECT_EQ(out_[70], 6u);
}

TEST_P(Races, OnStaticVariablesAreFound) {
  EXPECT_THAT(ErrorOfRace(&ShareStatics, false), HasSubstr("static shared variable"));
  EXPECT_EQ(ErrorOfRace(&ShareStatics, true), "");
  EXPECT_EQ(out_[9], 33u);
}

TEST_P(Races, AreOrderedByAtomicsThatReleaseAndAcquire) {
  EXPECT_THAT(ErrorOfRace(&LastArriver, false), HasSubstr("race on"));
  EXPECT_EQ(ErrorOfRace(&LastArriver, true), "");
  EXPECT_EQ(out_[0], kThreads - 1);
}

TEST_P(Races, OfATreeWithoutBarriersAreFound) {
  const std::vector<float> x(kThreads, 1.0f);
  float sum = 0.0f;
  ReductionArgs args{.x = x.data(), .out = &sum};
  const BlockShape shape{
      .threads = kThreads, .warp_size = GetParam(), .shared_bytes = 4 * kThreads};
  EXPECT_THAT(ErrorOf(&TreeSumWithoutBarrier, &args, shape), ::testing::Not(""));
  // The next block of this thread is none the worse for it.
  EXPECT_EQ(ErrorOf(&TreeSum, &args, shape), "");
  EXPECT_EQ(sum, static_cast<float>(kThreads));
}

}  // namespace
}  // namespace reprise::testing
