// SPDX-License-Identifier: Apache-2.0
#include "service/wire/model_sizes.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/weight_format.h"
#include "runtime/status_macros.h"

namespace reprise::service {
namespace {

using models::ModelSpec;

constexpr char kE4m3[] = "fp8_e4m3", kE4m3Rounded[] = "fp8_e4m3_rounded", kInt4[] = "int4",
               kMxfp4[] = "mxfp4";

int64_t Size(uint64_t wire) {
  return static_cast<int64_t>(std::min<uint64_t>(wire, std::numeric_limits<int64_t>::max()));
}

void LayersToWire(const std::vector<bool>& layers, google::protobuf::RepeatedField<bool>* wire) {
  for (const bool layer : layers) wire->Add(layer);
}

void MambaToWire(const models::MambaSpec& mamba, v1::MambaSizes* wire) {
  wire->set_num_heads(static_cast<uint64_t>(mamba.num_heads));
  wire->set_head_dim(static_cast<uint64_t>(mamba.head_dim));
  wire->set_num_groups(static_cast<uint64_t>(mamba.num_groups));
  wire->set_state_size(static_cast<uint64_t>(mamba.state_size));
  wire->set_conv_width(static_cast<uint64_t>(mamba.conv_width));
  wire->set_conv_bias(mamba.conv_bias);
  wire->set_proj_bias(mamba.proj_bias);
}

models::MambaSpec MambaFromWire(const v1::MambaSizes& wire) {
  return {.num_heads = Size(wire.num_heads()),
          .head_dim = Size(wire.head_dim()),
          .num_groups = Size(wire.num_groups()),
          .state_size = Size(wire.state_size()),
          .conv_width = Size(wire.conv_width()),
          .conv_bias = wire.conv_bias(),
          .proj_bias = wire.proj_bias()};
}

void QuantizationToWire(const models::WeightQuantization& quantization,
                        v1::QuantizedWeights* wire) {
  wire->set_format(std::string(NameOf(quantization.format())));
  wire->set_group_size(static_cast<uint32_t>(quantization.group_size));
  wire->set_reorders_inputs(quantization.reorders_inputs);
  for (const uint8_t linears : quantization.left_out) wire->add_left_out(linears);
}

absl::StatusOr<models::WeightQuantization> FormatFromWire(const v1::QuantizedWeights& wire) {
  if (wire.format() == kE4m3) return models::WeightQuantization{};
  if (wire.format() == kE4m3Rounded)
    return models::WeightQuantization{.means_rounding = true, .rounds_activations = true};
  if (wire.format() != kInt4 || wire.group_size() > 1u << 20) {
    return absl::InvalidArgumentError(absl::StrCat(
        "quantized_weights: got \"", wire.format(), "\" and groups of ", wire.group_size(),
        ", allowed: \"", kE4m3, "\", \"", kE4m3Rounded, "\", \"", kInt4, "\", \"", kMxfp4, "\""));
  }
  return models::WeightQuantization{.storage = models::WeightStorage::kPackedInt4,
                                    .group_size = static_cast<int32_t>(wire.group_size()),
                                    .symmetric = true,
                                    .reorders_inputs = wire.reorders_inputs()};
}

absl::StatusOr<models::WeightQuantization> QuantizationFromWire(const v1::QuantizedWeights& wire) {
  REPRISE_ASSIGN_OR_RETURN(models::WeightQuantization quantization, FormatFromWire(wire));
  for (const uint32_t linears : wire.left_out()) {
    if (linears >= 1u << models::kNumBlockLinears)
      return absl::InvalidArgumentError(absl::StrCat("quantized_weights.left_out: got ", linears,
                                                     ", allowed bits of ", models::kNumBlockLinears,
                                                     " linear layers"));
    quantization.left_out.push_back(static_cast<uint8_t>(linears));
  }
  return quantization;
}

}  // namespace

void ModelSizesToWire(const ModelSpec& spec, v1::ModelSizes* wire) {
  wire->set_architecture(spec.architecture);
  wire->set_vocab_size(static_cast<uint64_t>(spec.vocab_size));
  wire->set_hidden_size(static_cast<uint64_t>(spec.hidden_size));
  wire->set_intermediate_size(static_cast<uint64_t>(spec.intermediate_size));
  wire->set_num_layers(static_cast<uint64_t>(spec.num_layers));
  wire->set_num_heads(static_cast<uint64_t>(spec.num_heads));
  wire->set_num_kv_heads(static_cast<uint64_t>(spec.num_kv_heads));
  wire->set_head_dim(static_cast<uint64_t>(spec.head_dim));
  wire->set_max_position_embeddings(static_cast<uint64_t>(spec.max_position_embeddings));
  wire->set_num_rope_tables(static_cast<uint64_t>(spec.NumRopeTables()));
  wire->set_tie_word_embeddings(spec.tie_word_embeddings);
  wire->set_qkv_bias(spec.qkv_bias);
  wire->set_o_bias(spec.o_bias);
  wire->set_mlp_bias(spec.mlp_bias);
  wire->set_qk_norm(spec.qk_norm);
  wire->set_whole_qk_norm(spec.whole_qk_norm);
  wire->set_attention_sinks(spec.attention_sinks);
  wire->set_logits_softcap(spec.logits_softcap != 0.0);
  wire->set_limited_activation(spec.activation == models::Activation::kLimited);
  wire->set_num_experts(static_cast<uint64_t>(spec.num_experts));
  wire->set_experts_per_token(static_cast<uint64_t>(spec.experts_per_token));
  wire->set_expert_intermediate_size(static_cast<uint64_t>(spec.expert_intermediate_size));
  LayersToWire(spec.sparse, wire->mutable_sparse());
  wire->set_sliding_window(static_cast<uint64_t>(spec.sliding_window));
  LayersToWire(spec.slides, wire->mutable_slides());
  LayersToWire(spec.mamba_layers, wire->mutable_mamba_layers());
  if (spec.mamba) MambaToWire(*spec.mamba, wire->mutable_mamba());
  if (spec.weight_quantization)
    QuantizationToWire(*spec.weight_quantization, wire->mutable_quantized_weights());
  if (spec.mxfp4_experts) wire->mutable_quantized_weights()->set_format(kMxfp4);
}

absl::StatusOr<ModelSpec> ModelSizesFromWire(const v1::ModelSizes& wire) {
  ModelSpec spec;
  spec.architecture = wire.architecture();
  spec.vocab_size = Size(wire.vocab_size());
  spec.hidden_size = Size(wire.hidden_size());
  spec.intermediate_size = Size(wire.intermediate_size());
  spec.num_layers = Size(wire.num_layers());
  spec.num_heads = Size(wire.num_heads());
  spec.num_kv_heads = Size(wire.num_kv_heads());
  spec.head_dim = Size(wire.head_dim());
  spec.max_position_embeddings = Size(wire.max_position_embeddings());
  spec.num_experts = Size(wire.num_experts());
  spec.experts_per_token = Size(wire.experts_per_token());
  spec.expert_intermediate_size = Size(wire.expert_intermediate_size());
  spec.sparse = {wire.sparse().begin(), wire.sparse().end()};
  spec.tie_word_embeddings = wire.tie_word_embeddings();
  spec.qkv_bias = wire.qkv_bias();
  spec.o_bias = wire.o_bias();
  spec.mlp_bias = wire.mlp_bias();
  spec.qk_norm = wire.qk_norm();
  spec.whole_qk_norm = wire.whole_qk_norm();
  spec.attention_sinks = wire.attention_sinks();
  spec.sliding_window = Size(wire.sliding_window());
  spec.slides = {wire.slides().begin(), wire.slides().end()};
  if (wire.num_rope_tables() > 1) spec.sliding_rope = models::RopeSpec();
  spec.attention_multiplier = 1.0;
  spec.logits_softcap = wire.logits_softcap() ? 1.0 : 0.0;
  if (wire.limited_activation()) {
    spec.activation = models::Activation::kLimited;
    spec.gate_limit = 1.0;
  }
  spec.mamba_layers = {wire.mamba_layers().begin(), wire.mamba_layers().end()};
  if (wire.has_mamba()) spec.mamba = MambaFromWire(wire.mamba());
  spec.mxfp4_experts = wire.quantized_weights().format() == kMxfp4;
  if (wire.has_quantized_weights() && !spec.mxfp4_experts) {
    REPRISE_ASSIGN_OR_RETURN(spec.weight_quantization,
                             QuantizationFromWire(wire.quantized_weights()));
  }
  REPRISE_RETURN_IF_ERROR(models::ValidateModelSpec(spec));
  return spec;
}

}  // namespace reprise::service
