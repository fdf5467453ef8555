// SPDX-License-Identifier: Apache-2.0
// The table of architectures: for each one, what the fields of its config mean, what its layers
// have, and which layers a decoder of it is made of. Data; nothing outside of this table and those
// who read it asks for an architecture by name. A new architecture begins with an entry here.
#ifndef REPRISE_MODELS_CONFIG_ARCHITECTURES_H_
#define REPRISE_MODELS_CONFIG_ARCHITECTURES_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace reprise::models {

// ---- config.json ----

enum class FieldRole : uint8_t {
  kConsumed,  // becomes part of the ModelSpec, or is checked where it is read
  kInert,     // means nothing for inference, whatever its value
  kNeutral,   // refused unless its value is one that changes nothing
};

struct FieldRule {
  const char* name;
  FieldRole role;
  const char* neutral = nullptr;  // kNeutral: a JSON array of the values allowed; null always is
};

// Which projections carry a bias.
enum class BiasRule : uint8_t {
  kNever,
  kConfig,   // attention_bias for q, k, v and o; mlp_bias for the MLP
  kQkvOnly,  // q, k and v always, nothing else ever
};

// When the field sliding_window counts.
enum class WindowRule : uint8_t {
  kNever,
  kAlways,    // in every layer
  kListed,    // in the layers that layer_types names, in every one where it is absent
  kSwitched,  // only where use_sliding_window says so, in the layers that layer_types names or that
              // max_window_layers leaves
  kPattern,   // in the layers that layer_types names; where it is absent, in all but every n-th
};

// What the numbers of attention and MLP are called, and mean, beyond Llama's.
enum class NumberRule : uint8_t {
  kLlama,    // the softmax scale is 1 / sqrt(head_dim)
  kGranite,  // the config has Granite's four multipliers
  kGemma,   // query_pre_attn_scalar and two soft caps; embeddings times sqrt(hidden_size), norms of
            // 1 + weight, GELU
  kGptOss,  // swiglu_limit and swiglu_alpha of the experts' limited SiLU*up; attention has sinks
};

// Which layers are mixtures of experts, and how the config says how large they are.
enum class ExpertRule : uint8_t {
  kNone,
  kEveryLayer,  // num_local_experts of intermediate_size; shares of a token's experts are 1
                // together
  kSomeLayers,  // num_experts of moe_intermediate_size, in the layers that decoder_sparse_step and
                // mlp_only_layers leave; shares as norm_topk_prob says
  kBesideMlp,   // num_local_experts of intermediate_size, or none, beside an MLP of
                // shared_intermediate_size in every layer; shares of a token's experts are 1
                // together
};

// Which layers carry state in place of attention.
enum class StateRule : uint8_t {
  kNone,
  kMamba,  // those that layer_types calls mamba, or all; sizes are the config's mamba_ fields
  kMambaElsewhere,  // all but those that attn_layer_indices lists; sizes as of kMamba
};

// Which RMSNorm q and k go through before rope.
enum class QkNorm : uint8_t { kNone, kHeads, kWhole };

// ---- layers ----

// kNorm adds the branch of the layer before, where there is one, and norms the sum; kPostNorm norms
// that branch and adds it. kExperts is a mixture of experts, and an MLP of the same name in blocks
// that have none; with a shared_mlp it is both together, or that MLP alone. A block that has kMamba
// and kAttention is one of the two, as the spec says of it.
enum class LayerKind : uint8_t { kNorm, kPostNorm, kAttention, kMamba, kMlp, kExperts };

// One layer of a decoder block.
struct LayerEntry {
  LayerKind kind;
  const char* name;  // in the checkpoint, behind "model.layers.<block>."
};
using Block = std::span<const LayerEntry>;

// What the tensors of experts are called, behind the layer's name. Those of an expert stand behind
// "experts.<expert>." too, or all experts are one tensor [experts, outputs, inputs], where `gate`
// is gate and up, and `up` is null.
// inputs_first: that tensor is [experts, inputs, outputs], its name without ".weight"; with MXFP4
// it is two (ExpertStack). alternates: outputs of gate and up in turns. biased: router and experts.
struct ExpertTensors {
  const char* router = nullptr;
  const char* gate = nullptr;
  const char* up = nullptr;
  const char* down = nullptr;
  bool inputs_first = false, alternates = false, biased = false;
};

