// SPDX-License-Identifier: Apache-2.0
// service/wire: structs to the wire, and the sizes that docs/wire.md quotes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include "google/protobuf/util/message_differencer.h"
#include "models/decoder.h"
#include "service/message_bounds.h"
#include "service/wire/describe_to_wire.h"
#include "service/wire/result_to_wire.h"

namespace reprise::service {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

engine::StepResult TwoRowResult() {
  engine::StepResult result;
  result.session = 7;
  result.sequence = 42;
  result.rows = {{.row = 11, .sampled = true, .token = 65, .logprob = -0.5f, .context_length = 22},
                 // Stale values of a row that did not sample must not reach the wire.
                 {.row = 12, .sampled = false, .token = 99, .logprob = -9.0f, .context_length = 1},
                 {.row = 9,
                  .status = engine::RowStatus::kStopped,
                  .sampled = false,
                  .token = 0,
                  .logprob = 0.0f,
                  .context_length = 8}};
  result.report = {.graph = "mixed/64",
                   .replayed = true,
                   .rows = 2,
                   .tokens = 3,
                   .padding_rows = 0,
                   .padding_tokens = 61,
                   .attention_tree = 3,
                   .attention_leaf = 2};
  result.ledger = {.validate_ns = 1, .ring_ns = 2, .launch_ns = 3, .device_ns = 4, .total_ns = 100};
  return result;
}

TEST(ResultToWire, CarriesEveryField) {
  const StepTimes times = {
      .received_ns = 1000, .converted_ns = 1100, .submitted_ns = 1400, .result_ns = 9000};
  v1::StepResponse wire;
  ResultToWire(TwoRowResult(), times, /*omit_rows=*/false, &wire);
  SetReplyTimes(times, 9500, wire.mutable_ledger());
  EXPECT_EQ(wire.sequence(), 42u);
  EXPECT_THAT(wire.rows().row(), ElementsAre(11, 12, 9));
  EXPECT_THAT(wire.rows().status(),
              ElementsAre(v1::ROW_STATUS_RAN, v1::ROW_STATUS_RAN, v1::ROW_STATUS_STOPPED));
  EXPECT_THAT(wire.rows().sampled(), ElementsAre(true, false, false));
  EXPECT_THAT(wire.rows().token(), ElementsAre(65, 0, 0));
  EXPECT_THAT(wire.rows().logprob(), ElementsAre(-0.5f, 0.0f, 0.0f));
  EXPECT_THAT(wire.rows().context_length(), ElementsAre(22, 1, 8));
  EXPECT_EQ(wire.report().graph(), "mixed/64");
  EXPECT_TRUE(wire.report().replayed());
  EXPECT_EQ(wire.report().rows(), 2u);
  EXPECT_EQ(wire.report().tokens(), 3u);
  EXPECT_EQ(wire.report().padding_rows(), 0u);
  EXPECT_EQ(wire.report().padding_tokens(), 61u);
  EXPECT_EQ(wire.report().attention_tree(), 3u);
  EXPECT_EQ(wire.report().attention_leaf(), 2u);
  EXPECT_EQ(wire.ledger().wire_ns(), 100u);
  EXPECT_EQ(wire.ledger().queue_ns(), 300u);
  EXPECT_EQ(wire.ledger().validate_ns(), 1u);
  EXPECT_EQ(wire.ledger().ring_ns(), 2u);
  EXPECT_EQ(wire.ledger().launch_ns(), 3u);
  EXPECT_EQ(wire.ledger().device_ns(), 4u);
  EXPECT_EQ(wire.ledger().reply_ns(), 500u);
  EXPECT_EQ(wire.ledger().total_ns(), 8500u);
}

TEST(ResultToWire, FillsRareColumnsOnlyWhereARowNeedsThem) {
  engine::StepResult result = TwoRowResult();
  v1::StepResponse wire;
  ResultToWire(result, {}, /*omit_rows=*/false, &wire);
  EXPECT_THAT(wire.rows().finish_reason(), IsEmpty());
  EXPECT_THAT(wire.rows().rank(), IsEmpty());
  EXPECT_THAT(wire.rows().num_top(), IsEmpty());
  EXPECT_FALSE(wire.has_prompt_logprobs());

  result.top_logprobs = {{.token = 4, .logprob = -0.25f},
                         {.token = 65, .logprob = -0.5f},
                         {.token = 3, .logprob = -1.0f}};
  result.rows[0].finish = engine::FinishReason::kLength;
  result.rows[0].rank = 2;
  result.rows[0].top = {.begin = 0, .count = 2};
  result.rows[0].has_logits = true;
  result.logits = {1.5f, -2.0f};
  result.prompt_logprobs = {
      {.row = 12, .position = 8, .logprob = -3.0f, .rank = 9, .top = {.begin = 2, .count = 1}}};
  ResultToWire(result, {}, /*omit_rows=*/false, &wire);
  EXPECT_THAT(wire.rows().finish_reason(),
              ElementsAre(v1::FINISH_REASON_LENGTH, v1::FINISH_REASON_UNSPECIFIED,
                          v1::FINISH_REASON_UNSPECIFIED));
  EXPECT_THAT(wire.rows().rank(), ElementsAre(2, 0, 0));
  EXPECT_THAT(wire.rows().num_top(), ElementsAre(2, 0, 0));
  EXPECT_THAT(wire.rows().top_token(), ElementsAre(4, 65));
  EXPECT_THAT(wire.rows().top_logprob(), ElementsAre(-0.25f, -0.5f));
  EXPECT_THAT(wire.rows().logits_row(), ElementsAre(11));
  EXPECT_THAT(wire.rows().logits(), ElementsAre(1.5f, -2.0f));
  EXPECT_THAT(wire.prompt_logprobs().row(), ElementsAre(12));
  EXPECT_THAT(wire.prompt_logprobs().position(), ElementsAre(8));
  EXPECT_THAT(wire.prompt_logprobs().logprob(), ElementsAre(-3.0f));
  EXPECT_THAT(wire.prompt_logprobs().rank(), ElementsAre(9));
  EXPECT_THAT(wire.prompt_logprobs().num_top(), ElementsAre(1));
  EXPECT_THAT(wire.prompt_logprobs().top_token(), ElementsAre(3));
  EXPECT_THAT(wire.prompt_logprobs().top_logprob(), ElementsAre(-1.0f));
}

TEST(ResultToWire, CarriesAcceptedDraftsWhereARowHasAny) {
  engine::StepResult result = TwoRowResult();
  v1::StepResponse wire;
  ResultToWire(result, {}, /*omit_rows=*/false, &wire);
  EXPECT_FALSE(wire.rows().has_accepted());

  result.rows[1].accepted = {.begin = 0, .count = 2};
  result.accepted = {{.token = 5, .logprob = -0.5f}, {.token = 6, .logprob = -1.5f}};
  ResultToWire(result, {}, /*omit_rows=*/false, &wire);
  EXPECT_THAT(wire.rows().accepted().count(), ElementsAre(0, 2, 0));
  EXPECT_THAT(wire.rows().accepted().token(), ElementsAre(5, 6));
  EXPECT_THAT(wire.rows().accepted().logprob(), ElementsAre(-0.5f, -1.5f));
  EXPECT_THAT(wire.rows().accepted().rank(), IsEmpty());

  result.top_logprobs = {{.token = 4, .logprob = -0.25f}, {.token = 9, .logprob = -0.75f}};
  result.accepted[1].rank = 3;
  result.accepted[1].top = {.begin = 0, .count = 2};
  ResultToWire(result, {}, /*omit_rows=*/false, &wire);
  EXPECT_THAT(wire.rows().accepted().rank(), ElementsAre(0, 3));
  EXPECT_THAT(wire.rows().accepted().num_top(), ElementsAre(0, 2));
  EXPECT_THAT(wire.rows().accepted().top_token(), ElementsAre(4, 9));
  EXPECT_THAT(wire.rows().accepted().top_logprob(), ElementsAre(-0.25f, -0.75f));
}

// The rows of both, one step after another.
engine::StepResult TwoStepResult() {
  engine::StepResult result = TwoRowResult();
  result.rows.push_back(
      {.row = 11, .status = engine::RowStatus::kPaused, .sampled = false, .context_length = 22});
  result.steps = {{.num_rows = 3, .report = result.report, .device_ns = 4},
                  {.num_rows = 1,
                   .report = {.graph = "decode/1",
                              .replayed = true,
                              .padding_rows = 1,
                              .padding_tokens = 1,
                              .attention_tree = 3},
                   .device_ns = 5}};
  return result;
}

TEST(ResultToWire, SaysWhichRowsAreOfWhichStep) {
  v1::StepResponse wire;
  ResultToWire(TwoStepResult(), {}, /*omit_rows=*/false, &wire);
  EXPECT_THAT(wire.rows().row(), ElementsAre(11, 12, 9, 11));
  EXPECT_EQ(wire.rows().status(3), v1::ROW_STATUS_PAUSED);
  EXPECT_EQ(wire.report().graph(), "mixed/64");
  ASSERT_EQ(wire.steps_size(), 2);
  EXPECT_EQ(wire.steps(0).num_rows(), 3u);
  EXPECT_EQ(wire.steps(0).report().graph(), "mixed/64");
  EXPECT_EQ(wire.steps(0).device_ns(), 4u);
  EXPECT_EQ(wire.steps(1).num_rows(), 1u);
  EXPECT_EQ(wire.steps(1).report().graph(), "decode/1");
  EXPECT_EQ(wire.steps(1).report().padding_rows(), 1u);
  EXPECT_EQ(wire.steps(1).device_ns(), 5u);
}

TEST(ResultToWire, LeavesStepsOutOfARequestOfOne) {
  engine::StepResult result = TwoRowResult();
  result.steps = {{.num_rows = 3, .report = result.report, .device_ns = 4}};
  v1::StepResponse wire;
  ResultToWire(TwoStepResult(), {}, /*omit_rows=*/false, &wire);
  ResultToWire(result, {}, /*omit_rows=*/false, &wire);
  EXPECT_EQ(wire.steps_size(), 0);
}

TEST(ResultToWire, ReplacesTheResultBefore) {
  v1::StepResponse wire;
  ResultToWire(TwoStepResult(), {}, /*omit_rows=*/false, &wire);
  engine::StepResult second;
  second.session = 7;
  second.sequence = 43;
  second.rows = {{.row = 5, .sampled = true, .token = 1, .logprob = -1.0f, .context_length = 2}};
  second.report.graph = "decode/1";
  ResultToWire(second, {}, /*omit_rows=*/false, &wire);
  v1::StepResponse fresh;
  ResultToWire(second, {}, /*omit_rows=*/false, &fresh);
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(wire, fresh));
}

