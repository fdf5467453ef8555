// SPDX-License-Identifier: Apache-2.0
// What graph managers of reprise.h do beyond one graph per capacity captured at start: other modes,
// two dimensions, policies, limits, and what they find out about graphs. The host device; kernels
// are the tests' own probes, which C has no call to launch there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <reprise.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "capi/handles.h"
#include "graphs/bucket.h"
#include "runtime/memory/buffer.h"
#include "tests/capi/handles.h"
#include "tests/graphs/bench.h"

namespace reprise::capi {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// What a function was told of a bucket.
struct Told {
  std::string name;
  int64_t rows, tokens;
  uint64_t index, capturing;
  bool operator==(const Told&) const = default;
};

// Adds 1 to as many numbers as the bucket has cells.
struct Work {
  std::vector<Told> told;
  std::vector<std::thread::id> threads;
  std::vector<size_t> workspace_bytes;
  std::vector<int64_t> cells = std::vector<int64_t>(64);
  std::string fail;  // the bucket that fails
  std::string begin_error;
  std::promise<void> begin;  // lets the thread that captures begin
  std::vector<std::string> progress;
  int64_t pick = 0;

  static Work& Of(void* context) { return *static_cast<Work*>(context); }
  static reprise_code Run(void* context, reprise_error*) {
    for (int64_t& cell : Of(context).cells) ++cell;
    return REPRISE_OK;
  }
  static reprise_code Enqueue(void* context, reprise_stream* stream, const reprise_bucket* bucket,
                              reprise_error* error) {
    Work& work = Of(context);
    EXPECT_EQ(bucket->struct_size, sizeof(*bucket));
    work.told.push_back(
        {bucket->name, bucket->rows, bucket->tokens, bucket->index, bucket->capturing});
    work.threads.push_back(std::this_thread::get_id());
    work.workspace_bytes.push_back(bucket->workspace == nullptr ? 0 : bucket->workspace_bytes);
    if (work.fail == bucket->name && bucket->capturing != 0) {
      std::snprintf(error->message, sizeof(error->message), "no weights");
      return REPRISE_NOT_FOUND;
    }
    return reprise_stream_enqueue_function(stream, Run, &work, error);
  }
  static int64_t Pick(void* context, const reprise_batch_shape* buckets, size_t num_buckets,
                      const reprise_batch_shape* batch) {
    EXPECT_EQ(num_buckets, 3u);
    EXPECT_EQ(buckets[1].rows, 2);
    EXPECT_EQ(batch->tokens, 1);
    return Of(context).pick;
  }
  static size_t Workspace(void*, const reprise_batch_shape* bucket) {
    return static_cast<size_t>(bucket->rows * bucket->tokens) * 8;
  }
  static reprise_code Begin(void* context, reprise_error* error) {
    Work& work = Of(context);
    work.begin.get_future().wait();
    if (work.begin_error.empty()) return REPRISE_OK;
    std::snprintf(error->message, sizeof(error->message), "%s", work.begin_error.c_str());
    return REPRISE_ABORTED;
  }
  static void Progress(void* context, const char* bucket, uint64_t done, uint64_t total) {
    Of(context).progress.push_back(std::string(bucket) + " " + std::to_string(done) + "/" +
                                   std::to_string(total));
  }
};

constexpr int64_t kBuckets[] = {1, 2, 4};

reprise_graph_options Options() {
  reprise_graph_options options;
  EXPECT_EQ(reprise_graph_options_init(&options, sizeof(options), nullptr), REPRISE_OK);
  options.buckets = kBuckets;
  options.num_buckets = 3;
  options.enqueue_bucket = Work::Enqueue;
  options.warm_up = 0;
  return options;
}

class CApiGraphModes : public ::testing::Test {
 protected:
  ManagerHandle Create(const reprise_graph_options& options) {
    return Make<ManagerHandle>([&](reprise_graph_manager** made, reprise_error* error) {
      return reprise_graph_manager_create(stream_.get(), &options, nullptr, &work_, made, error);
    });
  }
  void Refused(const reprise_graph_options& options, reprise_code code, const char* words) {
    reprise_graph_manager* made = nullptr;
    EXPECT_REFUSED(
        reprise_graph_manager_create(stream_.get(), &options, nullptr, &work_, &made, &error), code,
        words);
    EXPECT_EQ(made, nullptr);
  }
  reprise_replay_report Replay(const ManagerHandle& manager, int64_t rows, int64_t tokens = 1) {
    reprise_replay_report report = {};
    report.struct_size = sizeof(report);
    EXPECT_DONE(reprise_graph_manager_replay_batch(manager.get(), rows, tokens, &report, &error));
    EXPECT_DONE(reprise_stream_synchronize(stream_.get(), &error));
    return report;
  }
  static reprise_bucket_report Report(const ManagerHandle& manager, size_t index) {
    reprise_bucket_report report = {};
    report.struct_size = sizeof(report);
    EXPECT_DONE(reprise_graph_manager_get_report(manager.get(), index, &report, &error));
    return report;
  }
  static std::vector<int> States(const ManagerHandle& manager) {
    std::vector<int> states;
    for (size_t i = 0; i < reprise_graph_manager_num_buckets(manager.get()); ++i)
      states.push_back(Report(manager, i).state);
    return states;
  }

