// SPDX-License-Identifier: Apache-2.0
// Rows with truncation, adjusted logits, reports: against the double reference, which says itself
// where rounding may decide.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <set>
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
using kernels::SampleCut;
using runtime::DType;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Order-preserving integer of a float, the plain way: sorts as the floats do.
int64_t Ordinal(float x) {
  const int64_t bits = std::bit_cast<uint32_t>(x == 0.0f ? 0.0f : x);
  return bits < 0x80000000 ? bits + 0x80000000 : 0xffffffff - bits;
}

bool Kept(const SampleCut& cut, double logit, uint32_t id) {
  const int64_t key = Ordinal(static_cast<float>(logit));
  return key > cut.key || (key == cut.key && id <= cut.last_id);
}

class SampleFeaturesTest : public KernelTest {
 protected:
  // Under emulation a thread is a fiber: a few rows of small vocabularies.
  bool TooLong(size_t vocab) const { return is_emulated() && vocab > 5000; }
  uint32_t Fewer(uint32_t rows) const { return is_emulated() ? (rows + 9) / 10 : rows; }

  std::vector<SampleOutcome> Run(const std::vector<SampleRow>& rows) {
    return RunSample(device(), stream(), kernels(), rows).rows;
  }
};
REPRISE_FOR_EVERY_DEVICE(SampleFeaturesTest);

double UniformOf(const SampleRow& row) {
  return OracleUniform(
      OraclePhilox({row.position, 0, 0, 0},
                   {static_cast<uint32_t>(row.seed), static_cast<uint32_t>(row.seed >> 32)})[0]);
}

// The token is one whose part of the kept mass contains u, but for the error of f32 weights and of
// their sums, which is at most `sum_slack` of the mass.
void ExpectDrawnFrom(std::span<const double> logits, std::vector<uint32_t> kept,
                     const SampleRow& row, uint32_t token, double sum_slack) {
  std::sort(kept.begin(), kept.end());
  const double temperature = std::max(row.temperature, 1e-6);
  double max = -kInfinity;
  for (const uint32_t t : kept) max = std::max(max, logits[t]);
  double total = 0.0, error = 0.0, low = -1.0, high = -1.0;
  for (const uint32_t t : kept) {
    const double x = (logits[t] - max) / temperature, w = std::exp(x);
    error += w * (6 * 0x1p-24 * std::fabs(x) + 0x1p-21) + 0x1p-40;
    if (t == token) low = total;
    total += w;
    if (t == token) high = total;
  }
  ASSERT_GE(low, 0.0) << "token " << token << " is not among the " << kept.size() << " kept";
  const double u = UniformOf(row) * total;
  EXPECT_GE(u, low - 2 * error - sum_slack * total);
  EXPECT_LE(u, high + 2 * error + sum_slack * total);
}

// Rows that truncate add integers; the others f32, at most some 120 sums on the way to a token (64
// in a sub-chunk, 64 sub-chunks, chunks over a part of the mass).
constexpr double kIntegerSums = 0.0, kFloatSums = 1.5e-5;

// The row's tokens that are kept are a prefix of the order, of a length that the reference allows.
void ExpectTruncated(std::span<const double> logits, const SampleRow& row,
                     const SampleOutcome& got) {
  const std::vector<uint32_t> order = OracleOrder(logits);
  ASSERT_FALSE(order.empty());
  if (row.temperature == 0.0) {
    EXPECT_EQ(got.token, order[0]);
    return;
  }
  const KeptRange range = OracleKept(logits, order, row);
  size_t kept = 0;
  while (kept < order.size() && Kept(got.cut, logits[order[kept]], order[kept])) ++kept;
  for (size_t j = kept; j < order.size(); ++j)
    ASSERT_FALSE(Kept(got.cut, logits[order[j]], order[j])) << "kept tokens are no prefix";
  // Of min-p the cut says nothing.
  const SampleRow min_p_only{.logits = {}, .temperature = row.temperature, .min_p = row.min_p};
  const KeptRange likely = OracleKept(logits, order, min_p_only);
  EXPECT_LE(std::min(kept, likely.least), range.most);
  EXPECT_GE(std::min(kept, likely.most), range.least);
  if (likely.least != likely.most) return;  // rounding decides what there is to draw from
  kept = std::min(kept, likely.least);
  const auto end = order.begin() + static_cast<std::ptrdiff_t>(kept);
  ExpectDrawnFrom(logits, {order.begin(), end}, row, got.token, kIntegerSums);
}

