// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/reference_check.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"
#include "tools/bench/device_reader.h"

namespace reprise::tools {
namespace {

using runtime::DType;

// One output head, and what it is computed from.
struct Sample {
  size_t row = 0;      // of the cell
  uint32_t token = 0;  // query token within the row
  uint32_t first = 0;  // of the row's query tokens in the step
  int32_t head = 0;
};

std::vector<Sample> ChooseSamples(const AttentionShape& shape, const BenchCell& cell,
                                  uint64_t seed) {
  std::mt19937_64 engine(seed);
  std::set<size_t> rows = {0, cell.rows.size() - 1};
  rows.insert(static_cast<size_t>(std::max_element(cell.rows.begin(), cell.rows.end(),
                                                   [](const BatchRow& a, const BatchRow& b) {
                                                     return a.length() < b.length();
                                                   }) -
                                  cell.rows.begin()));
  for (int i = 0; i < 4; ++i) rows.insert(engine() % cell.rows.size());
  std::vector<Sample> samples;
  uint32_t first = 0;
  for (size_t r = 0; r < cell.rows.size(); ++r) {
    const uint32_t count = cell.rows[r].query_tokens;
    if (rows.count(r) != 0) {
      for (const uint32_t token :
           std::set<uint32_t>{count - 1, 0, static_cast<uint32_t>(engine() % count)}) {
        for (int i = 0; i < 2; ++i)
          samples.push_back(
              {r, token, first,
               static_cast<int32_t>(engine() % static_cast<uint64_t>(shape.num_heads))});
      }
    }
    first += count;
  }
  return samples;
}

// K or V of one head over all tokens of a row, [blocks * block_size, head_dim].
absl::StatusOr<std::vector<double>> ReadHead(runtime::Stream& stream,
                                             const AttentionBuffers& buffers,
                                             const AttentionShape& shape, const Sample& sample,
                                             kernels::KvPart part) {
  const kernels::KvLayout kv = buffers.Attention(0).kv;
  const int32_t kv_head = sample.head / (shape.num_heads / shape.num_kv_heads);
  DeviceReader reader(stream, kv.dtype);
  for (const uint32_t block : buffers.blocks(sample.row)) {
    reader.Add(buffers.Attention(0).kv_cache, kv.HeadOffset(block, part, kv_head),
               static_cast<size_t>(kv.block_size) * static_cast<size_t>(kv.head_dim));
  }
  REPRISE_ASSIGN_OR_RETURN(const std::vector<double> stored, reader.Read());
  std::vector<double> values;
  const int64_t of_block = int64_t{kv.block_size} * kv.head_dim;
  for (size_t first = 0; first < stored.size(); first += static_cast<size_t>(of_block)) {
    for (int position = 0; position < kv.block_size; ++position) {
      for (int d = 0; d < kv.head_dim; ++d)
        values.push_back(stored[first + static_cast<size_t>(kv.RowOffset(position) +
                                                            kv.DimOffset(position, d))]);
    }
  }
  return values;
}

// softmax(scale * K q) V over positions [begin, end), and the same with |V|.
struct Reference {
  std::vector<double> value, magnitude;  // [head_dim]
};
Reference Attend(const std::vector<double>& q, const std::vector<double>& k,
                 const std::vector<double>& v, uint32_t begin, uint32_t end, double scale) {
  const size_t dim = q.size();
  std::vector<double> weight;
  double top = -INFINITY;
  for (size_t p = begin; p < end; ++p) {
    double score = 0;
    for (size_t d = 0; d < dim; ++d) score += q[d] * k[p * dim + d];
    weight.push_back(scale * score);
    top = std::max(top, weight.back());
  }
  double sum = 0;
  for (double& w : weight) sum += w = std::exp(w - top);
  Reference result{std::vector<double>(dim, 0), std::vector<double>(dim, 0)};
  for (size_t p = begin; p < end; ++p) {
    for (size_t d = 0; d < dim; ++d) {
      result.value[d] += weight[p - begin] / sum * v[p * dim + d];
      result.magnitude[d] += weight[p - begin] / sum * std::fabs(v[p * dim + d]);
    }
  }
  return result;
}

absl::StatusOr<std::vector<double>> ReadToken(runtime::Stream& stream, const AttentionShape& shape,
                                              const void* base, const Sample& sample) {
  DeviceReader reader(stream, shape.dtype);
  const int64_t token = sample.first + sample.token;
  reader.Add(base, (token * shape.num_heads + sample.head) * shape.head_dim,
             static_cast<size_t>(shape.head_dim));
  return reader.Read();
}

// The worst element so far. A NaN is worse than any number.
struct Worst {
  double error = 0;
  Sample sample;
  size_t element = 0;
  double got = 0, want = 0;

  void Add(const Sample& at, const std::vector<double>& result, const Reference& reference) {
    for (size_t d = 0; d < result.size() && !std::isnan(error); ++d) {
      const double off = std::fabs(result[d] - reference.value[d]) / reference.magnitude[d];
      if (off <= error) continue;
      *this = {off, at, d, result[d], reference.value[d]};
    }
  }
};

}  // namespace

double AllowedError(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return 0x1p-12;
    case DType::kBf16:
      return 0x1p-6;
    case DType::kF16:
      return 0x1p-9;
    case DType::kE4m3:
    case DType::kE5m2:
      break;  // of KV alone, never of an output
  }
  return 0;
}

absl::StatusOr<CheckOutcome> CheckAgainstReference(runtime::Stream& stream,
                                                   const AttentionBuffers& buffers,
                                                   const AttentionShape& shape,
                                                   const BenchCell& cell,
                                                   std::string_view candidate, uint64_t seed) {
  const kernels::AttentionArgs args = buffers.Attention(0);
  const std::vector<Sample> samples = ChooseSamples(shape, cell, seed);
  Worst worst;
  for (const Sample& sample : samples) {
    REPRISE_ASSIGN_OR_RETURN(const auto k,
                             ReadHead(stream, buffers, shape, sample, kernels::kKeys));
    REPRISE_ASSIGN_OR_RETURN(const auto v,
                             ReadHead(stream, buffers, shape, sample, kernels::kValues));
    REPRISE_ASSIGN_OR_RETURN(const auto q, ReadToken(stream, shape, args.q, sample));
    REPRISE_ASSIGN_OR_RETURN(const auto got, ReadToken(stream, shape, args.out, sample));
    const uint32_t position = cell.rows[sample.row].history + sample.token;
    const uint32_t begin =
        shape.window == 0 || position < shape.window ? 0 : position - shape.window + 1;
    worst.Add(sample, got, Attend(q, k, v, begin, position + 1, args.scale));
  }
  const CheckOutcome outcome{.num_pairs = static_cast<uint32_t>(samples.size()),
                             .worst = worst.error,
                             .allowed = AllowedError(shape.dtype)};
  if (outcome.worst <= outcome.allowed) return outcome;
  return absl::InternalError(absl::StrCat(
      "check: \"", std::string(candidate), "\" in cell \"", cell.name, "\", row ", worst.sample.row,
      ", query token ", worst.sample.token, ", head ", worst.sample.head, ", element ",
      worst.element, ": got ", worst.got, ", want ", worst.want, ", off by ", worst.error,
      " of the values' mean magnitude; allowed: ", outcome.allowed));
}

}  // namespace reprise::tools
