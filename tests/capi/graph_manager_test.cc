// SPDX-License-Identifier: Apache-2.0
// Graphs of the caller's own work through reprise.h: functions on the host device. On a GPU the
// caller's launches go to the native stream, which tests/graphs has through the C++ interface.
#include <gtest/gtest.h>
#include <reprise.h>

#include <cstdio>
#include <string>
#include <vector>

#include "tests/capi/handles.h"

namespace reprise::capi {
namespace {

// Work that says what it was asked for, and that counts when it runs.
struct Work {
  reprise_stream* stream = nullptr;  // that the last call was given
  std::vector<int64_t> enqueued;
  int ran = 0;

  static reprise_code Run(void* context, reprise_error*) {
    ++static_cast<Work*>(context)->ran;
    return REPRISE_OK;
  }
  static reprise_code Enqueue(void* context, reprise_stream* stream, int64_t capacity,
                              reprise_error* error) {
    auto* work = static_cast<Work*>(context);
    work->stream = stream;
    work->enqueued.push_back(capacity);
    return reprise_stream_enqueue_function(stream, Run, work, error);
  }
};

reprise_graph_options Options(const std::vector<int64_t>& buckets) {
  reprise_graph_options options;
  EXPECT_EQ(reprise_graph_options_init(&options, sizeof(options), nullptr), REPRISE_OK);
  options.buckets = buckets.data();
  options.num_buckets = buckets.size();
  return options;
}

ManagerHandle Capture(reprise_stream* stream, const reprise_graph_options& options, Work* work) {
  return Make<ManagerHandle>([&](reprise_graph_manager** made, reprise_error* error) {
    return reprise_graph_manager_create(stream, &options, Work::Enqueue, work, made, error);
  });
}

class CApiGraphManager : public ::testing::Test {
 protected:
  DeviceHandle device_ = HostDevice();
  StreamHandle stream_ = HostStream(device_.get());
  Work work_;
};

TEST_F(CApiGraphManager, CapturesEachBucketAndReplaysTheSmallestThatFits) {
  const std::vector<int64_t> buckets = {1, 8, 4};
  reprise_graph_options options = Options(buckets);
  options.name_prefix = "mine";
  const ManagerHandle manager = Capture(stream_.get(), options, &work_);
  EXPECT_EQ(work_.enqueued, (std::vector<int64_t>{8, 8, 4, 4, 1, 1}));  // warm-up and capture
  EXPECT_EQ(work_.ran, 3);
  EXPECT_NE(work_.stream, nullptr);

  reprise_replay_report report = {};
  report.struct_size = sizeof(report);
  EXPECT_DONE(reprise_graph_manager_replay(manager.get(), 5, &report, &error));
  EXPECT_STREQ(report.graph, "mine/8");
  EXPECT_EQ(report.capacity, 8);
  EXPECT_EQ(report.padding, 3);
  EXPECT_DONE(reprise_graph_manager_replay(manager.get(), 1, nullptr, &error));
  EXPECT_DONE(reprise_stream_synchronize(stream_.get(), &error));
  EXPECT_EQ(work_.ran, 5);
  EXPECT_EQ(work_.enqueued.size(), 6u);  // a replay asks for nothing

  EXPECT_DONE(reprise_graph_manager_run_eager(manager.get(), 3, &report, &error));
  EXPECT_STREQ(report.graph, "mine/4");
  EXPECT_EQ(work_.enqueued.back(), 4);
}

TEST_F(CApiGraphManager, SaysWhatWasCaptured) {
  const std::vector<int64_t> buckets = {2, 1};
  const ManagerHandle manager = Capture(stream_.get(), Options(buckets), &work_);
  ASSERT_EQ(reprise_graph_manager_num_buckets(manager.get()), 2u);
  reprise_bucket_info bucket = {};
  bucket.struct_size = sizeof(bucket);
  EXPECT_DONE(reprise_graph_manager_get_bucket(manager.get(), 1, &bucket, &error));
  EXPECT_STREQ(bucket.name, "graph/2");
  EXPECT_EQ(bucket.capacity, 2);
  EXPECT_EQ(bucket.num_kernel_nodes, 0);
  EXPECT_EQ(bucket.num_other_nodes, 1);
  EXPECT_GT(bucket.capture_ns, 0u);
  EXPECT_REFUSED(reprise_graph_manager_get_bucket(manager.get(), 2, &bucket, &error),
                 REPRISE_OUT_OF_RANGE, "index is 2; allowed: less than 2");
}

TEST_F(CApiGraphManager, WithoutWarmUpNothingRunsBeforeTheFirstReplay) {
  const std::vector<int64_t> buckets = {1, 2};
  reprise_graph_options options = Options(buckets);
  options.warm_up = 0;
  const ManagerHandle manager = Capture(stream_.get(), options, &work_);
  EXPECT_DONE(reprise_stream_synchronize(stream_.get(), &error));
  EXPECT_EQ(work_.ran, 0);
  EXPECT_EQ(work_.enqueued.size(), 2u);
}

TEST_F(CApiGraphManager, RefusesSizesBucketsAndCallsThatAreWrong) {
  const std::vector<int64_t> buckets = {1, 2};
  const ManagerHandle manager = Capture(stream_.get(), Options(buckets), &work_);
  EXPECT_REFUSED(reprise_graph_manager_replay(manager.get(), 3, nullptr, &error),
                 REPRISE_OUT_OF_RANGE, "size is 3; the largest bucket is 'graph/2'");
  EXPECT_REFUSED(reprise_graph_manager_replay(manager.get(), 0, nullptr, &error),
                 REPRISE_INVALID_ARGUMENT, "size is 0; allowed: 1 to 2");
  reprise_replay_report report = {};
  const int ran = work_.ran;
  EXPECT_REFUSED(reprise_graph_manager_replay(manager.get(), 1, &report, &error),
                 REPRISE_INVALID_ARGUMENT, "replay report: struct_size is 0");
  EXPECT_DONE(reprise_stream_synchronize(stream_.get(), &error));
  EXPECT_EQ(work_.ran, ran);

  reprise_graph_manager* made = nullptr;
  const auto create = [&](const reprise_graph_options& options, reprise_enqueue_fn enqueue,
                          reprise_error* error) {
    return reprise_graph_manager_create(stream_.get(), &options, enqueue, &work_, &made, error);
  };
  EXPECT_REFUSED(create(Options({}), Work::Enqueue, &error), REPRISE_INVALID_ARGUMENT,
                 "no buckets");
  EXPECT_REFUSED(create(Options({0}), Work::Enqueue, &error), REPRISE_INVALID_ARGUMENT,
                 "capacity is 0");
  EXPECT_REFUSED(create(Options({1}), nullptr, &error), REPRISE_INVALID_ARGUMENT,
                 "enqueue: got NULL");
  reprise_graph_options options = Options({1});
  options.buckets = nullptr;
  options.num_buckets = 2;
  EXPECT_REFUSED(create(options, Work::Enqueue, &error), REPRISE_INVALID_ARGUMENT,
                 "buckets: got NULL for 2 elements");
  options = Options(buckets);
  options.warm_up = 2;
  EXPECT_REFUSED(create(options, Work::Enqueue, &error), REPRISE_INVALID_ARGUMENT,
                 "warm_up is 2; allowed: 0, 1");
  EXPECT_EQ(made, nullptr);
}

reprise_code RefuseLarge(void*, reprise_stream*, int64_t capacity, reprise_error* error) {
  if (capacity < 2) return REPRISE_OK;
  std::snprintf(error->message, sizeof(error->message), "no room for %d",
                static_cast<int>(capacity));
  return REPRISE_RESOURCE_EXHAUSTED;
}
reprise_code SayNothing(void*, reprise_stream*, int64_t, reprise_error*) { return 99; }
reprise_code Wait(void*, reprise_stream* stream, int64_t, reprise_error* error) {
  return reprise_stream_synchronize(stream, error);
}

TEST_F(CApiGraphManager, WhatTheCallersFunctionSaysIsTheError) {
  const std::vector<int64_t> buckets = {2};
  reprise_graph_options options = Options(buckets);
  reprise_graph_manager* made = nullptr;
  EXPECT_REFUSED(
      reprise_graph_manager_create(stream_.get(), &options, RefuseLarge, nullptr, &made, &error),
      REPRISE_RESOURCE_EXHAUSTED, "bucket 'graph/2', warm-up: no room for 2");
  EXPECT_REFUSED(
      reprise_graph_manager_create(stream_.get(), &options, SayNothing, nullptr, &made, &error),
      REPRISE_UNKNOWN, "bucket 'graph/2', warm-up: enqueue returned 99");
  // Waiting does not go with capturing; the stream is usable afterwards.
  EXPECT_REFUSED(
      reprise_graph_manager_create(stream_.get(), &options, Wait, nullptr, &made, &error),
      REPRISE_FAILED_PRECONDITION, "bucket 'graph/2', capture");
  EXPECT_EQ(made, nullptr);
  const ManagerHandle manager = Capture(stream_.get(), options, &work_);
  EXPECT_DONE(reprise_graph_manager_replay(manager.get(), 2, nullptr, &error));
}

TEST_F(CApiGraphManager, OutlivesTheHandlesThatItWasMadeOf) {
  const std::vector<int64_t> buckets = {2};
  const ManagerHandle manager = Capture(stream_.get(), Options(buckets), &work_);
  stream_.reset();
  device_.reset();
  EXPECT_DONE(reprise_graph_manager_run_eager(manager.get(), 1, nullptr, &error));
  EXPECT_DONE(reprise_graph_manager_replay(manager.get(), 1, nullptr, &error));
  EXPECT_DONE(reprise_stream_synchronize(work_.stream, &error));
  EXPECT_EQ(work_.ran, 3);
}

}  // namespace
}  // namespace reprise::capi
