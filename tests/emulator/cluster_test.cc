// SPDX-License-Identifier: Apache-2.0
// Blocks of a cluster that send to each other come out right, and each mistake is found, whatever
// the schedule.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
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
using Mistake = ClusterArgs::Mistake;

constexpr char kSkipped[] = "no race detector in AddressSanitizer's builds";
constexpr unsigned kSeeds = 20;
constexpr unsigned kRounds = 5;

BlockShape ShapeOf(unsigned cluster) {
  return {.threads = 64,
          .warp_size = 32,
          .shared_bytes = kClusterSharedBytes,
          .shared_limit_bytes = 2 << 20,
          .waits_for_previous = false,
          .cluster = cluster};
}

// What lane `lane` of a block adds up: what another lane of the block before it sent.
float SumFor(unsigned block, unsigned cluster, unsigned lane) {
  const unsigned from = block / cluster * cluster + (block + cluster - 1) % cluster;
  float sum = 0;
  for (unsigned round = 0; round < kRounds; ++round)
    sum += 4 * static_cast<float>(from * 1000 + round * 32 + (lane ^ 1)) + 6;
  return sum;
}

void ExpectSums(const std::vector<float>& out, unsigned cluster) {
  for (unsigned i = 0; i < out.size(); ++i) EXPECT_EQ(out[i], SumFor(i / 32, cluster, i % 32)) << i;
}

// Two clusters. Every schedule must show a mistake: then what they throw.
std::string ErrorOfRing(Mistake mistake, unsigned cluster = 2) {
  std::string all;
  for (unsigned seed = 1; seed <= kSeeds; ++seed) {
    emulator::SetScheduleSeed(seed);
    const unsigned num_blocks = 2 * cluster;
    std::vector<float> out(num_blocks * 32);
    ClusterArgs args{.cluster = static_cast<int>(cluster),
                     .rounds = kRounds,
                     .out = out.data(),
                     .mistake = mistake};
    const std::string error = ErrorOfGrid(&PassAround, &args, ShapeOf(cluster), num_blocks, seed);
    if (error.empty() && mistake != Mistake::kNone) return "";
    all += error + "\n";
    if (mistake != Mistake::kNone) continue;
    EXPECT_EQ(error, "");
    ExpectSums(out, cluster);
  }
  return mistake == Mistake::kNone ? "" : all;
}

TEST(Clusters, ExchangeValuesRoundByRound) {
  for (const unsigned cluster : {2u, 3u, 8u}) EXPECT_EQ(ErrorOfRing(Mistake::kNone, cluster), "");
}

void RunPassAround(const runtime::HostBlockContext& context, const void* args) {
  emulator::RunBlock(context, {.warp_size = 32, .shared_bytes = 1 << 16, .cluster = 2}, &PassAround,
                     const_cast<void*>(args), sizeof(ClusterArgs));
}

class ClustersOnADevice : public ::testing::Test {
 protected:
  void SetUp() override {
    static constexpr runtime::KernelDef kKernel{"pass_around", &RunPassAround};
    auto device = runtime::CreateHostDevice({.host_threads = 3}, {.max_us = 1});
    ASSERT_TRUE(device.ok()) << device.status();
    device_ = *std::move(device);
    auto module = device_->Load({.kernels = {&kKernel, 1}, .cuda_fatbins = {}});
    ASSERT_TRUE(module.ok()) << module.status();
    module_ = *std::move(module);
    const auto kernel = module_->Find("pass_around");
    ASSERT_TRUE(kernel.ok()) << kernel.status();
    kernel_ = *kernel;
  }
  // Five clusters.
  absl::Status Launch(runtime::Stream& stream, const ClusterArgs& args) const {
    return stream.Launch(kernel_, {.grid_x = 10, .block = 64, .shared_bytes = kClusterSharedBytes},
                         args);
  }

  std::unique_ptr<runtime::Device> device_;
  std::unique_ptr<runtime::KernelModule> module_;
  runtime::Kernel kernel_;
};

TEST_F(ClustersOnADevice, Run) {
  std::vector<float> out(10 * 32);
  for (const Mistake mistake : {Mistake::kNone, Mistake::kNone, Mistake::kNoStore}) {
    auto stream = device_->CreateStream();
    ASSERT_TRUE(stream.ok()) << stream.status();
    const ClusterArgs args{.cluster = 2, .rounds = kRounds, .out = out.data(), .mistake = mistake};
    for (int i = 0; i < 5; ++i) {
      const absl::Status launched = Launch(**stream, args);
      EXPECT_TRUE(launched.ok() || mistake != Mistake::kNone) << launched;
    }
    const absl::Status status = (*stream)->Synchronize();
    EXPECT_EQ(status.ok(), mistake == Mistake::kNone) << status;
    if (mistake == Mistake::kNone) ExpectSums(out, 2);
  }
}

