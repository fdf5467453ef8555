// SPDX-License-Identifier: Apache-2.0
// A checkpoint is held against the layers' declarations, and the buffer is filled; see
// model_weights.h. Copying and converting is weight_upload.cc's.
#include "models/weights/model_weights.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <mutex>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "models/weights/int4_tensors.h"
#include "models/weights/parallel.h"
#include "models/weights/safetensors.h"
#include "models/weights/text_part.h"
#include "models/weights/weight_scales.h"
#include "models/weights/weight_upload.h"
#include "runtime/float_convert.h"
#include "runtime/status_macros.h"

namespace reprise::models {
namespace {

constexpr float kRandomStddev = 0.02f;  // initializer_range of the published models
// Of elements with a scale: the largest of four times that is E4M3's.
constexpr float kRandomElementStddev = 112.0f;
// Of bytes of such as two floats of 4 bits; their deviation is 4 or so.
constexpr float kRandomMxfp4Scale = 0.00390625f;
// Of elements of 4 bits that are bytes of such: their mean is 8.5, so that zero points 8 and 9 in
// turns leave weights without one. A mean of their own would make all tokens alike.
constexpr uint32_t kRandomZeroPoint = 8;
constexpr float kRandomInt4Stddev = 4.6f;

absl::Status CheckDType(const WeightSlot& slot, const TensorView& view,
                        kernels::WeightFormat format) {
  using Format = kernels::WeightFormat;
  if (slot.form == MatrixForm::kMxfp4) {
    if (view.integer_bytes == 1) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("tensor '", slot.name, "': got dtype ", ElementName(view),
                     ", allowed u8, as the config's quantization_config says"));
  }
  const bool fp8 = view.is_float() && runtime::IsFp8(view.dtype);
  if (format == Format::kInt4 ? view.integer_bytes == 4
                              : view.is_float() && fp8 == kernels::IsScaled(format))
    return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "tensor '", slot.name, "': got dtype ", ElementName(view), ", allowed ",
      format == Format::kInt4     ? "i32, as the config's quantization_config says"
      : kernels::IsScaled(format) ? "fp8_e4m3, as the config's quantization_config says"
                                  : "f32, bf16 and f16: the config does not say that it is "
                                    "quantised"));
}

absl::StatusOr<const TensorView*> FindTensor(const Checkpoint& checkpoint, const WeightSlot& slot,
                                             kernels::WeightFormat format) {
  const TensorView* view = checkpoint.Find(slot.name);
  if (view == nullptr) {
    return absl::NotFoundError(absl::StrCat("tensor '", slot.name, "': missing, wanted with shape ",
                                            ShowShape(slot.shape)));
  }
  if (view->shape != slot.shape) {
    return absl::InvalidArgumentError(absl::StrCat("tensor '", slot.name, "': got shape ",
                                                   ShowShape(view->shape), ", allowed ",
                                                   ShowShape(slot.shape)));
  }
  REPRISE_RETURN_IF_ERROR(CheckDType(slot, *view, format));
  return view;
}

// The scales of MXFP4 that belong to a slot's tensor: a byte for each of its blocks.
absl::StatusOr<const TensorView*> FindBlockScales(const Checkpoint& checkpoint,
                                                  const WeightSlot& slot) {
  WeightSlot scales = slot;
  scales.name = slot.scale_name;
  scales.shape.pop_back();
  REPRISE_ASSIGN_OR_RETURN(const TensorView* view,
                           FindTensor(checkpoint, scales, kernels::WeightFormat::kNone));
  const auto nan = std::find(view->data.begin(), view->data.end(), kMxfp4NotANumber);
  if (nan != view->data.end())
    return absl::InvalidArgumentError(absl::StrCat("tensor '", scales.name, "': got NaN as scale ",
                                                   nan - view->data.begin(),
                                                   ", allowed powers of two"));
  return view;
}

// Of every region, whether outputs of all its tensors lie as they are published.
std::vector<bool> PlainRegions(const WeightPlan& plan) {
  std::vector<bool> plain(plan.regions().size(), true);
  for (const WeightSlot& slot : plan.slots()) {
    const PublishedMatrix part = {
        .form = slot.form, .alternates = slot.alternates, .heads = slot.heads};
    if (!part.is_plain()) plain[slot.region] = false;
  }
  return plain;
}

