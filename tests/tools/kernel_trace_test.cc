// SPDX-License-Identifier: Apache-2.0
// Traced kernels: what CUPTI hands back, and what steps come to.
#include "tools/profile/kernel_trace.h"

#include <dlfcn.h>

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_codes.h"
#include "tests/testing/status_matchers.h"
#include "tools/profile/kernel_tracer.h"

#if __has_include(<cupti_activity.h>)
#include <cupti_activity.h>
#endif

namespace reprise::tools {
namespace {

using ::reprise::testing::StatusIs;
using ::testing::ElementsAre;

using ::reprise::testing::kUnavailable;

// ---- the tracer ----

class KernelTracerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    library_ = dlopen(REPRISE_FAKE_CUPTI, RTLD_NOW);
    ASSERT_NE(library_, nullptr) << dlerror();
    Find("FakeCuptiSet", &set_);
    Find("FakeCuptiLaunch", &launch_);
    Find("FakeCuptiIsEnabled", &is_enabled_);
    set_(130001, 0, 0);
  }
  void TearDown() override {
    set_(130001, 0, 0);
    dlclose(library_);
  }

  static absl::StatusOr<std::unique_ptr<KernelTracer>> Open() {
    return KernelTracer::Open(Cuda(), {REPRISE_FAKE_CUPTI});
  }
  static runtime::DeviceProperties Cuda() {
    runtime::DeviceProperties device;
    device.kind = runtime::DeviceKind::kCuda;
    return device;
  }

  void (*set_)(uint32_t, int, size_t) = nullptr;
  void (*launch_)(const char*, uint32_t, uint64_t, uint64_t) = nullptr;
  int (*is_enabled_)() = nullptr;

 private:
  template <typename Function>
  void Find(const char* name, Function* function) {
    *function = reinterpret_cast<Function>(dlsym(library_, name));
    ASSERT_NE(*function, nullptr) << name;
  }
  void* library_ = nullptr;
};

TEST_F(KernelTracerTest, TellsKernelsInTheOrderInWhichTheyBegan) {
  ASSERT_OK_AND_ASSIGN(const auto tracer, Open());
  EXPECT_EQ(tracer->source(), "CUPTI 130001");
  launch_("before", 1, 10, 20);
  ASSERT_OK(tracer->Start());
  launch_("second", 2, 60, 70);
  launch_("first", 2, 50, 65);
  launch_("third", 3, 80, 90);
  ASSERT_OK_AND_ASSIGN(const std::vector<TracedKernel> kernels, tracer->Stop());
  EXPECT_FALSE(is_enabled_());
  ASSERT_EQ(kernels.size(), 3u);
  EXPECT_EQ(kernels[0].name, "first");
  EXPECT_EQ(kernels[0].launch, 2u);
  EXPECT_EQ(kernels[0].begin_ns, 50u);
  EXPECT_EQ(kernels[0].end_ns, 65u);
  EXPECT_EQ(kernels[1].name, "second");
  EXPECT_EQ(kernels[2].name, "third");
  ASSERT_OK(tracer->Start());  // and once more, without those of before
  launch_("fourth", 4, 100, 101);
  ASSERT_OK_AND_ASSIGN(const std::vector<TracedKernel> more, tracer->Stop());
  ASSERT_EQ(more.size(), 1u);
  EXPECT_EQ(more[0].name, "fourth");
}

TEST_F(KernelTracerTest, DroppedRecordsAreAnError) {
  ASSERT_OK_AND_ASSIGN(const auto tracer, Open());
  ASSERT_OK(tracer->Start());
  set_(130001, 0, 7);
  launch_("kernel", 1, 1, 2);
  EXPECT_THAT(tracer->Stop(), StatusIs(absl::StatusCode::kDataLoss, "dropped 7 records"));
}

TEST_F(KernelTracerTest, KernelsOfUnknownTimesAreAnError) {
  ASSERT_OK_AND_ASSIGN(const auto tracer, Open());
  ASSERT_OK(tracer->Start());
  launch_("kernel", 1, 10, 20);
  launch_("untold", 1, 0, 0);
  EXPECT_THAT(tracer->Stop(), StatusIs(absl::StatusCode::kDataLoss, "dropped 1 records"));
}

TEST_F(KernelTracerTest, OneThatGoesWhileItTracesStops) {
  {
    ASSERT_OK_AND_ASSIGN(const auto tracer, Open());
    ASSERT_OK(tracer->Start());
    EXPECT_TRUE(is_enabled_());
    EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kFailedPrecondition, "one tracer at a time"));
  }
  EXPECT_FALSE(is_enabled_());
  EXPECT_OK(Open());
}

TEST_F(KernelTracerTest, SaysWhyThereIsNone) {
  EXPECT_THAT(KernelTracer::Open({}), StatusIs(absl::StatusCode::kUnimplemented, "'host'"));
  EXPECT_THAT(KernelTracer::Open(Cuda(), {"/no/such/cupti.so"}),
              StatusIs(kUnavailable, "cannot open /no/such/cupti.so"));
  EXPECT_THAT(KernelTracer::Open(Cuda(), {"/no/such/a.so", "/no/such/b.so"}),
              StatusIs(kUnavailable, "none of /no/such/a.so, /no/such/b.so"));
  EXPECT_THAT(KernelTracer::Open(Cuda(), {"libm.so.6"}),
              StatusIs(kUnavailable, "libm.so.6 has no function cuptiGetVersion"));
  for (const uint32_t version : {14u, 140000u}) {
    set_(version, 0, 0);
    EXPECT_THAT(Open(), StatusIs(kUnavailable, "allowed: those of CUDA 11.2 to 13")) << version;
  }
  set_(28, 15, 0);
  ASSERT_OK_AND_ASSIGN(const auto tracer, Open());
  EXPECT_THAT(tracer->Start(),
              StatusIs(kUnavailable, "cuptiActivityEnable: CUPTI_ERROR_NOT_INITIALIZED (15)"));
}