// Clusters of two launches of one kernel come together at the same time.
TEST_F(ClustersOnADevice, OfTwoStreamsAreKeptApart) {
  std::vector<float> out[2];
  std::vector<std::unique_ptr<runtime::Stream>> streams;
  for (std::vector<float>& sums : out) {
    sums.resize(10 * 32);
    auto stream = device_->CreateStream();
    ASSERT_TRUE(stream.ok()) << stream.status();
    streams.push_back(*std::move(stream));
  }
  for (int i = 0; i < 20; ++i) {
    const ClusterArgs args{.cluster = 2, .rounds = kRounds, .out = out[i % 2].data()};
    const absl::Status launched = Launch(*streams[static_cast<size_t>(i % 2)], args);
    EXPECT_TRUE(launched.ok()) << launched;
  }
  for (int i = 0; i < 2; ++i) {
    const absl::Status status = streams[static_cast<size_t>(i)]->Synchronize();
    EXPECT_TRUE(status.ok()) << status;
    ExpectSums(out[i], 2);
  }
}

TEST(Clusters, RunAgainAfterAMistake) {
  EXPECT_NE(ErrorOfRing(Mistake::kNoStore), "");
  EXPECT_EQ(ErrorOfRing(Mistake::kNone), "");
}

TEST(Clusters, OfABlockThatComesTwiceAreRefused) {
  ClusterArgs args{.cluster = 2, .rounds = 1};
  EXPECT_EQ(ErrorOf(&PassAround, &args, ShapeOf(2), 0, 2), "");
  EXPECT_THAT(ErrorOf(&PassAround, &args, ShapeOf(2), 0, 2), HasSubstr("block (0, 0) came twice"));
}

TEST(Clusters, OfAShapeThatCannotBeAreRefused) {
  ClusterArgs args;
  BlockShape shape = ShapeOf(2);
  EXPECT_THAT(ErrorOf(&PassAround, &args, shape, 0, 3), HasSubstr("clusters of 2 blocks"));
  shape.threads = 544;
  EXPECT_THAT(ErrorOf(&PassAround, &args, shape, 0, 2), HasSubstr("at most 1024 threads in all"));
}

// ---- what is found in any build ----

TEST(ClusterMistakes, ThatNobodyCanGoOnIsSaidAtOnceWithWhoWaitsWhere) {
  EXPECT_THAT(ErrorOfRing(Mistake::kNoStore),
              AllOf(HasSubstr("divergent block barrier: nobody can go on"),
                    ContainsRegex("block .0, 0.: 32 threads .32-63. wait for phase 0")));
  EXPECT_THAT(ErrorOfRing(Mistake::kNoArrival),
              AllOf(HasSubstr("nobody can go on"),
                    ContainsRegex("block .1, 0.: 32 threads .0-31. wait for phase 0")));
  EXPECT_THAT(ErrorOfRing(Mistake::kDivergentCluster),
              AllOf(HasSubstr("divergent cluster barrier: nobody can go on"),
                    HasSubstr("block (0, 0): 64 threads (0-63) wait for the cluster"),
                    HasSubstr("block (1, 0): 64 threads (0-63) ended")));
}

TEST(ClusterMistakes, OfSendingToABlockThatEndsAreFound) {
  EXPECT_THAT(ErrorOfRing(Mistake::kEnds),
              AnyOf(HasSubstr("is in block (0, 0), which has ended"),
                    HasSubstr("block (0, 0) ended with a peer's store in flight")));
}

TEST(ClusterMistakes, OfArrivalsThatNobodyWaitsForAreFound) {
  EXPECT_THAT(ErrorOfRing(Mistake::kArrivalTooMany),
              AnyOf(HasSubstr("a block ended without waiting for its peers: nobody waited for "
                              "phase 4 of the barrier"),
                    HasSubstr("which has ended")));
}

