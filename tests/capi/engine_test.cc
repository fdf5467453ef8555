// SPDX-License-Identifier: Apache-2.0
// Engines and sessions through reprise.h: options, what an engine says of itself, blocks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <reprise.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine_options.h"
#include "models/model_source.h"
#include "tests/capi/handles.h"

namespace reprise::capi {
namespace {

TEST(CApiEngineOptions, StartFromTheEnginesOwnDefaults) {
  reprise_engine_options options;
  std::memset(static_cast<void*>(&options), 0x55, sizeof(options));
  EXPECT_DONE(reprise_engine_options_init(&options, sizeof(options), &error));
  const engine::DecodeEngineOptions defaults;
  EXPECT_EQ(options.struct_size, sizeof(options));
  EXPECT_EQ(options.directory, nullptr);
  EXPECT_EQ(options.random_seed, models::ModelSource().random_seed);
  EXPECT_EQ(options.dtype, nullptr);
  EXPECT_EQ(options.memory_fraction, defaults.memory_fraction);
  EXPECT_EQ(options.block_size, defaults.block_size);
  EXPECT_EQ(options.max_rows, defaults.max_rows);
  EXPECT_EQ(options.pipeline_depth, defaults.pipeline_depth);
  EXPECT_EQ(options.max_steps_per_request, defaults.max_steps_per_request);
  EXPECT_EQ(options.max_logit_rows, defaults.max_logit_rows);
  EXPECT_EQ(options.max_prompt_logprobs, defaults.max_prompt_logprobs);
  EXPECT_EQ(options.adjust_logits, defaults.adjust_logits ? 1u : 0u);
  EXPECT_EQ(options.batch_invariant, defaults.batch_invariant ? 1u : 0u);
  EXPECT_EQ(options.watchdog_timeout_ms, defaults.watchdog_timeout_ms);
  EXPECT_EQ(options.round_activations, defaults.round_activations ? 1u : 0u);
  EXPECT_EQ(options.linear_table, nullptr);
  EXPECT_EQ(options.num_decode_buckets, 0u);
  EXPECT_EQ(options.progress, nullptr);
}

TEST(CApiEngineOptions, AreRefusedByName) {
  const DeviceHandle device = HostDevice();
  reprise_engine* engine = nullptr;
  const auto create = [&](const reprise_engine_options& options, reprise_error* error) {
    return reprise_engine_create(device.get(), &options, &engine, error);
  };
  reprise_engine_options options = TinyOptions(Model());
  options.dtype = "float";
  EXPECT_REFUSED(create(options, &error), REPRISE_INVALID_ARGUMENT,
                 "dtype is \"float\"; allowed: auto, bf16, f16, f32");
  options = TinyOptions(Model());
  options.kv_dtype = "fp8";
  EXPECT_REFUSED(create(options, &error), REPRISE_INVALID_ARGUMENT, "kv_dtype is \"fp8\"");
  options = TinyOptions(Model());
  options.linear = "fast";
  EXPECT_REFUSED(create(options, &error), REPRISE_INVALID_ARGUMENT,
                 "allowed: auto, tuned, row-major, packed, portable");
  options = TinyOptions(Model());
  options.round_activations = 2;
  EXPECT_REFUSED(create(options, &error), REPRISE_INVALID_ARGUMENT,
                 "round_activations is 2; allowed: 0, 1");
  options.round_activations = 1;
  EXPECT_REFUSED(create(options, &error), REPRISE_INVALID_ARGUMENT,
                 "round_activations is true with a model that does not mean it");
  options = TinyOptions(Model());
  options.linear_table = "{}";
  EXPECT_REFUSED(create(options, &error), REPRISE_INVALID_ARGUMENT,
                 "linear table: schema: got nothing, allowed \"reprise-linear-table/1\"");
  options = TinyOptions(Model());
  options.adjust_logits = 2;
  EXPECT_REFUSED(create(options, &error), REPRISE_INVALID_ARGUMENT,
                 "adjust_logits is 2; allowed: 0, 1");
  options = TinyOptions(Model());
  options.mixed_buckets = nullptr;
  EXPECT_REFUSED(create(options, &error), REPRISE_INVALID_ARGUMENT,
                 "mixed_buckets: got NULL for 1 elements");
  options = TinyOptions(Model());
  options.pipeline_depth = 100;
  EXPECT_REFUSED(create(options, &error), REPRISE_INVALID_ARGUMENT, "pipeline_depth");
  options = TinyOptions(Model());
  options.preset = "llama-3.2-1b";
  EXPECT_REFUSED(create(options, &error), REPRISE_INVALID_ARGUMENT, "preset");
  options.directory = nullptr;
  options.preset = "llama-9";
  EXPECT_REFUSED(create(options, &error), REPRISE_NOT_FOUND, "llama-3.2-1b");
  options = TinyOptions("/no/such/model");
  EXPECT_REFUSED(create(options, &error), REPRISE_NOT_FOUND, "/no/such/model");
  EXPECT_REFUSED(reprise_engine_create(device.get(), nullptr, &engine, &error),
                 REPRISE_INVALID_ARGUMENT, "engine options: got NULL");
  EXPECT_EQ(engine, nullptr);
}

void CountStages(void* context, const char* stage, const char*, uint64_t done, uint64_t total) {
  auto* seen = static_cast<std::vector<std::string>*>(context);
  EXPECT_LE(done, total);
  if (seen->empty() || seen->back() != stage) seen->emplace_back(stage);
}

class CApiEngine : public ::testing::Test {
 protected:
  void SetUp() override {
    reprise_engine_options options = TinyOptions(Model());
    options.progress = CountStages;
    options.progress_context = &stages_;
    engine_ = Make<EngineHandle>([&](reprise_engine** made, reprise_error* error) {
      return reprise_engine_create(device_.get(), &options, made, error);
    });
    ASSERT_NE(engine_, nullptr);
  }
  SessionHandle Open(const reprise_session_limits* limits = nullptr) {
    return Make<SessionHandle>([&](reprise_session** made, reprise_error* error) {
      return reprise_session_open(engine_.get(), limits, made, error);
    });
  }
  uint32_t FreeBlocks() {
    reprise_pool_info pool = {};
    pool.struct_size = sizeof(pool);
    EXPECT_DONE(reprise_engine_get_pool(engine_.get(), &pool, &error));
    return pool.free_blocks;
  }

