// SPDX-License-Identifier: Apache-2.0
// What follows from a ModelSpec's numbers, and which numbers are sane; see model_spec.h.
#include "models/config/model_spec.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <numbers>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/experts/experts_geometry.h"
#include "kernels/mamba/mamba_args.h"
#include "models/config/architectures.h"
#include "models/config/weight_quantization.h"
#include "runtime/status_macros.h"

namespace reprise::models {
namespace {

constexpr int64_t kMaxSize = INT32_MAX;  // kernels index rows of a matrix with 32 bits
constexpr int64_t kMaxLayers = 4096;     // far above any model; bounds what we build per layer

absl::Status Refuse(const char* field, const std::string& got, const std::string& allowed) {
  return absl::InvalidArgumentError(absl::StrCat(field, ": got ", got, ", allowed ", allowed));
}

absl::Status CheckSizes(const ModelSpec& s) {
  const struct {
    const char* name;
    int64_t value, max;
  } sizes[] = {
      {"vocab_size", s.vocab_size, kMaxSize},
      {"hidden_size", s.hidden_size, kMaxSize},
      {"intermediate_size", s.intermediate_size, kMaxSize / 2},  // gate and up share one matrix
      {"num_layers", s.num_layers, kMaxLayers},
      {"num_heads", s.num_heads, kMaxSize},
      {"num_kv_heads", s.num_kv_heads, kMaxSize},
      {"head_dim", s.head_dim, kMaxSize},
      {"max_position_embeddings", s.max_position_embeddings, kMaxSize},
  };
  for (const auto& size : sizes) {
    if (size.value < 1 || size.value > size.max) {
      return Refuse(size.name, absl::StrCat(size.value), absl::StrCat("1 to ", size.max));
    }
  }
  if (s.num_heads % s.num_kv_heads != 0) {
    return Refuse("num_heads", absl::StrCat(s.num_heads),
                  absl::StrCat("a multiple of num_kv_heads (", s.num_kv_heads, ")"));
  }
  if (s.head_dim % 2 != 0) {
    return Refuse("head_dim", absl::StrCat(s.head_dim), "an even number: rope rotates pairs");
  }
  if (s.sliding_window < 0 || s.sliding_window > kMaxSize) {
    return Refuse("sliding_window", absl::StrCat(s.sliding_window),
                  absl::StrCat("0 (none) to ", kMaxSize));
  }
  if (!s.slides.empty() && s.slides.size() != static_cast<size_t>(s.num_layers)) {
    return Refuse("slides", absl::StrCat(s.slides.size(), " layers"),
                  absl::StrCat("none, or each of ", s.num_layers));
  }
  // Each factor is below 2^33.
  int64_t qkv_size = 0;
  if (__builtin_mul_overflow(s.num_heads + 2 * s.num_kv_heads, s.head_dim, &qkv_size) ||
      qkv_size > kMaxSize) {
    return Refuse("(num_heads + 2 * num_kv_heads) * head_dim", "more than int32 holds",
                  absl::StrCat("at most ", kMaxSize));
  }
  return absl::OkStatus();
}

absl::Status CheckMamba(const ModelSpec& s) {
  if (!s.mamba.has_value() && s.mamba_layers.empty()) return absl::OkStatus();
  if (FindArchitecture(s.architecture)->state == StateRule::kNone)
    return Refuse("mamba", "some",
                  absl::StrCat("none: the architecture '", s.architecture, "' has no such layers"));
  if (!s.mamba.has_value() || s.mamba_layers.size() != static_cast<size_t>(s.num_layers))
    return Refuse("mamba_layers", absl::StrCat(s.mamba_layers.size(), " layers"),
                  absl::StrCat("each of ", s.num_layers, " with mamba, none without"));
  if (s.NumAttentionLayers() == 0)
    return Refuse("mamba_layers", "all layers", "all but one with attention at least");
  const MambaSpec& m = *s.mamba;
  const int32_t width = kernels::MambaScanWidth(m.state_size, m.inner_size());
  const struct {
    const char* name;
    int64_t value, min, max;
  } sizes[] = {
      {"mamba.num_heads", m.num_heads, 1, 65535},
      {"mamba.head_dim", m.head_dim, 1, kernels::kMambaMaxHeadDim},
      {"mamba.num_groups", m.num_groups, 1, m.num_heads},
      {"mamba.state_size", m.state_size, 1, kernels::MambaMaxStateSize(width)},
      {"mamba.conv_width", m.conv_width, 2, 64},
  };
  for (const auto& size : sizes) {
    if (size.value < size.min || size.value > size.max)
      return Refuse(size.name, absl::StrCat(size.value), absl::StrCat(size.min, " to ", size.max));
  }
  if (m.num_heads % m.num_groups != 0)
    return Refuse("mamba.num_groups", absl::StrCat(m.num_groups),
                  absl::StrCat("numbers that divide num_heads (", m.num_heads, ")"));
  if (m.projected_size() > kMaxSize)
    return Refuse("mamba.num_heads, num_groups and state_size", "a projection of more than int32",
                  absl::StrCat("at most ", kMaxSize, " outputs"));
  if (!(std::isfinite(m.min_dt) && m.min_dt >= 0.0 && m.min_dt <= m.max_dt))
    return Refuse("mamba.min_dt", absl::StrCat(m.min_dt),
                  absl::StrCat("0 to max_dt (", m.max_dt, ")"));
  return absl::OkStatus();
}

absl::Status CheckExperts(const ModelSpec& s) {
  const Architecture& architecture = *FindArchitecture(s.architecture);
  const ExpertRule rule = architecture.experts;
  if (s.mxfp4_experts && !architecture.expert_tensors.inputs_first)
    return Refuse("mxfp4_experts", "true",
                  absl::StrCat("false: the architecture '", s.architecture, "' has none"));
  if (rule == ExpertRule::kBesideMlp && s.num_experts == 0) return absl::OkStatus();
  if (rule == ExpertRule::kNone) {
    if (s.num_experts == 0) return absl::OkStatus();
    return Refuse("num_experts", absl::StrCat(s.num_experts),
                  absl::StrCat("0: the architecture '", s.architecture, "' has none"));
  }
  const struct {
    const char* name;
    int64_t value, max;
  } sizes[] = {
      {"num_experts", s.num_experts, kernels::kMaxExperts},
      {"experts_per_token", s.experts_per_token, s.num_experts},
      {"expert_intermediate_size", s.expert_intermediate_size, kMaxSize / 2},
  };
  for (const auto& size : sizes) {
    if (size.value < 1 || size.value > size.max)
      return Refuse(size.name, absl::StrCat(size.value), absl::StrCat("1 to ", size.max));
  }
  if (!s.sparse.empty() && s.sparse.size() != static_cast<size_t>(s.num_layers))
    return Refuse("sparse", absl::StrCat(s.sparse.size(), " layers"),
                  absl::StrCat("none, or each of ", s.num_layers));
  if (s.mxfp4_experts &&
      (s.hidden_size % kMxfp4Block != 0 || s.expert_intermediate_size % kMxfp4Block != 0))
    return Refuse("hidden_size, intermediate_size",
                  absl::StrCat(s.hidden_size, ", ", s.expert_intermediate_size),
                  absl::StrCat("multiples of ", kMxfp4Block, ", the inputs of an MXFP4 block"));
  if (s.weight_quantization.has_value() && architecture.expert_tensors.up == nullptr)
    return absl::UnimplementedError(
        absl::StrCat("quantization_config: got quantised weights in a model whose experts are one "
                     "tensor ('",
                     s.architecture, "'), allowed none"));
  if (s.weight_quantization.has_value() && s.weight_quantization->reorders_inputs)
    return absl::UnimplementedError(
        "quantization_config: got groups of inputs that are not neighbours (desc_act, actorder) in "
        "a model with experts, allowed groups of neighbours: experts read their inputs as they "
        "are");
  return absl::OkStatus();
}

absl::Status CheckLeftOut(const ModelSpec& s) {
  if (!s.weight_quantization.has_value()) return absl::OkStatus();
  const std::vector<uint8_t>& left_out = s.weight_quantization->left_out;
  if (!left_out.empty() && left_out.size() != static_cast<size_t>(s.num_layers))
    return Refuse("weight_quantization.left_out", absl::StrCat(left_out.size(), " layers"),
                  absl::StrCat("none, or each of ", s.num_layers));
  for (const uint8_t bits : left_out)
    if (bits >> kNumBlockLinears != 0)
      return Refuse("weight_quantization.left_out", absl::StrCat(int{bits}),
                    absl::StrCat("bits of ", kNumBlockLinears, " linear layers"));
  return absl::OkStatus();
}

absl::Status CheckNumbers(const ModelSpec& s) {
  const struct {
    const char* name;
    double value;
  } numbers[] = {
      {"rms_norm_eps", s.rms_norm_eps},
      {"rope.theta", s.rope.theta},
      {"embedding_multiplier", s.embedding_multiplier},
      {"attention_multiplier", s.attention_multiplier},
      {"residual_multiplier", s.residual_multiplier},
      {"logits_scaling", s.logits_scaling},
      {"gate_slope", s.gate_slope},
  };
  for (const auto& number : numbers) {
    if (!std::isfinite(number.value) || number.value <= 0) {
      return Refuse(number.name, absl::StrCat(number.value), "a finite number > 0");
    }
  }
  const struct {
    const char* name;
    double value;
  } or_none[] = {
      {"attention_softcap", s.attention_softcap},
      {"logits_softcap", s.logits_softcap},
      {"norm_offset", s.norm_offset},
      {"gate_limit", s.gate_limit},
  };
  for (const auto& number : or_none) {
    if (!std::isfinite(number.value) || number.value < 0) {
      return Refuse(number.name, absl::StrCat(number.value), "0 (none) or a finite number > 0");
    }
  }
  if ((s.gate_limit != 0.0) != (s.activation == Activation::kLimited))
    return Refuse("gate_limit", absl::StrCat(s.gate_limit),
                  "a number > 0 with a limited activation, 0 with others");
  if (s.whole_qk_norm && !s.qk_norm)
    return Refuse("whole_qk_norm", "true without qk_norm", "true beside it, or false");
  return absl::OkStatus();
}

absl::Status CheckLlama3Rope(const RopeSpec& rope) {
  if (!std::isfinite(rope.low_freq_factor) || rope.low_freq_factor <= 0) {
    return Refuse("rope.low_freq_factor", absl::StrCat(rope.low_freq_factor),
                  "a finite number > 0");
  }
  if (!std::isfinite(rope.high_freq_factor) || rope.high_freq_factor <= rope.low_freq_factor) {
    return Refuse("rope.high_freq_factor", absl::StrCat(rope.high_freq_factor),
                  absl::StrCat("a finite number > low_freq_factor (", rope.low_freq_factor, ")"));
  }
  return absl::OkStatus();
}

absl::Status CheckYarnRope(const RopeSpec& rope) {
  if (rope.theta <= 1) {
    return Refuse("rope.theta", absl::StrCat(rope.theta), "a number > 1 beside yarn scaling");
  }
  if (!std::isfinite(rope.attention_factor) || rope.attention_factor <= 0) {
    return Refuse("rope.attention_factor", absl::StrCat(rope.attention_factor),
                  "a finite number > 0");
  }
  if (!std::isfinite(rope.beta_slow) || rope.beta_slow <= 0) {
    return Refuse("rope.beta_slow", absl::StrCat(rope.beta_slow), "a finite number > 0");
  }
  if (!std::isfinite(rope.beta_fast) || rope.beta_fast < rope.beta_slow) {
    return Refuse("rope.beta_fast", absl::StrCat(rope.beta_fast),
                  absl::StrCat("a finite number >= beta_slow (", rope.beta_slow, ")"));
  }
  return absl::OkStatus();
}

absl::Status CheckFactors(const char* name, const std::vector<double>& factors, int64_t pairs) {
  if (factors.size() != static_cast<size_t>(pairs))
    return Refuse(name, absl::StrCat(factors.size(), " numbers"),
                  absl::StrCat(pairs, ", one for each pair that is turned"));
  for (const double factor : factors) {
    if (!std::isfinite(factor) || factor <= 0)
      return Refuse(name, absl::StrCat(factor), "finite numbers > 0");
  }
  return absl::OkStatus();
}

absl::Status CheckLongRope(const RopeSpec& rope, int64_t turned) {
  if (rope.original_max_position_embeddings < 1)
    return Refuse("rope.original_max_position_embeddings",
                  absl::StrCat(rope.original_max_position_embeddings), "at least 1");
  if (!std::isfinite(rope.attention_factor) || rope.attention_factor <= 0)
    return Refuse("rope.attention_factor", absl::StrCat(rope.attention_factor),
                  "a finite number > 0");
  REPRISE_RETURN_IF_ERROR(CheckFactors("rope.short_factor", rope.short_factors, turned / 2));
  return CheckFactors("rope.long_factor", rope.long_factors, turned / 2);
}

// turned: elements of a head.
absl::Status CheckRope(const RopeSpec& rope, int64_t turned) {
  if (rope.scaling == RopeScaling::kNone) return absl::OkStatus();
  if (rope.scaling == RopeScaling::kLongRope) return CheckLongRope(rope, turned);
  if (!std::isfinite(rope.factor) || rope.factor < 1) {
    return Refuse("rope.factor", absl::StrCat(rope.factor), "a finite number >= 1");
  }
  if (rope.scaling == RopeScaling::kLinear) return absl::OkStatus();
  if (rope.original_max_position_embeddings < 1) {
    return Refuse("rope.original_max_position_embeddings",
                  absl::StrCat(rope.original_max_position_embeddings), "at least 1");
  }
  return rope.scaling == RopeScaling::kLlama3 ? CheckLlama3Rope(rope) : CheckYarnRope(rope);
}

// One kernel makes both tables, with one factor of cosines and sines.
absl::Status CheckSlidingRope(const ModelSpec& s) {
  if (!s.sliding_rope.has_value()) return absl::OkStatus();
  if (!std::isfinite(s.sliding_rope->theta) || s.sliding_rope->theta <= 0)
    return Refuse("sliding_rope.theta", absl::StrCat(s.sliding_rope->theta), "a finite number > 0");
  if (s.rope.scaling == RopeScaling::kLongRope || s.sliding_rope->scaling == RopeScaling::kLongRope)
    return Refuse("rope.scaling", "longrope",
                  "others where layers that slide have a rope of their own");
  REPRISE_RETURN_IF_ERROR(CheckRope(*s.sliding_rope, s.TurnedDim()));
  if (s.sliding_rope->attention_factor != s.rope.attention_factor)
    return Refuse(
        "rope.attention_factor", absl::StrCat(s.rope.attention_factor),
        absl::StrCat("that of layers that slide (", s.sliding_rope->attention_factor, ")"));
  return absl::OkStatus();
}

// Heads of which a part is turned are put in another order as weights are loaded: those of the
// projections alone, without biases and norms.
absl::Status CheckRotaryDim(const ModelSpec& s) {
  if (s.rotary_dim == 0) return absl::OkStatus();
  if (s.rotary_dim < 2 || s.rotary_dim > s.head_dim || s.rotary_dim % 2 != 0)
    return Refuse("rotary_dim", absl::StrCat(s.rotary_dim),
                  absl::StrCat("0, and even numbers to head_dim (", s.head_dim, ")"));
  if (s.qkv_bias || s.qk_norm)
    return Refuse("rotary_dim", absl::StrCat(s.rotary_dim), "0 with biases or norms of q and k");
  return absl::OkStatus();
}

// llama3: many turns over the original context stay as trained, few are slowed by `factor`, and
// between the two bounds the frequency moves linearly from one to the other.
double Llama3Frequency(const RopeSpec& rope, double frequency) {
  const double turns = static_cast<double>(rope.original_max_position_embeddings) * frequency /
                       (2 * std::numbers::pi);
  const double kept =
      (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
  const double share = std::clamp(kept, 0.0, 1.0);
  return share * frequency + (1 - share) * frequency / rope.factor;
}

// yarn: the same idea, linear in the index of the pair instead.
class YarnRamp {
 public:
  YarnRamp(const RopeSpec& rope, int64_t head_dim) {
    const auto dim = static_cast<double>(head_dim);
    // The pair, as a real number, that makes this many turns over the original context.
    auto pair_of = [&](double turns) {
      const auto context = static_cast<double>(rope.original_max_position_embeddings);
      return dim * std::log(context / (turns * 2 * std::numbers::pi)) / (2 * std::log(rope.theta));
    };
    const double fast = pair_of(rope.beta_fast), slow = pair_of(rope.beta_slow);
    first_ = std::max(rope.truncate ? std::floor(fast) : fast, 0.0);
    last_ = std::min(rope.truncate ? std::ceil(slow) : slow, dim - 1);
    if (first_ == last_) last_ += 0.001;  // as published: a step, not a division by zero
  }
  // 0: the pair's frequency is kept; 1: it is divided by the factor.
  double At(size_t pair) const {
    return std::clamp((static_cast<double>(pair) - first_) / (last_ - first_), 0.0, 1.0);
  }

 private:
  double first_, last_;
};

}  // namespace

int64_t ModelSpec::WindowOf(int64_t layer) const {
  return slides.empty() || slides[static_cast<size_t>(layer)] ? sliding_window : 0;
}

int64_t ModelSpec::RopeTableOf(int64_t layer) const {
  const bool slides_here = slides.empty() || slides[static_cast<size_t>(layer)];
  return sliding_rope.has_value() && slides_here ? 1 : 0;
}

int64_t ModelSpec::KvLayerOf(int64_t layer) const {
  return layer - std::count(mamba_layers.begin(),
                            mamba_layers.begin() +
                                std::min<int64_t>(layer, static_cast<int64_t>(mamba_layers.size())),
                            true);
}

int64_t ModelSpec::NumLeftOut() const {
  int64_t count = 0;
  if (weight_quantization.has_value())
    for (const uint8_t bits : weight_quantization->left_out) count += std::popcount(bits);
  return count;
}

uint64_t ModelSpec::RowStateBytes(runtime::DType dtype) const {
  if (!mamba.has_value()) return 0;
  const auto inputs = static_cast<uint64_t>((mamba->conv_width - 1) * mamba->conv_size());
  const auto state = static_cast<uint64_t>(mamba->inner_size() * mamba->state_size);
  return static_cast<uint64_t>(num_layers - NumAttentionLayers()) *
         (inputs * runtime::SizeOf(dtype) + state * sizeof(float));
}

std::vector<int64_t> ModelSpec::Windows() const {
  std::vector<int64_t> windows;
  for (int64_t layer = 0; layer < num_layers; ++layer) windows.push_back(WindowOf(layer));
  std::sort(windows.begin(), windows.end());  // 0 is the widest
  windows.erase(std::unique(windows.begin(), windows.end()), windows.end());
  return windows;
}

double ModelSpec::MeanVisible(double context, double tokens) const {
  if (sliding_window == 0) return context;
  const double in_window = std::min(context, static_cast<double>(sliding_window) + tokens - 1);
  if (slides.empty()) return in_window;
  const auto num_sliding = static_cast<double>(std::count(slides.begin(), slides.end(), true));
  const double share = num_sliding / static_cast<double>(num_layers);
  return share * in_window + (1 - share) * context;
}

double ModelSpec::MeanExperts(double tokens) const {
  if (num_experts == 0) return 0.0;
  const auto experts = static_cast<double>(num_experts);
  // All tokens leave an expert alone with this probability.
  const double alone = std::pow(1.0 - static_cast<double>(experts_per_token) / experts, tokens);
  return experts * (1.0 - alone);
}

absl::Status ValidateModelSpec(const ModelSpec& spec) {
  if (FindArchitecture(spec.architecture) == nullptr) {
    return Refuse("architecture", absl::StrCat("'", spec.architecture, "'"),
                  absl::StrJoin(KnownArchitectures(), ", ",
                                [](std::string* out, const Architecture& architecture) {
                                  absl::StrAppend(out, architecture.name);
                                }));
  }
  REPRISE_RETURN_IF_ERROR(CheckSizes(spec));
  REPRISE_RETURN_IF_ERROR(CheckExperts(spec));
  REPRISE_RETURN_IF_ERROR(CheckMamba(spec));
  REPRISE_RETURN_IF_ERROR(CheckLeftOut(spec));
  REPRISE_RETURN_IF_ERROR(CheckNumbers(spec));
  REPRISE_RETURN_IF_ERROR(CheckRotaryDim(spec));
  REPRISE_RETURN_IF_ERROR(CheckRope(spec.rope, spec.TurnedDim()));
  REPRISE_RETURN_IF_ERROR(CheckSlidingRope(spec));
  for (const uint32_t id : spec.eos_token_ids) {
    if (int64_t{id} >= spec.vocab_size) {
      return Refuse("eos_token_ids", absl::StrCat(id),
                    absl::StrCat("ids below vocab_size (", spec.vocab_size, ")"));
    }
  }
  return absl::OkStatus();
}

namespace {

// turned: elements of a head that rope turns.
void AppendInverseFrequencies(const RopeSpec& rope, int64_t turned, int64_t head_dim,
                              std::vector<float>* frequencies) {
  const size_t end = frequencies->size() + static_cast<size_t>(head_dim / 2);
  for (size_t i = 0; i < static_cast<size_t>(turned / 2); ++i) {
    const double exponent = 2.0 * static_cast<double>(i) / static_cast<double>(turned);
    double frequency = std::pow(rope.theta, -exponent);
    switch (rope.scaling) {
      case RopeScaling::kNone:
        break;
      case RopeScaling::kLinear:
        frequency /= rope.factor;
        break;
      case RopeScaling::kLlama3:
        frequency = Llama3Frequency(rope, frequency);
        break;
      case RopeScaling::kYarn: {
        const double slowed = YarnRamp(rope, turned).At(i);
        frequency = (1 - slowed) * frequency + slowed * frequency / rope.factor;
        break;
      }
      case RopeScaling::kLongRope:
        frequency /= (rope.takes_long_factors ? rope.long_factors : rope.short_factors)[i];
        break;
    }
    frequencies->push_back(static_cast<float>(frequency));
  }
  frequencies->resize(end, 0.0f);
}

}  // namespace

std::vector<float> RopeInverseFrequencies(const ModelSpec& spec) {
  std::vector<float> frequencies;
  if (!spec.has_rope) {
    frequencies.assign(static_cast<size_t>(spec.NumRopeTables() * spec.head_dim / 2), 0.0f);
    return frequencies;
  }
  AppendInverseFrequencies(spec.rope, spec.TurnedDim(), spec.head_dim, &frequencies);
  if (spec.sliding_rope.has_value())
    AppendInverseFrequencies(*spec.sliding_rope, spec.TurnedDim(), spec.head_dim, &frequencies);
  return frequencies;
}

}  // namespace reprise::models
