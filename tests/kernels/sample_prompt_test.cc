// SPDX-License-Identifier: Apache-2.0
// Prompt tokens beside sampled rows: the logits behind those that are sampled from, each with a
// report of the token that followed. Against the double reference.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "kernels/sample/sample_args.h"
#include "tests/kernels/sample_run.h"
#include "tests/testing/kernel_test.h"
#include "tests/testing/number.h"
#include "tests/testing/oracle.h"
#include "tests/testing/sample_oracle.h"

namespace reprise::testing {
namespace {

using kernels::LogprobReport;
using runtime::DType;

class SamplePromptTest : public KernelTest {
 protected:
  SampleOutcomes Run(const std::vector<SampleRow>& rows, const std::vector<PromptRow>& prompt) {
    return RunSample(device(), stream(), kernels(), rows, prompt);
  }
};
REPRISE_FOR_EVERY_DEVICE(SamplePromptTest);

std::vector<double> RandomLogits(Random& random, size_t vocab) {
  std::vector<double> logits = random.Tensor(DType::kF32, vocab, 3.0);
  if (random.Below(3) == 0)  // ties everywhere
    for (double& l : logits) l = RoundTo(DType::kBf16, std::round(l * 2.0) / 4.0);
  if (random.Below(4) == 0) logits[random.Below(static_cast<uint32_t>(vocab))] = std::nan("");
  return logits;
}

// Greedy rows, drawn ones, adjusted ones, with reports and without.
std::vector<SampleRow> RandomRows(Random& random, uint32_t count, size_t vocab) {
  std::vector<SampleRow> rows(count);
  for (uint32_t s = 0; s < count; ++s) {
    rows[s].logits = RandomLogits(random, vocab);
    rows[s].seed = random.Bits();
    rows[s].position = 1 + random.Below(1000);
    rows[s].temperature = s % 2 == 0 ? 1.0 : 0.0;
    if (s % 3 == 1) rows[s].bias[random.Below(static_cast<uint32_t>(vocab))] = 2.5;
    if (s % 4 == 2) rows[s].top_k = 5;
    if (s % 3 != 0) rows[s].num_logprobs = 1 + random.Below(kernels::kMaxTopLogprobs);
    rows[s].return_logits = s % 5 == 3;
  }
  return rows;
}

std::vector<PromptRow> RandomPrompt(Random& random, uint32_t count, uint32_t num_sampled,
                                    size_t vocab) {
  std::vector<PromptRow> prompt(count);
  for (uint32_t i = 0; i < count; ++i) {
    prompt[i].logits = RandomLogits(random, vocab);
    prompt[i].target = random.Below(static_cast<uint32_t>(vocab));
    if (i % 2 == 0 && num_sampled != 0) {
      prompt[i].sampled = random.Below(num_sampled);
    } else if (i % 3 != 0) {
      prompt[i].num_logprobs = 1 + random.Below(kernels::kMaxTopLogprobs);
    }
  }
  return prompt;
}

double Slack(double logprob) { return 3e-5 + std::fabs(logprob) * 0x1p-21; }

// Of any token, those at minus infinity too: place in the order of all ids, log-probability, and
// the likeliest that have one.
void ExpectReports(const LogprobReport& report, std::span<const double> raw, uint32_t target,
                   uint32_t num_logprobs) {
  const std::vector<double> logits = OracleClean(raw);
  const std::vector<uint32_t> order = OracleOrder(logits);
  if (order.empty()) {
    EXPECT_TRUE(std::isnan(report.logprob));
    EXPECT_EQ(report.rank, 0u);
    EXPECT_EQ(report.num_top, 0u);
    return;
  }
  uint32_t rank = 1;
  for (uint32_t t = 0; t < logits.size(); ++t)
    rank += logits[t] > logits[target] || (logits[t] == logits[target] && t < target) ? 1 : 0;
  EXPECT_EQ(report.rank, rank);
  const double logprob = OracleLogprob(logits, target);
  if (std::isfinite(logprob)) {
    EXPECT_NEAR(report.logprob, logprob, Slack(logprob));
  } else {
    EXPECT_EQ(report.logprob, logprob);
  }
  ASSERT_EQ(report.num_top, std::min<size_t>(num_logprobs, order.size()));
  for (uint32_t j = 0; j < report.num_top; ++j) {
    ASSERT_EQ(report.top_token[j], order[j]) << "place " << j;
    const double top = OracleLogprob(logits, order[j]);
    EXPECT_NEAR(report.top_logprob[j], top, Slack(top));
  }
}

uint32_t NumLogprobs(const PromptRow& token, const std::vector<SampleRow>& rows) {
  return token.sampled == PromptRow::kOwnRow ? token.num_logprobs
                                             : rows[token.sampled].num_logprobs;
}

bool SameBits(float a, float b) { return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b); }

TEST_P(SamplePromptTest, PromptTokensReportHowLikelyTheyWere) {
  constexpr struct {
    size_t vocab;
    uint32_t rows, prompt;
  } kCases[] = {{1, 2, 3},  {2, 0, 2},    {20, 3, 14},   {255, 12, 5},
                {33, 0, 9}, {4097, 2, 5}, {128256, 2, 6}};
  for (const auto& c : kCases) {
    if (is_emulated() && c.vocab > 5000) continue;
    SCOPED_TRACE(c.vocab);
    Random random(c.vocab + 7);
    const std::vector<SampleRow> rows = RandomRows(random, c.rows, c.vocab);
    const std::vector<PromptRow> prompt = RandomPrompt(random, c.prompt, c.rows, c.vocab);
    const SampleOutcomes got = Run(rows, prompt);
    ASSERT_EQ(got.prompt.size(), prompt.size());
    for (size_t i = 0; i < prompt.size(); ++i) {
      SCOPED_TRACE("prompt token " + std::to_string(i));
      ExpectReports(got.prompt[i], prompt[i].logits, prompt[i].target,
                    NumLogprobs(prompt[i], rows));
    }
    // What rows sample is what they would have sampled without.
    if (rows.empty()) continue;
    const SampleOutcomes alone = Run(rows, {});
    for (size_t s = 0; s < rows.size(); ++s) {
      EXPECT_EQ(got.rows[s].token, alone.rows[s].token);
      EXPECT_TRUE(SameBits(got.rows[s].logprob, alone.rows[s].logprob));
      EXPECT_EQ(got.rows[s].report.rank, alone.rows[s].report.rank);
    }
  }
}

// A prompt token and a sampled one of the same logits: the same report to the bit.
TEST_P(SamplePromptTest, ASampledTokenReportsWhatAPromptTokenWould) {
  for (const size_t vocab : {7, 300, 4500}) {
    Random random(vocab);
    SampleRow row;
    row.logits = random.Tensor(DType::kF32, vocab, 3.0);
    row.temperature = 1.0;
    row.seed = 5;
    row.num_logprobs = 9;
    const uint32_t token = Run({row}, {}).rows[0].token;
    const SampleOutcomes got =
        Run({row}, {{.logits = row.logits, .target = token, .num_logprobs = 9},
                    {.logits = row.logits, .target = token, .sampled = 0}});
    EXPECT_EQ(got.rows[0].token, token);
    const LogprobReport& want = got.rows[0].report;
    for (const LogprobReport& report : got.prompt) {
      EXPECT_TRUE(SameBits(report.logprob, want.logprob));
      EXPECT_EQ(report.rank, want.rank);
      ASSERT_EQ(report.num_top, want.num_top);
      EXPECT_EQ(std::memcmp(report.top_token, want.top_token, sizeof(want.top_token)), 0);
      EXPECT_EQ(std::memcmp(report.top_logprob, want.top_logprob, sizeof(want.top_logprob)), 0);
    }
  }
}

TEST_P(SamplePromptTest, OddLogitsOfPromptTokensHaveTheirPlace) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const double nan = std::nan("");
  const std::vector<double> odd = {nan, -0.0, 0.0, -kInfinity, kInfinity, nan, 3.0, -1e30};
  const std::vector<double> nothing = {nan, -kInfinity, nan, nan, -kInfinity, nan, nan, nan};
  std::vector<PromptRow> prompt;
  for (uint32_t t = 0; t < odd.size(); ++t)
    prompt.push_back({.logits = odd, .target = t, .num_logprobs = 32});
  prompt.push_back({.logits = nothing, .target = 1, .num_logprobs = 4});
  const SampleOutcomes got = Run({}, prompt);
  for (size_t i = 0; i < prompt.size(); ++i) {
    SCOPED_TRACE("prompt token " + std::to_string(i));
    ExpectReports(got.prompt[i], prompt[i].logits, prompt[i].target, prompt[i].num_logprobs);
  }
}

}  // namespace
}  // namespace reprise::testing
