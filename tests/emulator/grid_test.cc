// SPDX-License-Identifier: Apache-2.0
// Accesses of a launch's blocks to global memory that nothing orders are found, with both places,
// whatever the order in which the blocks ran; the same code with what orders them is not blamed.
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/device.h"
#include "runtime/host/host_device.h"
#include "tests/emulator/emulator.h"
#include "tests/emulator/kernel_interface.h"
#include "tests/emulator/probe_kernels.h"
#include "tests/emulator/run_block.h"

namespace reprise::testing {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using Fences = GridArgs::Fences;
using Mistake = GridArgs::Mistake;

constexpr unsigned kThreads = 64;
constexpr unsigned kBlocks = 5;
constexpr unsigned kSeeds = 10;
constexpr BlockShape kShape = {.threads = kThreads, .warp_size = 32, .shared_bytes = 64};

class GridRaces : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!emulator::kChecksAccesses) {
      GTEST_SKIP() << "no race detector in AddressSanitizer's builds";
    }
  }

  // Every order of the blocks must show the mistake: then what they throw, else "".
  static std::string ErrorOfSum(Fences fences, Mistake mistake) {
    std::string all;
    for (unsigned seed = 1; seed <= kSeeds; ++seed) {
      std::vector<uint32_t> partials(kBlocks * kThreads), out(kThreads);
      uint32_t counter = 0;
      GridArgs args{.partials = partials.data(),
                    .counter = &counter,
                    .out = out.data(),
                    .fences = fences,
                    .mistake = mistake};
      const std::string error = ErrorOfGrid(&SumOverGrid, &args, kShape, kBlocks, seed);
      if (error.empty() && mistake != Mistake::kNone) return "";
      all += error;
      if (!error.empty()) continue;
      EXPECT_EQ(counter, 0u);
      for (unsigned t = 0; t < kThreads; ++t) {
        EXPECT_EQ(out[t], kBlocks * t + kBlocks * (kBlocks - 1) / 2);
      }
    }
    return all;
  }

  static std::string ErrorOfRace(void (*body)(void*), bool conflicting, unsigned num_blocks = 4) {
    std::string all;
    for (unsigned seed = 1; seed <= kSeeds; ++seed) {
      std::vector<uint32_t> words(4 * kThreads + 8);
      GridRaceArgs args{.words = words.data(), .conflicting = conflicting};
      const std::string error = ErrorOfGrid(body, &args, kShape, num_blocks, seed);
      if (error.empty() && conflicting) return "";
      all += error;
    }
    return all;
  }
};

TEST_F(GridRaces, AreNoneWhereTheLastArriverReadsBehindFences) {
  EXPECT_EQ(ErrorOfSum(Fences::kEveryThread, Mistake::kNone), "");
  EXPECT_EQ(ErrorOfSum(Fences::kOneThread, Mistake::kNone), "");
  EXPECT_EQ(ErrorOfSum(Fences::kInAtomic, Mistake::kNone), "");
}

TEST_F(GridRaces, AreNoneWhereBlocksArriveAgainAndAgain) {
  constexpr unsigned kRounds = 4;
  for (unsigned seed = 1; seed <= kSeeds; ++seed) {
    emulator::SetScheduleSeed(seed);
    std::vector<uint32_t> partials(kRounds * kBlocks * kThreads), counters(kRounds),
        out(kRounds * kThreads);
    ArriveArgs args{.rounds = kRounds,
                    .partials = partials.data(),
                    .counters = counters.data(),
                    .out = out.data()};
    EXPECT_EQ(ErrorOfGrid(&ArriveAgain, &args, kShape, kBlocks, seed), "");
    for (unsigned i = 0; i < kRounds * kThreads; ++i) {
      const unsigned round = i / kThreads, t = (i + 1) % kThreads;
      EXPECT_EQ(out[i], kBlocks * (round + t) + kBlocks * (kBlocks - 1) / 2);
    }
    EXPECT_THAT(counters, ::testing::Each(0u));
  }
}

