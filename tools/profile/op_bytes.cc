// SPDX-License-Identifier: Apache-2.0
// A rule for each op. The layers of models count the same of a whole step (models/step_bytes.h).
#include "tools/profile/op_bytes.h"

#include <string_view>

#include "kernels/embedding/instances.h"
#include "kernels/experts/instances.h"
#include "kernels/gather_columns/instances.h"
#include "kernels/mamba/instances.h"
#include "kernels/rms_norm/instances.h"
#include "kernels/rope_append/instances.h"
#include "kernels/round_rows/instances.h"
#include "kernels/sample/instances.h"
#include "kernels/silu_mul/instances.h"
#include "kernels/softcap/instances.h"
#include "kernels/step_kernel/instances.h"
#include "models/config/architectures.h"
#include "runtime/dtype.h"

namespace reprise::tools {
namespace {

using models::LayerKind;

constexpr double kF32Bytes = sizeof(float);

double ToDouble(int64_t count) { return static_cast<double>(count); }

// What rules count by.
struct OpCounts {
  const models::ModelSpec& spec;
  const models::Architecture& architecture;
  const models::StepBytes& step;
  models::MambaSpec mamba;  // zeros where the model has none
  double calls = 0;         // launches of the op in a step
  double rows = 0;          // whose logits are wanted
  double continued = 0;     // of these, those that had tokens before the step
  double tokens = 0;
  // Bytes: of an element of activations and of the KV cache, and of all logits.
  double element = 0, kv_element = 0, logits = 0;

