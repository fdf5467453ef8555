// SPDX-License-Identifier: Apache-2.0
// What every op must compute: plain loops in double, from the contracts in kernels/*/*.h. Shares no
// code with any kernel.
//
// A result comes with its slack: how far f32 arithmetic in any order may lie from it before the
// last rounding. eps below is 2^-24, half the spacing of f32 just above 1, so one f32 operation is
// off by at most eps relative; tensor cores truncate instead of rounding, which doubles it. Slacks
// are worst cases, linear in the number of operations.
#ifndef REPRISE_TESTS_TESTING_ORACLE_H_
#define REPRISE_TESTS_TESTING_ORACLE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/dtype.h"

namespace reprise::testing {

struct Expected {
  std::vector<double> value;
  std::vector<double> slack;
  void Add(double v, double s) {
    value.push_back(v);
    slack.push_back(s);
  }
};

// Row-major matrices throughout. Inputs are exact values of their storage format.

// table[id[t], h] * multiplier.
Expected OracleEmbedding(std::span<const double> table, size_t hidden, std::span<const uint32_t> id,
                         double multiplier);
// (cos, sin) of f32(position * inverse_frequency), as the contract rounds it, times multiplier
// where the frequency is not 0.
Expected OracleRopeTable(std::span<const uint32_t> position,
                         std::span<const double> inverse_frequency, double multiplier);

// residual + branch_scale * branch, not rounded.
Expected OracleResidual(std::span<const double> residual, std::span<const double> branch,
                        double branch_scale);
// x * weight / sqrt(mean(x^2) + eps) over rows of weight.size().
Expected OracleRmsNorm(std::span<const double> x, std::span<const double> weight, double eps);

// One head of q or k, rotated: cos_sin holds a pair for each element of the first half.
Expected OracleRope(std::span<const double> head, std::span<const double> cos_sin);
// The same of a head that comes with slack of its own.
Expected OracleRope(const Expected& head, std::span<const double> cos_sin);

// silu(gate) * up over rows of 2 * intermediate.
Expected OracleSiluMul(std::span<const double> gate_up, size_t intermediate);
// The same with gelu, gate / 2 * (1 + tanh(sqrt(2 / pi) * (gate + 0.044715 * gate^3))).
Expected OracleGeluMul(std::span<const double> gate_up, size_t intermediate);

// g / (1 + exp(-slope * g)) * (u + 1), g = min(gate, limit), u = up within -limit and limit.
Expected OracleLimitedMul(std::span<const double> gate_up, size_t intermediate, double limit,
                          double slope);

// A causal convolution of one channel and SiLU: silu(bias + sum over k of weight[k] * x[t - width +
// 1 + k]) for every t from `first` on; x is all that the channel has had, 0 before.
Expected OracleMambaConv(std::span<const double> x, std::span<const double> weight, double bias,
                         size_t first);
// One head of a state space model of Mamba-2, token by token: what of it is the head's own.
struct OracleMambaHead {
  double a_log, d, dt_bias, min_dt, max_dt;
};
// Starts from `state` [head_dim, state_size], which it leaves behind the last token, with its
// slack. x: [tokens, head_dim]; b, c: [tokens, state_size]; dt: [tokens].
Expected OracleMambaScan(const OracleMambaHead& head, std::span<const double> x,
                         std::span<const double> b, std::span<const double> c,
                         std::span<const double> dt, Expected* state);
// weight * g / sqrt(mean(g^2) + eps) over rows of weight.size(), g = y * silu(gate).
Expected OracleMambaNorm(std::span<const double> y, std::span<const double> gate,
                         std::span<const double> weight, double eps);

// cap * tanh(x / cap).
Expected OracleSoftcap(std::span<const double> x, double cap);

// One output: scale * dot(x, w) + bias.
void OracleLinearOutput(std::span<const double> x, std::span<const double> w, double scale,
                        double bias, Expected& out);
// scale * x * weight^T + bias; bias may be empty.
Expected OracleLinear(std::span<const double> x, std::span<const double> weight,
                      std::span<const double> bias, size_t in_features, double scale);

// The experts of one token, most likely first, and what counts of each: of a softmax over the
// chosen, or over all. No two logits may be equal.
struct OracleRoute {
  std::vector<uint32_t> expert;
  Expected share;
};
OracleRoute OracleExperts(std::span<const double> logits, size_t top_k, bool normalised);

// What scores are made of, in this order: scale * q . k; under a cap c * tanh(s / c); a slope times
// how far the key lies behind the query (at most 0); and a sink, one more score that has no value.
struct OracleScores {
  double scale = 1.0;
  double softcap = 0.0;  // 0: none
  double slope = 0.0;
  std::optional<double> sink = std::nullopt;
};

// One query head over n = keys.size() / q.size() KV tokens, of which the last is the query's own:
// softmax(scores) V. probabilities: the format to which a kernel rounds probabilities before the
// second product; f32 where it does not.
void OracleAttentionHead(std::span<const double> q, std::span<const double> keys,
                         std::span<const double> values, const OracleScores& scores,
                         runtime::DType probabilities, Expected& out);

// Lowest id of the largest logit.
uint32_t OracleGreedy(std::span<const double> logits);
// log softmax(logits)[token].
double OracleLogprob(std::span<const double> logits, uint32_t token);
// Cumulative softmax(logits / temperature): element i is the mass of ids 0 .. i.
std::vector<double> OracleCumulative(std::span<const double> logits, double temperature);

// Philox4x32-10 of Salmon et al. 2011: one block of a counter of four words under a key of two.
std::array<uint32_t, 4> OraclePhilox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);
// The uniform number in (0, 1) that sampling and the fills make of a word.
double OracleUniform(uint32_t word);

}  // namespace reprise::testing

#endif  // REPRISE_TESTS_TESTING_ORACLE_H_
