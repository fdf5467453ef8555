// SPDX-License-Identifier: Apache-2.0
// service/wire: requests from the wire to structs, and every refusal of the conversion.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/step/sampling.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/util/message_differencer.h"
#include "service/wire/message.h"
#include "service/wire/step_from_wire.h"

namespace reprise::service {
namespace {

using ::google::protobuf::FieldDescriptor;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A request that uses everything that is built.
v1::StepRequest FullRequest() {
  v1::StepRequest wire;
  wire.set_session("0123456789abcdef");
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
  v1::RowDraft* draft = wire.add_drafts();
  draft->set_row(9);
  draft->add_tokens(7);
  draft->add_tokens(8);
  wire.set_mode(v1::EXECUTION_MODE_EAGER);
  return wire;
}

absl::Status Convert(const v1::StepRequest& wire) {
  StepScratch scratch;
  engine::StepRequest step;
  return StepFromWire(wire, &scratch, &step);
}

v1::StepRequest SeveralSteps(v1::ExecutionMode mode, uint32_t num_steps) {
  v1::StepRequest wire;
  wire.set_continue_all(true);
  wire.set_mode(mode);
  wire.set_num_steps(num_steps);
  return wire;
}

TEST(StepFromWire, CarriesEveryField) {
  const v1::StepRequest wire = FullRequest();
  StepScratch scratch;
  engine::StepRequest step;
  ASSERT_TRUE(StepFromWire(wire, &scratch, &step).ok());
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
  ASSERT_EQ(step.drafts.size(), 1u);
  EXPECT_EQ(step.drafts[0].row, 9u);
  EXPECT_THAT(step.drafts[0].tokens, ElementsAre(7, 8));
  EXPECT_FALSE(step.continue_all);
  EXPECT_EQ(step.mode, engine::ExecutionMode::kEager);
}

TEST(StepFromWire, CarriesTheNumberOfSteps) {
  StepScratch scratch;
  engine::StepRequest step;
  ASSERT_TRUE(StepFromWire(SeveralSteps(v1::EXECUTION_MODE_UNSPECIFIED, 6), &scratch, &step).ok());
  EXPECT_EQ(step.num_steps, 6u);
}

TEST(StepFromWire, RefusesSeveralStepsRunEagerly) {
  EXPECT_TRUE(Convert(SeveralSteps(v1::EXECUTION_MODE_EAGER, 0)).ok());
  EXPECT_TRUE(Convert(SeveralSteps(v1::EXECUTION_MODE_EAGER, 1)).ok());
  const absl::Status status = Convert(SeveralSteps(v1::EXECUTION_MODE_EAGER, 2));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "num_steps: got 2 with mode eager, allowed with it: 1");
}

TEST(StepFromWire, SurvivesTheWire) {
  const v1::StepRequest wire = FullRequest();
  v1::StepRequest parsed;
  ASSERT_TRUE(ParseWire(SerializeWire(wire), &parsed).ok());
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(wire, parsed));
}

TEST(StepFromWire, LeavesNothingBehindFromTheStepBefore) {
  StepScratch scratch;
  engine::StepRequest step;
  ASSERT_TRUE(StepFromWire(FullRequest(), &scratch, &step).ok());
  step.num_steps = 6;
  v1::StepRequest steady;
  steady.set_sequence(43);
  steady.set_continue_all(true);
  ASSERT_TRUE(StepFromWire(steady, &scratch, &step).ok());
  EXPECT_EQ(step.sequence, 43u);
  EXPECT_THAT(step.drop, IsEmpty());
  EXPECT_TRUE(step.add.empty());
  EXPECT_TRUE(step.append.empty());
  EXPECT_TRUE(step.chunks.empty());
  EXPECT_TRUE(step.drafts.empty());
  EXPECT_THAT(step.continue_rows, IsEmpty());
  EXPECT_TRUE(step.continue_all);
  EXPECT_EQ(step.mode, engine::ExecutionMode::kReplay);
  EXPECT_EQ(step.num_steps, 1u);
}

TEST(StepFromWire, ReusesItsArrays) {
  StepScratch scratch;
  engine::StepRequest step;
  ASSERT_TRUE(StepFromWire(FullRequest(), &scratch, &step).ok());
  const engine::RowAdd* adds = scratch.add.data();
  const engine::RowChunk* chunks = scratch.chunks.data();
  ASSERT_TRUE(StepFromWire(FullRequest(), &scratch, &step).ok());
  EXPECT_EQ(scratch.add.data(), adds);
  EXPECT_EQ(scratch.chunks.data(), chunks);
}

