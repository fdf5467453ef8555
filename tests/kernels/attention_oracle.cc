// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/attention_oracle.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>

namespace reprise::testing {

using kernels::AttentionCase;
using runtime::DType;

namespace {

std::vector<double> Times(std::vector<double> x, double factor) {
  for (double& value : x) value *= factor;
  return x;
}

// The elements of all tokens of one head among `heads`.
std::vector<double> HeadOf(const std::vector<double>& all, size_t heads, size_t head, size_t dim,
                           size_t num_tokens) {
  std::vector<double> out;
  for (size_t t = 0; t < num_tokens; ++t) {
    const auto begin = all.begin() + static_cast<ptrdiff_t>((t * heads + head) * dim);
    out.insert(out.end(), begin, begin + static_cast<ptrdiff_t>(dim));
  }
  return out;
}

}  // namespace

std::vector<float> SlopesOf(const AttentionCase& c) {
  std::vector<float> slopes;
  for (int h = 0; h < c.num_heads; ++h)
    slopes.push_back(static_cast<float>(std::exp2(-8.0 * (h + 1) / c.num_heads)));
  slopes[static_cast<size_t>(c.head_dim) % slopes.size()] *= -0.25f;
  return slopes;
}

std::vector<float> SinksOf(const AttentionCase& c) {
  constexpr float kSinks[] = {0.7f, -0.4f, 3.5f, 25.0f, 2.0f, -20.0f, 900.0f, -900.0f, 6.0f};
  std::vector<float> sinks;
  for (int h = 0; h < c.num_heads; ++h)
    sinks.push_back(kSinks[static_cast<size_t>(h + c.head_dim / 16) % std::size(kSinks)]);
  return sinks;
}

std::vector<float> ScalesOf(const AttentionCase& c, DType kv_dtype, int part) {
  constexpr float kScales[] = {0.83f, 0.061f, 1.37f, 0.0029f, 1.0f, 2.6f};
  std::vector<float> scales(static_cast<size_t>(c.num_kv_heads), 1.0f);
  if (!runtime::IsFp8(kv_dtype)) return scales;
  for (size_t h = 0; h < scales.size(); ++h)
    scales[h] = kScales[(h + static_cast<size_t>(c.head_dim + 3 * part)) % std::size(kScales)];
  return scales;
}

Expected OracleRow(const AttentionCase& c, const RowData& row, DType kv_dtype,
                   DType probabilities) {
  const size_t dim = static_cast<size_t>(c.head_dim);
  const size_t heads = static_cast<size_t>(c.num_heads);
  const size_t kv_heads = static_cast<size_t>(c.num_kv_heads);
  const std::vector<float> slopes = SlopesOf(c), sinks = SinksOf(c);
  const std::vector<float> k_scales = ScalesOf(c, kv_dtype, kernels::kKeys);
  const std::vector<float> v_scales = ScalesOf(c, kv_dtype, kernels::kValues);
  std::vector<std::vector<double>> k, v;
  for (size_t h = 0; h < kv_heads; ++h) {
    k.push_back(Times(HeadOf(row.k, kv_heads, h, dim, row.length()), k_scales[h]));
    v.push_back(Times(HeadOf(row.v, kv_heads, h, dim, row.length()), v_scales[h]));
  }
  Expected expected;
  for (size_t t = 0; t < row.num_tokens; ++t) {
    const size_t length = row.context_before + t + 1;
    const size_t visible = c.window == 0 ? length : std::min<size_t>(length, c.window);
    for (size_t h = 0; h < heads; ++h) {
      const size_t kv = h / (heads / kv_heads);
      OracleScores scores{.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(dim))),
                          .softcap = c.softcap,
                          .slope = c.alibi ? slopes[h] : 0.0};
      if (c.sinks) scores.sink = sinks[h];
      OracleAttentionHead(std::span(row.q).subspan((t * heads + h) * dim, dim),
                          std::span(k[kv]).first(length * dim).last(visible * dim),
                          std::span(v[kv]).first(length * dim).last(visible * dim), scores,
                          probabilities, expected);
    }
  }
  return expected;
}

}  // namespace reprise::testing
