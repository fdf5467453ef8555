// SPDX-License-Identifier: Apache-2.0
// Bad requests over a socket: each gets its typed error in its place, the stream and the server go
// on, and no other row's tokens change.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "grpcpp/generic/generic_stub.h"
#include "tests/service/served_model.h"

namespace reprise::service {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

constexpr uint32_t kRow = 3;
constexpr uint32_t kNewRow = 4;
const std::vector<uint32_t> kPrompt = {5, 80, 33, 12, 96};
const std::vector<uint32_t> kOtherPrompt = {64, 1, 17};

// What a bad request may refer to.
struct Scene {
  std::vector<uint32_t> own;     // free blocks of the refused client's session
  std::vector<uint32_t> others;  // blocks of another session
  uint32_t num_blocks;           // of the pool
  uint64_t other_session;
};

struct BadStep {
  std::string name;
  grpc::StatusCode code;
  std::function<void(v1::StepRequest&, const Scene&)> spoil;
};

v1::AddRow* Add(v1::StepRequest& step, uint32_t row, std::initializer_list<uint32_t> blocks) {
  v1::AddRow* add = step.add_add();
  add->set_row(row);
  for (const uint32_t block : blocks) add->add_blocks(block);
  return add;
}

v1::Chunk* RunChunk(v1::StepRequest& step, uint32_t row, std::initializer_list<uint32_t> tokens) {
  v1::Chunk* chunk = step.add_chunks();
  chunk->set_row(row);
  for (const uint32_t token : tokens) chunk->add_tokens(token);
  chunk->set_sample(true);
  return chunk;
}

// A client with a resident row that can continue, another client whose row generates, and blocks of
// both.
class BadSteps : public ::testing::TestWithParam<BadStep> {
 protected:
  BadSteps() : client_(served_.NewChannel()), other_(served_.NewChannel()) {
    client_.StartRow(kRow, kPrompt, 12);
    other_tokens_ = {other_.StartRow(kRow, kOtherPrompt, kMaxContext)};
    scene_.own = client_.Allocate(3);
    scene_.others = other_.Allocate(2);
    scene_.num_blocks = served_.engine().pool().num_blocks;
    scene_.other_session = other_.session();
  }

  void OtherSpeaks(size_t count) {
    for (const uint32_t token : Continue(other_, kRow, count)) other_tokens_.push_back(token);
  }