TEST(ResultToWire, OmitsRowsWhenAsked) {
  v1::StepResponse wire;
  ResultToWire(TwoRowResult(), {}, /*omit_rows=*/false, &wire);
  ResultToWire(TwoRowResult(), {}, /*omit_rows=*/true, &wire);
  EXPECT_FALSE(wire.has_rows());
  EXPECT_EQ(wire.report().rows(), 2u);
}

TEST(ErrorToWire, CarriesSequenceCodeAndMessage) {
  v1::StepError wire;
  ErrorToWire(5, absl::OutOfRangeError("context: got 65, allowed 64"), &wire);
  EXPECT_EQ(wire.sequence(), 5u);
  EXPECT_EQ(wire.code(), 11);
  EXPECT_EQ(wire.message(), "context: got 65, allowed 64");
}

// Of a model that there could be.
engine::EngineInfo TinyInfo() {
  engine::EngineInfo info;
  info.model.name = "tiny";
  info.model.architecture = "llama";
  info.model.vocab_size = 97;
  info.model.hidden_size = 32;
  info.model.intermediate_size = 48;
  info.model.num_layers = 2;
  info.model.num_heads = 4;
  info.model.num_kv_heads = 2;
  info.model.head_dim = 8;
  info.model.max_position_embeddings = 256;
  info.model.attention_multiplier = 1.0;
  info.model.eos_token_ids = {2, 3};
  info.model.token_encoding = models::TokenEncoding::kBytes;
  return info;
}