// The slot's elements of its tensor.
std::span<const std::byte> ElementsOf(const WeightSlot& slot, const TensorView& view) {
  if (!slot.stack_index.has_value()) return view.data;
  const size_t bytes = view.data.size() / static_cast<size_t>(slot.shape.front());
  return view.data.subspan(static_cast<size_t>(*slot.stack_index) * bytes, bytes);
}

// Where a checkpoint repeats a tied tensor, it must repeat it exactly.
absl::Status CheckTied(const Checkpoint& checkpoint, const TiedTensor& tied) {
  const TensorView* copy = checkpoint.Find(tied.name);
  if (copy == nullptr) return absl::OkStatus();
  const TensorView* const original = checkpoint.Find(tied.copy_of);
  if (original == nullptr) return absl::OkStatus();  // which is an error of its own
  if (copy->dtype == original->dtype && copy->shape == original->shape &&
      std::memcmp(copy->data.data(), original->data.data(), copy->data.size()) == 0) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("tensor '", tied.name, "': got values that differ from '", tied.copy_of,
                   "', allowed only a copy of it, because the config says tie_word_embeddings"));
}

// The values of WeightPlan::Numbers.
absl::Status ReadNumbers(const std::string& name, const TensorView& view,
                         const std::vector<int64_t>& shape, std::vector<float>& values) {
  if (view.shape != shape)
    return absl::InvalidArgumentError(absl::StrCat(
        "tensor '", name, "': got shape ", ShowShape(view.shape), ", allowed ", ShowShape(shape)));
  if (!view.is_float() || runtime::IsFp8(view.dtype))
    return absl::InvalidArgumentError(absl::StrCat(
        "tensor '", name, "': got dtype ", ElementName(view), ", allowed f32, bf16 and f16"));
  runtime::ConvertElements(view.dtype, runtime::DType::kF32, view.data.data(),
                           reinterpret_cast<std::byte*>(values.data()), values.size());
  for (const float value : values) {
    if (std::isfinite(value)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("tensor '", name, "': got ", value, ", allowed finite numbers"));
  }
  return absl::OkStatus();
}

// The values of a tensor of scales: one for all, or one each.
absl::Status ReadScales(const std::string& name, const TensorView& view,
                        std::vector<float>& values) {
  int64_t count = 1;
  for (const int64_t size : view.shape) count *= size;
  if (count != 1 && count != static_cast<int64_t>(values.size())) {
    return absl::InvalidArgumentError(absl::StrCat("tensor '", name, "': got shape ",
                                                   ShowShape(view.shape), ", allowed [], [1] ",
                                                   "and [", values.size(), "]"));
  }
  if (!view.is_float())
    return absl::InvalidArgumentError(
        absl::StrCat("tensor '", name, "': got dtype ", ElementName(view), ", allowed floats"));
  std::vector<float> read(static_cast<size_t>(count));
  runtime::ConvertElements(view.dtype, runtime::DType::kF32, view.data.data(),
                           reinterpret_cast<std::byte*>(read.data()), read.size());
  for (const float scale : read) {
    if (std::isfinite(scale) && scale > 0.0f) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("tensor '", name, "': got scale ", scale, ", allowed finite numbers above 0"));
  }
  for (size_t i = 0; i < values.size(); ++i) values[i] = read[count == 1 ? 0 : i];
  return absl::OkStatus();
}

// of(scales): their values, from any thread. Copies are made one after the other.
template <typename Of>
absl::Status FillScales(runtime::Device& device, const WeightPlan& plan, std::byte* base, Of of) {
  REPRISE_ASSIGN_OR_RETURN(const std::unique_ptr<runtime::Stream> stream, device.CreateStream());
  const std::vector<WeightScales> all = plan.scales();
  std::mutex copying;
  return ForEachInParallel(all.size(), [&](size_t i) -> absl::Status {
    const WeightScales& scales = all[i];
    REPRISE_ASSIGN_OR_RETURN(const std::vector<float> values, of(scales));
    std::lock_guard lock(copying);
    const absl::Status copied =
        stream->CopyToDevice(base + scales.offset, values.data(), values.size() * sizeof(float));
    const absl::Status drained = stream->Synchronize();
    return copied.ok() ? drained : copied;
  });
}