  ServedModel served_;
  StreamClient client_;
  StreamClient other_;
  std::vector<uint32_t> other_tokens_;
  Scene scene_;
};

TEST_P(BadSteps, AreRefusedAndChangeNothing) {
  OtherSpeaks(3);
  v1::StepRequest bad = client_.NewStep();
  GetParam().spoil(bad, scene_);
  for (int attempt = 0; attempt < 2; ++attempt) {
    const v1::StepError error = client_.Refused(bad);
    EXPECT_EQ(error.code(), GetParam().code) << error.message();
    EXPECT_THAT(error.message(), Not(::testing::IsEmpty()));
    OtherSpeaks(3);
  }
  // The refused client's row goes on where it was, with the same sequence number.
  EXPECT_EQ(Continue(client_, kRow, 3), [&] {
    std::vector<uint32_t> tokens = served_.Reference(kPrompt, 4);
    tokens.erase(tokens.begin());
    return tokens;
  }());
  OtherSpeaks(3);
  EXPECT_EQ(other_tokens_, served_.Reference(kOtherPrompt, other_tokens_.size()));
  EXPECT_TRUE(client_.Finish().ok());
}

constexpr auto kInvalid = grpc::StatusCode::INVALID_ARGUMENT;
constexpr auto kRange = grpc::StatusCode::OUT_OF_RANGE;
constexpr auto kPrecondition = grpc::StatusCode::FAILED_PRECONDITION;
constexpr auto kUnimplemented = grpc::StatusCode::UNIMPLEMENTED;
constexpr auto kDenied = grpc::StatusCode::PERMISSION_DENIED;
constexpr auto kExhausted = grpc::StatusCode::RESOURCE_EXHAUSTED;
constexpr auto kAlreadyThere = grpc::StatusCode::ALREADY_EXISTS;
constexpr auto kNotFound = grpc::StatusCode::NOT_FOUND;

std::string CaseName(const ::testing::TestParamInfo<BadStep>& info) { return info.param.name; }

// A step that adds a row whose sampling is wrong.
std::function<void(v1::StepRequest&, const Scene&)> BadSampling(
    std::function<void(v1::Sampling*)> set) {
  return [set](v1::StepRequest& step, const Scene& scene) {
    set(Add(step, kNewRow, {scene.own[0]})->mutable_sampling());
    RunChunk(step, kNewRow, {1});
  };
}

INSTANTIATE_TEST_SUITE_P(
    Blocks, BadSteps,
    ::testing::Values(BadStep{"BlockIdOutOfRange", kRange,
                              [](v1::StepRequest& step, const Scene& scene) {
                                Add(step, kNewRow, {scene.num_blocks});
                                RunChunk(step, kNewRow, {1});
                              }},
                      BadStep{"BlockIdFarOutOfRange", kRange,
                              [](v1::StepRequest& step, const Scene&) {
                                Add(step, kNewRow, {4294967295u});
                                RunChunk(step, kNewRow, {1});
                              }},
                      BadStep{"ScratchBlock", kRange,
                              [](v1::StepRequest& step, const Scene&) {
                                Add(step, kNewRow, {0});
                                RunChunk(step, kNewRow, {1});
                              }},
                      BadStep{"BlockOfAnotherSession", kDenied,
                              [](v1::StepRequest& step, const Scene& scene) {
                                Add(step, kNewRow, {scene.own[0], scene.others[0]});
                                RunChunk(step, kNewRow, {1});
                              }},
                      BadStep{"AppendedBlockOfAnotherSession", kDenied,
                              [](v1::StepRequest& step, const Scene& scene) {
                                v1::AppendBlocks* append = step.add_append();
                                append->set_row(kRow);
                                append->add_blocks(scene.others[1]);
                                step.set_continue_all(true);
                              }},
                      BadStep{"BlockTwiceInATable", kInvalid,
                              [](v1::StepRequest& step, const Scene& scene) {
                                Add(step, kNewRow, {scene.own[0], scene.own[1], scene.own[0]});
                                RunChunk(step, kNewRow, {1});
                              }}),
    CaseName);

INSTANTIATE_TEST_SUITE_P(
    Contexts, BadSteps,
    ::testing::Values(
        BadStep{"ChunkBeyondTheTable", kRange,
                [](v1::StepRequest& step, const Scene& scene) {
                  Add(step, kNewRow, {scene.own[0]});
                  RunChunk(step, kNewRow, {1, 2, 3, 4, 5});
                }},
        BadStep{"ContextLengthBeyondTheTable", kRange,
                [](v1::StepRequest& step, const Scene& scene) {
                  Add(step, kNewRow, {scene.own[0]})->set_context_length(kBlockSize + 1);
                }},
        BadStep{"ContextLengthBeyondTheLimit", kRange,
                [](v1::StepRequest& step, const Scene& scene) {
                  Add(step, kNewRow, {scene.own[0]})->set_context_length(kMaxContext + 1);
                }},
        BadStep{"MoreStepTokensThanTheLargestBucket", kRange,
                [](v1::StepRequest& step, const Scene&) {
                  v1::Chunk* chunk = RunChunk(step, kRow, {});
                  for (uint32_t i = 0; i <= kMaxStepTokens; ++i) chunk->add_tokens(1);
                }}),
    CaseName);

INSTANTIATE_TEST_SUITE_P(
    Rows, BadSteps,
    ::testing::Values(BadStep{"MoreRowsThanMaxRows", kExhausted,
                              [](v1::StepRequest& step, const Scene&) {
                                // Two are resident: kRow of either session.
                                for (uint32_t row = 0; row < kMaxRows - 1; ++row)
                                  Add(step, 100 + row, {});
                              }},
                      BadStep{
                          "UnknownRowInContinue", kNotFound,
                          [](v1::StepRequest& step, const Scene&) { step.add_continue_rows(77); }},
                      BadStep{"RowAddedThatIsResident", kAlreadyThere,
                              [](v1::StepRequest& step, const Scene& scene) {
                                Add(step, kRow, {scene.own[0]});
                                RunChunk(step, kRow, {1});
                              }},
                      BadStep{"UnknownRowInChunk", kNotFound,
                              [](v1::StepRequest& step, const Scene&) { RunChunk(step, 77, {1}); }},
                      BadStep{"UnknownRowInDrop", kNotFound,
                              [](v1::StepRequest& step, const Scene&) { step.add_drop(77); }},
                      BadStep{"UnknownRowInAppend", kNotFound,
                              [](v1::StepRequest& step, const Scene& scene) {
                                v1::AppendBlocks* append = step.add_append();
                                append->set_row(77);
                                append->add_blocks(scene.own[0]);
                              }},
                      BadStep{"RowContinuedTwice", kInvalid,
                              [](v1::StepRequest& step, const Scene&) {
                                step.add_continue_rows(kRow);
                                step.add_continue_rows(kRow);
                              }},
                      BadStep{"RowRunByChunkAndContinue", kInvalid,
                              [](v1::StepRequest& step, const Scene&) {
                                RunChunk(step, kRow, {1});
                                step.add_continue_rows(kRow);
                              }},
                      BadStep{"ContinueAllAndRowsByName", kInvalid,
                              [](v1::StepRequest& step, const Scene&) {
                                step.set_continue_all(true);
                                step.add_continue_rows(kRow);
                              }},
                      BadStep{"NothingToDo", kInvalid, [](v1::StepRequest&, const Scene&) {}},
                      BadStep{"RowWithNothingToContinueFrom", kPrecondition,
                              [](v1::StepRequest& step, const Scene& scene) {
                                Add(step, kNewRow, {scene.own[0]});
                                step.add_continue_rows(kNewRow);
                              }}),
    CaseName);

INSTANTIATE_TEST_SUITE_P(Values, BadSteps,
                         ::testing::Values(
                             BadStep{"TokenIdBeyondTheVocabulary", kInvalid,
                                     [](v1::StepRequest& step, const Scene&) {
                                       RunChunk(step, kRow, {1, kVocab});
                                     }},
                             BadStep{"ZeroTokens", kInvalid,
                                     [](v1::StepRequest& step, const Scene&) {
                                       RunChunk(step, kRow, {});
                                     }},
                             BadStep{"NanTemperature", kInvalid,
                                     [](v1::StepRequest& step, const Scene& scene) {
                                       Add(step, kNewRow, {scene.own[0]})
                                           ->mutable_sampling()
                                           ->set_temperature(
                                               std::numeric_limits<float>::quiet_NaN());
                                       RunChunk(step, kNewRow, {1});
                                     }},
                             BadStep{"InfiniteTemperature", kInvalid,
                                     [](v1::StepRequest& step, const Scene& scene) {
                                       Add(step, kNewRow, {scene.own[0]})
                                           ->mutable_sampling()
                                           ->set_temperature(
                                               std::numeric_limits<float>::infinity());
                                       RunChunk(step, kNewRow, {1});
                                     }},
                             BadStep{"NegativeTemperature", kInvalid,
                                     [](v1::StepRequest& step, const Scene& scene) {
                                       Add(step, kNewRow, {scene.own[0]})
                                           ->mutable_sampling()
                                           ->set_temperature(-0.5f);
                                       RunChunk(step, kNewRow, {1});
                                     }},
                             BadStep{"TopPBeyondOne", kInvalid,
                                     BadSampling([](v1::Sampling* s) { s->set_top_p(1.5f); })},
                             BadStep{"NegativeTopP", kInvalid,
                                     BadSampling([](v1::Sampling* s) { s->set_top_p(-1.0f); })},
                             BadStep{"MinPBeyondOne", kInvalid,
                                     BadSampling([](v1::Sampling* s) { s->set_min_p(1.1f); })},
                             BadStep{"NegativeRepetitionPenalty", kInvalid,
                                     BadSampling([](v1::Sampling* s) {
                                       s->set_repetition_penalty(-1.0f);
                                     })},
                             BadStep{
                                 "NanPresencePenalty", kInvalid, BadSampling([](v1::Sampling* s) {
                                   s->set_presence_penalty(std::numeric_limits<float>::quiet_NaN());
                                 })},
                             BadStep{"InfiniteFrequencyPenalty", kInvalid,
                                     BadSampling([](v1::Sampling* s) {
                                       s->set_frequency_penalty(
                                           std::numeric_limits<float>::infinity());
                                     })},
                             BadStep{"BiasOfATokenBeyondTheVocabulary", kInvalid,
                                     BadSampling([](v1::Sampling* s) {
                                       s->add_logit_bias_token(kVocab);
                                       s->add_logit_bias(1.0f);
                                     })},
                             BadStep{"BiasTwiceForOneToken", kInvalid,
                                     BadSampling([](v1::Sampling* s) {
                                       for (int i = 0; i < 2; ++i) {
                                         s->add_logit_bias_token(3);
                                         s->add_logit_bias(1.0f);
                                       }
                                     })},
                             BadStep{"BiasWithoutItsToken", kInvalid,
                                     BadSampling([](v1::Sampling* s) { s->add_logit_bias(1.0f); })},
                             BadStep{"StopTokenBeyondTheVocabulary", kInvalid,
                                     BadSampling([](v1::Sampling* s) {
                                       s->add_stop_tokens(kVocab);
                                     })},
                             BadStep{"MaskOfTheWrongSize", kInvalid,
                                     BadSampling([](v1::Sampling* s) {
                                       s->set_allowed_tokens("x");
                                     })},
                             BadStep{"MaskThatAllowsNothing", kInvalid,
                                     BadSampling([](v1::Sampling* s) {
                                       s->set_allowed_tokens(std::string((kVocab + 7) / 8, '\0'));
                                     })},
                             BadStep{"MoreMinThanMaxTokens", kInvalid,
                                     BadSampling([](v1::Sampling* s) {
                                       s->set_max_new_tokens(3);
                                       s->set_min_tokens(4);
                                     })},
                             BadStep{"MaskOfAnAddedRow", kInvalid,
                                     [](v1::StepRequest& step, const Scene& scene) {
                                       Add(step, kNewRow, {scene.own[0]});
                                       step.add_masks()->set_row(kNewRow);
                                     }},
                             BadStep{"NextTokenBeyondTheVocabulary", kInvalid,
                                     [](v1::StepRequest& step, const Scene&) {
                                       RunChunk(step, kRow, {1});
                                       step.mutable_chunks(0)->set_prompt_logprobs(true);
                                       step.mutable_chunks(0)->set_next_token(kVocab);
                                     }},
                             BadStep{"NextTokenWithoutPromptLogprobs", kInvalid,
                                     [](v1::StepRequest& step, const Scene&) {
                                       RunChunk(step, kRow, {1});
                                       step.mutable_chunks(0)->set_next_token(1);
                                     }},
                             BadStep{"UnknownMode", kInvalid,
                                     [](v1::StepRequest& step, const Scene&) {
                                       step.set_continue_all(true);
                                       step.set_mode(static_cast<v1::ExecutionMode>(5));
                                     }}),
                         CaseName);

INSTANTIATE_TEST_SUITE_P(
    SamplingBounds, BadSteps,
    ::testing::Values(BadStep{"TooManyStopTokens", kRange, BadSampling([](v1::Sampling* s) {
                                for (uint32_t i = 0; i < 65; ++i) s->add_stop_tokens(i % kVocab);
                              })},
                      BadStep{"TooManyLogprobs", kRange,
                              BadSampling([](v1::Sampling* s) { s->set_num_logprobs(33); })}),
    CaseName);

INSTANTIATE_TEST_SUITE_P(Order, BadSteps,
                         ::testing::Values(BadStep{"SequenceSkipped", kPrecondition,
                                                   [](v1::StepRequest& step, const Scene&) {
                                                     step.set_sequence(step.sequence() + 1);
                                                     step.set_continue_all(true);
                                                   }},
                                           BadStep{"SequenceRepeated", kPrecondition,
                                                   [](v1::StepRequest& step, const Scene&) {
                                                     step.set_sequence(step.sequence() - 1);
                                                     step.set_continue_all(true);
                                                   }},
                                           BadStep{"WrongEpoch", kPrecondition,
                                                   [](v1::StepRequest& step, const Scene&) {
                                                     step.set_epoch(step.epoch() + 1);
                                                     step.set_continue_all(true);
                                                   }},
                                           BadStep{"SessionOfAnotherStream", kDenied,
                                                   [](v1::StepRequest& step, const Scene& scene) {
                                                     step.set_session(scene.other_session);
                                                     step.set_continue_all(true);
                                                   }}),
                         CaseName);

INSTANTIATE_TEST_SUITE_P(
    NotBuiltYet, BadSteps,
    ::testing::Values(BadStep{"CopyBlocks", kUnimplemented,
                              [](v1::StepRequest& step, const Scene& scene) {
                                step.add_copy_blocks(scene.own[0]);
                                step.add_copy_blocks(scene.own[1]);
                                step.set_continue_all(true);
                              }},
                      BadStep{"FieldOfAFutureVersion", kUnimplemented,
                              [](v1::StepRequest& step, const Scene&) {
                                step.set_continue_all(true);
                                step.GetReflection()->MutableUnknownFields(&step)->AddVarint(99, 1);
                              }}),
    CaseName);

// ---- the stream itself ----

grpc::Status EndOf(ServedModel& served, const v1::StepStreamRequest& first) {
  auto stub = v1::StepService::NewStub(served.NewChannel());
  grpc::ClientContext context;
  auto stream = stub->StepStream(&context);
  stream->Write(first);
  v1::StepStreamResponse response;
  EXPECT_FALSE(stream->Read(&response)) << response.ShortDebugString();
  return stream->Finish();
}

TEST(BadStream, FirstMessageMustBeOpen) {
  ServedModel served;
  v1::StepStreamRequest step;
  step.mutable_step()->set_sequence(1);
  const grpc::Status status = EndOf(served, step);
  EXPECT_EQ(status.error_code(), kPrecondition);
  EXPECT_THAT(status.error_message(), AllOf(HasSubstr("got step"), HasSubstr("allowed open")));
  EXPECT_EQ(EndOf(served, v1::StepStreamRequest()).error_code(), kPrecondition);
}

TEST(BadStream, ClientNameIsLimited) {
  ServedModel served;
  v1::StepStreamRequest open;
  open.mutable_open()->set_client(std::string(257, 'x'));
  const grpc::Status status = EndOf(served, open);
  EXPECT_EQ(status.error_code(), kInvalid);
  EXPECT_THAT(status.error_message(), AllOf(HasSubstr("257"), HasSubstr("256")));
}

TEST(BadStream, UnknownFieldInOpenIsUnimplemented) {
  ServedModel served;
  v1::StepStreamRequest open;
  v1::Open* message = open.mutable_open();
  message->GetReflection()->MutableUnknownFields(message)->AddVarint(9, 1);
  EXPECT_EQ(EndOf(served, open).error_code(), kUnimplemented);
}

TEST(BadStream, SecondOpenIsRefusedAndTheStreamGoesOn) {
  ServedModel served;
  StreamClient client(served.NewChannel());
  client.StartRow(kRow, kPrompt, 32);
  v1::StepStreamRequest open;
  open.mutable_open();
  ASSERT_TRUE(client.SendRaw(open));
  v1::StepStreamResponse response;
  ASSERT_TRUE(client.Receive(&response));
  EXPECT_EQ(response.error().code(), kPrecondition);
  EXPECT_EQ(response.error().sequence(), 0u);
  EXPECT_THAT(Continue(client, kRow, 2), SizeIs(2));
}

// Sends bytes that are no message at all.
TEST(BadStream, BytesThatDoNotParseAreInvalid) {
  ServedModel served;
  grpc::GenericStub stub(served.NewChannel());
  const grpc::Slice slice(std::string("\x0a\xff not a message"));
  grpc::ByteBuffer garbage(&slice, 1);
  for (const char* method : {"Describe", "Step", "Allocate", "Free"}) {
    grpc::ClientContext context;
    grpc::CompletionQueue queue;
    auto call = stub.PrepareUnaryCall(&context, absl::StrCat("/reprise.v1.StepService/", method),
                                      garbage, &queue);
    call->StartCall();
    grpc::ByteBuffer reply;
    grpc::Status status;
    call->Finish(&reply, &status, nullptr);
    void* tag = nullptr;
    bool ok = false;
    ASSERT_TRUE(queue.Next(&tag, &ok));
    EXPECT_EQ(status.error_code(), kInvalid) << method << ": " << status.error_message();
    EXPECT_THAT(status.error_message(), HasSubstr("do not parse"));
  }
}

TEST(BadStream, MessageOverTheSizeLimitEndsItsCallAlone) {
  ServedModel::Options options;
  options.server.max_message_bytes = 4096;
  ServedModel served(options);
  const uint32_t free_blocks = served.engine().pool().free_blocks;
  StreamClient other(served.NewChannel());
  std::vector<uint32_t> tokens = {other.StartRow(kRow, kOtherPrompt, 32)};
  const uint32_t held = free_blocks - served.engine().pool().free_blocks;
  StreamClient client(served.NewChannel());
  client.StartRow(kRow, kPrompt, 32);
  v1::StepRequest large = client.NewStep();
  v1::Chunk* chunk = RunChunk(large, kRow, {});
  for (int i = 0; i < 5000; ++i) chunk->add_tokens(1);

  grpc::ClientContext context;
  v1::StepResponse response;
  const grpc::Status unary = client.stub().Step(&context, large, &response);
  EXPECT_EQ(unary.error_code(), kExhausted) << unary.error_message();
  EXPECT_THAT(unary.error_message(), HasSubstr("4096"));

  client.Send(large);
  v1::StepStreamResponse reply;
  EXPECT_FALSE(client.Receive(&reply)) << reply.ShortDebugString();
  const grpc::Status status = client.Finish();
  EXPECT_EQ(status.error_code(), kExhausted) << status.error_message();
  EXPECT_TRUE(Eventually([&] { return served.engine().pool().free_blocks == free_blocks - held; }));

  for (const uint32_t token : Continue(other, kRow, 5)) tokens.push_back(token);
  EXPECT_EQ(tokens, served.Reference(kOtherPrompt, 6));
}

// ---- unary calls ----

TEST(BadUnaryStep, UnknownSessionIsNotFound) {
  ServedModel served;
  auto stub = v1::StepService::NewStub(served.NewChannel());
  for (const uint64_t session : {0ul, 12345ul}) {
    grpc::ClientContext context;
    v1::StepRequest step;
    step.set_session(session);
    step.set_sequence(1);
    v1::StepResponse response;
    const grpc::Status status = stub->Step(&context, step, &response);
    EXPECT_EQ(status.error_code(), kNotFound);
    EXPECT_THAT(status.error_message(), HasSubstr(absl::StrCat("got ", session)));
  }
}

TEST(BadUnaryStep, SessionOfAStreamThatEndedIsNotFound) {
  ServedModel served;
  v1::StepRequest step;
  auto stub = v1::StepService::NewStub(served.NewChannel());
  {
    StreamClient client(served.NewChannel());
    client.StartRow(kRow, kPrompt, 32);
    step = client.NewStep();
    step.set_continue_all(true);
    EXPECT_TRUE(client.Finish().ok());
  }
  // The client has its status a moment before the server has forgotten the session.
  EXPECT_TRUE(Eventually([&] {
    grpc::ClientContext context;
    v1::StepResponse response;
    const grpc::Status status = stub->Step(&context, step, &response);
    if (status.ok()) step.set_sequence(step.sequence() + 1);
    return status.error_code() == kNotFound;
  }));
}

TEST(BadUnaryStep, GetsTheEnginesError) {
  ServedModel served;
  StreamClient client(served.NewChannel());
  client.StartRow(kRow, kPrompt, 32);
  v1::StepRequest step = client.NewStep();
  step.set_sequence(9);
  step.set_continue_all(true);
  grpc::ClientContext context;
  v1::StepResponse response;
  EXPECT_EQ(client.stub().Step(&context, step, &response).error_code(), kPrecondition);
  EXPECT_THAT(Continue(client, kRow, 1), SizeIs(1));
}

class BadBlocks : public ::testing::Test {
 protected:
  BadBlocks() : client_(served_.NewChannel()), other_(served_.NewChannel()) {
    free_blocks_ = served_.engine().pool().free_blocks;
  }