SampleRow RandomTruncated(Random& random, size_t vocab) {
  constexpr double kTemperatures[] = {0.0, 1.0, 0.7, 1.5, 0.1, 5.0, 1e-3};
  constexpr uint32_t kTopK[] = {0, 1, 2, 5, 50, 1000, 1u << 30};
  constexpr double kTopP[] = {1.0, 0.9, 0.5, 0.99, 0.1, 1e-6, 0.999};
  constexpr double kMinP[] = {0.0, 0.0, 0.05, 0.5, 1.0, 1e-4};
  SampleRow row;
  row.logits = random.Tensor(DType::kF32, vocab, random.Below(3) == 0 ? 10.0 : 2.0);
  if (random.Below(3) == 0)  // bf16 logits of a small range: ties everywhere
    for (double& l : row.logits) l = RoundTo(DType::kBf16, std::round(l * 2.0) / 4.0);
  row.temperature = RoundTo(DType::kF32, kTemperatures[random.Below(7)]);
  row.seed = random.Bits();
  row.position = 1 + random.Below(100000);
  row.top_k = kTopK[random.Below(7)];
  row.top_p = RoundTo(DType::kF32, kTopP[random.Below(7)]);
  row.min_p = RoundTo(DType::kF32, kMinP[random.Below(6)]);
  if (!row.truncates()) row.top_k = 3;
  return row;
}

TEST_P(SampleFeaturesTest, TruncationKeepsWhatTheReferenceKeeps) {
  constexpr struct {
    size_t vocab;
    uint32_t rows;
  } kCases[] = {{1, 8}, {2, 30}, {255, 120}, {4097, 60}, {32000, 12}, {128256, 3}, {262144, 2}};
  for (const auto& c : kCases) {
    if (TooLong(c.vocab)) continue;
    SCOPED_TRACE(c.vocab);
    Random random(c.vocab);
    std::vector<SampleRow> rows;
    for (uint32_t i = 0; i < Fewer(c.rows); ++i) rows.push_back(RandomTruncated(random, c.vocab));
    const std::vector<SampleOutcome> got = Run(rows);
    for (uint32_t i = 0; i < rows.size(); ++i) {
      SCOPED_TRACE(absl::StrCat("row ", i, ": k ", rows[i].top_k, " p ", rows[i].top_p, " min_p ",
                                rows[i].min_p, " t ", rows[i].temperature));
      ExpectTruncated(rows[i].logits, rows[i], got[i]);
      const double logprob = OracleLogprob(rows[i].logits, got[i].token);
      EXPECT_NEAR(got[i].logprob, logprob, 3e-5 + std::fabs(logprob) * 0x1p-21);
    }
  }
}

TEST_P(SampleFeaturesTest, ATieAtTheCutGoesToTheLowestIds) {
  // Ids 3, 6, 9, ... tie for the second place.
  SampleRow row{.logits = std::vector<double>(5000, -1.0), .temperature = 1.0};
  for (size_t t = 3; t < 5000; t += 3) row.logits[t] = 2.0;
  row.logits[4998] = 2.5;
  for (const uint32_t k : {2u, 7u, 1000u}) {
    SampleRow tied = row;
    tied.top_k = k;
    const SampleOutcome got = Run({tied})[0];
    for (uint32_t t = 0; t < 5000; ++t) {
      const bool want = t == 4998 || (t % 3 == 0 && t != 0 && t / 3 <= k - 1);
      ASSERT_EQ(Kept(got.cut, row.logits[t], t), want) << "k " << k << ", id " << t;
    }
  }
  // All equal: any share of the mass is a number of tokens.
  SampleRow flat{.logits = std::vector<double>(1024, 0.25), .temperature = 0.5, .top_p = 0.25};
  const SampleOutcome got = Run({flat})[0];
  for (uint32_t t = 0; t < 1024; ++t) ASSERT_EQ(Kept(got.cut, 0.25, t), t < 256) << t;
}

