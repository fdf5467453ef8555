// SPDX-License-Identifier: Apache-2.0
#include "models/weights/weight_plan.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/check.h"

namespace reprise::models {
namespace {

constexpr int64_t kMaxParameters = int64_t{1} << 56;  // bytes and aligned offsets stay inside int64

size_t Align(size_t offset) { return (offset + kWeightAlignment - 1) & ~(kWeightAlignment - 1); }

}  // namespace

// Once there are too many parameters, nothing more is counted; status() says so.
size_t WeightPlan::AddRegion(WeightKind kind, int64_t rows, int64_t columns,
                             kernels::WeightLayout layout, runtime::DType dtype) {
  int64_t count = 0;
  if (__builtin_mul_overflow(rows, columns, &count) || count > kMaxParameters - num_parameters_) {
    status_ = absl::InvalidArgumentError(absl::StrCat(
        "number of parameters: got more than can be addressed, allowed at most ", kMaxParameters));
    count = 0;
  }
  num_parameters_ += count;
  WeightRegion region = {
      .kind = kind, .dtype = dtype, .offset = Align(end_), .count = count, .layout = layout};
  if (kernels::IsPacked(layout)) {
    region.matrix = {.out_features = rows, .in_features = columns};
    if (count != 0) region.count = region.matrix.Elements();
  }
  end_ = region.offset + static_cast<size_t>(region.count) * runtime::SizeOf(dtype);
  regions_.push_back(region);
  return region.offset;
}

void WeightPlan::AddSlot(std::string name, std::vector<int64_t> shape, size_t offset) {
  slots_.push_back({std::move(name), std::move(shape), regions_.size() - 1, offset});
}

void WeightPlan::BindAt(const void** out, size_t offset) {
  *out = nullptr;
  bindings_.push_back([out, offset](const std::byte* base) { *out = base + offset; });
}

void WeightPlan::Norm(const void** out, std::string name, int64_t size) {
  const size_t offset = AddVector(WeightKind::kNorm, size);
  elements_read_ += size;
  AddSlot(std::move(name), {size}, offset);
  BindAt(out, offset);
}

void WeightPlan::Table(kernels::LinearWeights* out, std::string name, int64_t rows, int64_t columns,
                       bool tied) {
  *out = {.format = kernels::WeightFormatOf(dtype_)};
  if (tied) out->layout = layout_;
  out->out_features = rows;
  out->in_features = columns;
  const size_t offset = AddRegion(WeightKind::kMatrix, rows, columns, out->layout, dtype_);
  AddSlot(std::move(name), {rows, columns}, offset);
  BindAt(&out->data, offset);
}

void WeightPlan::Linear(kernels::LinearWeights* out, const std::vector<Part>& parts,
                        int64_t in_features, bool biased) {
  AddLinear(out, parts, in_features, biased, layout_, quantization_.has_value());
}

void WeightPlan::PlainLinear(kernels::LinearWeights* out, const std::vector<Part>& parts,
                             int64_t in_features) {
  AddLinear(out, parts, in_features, false, layout_, false);
}

void WeightPlan::PairedLinear(kernels::LinearWeights* out, const std::vector<Part>& parts,
                              int64_t in_features, bool biased) {
  REPRISE_CHECK(parts.size() == 1 || (parts.size() == 2 && parts[0].rows == parts[1].rows));
  const int64_t rows = parts.size() == 1 ? parts[0].rows / 2 : parts[0].rows;
  const bool fit = rows % kernels::kPairRun == 0 && in_features % kernels::kPackedChunk == 0;
  AddLinear(out, parts, in_features, biased,
            pairs_ && fit ? kernels::WeightLayout::kPackedPairs : layout_,
            quantization_.has_value());
}

void WeightPlan::AddLinear(kernels::LinearWeights* out, const std::vector<Part>& parts,
                           int64_t in_features, bool biased, kernels::WeightLayout layout,
                           bool quantized) {
  const runtime::DType dtype = quantized ? runtime::DType::kE4m3 : dtype_;
  *out = {.format = kernels::WeightFormatOf(dtype), .layout = layout};
  out->in_features = in_features;
  for (const Part& part : parts) out->out_features += part.rows;
  size_t offset = AddRegion(WeightKind::kMatrix, out->out_features, in_features, layout, dtype);
  const int64_t elements = status_.ok() ? out->out_features * in_features : 0;
  if (quantized) {
    quantized_bytes_read_ += elements;
    AddScales(out, parts);
  } else {
    elements_read_ += elements;
  }
  BindAt(&out->data, offset);
  for (const Part& part : parts) {
    AddSlot(absl::StrCat(part.name, ".weight"), {part.rows, in_features}, offset);
    if (!kernels::IsPacked(layout))
      offset += static_cast<size_t>(part.rows * in_features) * runtime::SizeOf(dtype);
  }
  if (!biased) return;
  offset = AddVector(WeightKind::kBias, out->out_features);
  elements_read_ += out->out_features;
  BindAt(&out->bias, offset);
  for (const Part& part : parts) {
    AddSlot(absl::StrCat(part.name, ".bias"), {part.rows}, offset);
    offset += Bytes(part.rows);
  }
}

void WeightPlan::AddScales(kernels::LinearWeights* out, const std::vector<Part>& parts) {
  out->group_size = kernels::kScaleInputs;
  WeightScales scales{
      .layout = out->layout,
      .matrix = {.out_features = out->out_features, .in_features = out->in_features}};
  for (const Part& part : parts) {
    scales.parts.push_back({absl::StrCat(part.name, ".", quantization_->scale_name), part.rows});
    if (quantization_->input_scales) unread_.push_back(absl::StrCat(part.name, ".input_scale"));
  }
  if (status_.ok())
    quantized_bytes_read_ += scales.matrix.out_features * scales.matrix.ScaleGroups() *
                             static_cast<int64_t>(sizeof(float));
  declared_scales_.push_back({out, std::move(scales)});
}

void WeightPlan::TiedLinear(kernels::LinearWeights* out, std::string name,
                            const std::string& table) {
  const auto slot = std::find_if(slots_.begin(), slots_.end(),
                                 [&](const WeightSlot& s) { return s.name == table; });
  REPRISE_CHECK(slot != slots_.end() && slot->shape.size() == 2);
  REPRISE_CHECK(regions_[slot->region].layout == layout_);
  *out = {.format = kernels::WeightFormatOf(dtype_), .layout = layout_};
  out->out_features = slot->shape[0];
  out->in_features = slot->shape[1];
  elements_read_ += status_.ok() ? out->out_features * out->in_features : 0;
  BindAt(&out->data, slot->offset);
  tied_.push_back({std::move(name), table});
}

void WeightPlan::Computed(const float** out, std::vector<float> values) {
  *out = nullptr;
  declared_values_.push_back({out, std::move(values), {}});
}

void WeightPlan::Scales(const float** out, std::vector<std::string> names, int64_t size) {
  *out = nullptr;
  declared_values_.push_back(
      {out, std::vector<float>(static_cast<size_t>(size), 1.0f), std::move(names)});
}

void WeightPlan::Unread(std::vector<std::string> names) {
  unread_.insert(unread_.end(), names.begin(), names.end());
}

std::vector<WeightPlan::ComputedValues> WeightPlan::computed() const {
  std::vector<ComputedValues> all;
  size_t end = end_;
  for (const DeclaredValues& declared : declared_values_) {
    all.push_back({Align(end), declared.values, declared.names});
    end = all.back().offset + declared.values.size() * sizeof(float);
  }
  return all;
}

std::vector<WeightScales> WeightPlan::scales() const {
  std::vector<WeightScales> all;
  size_t end = EndOfComputed();
  for (const DeclaredScales& declared : declared_scales_) {
    all.push_back(declared.scales);
    all.back().offset = Align(end);
    end = all.back().offset + static_cast<size_t>(all.back().count()) * sizeof(float);
  }
  return all;
}

size_t WeightPlan::EndOfComputed() const {
  const std::vector<ComputedValues> values = computed();
  return values.empty() ? end_ : values.back().offset + values.back().values.size() * sizeof(float);
}

size_t WeightPlan::bytes() const {
  const std::vector<WeightScales> all = scales();
  return all.empty() ? EndOfComputed()
                     : all.back().offset + static_cast<size_t>(all.back().count()) * sizeof(float);
}

void WeightPlan::Bind(const std::byte* base) const {
  for (const auto& binding : bindings_) binding(base);
  const std::vector<ComputedValues> values = computed();
  for (size_t i = 0; i < values.size(); ++i)
    *declared_values_[i].out = reinterpret_cast<const float*>(base + values[i].offset);
  const std::vector<WeightScales> of_weights = scales();
  for (size_t i = 0; i < of_weights.size(); ++i)
    declared_scales_[i].out->scales = reinterpret_cast<const float*>(base + of_weights[i].offset);
}

}  // namespace reprise::models