  std::vector<std::string> stages_;
  DeviceHandle device_ = HostDevice();
  EngineHandle engine_;
};

TEST_F(CApiEngine, SaysWhatItIs) {
  EXPECT_THAT(stages_, ::testing::ElementsAre("load", "capture"));
  EXPECT_DONE(reprise_engine_check_health(engine_.get(), &error));
  reprise_engine_info info = {};
  info.struct_size = sizeof(info);
  EXPECT_DONE(reprise_engine_get_info(engine_.get(), &info, &error));
  EXPECT_STREQ(info.model, "llama-tiny");
  EXPECT_STREQ(info.architecture, "llama");
  EXPECT_GT(info.vocab_size, 0u);
  EXPECT_EQ(info.max_rows, 4u);
  EXPECT_EQ(info.block_size, 16u);
  EXPECT_EQ(info.max_steps_per_request, 4u);
  EXPECT_EQ(info.max_prompt_tokens, 32u);
  EXPECT_STREQ(info.kv_dtype, info.dtype);
  EXPECT_STREQ(info.linear, "row-major");
  EXPECT_GT(info.weights_bytes, 0u);
  EXPECT_EQ(info.kv_cache_bytes, 1u << 20);
  EXPECT_EQ(info.num_decode_buckets, 3u);
  EXPECT_EQ(info.num_mixed_buckets, 1u);
  reprise_bucket_info bucket = {};
  bucket.struct_size = sizeof(bucket);
  EXPECT_DONE(reprise_engine_get_bucket(engine_.get(), REPRISE_BUCKET_DECODE, 2, &bucket, &error));
  EXPECT_STREQ(bucket.name, "decode/4");
  EXPECT_GT(bucket.num_kernel_nodes, 0);
  EXPECT_DONE(reprise_engine_get_bucket(engine_.get(), REPRISE_BUCKET_MIXED, 0, &bucket, &error));
  EXPECT_STREQ(bucket.name, "mixed/32");
  EXPECT_REFUSED(reprise_engine_get_bucket(engine_.get(), REPRISE_BUCKET_MIXED, 1, &bucket, &error),
                 REPRISE_OUT_OF_RANGE, "index is 1; allowed: less than 1");
  EXPECT_REFUSED(reprise_engine_get_bucket(engine_.get(), 4, 0, &bucket, &error),
                 REPRISE_INVALID_ARGUMENT, "bucket kind is 4; allowed: 0 (decode), 1 (mixed)");
}

TEST_F(CApiEngine, BucketsMayBeReplaced) {
  reprise_bucket_info before = {};
  before.struct_size = sizeof(before);
  EXPECT_DONE(reprise_engine_get_bucket(engine_.get(), REPRISE_BUCKET_DECODE, 2, &before, &error));
  const int64_t decode[] = {4, 3};
  uint64_t version = 0;
  EXPECT_DONE(reprise_engine_set_buckets(engine_.get(), decode, 2, nullptr, 0, &version, &error));
  EXPECT_EQ(version, 2u);
  reprise_bucket_info bucket = {};
  bucket.struct_size = sizeof(bucket);
  EXPECT_DONE(reprise_engine_get_bucket(engine_.get(), REPRISE_BUCKET_DECODE, 0, &bucket, &error));
  EXPECT_STREQ(bucket.name, "decode/3");
  EXPECT_DONE(reprise_engine_get_bucket(engine_.get(), REPRISE_BUCKET_MIXED, 0, &bucket, &error));
  EXPECT_STREQ(bucket.name, "mixed/32");
  EXPECT_STREQ(before.name, "decode/4") << "valid as long as the engine";
  reprise_engine_info info = {};
  info.struct_size = sizeof(info);
  EXPECT_DONE(reprise_engine_get_info(engine_.get(), &info, &error));
  EXPECT_EQ(info.num_decode_buckets, 2u);
  EXPECT_REFUSED(reprise_engine_set_buckets(engine_.get(), decode, 0, nullptr, 0, nullptr, &error),
                 REPRISE_INVALID_ARGUMENT, "got neither decode nor mixed ones");
  EXPECT_REFUSED(reprise_engine_set_buckets(engine_.get(), nullptr, 0, decode, 2, nullptr, &error),
                 REPRISE_INVALID_ARGUMENT, "the largest mixed bucket is 4; allowed: 32");
  EXPECT_REFUSED(reprise_engine_set_buckets(engine_.get(), nullptr, 1, nullptr, 0, nullptr, &error),
                 REPRISE_INVALID_ARGUMENT, "decode: got NULL for 1 elements");
}

TEST_F(CApiEngine, BlocksBelongToSessions) {
  const uint32_t free = FreeBlocks();
  SessionHandle mine = Open();
  const SessionHandle other = Open();
  uint32_t blocks[3] = {};
  EXPECT_DONE(reprise_session_allocate_blocks(mine.get(), 3, blocks, &error));
  EXPECT_THAT(blocks, ::testing::Each(::testing::Gt(0u)));
  EXPECT_EQ(FreeBlocks(), free - 3);
  EXPECT_REFUSED(reprise_session_free_blocks(other.get(), blocks, 3, &error),
                 REPRISE_PERMISSION_DENIED, "");
  EXPECT_DONE(reprise_session_free_blocks(mine.get(), blocks, 1, &error));
  reprise_session_use use = {};
  use.struct_size = sizeof(use);
  EXPECT_DONE(reprise_session_get_use(mine.get(), &use, &error));
  EXPECT_EQ(use.num_blocks, 2u);
  EXPECT_EQ(use.num_rows, 0u);
  EXPECT_EQ(use.num_steps, 0u);
  std::vector<uint32_t> too_many(free + 1);
  EXPECT_REFUSED(reprise_session_allocate_blocks(mine.get(), free + 1, too_many.data(), &error),
                 REPRISE_RESOURCE_EXHAUSTED, "");
  EXPECT_REFUSED(reprise_session_allocate_blocks(mine.get(), 0, blocks, &error),
                 REPRISE_INVALID_ARGUMENT, "");
  EXPECT_REFUSED(reprise_session_allocate_blocks(mine.get(), 1, nullptr, &error),
                 REPRISE_INVALID_ARGUMENT, "blocks: got NULL");
  mine.reset();
  EXPECT_EQ(FreeBlocks(), free);
}

TEST_F(CApiEngine, SessionsKeepToTheirLimits) {
  reprise_session_limits limits = {};
  limits.struct_size = sizeof(limits);
  limits.max_blocks = 2;
  const SessionHandle session = Open(&limits);
  uint32_t blocks[3] = {};
  EXPECT_REFUSED(reprise_session_allocate_blocks(session.get(), 3, blocks, &error),
                 REPRISE_RESOURCE_EXHAUSTED, "");
  EXPECT_DONE(reprise_session_allocate_blocks(session.get(), 2, blocks, &error));
}

TEST_F(CApiEngine, HandlesMayGoInAnyOrder) {
  SessionHandle session = Open();
  engine_.reset();
  device_.reset();
  uint32_t block = 0;
  EXPECT_DONE(reprise_session_allocate_blocks(session.get(), 1, &block, &error));
}

}  // namespace
}  // namespace reprise::capi
