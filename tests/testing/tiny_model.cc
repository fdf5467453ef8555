// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/tiny_model.h"

#include <stdlib.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/check.h"
#include "runtime/float_convert.h"
#include "runtime/status_macros.h"

namespace reprise::testing {
namespace {

using runtime::DType;

// A counter-based generator (splitmix64), so that bytes do not depend on the standard library.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15ull) {}

  // Uniform in [-1, 1).
  float Next() {
    state_ += 0x9e3779b97f4a7c15ull;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    z ^= z >> 31;
    return static_cast<float>(static_cast<double>(z >> 11) * 0x1p-52 - 1.0);
  }

 private:
  uint64_t state_;
};

void AppendElement(std::string& out, DType dtype, float value) {
  if (dtype == DType::kE4m3) {
    out.push_back(static_cast<char>(runtime::FloatToE4m3(value)));
    return;
  }
  if (dtype == DType::kF32) {
    out.append(reinterpret_cast<const char*>(&value), sizeof(value));
    return;
  }
  const uint16_t bits =
      dtype == DType::kBf16 ? runtime::FloatToBf16(value) : runtime::FloatToF16(value);
  out.append(reinterpret_cast<const char*>(&bits), sizeof(bits));
}

// Collects tensors in the order in which they are added; that order also decides their random
// numbers.
class SafetensorsWriter {
 public:
  SafetensorsWriter(DType dtype, uint64_t seed) : dtype_(dtype), random_(seed) {}

  // [out, in] with variance 1/in.
  void AddMatrix(std::string_view name, int64_t out, int64_t in) {
    Add(name, {out, in}, 0.0f, std::sqrt(3.0f / static_cast<float>(in)));
  }
  // The same in E4M3, and a scale for each output behind it.
  void AddFp8Matrix(std::string_view name, int64_t out, int64_t in) {
    const float amplitude = std::sqrt(3.0f / static_cast<float>(in));
    const size_t elements = data_.size();
    for (int64_t i = 0; i < out * in; ++i)
      AppendElement(data_, DType::kE4m3, 400.0f * random_.Next());
    AddEntry(name, DType::kE4m3, {out, in}, elements);
    const size_t scales = data_.size();
    // Of several sizes: a wrong one would show.
    for (int64_t i = 0; i < out; ++i)
      AppendElement(data_, DType::kF32, amplitude / 400.0f * (1.0f + 0.5f * random_.Next()));
    AddEntry(std::string(name) + "_scale", DType::kF32, {out, 1}, scales);
  }
  void AddEmbedding(std::string_view name, int64_t vocab, int64_t hidden) {
    Add(name, {vocab, hidden}, 0.0f, std::sqrt(3.0f));
  }
  void AddNorm(std::string_view name, int64_t size, float mean) { Add(name, {size}, mean, 0.2f); }
  void AddBias(std::string_view name, int64_t size) { Add(name, {size}, 0.0f, 0.2f); }
  // A number, or a list of them; none: no tensor.
  void AddScales(std::string_view name, const std::vector<float>& scales) {
    if (scales.empty()) return;
    const size_t begin = data_.size();
    for (const float scale : scales) AppendElement(data_, dtype_, scale);
    std::vector<int64_t> shape;
    if (scales.size() > 1) shape.push_back(static_cast<int64_t>(scales.size()));
    AddEntry(name, dtype_, shape, begin);
  }

  // u64 header length, JSON header padded with spaces to a multiple of 8, data.
  std::string Finish() {
    std::string header = absl::StrCat("{", header_, "}");
    header.resize((header.size() + 7) / 8 * 8, ' ');
    const uint64_t length = header.size();
    std::string file(reinterpret_cast<const char*>(&length), sizeof(length));
    file += header;
    file += data_;
    return file;
  }

 private:
  void Add(std::string_view name, const std::vector<int64_t>& shape, float mean, float amplitude) {
    const size_t begin = data_.size();
    int64_t count = 1;
    for (const int64_t size : shape) count *= size;
    for (int64_t i = 0; i < count; ++i) {
      AppendElement(data_, dtype_, mean + amplitude * random_.Next());
    }
    AddEntry(name, dtype_, shape, begin);
  }
  // Of what was appended from `begin` on.
  void AddEntry(std::string_view name, DType dtype, const std::vector<int64_t>& shape,
                size_t begin) {
    const char* dtype_name = dtype == DType::kF32    ? "F32"
                             : dtype == DType::kBf16 ? "BF16"
                             : dtype == DType::kF16  ? "F16"
                                                     : "F8_E4M3";
    absl::StrAppend(&header_, header_.empty() ? "" : ",", "\"",
                    absl::string_view(name.data(), name.size()), "\":{\"dtype\":\"", dtype_name,
                    "\",\"shape\":[", absl::StrJoin(shape, ","), "],\"data_offsets\":[", begin, ",",
                    data_.size(), "]}");
  }