TEST_F(GridRaces, OfAMissingFenceBeforeTheArrivalAreFoundWithBothPlaces) {
  for (const Fences fences : {Fences::kEveryThread, Fences::kOneThread}) {
    EXPECT_THAT(
        ErrorOfSum(fences, Mistake::kNoFenceBefore),
        AllOf(ContainsRegex("race on global memory at 0x[0-9a-f]+:"),
              ContainsRegex("block \\([0-4], 0\\), thread [0-9]+ \\(warp [01], lane [0-9]+\\): "
                            "write at .*grid_kernels.cc:[0-9]+ \\(WritePartial\\)"),
              ContainsRegex("read of 4 bytes at .*grid_kernels.cc:[0-9]+ "
                            "\\(ReadPartial\\) from .* \\(SumOverGrid\\)"),
              HasSubstr("and nothing orders them")));
  }
}

TEST_F(GridRaces, OfAMissingFenceBehindTheArrivalAreFound) {
  for (const Fences fences : {Fences::kEveryThread, Fences::kOneThread}) {
    EXPECT_THAT(ErrorOfSum(fences, Mistake::kNoFenceBehind),
                AllOf(HasSubstr("WritePartial"), HasSubstr("ReadPartial")));
  }
}

TEST_F(GridRaces, OfThreadsThatTheArrivingOneDidNotWaitForAreFound) {
  for (const Fences fences : {Fences::kEveryThread, Fences::kOneThread, Fences::kInAtomic}) {
    EXPECT_THAT(ErrorOfSum(fences, Mistake::kNoBarrierBefore),
                AllOf(HasSubstr("WritePartial"), HasSubstr("ReadPartial")));
  }
}

TEST_F(GridRaces, OfACounterWithoutAtomicsAreFound) {
  for (const Fences fences : {Fences::kEveryThread, Fences::kOneThread, Fences::kInAtomic}) {
    EXPECT_THAT(ErrorOfSum(fences, Mistake::kPlainCounter), HasSubstr("CountPlainly"));
  }
}

TEST_F(GridRaces, OfAnAtomicAndAPlainWriteAreFound) {
  for (const Fences fences : {Fences::kEveryThread, Fences::kOneThread}) {
    EXPECT_THAT(ErrorOfSum(fences, Mistake::kEarlyReset),
                AllOf(HasSubstr("ResetCounter"), HasSubstr("atomic update of 4 bytes")));
  }
}

TEST_F(GridRaces, OfAReaderThatIsNotTheLastAreFound) {
  for (const Fences fences : {Fences::kEveryThread, Fences::kOneThread, Fences::kInAtomic}) {
    EXPECT_THAT(ErrorOfSum(fences, Mistake::kFirstReads),
                AllOf(HasSubstr("WritePartial"), HasSubstr("ReadPartial")));
    EXPECT_THAT(ErrorOfSum(fences, Mistake::kEarlyRead),
                AllOf(HasSubstr("WritePartial"), HasSubstr("ReadPartial")));
  }
}

TEST_F(GridRaces, OfTwoBlocksThatWriteOneWordAreFound) {
  EXPECT_EQ(ErrorOfRace(&StoreToOneWord, false), "");
  EXPECT_THAT(ErrorOfRace(&StoreToOneWord, true),
              AllOf(HasSubstr("thread 3"), HasSubstr("write of 4 bytes")));
}

TEST_F(GridRaces, AreNoneBetweenHalvesOfAWord) {
  EXPECT_EQ(ErrorOfRace(&StoreToHalfWord, false), "");
  EXPECT_THAT(ErrorOfRace(&StoreToHalfWord, true), HasSubstr("race on global memory"));
}

TEST_F(GridRaces, AreNoneBetweenBytesOfAWord) { EXPECT_EQ(ErrorOfRace(&StoreToByte, false), ""); }

TEST_F(GridRaces, OfInputThatABlockOverwritesAreFound) {
  EXPECT_EQ(ErrorOfRace(&ReadOthersInput, false), "");
  EXPECT_THAT(ErrorOfRace(&ReadOthersInput, true),
              AllOf(HasSubstr("WritePartial"), HasSubstr("ReadPartial")));
  EXPECT_EQ(ErrorOfRace(&ShiftInPlace, false), "");
  EXPECT_THAT(ErrorOfRace(&ShiftInPlace, true),
              AllOf(HasSubstr("WritePartial"), HasSubstr("ReadPartial")));
}

