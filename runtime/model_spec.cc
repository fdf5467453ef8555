// SPDX-License-Identifier: Apache-2.0
// What follows from a ModelSpec's numbers, and which numbers are sane; see model_spec.h.
#include "runtime/model_spec.h"

#include <cmath>
#include <numbers>

#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"

namespace reprise::runtime {
namespace {

constexpr int64_t kMaxSize = INT32_MAX;  // kernels index rows of a matrix with 32 bits
constexpr int64_t kMaxLayers = 4096;     // far above any model; bounds what we build per layer
constexpr int64_t kMaxParameters = int64_t{1} << 56;  // bytes and aligned offsets stay inside int64

// Wide enough for any product of a spec's fields, sane or not.
__extension__ using Int128 = __int128;

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
  const Int128 qkv_size = (Int128{s.num_heads} + 2 * Int128{s.num_kv_heads}) * s.head_dim;
  if (qkv_size > kMaxSize) {
    return Refuse("(num_heads + 2 * num_kv_heads) * head_dim", "more than int32 holds",
                  absl::StrCat("at most ", kMaxSize));
  }
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
  };
  for (const auto& number : numbers) {
    if (!std::isfinite(number.value) || number.value <= 0) {
      return Refuse(number.name, absl::StrCat(number.value), "a finite number > 0");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckLlama3Rope(const RopeSpec& rope) {
  if (rope.scaling != RopeScaling::kLlama3) return absl::OkStatus();
  if (!std::isfinite(rope.factor) || rope.factor < 1) {
    return Refuse("rope.factor", absl::StrCat(rope.factor), "a finite number >= 1");
  }
  if (!std::isfinite(rope.low_freq_factor) || rope.low_freq_factor <= 0) {
    return Refuse("rope.low_freq_factor", absl::StrCat(rope.low_freq_factor),
                  "a finite number > 0");
  }
  if (!std::isfinite(rope.high_freq_factor) || rope.high_freq_factor <= rope.low_freq_factor) {
    return Refuse("rope.high_freq_factor", absl::StrCat(rope.high_freq_factor),
                  absl::StrCat("a finite number > low_freq_factor (", rope.low_freq_factor, ")"));
  }
  if (rope.original_max_position_embeddings < 1) {
    return Refuse("rope.original_max_position_embeddings",
                  absl::StrCat(rope.original_max_position_embeddings), "at least 1");
  }
  return absl::OkStatus();
}

Int128 CountParameters(const ModelSpec& s) {
  const Int128 hidden = s.hidden_size, intermediate = s.intermediate_size;
  const Int128 q = Int128{s.num_heads} * s.head_dim;
  const Int128 qkv = q + 2 * Int128{s.num_kv_heads} * s.head_dim;
  Int128 layer = qkv * hidden + hidden * q + 3 * hidden * intermediate + 2 * hidden;
  if (s.attention_bias) layer += qkv + hidden;
  if (s.mlp_bias) layer += 2 * intermediate + hidden;
  const Int128 embedding = Int128{s.vocab_size} * hidden;
  return layer * s.num_layers + embedding * (s.tie_word_embeddings ? 1 : 2) + hidden;
}

}  // namespace

absl::Status ValidateModelSpec(const ModelSpec& spec) {
  if (spec.architecture != "llama" && spec.architecture != "granite") {
    return Refuse("architecture", absl::StrCat("'", spec.architecture, "'"), "llama or granite");
  }
  REPRISE_RETURN_IF_ERROR(CheckSizes(spec));
  REPRISE_RETURN_IF_ERROR(CheckNumbers(spec));
  REPRISE_RETURN_IF_ERROR(CheckLlama3Rope(spec.rope));
  if (CountParameters(spec) > kMaxParameters) {
    return Refuse("number of parameters", "more than can be addressed",
                  absl::StrCat("at most ", kMaxParameters));
  }
  for (const uint32_t id : spec.eos_token_ids) {
    if (int64_t{id} >= spec.vocab_size) {
      return Refuse("eos_token_ids", absl::StrCat(id),
                    absl::StrCat("ids below vocab_size (", spec.vocab_size, ")"));
    }
  }
  return absl::OkStatus();
}

std::vector<float> RopeInverseFrequencies(const ModelSpec& spec) {
  const RopeSpec& rope = spec.rope;
  std::vector<float> frequencies(static_cast<size_t>(spec.head_dim / 2));
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double exponent = 2.0 * static_cast<double>(i) / static_cast<double>(spec.head_dim);
    double frequency = std::pow(rope.theta, -exponent);
    if (rope.scaling == RopeScaling::kLlama3) {
      // Turns that this pair makes over the original context: many turns stay as trained, few are
      // slowed by `factor`, and between the two bounds the frequency moves linearly from one to
      // the other.
      const double turns = static_cast<double>(rope.original_max_position_embeddings) * frequency /
                           (2 * std::numbers::pi);
      const double kept =
          (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
      const double share = kept < 0 ? 0 : kept > 1 ? 1 : kept;
      frequency = share * frequency + (1 - share) * frequency / rope.factor;
    }
    frequencies[i] = static_cast<float>(frequency);
  }
  return frequencies;
}

int64_t NumParameters(const ModelSpec& spec) { return static_cast<int64_t>(CountParameters(spec)); }

}  // namespace reprise::runtime