TEST_P(SampleFeaturesTest, OddLogitsHaveTheirPlace) {
  const double nan = std::nan("");
  SampleRow row{.logits = {nan, -0.0, 0.0, -kInfinity, 1e-40, -1e-40, nan, 3.0, -3e38},
                .temperature = 1.0,
                .top_k = 3};
  // 7, then 4 (a subnormal above zero), then the lower id of the two zeros.
  std::vector<SampleRow> rows(64, row);
  for (uint32_t i = 0; i < 64; ++i) rows[i].seed = i;
  for (const SampleOutcome& got : Run(rows)) {
    EXPECT_TRUE(got.token == 7 || got.token == 4 || got.token == 1) << got.token;
    EXPECT_TRUE(std::isfinite(got.logprob));
  }
  // Plus infinity is the largest float, twice.
  SampleRow infinite{.logits = {1.0, kInfinity, nan, kInfinity}, .temperature = 1.0, .top_p = 0.5};
  EXPECT_EQ(Run({infinite})[0].token, 1u);
  infinite.top_p = 1.0;
  infinite.min_p = 1.0;
  std::vector<SampleRow> both(40, infinite);
  std::set<uint32_t> seen;
  for (uint32_t i = 0; i < 40; ++i) both[i].seed = i;
  for (const SampleOutcome& got : Run(both)) seen.insert(got.token);
  EXPECT_EQ(seen, (std::set<uint32_t>{1, 3}));
  // NaN among finite logits changes nothing for a plain row either.
  SampleRow plain{.logits = {nan, 2.0, nan, 1.0}, .temperature = 0.0};
  const SampleOutcome greedy = Run({plain})[0];
  EXPECT_EQ(greedy.token, 1u);
  EXPECT_NEAR(greedy.logprob, -std::log1p(std::exp(-1.0)), 1e-6);
  plain.temperature = 1.0;
  EXPECT_TRUE(Run({plain})[0].token % 2 == 1);
}

TEST_P(SampleFeaturesTest, FrequenciesFollowTheTruncatedDistribution) {
  REPRISE_SKIP_IF_EMULATED();
  constexpr uint32_t kVocab = 300, kDraws = 8192;
  Random random(21);
  SampleRow row;
  row.logits = random.Tensor(DType::kF32, kVocab, 2.0);
  row.temperature = 1.25;
  row.top_k = 12;
  row.top_p = 0.875;
  std::vector<SampleRow> rows(kDraws, row);
  for (uint32_t i = 0; i < kDraws; ++i) rows[i].seed = i;
  const std::vector<uint32_t> order = OracleOrder(row.logits);
  const KeptRange range = OracleKept(row.logits, order, row);
  ASSERT_EQ(range.least, range.most);
  ASSERT_GT(range.least, 3u);
  double total = 0.0;
  for (size_t j = 0; j < range.least; ++j) total += std::exp(row.logits[order[j]] / 1.25);
  std::map<uint32_t, double> count;
  for (const SampleOutcome& got : Run(rows)) count[got.token] += 1.0;
  double chi_square = 0.0;
  for (size_t j = 0; j < range.least; ++j) {
    const double want = kDraws * std::exp(row.logits[order[j]] / 1.25) / total;
    ASSERT_GT(want, 20.0);
    chi_square += (count[order[j]] - want) * (count[order[j]] - want) / want;
    count.erase(order[j]);
  }
  EXPECT_TRUE(count.empty()) << "a token was drawn that is not kept";
  // At most 11 degrees of freedom: beyond 31.3 with probability 0.001.
  EXPECT_LT(chi_square, 31.3);
}

