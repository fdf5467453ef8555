// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/sample_oracle.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace reprise::testing {
namespace {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

}  // namespace

std::vector<double> OracleClean(std::span<const double> logits) {
  std::vector<double> clean(logits.begin(), logits.end());
  for (double& l : clean) {
    if (std::isnan(l)) l = kMinusInfinity;
    l = std::min(l, static_cast<double>(std::numeric_limits<float>::max()));
  }
  return clean;
}

std::vector<double> OracleAdjust(const SampleRow& row, std::vector<double>* slack) {
  std::vector<double> out = OracleClean(row.logits);
  slack->assign(out.size(), 0.0);
  for (uint32_t t = 0; t < out.size(); ++t) {
    double& l = out[t];
    const bool early_stop = row.generated < row.min_tokens &&
                            std::find(row.stop.begin(), row.stop.end(), t) != row.stop.end();
    if ((!row.allowed.empty() && !row.allowed[t]) || early_stop) {
      l = kMinusInfinity;
      continue;
    }
    double largest = std::fabs(l);
    if (const auto bias = row.bias.find(t); bias != row.bias.end()) l += bias->second;
    const auto sampled = row.sampled.find(t);
    const uint32_t count = sampled == row.sampled.end() ? 0 : sampled->second;
    largest = std::max(largest, std::fabs(l));
    if (count > 0 || row.prompt.count(t) > 0) l = l > 0.0 ? l / row.repetition : l * row.repetition;
    largest = std::max(largest, std::fabs(l));
    if (count > 0) l -= row.frequency * count + row.presence;
    largest = std::max(largest,
                       std::fabs(l) + std::fabs(row.frequency) * count + std::fabs(row.presence));
    (*slack)[t] = std::isfinite(l) ? largest * 0x1p-22 : 0.0;
  }
  return out;
}

std::vector<uint32_t> OracleOrder(std::span<const double> logits) {
  std::vector<uint32_t> order;
  for (uint32_t t = 0; t < logits.size(); ++t)
    if (logits[t] > kMinusInfinity) order.push_back(t);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  });
  return order;
}

KeptRange OracleKept(std::span<const double> logits, std::span<const uint32_t> order,
                     const SampleRow& row) {
  if (order.empty()) return {};
  const double temperature = std::max(row.temperature, 1e-6), max = logits[order[0]];
  // An exponent in f32: a difference, a reciprocal and a product, each rounded.
  const auto exponent = [&](size_t j) { return (logits[order[j]] - max) / temperature; };
  const auto exponent_error = [&](size_t j) { return 3 * 0x1p-24 * std::fabs(exponent(j)); };

  KeptRange kept{order.size(), order.size()};
  if (row.min_p > 0.0) {
    const double floor = std::log(row.min_p), floor_error = 0x1p-23 * std::fabs(floor);
    const auto first_beyond = [&](double sign) {
      size_t j = 0;
      while (j < order.size() &&
             exponent(j) + sign * exponent_error(j) >= floor - sign * floor_error)
        ++j;
      return j;
    };
    kept = {first_beyond(-1.0), first_beyond(+1.0)};
    kept.least = std::max<size_t>(kept.least, 1);
  }
  if (row.top_k != 0)
    kept = {std::min<size_t>(kept.least, row.top_k), std::min<size_t>(kept.most, row.top_k)};
  if (row.top_p >= 1.0) return kept;

  // The shortest prefix for either number of tokens that may be left, each with the error that its
  // weights have: of the exponent, of the exponential, of the fixed point.
  const auto prefix = [&](size_t left, double sign) {
    double total = 0.0, error = 0.0;
    std::vector<double> mass(left), errors(left);
    for (size_t j = 0; j < left; ++j) {
      const double w = std::exp(exponent(j));
      total += w;
      error += w * (2 * exponent_error(j) + 0x1p-21) + 0x1p-40;
      mass[j] = total;
      errors[j] = error;
    }
    size_t n = 0;
    while (n + 1 < left &&
           mass[n] - sign * errors[n] < row.top_p * (total + sign * error) - 0x1p-40 * (1 - sign))
      ++n;
    return n + 1;
  };
  return {prefix(kept.least, -1.0), prefix(kept.most, +1.0)};
}

}  // namespace reprise::testing
