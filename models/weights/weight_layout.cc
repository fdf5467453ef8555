// SPDX-License-Identifier: Apache-2.0
// The layout of a model's weights; see weight_layout.h. Tensor names are those that transformers
// gives to all architectures that we know.
#include "models/weights/weight_layout.h"

#include <initializer_list>
#include <utility>

#include "absl/strings/str_cat.h"

namespace reprise::models {
namespace {

class LayoutBuilder {
 public:
  LayoutBuilder(const ModelSpec& spec, runtime::DType dtype) : spec_(spec), dtype_(dtype) {}

  WeightLayout Build() {
    const ModelSpec& s = spec_;
    layout_.embedding = Region(WeightKind::kMatrix, s.vocab_size * s.hidden_size);
    Slot("model.embed_tokens.weight", {s.vocab_size, s.hidden_size}, layout_.embedding);
    for (int64_t i = 0; i < s.num_layers; ++i) layout_.layers.push_back(Layer(i));
    layout_.final_norm = Norm("model.norm.weight", s.hidden_size);
    if (s.tie_word_embeddings) {
      layout_.lm_head = {layout_.embedding, std::nullopt, s.vocab_size, s.hidden_size};
    } else {
      layout_.lm_head = Linear("", {{"lm_head", s.vocab_size}}, s.hidden_size, false);
    }
    layout_.rope = Reserve(static_cast<size_t>(s.head_dim / 2) * sizeof(float));
    return std::move(layout_);
  }

 private:
  struct Part {
    const char* name;
    int64_t rows;
  };

  LayerOffsets Layer(int64_t index) {
    const ModelSpec& s = spec_;
    const std::string prefix = absl::StrCat("model.layers.", index, ".");
    LayerOffsets layer;
    layer.input_norm = Norm(prefix + "input_layernorm.weight", s.hidden_size);
    layer.qkv = Linear(prefix + "self_attn.",
                       {{"q_proj", s.q_size()}, {"k_proj", s.kv_size()}, {"v_proj", s.kv_size()}},
                       s.hidden_size, s.qkv_bias);
    if (s.qk_norm) {
      layer.q_norm = Norm(prefix + "self_attn.q_norm.weight", s.head_dim);
      layer.k_norm = Norm(prefix + "self_attn.k_norm.weight", s.head_dim);
    }
    layer.o = Linear(prefix + "self_attn.", {{"o_proj", s.hidden_size}}, s.q_size(), s.o_bias);
    layer.post_attention_norm = Norm(prefix + "post_attention_layernorm.weight", s.hidden_size);
    layer.gate_up = Linear(prefix + "mlp.",
                           {{"gate_proj", s.intermediate_size}, {"up_proj", s.intermediate_size}},
                           s.hidden_size, s.mlp_bias);
    layer.down =
        Linear(prefix + "mlp.", {{"down_proj", s.hidden_size}}, s.intermediate_size, s.mlp_bias);
    return layer;
  }

  size_t Norm(const std::string& name, int64_t size) {
    const size_t offset = Region(WeightKind::kNorm, size);
    Slot(name, {size}, offset);
    return offset;
  }

  // Published matrices of the same input, laid row block below row block.
  LinearOffsets Linear(const std::string& prefix, std::initializer_list<Part> parts, int64_t in,
                       bool has_bias) {
    LinearOffsets linear;
    linear.in_features = in;
    for (const Part& part : parts) linear.out_features += part.rows;
    linear.weight = Region(WeightKind::kMatrix, linear.out_features * in);
    size_t offset = linear.weight;
    for (const Part& part : parts) {
      Slot(absl::StrCat(prefix, part.name, ".weight"), {part.rows, in}, offset);
      offset += Bytes(part.rows * in);
    }
    if (!has_bias) return linear;
    linear.bias = Region(WeightKind::kBias, linear.out_features);
    offset = *linear.bias;
    for (const Part& part : parts) {
      Slot(absl::StrCat(prefix, part.name, ".bias"), {part.rows}, offset);
      offset += Bytes(part.rows);
    }
    return linear;
  }

  size_t Region(WeightKind kind, int64_t count) {
    const size_t offset = Reserve(Bytes(count));
    layout_.regions.push_back({kind, offset, count});
    return offset;
  }

  void Slot(std::string name, std::vector<int64_t> shape, size_t offset) {
    layout_.slots.push_back({std::move(name), std::move(shape), offset});
  }

  size_t Reserve(size_t bytes) {
    const size_t offset = (layout_.bytes + kWeightAlignment - 1) & ~(kWeightAlignment - 1);
    layout_.bytes = offset + bytes;
    return offset;
  }

  size_t Bytes(int64_t count) const { return static_cast<size_t>(count) * runtime::SizeOf(dtype_); }

  const ModelSpec& spec_;
  const runtime::DType dtype_;
  WeightLayout layout_;
};

}  // namespace

WeightLayout PlanWeights(const ModelSpec& spec, runtime::DType dtype) {
  return LayoutBuilder(spec, dtype).Build();
}

}  // namespace reprise::models
