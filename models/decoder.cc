// SPDX-License-Identifier: Apache-2.0
#include "models/decoder.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "models/config/architectures.h"
#include "models/layers/embedding_layer.h"
#include "models/layers/experts_layer.h"
#include "models/layers/lm_head_layer.h"
#include "models/layers/mamba_layer.h"
#include "models/layers/mlp_layer.h"
#include "models/layers/norm_layer.h"
#include "models/layers/post_norm_layer.h"
#include "runtime/check.h"
#include "runtime/status_macros.h"

namespace reprise::models {
namespace {

constexpr char kEmbedding[] = "model.embed_tokens.weight";
constexpr char kLmHead[] = "lm_head";

// The layer of a block's MLP, whatever it is made of.
std::unique_ptr<Layer> MlpOrExperts(const ModelSpec& spec, const Architecture& architecture,
                                    const LayerEntry& entry, int64_t block,
                                    const BranchForm& form) {
  const auto name_of = [&](const char* layer) {
    return absl::StrCat("model.layers.", block, ".", layer);
  };
  const bool shares = entry.kind == LayerKind::kExperts && architecture.shared_mlp != nullptr;
  const bool has_experts = entry.kind == LayerKind::kExperts && spec.HasExperts(block);
  std::unique_ptr<MlpLayer> mlp;
  if (shares || !has_experts)
    mlp = std::make_unique<MlpLayer>(spec, name_of(shares ? architecture.shared_mlp : entry.name),
                                     block, architecture.mlp_tensors, form);
  if (!has_experts) return mlp;
  return std::make_unique<ExpertsLayer>(spec, name_of(entry.name), architecture.expert_tensors,
                                        form, std::move(mlp));
}

}  // namespace

Decoder::Decoder(const ModelSpec& spec) : spec_(spec) {
  const std::vector<int64_t> windows = spec.Windows();
  REPRISE_CHECK(windows.size() <= kernels::kMaxAttentionWindows);
  attention_plan_.num_windows = static_cast<uint32_t>(windows.size());
  for (size_t w = 0; w < windows.size(); ++w)
    attention_plan_.windows[w] = static_cast<uint32_t>(windows[w]);
}

absl::StatusOr<std::unique_ptr<Decoder>> Decoder::Create(const ModelSpec& spec) {
  REPRISE_RETURN_IF_ERROR(ValidateModelSpec(spec));
  std::unique_ptr<Decoder> decoder(new Decoder(spec));
  decoder->AddLayers();
  const WeightPlan weights = decoder->PlanWeights(spec.checkpoint_dtype);
  REPRISE_RETURN_IF_ERROR(weights.status());
  decoder->elements_read_ = weights.elements_read();
  decoder->quantized_bytes_read_ = weights.quantized_bytes_read();
  return decoder;
}

void Decoder::AddLayers() {
  layers_.push_back(std::make_unique<EmbeddingLayer>(spec_, kEmbedding));
  const Architecture& architecture = *FindArchitecture(spec_.architecture);
  Layer* before = nullptr;    // whose branch is still to be added
  NormLayer* norm = nullptr;  // of the residual stream as it is
  for (int64_t block = 0; block < spec_.num_layers; ++block) {
    for (const LayerEntry& entry : architecture.BlockOf(block)) {
      std::string name = absl::StrCat("model.layers.", block, ".", entry.name);
      const BranchForm form{.reads_residual = norm == nullptr,
                            .fused_tensors = architecture.fused_tensors};
      if (entry.kind == LayerKind::kNorm) {
        auto layer = std::make_unique<NormLayer>(spec_, name + ".weight", before);
        norm = layer.get();
        if (before != nullptr) before->set_norm_behind(norm);
        before = nullptr;
        layers_.push_back(std::move(layer));
        continue;
      }
      if (entry.kind == LayerKind::kPostNorm) {
        layers_.push_back(std::make_unique<PostNormLayer>(spec_, name + ".weight"));
        norm = nullptr;
        before = nullptr;
        continue;
      }
      std::unique_ptr<Layer> layer = MakeBranch(architecture, entry, block, std::move(name), form);
      if (layer == nullptr) continue;
      before = layer.get();
      before->set_norm_before(norm);
      if (norm != nullptr) norm->set_reader(before);
      norm = nullptr;
      layers_.push_back(std::move(layer));
    }
  }
  layers_.push_back(std::make_unique<LmHeadLayer>(
      spec_,
      LmHeadLayer::Names{.norm = architecture.final_norm, .head = kLmHead, .embedding = kEmbedding},
      /*adds_branch=*/before != nullptr));
}

std::unique_ptr<Layer> Decoder::MakeBranch(const Architecture& architecture,
                                           const LayerEntry& entry, int64_t block, std::string name,
                                           const BranchForm& form) const {
  switch (entry.kind) {
    case LayerKind::kAttention:
      if (spec_.IsMamba(block)) return nullptr;
      return std::make_unique<AttentionLayer>(spec_, std::move(name), block, form);
    case LayerKind::kMamba:
      if (!spec_.IsMamba(block)) return nullptr;
      return std::make_unique<MambaLayer>(spec_, std::move(name), block, form);
    case LayerKind::kExperts:
    case LayerKind::kMlp:
      return MlpOrExperts(spec_, architecture, entry, block, form);
    case LayerKind::kNorm:
    case LayerKind::kPostNorm:
      break;
  }
  return nullptr;
}

WeightPlan Decoder::PlanWeights(runtime::DType dtype, std::optional<runtime::DType> kv_dtype,
                                kernels::WeightLayout layout) {
  WeightPlan plan(dtype, kv_dtype.value_or(dtype), layout, spec_.weight_quantization,
                  spec_.architecture);
  for (const auto& layer : layers_) layer->DeclareWeights(plan);
  if (spec_.beside_vision) plan.TakeTextPart();
  return plan;
}

void Decoder::DeclareBuffers(const LayerBuffers& buffers) {
  const kernels::StepLimits& limits = buffers.limits;
  const size_t hidden = limits.max_step_tokens * static_cast<size_t>(spec_.hidden_size);
  const runtime::DType dtype = buffers.kernels.dtype;
  buffers.activations.AddElements(&activations_.residual, hidden, dtype, "residual");
  buffers.activations.AddElements(&activations_.normed, hidden, dtype, "normed");
  buffers.activations.AddElements(&activations_.branch, hidden, dtype, "branch");
  buffers.scratch.Add(
      &activations_.rope,
      limits.max_step_tokens * static_cast<size_t>(spec_.head_dim * spec_.NumRopeTables()), "rope");
  buffers.scratch.Add(&activations_.logits,
                      MaxLogits(limits) * static_cast<size_t>(spec_.vocab_size), "logits");
  max_draft_tokens_ = limits.max_draft_tokens;
  max_prompt_logprobs_ = limits.max_prompt_logprobs;
  for (const auto& layer : layers_) layer->DeclareBuffers(buffers);
}

absl::Status Decoder::Enqueue(const DecoderInputs& inputs) const {
  const LayerContext context{inputs, activations_,
                             MaxLogits(inputs.shape, max_draft_tokens_, max_prompt_logprobs_)};
  for (const auto& layer : layers_) REPRISE_RETURN_IF_ERROR(layer->Enqueue(context));
  return absl::OkStatus();
}

std::vector<RowStateBuffer> Decoder::row_state() const {
  std::vector<RowStateBuffer> buffers;
  for (const std::unique_ptr<Layer>& layer : layers_) layer->ListRowState(&buffers);
  return buffers;
}

StepBytes Decoder::BytesOfStep(runtime::DType dtype, runtime::DType kv_dtype,
                               const StepRowCounts& counts, double attended) const {
  const StepTraffic traffic{.rows = counts.decoding + counts.prompt_tokens,
                            .states_read = counts.decoding,
                            .states_written = counts.decoding + counts.prompts,
                            .attended = attended,
                            .element_bytes = runtime::SizeOf(dtype),
                            .kv_element_bytes = runtime::SizeOf(kv_dtype)};
  StepBytes bytes{.weights = static_cast<uint64_t>(elements_read_) * traffic.element_bytes +
                             static_cast<uint64_t>(quantized_bytes_read_)};
  for (const auto& layer : layers_) layer->AddBytes(traffic, &bytes);
  return bytes;
}

int64_t NumParameters(const ModelSpec& spec) {
  const auto decoder = Decoder::Create(spec);
  REPRISE_CHECK(decoder.ok());
  return (*decoder)->PlanWeights(spec.checkpoint_dtype).num_parameters();
}

absl::StatusOr<StepBytes> BytesOfStep(const ModelSpec& spec, runtime::DType dtype,
                                      runtime::DType kv_dtype, const StepRowCounts& counts,
                                      double attended) {
  REPRISE_ASSIGN_OR_RETURN(const auto decoder, Decoder::Create(spec));
  return decoder->BytesOfStep(dtype, kv_dtype, counts, attended);
}

}  // namespace reprise::models
