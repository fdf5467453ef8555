// SPDX-License-Identifier: Apache-2.0
// WriteTinyModel: writes a small random model in Hugging Face layout (config.json,
// model.safetensors), so that tests can run a whole engine in milliseconds without a checkpoint.
// Not a fixture with reference logits: those lie in tests/fixtures.
#ifndef REPRISE_TESTS_TESTING_TINY_MODEL_H_
#define REPRISE_TESTS_TESTING_TINY_MODEL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/dtype.h"

namespace reprise::testing {

struct TinyModelOptions {
  // Or "granite", which gets non-neutral multipliers, "mistral", "ministral", "qwen2" (biases on q,
  // k and v), "qwen3" (norms over heads), "gemma2" (soft caps, norms behind layers), "gemma3" (a
  // rope of layers that slide), "phi3" (fused tensors), "olmo2" (norms behind layers alone), or a
  // mixture of experts: "mixtral", "qwen3_moe" (the first layer has an MLP), "granitemoe" (experts
  // stacked in one tensor, granite's multipliers) or "gpt_oss" (sinks, biases, a limited SiLU); or
  // "granitemoehybrid": Mamba-2 in all layers but every second one, no rope, granite's multipliers,
  // and an MLP beside experts, or alone where num_experts is 0; or "bamba": such layers, a rope of
  // half of each head, and an MLP alone.
  std::string architecture = "llama";
  int64_t vocab_size = 97;
  int64_t hidden_size = 32;
  int64_t intermediate_size = 48;
  int64_t num_layers = 2;
  int64_t num_heads = 4;
  int64_t num_kv_heads = 2;
  int64_t head_dim = 8;
  int64_t max_position_embeddings = 256;
  bool tie_word_embeddings = false;
  bool attention_bias = false;
  bool mlp_bias = false;
  std::vector<uint32_t> eos_token_ids = {2};
  runtime::DType dtype = runtime::DType::kF32;
  // Linear layers of blocks are E4M3, with a scale for each output, as compressed-tensors has them.
  bool fp8_weights = false;
  // They are of 4 bits, with a scale and a zero point for each output, as compressed-tensors packs
  // them.
  bool int4_weights = false;
  // Of int4_weights: scales are for 32 inputs that are no neighbours. Sizes are multiples of 32
  // then.
  bool reordered_inputs = false;
  // Of either: layers that stay in `dtype`, by their whole names; those that run as one, all of
  // them or none.
  std::vector<std::string> left_out = {};
  uint64_t seed = 1;           // the same options give the same bytes on every machine
  int64_t sliding_window = 0;  // 0: none. Not for llama, granite, olmo2, qwen3_moe, granitemoe
  // Scales of a KV cache of 8 bits in every layer: one for all heads, or one each; empty: none.
  std::vector<float> k_scales = {}, v_scales = {};
  // Of a model with a window, which layers have it; empty: all of them. Not for mistral and phi3.
  std::vector<bool> slides = {};
  // Of a mixture of experts. An expert has half of intermediate_size in qwen3_moe, else all of it.
  int64_t num_experts = 6;
  int64_t experts_per_token = 2;
  // Of phi3: longrope, whose long factors count in contexts of more than 32 tokens, of as many
  // pairs of each head as there are factors; the rest of a head is not turned. Empty: a plain rope.
  std::vector<double> short_factors = {}, long_factors = {};
  // Of gpt_oss: experts are in MXFP4. Sizes are multiples of 32 then.
  bool mxfp4_experts = false;
};

// Writes the two files into `directory`, creating it; existing ones are replaced. Returns
// `directory`. Matrices are uniform with variance 1/in_features, embeddings of variance 1, norms
// near 1: activations keep their scale through the layers, so greedy tokens vary with the input.
// Errors: InvalidArgument on a size < 1; Unavailable names the path not written.
absl::StatusOr<std::string> WriteTinyModel(const TinyModelOptions& options,
                                           const std::string& directory);

// A directory of its own under the system's temporary one, removed with everything in it on
// destruction.
class TemporaryDirectory {
 public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace reprise::testing

#endif  // REPRISE_TESTS_TESTING_TINY_MODEL_H_
