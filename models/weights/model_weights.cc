// SPDX-License-Identifier: Apache-2.0
// A model's tensors on a device; see model_weights.h. The layout is weight_layout.cc's, the copying
// weight_upload.cc's; here a checkpoint is held against the layout, and pointers are handed out.
#include "models/weights/model_weights.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "models/weights/weight_layout.h"
#include "models/weights/weight_upload.h"
#include "runtime/float_convert.h"
#include "runtime/status_macros.h"

namespace reprise::models {
namespace {

constexpr char kEmbedding[] = "model.embed_tokens.weight";
constexpr char kLmHead[] = "lm_head.weight";
constexpr float kRandomStddev = 0.02f;  // initializer_range of the published models

std::string ShowShape(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

absl::StatusOr<const TensorView*> FindTensor(const Checkpoint& checkpoint, const WeightSlot& slot) {
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
  return view;
}

// A tied model's lm_head is its embedding; a copy of it in the file must be one.
absl::Status CheckTiedHead(const TensorView& head, const TensorView& embedding) {
  if (head.dtype == embedding.dtype && head.shape == embedding.shape &&
      std::memcmp(head.data.data(), embedding.data.data(), head.data.size()) == 0) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("tensor '", kLmHead, "': got values that differ from '", kEmbedding,
                   "', allowed only a copy of it, because the config says tie_word_embeddings"));
}

absl::Status CheckLeftovers(const Checkpoint& checkpoint, const ModelSpec& spec,
                            const WeightLayout& layout) {
  absl::flat_hash_set<std::string> wanted;
  for (const WeightSlot& slot : layout.slots) wanted.insert(slot.name);
  for (const std::string& name : checkpoint.Names()) {
    // Older transformers saved rope's frequencies, which follow from the config.
    if (wanted.contains(name) || absl::EndsWith(name, ".rotary_emb.inv_freq")) continue;
    if (name == kLmHead && spec.tie_word_embeddings) {
      REPRISE_RETURN_IF_ERROR(CheckTiedHead(*checkpoint.Find(name), *checkpoint.Find(kEmbedding)));
      continue;
    }
    return absl::InvalidArgumentError(
        absl::StrCat("tensor '", name, "': got it, allowed only tensors that the config of this ",
                     spec.architecture, " model calls for"));
  }
  return absl::OkStatus();
}

// splitmix64: neighbouring regions get unrelated seeds.
uint64_t MixSeed(uint64_t seed, uint64_t index) {
  uint64_t z = seed + (index + 1) * 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

std::vector<std::byte> Ones(runtime::DType dtype, int64_t count) {
  const std::vector<float> ones(static_cast<size_t>(count), 1.0f);
  std::vector<std::byte> out(ones.size() * runtime::SizeOf(dtype));
  runtime::ConvertElements(runtime::DType::kF32, dtype,
                           reinterpret_cast<const std::byte*>(ones.data()), out.data(),
                           ones.size());
  return out;
}

}  // namespace

// Makes a ModelWeights in steps: Allocate first, then one of the fills, then Finish.
class ModelWeightsBuilder {
 public:
  ModelWeightsBuilder(runtime::Device& device, const ModelSpec& spec, runtime::DType dtype)
      : device_(device), spec_(spec), dtype_(dtype), layout_(PlanWeights(spec, dtype)) {}

  const WeightLayout& layout() const { return layout_; }

  absl::Status Allocate() {
    REPRISE_ASSIGN_OR_RETURN(buffer_, runtime::DeviceBuffer::Create(device_, layout_.bytes));
    return absl::OkStatus();
  }

  absl::Status FillFrom(const std::vector<const TensorView*>& views, const LoadProgress& progress) {
    std::vector<WeightUpload> uploads;
    for (size_t i = 0; i < views.size(); ++i) {
      uploads.push_back({views[i]->dtype, views[i]->data, At(layout_.slots[i].offset)});
    }
    REPRISE_RETURN_IF_ERROR(UploadWeights(device_, uploads, dtype_, progress));
    REPRISE_ASSIGN_OR_RETURN(const std::unique_ptr<runtime::Stream> stream, device_.CreateStream());
    return FillRope(*stream);
  }

  absl::Status FillRandom(uint64_t seed, const RandomFill& fill) {
    REPRISE_ASSIGN_OR_RETURN(const std::unique_ptr<runtime::Stream> stream, device_.CreateStream());
    const std::vector<std::byte> ones = Ones(dtype_, std::max(spec_.hidden_size, spec_.head_dim));
    const absl::Status filled = FillRegions(*stream, seed, fill, ones);
    // `ones` must not go while a copy still reads it.
    const absl::Status drained = stream->Synchronize();
    REPRISE_RETURN_IF_ERROR(filled);
    REPRISE_RETURN_IF_ERROR(drained);
    return FillRope(*stream);
  }

