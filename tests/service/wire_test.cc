// SPDX-License-Identifier: Apache-2.0
// service/wire.h: wire to structs and back, every refusal of the conversion, and the sizes that
// docs/wire.md quotes.
#include "service/wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "google/protobuf/util/message_differencer.h"
#include "graphs/sampling.h"
#include "service/message_bounds.h"

namespace reprise::service {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A request that uses everything that is built.
v1::StepRequest FullRequest() {
  v1::StepRequest wire;
  wire.set_session(7);
  wire.set_epoch(0xfedcba9876543210u);
  wire.set_sequence(42);
  wire.add_drop(3);
  wire.add_drop(4294967295u);
  v1::AddRow* add = wire.add_add();
  add->set_row(11);
  add->add_blocks(5);
  add->add_blocks(6);
  add->set_context_length(20);
  add->mutable_sampling()->set_temperature(0.75f);
  add->mutable_sampling()->set_seed(0x0123456789abcdefu);
  wire.add_add()->set_row(12);  // greedy, no blocks yet
  v1::AppendBlocks* append = wire.add_append();
  append->set_row(9);
  append->add_blocks(70);
  v1::Chunk* chunk = wire.add_chunks();
  chunk->set_row(11);
  chunk->add_tokens(100);
  chunk->add_tokens(101);
  chunk->set_sample(true);
  v1::Chunk* first_half = wire.add_chunks();
  first_half->set_row(12);
  first_half->add_tokens(1);
  wire.add_continue_rows(9);
  wire.set_mode(v1::EXECUTION_MODE_EAGER);
  return wire;
}

graphs::StepResult TwoRowResult() {
  graphs::StepResult result;
  result.session = 7;
  result.sequence = 42;
  result.rows = {{.row = 11, .sampled = true, .token = 65, .logprob = -0.5f, .context_length = 22},
                 // Stale values of a row that did not sample must not reach the wire.
                 {.row = 12, .sampled = false, .token = 99, .logprob = -9.0f, .context_length = 1},
                 {.row = 9,
                  .status = graphs::RowStatus::kStopped,
                  .sampled = false,
                  .token = 0,
                  .logprob = 0.0f,
                  .context_length = 8}};
  result.report = {.graph = "mixed/64",
                   .replayed = true,
                   .rows = 2,
                   .tokens = 3,
                   .padding_rows = 0,
                   .padding_tokens = 61};
  result.ledger = {.validate_ns = 1, .ring_ns = 2, .launch_ns = 3, .device_ns = 4, .total_ns = 100};
  return result;
}

absl::Status Convert(const v1::StepRequest& wire) {
  StepScratch scratch;
  graphs::StepRequest step;
  return StepFromWire(wire, &scratch, &step);
}

TEST(StepFromWire, CarriesEveryField) {
  const v1::StepRequest wire = FullRequest();
  StepScratch scratch;
  graphs::StepRequest step;
  ASSERT_TRUE(StepFromWire(wire, &scratch, &step).ok());
  EXPECT_EQ(step.session, 7u);
  EXPECT_EQ(step.epoch, 0xfedcba9876543210u);
  EXPECT_EQ(step.sequence, 42u);
  EXPECT_THAT(step.drop, ElementsAre(3, 4294967295u));
  ASSERT_EQ(step.add.size(), 2u);
  EXPECT_EQ(step.add[0].row, 11u);
  EXPECT_THAT(step.add[0].blocks, ElementsAre(5, 6));
  EXPECT_EQ(step.add[0].context_length, 20u);
  EXPECT_EQ(step.add[0].sampling.temperature, 0.75f);
  EXPECT_EQ(step.add[0].sampling.seed, 0x0123456789abcdefu);
  EXPECT_EQ(step.add[1].row, 12u);
  EXPECT_THAT(step.add[1].blocks, IsEmpty());
  EXPECT_EQ(step.add[1].sampling.temperature, 0.0f);
  ASSERT_EQ(step.append.size(), 1u);
  EXPECT_EQ(step.append[0].row, 9u);
  EXPECT_THAT(step.append[0].blocks, ElementsAre(70));
  ASSERT_EQ(step.chunks.size(), 2u);
  EXPECT_EQ(step.chunks[0].row, 11u);
  EXPECT_THAT(step.chunks[0].tokens, ElementsAre(100, 101));
  EXPECT_TRUE(step.chunks[0].sample);
  EXPECT_FALSE(step.chunks[1].sample);
  EXPECT_THAT(step.continue_rows, ElementsAre(9));
  EXPECT_FALSE(step.continue_all);
  EXPECT_EQ(step.mode, graphs::ExecutionMode::kEager);
}

TEST(StepFromWire, SurvivesTheWire) {
  const v1::StepRequest wire = FullRequest();
  v1::StepRequest parsed;
  ASSERT_TRUE(ParseWire(SerializeWire(wire), &parsed).ok());
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(wire, parsed));
}