// What the plan computes, with the scales that the checkpoint has.
absl::StatusOr<std::vector<WeightPlan::ComputedValues>> ComputedOf(const Checkpoint& checkpoint,
                                                                   const WeightPlan& plan) {
  std::vector<WeightPlan::ComputedValues> computed = plan.computed();
  for (WeightPlan::ComputedValues& values : computed) {
    std::string found;
    for (const std::string& name : values.names) {
      const TensorView* const view = checkpoint.Find(name);
      if (view == nullptr) continue;
      if (!found.empty()) {
        return absl::InvalidArgumentError(
            absl::StrCat("tensor '", name, "': got it and '", found, "', allowed one of them"));
      }
      found = name;
      REPRISE_RETURN_IF_ERROR(values.required()
                                  ? ReadNumbers(name, *view, values.shape, values.values)
                                  : ReadScales(name, *view, values.values));
    }
    if (values.required() && found.empty())
      return absl::NotFoundError(absl::StrCat("tensor '", values.names.front(),
                                              "': missing, wanted with shape ",
                                              ShowShape(values.shape)));
  }
  return computed;
}

absl::Status FillOrders(runtime::Device& device, const WeightPlan& plan,
                        const std::vector<std::vector<uint32_t>>& orders, std::byte* base) {
  if (orders.empty()) return absl::OkStatus();
  REPRISE_ASSIGN_OR_RETURN(const std::unique_ptr<runtime::Stream> stream, device.CreateStream());
  const std::vector<WeightScales> all = plan.scales();
  absl::Status status;
  for (size_t i = 0; i < all.size(); ++i)
    status.Update(stream->CopyToDevice(base + all[i].order_offset, orders[i].data(),
                                       orders[i].size() * sizeof(uint32_t)));
  // Also after an error: `orders` must not go while a copy still reads it.
  status.Update(stream->Synchronize());
  return status;
}

// Older programs gave every layer of GPTQ a bias, of zeros where the model has none.
bool IsBiasOfZeros(const Checkpoint& checkpoint, const WeightPlan& plan, const std::string& name) {
  absl::string_view layer = name;
  if (!plan.quantization() || plan.quantization()->storage != WeightStorage::kGptq ||
      !absl::ConsumeSuffix(&layer, ".bias"))
    return false;
  for (const WeightScales& scales : plan.scales()) {
    for (const WeightScales::Part& part : scales.parts) {
      if (part.layer != layer) continue;
      const std::span<const std::byte> bytes = checkpoint.Find(name)->data;
      return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
    }
  }
  return false;
}

absl::Status NotCalledFor(const std::string& name, const WeightPlan& plan) {
  return absl::InvalidArgumentError(absl::StrCat("tensor '", name,
                                                 "': got it, allowed only tensors that the config "
                                                 "of this ",
                                                 plan.architecture(), " model calls for"));
}

// What is there and nobody declared, and copies that are none.
std::vector<absl::Status> CheckLeftovers(const Checkpoint& checkpoint, const WeightPlan& plan) {
  std::vector<absl::Status> errors;
  absl::flat_hash_set<std::string> known(plan.unread().begin(), plan.unread().end());
  for (const WeightSlot& slot : plan.slots()) {
    known.insert(slot.name);
    if (!slot.scale_name.empty()) known.insert(slot.scale_name);
  }
  for (const WeightPlan::ComputedValues& values : plan.computed())
    known.insert(values.names.begin(), values.names.end());
  for (const WeightScales& scales : plan.scales())
    for (const WeightScales::Part& part : scales.parts) {
      known.insert(NameOfScales(*plan.quantization(), part));
      if (plan.quantization()->format() != kernels::WeightFormat::kInt4) continue;
      for (std::string& name : Int4TensorsBeside(*plan.quantization(), part.layer))
        known.insert(std::move(name));
    }
  for (const TiedTensor& tied : plan.tied()) {
    known.insert(tied.name);
    const absl::Status copied = CheckTied(checkpoint, tied);
    if (!copied.ok()) errors.push_back(copied);
  }
  for (const std::string& name : checkpoint.Names()) {
    // Older transformers saved rope's frequencies, which follow from the config.
    if (known.contains(name) || absl::EndsWith(name, ".rotary_emb.inv_freq") ||
        IsBiasOfZeros(checkpoint, plan, name))
      continue;
    errors.push_back(NotCalledFor(name, plan));
  }
  return errors;
}

