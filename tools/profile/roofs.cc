// SPDX-License-Identifier: Apache-2.0
// What kernels have to move and to multiply, and how near they come to the rates that were
// measured.
#include "tools/profile/roofs.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "kernels/weight_format.h"
#include "runtime/dtype.h"
#include "tools/profile/report_parts.h"

namespace reprise::tools {
namespace {

struct MatrixSize {
  double outputs = 0, inputs = 0;
};

// Of a label that names one.
std::optional<MatrixSize> SizeOf(const graphs::ProfiledLaunch& launch) {
  const std::pair<absl::string_view, absl::string_view> size = absl::StrSplit(launch.shape, 'x');
  MatrixSize matrix;
  if (!absl::SimpleAtod(size.first, &matrix.outputs) ||
      !absl::SimpleAtod(size.second, &matrix.inputs))
    return std::nullopt;
  return matrix;
}

bool IsLinear(const OpTime& op) { return op.launch.op.starts_with("linear"); }

// The router and the sum over a token's experts have no matrix.
bool IsExperts(const OpTime& op) { return op.launch.op.starts_with("experts"); }

bool IsAttention(const OpTime& op) { return op.launch.op.starts_with("attention"); }

bool IsOnlyAttention(const OpTime& op, const PointProfile& point) {
  const std::vector<OpTime>& ops = point.kernels.ops();
  return IsAttention(op) && std::count_if(ops.begin(), ops.end(), IsAttention) == 1;
}

// Of a weight of a matrix, with its share of a scale.
double ElementBytes(const graphs::ProfiledLaunch& launch, const ProfileContext& context) {
  const bool fp8 = launch.op.ends_with("_fp8") || launch.op.ends_with("_rounded");
  const bool int4 = launch.op.ends_with("_int4");
  if (launch.op.ends_with("_mxfp4"))
    return kernels::BitsOf(kernels::WeightFormat::kMxfp4) / 8.0 +
           static_cast<double>(sizeof(float)) / kernels::kMxfp4ScaleInputs;
  if (!fp8 && !int4) return static_cast<double>(runtime::SizeOf(context.dtype));
  return kernels::BitsOf(fp8 ? kernels::WeightFormat::kE4m3 : kernels::WeightFormat::kInt4) / 8.0 +
         static_cast<double>(sizeof(float)) / context.scale_inputs;
}

// Rows that go through one call of a linear layer: all tokens of the step, but of logits the last
// one of each row.
double TokensOf(const MatrixSize& matrix, const PointProfile& point,
                const ProfileContext& context) {
  const bool logits = matrix.outputs == static_cast<double>(context.spec.vocab_size) &&
                      matrix.inputs == static_cast<double>(context.spec.hidden_size);
  const StepPoint step = point.point();
  return static_cast<double>(logits ? step.num_rows() : step.num_tokens());
}

// Of KV that a step reads, without what layers carry in its place.
double KvBytes(const PointProfile& point, const ProfileContext& context) {
  const uint64_t state =
      point.point().row_counts().decoding * context.spec.RowStateBytes(context.dtype);
  return static_cast<double>(point.bytes.kv_read - state);
}

}  // namespace

std::optional<OpBytes> BytesOf(const OpTime& op, const PointProfile& point,
                               const ProfileContext& context) {
  const std::optional<MatrixSize> matrix = SizeOf(op.launch);
  if (matrix && (IsLinear(op) || IsExperts(op))) {
    const auto tokens = static_cast<double>(point.point().num_tokens());
    const double matrices = op.count * (IsExperts(op) ? context.spec.MeanExperts(tokens) : 1.0);
    return OpBytes{.read = matrices * matrix->outputs * matrix->inputs *
                           ElementBytes(op.launch, context)};
  }
  if (IsOnlyAttention(op, point)) return OpBytes{.read = KvBytes(point, context)};
  return BytesByModel(op, point, context);
}

std::optional<double> Flops(const OpTime& op, const PointProfile& point,
                            const ProfileContext& context) {
  const std::optional<MatrixSize> matrix = SizeOf(op.launch);
  if (matrix && (IsLinear(op) || IsExperts(op))) {
    const double choices =
        IsExperts(op) ? static_cast<double>(context.spec.experts_per_token) : 1.0;
    return 2.0 * op.count * matrix->outputs * matrix->inputs * choices *
           TokensOf(*matrix, point, context);
  }
  // Of each pair and head a product with a key, and one with a value.
  if (IsOnlyAttention(op, point)) {
    return 4.0 * point.attended_pairs *
           static_cast<double>(context.spec.q_size() * context.spec.NumAttentionLayers());
  }
  return std::nullopt;
}

double StepFlops(const PointProfile& point, const ProfileContext& context) {
  double sum = 0;
  for (const OpTime& op : point.kernels.ops()) sum += Flops(op, point, context).value_or(0.0);
  return sum;
}

std::optional<double> ShareOfRoof(const OpTime& op, const PointProfile& point,
                                  const ProfileContext& context) {
  const double seconds = KernelTimes::NetNs(op, context.StampCostNs()) * 1e-9;
  const std::optional<OpBytes> bytes = BytesOf(op, point, context);
  const std::optional<double> flops = Flops(op, point, context);
  if (seconds <= 0 || (!bytes && !flops)) return std::nullopt;
  const double moved = bytes ? bytes->total() : 0.0;
  // The rate that was measured is of the compute dtype's products: those of 8 bits have another.
  const bool measured = !op.launch.op.ends_with("_rounded");
  const double share =
      std::max(Share(moved / seconds, context.bandwidth.best_read()),
               measured ? Share(flops.value_or(0.0) / seconds, context.products.best()) : 0.0);
  // 0: beside a rate that was not measured.
  return share > 0 ? std::optional(share) : std::nullopt;
}

}  // namespace reprise::tools
