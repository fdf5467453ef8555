// SPDX-License-Identifier: Apache-2.0
// Programs that were compiled with reprise.h of REPRISE_0.1 go on: their structs are smaller, and
// what lies behind them is theirs.
#include <gtest/gtest.h>
#include <reprise.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>

#include "tests/capi/handles.h"

namespace reprise::capi {
namespace {

// Sizes of that version, whose last field is named.
constexpr size_t kGraphOptions = 40;
static_assert(kGraphOptions == offsetof(reprise_graph_options, warm_up) + 8);
constexpr size_t kBucketInfo = 48;
static_assert(kBucketInfo == offsetof(reprise_bucket_info, device_bytes) + 8);
constexpr size_t kReplayReport = 32;
static_assert(kReplayReport == offsetof(reprise_replay_report, padding) + 8);
constexpr size_t kEngineOptions = 184;
static_assert(kEngineOptions == offsetof(reprise_engine_options, progress_context) + 8);
constexpr size_t kEngineInfo = 240;
static_assert(kEngineInfo == offsetof(reprise_engine_info, capture_ns) + 8);
constexpr size_t kPoolInfo = 32;
static_assert(kPoolInfo == offsetof(reprise_pool_info, bytes) + 8);
constexpr size_t kSessionLimits = 16;
static_assert(kSessionLimits == offsetof(reprise_session_limits, max_blocks) + 4);
constexpr size_t kSessionUse = 24;
static_assert(kSessionUse == offsetof(reprise_session_use, num_steps) + 8);
constexpr size_t kResultView = 336;
static_assert(kResultView == offsetof(reprise_result_view, total_ns) + 8);

// A struct of such a caller, with something else behind it that the library neither reads nor
// writes.
template <typename T>
class Old {
 public:
  explicit Old(size_t bytes) : bytes_(bytes) {
    memory_.fill(kBehind);
    std::fill_n(memory_.begin(), bytes, std::byte{0});
    get()->struct_size = bytes;
  }
  ~Old() {
    EXPECT_TRUE(std::all_of(memory_.begin() + static_cast<std::ptrdiff_t>(bytes_), memory_.end(),
                            [](std::byte b) { return b == kBehind; }));
    EXPECT_EQ(get()->struct_size, bytes_);
  }
  Old(const Old&) = delete;
  Old& operator=(const Old&) = delete;
  T* get() { return reinterpret_cast<T*>(memory_.data()); }
  T* operator->() { return get(); }

 private:
  static constexpr std::byte kBehind{0x55};
  alignas(T) std::array<std::byte, sizeof(T) + 64> memory_;
  const size_t bytes_;
};

TEST(CApiOldCallers, EnginesSessionsAndResultsAreWhatTheyWere) {
  const DeviceHandle device = HostDevice();
  Old<reprise_engine_options> options(kEngineOptions);
  EXPECT_DONE(reprise_engine_options_init(options.get(), kEngineOptions, &error));
  options->directory = Model();
  options->kv_cache_bytes = 1 << 20;
  options->max_rows = 2;
  const auto engine = Make<EngineHandle>([&](reprise_engine** made, reprise_error* error) {
    return reprise_engine_create(device.get(), options.get(), made, error);
  });
  Old<reprise_engine_info> info(kEngineInfo);
  EXPECT_DONE(reprise_engine_get_info(engine.get(), info.get(), &error));
  EXPECT_GT(info->capture_ns, 0u);
  Old<reprise_pool_info> pool(kPoolInfo);
  EXPECT_DONE(reprise_engine_get_pool(engine.get(), pool.get(), &error));
  EXPECT_GT(pool->bytes, 0u);
  Old<reprise_bucket_info> bucket(kBucketInfo);
  EXPECT_DONE(
      reprise_engine_get_bucket(engine.get(), REPRISE_BUCKET_DECODE, 1, bucket.get(), &error));
  EXPECT_EQ(bucket->capacity, 2);

  Old<reprise_session_limits> limits(kSessionLimits);
  limits->max_rows = 1;
  const auto session = Make<SessionHandle>([&](reprise_session** made, reprise_error* error) {
    return reprise_session_open(engine.get(), limits.get(), made, error);
  });
  const auto step = Make<StepHandle>(reprise_step_create);
  const auto result = Make<ResultHandle>(reprise_result_create);
  uint32_t block = 0;
  EXPECT_DONE(reprise_session_allocate_blocks(session.get(), 1, &block, &error));
  const uint32_t token = 5;
  reprise_row_add add = {};
  add.struct_size = sizeof(add);
  add.blocks = &block;
  add.num_blocks = 1;
  reprise_row_chunk chunk = {};
  chunk.struct_size = sizeof(chunk);
  chunk.sample = 1;
  chunk.tokens = &token;
  chunk.num_tokens = 1;
  EXPECT_DONE(reprise_step_add_row(step.get(), &add, &error));
  EXPECT_DONE(reprise_step_run_chunk(step.get(), &chunk, &error));
  EXPECT_DONE(reprise_session_step(session.get(), step.get(), result.get(), &error));
  Old<reprise_result_view> view(kResultView);
  EXPECT_DONE(reprise_result_get(result.get(), view.get(), &error));
  EXPECT_EQ(view->num_rows, 1u);
  EXPECT_GT(view->total_ns, 0u);
  Old<reprise_session_use> use(kSessionUse);
  EXPECT_DONE(reprise_session_get_use(session.get(), use.get(), &error));
  EXPECT_EQ(use->num_steps, 1u);

  // An account that lies behind the old limits is not read: there is none of such a number.
  reprise_session_limits beyond = {};
  beyond.struct_size = sizeof(beyond);
  beyond.account = 9;
  reprise_session* made = nullptr;
  EXPECT_REFUSED(reprise_session_open(engine.get(), &beyond, &made, &error), REPRISE_NOT_FOUND,
                 "account is 9; 0 were opened");
}

reprise_code CountUp(void* context, reprise_error*) {
  ++*static_cast<int*>(context);
  return REPRISE_OK;
}
reprise_code Enqueue(void* context, reprise_stream* stream, int64_t, reprise_error* error) {
  return reprise_stream_enqueue_function(stream, CountUp, context, error);
}

TEST(CApiOldCallers, GraphManagersAreWhatTheyWere) {
  const DeviceHandle device = HostDevice();
  const StreamHandle stream = HostStream(device.get());
  const int64_t capacity = 4;
  int count = 0;
  Old<reprise_graph_options> options(kGraphOptions);
  EXPECT_DONE(reprise_graph_options_init(options.get(), kGraphOptions, &error));
  EXPECT_EQ(options->warm_up, 1u);
  options->buckets = &capacity;
  options->num_buckets = 1;
  const auto manager = Make<ManagerHandle>([&](reprise_graph_manager** made, reprise_error* error) {
    return reprise_graph_manager_create(stream.get(), options.get(), Enqueue, &count, made, error);
  });
  Old<reprise_replay_report> report(kReplayReport);
  EXPECT_DONE(reprise_graph_manager_replay(manager.get(), 3, report.get(), &error));
  EXPECT_EQ(report->padding, 1);
  EXPECT_DONE(reprise_stream_synchronize(stream.get(), &error));
  EXPECT_EQ(count, 2);  // warm-up and replay
  Old<reprise_bucket_info> bucket(kBucketInfo);
  EXPECT_DONE(reprise_graph_manager_get_bucket(manager.get(), 0, bucket.get(), &error));
  EXPECT_EQ(bucket->num_other_nodes, 1);
}

}  // namespace
}  // namespace reprise::capi