  DType dtype_;
  Random random_;
  std::string header_;
  std::string data_;
};

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
};
constexpr Architecture kArchitectures[] = {
    {.name = "llama", .class_name = "LlamaForCausalLM"},
    {.name = "granite", .class_name = "GraniteForCausalLM"},
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
};

const Architecture* FindArchitecture(const TinyModelOptions& o) {
  for (const Architecture& known : kArchitectures)
    if (o.architecture == known.name) return &known;
  return nullptr;
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

std::string ConfigJson(const TinyModelOptions& o) {
  const bool granite = o.architecture == "granite";
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
  if (FindArchitecture(o)->gemma) {
    absl::StrAppend(&json, ",\"query_pre_attn_scalar\":6,\"final_logit_softcapping\":",
                    o.architecture == "gemma2" ? "4.0,\"attn_logit_softcapping\":3.0"
                                               : "null,\"rope_local_base_freq\":500.0");
  }
  if (granite) {
    absl::StrAppend(&json, ",\"embedding_multiplier\":3.0,\"attention_multiplier\":0.25",
                    ",\"residual_multiplier\":0.75,\"logits_scaling\":2.0");
  }
  if (o.fp8_weights)
    absl::StrAppend(
        &json, ",\"quantization_config\":{\"quant_method\":\"compressed-tensors\",",
        "\"format\":\"float-quantized\",\"ignore\":[\"lm_head\"],\"config_groups\":{\"group_0\":{",
        "\"targets\":[\"Linear\"],\"weights\":{\"num_bits\":8,\"type\":\"float\",\"symmetric\":"
        "true,",
        "\"dynamic\":false,\"strategy\":\"channel\"},\"input_activations\":{\"num_bits\":8,",
        "\"type\":\"float\",\"dynamic\":true,\"strategy\":\"token\"}}}}");
  return absl::StrCat(json, "}\n");
}

void AddLinear(SafetensorsWriter& writer, const TinyModelOptions& o, const std::string& name,
               int64_t out, int64_t in, bool bias) {
  if (o.fp8_weights) {
    writer.AddFp8Matrix(name + ".weight", out, in);
  } else {
    writer.AddMatrix(name + ".weight", out, in);
  }
  if (bias) writer.AddBias(name + ".bias", out);
}

std::string Weights(const TinyModelOptions& o) {
  SafetensorsWriter writer(o.dtype, o.seed);
  const Architecture& architecture = *FindArchitecture(o);
  const bool qkv_bias = o.attention_bias || architecture.qkv_bias;
  const int64_t q_size = o.num_heads * o.head_dim;
  const int64_t kv_size = o.num_kv_heads * o.head_dim;
  writer.AddEmbedding("model.embed_tokens.weight", o.vocab_size, o.hidden_size);
  for (int64_t i = 0; i < o.num_layers; ++i) {
    const std::string layer = absl::StrCat("model.layers.", i, ".");
    const auto add_norm = [&](const char* name, int64_t size) {
      writer.AddNorm(layer + name + ".weight", size, architecture.gemma ? 0.0f : 1.0f);
    };
    if (architecture.pre_norm) add_norm("input_layernorm", o.hidden_size);
    if (architecture.fused) {
      AddLinear(writer, o, layer + "self_attn.qkv_proj", q_size + 2 * kv_size, o.hidden_size,
                false);
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
    writer.AddScales(layer + "self_attn.k_scale", o.k_scales);
    writer.AddScales(layer + "self_attn.v_proj.v_scale", o.v_scales);
    add_norm("post_attention_layernorm", o.hidden_size);
    if (architecture.post_norm) {
      if (architecture.pre_norm) add_norm("pre_feedforward_layernorm", o.hidden_size);
      add_norm("post_feedforward_layernorm", o.hidden_size);
    }
    if (architecture.fused) {
      AddLinear(writer, o, layer + "mlp.gate_up_proj", 2 * o.intermediate_size, o.hidden_size,
                false);
    } else {
      AddLinear(writer, o, layer + "mlp.gate_proj", o.intermediate_size, o.hidden_size, o.mlp_bias);
      AddLinear(writer, o, layer + "mlp.up_proj", o.intermediate_size, o.hidden_size, o.mlp_bias);
    }
    AddLinear(writer, o, layer + "mlp.down_proj", o.hidden_size, o.intermediate_size, o.mlp_bias);
  }
  writer.AddNorm("model.norm.weight", o.hidden_size, architecture.gemma ? 0.0f : 1.0f);
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