#if __has_include(<cupti_activity.h>)
// The fake's records lie as those of the toolkit that is here.
TEST_F(KernelTracerTest, RecordsLieAsCuptiHasThem) {
  using Record = CUpti_ActivityKernel6;  // that later ones begin with
  EXPECT_EQ(offsetof(Record, kind), 0u);
  EXPECT_EQ(offsetof(Record, start), 16u);
  EXPECT_EQ(offsetof(Record, end), 24u);
  EXPECT_EQ(offsetof(Record, correlationId), 92u);
  EXPECT_EQ(offsetof(Record, name), 104u);
  EXPECT_EQ(static_cast<int>(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL), 10);
}
#endif

// ---- steps ----

// A launch of kernels a, b, c that begins at `at`: b begins while a runs, c after a gap.
void AddStep(uint64_t launch, uint64_t at, std::vector<TracedKernel>* kernels) {
  kernels->push_back({.name = "a", .launch = launch, .begin_ns = at, .end_ns = at + 100});
  kernels->push_back({.name = "b", .launch = launch, .begin_ns = at + 80, .end_ns = at + 150});
  kernels->push_back({.name = "c", .launch = launch, .begin_ns = at + 160, .end_ns = at + 200});
}

const std::vector<std::string> kNames = {"a", "b", "c"};

TEST(KernelTrace, TellsGapsAndWhatOverlaps) {
  std::vector<TracedKernel> kernels;
  AddStep(7, 1000, &kernels);
  KernelTrace trace;
  EXPECT_TRUE(trace.empty());
  ASSERT_OK(trace.Add(kernels, kNames, 1));
  EXPECT_EQ(trace.num_steps(), 1u);
  EXPECT_THAT(trace.span_ns().values(), ElementsAre(200));
  EXPECT_THAT(trace.gap_ns().values(), ElementsAre(10));
  EXPECT_THAT(trace.overlap_ns().values(), ElementsAre(20));
  const std::vector<LaunchTrace> launches = trace.MeanLaunches();
  ASSERT_EQ(launches.size(), 3u);
  EXPECT_EQ(launches[1].begin_ns, 80);
  EXPECT_EQ(launches[1].duration_ns, 70);
  EXPECT_EQ(launches[1].exposed_ns, 50);
  EXPECT_EQ(launches[1].gap_ns, 0);
  EXPECT_EQ(launches[2].gap_ns, 10);
  double sum = 0;
  for (const LaunchTrace& launch : launches) sum += launch.exposed_ns + launch.gap_ns;
  EXPECT_EQ(sum, 200);
}

// c ends before b does, which it began behind.
TEST(KernelTrace, WhatIsHiddenBehindALongerKernelIsNotExposed) {
  const std::vector<TracedKernel> kernels = {
      {.name = "a", .launch = 1, .begin_ns = 0, .end_ns = 10},
      {.name = "b", .launch = 1, .begin_ns = 10, .end_ns = 100},
      {.name = "c", .launch = 1, .begin_ns = 20, .end_ns = 50}};
  KernelTrace trace;
  ASSERT_OK(trace.Add(kernels, kNames, 1));
  EXPECT_EQ(trace.MeanLaunches()[2].exposed_ns, 0);
  EXPECT_THAT(trace.span_ns().values(), ElementsAre(100));
  EXPECT_THAT(trace.overlap_ns().values(), ElementsAre(30));
}

TEST(KernelTrace, TakesTheLastStepsAndLeavesOtherLaunchesOut) {
  std::vector<TracedKernel> kernels;
  AddStep(1, 1000, &kernels);  // adds the rows: not measured
  AddStep(2, 2000, &kernels);
  kernels.push_back({.name = "stamp", .launch = 3, .begin_ns = 2500, .end_ns = 2600});
  AddStep(4, 3000, &kernels);
  kernels.back().end_ns += 100;
  KernelTrace trace;
  ASSERT_OK(trace.Add(kernels, kNames, 2));
  EXPECT_THAT(trace.span_ns().values(), ElementsAre(200, 300));
  EXPECT_EQ(trace.MeanLaunches()[2].duration_ns, 90);
  ASSERT_OK(trace.Add(kernels, kNames, 1));
  EXPECT_THAT(trace.span_ns().values(), ElementsAre(200, 300, 300));
}

TEST(KernelTrace, KernelsOfAnotherGraphAreRefused) {
  std::vector<TracedKernel> kernels;
  AddStep(1, 1000, &kernels);
  KernelTrace trace;
  using ::reprise::testing::kInternal;
  EXPECT_THAT(trace.Add(kernels, kNames, 2),
              StatusIs(kInternal, "1 launches of 3 kernels were traced, expected 2"));
  kernels[1].name = "x";
  EXPECT_THAT(trace.Add(kernels, kNames, 1),
              StatusIs(kInternal, "kernel 1 of a traced step is x, expected b"));
  kernels[1] = {.name = "b", .launch = 1, .begin_ns = 1080, .end_ns = 0};
  EXPECT_THAT(trace.Add(kernels, kNames, 1),
              StatusIs(kInternal, "kernel 1 of a traced step, b, ends before it begins"));
  EXPECT_TRUE(trace.empty());
}

}  // namespace
}  // namespace reprise::tools