  // Bytes of a token's place in the residual stream.
  double hidden() const { return ToDouble(spec.hidden_size) * element; }
  // Bytes of cosines and sines of a token, of one table.
  double rope() const { return ToDouble(spec.head_dim) * kF32Bytes; }
};

std::optional<OpBytes> OfEmbedding(const OpCounts& c) {
  const double rope = ToDouble(c.spec.NumRopeTables()) * c.rope();
  return OpBytes{.read = c.tokens * c.hidden(), .written = c.tokens * (c.hidden() + rope)};
}

// Of the norms before layers, how many there are for a branch that one of them adds; and whether
// the last norm of all adds one.
struct NormBranches {
  double share = 0;
  bool last = false;
};
NormBranches BranchesOf(const OpCounts& c) {
  bool adds = false;
  double norms = 0, branches = 0;
  for (int64_t block = 0; block < c.spec.num_layers; ++block) {
    for (const models::LayerEntry& entry : c.architecture.BlockOf(block)) {
      if (entry.kind == LayerKind::kNorm) {
        norms += 1;
        branches += adds ? 1 : 0;
      }
      adds = entry.kind != LayerKind::kNorm && entry.kind != LayerKind::kPostNorm;
    }
  }
  return {.share = norms > 0 ? branches / norms : 0.0, .last = adds};
}

// Those before layers read the residual, and the branch that they add to it where one is left, and
// write the residual and its norm. The last one is of the rows whose logits are wanted, and keeps
// no residual. Where linear layers do the norms beside them, which ones is not told: what is left
// counts as the mean of all.
std::optional<OpBytes> OfNorms(const OpCounts& c) {
  const NormBranches branches = BranchesOf(c);
  const double of_layers = (c.calls - 1) * c.tokens;
  const double last_read = c.rows * (branches.last ? 2 : 1);
  return OpBytes{.read = (of_layers * (1 + branches.share) + last_read + c.calls) * c.hidden(),
                 .written = (of_layers * 2 + c.rows) * c.hidden()};
}

// The same before layers alone, whose norms are in 8 bits.
std::optional<OpBytes> OfRoundedNorms(const OpCounts& c) {
  const double tokens = c.calls * c.tokens;
  return OpBytes{.read = (tokens * (1 + BranchesOf(c).share) + c.calls) * c.hidden(),
                 .written = tokens * (c.hidden() + ToDouble(c.spec.hidden_size) + kF32Bytes)};
}

std::optional<OpBytes> OfNormsBehind(const OpCounts& c) {
  return OpBytes{.read = c.calls * (2 * c.tokens + 1) * c.hidden(),
                 .written = c.calls * c.tokens * c.hidden()};
}

std::optional<OpBytes> OfRopeAppend(const OpCounts& c) {
  const models::ModelSpec& s = c.spec;
  int64_t norms = 0;  // elements
  if (s.qk_norm) norms = s.whole_qk_norm ? s.q_size() + s.kv_size() : 2 * s.head_dim;
  const double read = c.tokens * (ToDouble(s.qkv_size()) * c.element + c.rope());
  const double written =
      ToDouble(s.q_size()) * c.element + ToDouble(2 * s.kv_size()) * c.kv_element;
  return OpBytes{.read = c.calls * (read + ToDouble(norms) * c.element),
                 .written = c.calls * c.tokens * written};
}

// Of MLPs and of experts, for every expert that a token goes to. Unset where some of them have it
// in a linear layer, for which ones is not told.
std::optional<OpBytes> OfSiluMul(const OpCounts& c) {
  const models::ModelSpec& s = c.spec;
  double experts = 0;
  for (int64_t layer = 0; layer < s.num_layers; ++layer) experts += s.HasExperts(layer) ? 1 : 0;
  const double layers = ToDouble(s.num_layers);
  const double mlps = c.architecture.shared_mlp != nullptr ? layers : layers - experts;
  if (c.calls != mlps + experts) return std::nullopt;
  const double outputs =
      c.tokens * (mlps * ToDouble(s.intermediate_size) +
                  experts * ToDouble(s.experts_per_token) * ToDouble(s.expert_intermediate_size));
  return OpBytes{.read = 2 * outputs * c.element, .written = outputs * c.element};
}

// Inputs of all linear layers of blocks: models with experts have no gathers. Each half of a block
// reads the hidden size, and what is its own.
std::optional<OpBytes> OfGathers(const OpCounts& c) {
  double inputs = 0;
  for (int64_t block = 0; block < c.spec.num_layers; ++block) {
    const int64_t mixed = c.spec.IsMamba(block) ? c.mamba.inner_size() : c.spec.q_size();
    inputs += ToDouble(2 * c.spec.hidden_size + mixed + c.spec.intermediate_size);
  }
  const double elements = c.tokens * inputs * c.element;
  return OpBytes{.read = elements + inputs * sizeof(uint32_t), .written = elements};
}

// Unset where it is not told which layers round: of models with experts, and of those that have not
// a norm before each half of a block, which leaves the other layers' inputs to round.
std::optional<OpBytes> OfRounding(const OpCounts& c) {
  if (c.spec.num_experts != 0 || c.calls != ToDouble(2 * c.spec.num_layers)) return std::nullopt;
  double inputs = 0;
  for (int64_t block = 0; block < c.spec.num_layers; ++block) {
    const int64_t mixed = c.spec.IsMamba(block) ? c.mamba.inner_size() : c.spec.q_size();
    inputs += ToDouble(mixed + c.spec.intermediate_size);
  }
  return OpBytes{.read = c.tokens * inputs * c.element,
                 .written = c.tokens * (inputs + c.calls * kF32Bytes)};
}

std::optional<OpBytes> OfSoftcap(const OpCounts& c) {
  return OpBytes{.read = c.logits, .written = c.logits};
}

std::optional<OpBytes> OfSampling(const OpCounts& c) { return OpBytes{.read = c.logits}; }

std::optional<OpBytes> OfRouting(const OpCounts& c) {
  return OpBytes{.read = c.calls * c.tokens * ToDouble(c.spec.num_experts) * kF32Bytes};
}

std::optional<OpBytes> OfCombining(const OpCounts& c) {
  const double summands =
      ToDouble(c.spec.experts_per_token) + (c.architecture.shared_mlp != nullptr ? 1 : 0);
  return OpBytes{.read = c.calls * c.tokens * summands * c.hidden(),
                 .written = c.calls * c.tokens * c.hidden()};
}

std::optional<OpBytes> OfMambaConv(const OpCounts& c) {
  const double channels = ToDouble(c.mamba.conv_size());
  const double state = ToDouble(c.mamba.conv_width - 1) * channels * c.element;
  const double weights =
      ToDouble(c.mamba.conv_width + (c.mamba.conv_bias ? 1 : 0)) * channels * kF32Bytes;
  const double of_tokens = c.tokens * channels * c.element;
  return OpBytes{.read = c.calls * (of_tokens + c.continued * state + weights),
                 .written = c.calls * (of_tokens + c.rows * state)};
}

std::optional<OpBytes> OfMambaScan(const OpCounts& c) {
  const models::MambaSpec& m = c.mamba;
  const double state = ToDouble(m.inner_size() * m.state_size) * kF32Bytes;
  const double numbers = ToDouble(3 * m.num_heads) * kF32Bytes;
  const double of_tokens = c.tokens * ToDouble(m.conv_size() + m.num_heads) * c.element;
  const double outputs = c.tokens * ToDouble(m.inner_size()) * c.element;
  return OpBytes{.read = c.calls * (of_tokens + c.continued * state + numbers),
                 .written = c.calls * (outputs + c.rows * state)};
}

std::optional<OpBytes> OfMambaNorm(const OpCounts& c) {
  const double inner = ToDouble(c.mamba.inner_size()) * c.element;
  return OpBytes{.read = c.calls * (2 * c.tokens + 1) * inner,
                 .written = c.calls * c.tokens * inner};
}

// All weights but the embedding's lines, and KV.
std::optional<OpBytes> OfStepKernel(const OpCounts& c) {
  return OpBytes{
      .read = static_cast<double>(c.step.weights + c.step.kv_read) - c.tokens * c.hidden(),
      .written = static_cast<double>(c.step.kv_written)};
}

struct OpRule {
  std::string_view op;
  std::optional<OpBytes> (*bytes)(const OpCounts& counts);
};

constexpr OpRule kOpRules[] = {
    {kernels::kEmbedding.name, OfEmbedding},
    {kernels::kRmsNorm.name, OfNorms},
    {kernels::kRmsNormAdd.name, OfNormsBehind},
    {kernels::kRopeAppend.name, OfRopeAppend},
    {kernels::kRopeAppendNormed.name, OfRopeAppend},
    {kernels::kSiluMul.name, OfSiluMul},
    {kernels::kGatherColumns.name, OfGathers},
    {kernels::kSoftcap.name, OfSoftcap},
    {kernels::kRoundRows.name, OfRounding},
    {kernels::kRmsNormRounded.name, OfRoundedNorms},
    {kernels::kSamplePartial.name, OfSampling},
    {kernels::kExpertsRoute.name, OfRouting},
    {kernels::kExpertsCombine.name, OfCombining},
    {kernels::kMambaConv.name, OfMambaConv},
    {kernels::kMambaScan.name, OfMambaScan},
    {kernels::kMambaNorm.name, OfMambaNorm},
    {kernels::kStepKernel.name, OfStepKernel},
};

}  // namespace

std::optional<OpBytes> BytesByModel(const OpTime& op, const PointProfile& point,
                                    const ProfileContext& context) {
  const models::ModelSpec& spec = context.spec;
  const models::Architecture* const architecture = models::FindArchitecture(spec.architecture);
  if (architecture == nullptr) return std::nullopt;
  const StepPoint step = point.point();
  OpCounts counts{.spec = spec,
                  .architecture = *architecture,
                  .step = point.bytes,
                  .mamba = spec.mamba.value_or(models::MambaSpec{}),
                  .calls = static_cast<double>(op.count),
                  .rows = static_cast<double>(step.num_rows()),
                  .continued = static_cast<double>(step.rows),
                  .tokens = static_cast<double>(step.num_tokens()),
                  .element = static_cast<double>(runtime::SizeOf(context.dtype)),
                  .kv_element = static_cast<double>(runtime::SizeOf(context.kv_dtype))};
  counts.logits = counts.rows * ToDouble(spec.vocab_size) * kF32Bytes;
  for (const OpRule& rule : kOpRules)
    if (rule.op == op.launch.op) return rule.bytes(counts);
  return std::nullopt;
}

}  // namespace reprise::tools