TEST(DescribeToWire, CarriesEveryField) {
  engine::EngineInfo info = TinyInfo();
  info.device.name = "a machine";
  info.device.driver = "580";
  info.device.total_bytes = 1000;
  info.dtype = runtime::DType::kF32;
  info.kv_dtype = runtime::DType::kE4m3;
  info.linear = engine::LinearPolicy::kPortable;
  info.limits = {.max_rows = 8,
                 .max_context_length = 64,
                 .max_blocks_per_row = 16,
                 .max_step_tokens = 32,
                 .pipeline_depth = 2,
                 .max_steps_per_request = 7,
                 .min_shared_tokens = 48,
                 .max_draft_tokens = 9,
                 .row_state_bytes = 4321};
  info.memory = {.weights_bytes = 1, .kv_cache_bytes = 2, .workspace_bytes = 3, .graphs_bytes = 77};
  engine::GraphsInfo graphs;
  graphs.version = 6;
  graphs.device_bytes = 4;
  graphs.decode_buckets = {{.bucket = {.index = 0, .capacity = 8, .name = "decode/8"},
                            .num_kernel_nodes = 30,
                            .num_other_nodes = 0,
                            .capture_ns = 5,
                            .device_bytes = 6}};
  graphs.mixed_buckets = {{.bucket = {.index = 0, .capacity = 32, .name = "mixed/32"},
                           .num_kernel_nodes = 31,
                           .num_other_nodes = 0,
                           .capture_ns = 7,
                           .device_bytes = 8}};
  const engine::PoolInfo pool = {
      .block_size = 4, .num_blocks = 100, .free_blocks = 99, .bytes = 102400};
  v1::DescribeResponse wire;
  const engine::AttentionTreeInfo tree = {.version = 5,
                                          .batch_invariant = true,
                                          .text = "a tree",
                                          .row_leaves = {"all"},
                                          .batch_leaves = {"few", "many"}};
  DescribeToWire(info, pool, graphs, tree, 4096, &wire);
  EXPECT_EQ(wire.model().name(), "tiny");
  EXPECT_EQ(wire.model().architecture(), "llama");
  EXPECT_EQ(wire.model().vocab_size(), 97u);
  EXPECT_EQ(wire.model().max_position_embeddings(), 256u);
  EXPECT_THAT(wire.model().eos_token_ids(), ElementsAre(2, 3));
  EXPECT_EQ(wire.model().dtype(), "f32");
  EXPECT_EQ(wire.model().kv_dtype(), "fp8_e4m3");
  EXPECT_EQ(wire.model().num_layers(), 2u);
  EXPECT_EQ(wire.model().hidden_size(), 32u);
  EXPECT_EQ(wire.model().num_heads(), 4u);
  EXPECT_EQ(wire.model().num_kv_heads(), 2u);
  EXPECT_EQ(wire.model().head_dim(), 8u);
  EXPECT_EQ(wire.model().num_parameters(),
            static_cast<uint64_t>(models::NumParameters(info.model)));
  EXPECT_EQ(wire.model().token_encoding(), v1::TOKEN_ENCODING_BYTES);
  EXPECT_EQ(wire.pool().block_size(), 4u);
  EXPECT_EQ(wire.pool().num_blocks(), 100u);
  EXPECT_EQ(wire.pool().free_blocks(), 99u);
  EXPECT_EQ(wire.pool().bytes(), 102400u);
  EXPECT_EQ(wire.limits().max_rows(), 8u);
  EXPECT_EQ(wire.limits().max_context_length(), 64u);
  EXPECT_EQ(wire.limits().max_blocks_per_row(), 16u);
  EXPECT_EQ(wire.limits().max_step_tokens(), 32u);
  EXPECT_EQ(wire.limits().pipeline_depth(), 2u);
  EXPECT_EQ(wire.limits().max_steps_per_request(), 7u);
  EXPECT_EQ(wire.limits().max_message_bytes(), 4096u);
  EXPECT_EQ(wire.limits().max_step_bytes(), MaxStepBytes(info.limits));
  EXPECT_EQ(wire.limits().max_result_bytes(), MaxResultBytes(info.limits));
  EXPECT_EQ(wire.limits().min_shared_tokens(), 48u);
  EXPECT_EQ(wire.limits().max_draft_tokens(), 9u);
  EXPECT_EQ(wire.limits().row_state_bytes(), 4321u);
  ASSERT_EQ(wire.buckets_size(), 2);
  EXPECT_EQ(wire.buckets(0).name(), "decode/8");
  EXPECT_EQ(wire.buckets(0).kind(), "decode");
  EXPECT_EQ(wire.buckets(0).capacity(), 8u);
  EXPECT_EQ(wire.buckets(0).kernel_nodes(), 30u);
  EXPECT_EQ(wire.buckets(0).other_nodes(), 0u);
  EXPECT_EQ(wire.buckets(0).capture_ns(), 5u);
  EXPECT_EQ(wire.buckets(0).device_bytes(), 6u);
  EXPECT_EQ(wire.buckets(1).kind(), "mixed");
  EXPECT_EQ(wire.buckets(1).capacity(), 32u);
  EXPECT_EQ(wire.device().kind(), "host");
  EXPECT_EQ(wire.device().name(), "a machine");
  EXPECT_EQ(wire.device().driver(), "580");
  EXPECT_EQ(wire.device().total_bytes(), 1000u);
  EXPECT_EQ(wire.memory().weights_bytes(), 1u);
  EXPECT_EQ(wire.memory().kv_cache_bytes(), 2u);
  EXPECT_EQ(wire.memory().workspace_bytes(), 3u);
  EXPECT_EQ(wire.memory().graphs_bytes(), 4u);
  EXPECT_EQ(wire.buckets_version(), 6u);
  EXPECT_EQ(wire.world_size(), 1u);
  EXPECT_EQ(wire.server_version(), REPRISE_VERSION);
  EXPECT_EQ(wire.api_version(), "reprise.v1");
  EXPECT_EQ(wire.linear_policy(), "portable");
  EXPECT_EQ(wire.attention_tree().version(), 5u);
  EXPECT_TRUE(wire.attention_tree().batch_invariant());
  EXPECT_EQ(wire.attention_tree().text(), "a tree");
  EXPECT_THAT(wire.attention_tree().row_leaves(), ElementsAre("all"));
  EXPECT_THAT(wire.attention_tree().batch_leaves(), ElementsAre("few", "many"));
}

