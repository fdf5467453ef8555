// SPDX-License-Identifier: Apache-2.0
// Draft tokens over a socket: what answers say of them, and that a row's tokens are those that it
// has without.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "tests/service/served_model.h"

namespace reprise::service {
namespace {

using ::testing::ElementsAre;

v1::StepRequest WithDraft(const StreamClient& client, std::vector<uint32_t> tokens) {
  v1::StepRequest step = client.NewStep();
  step.add_continue_rows(kRow);
  if (tokens.empty()) return step;
  v1::RowDraft* draft = step.add_drafts();
  draft->set_row(kRow);
  draft->mutable_tokens()->Assign(tokens.begin(), tokens.end());
  return step;
}

// What the only row of the step sampled.
void AppendTokens(const v1::StepResponse& response, std::vector<uint32_t>* tokens) {
  const v1::RowResults& rows = response.rows();
  tokens->insert(tokens->end(), rows.accepted().token().begin(), rows.accepted().token().end());
  if (rows.sampled(0)) tokens->push_back(rows.token(0));
}

TEST(Drafts, AnswersSayWhichWereAcceptedAndTheRowGoesOnFromThere) {
  ServedModel served;
  StreamClient client(served.NewChannel());
  const std::vector<uint32_t> truth = served.Reference(kLongPrompt, 12);
  std::vector<uint32_t> tokens = {client.StartRow(kRow, kLongPrompt, kMaxContext)};
  const v1::StepResponse right = client.Step(WithDraft(client, {truth[1], truth[2], truth[3]}));
  EXPECT_THAT(right.rows().accepted().count(), ElementsAre(3));
  EXPECT_THAT(right.rows().accepted().token(), ElementsAre(truth[1], truth[2], truth[3]));
  EXPECT_EQ(right.rows().accepted().logprob_size(), 3);
  EXPECT_EQ(right.rows().token(0), truth[4]);
  EXPECT_EQ(right.rows().context_length(0), kLongPrompt.size() + 4);
  EXPECT_EQ(right.report().graph(), "mixed/8");
  EXPECT_EQ(right.report().tokens(), 4u);
  AppendTokens(right, &tokens);
  const uint32_t wrong = (truth[6] + 1) % kVocab;
  const v1::StepResponse half = client.Step(WithDraft(client, {truth[5], wrong, truth[7]}));
  EXPECT_THAT(half.rows().accepted().token(), ElementsAre(truth[5]));
  EXPECT_EQ(half.rows().context_length(0), kLongPrompt.size() + 6);
  AppendTokens(half, &tokens);
  const v1::StepResponse none = client.Step(WithDraft(client, {(truth[7] + 1) % kVocab}));
  EXPECT_FALSE(none.rows().has_accepted());
  AppendTokens(none, &tokens);
  while (tokens.size() < truth.size()) AppendTokens(client.Step(WithDraft(client, {})), &tokens);
  EXPECT_EQ(tokens, truth);
}

TEST(Drafts, StepsMayBeSentBeforeItIsKnownWhatWasAccepted) {
  ServedModel served(Slowed(100));
  StreamClient client(served.NewChannel());
  const std::vector<uint32_t> truth = served.Reference(kLongPrompt, 20);
  std::vector<uint32_t> tokens = {client.StartRow(kRow, kLongPrompt, kMaxContext)};
  size_t sent = 0;
  const auto send = [&] {
    const size_t next = 1 + 2 * sent;  // right as long as every draft before was
    ASSERT_TRUE(client.Send(
        WithDraft(client, {truth[next], sent % 4 == 3 ? truth[next] : truth[next + 1]})));
    client.CountStep();
    ++sent;
  };
  send();
  for (size_t i = 0; i < 7; ++i) {
    if (sent < 7) send();  // one ahead of what is read
    v1::StepStreamResponse response;
    ASSERT_TRUE(client.Receive(&response));
    ASSERT_TRUE(response.has_step()) << response.ShortDebugString();
    AppendTokens(response.step(), &tokens);
  }
  ASSERT_LT(tokens.size(), truth.size());
  EXPECT_EQ(tokens, std::vector<uint32_t>(
                        truth.begin(), truth.begin() + static_cast<std::ptrdiff_t>(tokens.size())));
}

}  // namespace
}  // namespace reprise::service
