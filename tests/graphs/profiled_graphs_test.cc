// SPDX-License-Identifier: Apache-2.0
// ProfiledGraphs over anyone's work: a stamp behind every launch, labels as they were given, and
// what is refused.
#include "graphs/profiled_graphs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/attention/attention.h"
#include "kernels/fill/fill.h"
#include "kernels/linear/linear.h"
#include "kernels/stamp/stamp.h"
#include "runtime/status_macros.h"
#include "tests/testing/guarded_memory.h"
#include "tests/testing/kernel_test.h"
#include "tests/testing/probe_kernels.h"
#include "tests/testing/status_codes.h"
#include "tests/testing/status_matchers.h"

namespace reprise::graphs {
namespace {

using kernels::AttentionPhase;
using kernels::LinearCandidate;
using ::reprise::testing::GuardedMemory;
using ::reprise::testing::ProbeAffineArgs;
using ::reprise::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::StartsWith;

class ProfiledGraphsTest : public testing::KernelTest {
 protected:
  StampFn Stamp() const {
    return [this](runtime::Stream& stream, uint64_t* out) {
      return kernels::Stamp(stream, kernels(), {.out = out});
    };
  }
  // As many launches as the bucket's capacity, one element each.
  EnqueueFn Fills(float* out) const {
    return [this, out](runtime::Stream& stream, const Bucket& bucket) {
      for (int64_t i = 0; i < bucket.capacity; ++i)
        REPRISE_RETURN_IF_ERROR(kernels::RandomFill(
            stream, kernels(), {.out = out + i, .dtype = kernels().dtype, .count = 1, .seed = 1}));
      return absl::OkStatus();
    };
  }
};
REPRISE_FOR_EVERY_DEVICE(ProfiledGraphsTest);

TEST_P(ProfiledGraphsTest, CapturesAnyonesWorkWithAStampBehindEachKernel) {
  GuardedMemory memory(device(), stream());
  auto* out = memory.Poisoned<float>(64);
  ASSERT_OK_AND_ASSIGN(const auto profiled,
                       ProfiledGraphs::Create(device(), stream(), Stamp(),
                                              {.buckets = {3, 7}, .name_prefix = "t"}, Fills(out)));
  EXPECT_EQ(profiled->graphs().captured()[0].num_kernel_nodes, 6);
  EXPECT_EQ(profiled->graphs().captured()[1].num_kernel_nodes, 14);
  EXPECT_EQ(profiled->graphs().captured()[1].num_other_nodes, 0);
  ASSERT_OK(profiled->graphs().Replay(2).status());
  std::vector<uint64_t> done;
  ASSERT_OK(profiled->Read(2, &done));
  ASSERT_EQ(done.size(), 3u);
  EXPECT_GT(done[0], 0u);
  EXPECT_LE(done[0], done[1]);
  EXPECT_LE(done[1], done[2]);
  ASSERT_OK_AND_ASSIGN(const auto launches, profiled->LaunchesOf(7));
  EXPECT_EQ(launches.size(), 7u);
  EXPECT_EQ(launches[0].op, "random_fill");
  memory.Check();
  EXPECT_FALSE(std::isnan(memory.Read(out)[2]));
  EXPECT_THAT(profiled->Read(8, &done), StatusIs(absl::StatusCode::kOutOfRange, "size is 8"));
}

TEST_P(ProfiledGraphsTest, RefusesWorkThatChangesItsLaunches) {
  GuardedMemory memory(device(), stream());
  auto* out = memory.Poisoned<float>(3);
  int launches = 1;
  int change = 1;
  const auto enqueue = [&](runtime::Stream& s, const Bucket&) {
    for (int i = 0; i < launches; ++i)
      REPRISE_RETURN_IF_ERROR(
          kernels::NanFill(s, kernels(), {.out = out + i, .dtype = kernels().dtype, .count = 1}));
    launches += change;
    return absl::OkStatus();
  };
  const auto create = [&] {
    return ProfiledGraphs::Create(device(), stream(), Stamp(), {.buckets = {1}}, enqueue);
  };
  EXPECT_THAT(create(), StatusIs(absl::StatusCode::kInternal, "launch 2 of a profiled graph"));
  EXPECT_THAT(create(), StatusIs(absl::StatusCode::kInternal, "listed before"));
  launches = 3;
  change = -1;
  EXPECT_THAT(create(), StatusIs(absl::StatusCode::kInternal, "3 launches were listed before"));
}

TEST_P(ProfiledGraphsTest, RefusesEmptyFunctions) {
  using ::reprise::testing::kInvalid;
  const GraphManagerOptions options{.buckets = {1}};
  EXPECT_THAT(ProfiledGraphs::Create(device(), stream(), Stamp(), options, nullptr),
              StatusIs(kInvalid, "the enqueue function is empty"));
  EXPECT_THAT(ProfiledGraphs::Create(device(), stream(), nullptr, options, Fills(nullptr)),
              StatusIs(kInvalid, "the stamp function is empty"));
}

// Our own ops of several kernels: each launch is labelled as the kernel that was chosen for it.
using ProfiledOpsTest = testing::KernelTest;
REPRISE_FOR_EVERY_DEVICE_AND_DTYPE(ProfiledOpsTest);

TEST_P(ProfiledOpsTest, AreLabelledByTheKernelChosenForThem) {
  const kernels::LinearWeights weights{
      .format = kernels::WeightFormatOf(dtype()), .out_features = 48, .in_features = 64};
  kernels::AttentionArgs attention;
  attention.max_splits = 1;
  attention.num_heads = 4;
  attention.kv = {.num_kv_heads = 2, .head_dim = 64, .block_size = 16, .dtype = dtype()};
  const EnqueueFn enqueue = [&](runtime::Stream& s, const Bucket&) {
    for (const uint32_t rows : {1u, 64u, 4096u})
      REPRISE_RETURN_IF_ERROR(kernels::Linear(s, kernels(), weights, {}, rows));
    REPRISE_RETURN_IF_ERROR(
        kernels::Linear(s, kernels(), weights, {}, 1, LinearCandidate::kPortable));
    REPRISE_RETURN_IF_ERROR(kernels::Attention(s, kernels(), attention, AttentionPhase::kDecode));
    return kernels::Attention(s, kernels(), attention, AttentionPhase::kPrefill);
  };
  const StampFn stamp = [this](runtime::Stream& s, uint64_t* out) {
    return kernels::Stamp(s, kernels(), {.out = out});
  };
  // Captured, never run: there is nothing to compute on.
  ASSERT_OK_AND_ASSIGN(const auto profiled,
                       ProfiledGraphs::Create(device(), stream(), stamp,
                                              {.buckets = {1}, .warm_up = false}, enqueue));
  ASSERT_OK_AND_ASSIGN(const auto launches, profiled->LaunchesOf(1));
  ASSERT_EQ(launches.size(), 6u);
  for (size_t i = 0; i < launches.size(); ++i) {
    const ProfiledLaunch& launch = launches[i];
    // "reprise_<op>_<dtype>", and a tile where it has one.
    EXPECT_THAT(launch.kernel,
                StartsWith(absl::StrCat("reprise_", launch.op, "_", std::string(NameOf(dtype())))));
    EXPECT_EQ(launch.shape, i < 4 ? "48x64" : "");
  }
  EXPECT_EQ(launches[3].op, "linear_portable");
}

// The kernels of an embedder, who brings a stamp of its own and labels what it likes.
TEST(ProfiledGraphsLabels, AreThoseOfWhoeverEnqueues) {
  ASSERT_OK_AND_ASSIGN(const auto device, runtime::Device::Create({}));
  ASSERT_OK_AND_ASSIGN(const auto stream, device->CreateStream());
  ASSERT_OK_AND_ASSIGN(const auto module, device->Load(testing::ProbeImage()));
  ASSERT_OK_AND_ASSIGN(const runtime::Kernel affine, module->Find(testing::kProbeAffine));
  uint64_t cell = 1;
  uint64_t ticks = 0;
  const StampFn stamp = [&](runtime::Stream& s, uint64_t* out) {
    return s.Launch(affine, {}, ProbeAffineArgs{out, 0, ++ticks});
  };
  const EnqueueFn enqueue = [&](runtime::Stream& s, const Bucket&) {
    const ProbeAffineArgs args{&cell, 2, 0};
    REPRISE_RETURN_IF_ERROR(s.Launch(affine, {}, args));
    REPRISE_RETURN_IF_ERROR(s.Launch(affine, {.label = {.op = "double"}}, args));
    return s.Launch(affine, {.label = {.op = "double", .rows = 3, .columns = 40}}, args);
  };
  ASSERT_OK_AND_ASSIGN(
      const auto profiled,
      ProfiledGraphs::Create(*device, *stream, stamp, {.buckets = {1}, .warm_up = false}, enqueue));
  ASSERT_OK_AND_ASSIGN(const auto launches, profiled->LaunchesOf(1));
  const std::string kernel = testing::kProbeAffine;
  EXPECT_THAT(launches,
              ElementsAre(ProfiledLaunch{.kernel = kernel, .op = kernel, .shape = ""},
                          ProfiledLaunch{.kernel = kernel, .op = "double", .shape = ""},
                          ProfiledLaunch{.kernel = kernel, .op = "double", .shape = "3x40"}));
  ASSERT_OK(profiled->graphs().Replay(1).status());
  std::vector<uint64_t> done;
  ASSERT_OK(profiled->Read(1, &done));
  EXPECT_THAT(done, ElementsAre(1u, 2u, 3u));
  EXPECT_EQ(cell, 8u);
}

}  // namespace
}  // namespace reprise::graphs
