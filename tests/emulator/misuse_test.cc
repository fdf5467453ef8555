// SPDX-License-Identifier: Apache-2.0
// Divergence, accesses out of bounds and uninitialised reads end a block with who, where and what.
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

constexpr BlockShape kShape = {.threads = 128, .warp_size = 32, .shared_bytes = 512};

std::string ErrorIn(void (*body)(void*)) {
  std::vector<uint32_t> out(128);
  return ErrorOf(body, out.data(), kShape);
}

TEST(Divergence, OfABlockBarrierInTwoPlacesIsFound) {
  EXPECT_THAT(ErrorIn(&BarrierInBranch),
              AllOf(HasSubstr("divergent block barrier"), HasSubstr("SyncHere"),
                    HasSubstr("SyncThere"), ContainsRegex("misuse_kernels.cc:[0-9]+")));
}

TEST(Divergence, OfTwoBarriersBehindOneWrapperIsFound) {
  EXPECT_THAT(ErrorIn(&BarrierBehindWrapper),
              AllOf(HasSubstr("divergent block barrier"), HasSubstr("(BarrierBehindWrapper)")));
}

TEST(Divergence, OfABlockThatReturnedInPartIsFound) {
  EXPECT_THAT(ErrorIn(&BarrierForSome),
              AllOf(HasSubstr("divergent block barrier"), HasSubstr("64 threads (64-127) ended"),
                    HasSubstr("64 threads (0-63) wait for the block"), HasSubstr("SyncHere")));
}

TEST(Divergence, OfALoopIsFound) {
  EXPECT_THAT(ErrorIn(&BarrierInLoop),
              AllOf(HasSubstr("1 thread (5) ended"), HasSubstr("127 threads (0-4, 6-127) wait")));
}

TEST(Divergence, IsNoneWhereTheCompilerCopiedABarrier) {
  EXPECT_EQ(ErrorIn(&BarrierInUnrolledLoop), "");
}

TEST(Divergence, OfAWarpIsFound) {
  EXPECT_THAT(ErrorIn(&ExchangeForSome),
              AllOf(HasSubstr("divergent threads: nobody can go on"),
                    HasSubstr("exchange with their warp"), HasSubstr("ended")));
}

TEST(Divergence, OfExchangesOfTwoSizesIsFound) {
  EXPECT_THAT(ErrorIn(&ExchangeOfTwoSizes), HasSubstr("divergent rendezvous of a warp"));
}

TEST(Divergence, OfAnExchangeAndABarrierOfAWarpIsFound) {
  EXPECT_THAT(ErrorIn(&ExchangeAgainstSync), HasSubstr("divergent rendezvous of a warp"));
}

TEST(Divergence, LeavesTheNextBlockAlone) {
  for (int i = 0; i < 20; ++i) {
    EXPECT_NE(ErrorIn(&BarrierForSome), "");
    EXPECT_EQ(ErrorIn(&BarrierInUnrolledLoop), "");
  }
}

TEST(Exceptions, OfAKernelEndTheBlock) {
  EXPECT_THAT(ErrorIn(&Throw), HasSubstr("the kernel threw: as asked"));
  EXPECT_EQ(ErrorIn(&BarrierInUnrolledLoop), "");
}

TEST(Shapes, OfABlockAreChecked) {
  EXPECT_THAT(ErrorOf(&BarrierInUnrolledLoop, nullptr, {.threads = 48, .warp_size = 32}),
              HasSubstr("48 threads in warps of 32; allowed: whole warps"));
  EXPECT_THAT(ErrorOf(&BarrierInUnrolledLoop, nullptr, {.threads = 2048, .warp_size = 32}),
              HasSubstr("at most 1024 threads"));
  EXPECT_THAT(ErrorOf(&BarrierInUnrolledLoop, nullptr,
                      {.threads = 32, .warp_size = 32, .shared_bytes = (1 << 20) + 1}),
              HasSubstr("1048577 bytes of dynamic shared memory; allowed: 1048576"));
  EXPECT_THAT(
      ErrorOf(&BarrierInUnrolledLoop, nullptr,
              {.threads = 32, .warp_size = 32, .shared_bytes = 65, .shared_limit_bytes = 64}),
      HasSubstr("65 bytes of dynamic shared memory; allowed: 64"));
}

TEST(Shapes, OfABlockCountItsStaticVariables) {
  BlockShape shape{.threads = 32, .warp_size = 32, .shared_bytes = 512};
  shape.shared_limit_bytes = 1024 + 511;
  EXPECT_THAT(ErrorOf(&WriteStatic, nullptr, shape),
              AllOf(HasSubstr("static shared variables of 64 bytes beside 512 of dynamic shared "
                              "memory; allowed: 1535 in all"),
                    ContainsRegex("misuse_kernels.cc:[0-9]+ \\(.*WriteStatic\\)")));
  shape.shared_limit_bytes = 1024 + 512;
  EXPECT_EQ(ErrorOf(&WriteStatic, nullptr, shape), "");
}

TEST(AddressSanitizer, EndsTheProgramAtAnAccessOutOfBounds) {
  if (emulator::kChecksAccesses) GTEST_SKIP() << "not an AddressSanitizer build";
  EXPECT_DEATH(ErrorIn(&ReadBeyondDynamic), "use-after-poison");
  EXPECT_DEATH(ErrorIn(&WriteBeforeDynamic), "use-after-poison");
  EXPECT_DEATH(ErrorIn(&WriteBeyondStatic), "use-after-poison");
}

class Accesses : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!emulator::kChecksAccesses) {
      GTEST_SKIP() << "AddressSanitizer's builds end the program here";
    }
  }
};

TEST_F(Accesses, BeyondDynamicSharedMemoryAreFound) {
  EXPECT_THAT(ErrorIn(&ReadBeyondDynamic),
              AllOf(HasSubstr("out of bounds: dynamic shared memory (512 bytes) + 512"),
                    HasSubstr("thread 127"), HasSubstr("read of 4 bytes"),
                    ContainsRegex("misuse_kernels.cc:[0-9]+ \\(.*ReadBeyondDynamic\\)")));
}

TEST_F(Accesses, BeforeDynamicSharedMemoryAreFound) {
  EXPECT_THAT(ErrorIn(&WriteBeforeDynamic), AllOf(HasSubstr("out of bounds"), HasSubstr("- 8"),
                                                  HasSubstr("thread 3"), HasSubstr("write")));
}

TEST_F(Accesses, BeyondAStaticVariableAreFound) {
  EXPECT_THAT(ErrorIn(&WriteBeyondStatic),
              AllOf(HasSubstr("out of bounds: static shared variable (64 bytes) + 64"),
                    HasSubstr("thread 16")));
}

TEST_F(Accesses, ToWhatNobodyWroteAreFound) {
  EXPECT_THAT(ErrorIn(&ReadUninitialised),
              AllOf(HasSubstr("uninitialised: dynamic shared memory (512 bytes) + 36"),
                    HasSubstr("thread 9"), HasSubstr("ReadUninitialised")));
  EXPECT_THAT(ErrorIn(&ReadHalfInitialised),
              HasSubstr("uninitialised: dynamic shared memory (512 bytes) + 2"));
}

}  // namespace
}  // namespace reprise::testing