TEST(ClusterMistakes, InAddressesAreFound) {
  EXPECT_THAT(ErrorOfRing(Mistake::kWrongBlock),
              AllOf(HasSubstr("in block 2 of the cluster; allowed"), HasSubstr("blocks 0 to 1")));
  EXPECT_THAT(ErrorOfRing(Mistake::kUnaligned), HasSubstr("at a multiple of 16 bytes"));
  EXPECT_THAT(ErrorOfRing(Mistake::kBeyond), HasSubstr("for shared memory at a multiple"));
  EXPECT_THAT(ErrorOfRing(Mistake::kNoPeerAddress),
              HasSubstr("allowed: what PeerAddress returned"));
  EXPECT_THAT(ErrorOfRing(Mistake::kOwnBarrier), HasSubstr("allowed: both in one block"));
  EXPECT_THAT(ErrorOfRing(Mistake::kReadsPeer),
              HasSubstr("taken for one of the block's own; allowed: StoreAtPeer and"));
}

TEST(ClusterMistakes, OfAWaitThatIsNoneForPeersAreFound) {
  EXPECT_THAT(ErrorOfRing(Mistake::kPlainWait), HasSubstr("allowed: BarrierWaitForPeers"));
}

// ---- what the race detector finds ----

class ClusterRaces : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!emulator::kChecksAccesses) GTEST_SKIP() << kSkipped;
  }
};

TEST_F(ClusterRaces, OfReadsBeforeWhatIsSentHasLandedAreFound) {
  EXPECT_THAT(ErrorOfRing(Mistake::kNoWait),
              AnyOf(HasSubstr("copy in flight to"), HasSubstr("race on"), HasSubstr("uninitial")));
}

TEST_F(ClusterRaces, OfSendingOverWhatMayStillBeReadAreFound) {
  for (const Mistake mistake : {Mistake::kNoWaitForEmpty, Mistake::kNoSyncWarp}) {
    EXPECT_THAT(ErrorOfRing(mistake), AnyOf(HasSubstr("copy in flight to"), HasSubstr("race on")));
  }
}

TEST_F(ClusterRaces, OfArrivalsThatOvertakeReadsAreFound) {
  EXPECT_THAT(ErrorOfRing(Mistake::kNotFinished),
              AllOf(HasSubstr("BarrierArriveAtPeer before reads have finished"),
                    ContainsRegex("read at .*cluster_kernels.cc:[0-9]+")));
}

TEST_F(ClusterRaces, OfBarriersThatPeersDoNotKnowYetAreFound) {
  EXPECT_THAT(ErrorOfRing(Mistake::kNotInitialised),
              AnyOf(HasSubstr("uninitialised"), HasSubstr("race on")));
}

TEST_F(ClusterRaces, WithinABlockAreFound) {
  EXPECT_THAT(ErrorOfRing(Mistake::kNoBlockBarrier),
              AnyOf(HasSubstr("race on"), HasSubstr("uninitialised")));
}

std::string ErrorOfGlobal(bool conflicting) {
  std::string all;
  for (unsigned seed = 1; seed <= kSeeds; ++seed) {
    emulator::SetScheduleSeed(seed);
    std::vector<uint32_t> words(4), out(4);
    ClusterGlobalArgs args{.words = words.data(), .out = out.data(), .conflicting = conflicting};
    const std::string error = ErrorOfGrid(&TellPeerByGlobal, &args, ShapeOf(2), 4, seed);
    if (error.empty() && conflicting) return "";
    all += error;
    if (conflicting) {
      // Either of the two clusters.
      EXPECT_THAT(
          error,
          AnyOf(AllOf(HasSubstr("block (0, 0), thread 0"), HasSubstr("block (1, 0), thread 0")),
                AllOf(HasSubstr("block (2, 0), thread 0"), HasSubstr("block (3, 0), thread 0"))));
      continue;
    }
    EXPECT_THAT(out, ::testing::ElementsAre(2, 1, 4, 3));
  }
  return all;
}

TEST_F(ClusterRaces, OnGlobalMemoryAreFoundWhereBlocksHaveNotMet) {
  EXPECT_EQ(ErrorOfGlobal(false), "");
  EXPECT_THAT(ErrorOfGlobal(true), HasSubstr("race on global memory"));
}

TEST_F(ClusterRaces, OnGlobalMemoryAreFoundBetweenClusters) {
  std::vector<uint32_t> words(8);
  GridRaceArgs args{.words = words.data(), .conflicting = true};
  EXPECT_THAT(ErrorOfGrid(&StoreToOneWord, &args, ShapeOf(2), 4, 1),
              HasSubstr("race on global memory"));
  args.conflicting = false;
  EXPECT_EQ(ErrorOfGrid(&StoreToOneWord, &args, ShapeOf(2), 4, 1), "");
}

}  // namespace
}  // namespace reprise::testing