TEST(StepFromWire, ModeDefaultsToReplay) {
  for (const v1::ExecutionMode mode : {v1::EXECUTION_MODE_UNSPECIFIED, v1::EXECUTION_MODE_REPLAY}) {
    v1::StepRequest wire;
    wire.set_mode(mode);
    StepScratch scratch;
    engine::StepRequest step;
    step.mode = engine::ExecutionMode::kEager;
    ASSERT_TRUE(StepFromWire(wire, &scratch, &step).ok());
    EXPECT_EQ(step.mode, engine::ExecutionMode::kReplay);
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
  engine::StepRequest step;
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
  wire.mutable_add(0)->set_fork_of(0);
  wire.mutable_add(0)->set_swapped_state(7);
  wire.mutable_add(1)->mutable_sampling()->add_logit_bias_token(2);
  wire.mutable_add(1)->mutable_sampling()->add_logit_bias(1.0f);
  v1::SetAllowedTokens* mask = wire.add_masks();
  mask->set_row(9);
  mask->set_allowed_tokens(std::string("\x01", 1));
  v1::PrefixGroup* prefix = wire.add_prefixes();
  prefix->set_group(11);
  prefix->set_num_blocks(12);
  prefix->add_rows(13);
  prefix->add_rows(14);
  wire.mutable_chunks(1)->set_prompt_logprobs(true);
  wire.mutable_chunks(1)->set_next_token(0);
  StepScratch scratch;
  engine::StepRequest step;
  ASSERT_TRUE(StepFromWire(wire, &scratch, &step).ok());
  const engine::SamplingParams& got = step.add[0].sampling;
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
  EXPECT_EQ(step.add[0].fork_of, 0u) << "a row may be called so";
  EXPECT_EQ(step.add[0].swapped_state, 7u);
  ASSERT_EQ(step.add[1].sampling.logit_bias.size(), 1u);
  EXPECT_EQ(step.add[1].sampling.logit_bias[0].token, 2u);
  ASSERT_EQ(step.masks.size(), 1u);
  EXPECT_EQ(step.masks[0].row, 9u);
  EXPECT_THAT(step.masks[0].allowed_tokens, ElementsAre(std::byte{1}));
  ASSERT_EQ(step.prefixes.size(), 1u);
  EXPECT_EQ(step.prefixes[0].group, 11u);
  EXPECT_EQ(step.prefixes[0].num_blocks, 12u);
  EXPECT_THAT(step.prefixes[0].rows, ElementsAre(13, 14));
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
  engine::StepRequest step;
  ASSERT_TRUE(StepFromWire(wire, &scratch, &step).ok());
  EXPECT_EQ(step.add[0].sampling.top_p, 1.0f);
  EXPECT_EQ(step.add[0].sampling.repetition_penalty, 1.0f);
  EXPECT_EQ(engine::FeaturesOf(step.add[0].sampling), 0u);
}

template <typename T>
constexpr FieldDescriptor::CppType kWireType = FieldDescriptor::CPPTYPE_FLOAT;
template <>
constexpr FieldDescriptor::CppType kWireType<bool> = FieldDescriptor::CPPTYPE_BOOL;
template <>
constexpr FieldDescriptor::CppType kWireType<uint32_t> = FieldDescriptor::CPPTYPE_UINT32;
template <>
constexpr FieldDescriptor::CppType kWireType<uint64_t> = FieldDescriptor::CPPTYPE_UINT64;

// Both ends map numbers by name, so a number that the table or the message lacks would be lost.
TEST(StepFromWire, TheTableOfSamplingNumbersIsThatOfTheWire) {
  std::set<std::string> named;
  engine::ForEachSamplingNumber([&]<typename T>(const engine::SamplingNumber<T>& number) {
    const std::string name(number.name);
    named.insert(name);
    const FieldDescriptor* field = v1::Sampling::descriptor()->FindFieldByName(name);
    ASSERT_NE(field, nullptr) << name;
    EXPECT_EQ(field->cpp_type(), kWireType<T>) << name;
    EXPECT_FALSE(field->is_repeated()) << name;
  });
  for (int i = 0; i < v1::Sampling::descriptor()->field_count(); ++i) {
    const FieldDescriptor* field = v1::Sampling::descriptor()->field(i);
    const bool list = field->is_repeated() || field->cpp_type() == FieldDescriptor::CPPTYPE_STRING;
    EXPECT_EQ(named.contains(std::string(field->name())), !list) << field->name();
  }
}

TEST(StepFromWire, RefusesBiasesThatDoNotPair) {
  v1::StepRequest wire = FullRequest();
  SamplingOf(wire)->add_logit_bias(1.0f);
  const absl::Status status = Convert(wire);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("got 1 numbers for 0 tokens"));
}

TEST(StepFromWire, CopiesArePairs) {
  v1::StepRequest wire = FullRequest();
  for (const uint32_t block : {3u, 4u, 3u, 9u}) wire.add_copy_blocks(block);
  StepScratch scratch;
  engine::StepRequest step;
  ASSERT_TRUE(StepFromWire(wire, &scratch, &step).ok());
  ASSERT_EQ(step.copies.size(), 2u);
  EXPECT_EQ(step.copies[0].source, 3u);
  EXPECT_EQ(step.copies[0].destination, 4u);
  EXPECT_EQ(step.copies[1].source, 3u);
  EXPECT_EQ(step.copies[1].destination, 9u);
  wire.add_copy_blocks(7);
  const absl::Status status = Convert(wire);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("copy_blocks: got 5 ids, allowed pairs"));
}

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

TEST(ParseWireAgain, KeepsNothingOfTheMessageBefore) {
  v1::StepStreamRequest full, small, open;
  *full.mutable_step() = FullRequest();
  small.mutable_step()->set_sequence(3);
  small.mutable_step()->add_continue_rows(8);
  open.mutable_open()->set_client("another");
  v1::StepStreamRequest message;
  for (const v1::StepStreamRequest& next :
       {full, small, full, v1::StepStreamRequest(), small, open, full}) {
    ASSERT_TRUE(ParseWireAgain(SerializeWire(next), &message).ok());
    EXPECT_EQ(message.message_case(), next.message_case());
    EXPECT_EQ(message.SerializeAsString(), next.SerializeAsString());
  }
}

TEST(ParseWireAgain, RefusesBytesThatDoNotParse) {
  v1::StepStreamRequest message;
  *message.mutable_step() = FullRequest();
  const grpc::Slice garbage(std::string("\xff\xff\xff\xff garbage"));
  EXPECT_EQ(ParseWireAgain(grpc::ByteBuffer(&garbage, 1), &message).code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace reprise::service
