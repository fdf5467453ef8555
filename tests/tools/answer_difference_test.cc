// SPDX-License-Identifier: Apache-2.0
// Where two answers differ: every field that counts, and those that do not.
#include "tools/replay/answer_difference.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

namespace reprise::tools {
namespace {

// Two rows of one step, with all that a row can have.
v1::StepResponse Answer() {
  v1::StepResponse answer;
  answer.set_sequence(17);
  v1::RowResults* rows = answer.mutable_rows();
  for (uint32_t row = 3; row < 5; ++row) {
    rows->add_row(row);
    rows->add_status(v1::ROW_STATUS_RAN);
    rows->add_sampled(true);
    rows->add_token(40 + row);
    rows->add_logprob(-0.5f);
    rows->add_context_length(9);
    rows->add_finish_reason(v1::FINISH_REASON_UNSPECIFIED);
    rows->add_rank(1);
    rows->add_num_top(2);
    for (uint32_t i = 0; i < 2; ++i) {
      rows->add_top_token(50 + i);
      rows->add_top_logprob(-1.0f);
    }
    rows->add_logits_row(row);
    for (int t = 0; t < 4; ++t) rows->add_logits(0.25f);
  }
  v1::PromptLogprobs* prompt = answer.mutable_prompt_logprobs();
  prompt->add_row(3);
  prompt->add_position(1);
  prompt->add_logprob(-2.0f);
  prompt->add_rank(7);
  prompt->add_num_top(0);
  return answer;
}

std::string DifferenceFrom(const v1::StepResponse& recorded, const v1::StepResponse& got) {
  const auto difference = FirstDifference(recorded, got);
  EXPECT_TRUE(difference.ok()) << difference.status();
  if (!difference.ok() || !difference->has_value()) return "";
  return DifferenceText(**difference);
}

std::string DifferenceAfter(const std::function<void(v1::StepResponse*)>& change) {
  v1::StepResponse got = Answer();
  change(&got);
  return DifferenceFrom(Answer(), got);
}

TEST(FirstDifference, IsNoneOfEqualAnswers) { EXPECT_EQ(DifferenceFrom(Answer(), Answer()), ""); }

TEST(FirstDifference, NamesEveryField) {
  using Change = std::function<void(v1::RowResults*)>;
  const std::vector<std::pair<Change, std::string>> cases = {
      {[](auto* rows) { rows->set_row(1, 9); },
       "row: expected row 4 in step 0 of the request, got row 9 in step 0 of the request"},
      {[](auto* rows) { rows->set_status(1, v1::ROW_STATUS_PAUSED); },
       "row: expected a result, got none"},
      {[](auto* rows) { rows->set_sampled(1, false); }, "sampled: expected 1, got 0"},
      {[](auto* rows) { rows->set_token(1, 7); }, "token: expected 44, got 7"},
      {[](auto* rows) { rows->set_logprob(1, -0.50000006f); },
       "logprob: expected -0.5 (0xbf000000), got -0.50000006 (0xbf000001)"},
      {[](auto* rows) { rows->set_context_length(1, 10); }, "context_length: expected 9, got 10"},
      {[](auto* rows) { rows->set_finish_reason(1, v1::FINISH_REASON_LENGTH); },
       "finish_reason: expected FINISH_REASON_UNSPECIFIED, got FINISH_REASON_LENGTH"},
      {[](auto* rows) { rows->set_rank(1, 2); }, "rank: expected 1, got 2"},
      {[](auto* rows) { rows->set_top_token(3, 8); }, "top_token[1]: expected 51, got 8"},
      {[](auto* rows) { rows->set_top_logprob(2, 0.0f); },
       "top_logprob[0]: expected -1 (0xbf800000), got 0 (0x00000000)"},
      {[](auto* rows) { rows->set_logits(6, 0.5f); },
       "logits[2]: expected 0.25 (0x3e800000), got 0.5 (0x3f000000)"},
  };
  for (const auto& [change, text] : cases) {
    v1::StepResponse got = Answer();
    change(got.mutable_rows());
    EXPECT_EQ(DifferenceFrom(Answer(), got), "step 17, row 4: " + text);
  }
}

TEST(FirstDifference, NamesAcceptedDrafts) {
  v1::StepResponse recorded = Answer();
  v1::AcceptedDrafts* accepted = recorded.mutable_rows()->mutable_accepted();
  accepted->add_count(0);
  accepted->add_count(2);
  for (uint32_t i = 0; i < 2; ++i) {
    accepted->add_token(70 + i);
    accepted->add_logprob(-1.0f);
    accepted->add_rank(1 + i);
    accepted->add_num_top(0);
  }
  EXPECT_EQ(DifferenceFrom(recorded, recorded), "");
  EXPECT_EQ(DifferenceFrom(recorded, Answer()), "step 17, row 4: accepted: expected 2, got 0");
  v1::StepResponse got = recorded;
  got.mutable_rows()->mutable_accepted()->set_token(1, 5);
  EXPECT_EQ(DifferenceFrom(recorded, got),
            "step 17, row 4: accepted[1]: token: expected 71, got 5");
  got = recorded;
  got.mutable_rows()->mutable_accepted()->set_rank(0, 9);
  EXPECT_EQ(DifferenceFrom(recorded, got), "step 17, row 4: accepted[0]: rank: expected 1, got 9");
  got.mutable_rows()->mutable_accepted()->add_token(5);
  EXPECT_FALSE(FirstDifference(recorded, got).ok());
}

TEST(FirstDifference, NamesPromptLogprobs) {
  EXPECT_EQ(DifferenceAfter([](auto* got) { got->mutable_prompt_logprobs()->set_rank(0, 8); }),
            "step 17, row 3: prompt_logprobs of position 1: rank: expected 7, got 8");
  EXPECT_EQ(DifferenceAfter([](auto* got) { got->clear_prompt_logprobs(); }),
            "step 17, row 3: prompt_logprobs: expected a result, got none");
}

TEST(FirstDifference, NamesARowThatWasRefusedAlone) {
  v1::StepResponse recorded = Answer();
  recorded.add_row_errors()->set_row(9);
  recorded.mutable_row_errors(0)->set_message("block 7");
  v1::StepResponse got = recorded;
  got.mutable_row_errors(0)->set_message("block 4294967295");
  EXPECT_EQ(DifferenceFrom(recorded, got), "");
  EXPECT_THAT(DifferenceFrom(recorded, Answer()), ::testing::HasSubstr("row 9: row_errors"));
  EXPECT_THAT(DifferenceFrom(Answer(), recorded), ::testing::HasSubstr("row 9: row_errors"));
  EXPECT_EQ(NumComparedRows(recorded), NumComparedRows(Answer()) + 1);
  recorded.add_row_errors()->set_row(7);
  recorded.mutable_row_errors(1)->set_code(11);  // OUT_OF_RANGE: it may be known to have stopped
  EXPECT_EQ(DifferenceFrom(recorded, got), "");
  got.mutable_row_errors(0)->set_row(8);
  EXPECT_THAT(DifferenceFrom(recorded, got), ::testing::HasSubstr("row 9"));
}

TEST(FirstDifference, IsTheFirstOfSeveral) {
  EXPECT_EQ(DifferenceAfter([](auto* got) {
              got->mutable_rows()->set_token(0, 1);
              got->mutable_rows()->set_logprob(0, 1.0f);
              got->mutable_rows()->set_token(1, 1);
            }),
            "step 17, row 3: token: expected 43, got 1");
}

TEST(FirstDifference, IsARowThatOnlyOneHas) {
  v1::StepResponse fewer = Answer();
  fewer.clear_rows();
  EXPECT_EQ(DifferenceFrom(Answer(), fewer), "step 17, row 3: row: expected a result, got none");
  EXPECT_EQ(DifferenceFrom(fewer, Answer()), "step 17, row 3: row: expected no result, got one");
}

TEST(FirstDifference, IsNotInTimesGraphsOrPadding) {
  EXPECT_EQ(DifferenceAfter([](auto* got) {
              got->mutable_ledger()->set_device_ns(5);
              got->mutable_report()->set_graph("mixed/64");
              got->mutable_report()->set_other_rows(5);
              got->set_trace_id("0123456789abcdef");
            }),
            "");
}

// A stop that is known early leaves the row out; one that is not is answered.
TEST(FirstDifference, IsNotARowThatDidNothing) {
  v1::StepResponse without;
  without.set_sequence(17);
  v1::StepResponse with = without;
  v1::RowResults* rows = with.mutable_rows();
  rows->add_row(3);
  rows->add_status(v1::ROW_STATUS_STOPPED);
  rows->add_sampled(false);
  rows->add_token(0);
  rows->add_logprob(0);
  rows->add_context_length(9);
  EXPECT_EQ(DifferenceFrom(with, without), "");
  EXPECT_EQ(DifferenceFrom(without, with), "");
  EXPECT_EQ(NumComparedRows(with), 0u);
  rows->set_status(0, v1::ROW_STATUS_PAUSED);
  EXPECT_EQ(DifferenceFrom(without, with), "");
  rows->set_status(0, v1::ROW_STATUS_RAN);
  EXPECT_NE(DifferenceFrom(without, with), "");
}

TEST(FirstDifference, SaysInWhichStepOfARequest) {
  v1::StepResponse recorded = Answer();
  for (int i = 0; i < 2; ++i) recorded.add_steps()->set_num_rows(1);
  v1::StepResponse got = recorded;
  got.mutable_rows()->set_token(1, 1);
  EXPECT_EQ(DifferenceFrom(recorded, got),
            "step 17 (its step 1 of several), row 4: token: expected 44, got 1");
}

TEST(FirstDifference, RefusesColumnsThatDoNotAgree) {
  v1::StepResponse broken = Answer();
  broken.mutable_rows()->add_token(1);
  EXPECT_EQ(FirstDifference(broken, Answer()).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(FirstDifference(Answer(), broken).status().code(), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace reprise::tools