  grpc::Status Allocate(uint64_t session, uint32_t count) {
    grpc::ClientContext context;
    v1::AllocateRequest request;
    request.set_session(session);
    request.set_count(count);
    v1::AllocateResponse response;
    return client_.stub().Allocate(&context, request, &response);
  }

  grpc::Status Free(uint64_t session, const std::vector<uint32_t>& blocks) {
    grpc::ClientContext context;
    v1::FreeRequest request;
    request.set_session(session);
    request.mutable_blocks()->Add(blocks.begin(), blocks.end());
    v1::FreeResponse response;
    return client_.stub().Free(&context, request, &response);
  }

  uint32_t free_now() { return served_.engine().pool().free_blocks; }

  ServedModel served_;
  StreamClient client_;
  StreamClient other_;
  uint32_t free_blocks_ = 0;
};

TEST_F(BadBlocks, AllocateOfZeroIsInvalid) {
  EXPECT_EQ(Allocate(client_.session(), 0).error_code(), kInvalid);
}

TEST_F(BadBlocks, AllocateOfMoreThanIsFreeTakesNothing) {
  const grpc::Status status = Allocate(client_.session(), free_blocks_ + 1);
  EXPECT_EQ(status.error_code(), kExhausted);
  EXPECT_THAT(status.error_message(), AllOf(HasSubstr(absl::StrCat(free_blocks_ + 1)),
                                            HasSubstr(absl::StrCat(free_blocks_))));
  EXPECT_EQ(free_now(), free_blocks_);
  EXPECT_EQ(Allocate(client_.session(), 4294967295u).error_code(), kExhausted);
}

TEST_F(BadBlocks, UnknownSessionIsNotFound) {
  EXPECT_EQ(Allocate(0, 1).error_code(), kNotFound);
  EXPECT_EQ(Allocate(999, 1).error_code(), kNotFound);
  EXPECT_EQ(Free(999, {1}).error_code(), kNotFound);
  EXPECT_EQ(free_now(), free_blocks_);
}

TEST_F(BadBlocks, FreeOfAnothersBlockFreesNothing) {
  const std::vector<uint32_t> own = client_.Allocate(2);
  const std::vector<uint32_t> others = other_.Allocate(1);
  EXPECT_EQ(Free(client_.session(), {own[0], others[0]}).error_code(), kDenied);
  EXPECT_EQ(free_now(), free_blocks_ - 3);
}

TEST_F(BadBlocks, FreeOfABlockTwiceFreesNothing) {
  const std::vector<uint32_t> own = client_.Allocate(2);
  EXPECT_EQ(Free(client_.session(), {own[0], own[1], own[0]}).error_code(), kInvalid);
  EXPECT_EQ(free_now(), free_blocks_ - 2);
}

TEST_F(BadBlocks, FreeOfABlockThatARowUsesFreesNothing) {
  client_.StartRow(kRow, kPrompt, 2 * kBlockSize);
  int in_use = 0;
  for (uint32_t block = 1; block < served_.engine().pool().num_blocks; ++block) {
    const grpc::Status status = Free(client_.session(), {block});
    if (status.error_code() == kPrecondition) ++in_use;
  }
  EXPECT_EQ(in_use, 2);
  EXPECT_EQ(free_now(), free_blocks_ - 2);
  EXPECT_THAT(Continue(client_, kRow, 2), SizeIs(2));
}

}  // namespace
}  // namespace reprise::service
