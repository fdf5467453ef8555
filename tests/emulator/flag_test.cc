// SPDX-License-Identifier: Apache-2.0
// A word that some threads add to and others wait for orders what came before the one ahead of what
// comes behind the other, within a block and between blocks that run at once; a wait that nobody
// can end is an error and no hang.
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/device.h"
#include "tests/emulator/emulator.h"
#include "tests/emulator/kernel_interface.h"
#include "tests/emulator/probe_kernels.h"
#include "tests/emulator/run_block.h"

namespace reprise::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Mistake = FlagArgs::Mistake;

constexpr unsigned kThreads = 96;
constexpr unsigned kSeeds = 10;

// One block that runs so: what it throws.
std::string ErrorOfBlock(FlagArgs* args, unsigned block, unsigned num_blocks) {
  const runtime::HostBlockContext context{.block_x = block,
                                          .block_y = 0,
                                          .grid_x = num_blocks,
                                          .grid_y = 1,
                                          .block_threads = kThreads,
                                          .shared = nullptr,
                                          .shared_bytes = 64,
                                          .cooperative = true};
  try {
    emulator::RunBlock(context, {.warp_size = 32, .shared_bytes = 1 << 16}, &WaitForFlag, args);
  } catch (const std::exception& e) {
    return e.what();
  }
  return "";
}

// The blocks at once. Every schedule must show a mistake: then what the first block throws.
std::string ErrorOfFlag(Mistake mistake, unsigned num_blocks) {
  std::string all;
  for (unsigned seed = 1; seed <= kSeeds; ++seed) {
    emulator::SetScheduleSeed(seed);
    std::vector<uint32_t> values(32), out(num_blocks * kThreads);
    uint32_t flag = 0;
    FlagArgs args{.values = values.data(), .flag = &flag, .out = out.data(), .mistake = mistake};
    std::vector<std::string> errors(num_blocks);
    std::vector<std::thread> threads;
    for (unsigned block = 0; block < num_blocks; ++block)
      threads.emplace_back([&, block] { errors[block] = ErrorOfBlock(&args, block, num_blocks); });
    for (std::thread& thread : threads) thread.join();
    if (errors[0].empty() && mistake != Mistake::kNone) return "";
    for (const std::string& error : errors) all += error;
    if (mistake != Mistake::kNone) continue;
    for (unsigned i = 32; i < out.size(); ++i) EXPECT_EQ(out[i], 100 + i % 32) << i;
  }
  return all;
}

TEST(Flags, OrderWhatComesBeforeTheAdditionAheadOfWhatComesBehindTheWait) {
  EXPECT_EQ(ErrorOfFlag(Mistake::kNone, 1), "");
  EXPECT_EQ(ErrorOfFlag(Mistake::kNone, 3), "");
}

TEST(Flags, DoNotHideTheRaceOfLanesThatDidNotMeetBeforeTheAddition) {
  if (!emulator::kChecksAccesses) GTEST_SKIP() << "no race detector in AddressSanitizer's builds";
  EXPECT_THAT(
      ErrorOfFlag(Mistake::kNotReleased, 1),
      AllOf(HasSubstr("race on global memory"), HasSubstr("WriteValue"), HasSubstr("ReadValue")));
}

TEST(Flags, AreNothingToThoseWhoDoNotWait) {
  if (!emulator::kChecksAccesses) GTEST_SKIP() << "no race detector in AddressSanitizer's builds";
  EXPECT_THAT(ErrorOfFlag(Mistake::kNotWaited, 1), HasSubstr("race on global memory"));
}

TEST(Flags, ThatNobodyAddsToEndTheBlock) {
  EXPECT_THAT(ErrorOfFlag(Mistake::kNeverAdded, 1),
              AllOf(HasSubstr("a word that is waited for is 0, and nobody adds to it"),
                    HasSubstr("waits for 1")));
}

}  // namespace
}  // namespace reprise::testing