// everything: all kinds of adjustment at once, none of them idle.
SampleRow RandomAdjusted(Random& random, size_t vocab, bool everything) {
  SampleRow row;
  row.logits = random.Tensor(DType::kF32, vocab, 3.0);
  constexpr double kTemperatures[] = {0.0, 1.0, 0.7, 1.5};
  row.temperature = RoundTo(DType::kF32, kTemperatures[random.Below(4)]);
  row.seed = random.Bits();
  row.position = 1 + random.Below(1000);
  const auto token = [&] { return random.Below(static_cast<uint32_t>(vocab)); };
  const uint32_t kinds = everything ? 15 : 1 + random.Below(15);
  if ((kinds & 1) != 0) {
    row.repetition = RoundTo(DType::kF32, 0.5 + 1.5 * random.Uniform());
    row.presence = RoundTo(DType::kF32, random.Normal());
    row.frequency = RoundTo(DType::kF32, random.Normal() * 0.25);
    for (int i = 0; i < 40; ++i) row.prompt.insert(token());
    for (int i = 0; i < 60; ++i)
      ++row.sampled[random.Below(2) == 0 ? token() : token() % 7 % vocab];
  }
  if ((kinds & 2) != 0)
    for (int i = 0; i < 200; ++i) row.bias[token()] = RoundTo(DType::kF32, random.Normal() * 5.0);
  if ((kinds & 4) != 0) {
    row.allowed.resize(vocab);
    for (size_t t = 0; t < vocab; ++t) row.allowed[t] = random.Below(3) != 0;
    row.allowed[token()] = true;
  }
  if ((kinds & 8) != 0 && vocab > 8) {
    row.stop = {token(), token()};
    row.min_tokens = 5;
    row.generated = everything || random.Below(2) == 0 ? 4 : 5;
  }
  if (!row.adjusts()) row.presence = 1.0;
  if (random.Below(3) == 0) row.top_k = 10;
  return row;
}

TEST_P(SampleFeaturesTest, AdjustedLogitsAreTheReferences) {
  for (const size_t vocab : {1, 2, 255, 4097, 32000, 262144}) {
    if (TooLong(vocab)) continue;
    SCOPED_TRACE(vocab);
    Random random(vocab + 1);
    std::vector<SampleRow> rows;
    for (uint32_t i = 0; i < Fewer(vocab > 5000 ? 4 : 30); ++i)
      rows.push_back(RandomAdjusted(random, vocab, i == 0));
    const std::vector<SampleOutcome> got = Run(rows);
    for (size_t i = 0; i < rows.size(); ++i) {
      SCOPED_TRACE("row " + std::to_string(i));
      std::vector<double> slack;
      const std::vector<double> want = OracleAdjust(rows[i], &slack);
      for (size_t t = 0; t < vocab; ++t) {
        if (std::isfinite(want[t])) {
          ASSERT_NEAR(got[i].adjusted[t], want[t], slack[t]) << "token " << t;
        } else {
          ASSERT_EQ(got[i].adjusted[t], want[t]) << "token " << t;
        }
      }
      // From there on the row is any other row; its own numbers leave no rounding to allow for.
      const std::vector<double> adjusted(got[i].adjusted.begin(), got[i].adjusted.end());
      const std::vector<uint32_t> order = OracleOrder(adjusted);
      if (order.empty()) {
        EXPECT_EQ(got[i].token, kernels::kNoCandidate);
      } else if (rows[i].temperature == 0.0) {
        EXPECT_EQ(got[i].token, order[0]);
      } else if (rows[i].truncates()) {
        ExpectTruncated(adjusted, rows[i], got[i]);
      } else {
        ExpectDrawnFrom(adjusted, order, rows[i], got[i].token, kFloatSums);
      }
      if (order.empty()) continue;
      const double logprob = OracleLogprob(rows[i].logits, got[i].token);
      EXPECT_NEAR(got[i].logprob, logprob, 3e-5 + std::fabs(logprob) * 0x1p-21);
    }
  }
}

TEST_P(SampleFeaturesTest, AMaskLeavesOneTokenOrNone) {
  Random random(9);
  for (const double temperature : {0.0, 1.0}) {
    SampleRow row;
    row.logits = random.Tensor(DType::kF32, 9000);
    row.temperature = temperature;
    row.allowed.assign(9000, false);
    SampleRow none = row;
    row.allowed[8191] = true;
    SampleRow truncated = row;
    truncated.top_k = 40;
    truncated.top_p = 0.5;
    none.top_k = 5;
    const std::vector<SampleOutcome> got = Run({row, truncated, none});
    EXPECT_EQ(got[0].token, 8191u);
    EXPECT_EQ(got[1].token, 8191u);
    EXPECT_EQ(got[2].token, kernels::kNoCandidate);
    EXPECT_TRUE(std::isnan(got[2].logprob));
  }
}