  Work work_;  // the stream, which ends before it, may still run some
  DeviceHandle device_ = HostDevice();
  StreamHandle stream_ = HostStream(device_.get());
};

TEST_F(CApiGraphModes, BucketsHaveTwoDimensionsAndShareAWorkspace) {
  const reprise_batch_shape shapes[] = {{8, 1}, {1, 16}, {8, 16}};
  reprise_graph_options options = Options();
  options.buckets = nullptr;
  options.num_buckets = 0;
  options.shapes = shapes;
  options.num_shapes = 3;
  options.workspace_bytes = Work::Workspace;
  options.progress = Work::Progress;
  const ManagerHandle manager = Create(options);
  EXPECT_THAT(work_.told,
              ElementsAre(Told{"graph/8x16", 8, 16, 2, 1}, Told{"graph/1x16", 1, 16, 1, 1},
                          Told{"graph/8x1", 8, 1, 0, 1}));
  EXPECT_THAT(work_.workspace_bytes, ElementsAre(1024, 128, 64));
  EXPECT_THAT(work_.progress, ElementsAre("graph/8x16 1/3", "graph/1x16 2/3", "graph/8x1 3/3"));
  EXPECT_EQ(reprise_graph_manager_workspace_bytes(manager.get()), 1024u);

  const reprise_replay_report report = Replay(manager, 1, 5);
  EXPECT_STREQ(report.graph, "graph/1x16");
  EXPECT_EQ(report.capacity, 1);
  EXPECT_EQ(report.tokens, 16);
  EXPECT_EQ(report.padding, 11);
  EXPECT_EQ(report.replayed, 1u);
  EXPECT_DONE(reprise_graph_manager_run_eager_batch(manager.get(), 3, 2, nullptr, &error));
  EXPECT_EQ(work_.told.back(), (Told{"graph/8x16", 8, 16, 2, 0}));
  EXPECT_REFUSED(reprise_graph_manager_replay_batch(manager.get(), 9, 1, nullptr, &error),
                 REPRISE_OUT_OF_RANGE, "size is 9");
  EXPECT_REFUSED(reprise_graph_manager_replay_batch(manager.get(), 1, 0, nullptr, &error),
                 REPRISE_INVALID_ARGUMENT, "size is 1");
  const reprise_bucket_report told = Report(manager, 1);
  EXPECT_STREQ(told.name, "graph/1x16");
  EXPECT_EQ(told.rows, 1);
  EXPECT_EQ(told.tokens, 16);
  EXPECT_EQ(told.state, REPRISE_BUCKET_CAPTURED);
  EXPECT_EQ(told.num_other_nodes, 1);
  EXPECT_EQ(told.num_captures, 1u);
  EXPECT_EQ(told.num_replays, 1u);
  EXPECT_EQ(told.used_cells, 5u);
  EXPECT_EQ(told.padding_cells, 11u);
  EXPECT_EQ(told.workspace_bytes, 128u);
  EXPECT_EQ(Report(manager, 2).num_eager_runs, 1u);
  reprise_bucket_info info = {};
  info.struct_size = sizeof(info);
  EXPECT_DONE(reprise_graph_manager_get_bucket(manager.get(), 1, &info, &error));
  EXPECT_EQ(info.tokens, 16);
}

TEST_F(CApiGraphModes, PolicyPicksTheBucket) {
  reprise_graph_options options = Options();
  options.policy = Work::Pick;
  const ManagerHandle manager = Create(options);
  work_.pick = 2;
  EXPECT_STREQ(Replay(manager, 1).graph, "graph/4");
  work_.pick = -1;
  EXPECT_REFUSED(reprise_graph_manager_replay(manager.get(), 1, nullptr, &error),
                 REPRISE_OUT_OF_RANGE, "size is 1");
  for (const int64_t beyond : {int64_t{3}, INT64_MAX}) {
    work_.pick = beyond;
    EXPECT_REFUSED(reprise_graph_manager_replay(manager.get(), 1, nullptr, &error),
                   REPRISE_INVALID_ARGUMENT, "allowed: less than 3");
  }
  work_.pick = 0;
  EXPECT_REFUSED(reprise_graph_manager_replay(manager.get(), 2, nullptr, &error),
                 REPRISE_INVALID_ARGUMENT, "policy: bucket 'graph/1' is too small");
}

TEST_F(CApiGraphModes, LazyBucketsAreCapturedOnUseWithinTheLimit) {
  reprise_graph_options options = Options();
  options.capture = REPRISE_CAPTURE_LAZY;
  options.max_graphs = 2;
  const ManagerHandle manager = Create(options);
  EXPECT_THAT(work_.told, IsEmpty());
  EXPECT_EQ(Report(manager, 0).num_captures, 0u);
  for (const int64_t size : {2, 4, 2, 1}) Replay(manager, size);
  EXPECT_THAT(States(manager), ElementsAre(REPRISE_BUCKET_CAPTURED, REPRISE_BUCKET_CAPTURED,
                                           REPRISE_BUCKET_EVICTED));
  EXPECT_EQ(work_.told.size(), 3u);
  EXPECT_EQ(work_.cells[0], 4);
  Replay(manager, 4);
  EXPECT_EQ(Report(manager, 2).num_captures, 2u);
  EXPECT_EQ(Report(manager, 1).num_evictions, 1u);
}

TEST_F(CApiGraphModes, WarmUpRunsAtStartInEveryMode) {
  reprise_graph_options options = Options();
  options.capture = REPRISE_CAPTURE_LAZY;
  options.warm_up = 1;
  const ManagerHandle manager = Create(options);
  EXPECT_THAT(work_.told, ElementsAre(Told{"graph/4", 4, 1, 2, 0}, Told{"graph/2", 2, 1, 1, 0},
                                      Told{"graph/1", 1, 1, 0, 0}));
  EXPECT_EQ(work_.cells[0], 3);
}

TEST_F(CApiGraphModes, BackgroundCapturesOnAThreadOfItsOwnWhileOthersRun) {
  reprise_graph_options options = Options();
  options.capture = REPRISE_CAPTURE_BACKGROUND;
  options.while_pending = REPRISE_PENDING_RUN_EAGER;
  options.on_capture_thread = Work::Begin;
  options.progress = Work::Progress;
  const ManagerHandle manager = Create(options);
  EXPECT_EQ(Replay(manager, 2).replayed, 0u);  // nothing can be captured yet
  EXPECT_THAT(States(manager), ::testing::Each(int{REPRISE_BUCKET_PENDING}));
  work_.begin.set_value();
  EXPECT_DONE(reprise_graph_manager_wait_for_captures(manager.get(), &error));
  EXPECT_THAT(States(manager), ::testing::Each(int{REPRISE_BUCKET_CAPTURED}));
  EXPECT_EQ(work_.progress.size(), 3u);
  EXPECT_EQ(Replay(manager, 2).replayed, 1u);
  EXPECT_EQ(work_.cells[0], 2);
  ASSERT_EQ(work_.threads.size(), 4u);
  EXPECT_EQ(work_.threads[0], std::this_thread::get_id());
  EXPECT_EQ(work_.told[0].capturing, 0u);
  for (size_t i = 1; i < 4; ++i) {
    EXPECT_NE(work_.threads[i], std::this_thread::get_id());
    EXPECT_EQ(work_.told[i].capturing, 1u);
  }
}

TEST_F(CApiGraphModes, AnErrorOfTheCapturingThreadIsThatOfEveryCapture) {
  reprise_graph_options options = Options();
  options.capture = REPRISE_CAPTURE_BACKGROUND;
  options.on_capture_thread = Work::Begin;
  work_.begin_error = "no context";
  work_.begin.set_value();
  const ManagerHandle manager = Create(options);
  EXPECT_REFUSED(reprise_graph_manager_wait_for_captures(manager.get(), &error), REPRISE_ABORTED,
                 "capture thread: no context");
  EXPECT_REFUSED(reprise_graph_manager_replay(manager.get(), 4, nullptr, &error), REPRISE_ABORTED,
                 "bucket 'graph/4'");
}

TEST_F(CApiGraphModes, AManagerMayGoWhileItsThreadHasYetToCapture) {
  reprise_graph_options options = Options();
  options.capture = REPRISE_CAPTURE_BACKGROUND;
  ManagerHandle manager = Create(options);
  stream_.reset();
  device_.reset();
  manager.reset();
  EXPECT_LE(work_.told.size(), 3u);
}

TEST_F(CApiGraphModes, AFailedCaptureIsTheBucketsErrorUntilItIsCapturedAgain) {
  reprise_graph_options options = Options();
  options.capture = REPRISE_CAPTURE_LAZY;
  const ManagerHandle manager = Create(options);
  work_.fail = "graph/2";
  for (int i = 0; i < 2; ++i) {
    EXPECT_REFUSED(reprise_graph_manager_replay(manager.get(), 2, nullptr, &error),
                   REPRISE_NOT_FOUND, "bucket 'graph/2', capture: no weights");
  }
  EXPECT_EQ(work_.told.size(), 1u);
  const reprise_bucket_report report = Report(manager, 1);
  EXPECT_EQ(report.state, REPRISE_BUCKET_FAILED);
  EXPECT_EQ(report.error_code, REPRISE_NOT_FOUND);
  EXPECT_STREQ(report.error_message, "bucket 'graph/2', capture: no weights");
  Replay(manager, 1);
  EXPECT_STREQ(Report(manager, 0).error_message, "");
  EXPECT_STREQ(report.error_message, "bucket 'graph/2', capture: no weights");
  work_.fail.clear();
  EXPECT_DONE(reprise_graph_manager_recapture(manager.get(), 2, 1, &error));
  EXPECT_EQ(Report(manager, 1).state, REPRISE_BUCKET_CAPTURED);
  EXPECT_STREQ(Replay(manager, 2).graph, "graph/2");
}

TEST_F(CApiGraphModes, VerifyComparesEagerRunAndReplay) {
  const ManagerHandle manager = Create(Options());
  reprise_memory_range memory = {"cells", work_.cells.data(), work_.cells.size() * 8};
  reprise_verify_report report = {};
  report.struct_size = sizeof(report);
  EXPECT_DONE(reprise_graph_manager_verify(manager.get(), 3, 1, &memory, 1, &report, &error));
  EXPECT_STREQ(report.graph, "graph/4");
  EXPECT_EQ(report.bytes, 512u);
  EXPECT_EQ(work_.cells[0], 0);  // as before

  // Work that is not a function of what it is said to read.
  static int runs = 0;
  runs = 0;
  const reprise_host_fn differ = [](void* context, reprise_error*) -> reprise_code {
    Work::Of(context).cells[1] = ++runs;
    return REPRISE_OK;
  };
  static reprise_host_fn function = differ;
  reprise_graph_options options = Options();
  options.enqueue_bucket = [](void* context, reprise_stream* stream, const reprise_bucket*,
                              reprise_error* error) {
    return reprise_stream_enqueue_function(stream, function, context, error);
  };
  const ManagerHandle other = Create(options);
  EXPECT_REFUSED(reprise_graph_manager_verify(other.get(), 1, 1, &memory, 1, nullptr, &error),
                 REPRISE_DATA_LOSS,
                 "bucket 'graph/1', verify: 'cells' differs at byte 8 of 512: eager 0x01, "
                 "replayed 0x02");
  EXPECT_REFUSED(reprise_graph_manager_verify(other.get(), 1, 1, nullptr, 0, nullptr, &error),
                 REPRISE_INVALID_ARGUMENT, "no memory to compare");
  EXPECT_REFUSED(reprise_graph_manager_verify(other.get(), 1, 1, nullptr, 2, nullptr, &error),
                 REPRISE_INVALID_ARGUMENT, "memory: got NULL for 2 elements");
  memory.name = nullptr;
  EXPECT_REFUSED(reprise_graph_manager_verify(other.get(), 1, 1, &memory, 1, nullptr, &error),
                 REPRISE_INVALID_ARGUMENT, "memory: range 0 has NULL for its name");
}

// The probes of tests/graphs, enqueued through the handle that a function is given.
reprise_code EnqueueProbes(void* context, reprise_stream* stream, const reprise_bucket* bucket,
                           reprise_error* error) {
  auto* bench = static_cast<graphs::Bench*>(context);
  graphs::Bucket told;
  told.capacity = bucket->rows;
  return Report(bench->Work()(*stream->shared->stream, told), error);
}

TEST_F(CApiGraphModes, AuditFindsPointersAndBuffersMoveInPlace) {
  graphs::Bench bench(*device_->device);
  const reprise_memory_range buffers[] = {{"counts", bench.counts.data(), bench.counts.bytes()},
                                          {"cell", bench.cell.data(), bench.cell.bytes()}};
  reprise_graph_options options = Options();
  options.enqueue_bucket = EnqueueProbes;
  options.buffers = buffers;
  const auto create = [&] {
    return Make<ManagerHandle>([&](reprise_graph_manager** made, reprise_error* error) {
      return reprise_graph_manager_create(stream_.get(), &options, nullptr, &bench, made, error);
    });
  };
  reprise_audit_report audit = {};
  audit.struct_size = sizeof(audit);
  options.num_buffers = 1;  // not the cell's
  ManagerHandle manager = create();
  EXPECT_DONE(reprise_graph_manager_audit(manager.get(), 4, 1, &audit, &error));
  EXPECT_STREQ(audit.graph, "graph/4");
  EXPECT_EQ(audit.num_kernels, 2u);
  EXPECT_EQ(audit.num_pointers, 2u);
  EXPECT_EQ(audit.num_untold, 0u);
  ASSERT_EQ(audit.num_foreign, 1u);
  EXPECT_EQ(audit.foreign_node[0], 1);
  EXPECT_STREQ(audit.foreign_kernel[0], testing::kProbeAffine);
  EXPECT_EQ(audit.foreign_offset[0], 0u);
  EXPECT_EQ(audit.foreign_address[0], reinterpret_cast<uint64_t>(bench.cell.data()));

  options.num_buffers = 2;
  manager = create();
  EXPECT_DONE(reprise_graph_manager_audit(manager.get(), 4, 1, &audit, &error));
  EXPECT_EQ(audit.num_foreign, 0u);
  uint64_t elsewhere = 5;
  reprise_move_report moved = {};
  moved.struct_size = sizeof(moved);
  const size_t num_enqueued = bench.enqueued.size();
  EXPECT_DONE(reprise_graph_manager_move_buffer(manager.get(), "cell", &elsewhere, &moved, &error));
  EXPECT_EQ(moved.num_graphs, 3u);
  EXPECT_EQ(moved.num_nodes, 3u);
  EXPECT_EQ(moved.num_recaptured, 0u);
  EXPECT_EQ(bench.enqueued.size(), num_enqueued);
  Replay(manager, 2);
  EXPECT_EQ(elsewhere, 5u * 31 + 2);
  EXPECT_REFUSED(
      reprise_graph_manager_move_buffer(manager.get(), "cells", &elsewhere, nullptr, &error),
      REPRISE_NOT_FOUND, "got \"cells\", allowed: counts, cell");
  EXPECT_REFUSED(reprise_graph_manager_move_buffer(manager.get(), "cell", nullptr, nullptr, &error),
                 REPRISE_INVALID_ARGUMENT, "its new address is null");
  EXPECT_REFUSED(
      reprise_graph_manager_move_buffer(manager.get(), nullptr, &elsewhere, nullptr, &error),
      REPRISE_INVALID_ARGUMENT, "name: got NULL");
}

TEST_F(CApiGraphModes, FunctionsAreUntoldAndTheirGraphsAreCapturedAgain) {
  const reprise_memory_range buffers[] = {{"cells", work_.cells.data(), work_.cells.size() * 8}};
  reprise_graph_options options = Options();
  options.buffers = buffers;
  options.num_buffers = 1;
  const ManagerHandle manager = Create(options);
  reprise_audit_report audit = {};
  audit.struct_size = sizeof(audit);
  EXPECT_DONE(reprise_graph_manager_audit(manager.get(), 1, 1, &audit, &error));
  EXPECT_EQ(audit.num_untold, 1u);
  std::vector<int64_t> other(64);
  reprise_move_report moved = {};
  moved.struct_size = sizeof(moved);
  EXPECT_DONE(
      reprise_graph_manager_move_buffer(manager.get(), "cells", other.data(), &moved, &error));
  EXPECT_EQ(moved.num_recaptured, 3u);
  EXPECT_EQ(work_.told.size(), 6u);
}

TEST_F(CApiGraphModes, RefusesOptionsThatAreWrong) {
  reprise_graph_options options = Options();
  options.capture = 3;
  Refused(options, REPRISE_INVALID_ARGUMENT,
          "capture is 3; allowed: 0 (eager), 1 (lazy), 2 (background)");
  options = Options();
  options.while_pending = -1;
  Refused(options, REPRISE_INVALID_ARGUMENT, "while_pending is -1; allowed: 0 (wait)");
  const reprise_batch_shape shape = {1, 1};
  options = Options();
  options.shapes = &shape;
  options.num_shapes = 1;
  Refused(options, REPRISE_INVALID_ARGUMENT, "buckets and shapes are both given");
  options.shapes = nullptr;
  Refused(options, REPRISE_INVALID_ARGUMENT, "shapes: got NULL for 1 elements");
  options = Options();
  options.enqueue_bucket = nullptr;
  Refused(options, REPRISE_INVALID_ARGUMENT, "enqueue: got NULL");
  options = Options();
  options.num_buffers = 1;
  Refused(options, REPRISE_INVALID_ARGUMENT, "buffers: got NULL for 1 elements");
  const reprise_memory_range buffers[] = {{"x", &work_, 8}, {"x", &work_, 8}, {"y", &work_, 0}};
  options.buffers = buffers;
  options.num_buffers = 2;
  Refused(options, REPRISE_INVALID_ARGUMENT, "buffer 'x' is there twice");
  options.buffers = buffers + 2;
  options.num_buffers = 1;
  Refused(options, REPRISE_INVALID_ARGUMENT, "buffer 'y' is null or empty");

  options = Options();
  const reprise_enqueue_fn enqueue = [](void*, reprise_stream*, int64_t,
                                        reprise_error*) -> reprise_code { return REPRISE_OK; };
  reprise_graph_manager* made = nullptr;
  EXPECT_REFUSED(
      reprise_graph_manager_create(stream_.get(), &options, enqueue, &work_, &made, &error),
      REPRISE_INVALID_ARGUMENT, "enqueue and enqueue_bucket are both given");
}

TEST_F(CApiGraphModes, RefusesCallsThatAreWrong) {
  const ManagerHandle manager = Create(Options());
  reprise_audit_report audit = {};
  audit.struct_size = sizeof(audit);
  EXPECT_REFUSED(reprise_graph_manager_audit(manager.get(), 1, 1, &audit, &error),
                 REPRISE_FAILED_PRECONDITION, "no buffers are registered");
  EXPECT_REFUSED(reprise_graph_manager_audit(manager.get(), 1, 1, nullptr, &error),
                 REPRISE_INVALID_ARGUMENT, "audit report: got NULL");
  reprise_bucket_report report = {};
  EXPECT_REFUSED(reprise_graph_manager_get_report(manager.get(), 0, &report, &error),
                 REPRISE_INVALID_ARGUMENT, "bucket report: struct_size is 0");
  report.struct_size = sizeof(report);
  EXPECT_REFUSED(reprise_graph_manager_get_report(manager.get(), 3, &report, &error),
                 REPRISE_OUT_OF_RANGE, "index is 3; allowed: less than 3");
  EXPECT_REFUSED(reprise_graph_manager_recapture(manager.get(), 5, 1, &error), REPRISE_OUT_OF_RANGE,
                 "size is 5");
  EXPECT_REFUSED(reprise_graph_manager_recapture(nullptr, 1, 1, &error), REPRISE_INVALID_ARGUMENT,
                 "graph manager: got NULL");
  EXPECT_REFUSED(reprise_graph_manager_wait_for_captures(nullptr, &error), REPRISE_INVALID_ARGUMENT,
                 "graph manager: got NULL");
  EXPECT_REFUSED(reprise_graph_manager_verify(nullptr, 1, 1, nullptr, 0, nullptr, &error),
                 REPRISE_INVALID_ARGUMENT, "graph manager: got NULL");
  EXPECT_REFUSED(reprise_graph_manager_move_buffer(nullptr, "x", &audit, nullptr, &error),
                 REPRISE_INVALID_ARGUMENT, "graph manager: got NULL");
  EXPECT_REFUSED(reprise_graph_manager_get_report(nullptr, 0, &report, &error),
                 REPRISE_INVALID_ARGUMENT, "graph manager: got NULL");
  EXPECT_EQ(reprise_graph_manager_workspace_bytes(nullptr), 0u);
  EXPECT_EQ(reprise_graph_manager_workspace_bytes(manager.get()), 0u);
}

}  // namespace
}  // namespace reprise::capi