// splitmix64: neighbouring regions get unrelated seeds.
uint64_t MixSeed(uint64_t seed, uint64_t index) {
  uint64_t z = seed + (index + 1) * 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

// Every input once, in any order.
std::vector<std::vector<uint32_t>> RandomOrders(const WeightPlan& plan, uint64_t seed) {
  std::vector<std::vector<uint32_t>> orders;
  if (!plan.quantization() || !plan.quantization()->reorders_inputs) return orders;
  for (const WeightScales& scales : plan.scales()) {
    std::vector<uint32_t>& order =
        orders.emplace_back(static_cast<size_t>(scales.matrix.in_features));
    std::iota(order.begin(), order.end(), 0u);
    const uint64_t of_order = MixSeed(~seed, orders.size());
    for (size_t left = order.size(); left > 1; --left)
      std::swap(order[left - 1], order[MixSeed(of_order, left) % left]);
  }
  return orders;
}

// As many ones as the largest norm has.
std::vector<std::byte> Ones(const WeightPlan& plan) {
  int64_t count = 0;
  for (const WeightRegion& region : plan.regions())
    if (region.kind == WeightKind::kNorm) count = std::max(count, region.count);
  const std::vector<float> ones(static_cast<size_t>(count), 1.0f);
  std::vector<std::byte> out(ones.size() * runtime::SizeOf(plan.dtype()));
  runtime::ConvertElements(runtime::DType::kF32, plan.dtype(),
                           reinterpret_cast<const std::byte*>(ones.data()), out.data(),
                           ones.size());
  return out;
}

absl::Status FillRegions(runtime::Stream& stream, const WeightPlan& plan, std::byte* base,
                         uint64_t seed, const RandomFill& fill,
                         const std::vector<std::byte>& ones) {
  for (size_t i = 0; i < plan.regions().size(); ++i) {
    const WeightRegion& region = plan.regions()[i];
    if (region.kind == WeightKind::kNorm) {
      REPRISE_RETURN_IF_ERROR(
          stream.CopyToDevice(base + region.offset, ones.data(),
                              static_cast<size_t>(region.count) * runtime::SizeOf(plan.dtype())));
    } else {
      // Nothing but kE4m3 lies in words that have to be packed.
      const bool rounded = region.format == kernels::WeightFormat::kE4m3Rounded;
      const kernels::WeightLayout layout =
          rounded ? kernels::WeightLayout::kRowMajor : region.layout;
      REPRISE_RETURN_IF_ERROR(
          fill(stream, base + region.offset, region.dtype, layout, region.count, MixSeed(seed, i),
               runtime::IsFp8(region.dtype) ? kRandomElementStddev : kRandomStddev));
    }
  }
  return absl::OkStatus();
}

absl::Status FillComputed(runtime::Device& device,
                          const std::vector<WeightPlan::ComputedValues>& computed,
                          std::byte* base) {
  REPRISE_ASSIGN_OR_RETURN(const std::unique_ptr<runtime::Stream> stream, device.CreateStream());
  absl::Status status;
  for (const WeightPlan::ComputedValues& of : computed)
    status.Update(
        stream->CopyToDevice(base + of.offset, of.values.data(), of.values.size() * sizeof(float)));
  // Also after an error: `computed` must not go while a copy still reads it.
  status.Update(stream->Synchronize());
  return status;
}

// checkpoint: of nothing but what the plan declares.
std::vector<absl::Status> CheckTensors(const WeightPlan& plan, const Checkpoint& checkpoint) {
  std::vector<absl::Status> errors;
  for (const WeightSlot& slot : plan.slots()) {
    if (slot.stack_index.value_or(0) != 0) continue;  // the first one of a tensor speaks for all
    const kernels::WeightFormat format = plan.regions()[slot.region].format;
    const absl::Status found = FindTensor(checkpoint, slot, format).status();
    if (!found.ok()) errors.push_back(found);
    if (slot.form != MatrixForm::kMxfp4) continue;
    const absl::Status scales = FindBlockScales(checkpoint, slot).status();
    if (!scales.ok()) errors.push_back(scales);
  }
  for (absl::Status& error : CheckLeftovers(checkpoint, plan)) errors.push_back(std::move(error));
  const absl::Status scales = ComputedOf(checkpoint, plan).status();
  if (!scales.ok()) errors.push_back(scales);
  const absl::Status of_weights = CheckWeightScales(checkpoint, plan);
  // What refuses scales may refuse their orders too.
  const absl::Status orders =
      of_weights.ok() ? ReadInputOrders(checkpoint, plan).status() : of_weights;
  if (!orders.ok()) errors.push_back(orders);
  return errors;
}

absl::StatusOr<runtime::DeviceBuffer> LoadTensors(runtime::Device& device, const WeightPlan& plan,
                                                  const Checkpoint& checkpoint,
                                                  const LoadProgress& progress) {
  std::vector<const TensorView*> views;
  for (const WeightSlot& slot : plan.slots()) {
    const bool same = !views.empty() && slot.stack_index.value_or(0) != 0;  // as the one before
    REPRISE_ASSIGN_OR_RETURN(
        const TensorView* view,
        same ? views.back() : FindTensor(checkpoint, slot, plan.regions()[slot.region].format));
    if (!same && slot.form == MatrixForm::kMxfp4)
      REPRISE_RETURN_IF_ERROR(FindBlockScales(checkpoint, slot).status());
    views.push_back(view);
  }
  for (const absl::Status& error : CheckLeftovers(checkpoint, plan)) return error;
  REPRISE_ASSIGN_OR_RETURN(const auto computed, ComputedOf(checkpoint, plan));
  REPRISE_RETURN_IF_ERROR(CheckWeightScales(checkpoint, plan));
  REPRISE_ASSIGN_OR_RETURN(const auto orders, ReadInputOrders(checkpoint, plan));
  REPRISE_ASSIGN_OR_RETURN(runtime::DeviceBuffer buffer,
                           runtime::DeviceBuffer::Create(device, plan.bytes()));
  auto* base = buffer.as<std::byte>();
  std::vector<WeightUpload> uploads;
  std::vector<MatrixUpload> matrices;
  std::vector<Int4Upload> int4;
  const std::vector<bool> plain = PlainRegions(plan);
  for (size_t i = 0; i < views.size(); ++i) {
    const WeightSlot& slot = plan.slots()[i];
    const WeightRegion& region = plan.regions()[slot.region];
    // Slots of a region follow each other.
    const bool first = i == 0 || plan.slots()[i - 1].region != slot.region;
    if (kernels::BitsOf(region.format) == 4) {
      const bool mxfp4 = region.format == kernels::WeightFormat::kMxfp4;
      const WeightStorage storage =
          mxfp4 ? WeightStorage::kPackedInt4 : plan.quantization()->storage;
      if (first) {
        // Scales and orders are those of quantised regions, in their order.
        const size_t of_region = int4.size();
        int4.push_back({region.matrix, region.layout, storage, {}, base + region.offset});
        if (!orders.empty()) int4.back().order = orders[of_region];
      }
      int4.back().parts.push_back(
          {ElementsOf(slot, *views[i]), slot.rows, slot.heads, slot.alternates});
      continue;
    }
    const PublishedMatrix part = {.dtype = views[i]->dtype,
                                  .source = ElementsOf(slot, *views[i]),
                                  .name = slot.name,
                                  .form = slot.form,
                                  .alternates = slot.alternates,
                                  .heads = slot.heads};
    if (!kernels::IsPacked(region.layout) && plain[slot.region]) {
      uploads.push_back({part.dtype, part.source, base + slot.offset, region.dtype});
      continue;
    }
    if (first)
      matrices.push_back(
          {region.matrix, region.layout, {}, base + region.offset, region.dtype, region.format});
    matrices.back().parts.push_back(part);
  }
  // The files' pages would add up to the weights' size a second time.
  REPRISE_RETURN_IF_ERROR(
      UploadWeights(device, uploads, matrices, int4, progress, {.release = &ReleasePages}));
  for (const MatrixUpload& upload : matrices)
    for (const PublishedMatrix& part : upload.parts)
      if (!part.is_plain()) ReleasePages(part.source);
  for (const Int4Upload& upload : int4)
    for (const Int4Upload::Part& part : upload.parts) ReleasePages(part.words);
  REPRISE_RETURN_IF_ERROR(FillComputed(device, computed, base));
  REPRISE_RETURN_IF_ERROR(FillScales(device, plan, base, [&](const WeightScales& scales) {
    return ReadWeightScales(checkpoint, scales, plan.quantization());
  }));
  REPRISE_RETURN_IF_ERROR(FillOrders(device, plan, orders, base));
  return buffer;
}

}  // namespace