// What the tensors of an MLP are called, behind the layer's name. up is null where gate and up are
// one tensor, which is called as `gate` says.
struct MlpTensors {
  const char* gate = "gate_proj";
  const char* up = "up_proj";
  const char* down = "down_proj";
};

struct Architecture {
  const char* name;                // ModelSpec::architecture
  const char* class_name;          // as in the config's `architectures`
  const char* model_type;          // as in the config's `model_type`
  std::span<const FieldRule> own;  // beyond the fields that all share, or instead of them
  // What transformers takes where the config does not name the field.
  int64_t default_kv_heads = 0;        // 0: as many as query heads
  int64_t default_head_dim = 0;        // 0: hidden_size / num_attention_heads
  int64_t default_sliding_window = 0;  // 0: none
  int64_t default_window_pattern = 0;  // kPattern: every so many-th layer sees all
  int64_t default_experts = 0, default_experts_per_token = 0;
  double default_rms_norm_eps = 1e-6;
  double default_rope_theta = 10000.0;
  // Sizes; 0: the config must say it.
  int64_t default_vocab = 0, default_hidden = 0, default_intermediate = 0;
  int64_t default_layers = 0, default_heads = 0;
  int64_t default_max_positions = 0;  // max_position_embeddings
  // original_max_position_embeddings of longrope; 0: max_position_embeddings.
  int64_t default_original_positions = 0;
  bool default_tied = false;                                             // tie_word_embeddings
  double default_attention_softcap = 0.0, default_logits_softcap = 0.0;  // kGemma; 0: none

  bool default_attention_bias = false;  // kConfig

  BiasRule bias = BiasRule::kConfig;
  WindowRule window = WindowRule::kNever;
  NumberRule numbers = NumberRule::kLlama;
  QkNorm qk_norm = QkNorm::kNone;
  ExpertRule experts = ExpertRule::kNone;
  ExpertTensors expert_tensors = {};
  MlpTensors mlp_tensors = {};
  const char* shared_mlp = nullptr;  // ExpertRule::kBesideMlp: the MLP's name in the checkpoint
  StateRule state = StateRule::kNone;
  bool local_rope = false;     // layers that slide have a rope of their own
  bool names_rope = false;     // the config must say which rope: what it is without one is not ours
  bool fused_tensors = false;  // q, k and v are published as one tensor
  bool optional_rope = false;  // position_embedding_type says whether there is one
  double partial_rotary_factor = 1.0;  // of each head, what rope turns
  bool chooses_rotary_factor = false;  // a config may name another one
  const char* final_norm = "model.norm.weight";

  // Kinds of blocks, which come in turns: block i of a decoder is blocks[i % blocks.size()].
  std::span<const Block> blocks;
  Block BlockOf(int64_t block) const { return blocks[static_cast<size_t>(block) % blocks.size()]; }
};

// A model with a vision part beside a text part that is of the table above. The text part alone is
// run, so that what is said of the vision part means nothing.
struct VisionModel {
  const char* class_name;             // as in the config's `architectures`
  const char* model_type;             // as in the config's `model_type`
  const char* text;                   // Architecture::name; its fields are in `text_config`
  std::span<const FieldRule> beside;  // of the fields around text_config, beyond the shared ones
  std::span<const FieldRule> within;  // of those in it, instead of the architecture's
};

// Llama, Granite, Mistral, Ministral, Qwen2, Qwen3, Gemma 2 and 3, Phi-3, OLMo 2, Mixtral,
// Qwen3-MoE, Granite-MoE, gpt-oss, Granite-MoE-Hybrid (Granite 4.0) and Bamba. docs/models.md shows
// the tables to users.
std::span<const Architecture> KnownArchitectures();
// Null when there is none of this name.
const Architecture* FindArchitecture(std::string_view name);
// Gemma 3 and Mistral 3.
std::span<const VisionModel> KnownVisionModels();

}  // namespace reprise::models

#endif  // REPRISE_MODELS_CONFIG_ARCHITECTURES_H_