TEST(StepFromWire, LeavesNothingBehindFromTheStepBefore) {
  StepScratch scratch;
  graphs::StepRequest step;
  ASSERT_TRUE(StepFromWire(FullRequest(), &scratch, &step).ok());
  v1::StepRequest steady;
  steady.set_sequence(43);
  steady.set_continue_all(true);
  ASSERT_TRUE(StepFromWire(steady, &scratch, &step).ok());
  EXPECT_EQ(step.session, 0u);
  EXPECT_EQ(step.epoch, 0u);
  EXPECT_EQ(step.sequence, 43u);
  EXPECT_THAT(step.drop, IsEmpty());
  EXPECT_TRUE(step.add.empty());
  EXPECT_TRUE(step.append.empty());
  EXPECT_TRUE(step.chunks.empty());
  EXPECT_THAT(step.continue_rows, IsEmpty());
  EXPECT_TRUE(step.continue_all);
  EXPECT_EQ(step.mode, graphs::ExecutionMode::kReplay);
}

TEST(StepFromWire, ReusesItsArrays) {
  StepScratch scratch;
  graphs::StepRequest step;
  ASSERT_TRUE(StepFromWire(FullRequest(), &scratch, &step).ok());
  const graphs::RowAdd* adds = scratch.add.data();
  const graphs::RowChunk* chunks = scratch.chunks.data();
  ASSERT_TRUE(StepFromWire(FullRequest(), &scratch, &step).ok());
  EXPECT_EQ(scratch.add.data(), adds);
  EXPECT_EQ(scratch.chunks.data(), chunks);
}

TEST(StepFromWire, ModeDefaultsToReplay) {
  for (const v1::ExecutionMode mode : {v1::EXECUTION_MODE_UNSPECIFIED, v1::EXECUTION_MODE_REPLAY}) {
    v1::StepRequest wire;
    wire.set_mode(mode);
    StepScratch scratch;
    graphs::StepRequest step;
    step.mode = graphs::ExecutionMode::kEager;
    ASSERT_TRUE(StepFromWire(wire, &scratch, &step).ok());
    EXPECT_EQ(step.mode, graphs::ExecutionMode::kReplay);
  }
}

TEST(StepFromWire, RefusesUnknownMode) {
  v1::StepRequest wire;
  wire.set_mode(static_cast<v1::ExecutionMode>(9));
  const absl::Status status = Convert(wire);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("mode: got 9"));
}

// Numbers with no meaning pass: the engine judges them.
TEST(StepFromWire, LeavesMeaningToTheEngine) {
  v1::StepRequest wire;
  wire.add_add()->mutable_sampling()->set_temperature(std::numeric_limits<float>::quiet_NaN());
  StepScratch scratch;
  graphs::StepRequest step;
  ASSERT_TRUE(StepFromWire(wire, &scratch, &step).ok());
  EXPECT_TRUE(std::isnan(step.add[0].sampling.temperature));
}

v1::Sampling* SamplingOf(v1::StepRequest& wire) { return wire.mutable_add(0)->mutable_sampling(); }