TEST_F(GridRaces, OfAnAsynchronousCopyAreFound) {
  EXPECT_EQ(ErrorOfRace(&CopyOthersOutput, false), "");
  EXPECT_THAT(ErrorOfRace(&CopyOthersOutput, true), HasSubstr("CopyOthersOutput"));
}

TEST_F(GridRaces, AreOrderedThroughOtherBlocks) {
  EXPECT_EQ(ErrorOfRace(&PassAlong, false), "");
  // Where block 0 comes last nobody reads what it wrote.
  std::string all;
  for (unsigned seed = 1; seed <= kSeeds; ++seed) {
    std::vector<uint32_t> words(8);
    GridRaceArgs args{.words = words.data(), .conflicting = true};
    all += ErrorOfGrid(&PassAlong, &args, kShape, 4, seed);
  }
  EXPECT_THAT(all, HasSubstr("block (0, 0), thread 0"));
}

TEST_F(GridRaces, WithinABlockAreFound) {
  EXPECT_EQ(ErrorOfRace(&ShiftInBlock, false, 1), "");
  EXPECT_THAT(ErrorOfRace(&ShiftInBlock, true, 1),
              AllOf(HasSubstr("WritePartial"), HasSubstr("ReadPartial")));
  EXPECT_EQ(ErrorOfRace(&CountInBlock, false, 1), "");
  EXPECT_THAT(ErrorOfRace(&CountInBlock, true, 1),
              AllOf(HasSubstr("WritePartial"), HasSubstr("ReadPartial")));
}

TEST_F(GridRaces, AreNoneBetweenLaunches) {
  std::vector<uint32_t> words(4 * kThreads);
  for (const unsigned num_blocks : {4u, 1u, 4u}) {
    GridRaceArgs args{.words = words.data(), .conflicting = false};
    EXPECT_EQ(ErrorOfGrid(&ReadParameters, &args, kShape, num_blocks, num_blocks), "");
    EXPECT_EQ(ErrorOfGrid(&ShiftInPlace, &args, kShape, num_blocks, num_blocks), "");
    EXPECT_EQ(ErrorOf(&ShiftInBlock, &args, kShape), "");
  }
}

TEST_F(GridRaces, WithTheLaunchBeforeAreFoundWhereAThreadHasNotWaited) {
  using Wait = WaitArgs::Mistake;
  constexpr unsigned kNumBlocks = 3;
  const BlockShape waits{.threads = 32, .waits_for_previous = true};
  std::vector<uint32_t> words(kNumBlocks + 1), others(kNumBlocks + 1);
  const auto run = [&](Wait mistake, std::vector<uint32_t>& before) {
    // The launch before writes its words, all but the last, and reads that.
    WaitArgs previous{.words = before.data()};
    EXPECT_EQ(ErrorOfGrid(&WriteAfterWaiting, &previous, waits, kNumBlocks, 1), "");
    WaitArgs args{.words = words.data(), .mistake = mistake};
    return ErrorOfGrid(&WriteAfterWaiting, &args, waits, kNumBlocks, 2);
  };
  EXPECT_EQ(run(Wait::kNone, words), "");
  EXPECT_EQ(run(Wait::kReadsFirst, words), "");  // so did the launch before
  EXPECT_THAT(run(Wait::kWritesFirst, words),
              AllOf(HasSubstr("too early"), HasSubstr("WritePartial"), HasSubstr("not waited")));
  EXPECT_EQ(run(Wait::kReadsFirst, others), "");
  EXPECT_EQ(run(Wait::kWritesFirst, others), "");
  EXPECT_THAT(run(Wait::kLetsBeginFirst, others), HasSubstr("lets the next launch begin"));
  EXPECT_THAT(run(Wait::kBlock0Leaves, others), HasSubstr("block (0, 0) ended"));

  // What the launch before wrote.
  GridRaceArgs writer{.words = words.data() + kNumBlocks, .conflicting = true};
  EXPECT_EQ(ErrorOf(&StoreToOneWord, &writer, {.threads = 32}), "");
  WaitArgs args{.words = words.data(), .mistake = Wait::kReadsFirst};
  EXPECT_THAT(ErrorOfGrid(&WriteAfterWaiting, &args, waits, kNumBlocks, 1),
              AllOf(HasSubstr("too early"), HasSubstr("launch before: write")));
  // And the one before that.
  WaitArgs between{.words = others.data()};
  EXPECT_EQ(ErrorOf(&StoreToOneWord, &writer, {.threads = 32}), "");
  EXPECT_EQ(ErrorOfGrid(&WriteAfterWaiting, &between, waits, kNumBlocks, 1), "");
  EXPECT_EQ(ErrorOfGrid(&WriteAfterWaiting, &args, waits, kNumBlocks, 1), "");
  // Which may not have ended where those between let others begin first.
  between.mistake = Wait::kBeginsFirst;
  for (const int num_between : {1, 2}) {
    EXPECT_EQ(ErrorOf(&StoreToOneWord, &writer, {.threads = 32}), "");
    for (int i = 0; i < num_between; ++i)
      EXPECT_EQ(ErrorOfGrid(&WriteAfterWaiting, &between, waits, kNumBlocks, 1), "");
    EXPECT_THAT(ErrorOfGrid(&WriteAfterWaiting, &args, waits, kNumBlocks, 1),
                AllOf(HasSubstr("too early"), HasSubstr("launch before: write")));
  }
}

