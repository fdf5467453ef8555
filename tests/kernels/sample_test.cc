// SPDX-License-Identifier: Apache-2.0
#include "kernels/sample/sample.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "tests/testing/cases/sample_cases.h"
#include "tests/testing/guarded_memory.h"
#include "tests/testing/kernel_test.h"
#include "tests/testing/number.h"
#include "tests/testing/oracle.h"
#include "tests/testing/status_codes.h"
#include "tests/testing/status_matchers.h"

namespace reprise::testing {
namespace {

using kernels::SampleArgs;
using kernels::SampleCase;
using runtime::DType;

// A sampling row by itself.
struct Row {
  std::vector<double> logits;
  double temperature = 0.0;
  uint64_t seed = 0;
  uint32_t position = 1;  // of the new token: tokens in KV after this step
};

struct Choice {
  uint32_t token;
  float logprob;
  bool operator==(const Choice& other) const {
    return token == other.token &&
           std::bit_cast<uint32_t>(logprob) == std::bit_cast<uint32_t>(other.logprob);
  }
};

class SampleTest : public KernelTest {
 protected:
  // The rows lie at random entries and slots of a step in which others run and do not sample.
  std::vector<Choice> Run(const std::vector<Row>& rows, uint32_t vocab, uint32_t max_sampled) {
    const uint32_t n = static_cast<uint32_t>(rows.size()), max_rows = 2 * max_sampled + 1;
    Random random(n);
    const std::vector<uint32_t> slot = random.Permutation(max_rows);
    std::vector<uint32_t> entry = random.Permutation(max_rows);
    std::sort(entry.begin(), entry.begin() + n);  // request order

    std::vector<kernels::RowEntry> entries(max_rows);
    std::vector<uint32_t> context_before(max_rows, 0xffffffffu), sampled_entry = entry;
    std::vector<double> logits, temperature(max_rows, NAN);
    std::vector<uint64_t> seed(max_rows, ~uint64_t{0});
    for (uint32_t e = 0; e < max_rows; ++e) {
      entries[e].slot = slot[e];
      entries[e].flags = kernels::kRowTokensGiven;
    }
    for (uint32_t s = 0; s < n; ++s) {
      const uint32_t e = entry[s];
      entries[e].num_tokens = 1 + random.Below(rows[s].position);
      context_before[e] = rows[s].position - entries[e].num_tokens;
      temperature[slot[e]] = rows[s].temperature;
      seed[slot[e]] = rows[s].seed;
      logits.insert(logits.end(), rows[s].logits.begin(), rows[s].logits.end());
    }
    sampled_entry.resize(n);
    sampled_entry.resize(max_sampled, 0xffffffffu);
    logits.resize(size_t{max_sampled} * vocab, NAN);

    GuardedMemory memory(device(), stream());
    const auto tensor = [&](std::span<const double> values) {
      return static_cast<const float*>(memory.ConstantTensor(DType::kF32, values));
    };
    kernels::PlanCounts counts{};
    counts.num_rows = max_rows;
    counts.num_sampled = n;
    SampleArgs args;
    args.vocab = static_cast<int32_t>(vocab);
    args.num_chunks = (args.vocab + kernels::kSampleChunk - 1) / kernels::kSampleChunk;
    args.logits = tensor(logits);
    args.partials = memory.Poisoned<kernels::SamplePartial>(size_t{max_sampled} *
                                                            static_cast<size_t>(args.num_chunks));
    args.token = memory.Poisoned<uint32_t>(max_sampled);
    args.logprob = memory.Poisoned<float>(max_sampled);
    args.plan.counts = memory.Variable(std::vector<kernels::PlanCounts>{counts});
    args.plan.entries = memory.Variable(entries);
    args.plan.context_before = memory.Variable(context_before);
    args.plan.sampled_entry = memory.Variable(sampled_entry);
    args.rows.temperature = const_cast<float*>(tensor(temperature));
    args.rows.seed = const_cast<uint64_t*>(memory.Constant(seed));
    EXPECT_OK(Sample(stream(), kernels(), args, max_sampled));
    memory.Check();

    const std::vector<uint32_t> token = memory.Read(args.token);
    const std::vector<float> logprob = memory.Read(args.logprob);
    std::vector<Choice> choices;
    for (uint32_t s = 0; s < max_sampled; ++s) {
      if (s < n) {
        choices.push_back({token[s], logprob[s]});
      } else {
        EXPECT_EQ(token[s], 0xffffffffu) << "a row that does not sample got a token";
        EXPECT_TRUE(std::isnan(logprob[s]));
      }
    }
    return choices;
  }
};
REPRISE_FOR_EVERY_DEVICE(SampleTest);

// Rows of a case: random logits, greedy and a spread of temperatures.
std::vector<Row> MakeRows(const SampleCase& c) {
  constexpr double kTemperatures[] = {0.0, 1.0, 0.7, 1.5, 0.1, 1e-3, 5.0};
  Random random(static_cast<uint64_t>(c.vocab));
  std::vector<Row> rows;
  for (uint32_t s = 0; s < c.sampled; ++s) {
    Row row;
    row.logits = random.Tensor(DType::kF32, static_cast<size_t>(c.vocab), 3.0);
    row.temperature = RoundTo(DType::kF32, kTemperatures[s % std::size(kTemperatures)]);
    row.seed = random.Bits();
    row.position = 1 + random.Below(100000);
    rows.push_back(std::move(row));
  }
  return rows;
}

double UniformOf(const Row& row) {
  return OracleUniform(
      OraclePhilox({row.position, 0, 0, 0},
                   {static_cast<uint32_t>(row.seed), static_cast<uint32_t>(row.seed >> 32)})[0]);
}

// A cumulative weight in f32: at most some 120 sums and products on the way (64 in a sub-chunk, 64
// sub-chunks, 32 chunks, each over a part of the mass), and the exponential's own error where there
// is mass.
constexpr double kCumulativeSlack = 1.5e-5;

// The oracle's token wherever u does not lie within rounding of a boundary between two.
void ExpectDrawn(const Row& row, uint32_t token) {
  ASSERT_LT(token, row.logits.size());
  const std::vector<double> cumulative =
      OracleCumulative(row.logits, std::max(row.temperature, 1e-6));
  const double low = token == 0 ? 0.0 : cumulative[token - 1], high = cumulative[token];
  const double u = UniformOf(row);
  EXPECT_GE(u, low - kCumulativeSlack) << "token " << token;
  EXPECT_LE(u, high + kCumulativeSlack) << "token " << token;
}

// The difference of two logits and a logarithm, and a sum that is off as above.
double LogprobSlack(double logprob) { return 2e-5 + std::fabs(logprob) * 0x1p-22; }

TEST_P(SampleTest, MatchesTheOracleAndTouchesNothingElse) {
  for (const SampleCase& c : kernels::kSampleCases) {
    SCOPED_TRACE(c.name);
    const std::vector<Row> rows = MakeRows(c);
    const std::vector<Choice> got = Run(rows, static_cast<uint32_t>(c.vocab), c.max_sampled);
    ASSERT_EQ(got.size(), rows.size());
    for (size_t s = 0; s < rows.size(); ++s) {
      SCOPED_TRACE("row " + std::to_string(s));
      if (rows[s].temperature == 0.0) {
        EXPECT_EQ(got[s].token, OracleGreedy(rows[s].logits));
      } else {
        ExpectDrawn(rows[s], got[s].token);
      }
      const double logprob = OracleLogprob(rows[s].logits, got[s].token);
      EXPECT_NEAR(got[s].logprob, logprob, LogprobSlack(logprob));
    }
  }
}

TEST_P(SampleTest, GreedyTakesTheLowestIdOfATie) {
  for (const uint32_t vocab : {5u, 4097u, 9000u}) {
    Row row;
    row.logits.assign(vocab, -2.5);
    EXPECT_EQ(Run({row}, vocab, 1)[0].token, 0u);
    row.logits[vocab - 1] = row.logits[vocab - 2] = row.logits[vocab / 2] = 7.25;
    EXPECT_EQ(Run({row}, vocab, 1)[0].token, vocab / 2);
  }
}

TEST_P(SampleTest, FrequenciesFollowTheSoftmaxAtTheTemperature) {
  REPRISE_SKIP_IF_EMULATED();
  constexpr uint32_t kVocab = 16, kDraws = 16384;
  constexpr double kTemperature = 0.75;
  Random random(16);
  Row row;
  row.logits = random.Tensor(DType::kF32, kVocab);
  row.temperature = kTemperature;
  std::vector<Row> rows(kDraws, row);
  for (uint32_t i = 0; i < kDraws; ++i) {  // half differ in seed, half in position
    rows[i].seed = i % 2 == 0 ? i : 1;
    rows[i].position = 1 + (i % 2 == 0 ? 0 : i);
  }
  std::vector<double> count(kVocab);
  for (const Choice& choice : Run(rows, kVocab, kDraws)) count.at(choice.token) += 1.0;
  const std::vector<double> cumulative = OracleCumulative(row.logits, kTemperature);
  double chi_square = 0.0;
  for (uint32_t id = 0; id < kVocab; ++id) {
    const double want = kDraws * (cumulative[id] - (id == 0 ? 0.0 : cumulative[id - 1]));
    ASSERT_GT(want, 20.0);
    chi_square += (count[id] - want) * (count[id] - want) / want;
  }
  // 15 degrees of freedom: beyond 37.7 with probability 0.001, below 3.5 likewise.
  EXPECT_LT(chi_square, 37.7);
  EXPECT_GT(chi_square, 3.5);
}

TEST_P(SampleTest, ARowsBitsDependOnNoNeighbour) {
  for (const SampleCase& c : kernels::kSampleCases) {
    SCOPED_TRACE(c.name);
    const std::vector<Row> rows = MakeRows(c);
    const uint32_t vocab = static_cast<uint32_t>(c.vocab);
    const std::vector<Choice> together = Run(rows, vocab, c.max_sampled);
    for (size_t s = 0; s < rows.size(); ++s)
      EXPECT_EQ(Run({rows[s]}, vocab, 1)[0], together[s]) << "row " << s;
  }
}

TEST_P(SampleTest, ATinyTemperatureActsAsAMillionth) {
  Row row;
  row.logits = {1.0, 1.0 + 1e-6, 1.0 - 1e-6, 0.5};
  for (double& l : row.logits) l = RoundTo(DType::kF32, l);
  std::vector<Row> tiny, millionth;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    row.seed = seed;
    row.temperature = 1e-30;
    tiny.push_back(row);
    row.temperature = 1e-6;
    millionth.push_back(row);
  }
  const std::vector<Choice> got = Run(tiny, 4, 200), want = Run(millionth, 4, 200);
  for (size_t i = 0; i < tiny.size(); ++i) {
    EXPECT_EQ(got[i], want[i]);
    ExpectDrawn(tiny[i], got[i].token);
  }
}

TEST_P(SampleTest, LogitsThatAreAllNanGiveNoCandidateAndANanLogprob) {
  for (const uint32_t vocab : {1u, 199u, 4097u}) {
    for (const double temperature : {0.0, 1.0}) {
      Row row;
      row.logits.assign(vocab, NAN);
      row.temperature = temperature;
      const Choice got = Run({row}, vocab, 2)[0];
      EXPECT_EQ(got.token, kernels::kNoCandidate);
      EXPECT_TRUE(std::isnan(got.logprob));
    }
  }
}

// A mask of tokens is a set of logits at minus infinity: it may cover whole chunks and sub-chunks.
TEST_P(SampleTest, LogitsOfMinusInfinityAreNeverDrawnAndCountAsNoMass) {
  constexpr uint32_t kVocab = 3 * 4096 + 77;
  Random random(3);
  std::vector<Row> rows;
  for (uint64_t seed = 0; seed < 12; ++seed) {
    Row row;
    row.logits = random.Tensor(DType::kF32, kVocab);
    for (uint32_t id = 0; id < kVocab; ++id)
      if (id < 4096 || id >= 2 * 4096 || id % 5 != 0)
        row.logits[id] = -std::numeric_limits<double>::infinity();
    row.temperature = seed % 3 == 0 ? 0.0 : 1.25;
    row.seed = seed;
    rows.push_back(std::move(row));
  }
  const std::vector<Choice> got = Run(rows, kVocab, 12);
  for (size_t s = 0; s < rows.size(); ++s) {
    ASSERT_TRUE(std::isfinite(rows[s].logits.at(got[s].token)));
    if (rows[s].temperature != 0.0) ExpectDrawn(rows[s], got[s].token);
    const double logprob = OracleLogprob(rows[s].logits, got[s].token);
    EXPECT_NEAR(got[s].logprob, logprob, LogprobSlack(logprob));
  }
}

TEST_P(SampleTest, RefusesImpossibleShapes) {
  SampleArgs args;
  args.vocab = 5000;
  args.num_chunks = 1;
  EXPECT_THAT(Sample(stream(), kernels(), args, 1), StatusIs(kInvalid, "num_chunks is 1"));
  args.num_chunks = 2;
  EXPECT_THAT(Sample(stream(), kernels(), args, 0), StatusIs(kInvalid, "max_sampled is 0"));
  args.vocab = args.num_chunks = 0;
  EXPECT_THAT(Sample(stream(), kernels(), args, 1), StatusIs(kInvalid, "vocab is 0"));
}

}  // namespace
}  // namespace reprise::testing
