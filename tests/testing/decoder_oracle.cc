// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/decoder_oracle.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "models/config/hf_config.h"
#include "runtime/check.h"
#include "runtime/float_convert.h"
#include "runtime/status_macros.h"

namespace reprise::testing {
namespace {

template <typename T>
T ElementAt(const models::TensorView& view, size_t i) {
  T value;
  std::memcpy(&value, view.data.data() + i * sizeof(T), sizeof(T));
  return value;
}

void AddScaled(const std::vector<double>& x, double scale, std::vector<double>* sum) {
  for (size_t i = 0; i < x.size(); ++i) (*sum)[i] += scale * x[i];
}

}  // namespace

absl::StatusOr<std::unique_ptr<DecoderOracle>> DecoderOracle::Open(const std::string& directory) {
  std::unique_ptr<DecoderOracle> oracle(new DecoderOracle());
  REPRISE_ASSIGN_OR_RETURN(oracle->spec_, models::ReadHfConfig(directory));
  if (oracle->spec_.rope.scaling != models::RopeScaling::kNone &&
      oracle->spec_.rope.scaling != models::RopeScaling::kLinear)
    return absl::UnimplementedError("decoder oracle: got scaled rope; allowed: default, linear");
  REPRISE_ASSIGN_OR_RETURN(oracle->checkpoint_, models::Checkpoint::Open(directory));
  return oracle;
}

DecoderOracle::Vector DecoderOracle::Tensor(const std::string& name) const {
  const models::TensorView* const view = checkpoint_->Find(name);
  REPRISE_CHECK(view != nullptr);
  Vector values(view->data.size() / runtime::SizeOf(view->dtype));
  for (size_t i = 0; i < values.size(); ++i) {
    switch (view->dtype) {
      case runtime::DType::kBf16:
        values[i] = runtime::Bf16ToFloat(ElementAt<uint16_t>(*view, i));
        break;
      case runtime::DType::kF16:
        values[i] = runtime::F16ToFloat(ElementAt<uint16_t>(*view, i));
        break;
      default:
        values[i] = ElementAt<float>(*view, i);
    }
  }
  return values;
}

DecoderOracle::Vector DecoderOracle::Normed(const Vector& x, const Vector& weight) const {
  double squares = 0.0;
  for (const double value : x) squares += value * value;
  const double root = std::sqrt(squares / static_cast<double>(x.size()) + spec_.rms_norm_eps);
  Vector out(x.size());
  for (size_t i = 0; i < x.size(); ++i) out[i] = x[i] / root * (weight[i] + spec_.norm_offset);
  return out;
}

DecoderOracle::Rows DecoderOracle::Linear(const std::string& name, const Rows& x) const {
  const Vector weight = Tensor(name + ".weight");
  const bool has_bias = checkpoint_->Find(name + ".bias") != nullptr;
  const Vector bias = has_bias ? Tensor(name + ".bias") : Vector();
  const size_t in = x.front().size();
  Rows out(x.size(), Vector(weight.size() / in));
  for (size_t r = 0; r < x.size(); ++r) {
    for (size_t o = 0; o < out[r].size(); ++o) {
      double sum = has_bias ? bias[o] : 0.0;
      for (size_t i = 0; i < in; ++i) sum += weight[o * in + i] * x[r][i];
      out[r][o] = sum;
    }
  }
  return out;
}

std::vector<DecoderOracle::Rows> DecoderOracle::Split(const std::string& prefix,
                                                      const std::string& fused,
                                                      const std::vector<std::string>& names,
                                                      const std::vector<int64_t>& sizes,
                                                      const Rows& x) const {
  std::vector<Rows> parts;
  if (checkpoint_->Find(prefix + fused + ".weight") == nullptr) {
    for (const std::string& name : names) parts.push_back(Linear(prefix + name, x));
    return parts;
  }
  const Rows all = Linear(prefix + fused, x);
  ptrdiff_t begin = 0;
  for (const int64_t size : sizes) {
    parts.emplace_back();
    for (const Vector& row : all)
      parts.back().emplace_back(row.begin() + begin, row.begin() + begin + size);
    begin += size;
  }
  return parts;
}

// Rope turns element i of a head with element i + head_dim / 2.
void DecoderOracle::PrepareHeads(const std::string& norm, const models::RopeSpec& rope,
                                 uint32_t position, Vector* x) const {
  const auto dim = static_cast<size_t>(spec_.head_dim);
  if (spec_.whole_qk_norm) *x = Normed(*x, Tensor(norm));
  for (size_t begin = 0; begin < x->size(); begin += dim) {
    const auto first = x->begin() + static_cast<ptrdiff_t>(begin);
    Vector head(first, first + static_cast<ptrdiff_t>(dim));
    if (spec_.qk_norm && !spec_.whole_qk_norm) head = Normed(head, Tensor(norm));
    for (size_t i = 0; i < dim / 2; ++i) {
      const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(dim);
      const double angle = position * std::pow(rope.theta, exponent) / rope.factor;
      const double a = head[i], b = head[i + dim / 2];
      (*x)[begin + i] = a * std::cos(angle) - b * std::sin(angle);
      (*x)[begin + i + dim / 2] = b * std::cos(angle) + a * std::sin(angle);
    }
  }
}

DecoderOracle::Rows DecoderOracle::Attention(int64_t layer, const Rows& x) const {
  const std::string name = absl::StrCat("model.layers.", layer, ".self_attn");
  std::vector<Rows> qkv = Split(name, ".qkv_proj", {".q_proj", ".k_proj", ".v_proj"},
                                {spec_.q_size(), spec_.kv_size(), spec_.kv_size()}, x);
  Rows &q = qkv[0], &k = qkv[1];
  const Rows& v = qkv[2];
  const bool slides = spec_.slides.empty() || spec_.slides[static_cast<size_t>(layer)];
  const models::RopeSpec& rope =
      slides && spec_.sliding_rope.has_value() ? *spec_.sliding_rope : spec_.rope;
  for (uint32_t p = 0; p < q.size(); ++p) {
    PrepareHeads(name + ".q_norm.weight", rope, p, &q[p]);
    PrepareHeads(name + ".k_norm.weight", rope, p, &k[p]);
  }
  const auto dim = static_cast<size_t>(spec_.head_dim);
  const auto group = static_cast<size_t>(spec_.num_heads / spec_.num_kv_heads);
  const int64_t window = spec_.WindowOf(layer);
  Rows out(q.size(), Vector(q.front().size()));
  for (size_t p = 0; p < q.size(); ++p) {
    const auto position = static_cast<int64_t>(p);
    const auto first =
        static_cast<size_t>(window == 0 ? 0 : std::max<int64_t>(0, position + 1 - window));
    for (size_t h = 0; h < static_cast<size_t>(spec_.num_heads); ++h) {
      const size_t of_q = h * dim, of_kv = h / group * dim;
      Vector score(p + 1 - first);
      for (size_t s = 0; s < score.size(); ++s) {
        for (size_t i = 0; i < dim; ++i) score[s] += q[p][of_q + i] * k[first + s][of_kv + i];
        score[s] *= spec_.attention_multiplier;
        const double cap = spec_.attention_softcap;
        if (cap != 0.0) score[s] = cap * std::tanh(score[s] / cap);
      }
      const double most = *std::max_element(score.begin(), score.end());
      double sum = 0.0;
      for (double& s : score) sum += s = std::exp(s - most);
      for (size_t s = 0; s < score.size(); ++s)
        for (size_t i = 0; i < dim; ++i)
          out[p][of_q + i] += score[s] / sum * v[first + s][of_kv + i];
    }
  }
  return Linear(name + ".o_proj", out);
}

DecoderOracle::Rows DecoderOracle::Mlp(int64_t layer, const Rows& x) const {
  const std::string name = absl::StrCat("model.layers.", layer, ".mlp");
  std::vector<Rows> both = Split(name, ".gate_up_proj", {".gate_proj", ".up_proj"},
                                 {spec_.intermediate_size, spec_.intermediate_size}, x);
  Rows& gate = both[0];
  const Rows& up = both[1];
  const auto activated = [&](double g) {
    if (spec_.activation == models::Activation::kSilu) return g / (1.0 + std::exp(-g));
    return 0.5 * g *
           (1.0 + std::tanh(std::sqrt(2.0 / std::numbers::pi) * (g + 0.044715 * g * g * g)));
  };
  for (size_t p = 0; p < gate.size(); ++p)
    for (size_t i = 0; i < gate[p].size(); ++i) gate[p][i] = activated(gate[p][i]) * up[p][i];
  return Linear(name + ".down_proj", gate);
}

DecoderOracle::Rows DecoderOracle::NormedBy(const std::string& name, const Rows& x) const {
  if (checkpoint_->Find(name) == nullptr) return x;
  const Vector weight = Tensor(name);
  Rows out;
  for (const Vector& row : x) out.push_back(Normed(row, weight));
  return out;
}

void DecoderOracle::AddBranch(const Rows& branch, const std::string& norm, Rows* x) const {
  const Rows added = norm.empty() ? branch : NormedBy(norm, branch);
  for (size_t p = 0; p < x->size(); ++p) AddScaled(added[p], spec_.residual_multiplier, &(*x)[p]);
}

std::vector<std::vector<float>> DecoderOracle::Logits(const std::vector<uint32_t>& tokens) const {
  const Vector table = Tensor("model.embed_tokens.weight");
  const auto hidden = static_cast<size_t>(spec_.hidden_size);
  Rows x;
  for (const uint32_t token : tokens) {
    const auto first = table.begin() + static_cast<ptrdiff_t>(token * hidden);
    x.emplace_back(first, first + static_cast<ptrdiff_t>(hidden));
    for (double& value : x.back()) value *= spec_.embedding_multiplier;
  }
  for (int64_t layer = 0; layer < spec_.num_layers; ++layer) {
    const std::string name = absl::StrCat("model.layers.", layer, ".");
    const std::string behind_attention = name + "post_attention_layernorm.weight";
    const std::string behind_mlp = name + "post_feedforward_layernorm.weight";
    // With norms behind layers, the one called post_attention_layernorm is behind attention, else
    // it is before the MLP.
    const bool behind = checkpoint_->Find(behind_mlp) != nullptr;
    AddBranch(Attention(layer, NormedBy(name + "input_layernorm.weight", x)),
              behind ? behind_attention : "", &x);
    AddBranch(
        Mlp(layer,
            NormedBy(behind ? name + "pre_feedforward_layernorm.weight" : behind_attention, x)),
        behind ? behind_mlp : "", &x);
  }
  const Rows logits = Linear(spec_.tie_word_embeddings ? "model.embed_tokens" : "lm_head",
                             NormedBy("model.norm.weight", x));
  std::vector<std::vector<float>> out;
  for (const Vector& row : logits) {
    out.emplace_back();
    for (double value : row) {
      value /= spec_.logits_scaling;
      const double cap = spec_.logits_softcap;
      out.back().push_back(static_cast<float>(cap == 0.0 ? value : cap * std::tanh(value / cap)));
    }
  }
  return out;
}

}  // namespace reprise::testing
