// SPDX-License-Identifier: Apache-2.0
// Bad steps over a socket: each gets its typed error in its place, the stream and the server go on,
// and no other row's tokens change.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <initializer_list>
#include <limits>
#include <string>
#include <vector>

#include "tests/service/refusal.h"
#include "tests/service/served_model.h"

namespace reprise::service {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr uint32_t kNewRow = 4;

// What a bad request may refer to.
struct Scene {
  std::vector<uint32_t> own;     // free blocks of the refused client's session
  std::vector<uint32_t> others;  // blocks of another session
  uint32_t num_blocks;           // of the pool
  std::string other_session;     // its token
};

struct BadStep {
  std::string name;
  grpc::StatusCode code;
  std::function<void(v1::StepRequest&, const Scene&)> spoil;
  std::string says = {};  // a part of the message; empty: not compared
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

void SetPrefix(v1::StepRequest& step, uint32_t group, uint32_t num_blocks,
               std::initializer_list<uint32_t> rows) {
  v1::PrefixGroup* prefix = step.add_prefixes();
  prefix->set_group(group);
  prefix->set_num_blocks(num_blocks);
  for (const uint32_t row : rows) prefix->add_rows(row);
}

// A client with a resident row that can continue, another client whose row generates, and blocks of
// both.
class BadSteps : public ::testing::TestWithParam<BadStep> {
 protected:
  BadSteps() : client_(served_.NewChannel()), other_(served_.NewChannel()) {
    client_.StartRow(kRow, kOwnPrompt, 12);
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
    EXPECT_THAT(error.message(), HasSubstr(GetParam().says));
    OtherSpeaks(3);
  }
  // The refused client's row goes on where it was, with the same sequence number.
  EXPECT_EQ(Continue(client_, kRow, 3), [&] {
    std::vector<uint32_t> tokens = served_.Reference(kOwnPrompt, 4);
    tokens.erase(tokens.begin());
    return tokens;
  }());
  OtherSpeaks(3);
  EXPECT_EQ(other_tokens_, served_.Reference(kOtherPrompt, other_tokens_.size()));
  EXPECT_TRUE(client_.Finish().ok());
}

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
    ::testing::Values(
        BadStep{"MoreRowsThanMaxRows", kExhausted,
                [](v1::StepRequest& step, const Scene&) {
                  // Two are resident: kRow of either session.
                  for (uint32_t row = 0; row < kMaxRows - 1; ++row) Add(step, 100 + row, {});
                }},
        BadStep{"UnknownRowInContinue", kNotFound,
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
        BadStep{"UnknownRowInPrefix", kNotFound,
                [](v1::StepRequest& step, const Scene&) { SetPrefix(step, 1, 1, {77}); }},
        BadStep{
            "PrefixBeyondTheContext", kRange,
            [](v1::StepRequest& step, const Scene&) { SetPrefix(step, 1, 4294967295u, {kRow}); }},
        BadStep{"PrefixOfNoBlocks", kInvalid,
                [](v1::StepRequest& step, const Scene&) { SetPrefix(step, 1, 0, {kRow}); }},
        BadStep{"PrefixOfAnotherTable", kPrecondition,
                [](v1::StepRequest& step, const Scene& scene) {
                  // Two rows of one step that have nothing in common.
                  const auto context = static_cast<uint32_t>(kOwnPrompt.size() + 1);
                  Add(step, kNewRow, {scene.own[0], scene.own[1], scene.own[2]})
                      ->set_context_length(context);
                  SetPrefix(step, 1, 1, {kRow, kNewRow});
                },
                "prefix: group 1: row 4 has block"},
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

INSTANTIATE_TEST_SUITE_P(
    Prefixes, BadSteps,
    ::testing::Values(
        BadStep{"OfBlocksForNoGroup", kInvalid,
                [](v1::StepRequest& step, const Scene&) { SetPrefix(step, 0, 1, {kRow}); },
                "prefix: group 0: num_blocks is 1; allowed: 0 for group 0"},
        BadStep{"OfNoRows", kInvalid,
                [](v1::StepRequest& step, const Scene&) { SetPrefix(step, 1, 1, {}); },
                "prefix: group 1 gets 0 rows"},
        BadStep{"OfARowTwice", kInvalid,
                [](v1::StepRequest& step, const Scene&) {
                  SetPrefix(step, 1, 1, {kRow, kRow});
                },
                "prefix: row 17 is named twice"},
        BadStep{"OfAGroupTwice", kInvalid,
                [](v1::StepRequest& step, const Scene&) {
                  SetPrefix(step, 1, 1, {kRow});
                  SetPrefix(step, 1, 1, {kRow});
                },
                "prefix: group 1 is named twice"},
        BadStep{"OfMoreGroupsThanThereCanBe", kRange,
                [](v1::StepRequest& step, const Scene&) {
                  for (uint32_t group = 1; group <= 2 * kMaxRows + 1; ++group)
                    SetPrefix(step, group, 1, {kRow});
                },
                "prefixes: got more than 12 entries"}),
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
                                           BadStep{"TokenOfNoSession", kDenied,
                                                   [](v1::StepRequest& step, const Scene&) {
                                                     step.set_session(std::string(16, 'x'));
                                                     step.set_continue_all(true);
                                                   }},
                                           BadStep{"SessionByNumber", kDenied,
                                                   [](v1::StepRequest& step, const Scene&) {
                                                     step.set_session("1");
                                                     step.set_continue_all(true);
                                                   }},
                                           BadStep{"SessionOfAnotherStream", kDenied,
                                                   [](v1::StepRequest& step, const Scene& scene) {
                                                     step.set_session(scene.other_session);
                                                     step.set_continue_all(true);
                                                   }}),
                         CaseName);

INSTANTIATE_TEST_SUITE_P(
    NumSteps, BadSteps,
    ::testing::Values(
        BadStep{"MoreThanTheServerAllows", kRange,
                [](v1::StepRequest& step, const Scene&) {
                  step.set_continue_all(true);
                  step.set_num_steps(kMaxSteps + 1);
                },
                "num_steps is 9; allowed: 1 to 8, max_steps_per_request"},
        BadStep{"FarMore", kRange,
                [](v1::StepRequest& step, const Scene&) {
                  step.set_continue_all(true);
                  step.set_num_steps(4294967295u);
                },
                "num_steps is 4294967295"},
        BadStep{"OfARowThatReturnsItsLogits", kInvalid,
                [](v1::StepRequest& step, const Scene& scene) {
                  Add(step, kNewRow, {scene.own[0]})->mutable_sampling()->set_return_logits(true);
                  RunChunk(step, kNewRow, {1});
                  step.set_num_steps(2);
                },
                "num_steps is 2 and row 4 returns its logits"},
        BadStep{"SeveralRunEagerly", kInvalid,
                [](v1::StepRequest& step, const Scene&) {
                  step.set_continue_all(true);
                  step.set_num_steps(2);
                  step.set_mode(v1::EXECUTION_MODE_EAGER);
                },
                "num_steps: got 2 with mode eager, allowed with it: 1"}),
    CaseName);

v1::RowDraft* AddDraft(v1::StepRequest& step, uint32_t row, std::vector<uint32_t> tokens) {
  v1::RowDraft* draft = step.add_drafts();
  draft->set_row(row);
  draft->mutable_tokens()->Assign(tokens.begin(), tokens.end());
  return draft;
}

INSTANTIATE_TEST_SUITE_P(Drafts, BadSteps,
                         ::testing::Values(BadStep{"OfNoToken", kInvalid,
                                                   [](v1::StepRequest& step, const Scene&) {
                                                     step.set_continue_all(true);
                                                     AddDraft(step, kRow, {});
                                                   },
                                                   "has 0 tokens; allowed: at least 1"},
                                           BadStep{"OutsideTheVocabulary", kInvalid,
                                                   [](v1::StepRequest& step, const Scene&) {
                                                     step.set_continue_all(true);
                                                     AddDraft(step, kRow, {1, kVocab});
                                                   },
                                                   "allowed: less than 97, the vocabulary"},
                                           BadStep{"MoreThanAStepMayHave", kRange,
                                                   [](v1::StepRequest& step, const Scene&) {
                                                     step.set_continue_all(true);
                                                     AddDraft(step, kRow,
                                                              std::vector<uint32_t>(
                                                                  kMaxDraftTokens + 1, 5));
                                                   },
                                                   "allowed: at most 6, max_draft_tokens"},
                                           BadStep{"OfARowThatIsNotThere", kNotFound,
                                                   [](v1::StepRequest& step, const Scene&) {
                                                     step.set_continue_all(true);
                                                     AddDraft(step, 999, {1});
                                                   },
                                                   "row 999 is not resident"},
                                           BadStep{"OfARowThatRunsAChunk", kPrecondition,
                                                   [](v1::StepRequest& step, const Scene&) {
                                                     RunChunk(step, kRow, {1});
                                                     AddDraft(step, kRow, {1});
                                                   },
                                                   "does not continue in this step"},
                                           BadStep{"OfSeveralSteps", kInvalid,
                                                   [](v1::StepRequest& step, const Scene&) {
                                                     step.set_continue_all(true);
                                                     step.set_num_steps(2);
                                                     AddDraft(step, kRow, {1});
                                                   },
                                                   "has drafts; allowed: num_steps of 1"}),
                         CaseName);

INSTANTIATE_TEST_SUITE_P(Copies, BadSteps,
                         ::testing::Values(BadStep{"OfABlockThatNobodyWrote", kPrecondition,
                                                   [](v1::StepRequest& step, const Scene& scene) {
                                                     step.add_copy_blocks(scene.own[0]);
                                                     step.add_copy_blocks(scene.own[1]);
                                                     step.set_continue_all(true);
                                                   },
                                                   "has written no token in its source"},
                                           BadStep{"ToItself", kInvalid,
                                                   [](v1::StepRequest& step, const Scene& scene) {
                                                     step.add_copy_blocks(scene.own[0]);
                                                     step.add_copy_blocks(scene.own[0]);
                                                     step.set_continue_all(true);
                                                   },
                                                   "goes to its source"},
                                           BadStep{"OfScratch", kRange,
                                                   [](v1::StepRequest& step, const Scene& scene) {
                                                     step.add_copy_blocks(0);
                                                     step.add_copy_blocks(scene.own[0]);
                                                     step.set_continue_all(true);
                                                   },
                                                   "block 0 does not exist"},
                                           BadStep{"WithoutDestination", kInvalid,
                                                   [](v1::StepRequest& step, const Scene& scene) {
                                                     step.add_copy_blocks(scene.own[0]);
                                                     step.set_continue_all(true);
                                                   },
                                                   "copy_blocks: got 1 ids, allowed pairs"}),
                         CaseName);

INSTANTIATE_TEST_SUITE_P(NotBuiltYet, BadSteps,
                         ::testing::Values(BadStep{
                             "FieldOfAFutureVersion", kUnimplemented,
                             [](v1::StepRequest& step, const Scene&) {
                               step.set_continue_all(true);
                               step.GetReflection()->MutableUnknownFields(&step)->AddVarint(99, 1);
                             }}),
                         CaseName);

}  // namespace
}  // namespace reprise::service