// A model's directory may have any bytes as its name; a client takes UTF-8 alone.
TEST(DescribeToWire, NamesAreUtf8WhateverTheirBytes) {
  const std::string replaced = "\xef\xbf\xbd";
  const std::pair<std::string, std::string> names[] = {
      {"byte-llama", "byte-llama"},
      {"gr\xc3\xbc\xc3\x9f", "gr\xc3\xbc\xc3\x9f"},
      {"\xe2\x82\xac \xf0\x9f\x98\x80", "\xe2\x82\xac \xf0\x9f\x98\x80"},
      {"m\xff", "m" + replaced},
      {"\xc3", replaced},
      {"\xc0\x80x", replaced + replaced + "x"},
      {"\xed\xa0\x80", replaced + replaced + replaced},
      {"\xf4\x90\x80\x80", replaced + replaced + replaced + replaced},
      {"\xe2\x82", replaced + replaced},
  };
  for (const auto& [name, told] : names) {
    engine::EngineInfo info = TinyInfo();
    info.model.name = name;
    v1::DescribeResponse wire;
    DescribeToWire(info, {}, {}, {}, 0, &wire);
    EXPECT_EQ(wire.model().name(), told);
    v1::DescribeResponse parsed;
    EXPECT_TRUE(parsed.ParseFromString(wire.SerializeAsString()));
  }
}