TEST(StepFromWire, CarriesEverySamplingField) {
  v1::StepRequest wire = FullRequest();
  v1::Sampling* from = SamplingOf(wire);
  from->set_top_k(40);
  from->set_top_p(0.5f);
  from->set_min_p(0.25f);
  from->set_repetition_penalty(1.5f);
  from->set_presence_penalty(-1.0f);
  from->set_frequency_penalty(0.125f);
  from->set_num_logprobs(3);
  from->add_logit_bias_token(9);
  from->add_logit_bias(-4.0f);
  from->set_allowed_tokens(std::string("\x03\x80", 2));
  from->add_stop_tokens(5);
  from->add_stop_tokens(6);
  from->set_stop_at_eos(true);
  from->set_max_new_tokens(77);
  from->set_min_tokens(7);
  from->set_return_logits(true);
  wire.mutable_add(0)->add_history(1);
  wire.mutable_add(0)->set_prompt_length(12);
  wire.mutable_add(1)->mutable_sampling()->add_logit_bias_token(2);
  wire.mutable_add(1)->mutable_sampling()->add_logit_bias(1.0f);
  v1::SetAllowedTokens* mask = wire.add_masks();
  mask->set_row(9);
  mask->set_allowed_tokens(std::string("\x01", 1));
  wire.mutable_chunks(1)->set_prompt_logprobs(true);
  wire.mutable_chunks(1)->set_next_token(0);
  StepScratch scratch;
  graphs::StepRequest step;
  ASSERT_TRUE(StepFromWire(wire, &scratch, &step).ok());
  const graphs::SamplingParams& got = step.add[0].sampling;
  EXPECT_EQ(got.top_k, 40u);
  EXPECT_EQ(got.top_p, 0.5f);
  EXPECT_EQ(got.min_p, 0.25f);
  EXPECT_EQ(got.repetition_penalty, 1.5f);
  EXPECT_EQ(got.presence_penalty, -1.0f);
  EXPECT_EQ(got.frequency_penalty, 0.125f);
  EXPECT_EQ(got.num_logprobs, 3u);
  ASSERT_EQ(got.logit_bias.size(), 1u);
  EXPECT_EQ(got.logit_bias[0].token, 9u);
  EXPECT_EQ(got.logit_bias[0].bias, -4.0f);
  EXPECT_THAT(got.allowed_tokens, ElementsAre(std::byte{3}, std::byte{0x80}));
  EXPECT_THAT(got.stop_tokens, ElementsAre(5, 6));
  EXPECT_TRUE(got.stop_at_eos);
  EXPECT_EQ(got.max_new_tokens, 77u);
  EXPECT_EQ(got.min_tokens, 7u);
  EXPECT_TRUE(got.return_logits);
  EXPECT_THAT(step.add[0].history, ElementsAre(1));
  EXPECT_EQ(step.add[0].prompt_length, 12u);
  ASSERT_EQ(step.add[1].sampling.logit_bias.size(), 1u);
  EXPECT_EQ(step.add[1].sampling.logit_bias[0].token, 2u);
  ASSERT_EQ(step.masks.size(), 1u);
  EXPECT_EQ(step.masks[0].row, 9u);
  EXPECT_THAT(step.masks[0].allowed_tokens, ElementsAre(std::byte{1}));
  EXPECT_FALSE(step.chunks[0].prompt_logprobs);
  EXPECT_FALSE(step.chunks[0].next_token.has_value());
  EXPECT_TRUE(step.chunks[1].prompt_logprobs);
  EXPECT_EQ(step.chunks[1].next_token, 0u);
}

// What proto3 cannot tell from 0 stands for the neutral number.
TEST(StepFromWire, SamplingLeftOutIsNeutral) {
  v1::StepRequest wire;
  wire.add_add();
  StepScratch scratch;
  graphs::StepRequest step;
  ASSERT_TRUE(StepFromWire(wire, &scratch, &step).ok());
  EXPECT_EQ(step.add[0].sampling.top_p, 1.0f);
  EXPECT_EQ(step.add[0].sampling.repetition_penalty, 1.0f);
  EXPECT_EQ(graphs::FeaturesOf(step.add[0].sampling), 0u);
}