std::vector<absl::Status> ModelWeights::Check(const WeightPlan& plan,
                                              const Checkpoint& checkpoint) {
  if (!plan.status().ok()) return {plan.status()};
  if (!plan.takes_text_part()) return CheckTensors(plan, checkpoint);
  const auto text = TextPart::Of(checkpoint);
  if (!text.ok()) return {text.status()};
  std::vector<absl::Status> errors;
  for (const std::string& name : text->strangers()) errors.push_back(NotCalledFor(name, plan));
  for (const absl::Status& error : CheckTensors(plan, text->tensors()))
    errors.push_back(text->InNamesOfFiles(error));
  return errors;
}

absl::StatusOr<ModelWeights> ModelWeights::Load(runtime::Device& device, const WeightPlan& plan,
                                                const Checkpoint& checkpoint,
                                                const LoadProgress& progress) {
  REPRISE_RETURN_IF_ERROR(plan.status());
  absl::StatusOr<runtime::DeviceBuffer> loaded;
  if (plan.takes_text_part()) {
    REPRISE_ASSIGN_OR_RETURN(const TextPart text, TextPart::Of(checkpoint));
    for (const std::string& name : text.strangers()) return NotCalledFor(name, plan);
    loaded = LoadTensors(device, plan, text.tensors(), progress);
    if (!loaded.ok()) return text.InNamesOfFiles(loaded.status());
  } else {
    loaded = LoadTensors(device, plan, checkpoint, progress);
  }
  REPRISE_RETURN_IF_ERROR(loaded.status());
  plan.Bind(loaded->as<std::byte>());
  return ModelWeights(*std::move(loaded));
}

