// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/oracle.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "tests/testing/number.h"

namespace reprise::testing {
namespace {

using runtime::DType;

constexpr double kEps = 0x1p-24;
// Relative error of exp(x) in f32: the argument's rounding is not in here. A GPU's fast exponential
// is off by up to 2 + 1.17 |x| units in the last place (CUDA C++ Programming Guide, intrinsic
// functions), a library's by less than 1.
double ExpEps(double x) { return 2.0 * kEps * (2.0 + 1.2 * std::fabs(x)); }

}  // namespace

Expected OracleEmbedding(std::span<const double> table, size_t hidden, std::span<const uint32_t> id,
                         double multiplier) {
  Expected out;
  for (const uint32_t row : id) {
    for (size_t h = 0; h < hidden; ++h) {
      const double y = table[row * hidden + h] * multiplier;
      out.Add(y, std::fabs(y) * kEps);
    }
  }
  return out;
}

Expected OracleRopeTable(std::span<const uint32_t> position,
                         std::span<const double> inverse_frequency, double multiplier) {
  Expected out;
  for (const uint32_t p : position) {
    for (const double f : inverse_frequency) {
      const double angle = RoundTo(DType::kF32, static_cast<double>(p) * f);
      // Libraries promise 2 units in the last place, and no value exceeds 1; the product rounds
      // too.
      const double factor = f == 0.0 ? 1.0 : multiplier;
      const double slack = 6 * kEps * std::fabs(factor);
      out.Add(std::cos(angle) * factor, slack);
      out.Add(std::sin(angle) * factor, slack);
    }
  }
  return out;
}

Expected OracleResidual(std::span<const double> residual, std::span<const double> branch,
                        double branch_scale) {
  Expected out;
  for (size_t i = 0; i < residual.size(); ++i) {
    const double added = branch_scale * branch[i];
    out.Add(residual[i] + added, 2 * kEps * (std::fabs(residual[i]) + std::fabs(added)));
  }
  return out;
}

Expected OracleRmsNorm(std::span<const double> x, std::span<const double> weight, double eps) {
  Expected out;
  const size_t hidden = weight.size();
  // Squares are positive, so a sum of n is off by at most n eps; every device keeps at least 16
  // partial sums. The root halves that.
  const double relative = (static_cast<double>(hidden) / 32 + 32) * kEps;
  for (size_t row = 0; row < x.size(); row += hidden) {
    double squares = 0.0;
    for (size_t h = 0; h < hidden; ++h) squares += x[row + h] * x[row + h];
    const double scale = 1.0 / std::sqrt(squares / static_cast<double>(hidden) + eps);
    for (size_t h = 0; h < hidden; ++h) {
      const double y = x[row + h] * scale * weight[h];
      out.Add(y, std::fabs(y) * relative);
    }
  }
  return out;
}

Expected OracleRope(std::span<const double> head, std::span<const double> cos_sin) {
  const size_t half = head.size() / 2;
  Expected out;
  for (size_t i = 0; i < head.size(); ++i) {
    const size_t pair = i % half;
    const double c = cos_sin[2 * pair], s = cos_sin[2 * pair + 1];
    const double own = head[i] * c, other = head[(i + half) % head.size()] * s;
    out.Add(i < half ? own - other : own + other, 2 * kEps * (std::fabs(own) + std::fabs(other)));
  }
  return out;
}

Expected OracleRope(const Expected& head, std::span<const double> cos_sin) {
  Expected out = OracleRope(std::span(head.value), cos_sin);
  const size_t size = head.value.size(), half = size / 2;
  for (size_t i = 0; i < size; ++i) {
    const size_t pair = i % half;
    out.slack[i] += std::fabs(cos_sin[2 * pair]) * head.slack[i] +
                    std::fabs(cos_sin[2 * pair + 1]) * head.slack[(i + half) % size];
  }
  return out;
}

Expected OracleSiluMul(std::span<const double> gate_up, size_t intermediate) {
  Expected out;
  for (size_t row = 0; row < gate_up.size(); row += 2 * intermediate) {
    for (size_t i = 0; i < intermediate; ++i) {
      const double gate = gate_up[row + i], up = gate_up[row + intermediate + i];
      const double y = gate / (1.0 + std::exp(-gate)) * up;
      // Where exp(-gate) leaves the range of f32, the result may be zero instead of almost zero.
      out.Add(y, std::fabs(y) * (ExpEps(gate) + 8 * kEps) + 1e-36 * std::fabs(up));
    }
  }
  return out;
}

Expected OracleGeluMul(std::span<const double> gate_up, size_t intermediate) {
  Expected out;
  for (size_t row = 0; row < gate_up.size(); row += 2 * intermediate) {
    for (size_t i = 0; i < intermediate; ++i) {
      const double gate = gate_up[row + i], up = gate_up[row + intermediate + i];
      const double u = std::sqrt(2.0 / std::numbers::pi) * (gate + 0.044715 * gate * gate * gate);
      // As gate / (1 + exp(-2 u)), which stays exact where the tanh comes near -1.
      const double y = gate / (1.0 + std::exp(-2.0 * u)) * up;
      // What six roundings of 2 u move the exponential by, beside its own error.
      const double relative = ExpEps(2.0 * u) + 6 * kEps * std::fabs(2.0 * u) + 8 * kEps;
      out.Add(y, std::fabs(y) * relative + 1e-36 * std::fabs(up));
    }
  }
  return out;
}

Expected OracleLimitedMul(std::span<const double> gate_up, size_t intermediate, double limit,
                          double slope) {
  Expected out;
  for (size_t row = 0; row < gate_up.size(); row += 2 * intermediate) {
    for (size_t i = 0; i < intermediate; ++i) {
      const double gate = std::min(gate_up[row + i], limit);
      const double up = std::clamp(gate_up[row + intermediate + i], -limit, limit);
      const double x = slope * gate, silu = gate / (1.0 + std::exp(-x)), y = silu * (up + 1.0);
      // The product in the exponent is rounded, and so is the sum, to units of the larger of both.
      const double relative = ExpEps(x) + 2 * kEps * std::fabs(x) + 6 * kEps;
      out.Add(y, std::fabs(y) * relative + std::fabs(silu) * 2 * kEps * (1.0 + std::fabs(up)) +
                     1e-36 * std::fabs(up + 1.0));
    }
  }
  return out;
}

Expected OracleSoftcap(std::span<const double> x, double cap) {
  Expected out;
  for (const double value : x) {
    const double y = cap * std::tanh(value / cap);
    // The quotient is off by one rounding, the tanh by four units in the last place.
    out.Add(y, 12 * kEps * std::fabs(y));
  }
  return out;
}

OracleRoute OracleExperts(std::span<const double> logits, size_t top_k, bool normalised) {
  OracleRoute route;
  for (uint32_t e = 0; e < logits.size(); ++e) route.expert.push_back(e);
  std::sort(route.expert.begin(), route.expert.end(),
            [&](uint32_t a, uint32_t b) { return logits[a] > logits[b]; });
  const double most = logits[route.expert.front()];
  double sum = 0.0, sum_slack = 0.0;
  for (size_t rank = 0; rank < (normalised ? top_k : logits.size()); ++rank) {
    const double x = logits[route.expert[rank]] - most;
    sum += std::exp(x);
    sum_slack += std::exp(x) * (ExpEps(x) + 2 * kEps * (std::fabs(most) + std::fabs(x)));
  }
  route.expert.resize(top_k);
  for (const uint32_t e : route.expert) {
    const double x = logits[e] - most, share = std::exp(x) / sum;
    const double relative = ExpEps(x) + 2 * kEps * (std::fabs(most) + std::fabs(x)) +
                            sum_slack / sum + kEps * static_cast<double>(2 * logits.size() + 8);
    route.share.Add(share, share * relative);
  }
  return route;
}

void OracleLinearOutput(std::span<const double> x, std::span<const double> w, double scale,
                        double bias, Expected& out) {
  double dot = 0.0, magnitude = 0.0;
  for (size_t k = 0; k < w.size(); ++k) {
    const double product = x[k] * w[k];
    dot += product;
    magnitude += std::fabs(product);
  }
  const double terms = static_cast<double>(w.size()) + 4;
  out.Add(scale * dot + bias, 2 * kEps * (terms * std::fabs(scale) * magnitude + std::fabs(bias)));
}

Expected OracleLinear(std::span<const double> x, std::span<const double> weight,
                      std::span<const double> bias, size_t in_features, double scale) {
  Expected out;
  for (size_t r = 0; r < x.size(); r += in_features) {
    for (size_t n = 0; n * in_features < weight.size(); ++n) {
      OracleLinearOutput(x.subspan(r, in_features), weight.subspan(n * in_features, in_features),
                         scale, bias.empty() ? 0.0 : bias[n], out);
    }
  }
  return out;
}

namespace {

// A score and how far a kernel's may lie from it.
struct OracleScore {
  double value, slack;
};
// behind: how many tokens the key lies behind the query.
OracleScore ScoreOf(std::span<const double> q, std::span<const double> key, double behind,
                    const OracleScores& scores) {
  double dot = 0.0, magnitude = 0.0;
  for (size_t d = 0; d < q.size(); ++d) {
    dot += q[d] * key[d];
    magnitude += std::fabs(q[d] * key[d]);
  }
  OracleScore s{scores.scale * dot, 2 * kEps * (static_cast<double>(q.size()) + 4) *
                                        std::fabs(scores.scale) * magnitude};
  if (scores.softcap != 0.0) {
    // The slope of tanh is at most 1. Its own error is 4 units in the last place, and there are
    // products around it.
    s.value = scores.softcap * std::tanh(s.value / scores.softcap);
    s.slack += 16 * kEps * std::fabs(s.value);
  }
  const double bias = -scores.slope * behind;
  if (bias != 0.0) {
    s.value += bias;
    s.slack += 4 * kEps * (std::fabs(bias) + std::fabs(s.value));
  }
  return s;
}

}  // namespace

void OracleAttentionHead(std::span<const double> q, std::span<const double> keys,
                         std::span<const double> values, const OracleScores& scores,
                         DType probabilities, Expected& out) {
  const size_t dim = q.size(), n = keys.size() / dim;
  // A probability that a kernel rounds is off by a part of itself, or where that is less by half
  // the least number of its format; it is relative to the largest score then.
  const bool rounds = probabilities != DType::kF32;
  const double rounding = rounds ? HalfUlp(probabilities, 1.0) : 0.0;
  const double least = rounds ? HalfUlp(probabilities, 0.0) : 0.0;
  std::vector<double> weight(n), weight_eps(n);
  double top = -INFINITY;
  for (size_t p = 0; p < n; ++p) {
    const OracleScore s =
        ScoreOf(q, keys.subspan(p * dim, dim), static_cast<double>(n - 1 - p), scores);
    weight[p] = s.value;
    weight_eps[p] = s.slack;
    top = std::max(top, s.value);
  }
  const double base = std::max(top, scores.sink.value_or(top));
  // A score that is off shifts its weight by as much; a weight is one exponential times another
  // where partial results are merged.
  const auto exponential_eps = [](double x) { return 2 * ExpEps(x) + 2 * kEps * std::fabs(x); };
  double sum = 0.0, sink = 0.0, sink_eps = 0.0;
  for (size_t p = 0; p < n; ++p) {
    const double x = weight[p] - base;
    weight_eps[p] += exponential_eps(x) + rounding;
    sum += weight[p] = std::exp(x);
  }
  if (scores.sink) {
    const double x = *scores.sink - base;
    sink_eps = exponential_eps(x) + 2 * kEps * (std::fabs(*scores.sink) + std::fabs(base));
    sum += sink = std::exp(x);
  }
  // n products and sums, above and below, and the merging.
  double sum_eps = 4 * kEps * (static_cast<double>(n) + 64) + sink / sum * sink_eps;
  for (size_t p = 0; p < n; ++p) sum_eps += (weight[p] /= sum) * weight_eps[p];
  const double least_weight = least * std::exp(top - base) / sum;
  for (size_t d = 0; d < dim; ++d) {
    double value = 0.0, slack = 0.0;
    for (size_t p = 0; p < n; ++p) {
      const double term = weight[p] * values[p * dim + d];
      value += term;
      slack += std::fabs(term) * (weight_eps[p] + sum_eps) +
               std::fabs(values[p * dim + d]) * least_weight;
    }
    out.Add(value, slack);
  }
}

Expected OracleMambaConv(std::span<const double> x, std::span<const double> weight, double bias,
                         size_t first) {
  Expected out;
  for (size_t t = first; t < x.size(); ++t) {
    double sum = bias, magnitude = std::fabs(bias);
    for (size_t k = 0; k < weight.size() && k <= t; ++k) {
      const double term = weight[weight.size() - 1 - k] * x[t - k];
      sum += term;
      magnitude += std::fabs(term);
    }
    const double y = sum / (1.0 + std::exp(-sum));
    // SiLU is nowhere steeper than 1.1.
    out.Add(y, 1.1 * magnitude * static_cast<double>(weight.size() + 2) * kEps +
                   std::fabs(y) * (ExpEps(sum) + 8 * kEps) + 1e-36);
  }
  return out;
}

Expected OracleMambaScan(const OracleMambaHead& head, std::span<const double> x,
                         std::span<const double> b, std::span<const double> c,
                         std::span<const double> dt, Expected* state) {
  Expected out;
  const size_t tokens = dt.size(), head_dim = x.size() / tokens, size = b.size() / tokens;
  const double a = -std::exp(head.a_log);
  for (size_t t = 0; t < tokens; ++t) {
    const double raw = dt[t] + head.dt_bias;
    const double e = std::exp(raw);
    const double soft = raw > 30.0 ? raw : std::log1p(e);
    const double step = std::clamp(soft, head.min_dt, head.max_dt);
    // Of the sum, of the exponential, of the logarithm and what puts it right.
    const double slope = 1.0 / (1.0 + std::exp(-raw));
    const double step_slack = 2 * kEps * (std::fabs(dt[t]) + std::fabs(head.dt_bias)) +
                              slope * ExpEps(raw) + 12 * kEps * soft;
    const double decay = std::exp(a * step);
    const double decay_slack =
        decay * (std::fabs(a) * step_slack + std::fabs(a * step) * (ExpEps(head.a_log) + 2 * kEps) +
                 ExpEps(a * step));
    for (size_t p = 0; p < head_dim; ++p) {
      const double in = x[t * head_dim + p];
      double sum = 0.0, magnitude = 0.0, slack = 0.0;
      for (size_t n = 0; n < size; ++n) {
        double& s = state->value[p * size + n];
        double& s_slack = state->slack[p * size + n];
        const double kept = s * decay, added = step * in * b[t * size + n];
        s_slack = s_slack * decay + std::fabs(s) * decay_slack +
                  std::fabs(in * b[t * size + n]) * step_slack +
                  4 * kEps * (std::fabs(kept) + std::fabs(added));
        s = kept + added;
        const double term = s * c[t * size + n];
        sum += term;
        magnitude += std::fabs(term);
        slack += std::fabs(c[t * size + n]) * s_slack;
      }
      const double skip = head.d * in;
      const double terms = static_cast<double>(size + 12);
      out.Add(sum + skip, slack + terms * kEps * (magnitude + std::fabs(skip)));
    }
  }
  return out;
}

Expected OracleMambaNorm(std::span<const double> y, std::span<const double> gate,
                         std::span<const double> weight, double eps) {
  Expected out;
  const size_t size = weight.size();
  for (size_t row = 0; row < y.size(); row += size) {
    std::vector<double> gated(size);
    double squares = 0.0, worst = 0.0;
    for (size_t i = 0; i < size; ++i) {
      const double z = gate[row + i];
      gated[i] = y[row + i] * z / (1.0 + std::exp(-z));
      squares += gated[i] * gated[i];
      worst = std::max(worst, ExpEps(z) + 8 * kEps);
    }
    const double scale = 1.0 / std::sqrt(squares / static_cast<double>(size) + eps);
    const double relative = (static_cast<double>(size) / 32 + 32) * kEps + 2 * worst;
    for (size_t i = 0; i < size; ++i) {
      const double value = gated[i] * scale * weight[i];
      out.Add(value, std::fabs(value) * relative + 1e-36);
    }
  }
  return out;
}

uint32_t OracleGreedy(std::span<const double> logits) {
  return static_cast<uint32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

double OracleLogprob(std::span<const double> logits, uint32_t token) {
  const double top = *std::max_element(logits.begin(), logits.end());
  double sum = 0.0;
  for (const double l : logits) sum += std::exp(l - top);
  return logits[token] - top - std::log(sum);
}

std::vector<double> OracleCumulative(std::span<const double> logits, double temperature) {
  const double top = *std::max_element(logits.begin(), logits.end());
  std::vector<double> cumulative(logits.size());
  double sum = 0.0;
  for (size_t i = 0; i < logits.size(); ++i)
    cumulative[i] = sum += std::exp((logits[i] - top) / temperature);
  for (double& c : cumulative) c /= sum;
  return cumulative;
}

std::array<uint32_t, 4> OraclePhilox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  constexpr std::array<uint64_t, 2> kMultiplier = {0xD2511F53u, 0xCD9E8D57u};
  constexpr std::array<uint32_t, 2> kWeyl = {0x9E3779B9u, 0xBB67AE85u};
  for (uint32_t round = 0; round < 10; ++round) {
    const uint64_t first = kMultiplier[0] * counter[0], second = kMultiplier[1] * counter[2];
    counter = {static_cast<uint32_t>(second >> 32) ^ counter[1] ^ (key[0] + round * kWeyl[0]),
               static_cast<uint32_t>(second),
               static_cast<uint32_t>(first >> 32) ^ counter[3] ^ (key[1] + round * kWeyl[1]),
               static_cast<uint32_t>(first)};
  }
  return counter;
}

double OracleUniform(uint32_t word) { return (static_cast<double>(word >> 9) + 0.5) * 0x1p-23; }

}  // namespace reprise::testing
