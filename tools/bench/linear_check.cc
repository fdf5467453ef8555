// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/linear_check.h"

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

std::vector<int64_t> Choose(int64_t count, int more, std::mt19937_64* engine) {
  std::set<int64_t> chosen = {0, count - 1};
  for (int i = 0; i < more; ++i)
    chosen.insert(static_cast<int64_t>((*engine)() % static_cast<uint64_t>(count)));
  return {chosen.begin(), chosen.end()};
}

// Rows [index, :] of a row-major matrix, one after the other.
absl::StatusOr<std::vector<double>> ReadRows(runtime::Stream& stream, runtime::DType dtype,
                                             const void* base, const std::vector<int64_t>& rows,
                                             int64_t columns) {
  DeviceReader reader(stream, dtype);
  for (const int64_t row : rows) reader.Add(base, row * columns, static_cast<size_t>(columns));
  return reader.Read();
}

// The weights of such outputs, whichever way they lie.
absl::StatusOr<std::vector<double>> ReadWeights(runtime::Stream& stream,
                                                const LinearCheckCall& call,
                                                const std::vector<int64_t>& features) {
  const kernels::LinearWeights& weights = call.weights;
  if (weights.layout == kernels::WeightLayout::kRowMajor)
    return ReadRows(stream, call.dtype, weights.data, features, weights.in_features);
  const kernels::PackedLayout packed{weights.out_features, weights.in_features};
  DeviceReader reader(stream, call.dtype);
  for (const int64_t feature : features)
    for (int64_t k = 0; k < weights.in_features; k += kernels::kPackedChunk)
      reader.Add(weights.data, packed.Offset(feature, k), kernels::kPackedChunk);
  return reader.Read();
}

absl::StatusOr<std::vector<double>> ReadBias(runtime::Stream& stream, const LinearCheckCall& call,
                                             const std::vector<int64_t>& features) {
  if (call.weights.bias == nullptr) return std::vector<double>(features.size(), 0.0);
  DeviceReader reader(stream, call.dtype);
  for (const int64_t feature : features) reader.Add(call.weights.bias, feature, 1);
  return reader.Read();
}

struct Worst {
  double error = -1;
  int64_t row = 0, feature = 0;
  double got = 0, want = 0;
};

}  // namespace

double OutputRounding(runtime::DType dtype) {
  switch (dtype) {
    case runtime::DType::kF32:
      return 0x1p-23;
    case runtime::DType::kF16:
      return 0x1p-10;
    case runtime::DType::kBf16:
    case runtime::DType::kE4m3:
    case runtime::DType::kE5m2:
      break;  // of 8 bits there are no outputs
  }
  return 0x1p-7;
}

double SumRounding(runtime::DType dtype) {
  return dtype == runtime::DType::kF32 ? 0x1p-15 : 0x1p-12;
}

absl::StatusOr<LinearCheckOutcome> CheckLinear(runtime::Stream& stream, const LinearCheckCall& call,
                                               uint64_t seed) {
  std::mt19937_64 engine(seed);
  const std::vector<int64_t> rows = Choose(call.rows, 4, &engine);
  const std::vector<int64_t> features = Choose(call.weights.out_features, 30, &engine);
  const int64_t k_size = call.weights.in_features;
  REPRISE_ASSIGN_OR_RETURN(const auto x, ReadRows(stream, call.dtype, call.args.x, rows, k_size));
  REPRISE_ASSIGN_OR_RETURN(const auto w, ReadWeights(stream, call, features));
  REPRISE_ASSIGN_OR_RETURN(const auto bias, ReadBias(stream, call, features));
  const runtime::DType out_dtype = call.args.out_is_f32 != 0 ? runtime::DType::kF32 : call.dtype;
  REPRISE_ASSIGN_OR_RETURN(
      const auto out, ReadRows(stream, out_dtype, call.args.out, rows, call.weights.out_features));
  const auto k_count = static_cast<size_t>(k_size);
  Worst worst;
  for (size_t r = 0; r < rows.size(); ++r) {
    for (size_t n = 0; n < features.size(); ++n) {
      double sum = 0, squares = 0;
      for (size_t k = 0; k < k_count; ++k) {
        const double product = call.args.scale * x[r * k_count + k] * w[n * k_count + k];
        sum += product;
        squares += product * product;
      }
      const double want = sum + bias[n];
      const auto feature = static_cast<size_t>(features[n]);
      const double got = out[r * static_cast<size_t>(call.weights.out_features) + feature];
      const double allowed = OutputRounding(out_dtype) * std::fabs(want) +
                             SumRounding(call.dtype) * std::sqrt(squares);
      const double error = std::fabs(got - want) / allowed;
      // A NaN is worse than any number.
      if (error <= worst.error) continue;
      worst = {std::isnan(error) ? INFINITY : error, rows[r], features[n], got, want};
    }
  }
  const LinearCheckOutcome outcome{
      .num_outputs = static_cast<uint32_t>(rows.size() * features.size()), .worst = worst.error};
  if (outcome.worst <= 1) return outcome;
  return absl::InternalError(
      absl::StrCat("check: \"", std::string(call.candidate), "\" of ", std::string(call.shape),
                   " with ", call.rows, call.rows == 1 ? " row" : " rows", ", row ", worst.row,
                   ", feature ", worst.feature, ": got ", worst.got, ", want ", worst.want,
                   ", off by ", worst.error, " times what is allowed"));
}

}  // namespace reprise::tools