absl::StatusOr<ModelWeights> ModelWeights::Random(runtime::Device& device, const WeightPlan& plan,
                                                  uint64_t seed, const RandomFill& fill) {
  REPRISE_RETURN_IF_ERROR(plan.status());
  if (fill == nullptr) {
    return absl::InvalidArgumentError("fill: got an empty function, allowed one that fills");
  }
  REPRISE_ASSIGN_OR_RETURN(runtime::DeviceBuffer buffer,
                           runtime::DeviceBuffer::Create(device, plan.bytes()));
  auto* base = buffer.as<std::byte>();
  REPRISE_ASSIGN_OR_RETURN(const std::unique_ptr<runtime::Stream> stream, device.CreateStream());
  const std::vector<std::byte> ones = Ones(plan);
  absl::Status filled = FillRegions(*stream, plan, base, seed, fill, ones);
  // Also after an error: `ones` must not go while a copy still reads it.
  filled.Update(stream->Synchronize());
  REPRISE_RETURN_IF_ERROR(filled);
  REPRISE_RETURN_IF_ERROR(FillComputed(device, plan.computed(), base));
  const bool int4 =
      plan.quantization() && plan.quantization()->format() == kernels::WeightFormat::kInt4;
  const auto scale = [=](int64_t output, int64_t group) {
    if (!int4) return kRandomStddev / kRandomElementStddev;
    const uint32_t zero_point = kRandomZeroPoint + static_cast<uint32_t>((output + group) % 2);
    return std::bit_cast<float>(kernels::ScaleWord(kRandomStddev / kRandomInt4Stddev, zero_point));
  };
  const auto of_blocks = [](int64_t, int64_t) { return kRandomMxfp4Scale; };
  REPRISE_RETURN_IF_ERROR(FillScales(
      device, plan, base, [=](const WeightScales& scales) -> absl::StatusOr<std::vector<float>> {
        return scales.blocks.has_value() ? LayOutScales(scales, of_blocks)
                                         : LayOutScales(scales, scale);
      }));
  REPRISE_RETURN_IF_ERROR(FillOrders(device, plan, RandomOrders(plan, seed), base));
  plan.Bind(base);
  return ModelWeights(std::move(buffer));
}

}  // namespace reprise::models
