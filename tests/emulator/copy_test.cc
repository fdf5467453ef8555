// SPDX-License-Identifier: Apache-2.0
// Asynchronous and bulk copies: pipelines come out right, and each mistake in one is found.
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
using Mistake = CopyArgs::Mistake;

constexpr unsigned kConsumers = 128;
constexpr int kRows = 7;
constexpr char kSkipped[] = "AddressSanitizer's builds end the program here";

class Copies : public ::testing::TestWithParam<unsigned> {
 protected:
  Copies() : x_(kRows * kConsumers * 4), out_(kConsumers * 4) {
    for (size_t i = 0; i < x_.size(); ++i) x_[i] = static_cast<float>(i % 977);
  }
  std::string ErrorIn(void (*body)(void*), Mistake mistake, uint64_t seed) {
    emulator::SetScheduleSeed(seed);
    out_.assign(out_.size(), -1.0f);
    CopyArgs args{.x = x_.data(), .out = out_.data(), .rows = kRows, .mistake = mistake};
    const bool bulk = body == &CopyBulkPipeline;
    return ErrorOf(body, &args,
                   {.threads = kConsumers + (bulk ? GetParam() : 0),
                    .warp_size = GetParam(),
                    .shared_bytes = kConsumers * 32 + (bulk ? 64 : 0)});
  }
  // Sum over rows of the neighbour's vector.
  float Expected(unsigned thread, unsigned element) const {
    const unsigned neighbour = (thread + 1) % kConsumers;
    float sum = 0.0f;
    for (unsigned row = 0; row < kRows; ++row) {
      sum += x_[(row * kConsumers + neighbour) * 4 + element];
    }
    return sum;
  }
  std::vector<float> x_, out_;
};
INSTANTIATE_TEST_SUITE_P(Warps, Copies, ::testing::Values(32u, 64u));

TEST_P(Copies, OfThreadsLandWhenWaitedFor) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    ASSERT_EQ(ErrorIn(&CopyAsyncPipeline, Mistake::kNone, seed), "");
  }
  for (unsigned t = 0; t < kConsumers; ++t) {
    const bool is_zero = t + 2 == kConsumers;  // reads the last thread's
    for (unsigned e = 0; e < 4; ++e) EXPECT_EQ(out_[t * 4 + e], is_zero ? 0.0f : Expected(t, e));
  }
}

TEST_P(Copies, OfBulksLandBeforeTheirPhaseCompletes) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    ASSERT_EQ(ErrorIn(&CopyBulkPipeline, Mistake::kNone, seed), "");
  }
  for (unsigned t = 0; t < kConsumers; ++t) {
    for (unsigned e = 0; e < 4; ++e) EXPECT_EQ(out_[t * 4 + e], Expected(t, e));
  }
}

TEST_P(Copies, ThatNobodyWaitsForAreFound) {
  EXPECT_THAT(
      ErrorIn(&CopyAsyncPipeline, Mistake::kNeverWaited, 1),
      AllOf(HasSubstr("the block ended with a copy in flight"), HasSubstr("CopyAsyncPipeline")));
}

TEST_P(Copies, ToWhereTheyMustNotGoAreFound) {
  EXPECT_THAT(ErrorIn(&CopyToUnaligned, Mistake::kNone, 1),
              HasSubstr("allowed: 4, 8 or 16 bytes, from and to multiples of them"));
}

TEST_P(Copies, InFlightAreForbiddenMemoryToAddressSanitizer) {
  if (emulator::kChecksAccesses) GTEST_SKIP() << "not an AddressSanitizer build";
  EXPECT_DEATH(ErrorIn(&CopyAsyncPipeline, Mistake::kNoWait, 1), "use-after-poison");
}

TEST_P(Copies, ReadBeforeTheyLandedAreFound) {
  if (!emulator::kChecksAccesses) GTEST_SKIP() << kSkipped;
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    EXPECT_THAT(ErrorIn(&CopyAsyncPipeline, Mistake::kNoWait, seed),
                AllOf(HasSubstr("copy in flight to dynamic shared memory"),
                      ContainsRegex("copy started at .*copy_kernels.cc:[0-9]+"),
                      ContainsRegex("read of 4 bytes at .*copy_kernels.cc:[0-9]+")));
    EXPECT_THAT(ErrorIn(&CopyAsyncPipeline, Mistake::kWaitTooLittle, seed),
                HasSubstr("copy in flight to"));
  }
}

TEST_P(Copies, OfOthersWithoutABarrierAreFound) {
  if (!emulator::kChecksAccesses) GTEST_SKIP() << kSkipped;
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    EXPECT_THAT(ErrorIn(&CopyAsyncPipeline, Mistake::kNoBarrier, seed), ::testing::Not(""));
  }
}

TEST_P(Copies, OverWhatOthersMayStillReadAreFound) {
  if (!emulator::kChecksAccesses) GTEST_SKIP() << kSkipped;
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    EXPECT_THAT(ErrorIn(&CopyAsyncPipeline, Mistake::kNoBarrierBefore, seed), ::testing::Not(""));
  }
}

TEST_P(Copies, OfBulksWithOneMistakeAreFound) {
  if (!emulator::kChecksAccesses) GTEST_SKIP() << kSkipped;
  for (const Mistake mistake : {Mistake::kNoWait, Mistake::kNoBarrierBefore, Mistake::kNoExpect,
                                Mistake::kArriveTooEarly, Mistake::kNoInitBarrier}) {
    for (uint64_t seed = 1; seed <= 10; ++seed) {
      EXPECT_THAT(ErrorIn(&CopyBulkPipeline, mistake, seed), ::testing::Not(""))
          << static_cast<int>(mistake) << " with seed " << seed;
    }
  }
}

TEST_P(Copies, OfBulksThatNobodyWaitsForAreFoundInAnySchedule) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    EXPECT_THAT(ErrorIn(&CopyBulkPipeline, Mistake::kNeverWaited, seed),
                HasSubstr("the block ended with a bulk copy in flight"));
  }
}

}  // namespace
}  // namespace reprise::testing