// ---- the sizes that docs/wire.md quotes; a change here is a change there ----

// A long-running session, on its own stream: the sequence number takes three bytes.
size_t BytesOf(v1::StepRequest step) {
  step.set_sequence(100000);
  v1::StepStreamRequest message;
  *message.mutable_step() = std::move(step);
  return message.ByteSizeLong();
}

TEST(WireSize, SteadyStateIsEightBytesForAnyNumberOfRows) {
  v1::StepRequest step;
  step.set_continue_all(true);
  EXPECT_EQ(BytesOf(step), 8u);
}

TEST(WireSize, SeveralStepsTakeTwoBytesMore) {
  v1::StepRequest step;
  step.set_continue_all(true);
  step.set_num_steps(8);
  EXPECT_EQ(BytesOf(step), 10u);
}

TEST(WireSize, NamingRowsTakesOneOrTwoBytesEach) {
  const std::pair<uint32_t, size_t> sizes[] = {{1, 9}, {64, 72}, {256, 394}};
  for (const auto& [rows, bytes] : sizes) {
    v1::StepRequest step;
    for (uint32_t row = 0; row < rows; ++row) step.add_continue_rows(row);
    EXPECT_EQ(BytesOf(step), bytes) << rows << " rows";
  }
}

// One row in 16 needs a block at each step when a block holds 16 tokens.
TEST(WireSize, SteadyStateWithTheBlocksItTakesStaysUnderTheTarget) {
  const std::pair<uint32_t, size_t> sizes[] = {{1, 14}, {64, 38}, {256, 143}};
  for (const auto& [rows, bytes] : sizes) {
    v1::StepRequest step;
    step.set_continue_all(true);
    for (uint32_t row = 0; row < rows; row += 16) {
      v1::AppendBlocks* append = step.add_append();
      append->set_row(row);
      append->add_blocks(1000 + row);
    }
    EXPECT_EQ(BytesOf(step), bytes) << rows << " rows";
    EXPECT_LE(BytesOf(step), 512u) << rows << " rows";
  }
}

TEST(WireSize, ReplyTakesAboutThirteenBytesPerRow) {
  const std::pair<uint32_t, size_t> sizes[] = {{1, 86}, {64, 847}, {256, 3282}};
  for (const auto& [rows, bytes] : sizes) {
    engine::StepResult result = TwoRowResult();
    result.sequence = 100000;
    result.ledger = {.validate_ns = 2000,
                     .ring_ns = 1000,
                     .launch_ns = 2000,
                     .device_ns = 5000000,
                     .total_ns = 5010000};
    const StepTimes times = {
        .received_ns = 0, .converted_ns = 3000, .submitted_ns = 3200, .result_ns = 5013000};
    result.rows.clear();
    for (uint32_t row = 0; row < rows; ++row) {
      result.rows.push_back(
          {.row = row, .sampled = true, .token = 50000, .logprob = -0.25f, .context_length = 1000});
    }
    v1::StepStreamResponse message;
    ResultToWire(result, times, /*omit_rows=*/false, message.mutable_step());
    SetReplyTimes(times, 5020000, message.mutable_step()->mutable_ledger());
    EXPECT_EQ(message.ByteSizeLong(), bytes) << rows << " rows";
  }
}

}  // namespace
}  // namespace reprise::service
