// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/decoder_oracle.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "models/config/architectures.h"
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

// What divides the frequency of a pair.
double SlownessOf(const models::RopeSpec& rope, size_t pair) {
  if (rope.scaling != models::RopeScaling::kLongRope) return rope.factor;
  return (rope.takes_long_factors ? rope.long_factors : rope.short_factors)[pair];
}

}  // namespace

absl::StatusOr<std::unique_ptr<DecoderOracle>> DecoderOracle::Open(const std::string& directory) {
  std::unique_ptr<DecoderOracle> oracle(new DecoderOracle());
  REPRISE_ASSIGN_OR_RETURN(oracle->spec_, models::ReadHfConfig(directory));
  if (oracle->spec_.rope.scaling == models::RopeScaling::kLlama3 ||
      oracle->spec_.rope.scaling == models::RopeScaling::kYarn)
    return absl::UnimplementedError(
        "decoder oracle: got rope of type llama3 or yarn; allowed: default, linear, longrope");
  REPRISE_ASSIGN_OR_RETURN(oracle->checkpoint_, models::Checkpoint::Open(directory));
  return oracle;
}

DecoderOracle::Vector DecoderOracle::Tensor(const std::string& name) const {
  const models::TensorView* const view = checkpoint_->Find(name);
  REPRISE_CHECK(view != nullptr && view->is_float());
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

// Rope turns element i of a head with element i + dim / 2, of its first dim.
void DecoderOracle::PrepareHeads(const std::string& norm, const models::RopeSpec& rope,
                                 uint32_t position, Vector* x) const {
  const auto dim = static_cast<size_t>(spec_.head_dim);
  if (spec_.whole_qk_norm) *x = Normed(*x, Tensor(norm));
  for (size_t begin = 0; begin < x->size(); begin += dim) {
    const auto first = x->begin() + static_cast<ptrdiff_t>(begin);
    Vector head(first, first + static_cast<ptrdiff_t>(dim));
    if (spec_.qk_norm && !spec_.whole_qk_norm) head = Normed(head, Tensor(norm));
    const auto turned = static_cast<size_t>(spec_.rotary_dim == 0 ? dim : spec_.rotary_dim);
    std::copy(head.begin(), head.end(), x->begin() + static_cast<ptrdiff_t>(begin));
    if (!spec_.has_rope) continue;
    for (size_t i = 0; i < turned / 2; ++i) {
      const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(turned);
      const double angle = position * std::pow(rope.theta, exponent) / SlownessOf(rope, i);
      const double cosine = rope.attention_factor * std::cos(angle);
      const double sine = rope.attention_factor * std::sin(angle);
      const double a = head[i], b = head[i + turned / 2];
      (*x)[begin + i] = a * cosine - b * sine;
      (*x)[begin + i + turned / 2] = b * cosine + a * sine;
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
  const Vector sinks = spec_.attention_sinks ? Tensor(name + ".sinks") : Vector();
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
      double most = *std::max_element(score.begin(), score.end());
      if (!sinks.empty()) most = std::max(most, sinks[h]);
      double sum = sinks.empty() ? 0.0 : std::exp(sinks[h] - most);
      for (double& s : score) sum += s = std::exp(s - most);
      for (size_t s = 0; s < score.size(); ++s)
        for (size_t i = 0; i < dim; ++i)
          out[p][of_q + i] += score[s] / sum * v[first + s][of_kv + i];
    }
  }
  return Linear(name + ".o_proj", out);
}

DecoderOracle::Rows DecoderOracle::Mamba(const std::string& name, const Rows& x) const {
  const models::MambaSpec& m = *spec_.mamba;
  const auto heads = static_cast<size_t>(m.num_heads), dim = static_cast<size_t>(m.head_dim);
  const auto size = static_cast<size_t>(m.state_size), width = static_cast<size_t>(m.conv_width);
  const auto groups = static_cast<size_t>(m.num_groups);
  const size_t inner = heads * dim, channels = inner + 2 * groups * size;
  const auto silu = [](double v) { return v / (1.0 + std::exp(-v)); };
  const Rows projected = Linear(name + ".in_proj", x);  // gate, x, B, C, dt
  const Vector weight = Tensor(name + ".conv1d.weight"), a_log = Tensor(name + ".A_log");
  const Vector bias = m.conv_bias ? Tensor(name + ".conv1d.bias") : Vector(channels, 0.0);
  const Vector d = Tensor(name + ".D"), dt_bias = Tensor(name + ".dt_bias");
  Vector state(inner * size, 0.0);
  Rows gated;
  for (size_t t = 0; t < x.size(); ++t) {
    Vector in(channels);
    for (size_t c = 0; c < channels; ++c) {
      double sum = bias[c];
      for (size_t back = 0; back < width && back <= t; ++back)
        sum += weight[c * width + width - 1 - back] * projected[t - back][inner + c];
      in[c] = silu(sum);
    }
    gated.emplace_back(inner);
    for (size_t h = 0; h < heads; ++h) {
      const double raw = projected[t][inner + channels + h] + dt_bias[h];
      const double dt = std::clamp(std::log1p(std::exp(raw)), m.min_dt, m.max_dt);
      const double decay = std::exp(-std::exp(a_log[h]) * dt);
      const size_t b = inner + h / (heads / groups) * size, c = b + groups * size;
      for (size_t p = h * dim; p < (h + 1) * dim; ++p) {
        double y = d[h] * in[p];
        for (size_t n = 0; n < size; ++n) {
          double& s = state[p * size + n];
          s = s * decay + dt * in[p] * in[b + n];
          y += s * in[c + n];
        }
        gated.back()[p] = y * silu(projected[t][p]);
      }
    }
    gated.back() = Normed(gated.back(), Tensor(name + ".norm.weight"));
  }
  return Linear(name + ".out_proj", gated);
}

double DecoderOracle::Activated(double g) const {
  if (spec_.activation == models::Activation::kSilu) return g / (1.0 + std::exp(-g));
  return 0.5 * g *
         (1.0 + std::tanh(std::sqrt(2.0 / std::numbers::pi) * (g + 0.044715 * g * g * g)));
}

DecoderOracle::Rows DecoderOracle::Mlp(const std::string& name, int64_t intermediate,
                                       const Rows& x) const {
  const bool of_granite = checkpoint_->Find(name + ".input_linear.weight") != nullptr;
  std::vector<Rows> both = Split(name, of_granite ? ".input_linear" : ".gate_up_proj",
                                 {".gate_proj", ".up_proj"}, {intermediate, intermediate}, x);
  Rows& gate = both[0];
  const Rows& up = both[1];
  for (size_t p = 0; p < gate.size(); ++p)
    for (size_t i = 0; i < gate[p].size(); ++i) gate[p][i] = Activated(gate[p][i]) * up[p][i];
  return Linear(name + (of_granite ? ".output_linear" : ".down_proj"), gate);
}

DecoderOracle::Vector DecoderOracle::Expert(const std::string& name, size_t expert,
                                            const Vector& x) const {
  const auto intermediate = static_cast<size_t>(spec_.expert_intermediate_size);
  const std::string of_expert = absl::StrCat(name, ".experts.", expert);
  if (checkpoint_->Find(of_expert + ".gate_proj.weight") != nullptr)
    return Mlp(of_expert, spec_.expert_intermediate_size, {x}).front();
  if (spec_.activation == models::Activation::kLimited) return LimitedExpert(name, expert, x);
  Vector gate_up, down;
  if (checkpoint_->Find(name + ".input_linear.weight") != nullptr) {
    const auto slice = [&](const std::string& tensor) {
      const Vector all = Tensor(name + tensor);
      const auto size = static_cast<ptrdiff_t>(all.size()) / spec_.num_experts;
      const auto begin = all.begin() + static_cast<ptrdiff_t>(expert) * size;
      return Vector(begin, begin + size);
    };
    gate_up = slice(".input_linear.weight");
    down = slice(".output_linear.weight");
  } else {
    gate_up = Tensor(of_expert + ".w1.weight");
    const Vector up = Tensor(of_expert + ".w3.weight");
    gate_up.insert(gate_up.end(), up.begin(), up.end());
    down = Tensor(of_expert + ".w2.weight");
  }
  const auto dot = [](const Vector& weight, size_t row, const Vector& input) {
    double sum = 0.0;
    for (size_t i = 0; i < input.size(); ++i) sum += weight[row * input.size() + i] * input[i];
    return sum;
  };
  Vector activated, out;
  for (size_t i = 0; i < intermediate; ++i)
    activated.push_back(Activated(dot(gate_up, i, x)) * dot(gate_up, intermediate + i, x));
  for (size_t h = 0; h < x.size(); ++h) out.push_back(dot(down, h, activated));
  return out;
}

// Of gpt-oss: weights are [experts, inputs, outputs], or in MXFP4 [experts, outputs, inputs]; gate
// and up are the even and the odd outputs.
DecoderOracle::Vector DecoderOracle::LimitedExpert(const std::string& name, size_t expert,
                                                   const Vector& x) const {
  const auto product = [&](const std::string& layer, const Vector& input) {
    const std::string tensor = absl::StrCat(name, ".experts.", layer);
    const Vector biases = Tensor(tensor + "_bias");
    const size_t in = input.size();
    const size_t outputs = biases.size() / static_cast<size_t>(spec_.num_experts);
    const auto first = biases.begin() + static_cast<ptrdiff_t>(expert * outputs);
    Vector out(first, first + static_cast<ptrdiff_t>(outputs));
    const models::TensorView* const blocks = checkpoint_->Find(tensor + "_blocks");
    const Vector plain = blocks == nullptr ? Tensor(tensor) : Vector();
    for (size_t o = 0; o < outputs; ++o) {
      for (size_t i = 0; i < in; ++i)
        out[o] += input[i] * (blocks == nullptr ? plain[(expert * in + i) * outputs + o]
                                                : Mxfp4At(tensor, (expert * outputs + o) * in + i));
    }
    return out;
  };
  const Vector gate_up = product("gate_up_proj", x);
  Vector activated;
  for (size_t i = 0; i < gate_up.size(); i += 2) {
    const double gate = std::min(gate_up[i], spec_.gate_limit);
    const double up = std::clamp(gate_up[i + 1], -spec_.gate_limit, spec_.gate_limit);
    activated.push_back((up + 1.0) * gate / (1.0 + std::exp(-spec_.gate_slope * gate)));
  }
  return product("down_proj", activated);
}

double DecoderOracle::Mxfp4At(const std::string& name, size_t index) const {
  const auto byte = ElementAt<uint8_t>(*checkpoint_->Find(name + "_blocks"), index / 2);
  const auto exponent = ElementAt<uint8_t>(*checkpoint_->Find(name + "_scales"), index / 32);
  const int element = index % 2 == 0 ? byte % 16 : byte / 16;
  const int exponent_bits = element / 2 % 4, mantissa = element % 2;
  const double magnitude =
      exponent_bits == 0 ? 0.5 * mantissa : std::ldexp(1.0 + 0.5 * mantissa, exponent_bits - 1);
  return std::ldexp(element >= 8 ? -magnitude : magnitude, exponent - 127);
}

DecoderOracle::Rows DecoderOracle::MlpOrExperts(int64_t layer, const Rows& x) const {
  const std::string prefix = absl::StrCat("model.layers.", layer, ".");
  std::string name, router;
  for (const auto& [of_layer, of_router] :
       {std::pair("block_sparse_moe", ".gate"), std::pair("block_sparse_moe", ".router.layer"),
        std::pair("mlp", ".gate"), std::pair("mlp", ".router")}) {
    if (checkpoint_->Find(absl::StrCat(prefix, of_layer, of_router, ".weight")) == nullptr)
      continue;
    name = prefix + of_layer;
    router = name + of_router;
  }
  Rows shared;
  if (checkpoint_->Find(prefix + "shared_mlp.input_linear.weight") != nullptr)
    shared = Mlp(prefix + "shared_mlp", spec_.intermediate_size, x);
  if (router.empty()) {
    const bool bamba = checkpoint_->Find(prefix + "feed_forward.gate_proj.weight") != nullptr;
    return shared.empty()
               ? Mlp(prefix + (bamba ? "feed_forward" : "mlp"), spec_.intermediate_size, x)
               : shared;
  }
  Rows out;
  for (size_t p = 0; p < x.size(); ++p) {
    const Vector& row = x[p];
    const Vector logits = Linear(router, {row}).front();
    const double most = *std::max_element(logits.begin(), logits.end());
    std::vector<std::pair<double, size_t>> chosen;  // falling
    double sum = 0.0, of_chosen = 0.0;
    for (size_t e = 0; e < logits.size(); ++e) {
      chosen.emplace_back(std::exp(logits[e] - most), e);
      sum += chosen.back().first;
    }
    std::sort(chosen.rbegin(), chosen.rend());
    chosen.resize(static_cast<size_t>(spec_.experts_per_token));
    for (const auto& [weight, e] : chosen) of_chosen += weight;
    out.push_back(shared.empty() ? Vector(row.size()) : shared[p]);
    for (const auto& [weight, e] : chosen)
      AddScaled(Expert(name, e, row), weight / (spec_.normalises_expert_shares ? of_chosen : sum),
                &out.back());
  }
  return out;
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
    std::string before_mlp = behind ? name + "pre_feedforward_layernorm.weight" : behind_attention;
    if (checkpoint_->Find(name + "pre_ff_layernorm.weight") != nullptr)
      before_mlp = name + "pre_ff_layernorm.weight";
    const Rows normed = NormedBy(name + "input_layernorm.weight", x);
    AddBranch(spec_.IsMamba(layer) ? Mamba(name + "mamba", normed) : Attention(layer, normed),
              behind ? behind_attention : "", &x);
    AddBranch(MlpOrExperts(layer, NormedBy(before_mlp, x)), behind ? behind_mlp : "", &x);
  }
  const Rows logits = Linear(spec_.tie_word_embeddings ? "model.embed_tokens" : "lm_head",
                             NormedBy(models::FindArchitecture(spec_.architecture)->final_norm, x));
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