TEST_P(SampleFeaturesTest, ReportsNameTheLikeliestInOrder) {
  for (const size_t vocab : {1, 2, 20, 4097, 32000, 262144}) {
    if (TooLong(vocab)) continue;
    SCOPED_TRACE(vocab);
    Random random(vocab + 2);
    std::vector<SampleRow> rows;
    for (uint32_t i = 0; i < Fewer(vocab > 5000 ? 3u : 24u); ++i) {
      SampleRow row =
          i % 2 == 0 ? RandomAdjusted(random, vocab, i == 0) : RandomTruncated(random, vocab);
      row.num_logprobs = i % 4 == 0 ? 32 : 1 + random.Below(32);
      row.return_logits = i % 3 == 0;
      if (i % 5 == 0) row.logits[vocab / 2] = std::nan("");
      rows.push_back(std::move(row));
    }
    const std::vector<SampleOutcome> got = Run(rows);
    for (size_t i = 0; i < rows.size(); ++i) {
      SCOPED_TRACE("row " + std::to_string(i));
      const std::vector<double> clean = OracleClean(rows[i].logits);
      const std::vector<uint32_t> order = OracleOrder(clean);
      const LogprobReport& report = got[i].report;
      if (got[i].token == kernels::kNoCandidate) {
        EXPECT_EQ(report.num_top, 0u);
        EXPECT_EQ(report.rank, 0u);
        continue;
      }
      EXPECT_EQ(order.at(report.rank - 1), got[i].token);
      EXPECT_EQ(std::bit_cast<uint32_t>(report.logprob), std::bit_cast<uint32_t>(got[i].logprob));
      ASSERT_EQ(report.num_top, std::min<size_t>(rows[i].num_logprobs, order.size()));
      for (uint32_t j = 0; j < report.num_top; ++j) {
        ASSERT_EQ(report.top_token[j], order[j]) << "place " << j;
        const double logprob = OracleLogprob(clean, order[j]);
        EXPECT_NEAR(report.top_logprob[j], logprob, 3e-5 + std::fabs(logprob) * 0x1p-21);
      }
      if (!rows[i].return_logits) continue;
      for (size_t t = 0; t < vocab; ++t) {
        const float want = static_cast<float>(rows[i].logits[t]);
        ASSERT_TRUE(std::isnan(want) ? std::isnan(got[i].logits[t]) : got[i].logits[t] == want);
      }
    }
  }
}

TEST_P(SampleFeaturesTest, ARowsBitsDependOnNoNeighbour) {
  for (const size_t vocab : {255, 9000}) {
    if (TooLong(vocab)) continue;
    Random random(vocab + 3);
    std::vector<SampleRow> rows;
    for (uint32_t i = 0; i < Fewer(24); ++i) {
      rows.push_back(i % 2 == 0 ? RandomAdjusted(random, vocab, i == 0)
                                : RandomTruncated(random, vocab));
      rows.back().num_logprobs = random.Below(4);
    }
    const std::vector<SampleOutcome> together = Run(rows);
    for (size_t i = 0; i < rows.size(); ++i) {
      const SampleOutcome alone = Run({rows[i]})[0];
      EXPECT_EQ(alone.token, together[i].token);
      EXPECT_EQ(std::memcmp(&alone.logprob, &together[i].logprob, sizeof(float)), 0);
      EXPECT_EQ(std::memcmp(&alone.cut, &together[i].cut, sizeof(SampleCut)), 0);
      ASSERT_EQ(alone.adjusted.size(), together[i].adjusted.size());
      for (size_t t = 0; t < alone.adjusted.size(); ++t)
        ASSERT_EQ(std::bit_cast<uint32_t>(alone.adjusted[t]),
                  std::bit_cast<uint32_t>(together[i].adjusted[t]));
      if (rows[i].num_logprobs == 0) continue;
      EXPECT_EQ(alone.report.rank, together[i].report.rank);
      EXPECT_EQ(std::memcmp(alone.report.top_logprob, together[i].report.top_logprob,
                            alone.report.num_top * sizeof(float)),
                0);
    }
  }
}

}  // namespace
}  // namespace reprise::testing
