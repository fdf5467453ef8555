// SPDX-License-Identifier: Apache-2.0
// Right kernels come out right, for warps of 32 and 64, on one host thread and on several.
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/device.h"
#include "tests/emulator/emulator.h"
#include "tests/emulator/probe_kernels.h"
#include "tests/emulator/run_block.h"

namespace reprise::testing {
namespace {

using ::testing::Each;

class Warps : public ::testing::TestWithParam<unsigned> {};
INSTANTIATE_TEST_SUITE_P(Of, Warps, ::testing::Values(32u, 64u));

// Small integers: their sums are exact in any order.
std::vector<float> Numbers(unsigned n) {
  std::vector<float> x(n);
  for (unsigned i = 0; i < n; ++i) x[i] = static_cast<float>((i * 37) % 101) - 50.0f;
  return x;
}

TEST_P(Warps, SumABlockByShuffles) {
  for (const unsigned threads : {64u, 128u, 512u, 1024u}) {
    const std::vector<float> x = Numbers(threads);
    float sum = -1.0f;
    ReductionArgs args{.x = x.data(), .out = &sum};
    EXPECT_EQ(ErrorOf(&BlockSum, &args,
                      {.threads = threads, .warp_size = GetParam(), .shared_bytes = 128}),
              "");
    EXPECT_EQ(sum, std::accumulate(x.begin(), x.end(), 0.0f)) << threads;
  }
}

TEST_P(Warps, SumABlockByATree) {
  for (const unsigned threads : {64u, 512u}) {
    const std::vector<float> x = Numbers(threads);
    float sum = -1.0f;
    ReductionArgs args{.x = x.data(), .out = &sum};
    EXPECT_EQ(ErrorOf(&TreeSum, &args,
                      {.threads = threads, .warp_size = GetParam(), .shared_bytes = threads * 4}),
              "");
    EXPECT_EQ(sum, std::accumulate(x.begin(), x.end(), 0.0f)) << threads;
  }
}

TEST_P(Warps, PassValuesFromLaneToLane) {
  const unsigned warp_size = GetParam();
  std::vector<uint32_t> out(256, ~0u);
  ShuffleArgs args{.out = out.data()};
  EXPECT_EQ(
      ErrorOf(&RotateLanes, &args, {.threads = 256, .warp_size = warp_size, .shared_bytes = 0}),
      "");
  for (unsigned t = 0; t < 256; ++t) {
    EXPECT_EQ(out[t], t / warp_size * warp_size + (t + 1) % warp_size);
  }
}

TEST(Blocks, RunOnTwoHostThreadsAtOnce) {
  const std::vector<float> x = Numbers(256);
  const float expected = std::accumulate(x.begin(), x.end(), 0.0f);
  std::vector<std::string> errors(2);
  std::vector<int> num_wrong(2);
  const auto run = [&](int which) {
    for (int i = 0; i < 200; ++i) {
      float sum = -1.0f;
      ReductionArgs args{.x = x.data(), .out = &sum};
      errors[which] += ErrorOf(which == 0 ? &BlockSum : &TreeSum, &args,
                               {.threads = 256, .warp_size = 32, .shared_bytes = 1024});
      num_wrong[which] += sum == expected ? 0 : 1;
    }
  };
  std::thread other(run, 1);
  run(0);
  other.join();
  EXPECT_THAT(errors, Each(""));
  EXPECT_THAT(num_wrong, Each(0));
}

void RunTreeSum(const runtime::HostBlockContext& context, const void* args) {
  ReductionArgs of_block = *static_cast<const ReductionArgs*>(args);
  of_block.out += context.block_x;
  emulator::RunBlock(context, {32, 1024}, &TreeSum, &of_block);
}

void RunBrokenTreeSum(const runtime::HostBlockContext& context, const void* args) {
  ReductionArgs copy = *static_cast<const ReductionArgs*>(args);
  emulator::RunBlock(context, {32, 1024}, &TreeSumWithoutBarrier, &copy);
}

constexpr runtime::KernelDef kDefs[] = {{.name = "tree_sum", .host = &RunTreeSum},
                                        {.name = "broken_tree_sum", .host = &RunBrokenTreeSum}};

TEST(Blocks, AreKernelsOfTheHostDevice) {
  auto device = runtime::Device::Create({.kind = runtime::DeviceKind::kHost, .host_threads = 2});
  ASSERT_TRUE(device.ok()) << device.status();
  auto stream = (*device)->CreateStream();
  ASSERT_TRUE(stream.ok()) << stream.status();
  auto module = (*device)->Load({.kernels = kDefs, .cuda_fatbins = {}});
  ASSERT_TRUE(module.ok()) << module.status();
  const runtime::LaunchShape shape{.grid_x = 50, .grid_y = 1, .block = 128, .shared_bytes = 512};

  const std::vector<float> x = Numbers(128);
  std::vector<float> sums(50, -1.0f);
  const ReductionArgs args{.x = x.data(), .out = sums.data()};
  ASSERT_TRUE((*stream)->Launch(*(*module)->Find("tree_sum"), shape, args).ok());
  ASSERT_TRUE((*stream)->Synchronize().ok());
  EXPECT_THAT(sums, Each(std::accumulate(x.begin(), x.end(), 0.0f)));

  if (!emulator::kChecksAccesses) return;
  ASSERT_TRUE((*stream)->Launch(*(*module)->Find("broken_tree_sum"), shape, args).ok());
  const absl::Status status = (*stream)->Synchronize();
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("race on dynamic shared"));
}

}  // namespace
}  // namespace reprise::testing
