// SPDX-License-Identifier: Apache-2.0
// What sampling must do with a row of logits, in plain C++ from kernels/sample/sample.h: sorts and
// sums in double, and how far f32 may be from them. Shares no code with the kernels.
#ifndef REPRISE_TESTS_TESTING_SAMPLE_ORACLE_H_
#define REPRISE_TESTS_TESTING_SAMPLE_ORACLE_H_

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <vector>

namespace reprise::testing {

// A sampling row by itself. Numbers are what f32 holds.
struct SampleRow {
  std::vector<double> logits;
  double temperature = 0.0;
  uint64_t seed = 0;
  uint32_t position = 1;  // of the new token
  uint32_t top_k = 0;
  double top_p = 1.0, min_p = 0.0;
  double repetition = 1.0, presence = 0.0, frequency = 0.0;
  std::set<uint32_t> prompt = {};             // tokens in it
  std::map<uint32_t, uint32_t> sampled = {};  // how often
  std::map<uint32_t, double> bias = {};
  std::vector<bool> allowed = {};  // empty: all
  std::vector<uint32_t> stop = {};
  uint32_t min_tokens = 0, generated = 0;
  uint32_t num_logprobs = 0;
  bool return_logits = false;

  bool adjusts() const {
    return repetition != 1.0 || presence != 0.0 || frequency != 0.0 || !bias.empty() ||
           !allowed.empty() || min_tokens != 0;
  }
  bool truncates() const { return top_k != 0 || top_p < 1.0 || min_p > 0.0; }
};

// NaN as minus infinity, plus infinity as the largest float.
std::vector<double> OracleClean(std::span<const double> logits);
// After mask, bias, min_tokens and penalties; each has f32 error of at most 2^-22 of the largest
// number on the way, which goes to `slack`.
std::vector<double> OracleAdjust(const SampleRow& row, std::vector<double>* slack);
// Ids with logits above minus infinity: larger logit first, then lower id.
std::vector<uint32_t> OracleOrder(std::span<const double> logits);

// How many tokens of the order min-p, top-k and top-p keep: what f32 may make of it. The bounds are
// equal wherever no decision lies within the rounding errors that the logits themselves imply.
struct KeptRange {
  size_t least = 0, most = 0;
};
KeptRange OracleKept(std::span<const double> logits, std::span<const uint32_t> order,
                     const SampleRow& row);

}  // namespace reprise::testing

#endif  // REPRISE_TESTS_TESTING_SAMPLE_ORACLE_H_
