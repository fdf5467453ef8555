// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/tiny_model.h"

#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/check.h"
#include "runtime/status_macros.h"
#include "tests/testing/safetensors_writer.h"

namespace reprise::testing {
namespace {

using runtime::DType;

struct Architecture {
  const char* name;
  const char* class_name;
  bool has_window = false;
  bool lists_layers = false;   // may slide in some layers only
  bool qkv_bias = false;       // q, k and v have biases, whatever the options say
  bool qk_norm = false;        // norms over heads
  bool whole_qk_norm = false;  // those are over all heads
  bool pre_norm = true;
  bool post_norm = false;  // norms behind layers
  bool fused = false;      // q, k and v are one tensor, gate and up another
  bool gemma = false;      // weights of norms count one more; the config's numbers are Gemma's
  bool granite = false;    // multipliers
  bool sinks = false;      // of attention
  bool experts = false;
  bool hybrid = false;  // state space models
  // Names of tensors.
  const char* second_norm = "post_attention_layernorm";
  const char* mlp = "mlp";
  const char* final_norm = "norm";
};
constexpr Architecture kArchitectures[] = {
    {.name = "llama", .class_name = "LlamaForCausalLM"},
    {.name = "granite", .class_name = "GraniteForCausalLM", .granite = true},
    {.name = "mistral", .class_name = "MistralForCausalLM", .has_window = true},
    {.name = "ministral",
     .class_name = "MinistralForCausalLM",
     .has_window = true,
     .lists_layers = true},
    {.name = "qwen2",
     .class_name = "Qwen2ForCausalLM",
     .has_window = true,
     .lists_layers = true,
     .qkv_bias = true},
    {.name = "qwen3",
     .class_name = "Qwen3ForCausalLM",
     .has_window = true,
     .lists_layers = true,
     .qk_norm = true},
    {.name = "gemma2",
     .class_name = "Gemma2ForCausalLM",
     .has_window = true,
     .lists_layers = true,
     .post_norm = true,
     .gemma = true},
    {.name = "gemma3",
     .class_name = "Gemma3ForCausalLM",
     .has_window = true,
     .lists_layers = true,
     .qk_norm = true,
     .post_norm = true,
     .gemma = true},
    {.name = "phi3", .class_name = "Phi3ForCausalLM", .has_window = true, .fused = true},
    {.name = "olmo2",
     .class_name = "Olmo2ForCausalLM",
     .whole_qk_norm = true,
     .pre_norm = false,
     .post_norm = true},
    {.name = "mixtral", .class_name = "MixtralForCausalLM", .has_window = true, .experts = true},
    {.name = "qwen3_moe", .class_name = "Qwen3MoeForCausalLM", .qk_norm = true, .experts = true},
    {.name = "granitemoe", .class_name = "GraniteMoeForCausalLM", .granite = true, .experts = true},
    {.name = "gpt_oss",
     .class_name = "GptOssForCausalLM",
     .has_window = true,
     .lists_layers = true,
     .sinks = true,
     .experts = true},
    {.name = "granitemoehybrid",
     .class_name = "GraniteMoeHybridForCausalLM",
     .granite = true,
     .experts = true,
     .hybrid = true},
    {.name = "bamba",
     .class_name = "BambaForCausalLM",
     .hybrid = true,
     .second_norm = "pre_ff_layernorm",
     .mlp = "feed_forward",
     .final_norm = "final_layernorm"},
};

// Sizes of a tiny Mamba-2 layer.
constexpr int64_t kMambaGroups = 2, kMambaState = 12, kMambaWidth = 4;
int64_t MambaHeads(const TinyModelOptions& o) { return o.num_heads; }
int64_t MambaInner(const TinyModelOptions& o) { return 2 * o.hidden_size; }
int64_t SharedSize(const TinyModelOptions& o) { return o.intermediate_size + 16; }
bool IsMamba(const TinyModelOptions& o, int64_t layer);

const Architecture* FindArchitecture(const TinyModelOptions& o) {
  for (const Architecture& known : kArchitectures)
    if (o.architecture == known.name) return &known;
  return nullptr;
}

bool IsMamba(const TinyModelOptions& o, int64_t layer) {
  return FindArchitecture(o)->hybrid && layer % 2 == 0;
}

// Which layers have attention, and what else there is but Mamba. Bamba turns half of each head.
std::string AttentionOfHybridJson(const TinyModelOptions& o) {
  std::vector<std::string> types, attention;
  for (int64_t layer = 0; layer < o.num_layers; ++layer) {
    types.emplace_back(IsMamba(o, layer) ? "\"mamba\"" : "\"attention\"");
    if (!IsMamba(o, layer)) attention.push_back(absl::StrCat(layer));
  }
  if (o.architecture == "bamba")
    return absl::StrCat(",\"partial_rotary_factor\":0.5,\"attn_layer_indices\":[",
                        absl::StrJoin(attention, ","), "]");
  return absl::StrCat(",\"position_embedding_type\":\"nope\",\"shared_intermediate_size\":",
                      SharedSize(o), ",\"layer_types\":[", absl::StrJoin(types, ","), "]");
}

std::string HybridJson(const TinyModelOptions& o) {
  return absl::StrCat(AttentionOfHybridJson(o), ",\"mamba_n_heads\":", MambaHeads(o),
                      ",\"mamba_d_state\":", kMambaState, ",\"mamba_n_groups\":", kMambaGroups,
                      ",\"mamba_d_conv\":", kMambaWidth, ",\"mamba_expand\":2");
}

// What the architecture's config says of its window.
std::string WindowJson(const TinyModelOptions& o) {
  const bool switched = o.architecture == "qwen2" || o.architecture == "qwen3";
  if (o.sliding_window == 0 && FindArchitecture(o)->gemma) {
    const std::vector<std::string> types(static_cast<size_t>(o.num_layers), "\"full_attention\"");
    return absl::StrCat(",\"sliding_window\":null,\"layer_types\":[", absl::StrJoin(types, ","),
                        "]");
  }
  if (o.sliding_window == 0) return switched ? "" : ",\"sliding_window\":null";
  std::string json = absl::StrCat(",\"sliding_window\":", o.sliding_window);
  if (switched) absl::StrAppend(&json, ",\"use_sliding_window\":true,\"max_window_layers\":0");
  std::vector<bool> slides = o.slides;
  if (slides.empty() && FindArchitecture(o)->gemma)
    slides.assign(static_cast<size_t>(o.num_layers), true);
  if (slides.empty()) return json;
  const std::string types = absl::StrJoin(slides, ",", [](std::string* out, bool slides) {
    absl::StrAppend(out, slides ? "\"sliding_attention\"" : "\"full_attention\"");
  });
  return absl::StrCat(json, ",\"layer_types\":[", types, "]");
}

// What configs of Phi-3 and Phi-4 say of longrope.
std::string LongRopeJson(const TinyModelOptions& o) {
  const auto turned = static_cast<double>(2 * o.short_factors.size());
  return absl::StrCat(",\"original_max_position_embeddings\":32,\"partial_rotary_factor\":",
                      turned / static_cast<double>(o.head_dim),
                      ",\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":[",
                      absl::StrJoin(o.short_factors, ","), "],\"long_factor\":[",
                      absl::StrJoin(o.long_factors, ","), "]}");
}

std::string ExpertsJson(const TinyModelOptions& o) {
  const std::string json = absl::StrCat(",\"num_experts_per_tok\":", o.experts_per_token);
  // A limit that is met.
  if (o.architecture == "gpt_oss")
    return absl::StrCat(json, ",\"num_local_experts\":", o.num_experts,
                        ",\"experts_per_token\":", o.experts_per_token,
                        ",\"swiglu_limit\":1.5,\"rope_scaling\":{\"rope_type\":\"default\"}");
  if (o.architecture != "qwen3_moe")
    return absl::StrCat(json, ",\"num_local_experts\":", o.num_experts);
  return absl::StrCat(json, ",\"num_experts\":", o.num_experts,
                      ",\"moe_intermediate_size\":", o.intermediate_size / 2,
                      ",\"mlp_only_layers\":[0]");
}

// As compressed-tensors lists what it leaves out.
std::string IgnoreJson(const TinyModelOptions& o) {
  std::string json = "\"ignore\":[\"lm_head\"";
  for (const std::string& layer : o.left_out) absl::StrAppend(&json, ",\"", layer, "\"");
  return json + "],";
}

std::string ConfigJson(const TinyModelOptions& o) {
  const bool granite = FindArchitecture(o)->granite;
  const char* dtype = o.dtype == DType::kF32    ? "float32"
                      : o.dtype == DType::kBf16 ? "bfloat16"
                                                : "float16";
  const std::string eos = o.eos_token_ids.size() == 1
                              ? absl::StrCat(o.eos_token_ids[0])
                              : absl::StrCat("[", absl::StrJoin(o.eos_token_ids, ","), "]");
  auto boolean = [](bool value) { return value ? "true" : "false"; };
  std::string json = absl::StrCat(
      "{\"architectures\":[\"", FindArchitecture(o)->class_name, "\"],\"model_type\":\"",
      o.architecture == "gemma3" ? "gemma3_text" : o.architecture,
      "\",\"vocab_size\":", o.vocab_size, ",\"hidden_size\":", o.hidden_size,
      ",\"intermediate_size\":", o.intermediate_size, ",\"num_hidden_layers\":", o.num_layers,
      ",\"num_attention_heads\":", o.num_heads, ",\"num_key_value_heads\":", o.num_kv_heads,
      ",\"head_dim\":", o.head_dim);
  absl::StrAppend(
      &json, ",\"max_position_embeddings\":", o.max_position_embeddings,
      ",\"rms_norm_eps\":1e-05,\"rope_theta\":10000.0,\"hidden_act\":\"",
      FindArchitecture(o)->gemma ? "gelu_pytorch_tanh" : "silu", "\"",
      ",\"attention_bias\":", boolean(o.attention_bias || FindArchitecture(o)->qkv_bias),
      ",\"mlp_bias\":", boolean(o.mlp_bias),
      ",\"tie_word_embeddings\":", boolean(o.tie_word_embeddings),
      o.eos_token_ids.empty() ? "" : absl::StrCat(",\"eos_token_id\":", eos), ",\"torch_dtype\":\"",
      dtype, "\"");
  if (FindArchitecture(o)->has_window) absl::StrAppend(&json, WindowJson(o));
  if (!o.short_factors.empty()) absl::StrAppend(&json, LongRopeJson(o));
  if (FindArchitecture(o)->gemma) {
    absl::StrAppend(&json, ",\"query_pre_attn_scalar\":6,\"final_logit_softcapping\":",
                    o.architecture == "gemma2" ? "4.0,\"attn_logit_softcapping\":3.0"
                                               : "null,\"rope_local_base_freq\":500.0");
  }
  if (FindArchitecture(o)->experts) absl::StrAppend(&json, ExpertsJson(o));
  if (FindArchitecture(o)->hybrid) absl::StrAppend(&json, HybridJson(o));
  if (granite) {
    absl::StrAppend(&json, ",\"embedding_multiplier\":3.0,\"attention_multiplier\":0.25",
                    ",\"residual_multiplier\":0.75,\"logits_scaling\":2.0");
  }
  if (o.fp8_weights)
    absl::StrAppend(
        &json, ",\"quantization_config\":{\"quant_method\":\"compressed-tensors\",",
        "\"format\":\"float-quantized\",", IgnoreJson(o), "\"config_groups\":{\"group_0\":{",
        "\"targets\":[\"Linear\"],\"weights\":{\"num_bits\":8,\"type\":\"float\",\"symmetric\":"
        "true,",
        "\"dynamic\":false,\"strategy\":\"channel\"},\"input_activations\":{\"num_bits\":8,",
        "\"type\":\"float\",\"dynamic\":true,\"strategy\":\"token\"}}}}");
  if (o.mxfp4_experts)
    absl::StrAppend(&json, ",\"quantization_config\":{\"quant_method\":\"mxfp4\",",
                    "\"modules_to_not_convert\":[\"model.layers.*.self_attn\",",
                    "\"model.layers.*.mlp.router\",\"model.embed_tokens\",\"lm_head\"]}");
  if (o.int4_weights)
    absl::StrAppend(
        &json, ",\"quantization_config\":{\"quant_method\":\"compressed-tensors\",",
        "\"format\":\"pack-quantized\",", IgnoreJson(o), "\"config_groups\":{\"group_0\":{",
        "\"targets\":[\"Linear\"],\"weights\":{\"num_bits\":4,\"type\":\"int\",\"symmetric\":"
        "false,\"dynamic\":false,",
        o.reordered_inputs ? "\"strategy\":\"group\",\"group_size\":32,\"actorder\":\"group\""
                           : "\"strategy\":\"channel\"",
        "}}}}");
  return absl::StrCat(json, "}\n");
}

void AddLinear(SafetensorsWriter& writer, const TinyModelOptions& o, const std::string& name,
               int64_t out, int64_t in, bool bias) {
  const bool left_out = std::find(o.left_out.begin(), o.left_out.end(), name) != o.left_out.end();
  if (o.fp8_weights && !left_out) {
    writer.AddFp8Matrix(name + ".weight", out, in);
  } else if (o.int4_weights && !left_out) {
    writer.AddInt4Matrix(name, out, in, o.reordered_inputs);
  } else {
    writer.AddMatrix(name + ".weight", out, in);
  }
  if (bias) writer.AddBias(name + ".bias", out);
}

// Routers spread their logits, so that experts differ in what they count.
void AddExperts(SafetensorsWriter& writer, const TinyModelOptions& o, const std::string& layer) {
  const int64_t hidden = o.hidden_size, intermediate = o.intermediate_size;
  if (o.architecture == "gpt_oss") {
    const std::string experts = layer + "mlp.experts.";
    writer.AddMatrix(layer + "mlp.router.weight", o.num_experts, hidden);
    writer.AddBias(layer + "mlp.router.bias", o.num_experts);
    writer.AddBiases(experts + "gate_up_proj_bias", o.num_experts, 2 * intermediate);
    writer.AddBiases(experts + "down_proj_bias", o.num_experts, hidden);
    if (o.mxfp4_experts) {
      writer.AddMxfp4Stack(experts + "gate_up_proj", o.num_experts, 2 * intermediate, hidden);
      writer.AddMxfp4Stack(experts + "down_proj", o.num_experts, hidden, intermediate);
    } else {
      // Inputs first.
      writer.AddStack(experts + "gate_up_proj", o.num_experts, hidden, 2 * intermediate);
      writer.AddStack(experts + "down_proj", o.num_experts, intermediate, hidden);
    }
    return;
  }
  if (o.architecture == "granitemoehybrid") {
    AddLinear(writer, o, layer + "shared_mlp.input_linear", 2 * SharedSize(o), hidden, false);
    AddLinear(writer, o, layer + "shared_mlp.output_linear", hidden, SharedSize(o), false);
    if (o.num_experts == 0) return;
  }
  if (FindArchitecture(o)->granite) {
    writer.AddMatrix(layer + "block_sparse_moe.router.layer.weight", o.num_experts, hidden);
    writer.AddStack(layer + "block_sparse_moe.input_linear.weight", o.num_experts, 2 * intermediate,
                    hidden);
    writer.AddStack(layer + "block_sparse_moe.output_linear.weight", o.num_experts, hidden,
                    intermediate);
    return;
  }
  const bool mixtral = o.architecture == "mixtral";
  const std::string moe = layer + (mixtral ? "block_sparse_moe." : "mlp.");
  writer.AddMatrix(moe + "gate.weight", o.num_experts, hidden);
  for (int64_t expert = 0; expert < o.num_experts; ++expert) {
    const std::string of_expert = absl::StrCat(moe, "experts.", expert, ".");
    const int64_t size = mixtral ? intermediate : intermediate / 2;
    AddLinear(writer, o, of_expert + (mixtral ? "w1" : "gate_proj"), size, hidden, false);
    AddLinear(writer, o, of_expert + (mixtral ? "w3" : "up_proj"), size, hidden, false);
    AddLinear(writer, o, of_expert + (mixtral ? "w2" : "down_proj"), hidden, size, false);
  }
}

// Time steps from short to long, and states that fade at several rates.
void AddMamba(SafetensorsWriter& writer, const TinyModelOptions& o, const std::string& mamba) {
  const int64_t inner = MambaInner(o), heads = MambaHeads(o);
  const int64_t conv = inner + 2 * kMambaGroups * kMambaState;
  AddLinear(writer, o, mamba + "in_proj", inner + conv + heads, o.hidden_size, false);
  writer.AddNumbers(mamba + "conv1d.weight", {conv, 1, kMambaWidth}, 0.0f, 0.8f);
  writer.AddBias(mamba + "conv1d.bias", conv);
  writer.AddNumbers(mamba + "A_log", {heads}, 0.0f, 1.0f);
  writer.AddNumbers(mamba + "D", {heads}, 0.5f, 0.5f);
  writer.AddNumbers(mamba + "dt_bias", {heads}, -1.0f, 1.0f);
  writer.AddNorm(mamba + "norm.weight", inner, 1.0f);
  AddLinear(writer, o, mamba + "out_proj", o.hidden_size, inner, false);
}

void AddAttention(SafetensorsWriter& writer, const TinyModelOptions& o, const std::string& layer) {
  const Architecture& architecture = *FindArchitecture(o);
  const bool qkv_bias = o.attention_bias || architecture.qkv_bias;
  const int64_t q_size = o.num_heads * o.head_dim;
  const int64_t kv_size = o.num_kv_heads * o.head_dim;
  const auto add_norm = [&](const char* name, int64_t size) {
    writer.AddNorm(layer + name + ".weight", size, architecture.gemma ? 0.0f : 1.0f);
  };
  if (architecture.fused) {
    AddLinear(writer, o, layer + "self_attn.qkv_proj", q_size + 2 * kv_size, o.hidden_size, false);
  } else {
    AddLinear(writer, o, layer + "self_attn.q_proj", q_size, o.hidden_size, qkv_bias);
    AddLinear(writer, o, layer + "self_attn.k_proj", kv_size, o.hidden_size, qkv_bias);
    AddLinear(writer, o, layer + "self_attn.v_proj", kv_size, o.hidden_size, qkv_bias);
  }
  if (architecture.qk_norm || architecture.whole_qk_norm) {
    add_norm("self_attn.q_norm", architecture.whole_qk_norm ? q_size : o.head_dim);
    add_norm("self_attn.k_norm", architecture.whole_qk_norm ? kv_size : o.head_dim);
  }
  AddLinear(writer, o, layer + "self_attn.o_proj", o.hidden_size, q_size, o.attention_bias);
  if (architecture.sinks) writer.AddSinks(layer + "self_attn.sinks", o.num_heads);
  writer.AddScales(layer + "self_attn.k_scale", o.k_scales);
  writer.AddScales(layer + "self_attn.v_proj.v_scale", o.v_scales);
}

std::string Weights(const TinyModelOptions& o) {
  SafetensorsWriter writer(o.dtype, o.seed);
  const Architecture& architecture = *FindArchitecture(o);
  writer.AddEmbedding("model.embed_tokens.weight", o.vocab_size, o.hidden_size);
  for (int64_t i = 0; i < o.num_layers; ++i) {
    const std::string layer = absl::StrCat("model.layers.", i, ".");
    const auto add_norm = [&](const char* name, int64_t size) {
      writer.AddNorm(layer + name + ".weight", size, architecture.gemma ? 0.0f : 1.0f);
    };
    if (architecture.pre_norm) add_norm("input_layernorm", o.hidden_size);
    if (IsMamba(o, i)) {
      AddMamba(writer, o, layer + "mamba.");
    } else {
      AddAttention(writer, o, layer);
    }
    add_norm(architecture.second_norm, o.hidden_size);
    if (architecture.post_norm) {
      if (architecture.pre_norm) add_norm("pre_feedforward_layernorm", o.hidden_size);
      add_norm("post_feedforward_layernorm", o.hidden_size);
    }
    if (architecture.experts && (o.architecture != "qwen3_moe" || i > 0)) {
      AddExperts(writer, o, layer);
      continue;
    }
    const std::string mlp = absl::StrCat(layer, architecture.mlp, ".");
    if (architecture.fused) {
      AddLinear(writer, o, mlp + "gate_up_proj", 2 * o.intermediate_size, o.hidden_size, false);
    } else {
      AddLinear(writer, o, mlp + "gate_proj", o.intermediate_size, o.hidden_size, o.mlp_bias);
      AddLinear(writer, o, mlp + "up_proj", o.intermediate_size, o.hidden_size, o.mlp_bias);
    }
    AddLinear(writer, o, mlp + "down_proj", o.hidden_size, o.intermediate_size, o.mlp_bias);
  }
  writer.AddNorm(absl::StrCat("model.", architecture.final_norm, ".weight"), o.hidden_size,
                 architecture.gemma ? 0.0f : 1.0f);
  if (!o.tie_word_embeddings) writer.AddMatrix("lm_head.weight", o.vocab_size, o.hidden_size);
  return writer.Finish();
}

absl::Status WriteFile(const std::string& path, const std::string& content) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(content.data(), static_cast<std::streamsize>(content.size()));
  file.close();
  if (!file) return absl::UnavailableError(absl::StrCat("cannot write ", path));
  return absl::OkStatus();
}

absl::Status Validate(const TinyModelOptions& o) {
  const Architecture* architecture = FindArchitecture(o);
  if (architecture == nullptr) {
    const std::string known = absl::StrJoin(
        kArchitectures, ", ",
        [](std::string* out, const Architecture& a) { absl::StrAppend(out, a.name); });
    return absl::InvalidArgumentError(
        absl::StrCat("architecture: got \"", o.architecture, "\", allowed ", known));
  }
  if (o.sliding_window < 0 || (o.sliding_window > 0 && !architecture->has_window)) {
    return absl::InvalidArgumentError(absl::StrCat("sliding_window: got ", o.sliding_window,
                                                   ", allowed 0, and more for an architecture "
                                                   "that has one"));
  }
  if (!o.slides.empty() && (o.sliding_window == 0 || !architecture->lists_layers ||
                            o.slides.size() != static_cast<size_t>(o.num_layers))) {
    return absl::InvalidArgumentError(
        absl::StrCat("slides: got ", o.slides.size(), " layers, allowed none, or each of ",
                     o.num_layers, " where there is a window that not all need have"));
  }
  const std::pair<const char*, int64_t> sizes[] = {
      {"vocab_size", o.vocab_size}, {"hidden_size", o.hidden_size},
      {"num_layers", o.num_layers}, {"intermediate_size", o.intermediate_size},
      {"num_heads", o.num_heads},   {"num_kv_heads", o.num_kv_heads},
      {"head_dim", o.head_dim},     {"max_position_embeddings", o.max_position_embeddings},
  };
  for (const auto& [name, value] : sizes) {
    if (value < 1) {
      return absl::InvalidArgumentError(absl::StrCat(name, ": got ", value, ", allowed >= 1"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> WriteTinyModel(const TinyModelOptions& options,
                                           const std::string& directory) {
  REPRISE_RETURN_IF_ERROR(Validate(options));
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) {
    return absl::UnavailableError(absl::StrCat("cannot create ", directory, ": ", error.message()));
  }
  REPRISE_RETURN_IF_ERROR(WriteFile(directory + "/config.json", ConfigJson(options)));
  REPRISE_RETURN_IF_ERROR(WriteFile(directory + "/model.safetensors", Weights(options)));
  return directory;
}

TemporaryDirectory::TemporaryDirectory() {
  std::string path = (std::filesystem::temp_directory_path() / "reprise-test-XXXXXX").string();
  REPRISE_CHECK(mkdtemp(path.data()) != nullptr);
  path_ = path;
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace reprise::testing