TEST(StepFromWire, RefusesBiasesThatDoNotPair) {
  v1::StepRequest wire = FullRequest();
  SamplingOf(wire)->add_logit_bias(1.0f);
  const absl::Status status = Convert(wire);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("got 1 numbers for 0 tokens"));
}

struct NotBuiltCase {
  std::string field;
  std::function<void(v1::StepRequest&)> set;
};

class NotBuiltYet : public ::testing::TestWithParam<NotBuiltCase> {};

TEST_P(NotBuiltYet, IsUnimplementedByName) {
  v1::StepRequest wire = FullRequest();
  GetParam().set(wire);
  const absl::Status status = Convert(wire);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()), HasSubstr(GetParam().field + ":"));
}

INSTANTIATE_TEST_SUITE_P(Fields, NotBuiltYet,
                         ::testing::Values(NotBuiltCase{
                             "copy_blocks",
                             [](v1::StepRequest& wire) { wire.add_copy_blocks(0); }}),
                         [](const auto& info) { return info.param.field; });

struct UnknownFieldCase {
  std::string name;
  std::function<google::protobuf::Message*(v1::StepRequest&)> message;
};

class UnknownField : public ::testing::TestWithParam<UnknownFieldCase> {};

TEST_P(UnknownField, IsUnimplementedByNumber) {
  v1::StepRequest wire = FullRequest();
  google::protobuf::Message* message = GetParam().message(wire);
  message->GetReflection()->MutableUnknownFields(message)->AddVarint(1234, 1);
  const absl::Status status = Convert(wire);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr(absl::StrCat("reprise.v1.", GetParam().name, ": field 1234")));
}

INSTANTIATE_TEST_SUITE_P(
    Messages, UnknownField,
    ::testing::Values(
        UnknownFieldCase{"StepRequest", [](v1::StepRequest& wire) { return &wire; }},
        UnknownFieldCase{"AddRow", [](v1::StepRequest& wire) { return wire.mutable_add(1); }},
        UnknownFieldCase{"Sampling", [](v1::StepRequest& wire) { return SamplingOf(wire); }},
        UnknownFieldCase{"AppendBlocks",
                         [](v1::StepRequest& wire) { return wire.mutable_append(0); }},
        UnknownFieldCase{"Chunk", [](v1::StepRequest& wire) { return wire.mutable_chunks(1); }}),
    [](const auto& info) { return info.param.name; });

TEST(ParseWire, RefusesBytesThatDoNotParse) {
  const grpc::Slice garbage(std::string("\xff\xff\xff\xff garbage"));
  v1::StepRequest message;
  const absl::Status status = ParseWire(grpc::ByteBuffer(&garbage, 1), &message);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("reprise.v1.StepRequest"));
}