TEST_F(GridRaces, AreNoneLeftByALaunchThatFailed) {
  std::vector<uint32_t> words(8);
  GridRaceArgs args{.words = words.data(), .conflicting = true};
  EXPECT_NE(ErrorOfGrid(&StoreToOneWord, &args, kShape, 4, 1), "");
  args.conflicting = false;
  EXPECT_EQ(ErrorOfGrid(&StoreToOneWord, &args, kShape, 4, 1), "");
}

TEST_F(GridRaces, AreFoundAfterClocksHaveStartedAnew) {
  // A launch may not begin above kMaxFirstClock: 2^18.
  int rounds = 100'000;
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(ErrorOf(&MeetOften, &rounds, {.threads = 32, .warp_size = 32}), "");
    EXPECT_THAT(ErrorOfRace(&StoreToOneWord, true), HasSubstr("race on global memory"));
    EXPECT_EQ(ErrorOfRace(&StoreToOneWord, false), "");
  }
}

void RunSumOverGrid(const runtime::HostBlockContext& context, const void* args) {
  emulator::RunBlock(context, {.warp_size = 32, .shared_bytes = 1024}, &SumOverGrid,
                     const_cast<void*>(args), sizeof(GridArgs));
}

TEST_F(GridRaces, AreFoundOnADeviceOfSeveralThreads) {
  constexpr runtime::KernelDef kKernel{"sum_over_grid", &RunSumOverGrid};
  auto device = runtime::CreateHostDevice({.host_threads = 3}, {.max_us = 1});
  ASSERT_TRUE(device.ok()) << device.status();
  auto module = (*device)->Load({.kernels = {&kKernel, 1}, .cuda_fatbins = {}});
  ASSERT_TRUE(module.ok()) << module.status();
  const auto kernel = (*module)->Find("sum_over_grid");
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  std::vector<uint32_t> partials(kBlocks * kThreads), out(kThreads);
  uint32_t counter = 0;
  for (const Mistake mistake : {Mistake::kNone, Mistake::kNone, Mistake::kNoFenceBehind}) {
    auto stream = (*device)->CreateStream();
    ASSERT_TRUE(stream.ok()) << stream.status();
    const GridArgs args{
        .partials = partials.data(), .counter = &counter, .out = out.data(), .mistake = mistake};
    for (int i = 0; i < 20; ++i) {
      const absl::Status launched = (*stream)->Launch(
          *kernel, {.grid_x = kBlocks, .block = kThreads, .shared_bytes = 64}, args);
      EXPECT_TRUE(launched.ok() || mistake != Mistake::kNone) << launched;
    }
    const absl::Status status = (*stream)->Synchronize();
    EXPECT_EQ(status.ok(), mistake == Mistake::kNone) << status;
    if (mistake != Mistake::kNone) {
      EXPECT_THAT(std::string(status.message()), HasSubstr("race on global memory"));
    }
  }
}

}  // namespace
}  // namespace reprise::testing