  std::unique_ptr<ModelWeights> Finish() {
    auto weights = std::unique_ptr<ModelWeights>(new ModelWeights());
    weights->dtype_ = dtype_;
    weights->embedding_ = At(layout_.embedding);
    weights->lm_head_ = Linear(layout_.lm_head);
    weights->final_norm_ = At(layout_.final_norm);
    for (const LayerOffsets& layer : layout_.layers) {
      weights->layers_.push_back({At(layer.input_norm), Linear(layer.qkv), OrNull(layer.q_norm),
                                  OrNull(layer.k_norm), Linear(layer.o),
                                  At(layer.post_attention_norm), Linear(layer.gate_up),
                                  Linear(layer.down)});
    }
    weights->rope_ = reinterpret_cast<const float*>(At(layout_.rope));
    weights->buffer_ = std::move(buffer_);
    return weights;
  }

 private:
  std::byte* At(size_t offset) const { return buffer_.as<std::byte>() + offset; }

  const void* OrNull(const std::optional<size_t>& offset) const {
    return offset.has_value() ? At(*offset) : nullptr;
  }

  LinearWeights Linear(const LinearOffsets& offsets) const {
    return {.format = kernels::WeightFormatOf(dtype_),
            .data = At(offsets.weight),
            .bias = OrNull(offsets.bias),
            .out_features = offsets.out_features,
            .in_features = offsets.in_features};
  }

  absl::Status FillRegions(runtime::Stream& stream, uint64_t seed, const RandomFill& fill,
                           const std::vector<std::byte>& ones) {
    for (size_t i = 0; i < layout_.regions.size(); ++i) {
      const WeightRegion& region = layout_.regions[i];
      if (region.kind == WeightKind::kNorm) {
        REPRISE_RETURN_IF_ERROR(
            stream.CopyToDevice(At(region.offset), ones.data(),
                                static_cast<size_t>(region.count) * runtime::SizeOf(dtype_)));
      } else {
        REPRISE_RETURN_IF_ERROR(
            fill(stream, At(region.offset), dtype_, region.count, MixSeed(seed, i), kRandomStddev));
      }
    }
    return absl::OkStatus();
  }

  absl::Status FillRope(runtime::Stream& stream) {
    const std::vector<float> frequencies = RopeInverseFrequencies(spec_);
    const absl::Status copied = stream.CopyToDevice(At(layout_.rope), frequencies.data(),
                                                    frequencies.size() * sizeof(float));
    const absl::Status drained = stream.Synchronize();
    return copied.ok() ? drained : copied;
  }

  runtime::Device& device_;
  const ModelSpec& spec_;
  const runtime::DType dtype_;
  const WeightLayout layout_;
  runtime::DeviceBuffer buffer_;
};

absl::StatusOr<std::unique_ptr<ModelWeights>> ModelWeights::Load(runtime::Device& device,
                                                                 const ModelSpec& spec,
                                                                 const Checkpoint& checkpoint,
                                                                 runtime::DType dtype,
                                                                 const LoadProgress& progress) {
  REPRISE_RETURN_IF_ERROR(ValidateModelSpec(spec));
  ModelWeightsBuilder builder(device, spec, dtype);
  std::vector<const TensorView*> views;
  for (const WeightSlot& slot : builder.layout().slots) {
    REPRISE_ASSIGN_OR_RETURN(const TensorView* view, FindTensor(checkpoint, slot));
    views.push_back(view);
  }
  REPRISE_RETURN_IF_ERROR(CheckLeftovers(checkpoint, spec, builder.layout()));
  REPRISE_RETURN_IF_ERROR(builder.Allocate());
  REPRISE_RETURN_IF_ERROR(builder.FillFrom(views, progress));
  return builder.Finish();
}

absl::StatusOr<std::unique_ptr<ModelWeights>> ModelWeights::Random(runtime::Device& device,
                                                                   const ModelSpec& spec,
                                                                   runtime::DType dtype,
                                                                   uint64_t seed,
                                                                   const RandomFill& fill) {
  REPRISE_RETURN_IF_ERROR(ValidateModelSpec(spec));
  if (fill == nullptr) {
    return absl::InvalidArgumentError("fill: got no function, allowed one that fills");
  }
  ModelWeightsBuilder builder(device, spec, dtype);
  REPRISE_RETURN_IF_ERROR(builder.Allocate());
  REPRISE_RETURN_IF_ERROR(builder.FillRandom(seed, fill));
  return builder.Finish();
}

size_t ModelWeights::BytesFor(const ModelSpec& spec, runtime::DType dtype) {
  return PlanWeights(spec, dtype).bytes;
}

}  // namespace reprise::models