TEST(ParseWire, RefusesTruncatedMessage) {
  std::string bytes = FullRequest().SerializeAsString();
  bytes.resize(bytes.size() - 1);
  const grpc::Slice slice(bytes);
  v1::StepRequest message;
  EXPECT_EQ(ParseWire(grpc::ByteBuffer(&slice, 1), &message).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(ParseWire, ReadsAMessageInPieces) {
  const std::string bytes = FullRequest().SerializeAsString();
  const grpc::Slice pieces[] = {grpc::Slice(bytes.substr(0, 5)), grpc::Slice(bytes.substr(5))};
  v1::StepRequest message;
  ASSERT_TRUE(ParseWire(grpc::ByteBuffer(pieces, 2), &message).ok());
  EXPECT_EQ(message.SerializeAsString(), bytes);
}

TEST(ResultToWire, CarriesEveryField) {
  const StepTimes times = {
      .received_ns = 1000, .converted_ns = 1100, .submitted_ns = 1400, .result_ns = 9000};
  v1::StepResponse wire;
  ResultToWire(TwoRowResult(), times, /*omit_rows=*/false, &wire);
  SetReplyTimes(times, 9500, wire.mutable_ledger());
  EXPECT_EQ(wire.session(), 7u);
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
  graphs::StepResult result = TwoRowResult();
  v1::StepResponse wire;
  ResultToWire(result, {}, /*omit_rows=*/false, &wire);
  EXPECT_THAT(wire.rows().finish_reason(), IsEmpty());
  EXPECT_THAT(wire.rows().rank(), IsEmpty());
  EXPECT_THAT(wire.rows().num_top(), IsEmpty());
  EXPECT_FALSE(wire.has_prompt_logprobs());

  result.top_logprobs = {{.token = 4, .logprob = -0.25f},
                         {.token = 65, .logprob = -0.5f},
                         {.token = 3, .logprob = -1.0f}};
  result.rows[0].finish = graphs::FinishReason::kLength;
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

TEST(ResultToWire, ReplacesTheResultBefore) {
  v1::StepResponse wire;
  ResultToWire(TwoRowResult(), {}, /*omit_rows=*/false, &wire);
  graphs::StepResult second;
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

TEST(DescribeToWire, CarriesEveryField) {
  graphs::EngineInfo info;
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
  info.model.eos_token_ids = {2, 3};
  info.model.token_encoding = runtime::TokenEncoding::kBytes;
  info.device.name = "a machine";
  info.device.driver = "580";
  info.device.total_bytes = 1000;
  info.dtype = runtime::DType::kF32;
  info.linear = graphs::LinearPolicy::kPortable;
  info.limits = {.max_rows = 8,
                 .max_context_length = 64,
                 .max_blocks_per_row = 16,
                 .max_step_tokens = 32,
                 .pipeline_depth = 2};
  info.memory = {.weights_bytes = 1, .kv_cache_bytes = 2, .workspace_bytes = 3, .graphs_bytes = 4};
  info.decode_buckets = {{.bucket = {.index = 0, .capacity = 8, .name = "decode/8"},
                          .num_kernel_nodes = 30,
                          .num_other_nodes = 0,
                          .capture_ns = 5,
                          .device_bytes = 6}};
  info.mixed_buckets = {{.bucket = {.index = 0, .capacity = 32, .name = "mixed/32"},
                         .num_kernel_nodes = 31,
                         .num_other_nodes = 0,
                         .capture_ns = 7,
                         .device_bytes = 8}};
  const graphs::PoolInfo pool = {
      .block_size = 4, .num_blocks = 100, .free_blocks = 99, .bytes = 102400};
  v1::DescribeResponse wire;
  DescribeToWire(info, pool, 4096, &wire);
  EXPECT_EQ(wire.model().name(), "tiny");
  EXPECT_EQ(wire.model().architecture(), "llama");
  EXPECT_EQ(wire.model().vocab_size(), 97u);
  EXPECT_EQ(wire.model().max_position_embeddings(), 256u);
  EXPECT_THAT(wire.model().eos_token_ids(), ElementsAre(2, 3));
  EXPECT_EQ(wire.model().dtype(), "f32");
  EXPECT_EQ(wire.model().num_layers(), 2u);
  EXPECT_EQ(wire.model().hidden_size(), 32u);
  EXPECT_EQ(wire.model().num_heads(), 4u);
  EXPECT_EQ(wire.model().num_kv_heads(), 2u);
  EXPECT_EQ(wire.model().head_dim(), 8u);
  EXPECT_EQ(wire.model().num_parameters(),
            static_cast<uint64_t>(runtime::NumParameters(info.model)));
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
  EXPECT_EQ(wire.limits().max_message_bytes(), 4096u);
  EXPECT_EQ(wire.limits().max_step_bytes(), MaxStepBytes(info.limits));
  EXPECT_EQ(wire.limits().max_result_bytes(), MaxResultBytes(info.limits, 97));
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
  EXPECT_EQ(wire.world_size(), 1u);
  EXPECT_EQ(wire.server_version(), REPRISE_VERSION);
  EXPECT_EQ(wire.api_version(), "reprise.v1");
  EXPECT_EQ(wire.linear_policy(), "portable");
}

// ---- bounds of messages ----

graphs::EngineLimits LimitsOf(uint32_t vocab_size) {
  return {.max_rows = 256,
          .max_context_length = 131072,
          .max_blocks_per_row = 8192,
          .max_step_tokens = 2048,
          .pipeline_depth = 2,
          .adjust_logits = true,
          .max_logit_rows = 4,
          .max_prompt_logprobs = 64,
          .max_sampling_bytes = 4 * graphs::MaxSamplingWords(256, 131072, vocab_size, true),
          .max_stop_tokens = 64,
          .max_logit_bias = 512,
          .max_logprobs = 32};
}

constexpr uint32_t kLongest = 0xfffffff0;  // an id of five bytes

void FillSampling(const graphs::EngineLimits& limits, uint32_t vocab_size, v1::Sampling* s) {
  for (const char* name : {"temperature", "top_p", "min_p", "repetition_penalty",
                           "presence_penalty", "frequency_penalty"}) {
    s->GetReflection()->SetFloat(s, s->GetDescriptor()->FindFieldByName(name), 0.5f);
  }
  s->set_seed(~uint64_t{0});
  s->set_top_k(kLongest);
  s->set_num_logprobs(limits.max_logprobs);
  s->set_max_new_tokens(kLongest);
  s->set_min_tokens(kLongest);
  s->set_stop_at_eos(true);
  s->set_return_logits(true);
  for (uint32_t i = 0; i < limits.max_logit_bias; ++i) {
    s->add_logit_bias_token(kLongest);
    s->add_logit_bias(1.0f);
  }
  for (uint32_t i = 0; i < limits.max_stop_tokens; ++i) s->add_stop_tokens(kLongest);
  s->set_allowed_tokens(std::string((vocab_size + 7) / 8, '\xff'));
}

void FillStep(const graphs::EngineLimits& limits, uint32_t vocab_size, v1::StepRequest* step) {
  step->set_session(~uint64_t{0});
  step->set_epoch(~uint64_t{0});
  step->set_sequence(~uint64_t{0});
  step->set_mode(v1::EXECUTION_MODE_EAGER);
  for (uint32_t i = 0; i < limits.max_rows; ++i) {
    step->add_drop(kLongest);
    v1::AddRow* add = step->add_add();
    add->set_row(kLongest);
    add->set_context_length(kLongest);
    add->set_prompt_length(kLongest);
    FillSampling(limits, vocab_size, add->mutable_sampling());
    v1::AppendBlocks* append = step->add_append();
    append->set_row(kLongest);
    for (uint32_t b = 0; b < limits.max_blocks_per_row; ++b)
      (b % 2 == 0 ? add->mutable_blocks() : append->mutable_blocks())->Add(kLongest);
    v1::Chunk* chunk = step->add_chunks();
    chunk->set_row(kLongest);
    chunk->set_sample(true);
    chunk->set_prompt_logprobs(true);
    chunk->set_next_token(kLongest);
    for (uint32_t t = 0; t < limits.max_step_tokens / limits.max_rows; ++t)
      chunk->add_tokens(kLongest);
  }
  for (uint32_t t = 0; t < limits.max_context_length; ++t)
    step->mutable_add(0)->add_history(kLongest);
}

TEST(MessageBounds, HoldTheLargestStep) {
  for (const uint32_t vocab_size : {97u, 152064u, 262144u}) {
    const graphs::EngineLimits limits = LimitsOf(vocab_size);
    v1::StepStreamRequest message;
    FillStep(limits, vocab_size, message.mutable_step());
    EXPECT_LE(message.ByteSizeLong(), MaxStepBytes(limits));
    EXPECT_GE(message.ByteSizeLong(), MaxStepBytes(limits) * 4 / 5) << "a loose bound";
  }
}

TEST(MessageBounds, HoldANewMaskForEveryRow) {
  for (const uint32_t vocab_size : {152064u, 262144u}) {
    v1::StepStreamRequest message;
    for (uint32_t row = 0; row < 256; ++row) {
      v1::SetAllowedTokens* mask = message.mutable_step()->add_masks();
      mask->set_row(row);
      mask->set_allowed_tokens(std::string(vocab_size / 8, '\x7f'));
    }
    EXPECT_GT(message.ByteSizeLong(), 4u << 20) << "gRPC's default would have done";
    EXPECT_LE(message.ByteSizeLong(), MaxStepBytes(LimitsOf(vocab_size)));
  }
}

TEST(MessageBounds, HoldTheLargestResult) {
  const uint32_t vocab_size = 262144;
  const graphs::EngineLimits limits = LimitsOf(vocab_size);
  graphs::StepResult result;
  result.session = result.sequence = ~uint64_t{0};
  const graphs::TopRange top = {.begin = 0, .count = limits.max_logprobs};
  result.top_logprobs.assign(limits.max_logprobs, {.token = kLongest, .logprob = -1.0f});
  for (uint32_t i = 0; i < limits.max_rows; ++i) {
    result.rows.push_back({.row = kLongest,
                           .sampled = true,
                           .token = kLongest,
                           .logprob = -1.0f,
                           .context_length = kLongest,
                           .finish = graphs::FinishReason::kLength,
                           .rank = kLongest,
                           .top = top,
                           .has_logits = i < limits.max_logit_rows});
  }
  for (uint32_t i = 0; i < limits.max_prompt_logprobs; ++i) {
    result.prompt_logprobs.push_back(
        {.row = kLongest, .position = kLongest, .logprob = -1.0f, .rank = kLongest, .top = top});
  }
  result.logits.assign(uint64_t{vocab_size} * limits.max_logit_rows, 1.0f);
  result.report = {.graph = "mixed/1048576",
                   .replayed = true,
                   .rows = kLongest,
                   .tokens = kLongest,
                   .padding_rows = kLongest,
                   .padding_tokens = kLongest};
  const uint64_t long_ns = uint64_t{1} << 62;
  result.ledger = {.validate_ns = long_ns,
                   .ring_ns = long_ns,
                   .launch_ns = long_ns,
                   .device_ns = long_ns,
                   .total_ns = long_ns};
  v1::StepStreamResponse message;
  ResultToWire(result, {}, /*omit_rows=*/false, message.mutable_step());
  EXPECT_GT(message.ByteSizeLong(), 4u << 20) << "gRPC's default would have done";
  EXPECT_LE(message.ByteSizeLong(), MaxResultBytes(limits, vocab_size));
  EXPECT_GE(message.ByteSizeLong(), MaxResultBytes(limits, vocab_size) * 9 / 10);
}

// ---- the sizes that docs/wire.md quotes; a change here is a change there ----

// A long-running session: its epoch takes nine bytes (engines take it from the clock), its sequence
// number three.
size_t BytesOf(v1::StepRequest step) {
  step.set_epoch(1800000000000000000u);
  step.set_sequence(100000);
  v1::StepStreamRequest message;
  *message.mutable_step() = std::move(step);
  return message.ByteSizeLong();
}

TEST(WireSize, SteadyStateIsEighteenBytesForAnyNumberOfRows) {
  v1::StepRequest step;
  step.set_continue_all(true);
  EXPECT_EQ(BytesOf(step), 18u);
}

TEST(WireSize, NamingRowsTakesOneOrTwoBytesEach) {
  const std::pair<uint32_t, size_t> sizes[] = {{1, 19}, {64, 82}, {256, 404}};
  for (const auto& [rows, bytes] : sizes) {
    v1::StepRequest step;
    for (uint32_t row = 0; row < rows; ++row) step.add_continue_rows(row);
    EXPECT_EQ(BytesOf(step), bytes) << rows << " rows";
  }
}

// One row in 16 needs a block at each step when a block holds 16 tokens.
TEST(WireSize, SteadyStateWithTheBlocksItTakesStaysUnderTheTarget) {
  const std::pair<uint32_t, size_t> sizes[] = {{1, 24}, {64, 48}, {256, 153}};
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
  const std::pair<uint32_t, size_t> sizes[] = {{1, 84}, {64, 845}, {256, 3280}};
  for (const auto& [rows, bytes] : sizes) {
    graphs::StepResult result = TwoRowResult();
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
