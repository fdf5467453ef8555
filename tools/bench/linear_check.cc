// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/linear_check.h"

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/packed_layout.h"
#include "kernels/weight_format.h"
#include "runtime/float_convert.h"
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

// The weights of one output that have scales, on the host: its row, or the row of tiles that it
// shares with fifteen others.
class ScaledOutput {
 public:
  ScaledOutput(const kernels::LinearWeights& weights, int64_t output)
      : weights_(weights),
        packed_(kernels::IsPacked(weights.layout)),
        layout_{packed_ ? kernels::kPackedTileOutputs : 1, weights.in_features, weights.group_size},
        begin_(output / layout_.out_features),
        output_(output % layout_.out_features) {}

  absl::Status Read(runtime::Stream& stream) {
    const int64_t row = int4() ? layout_.Int4RowElements() : layout_.in_features;
    const int64_t elements = packed_ ? layout_.Elements() : row;
    bytes_.resize(static_cast<size_t>(int4() ? elements / 2 : elements));
    scales_.resize(static_cast<size_t>(layout_.out_features * layout_.ScaleGroups()));
    absl::Status status = stream.CopyToHost(
        bytes_.data(), static_cast<const uint8_t*>(weights_.data) + Begin(bytes_), bytes_.size());
    if (status.ok())
      status = stream.CopyToHost(scales_.data(), weights_.scales + Begin(scales_),
                                 scales_.size() * sizeof(float));
    status.Update(stream.Synchronize());
    return status;
  }

  double Weight(int64_t k) const {
    const int64_t group = k / layout_.scale_inputs;
    const auto at =
        static_cast<size_t>(packed_ ? layout_.PackedScaleOffset(output_, group) : group);
    if (!int4()) return double{runtime::E4m3ToFloat(E4m3(k))} * scales_[at];
    const auto word = std::bit_cast<uint32_t>(scales_[at]);
    return (static_cast<double>(Int4(k)) - kernels::ZeroPointOfWord(word)) *
           kernels::ScaleOfWord(word);
  }

 private:
  bool int4() const { return weights_.format == kernels::WeightFormat::kInt4; }
  // Where the output's part begins among parts of such a size.
  template <typename T>
  int64_t Begin(const std::vector<T>& part) const {
    return begin_ * static_cast<int64_t>(part.size());
  }
  uint8_t E4m3(int64_t k) const {
    if (!packed_) return bytes_[static_cast<size_t>(k)];
    const int64_t at = layout_.ByteOffset(output_, k);
    uint32_t word = 0;
    std::memcpy(&word, &bytes_[static_cast<size_t>(at / 4 * 4)], sizeof(word));
    return kernels::UnpackE4m3(word, static_cast<int>(at % 4));
  }
  int Int4(int64_t k) const {
    const int64_t at = packed_ ? layout_.Int4Offset(output_, k) : layout_.Int4RowOffset(0, k);
    return bytes_[static_cast<size_t>(at / 2)] >> at % 2 * 4 & 0xf;
  }

  const kernels::LinearWeights& weights_;
  const bool packed_;
  const kernels::PackedLayout layout_;  // of the part that is read
  const int64_t begin_, output_;        // which part; which output of it
  std::vector<uint8_t> bytes_;
  std::vector<float> scales_;
};

absl::StatusOr<std::vector<double>> ReadScaledWeights(runtime::Stream& stream,
                                                      const kernels::LinearWeights& weights,
                                                      const std::vector<int64_t>& features) {
  std::vector<double> values;
  for (const int64_t feature : features) {
    ScaledOutput output(weights, feature);
    REPRISE_RETURN_IF_ERROR(output.Read(stream));
    for (int64_t k = 0; k < weights.in_features; ++k) values.push_back(output.Weight(k));
  }
  return values;
}

// The weights of such outputs, whichever way they lie and are stored.
absl::StatusOr<std::vector<double>> ReadWeights(runtime::Stream& stream,
                                                const LinearCheckCall& call,
                                                const std::vector<int64_t>& features) {
  const kernels::LinearWeights& weights = call.weights;
  if (kernels::IsScaled(weights.format)) return ReadScaledWeights(stream, weights, features);
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
