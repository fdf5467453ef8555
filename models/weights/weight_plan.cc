// SPDX-License-Identifier: Apache-2.0
#include "models/weights/weight_plan.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "models/weights/int4_tensors.h"
#include "runtime/check.h"

namespace reprise::models {
namespace {

constexpr int64_t kMaxParameters = int64_t{1} << 56;  // bytes and aligned offsets stay inside int64

// Whether two halves of `rows` outputs may lie in pairs. rounded: of kE4m3Rounded, of which 16
// bytes are twice as many inputs.
bool PairsFit(int64_t rows, int64_t in_features, bool rounded) {
  const int64_t chunk = (rounded ? 2 : 1) * kernels::kPackedChunk;
  return rows % kernels::kPairRun == 0 && in_features % chunk == 0;
}

size_t Align(size_t offset) { return (offset + kWeightAlignment - 1) & ~(kWeightAlignment - 1); }

}  // namespace

// Once there are too many parameters, nothing more is counted; status() says so.
size_t WeightPlan::AddRegion(WeightKind kind, int64_t rows, int64_t columns,
                             kernels::WeightLayout layout, kernels::WeightFormat format) {
  int64_t count = 0;
  if (__builtin_mul_overflow(rows, columns, &count) || count > kMaxParameters - num_parameters_) {
    status_ = absl::InvalidArgumentError(absl::StrCat(
        "number of parameters: got more than can be addressed, allowed at most ", kMaxParameters));
    count = 0;
  }
  num_parameters_ += count;
  const bool scaled = kernels::IsScaled(format);
  WeightRegion region = {.kind = kind,
                         .format = format,
                         .dtype = scaled ? runtime::DType::kE4m3 : dtype_,
                         .offset = Align(end_),
                         .count = count,
                         .layout = layout};
  const bool four_bits = kernels::BitsOf(format) == 4;
  if (four_bits || kernels::IsPacked(layout))
    region.matrix = {.out_features = rows, .in_features = columns};
  if (kernels::IsPacked(layout) && count != 0) region.count = region.matrix.Elements(format);
  if (four_bits && !kernels::IsPacked(layout) && count != 0)
    region.count = rows * region.matrix.Int4RowElements();
  if (four_bits) region.count /= 2;
  end_ = region.offset + static_cast<size_t>(region.count) * runtime::SizeOf(region.dtype);
  regions_.push_back(region);
  return region.offset;
}

void WeightPlan::AddSlot(std::string name, std::vector<int64_t> shape, int64_t rows,
                         size_t offset) {
  slots_.push_back({std::move(name), std::move(shape), rows, regions_.size() - 1, offset});
}

void WeightPlan::BindAt(const void** out, size_t offset) {
  *out = nullptr;
  bindings_.push_back([out, offset](const std::byte* base) { *out = base + offset; });
}

void WeightPlan::Norm(const void** out, std::string name, int64_t size) {
  const size_t offset = AddVector(WeightKind::kNorm, size);
  elements_read_ += size;
  AddSlot(std::move(name), {size}, size, offset);
  BindAt(out, offset);
}

void WeightPlan::Table(kernels::LinearWeights* out, std::string name, int64_t rows, int64_t columns,
                       bool tied) {
  *out = {.format = kernels::WeightFormatOf(dtype_)};
  if (tied) out->layout = layout_;
  out->out_features = rows;
  out->in_features = columns;
  const size_t offset = AddRegion(WeightKind::kMatrix, rows, columns, out->layout, format());
  AddSlot(std::move(name), {rows, columns}, rows, offset);
  BindAt(&out->data, offset);
}

void WeightPlan::Linear(kernels::LinearWeights* out, const std::vector<Part>& parts,
                        int64_t in_features, bool biased, bool quantized) {
  AddLinear(out, parts, in_features, biased, layout_, quantized && quantization_.has_value());
}

void WeightPlan::PlainLinear(kernels::LinearWeights* out, const std::vector<Part>& parts,
                             int64_t in_features, bool biased) {
  AddLinear(out, parts, in_features, biased, layout_, false);
}

void WeightPlan::PairedLinear(kernels::LinearWeights* out, const std::vector<Part>& parts,
                              int64_t in_features, bool biased, bool quantized) {
  REPRISE_CHECK(parts.size() == 1 || (parts.size() == 2 && parts[0].rows == parts[1].rows));
  const int64_t rows = parts.size() == 1 ? parts[0].rows / 2 : parts[0].rows;
  const bool scaled = quantized && quantization_.has_value();
  AddLinear(out, parts, in_features, biased, LayoutOfPairs(rows, in_features, scaled), scaled);
}

// rows: of each.
kernels::WeightLayout WeightPlan::LayoutOfPairs(int64_t rows, int64_t in_features,
                                                bool quantized) const {
  const bool rounded = quantized && quantization_->format() == kernels::WeightFormat::kE4m3Rounded;
  return pairs_ && PairsFit(rows, in_features, rounded) ? kernels::WeightLayout::kPackedPairs
                                                        : layout_;
}

void WeightPlan::Experts(kernels::ExpertWeights* out, const std::vector<std::vector<Part>>& experts,
                         int64_t in_features, bool paired) {
  REPRISE_CHECK(!quantization_.has_value() || !quantization_->reorders_inputs);
  *out = {};
  for (const std::vector<Part>& parts : experts) {
    int64_t rows = 0;
    for (const Part& part : parts) rows += part.rows;
    AddExpert(out, rows, in_features, paired,
              quantization_.has_value() ? quantization_->storage_format() : format());
    if (quantization_.has_value()) {
      // Those of an expert follow those of the one before.
      kernels::LinearWeights* const first = out->num_experts == 1 ? &out->first : nullptr;
      const auto count = static_cast<size_t>(AddScales(first, out->first, parts).count());
      out->expert_scales = static_cast<int64_t>(Align(count * sizeof(float)) / sizeof(float));
    }
    AddParts(parts, in_features);
  }
}

void WeightPlan::StackedExperts(kernels::ExpertWeights* out, const Part& part, int64_t num_experts,
                                int64_t in_features, bool paired, const ExpertStack& stack) {
  REPRISE_CHECK(!quantization_.has_value());
  *out = {};
  std::string name = part.name, scale_name;
  std::vector<int64_t> shape = {num_experts, part.rows, in_features};
  switch (stack.form) {
    case MatrixForm::kOutputs:
      name += ".weight";
      break;
    case MatrixForm::kInputs:
      std::swap(shape[1], shape[2]);
      break;
    case MatrixForm::kMxfp4:
      REPRISE_CHECK(in_features % kMxfp4Block == 0);
      scale_name = name + "_scales";
      name += "_blocks";
      shape = {num_experts, part.rows, in_features / kMxfp4Block, kMxfp4Block / 2};
  }
  const bool mxfp4 = stack.form == MatrixForm::kMxfp4;
  for (int64_t expert = 0; expert < num_experts; ++expert) {
    AddExpert(out, part.rows, in_features, paired,
              mxfp4 ? kernels::WeightFormat::kMxfp4 : format());
    if (mxfp4) AddBlockScales(out, scale_name, stack);
    AddSlot(name, shape, part.rows, regions_.back().offset);
    WeightSlot& slot = slots_.back();
    slot.stack_index = expert;
    slot.form = stack.form;
    slot.alternates = stack.alternates;
    slot.scale_name = scale_name;
  }
  if (stack.biased) AddExpertBias(out, part, stack);
}

void WeightPlan::AddExpert(kernels::ExpertWeights* out, int64_t rows, int64_t in_features,
                           bool paired, kernels::WeightFormat format) {
  // Whatever linear layers do: experts are never rounded.
  const bool fit = paired && pairs_ && PairsFit(rows / 2, in_features, /*rounded=*/false);
  const kernels::WeightLayout layout = fit ? kernels::WeightLayout::kPackedPairs : layout_;
  const size_t offset = AddRegion(WeightKind::kMatrix, rows, in_features, layout, format);
  regions_.back().matrix = {.out_features = rows, .in_features = in_features};
  if (out->num_experts == 0) {
    out->first = {.format = format, .layout = layout};
    out->first.out_features = rows;
    out->first.in_features = in_features;
    BindAt(&out->first.data, offset);
  } else if (out->num_experts == 1) {
    const size_t before = regions_[regions_.size() - 2].offset;
    out->expert_elements = static_cast<int64_t>(offset - before) * 8 / kernels::BitsOf(format);
  }
  ++out->num_experts;
}

void WeightPlan::AddBlockScales(kernels::ExpertWeights* out, const std::string& tensor,
                                const ExpertStack& stack) {
  out->first.group_size = kernels::kMxfp4ScaleInputs;
  const WeightScales scales{.layout = out->first.layout,
                            .matrix = {.out_features = out->first.out_features,
                                       .in_features = out->first.in_features,
                                       .scale_inputs = kernels::kMxfp4ScaleInputs},
                            .blocks = {{tensor, out->num_experts - 1, stack.alternates}}};
  const auto bytes = static_cast<size_t>(scales.count()) * sizeof(float);
  out->expert_scales = static_cast<int64_t>(Align(bytes) / sizeof(float));
  declared_scales_.push_back({out->num_experts == 1 ? &out->first : nullptr, scales});
}

// One region for all of them, of one column.
void WeightPlan::AddExpertBias(kernels::ExpertWeights* out, const Part& part,
                               const ExpertStack& stack) {
  const int64_t experts = out->num_experts;
  size_t offset = AddVector(WeightKind::kBias, experts * part.rows);
  regions_.back().matrix = {.out_features = experts * part.rows, .in_features = 1};
  BindAt(&out->first.bias, offset);
  for (int64_t expert = 0; expert < experts; ++expert) {
    AddSlot(part.name + "_bias", {experts, part.rows}, part.rows, offset);
    slots_.back().stack_index = expert;
    slots_.back().alternates = stack.alternates;
    offset += Bytes(part.rows);
  }
}

void WeightPlan::AddLinear(kernels::LinearWeights* out, const std::vector<Part>& parts,
                           int64_t in_features, bool biased, kernels::WeightLayout layout,
                           bool quantized) {
  *out = {.format = quantized ? quantization_->format() : format(), .layout = layout};
  out->in_features = in_features;
  for (const Part& part : parts) out->out_features += part.rows;
  size_t offset =
      AddRegion(WeightKind::kMatrix, out->out_features, in_features, layout, out->format);
  const int64_t elements = status_.ok() ? out->out_features * in_features : 0;
  if (quantized) {
    quantized_bytes_read_ += elements * kernels::BitsOf(out->format) / 8;
    const kernels::PackedLayout& scales = AddScales(out, *out, parts).matrix;
    if (status_.ok())
      quantized_bytes_read_ += scales.out_features * scales.ScaleGroups() * int64_t{sizeof(float)};
    if (out->reordered) quantized_bytes_read_ += in_features * int64_t{sizeof(uint32_t)};
  } else {
    elements_read_ += elements;
  }
  BindAt(&out->data, offset);
  AddParts(parts, in_features);
  if (!biased) return;
  for (const Part& part : parts) REPRISE_CHECK(part.heads.is_published());
  offset = AddVector(WeightKind::kBias, out->out_features);
  elements_read_ += out->out_features;
  BindAt(&out->bias, offset);
  for (const Part& part : parts) {
    AddSlot(absl::StrCat(part.name, ".bias"), {part.rows}, part.rows, offset);
    offset += Bytes(part.rows);
  }
}

void WeightPlan::AddParts(const std::vector<Part>& parts, int64_t in_features) {
  const WeightRegion region = regions_.back();
  const bool int4 = region.format == kernels::WeightFormat::kInt4;
  size_t offset = region.offset;
  int64_t rows = 0;
  for (const Part& part : parts) rows += part.rows;
  for (const Part& part : parts) {
    if (!part.heads.is_published())
      regions_.back().matrix = {.out_features = rows, .in_features = in_features};
    if (int4) {
      AddSlot(absl::StrCat(part.name, ".", Int4TensorName(quantization_->storage)),
              Int4TensorShape(quantization_->storage, part.rows, in_features), part.rows, offset);
      slots_.back().heads = part.heads;
      continue;
    }
    AddSlot(absl::StrCat(part.name, ".weight"), {part.rows, in_features}, part.rows, offset);
    slots_.back().heads = part.heads;
    if (!kernels::IsPacked(region.layout))
      offset += static_cast<size_t>(part.rows * in_features) * runtime::SizeOf(region.dtype);
  }
}

const WeightScales& WeightPlan::AddScales(kernels::LinearWeights* out,
                                          const kernels::LinearWeights& shape,
                                          const std::vector<Part>& parts) {
  WeightScales scales{.layout = shape.layout,
                      .matrix = {.out_features = shape.out_features,
                                 .in_features = shape.in_features,
                                 .scale_inputs = quantization_->scale_inputs()}};
  for (const Part& part : parts) {
    scales.parts.push_back({part.name, part.rows, part.heads});
    if (quantization_->input_scales)
      unread_.push_back(absl::StrCat(part.name, ".", quantization_->input_scale_name));
  }
  if (out != nullptr) {
    out->group_size = quantization_->scale_inputs();
    out->reordered = quantization_->reorders_inputs;
  }
  declared_scales_.push_back({out, std::move(scales)});
  return declared_scales_.back().scales;
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

void WeightPlan::Numbers(const float** out, std::string name, std::vector<int64_t> shape,
                         float random) {
  *out = nullptr;
  int64_t size = 1;
  for (const int64_t length : shape) size *= length;
  num_parameters_ += size;
  declared_values_.push_back({out,
                              std::vector<float>(static_cast<size_t>(size), random),
                              {std::move(name)},
                              std::move(shape)});
}

void WeightPlan::Unread(std::vector<std::string> names) {
  unread_.insert(unread_.end(), names.begin(), names.end());
}

std::vector<WeightPlan::ComputedValues> WeightPlan::computed() const {
  std::vector<ComputedValues> all;
  size_t end = end_;
  for (const DeclaredValues& declared : declared_values_) {
    all.push_back({Align(end), declared.values, declared.names, declared.shape});
    end = all.back().offset + declared.values.size() * sizeof(float);
  }
  return all;
}

std::vector<WeightScales> WeightPlan::scales() const {
  std::vector<WeightScales> all;
  size_t end = EndOfComputed();
  for (const DeclaredScales& declared : declared_scales_) {
    all.push_back(declared.scales);
    WeightScales& scales = all.back();
    scales.offset = Align(end);
    if (quantization_.has_value() && quantization_->reorders_inputs)
      scales.order_offset = Align(scales.end());
    end = scales.end();
  }
  return all;
}

size_t WeightPlan::EndOfComputed() const {
  const std::vector<ComputedValues> values = computed();
  return values.empty() ? end_ : values.back().offset + values.back().values.size() * sizeof(float);
}

size_t WeightPlan::bytes() const {
  const std::vector<WeightScales> all = scales();
  return all.empty() ? EndOfComputed() : all.back().end();
}

void WeightPlan::Bind(const std::byte* base) const {
  for (const auto& binding : bindings_) binding(base);
  const std::vector<ComputedValues> values = computed();
  for (size_t i = 0; i < values.size(); ++i)
    *declared_values_[i].out = reinterpret_cast<const float*>(base + values[i].offset);
  const std::vector<WeightScales> of_weights = scales();
  for (size_t i = 0; i < of_weights.size(); ++i)
    if (kernels::LinearWeights* const out = declared_scales_[i].out; out != nullptr) {
      out->scales = reinterpret_cast<const float*>(base + of_weights[i].offset);
      if (out->reordered)
        out->input_order = reinterpret_cast<const uint32_t*>(base + of_weights[i].order_offset);
    }
}

}  // namespace reprise::models
