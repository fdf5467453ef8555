// SPDX-License-Identifier: Apache-2.0
#include "tools/replay/recorded_engine.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/weight_format.h"
#include "runtime/status_macros.h"
#include "service/record/record_format.h"

namespace reprise::tools {
namespace {

// Model.weight_dtype of a server that rounds activations.
constexpr std::string_view kRounded = kernels::NameOf(kernels::WeightFormat::kE4m3Rounded);

absl::Status Mismatch(const std::string& what, const std::string& got, const std::string& allowed) {
  return absl::FailedPreconditionError(
      absl::StrCat(what, ": got ", got, ", allowed: ", allowed, ", as recorded"));
}

// ---- building one ----

absl::Status ApplyModel(const v1::RecordHeader& header, EngineFlags* flags) {
  models::ModelSource& source = flags->source;
  if (source.directory.empty() && source.preset.empty()) {
    source.directory = header.model_directory();
    source.preset = header.preset();
  }
  source.random_seed = header.random_seed();
  if (source.preset != header.preset()) {
    return Mismatch("preset", source.preset.empty() ? "none" : source.preset,
                    header.preset().empty() ? "none" : header.preset());
  }
  REPRISE_RETURN_IF_ERROR(CheckSource(source));
  REPRISE_ASSIGN_OR_RETURN(const std::string sha256, service::ConfigSha256(source));
  if (sha256 == header.config_sha256()) return absl::OkStatus();
  return Mismatch(absl::StrCat("SHA-256 of ", source.directory, "/config.json"),
                  absl::BytesToHexString(sha256), absl::BytesToHexString(header.config_sha256()));
}

absl::Status ApplyTypes(const v1::DescribeResponse& server, engine::DecodeEngineOptions* options) {
  REPRISE_ASSIGN_OR_RETURN(const std::optional<runtime::DType> dtype,
                           ParseDType(server.model().dtype()));
  REPRISE_ASSIGN_OR_RETURN(options->kv_dtype, ParseKvDType(server.model().kv_dtype()));
  REPRISE_ASSIGN_OR_RETURN(options->linear, ParseLinear(server.linear_policy()));
  options->round_activations = server.model().weight_dtype() == kRounded;
  if (dtype) options->dtype = *dtype;
  options->dtype_from_checkpoint = !dtype.has_value();
  return absl::OkStatus();
}

void ApplyLimits(const v1::DescribeResponse& server, engine::DecodeEngineOptions* options) {
  const v1::Limits& limits = server.limits();
  options->block_size = server.pool().block_size();
  options->max_rows = limits.max_rows();
  options->max_context_length = limits.max_context_length();
  options->pipeline_depth = limits.pipeline_depth();
  options->max_steps_per_request = limits.max_steps_per_request();
  options->batch_invariant = server.attention_tree().batch_invariant();
  options->min_shared_tokens = limits.min_shared_tokens();
  options->adjust_logits = limits.adjust_logits();
  options->max_logit_rows = limits.max_logit_rows();
  options->max_prompt_logprobs = limits.max_prompt_logprobs();
  options->max_draft_tokens = limits.max_draft_tokens();
  for (const v1::Bucket& bucket : server.buckets()) {
    (bucket.kind() == "decode" ? options->decode_buckets : options->mixed_buckets)
        .push_back(bucket.capacity());
  }
}

// As swap space takes them: what each of a layer's two buffers has begins at a multiple of 16
// bytes.
uint64_t StateBytes(const v1::DescribeResponse& server) {
  constexpr uint64_t kMostPadding = 2 * 16;
  const uint64_t bytes = server.limits().row_state_bytes();
  return bytes == 0 ? 0 : bytes + kMostPadding * server.model().num_layers();
}

// Of swap space with room for so much. Where rows have states, each half of it is for one of both,
// and takes one at least.
uint64_t SwapBytes(const ReplayNeeds& needs, uint64_t block_bytes, uint64_t state_bytes) {
  const uint64_t blocks = needs.swap_blocks * block_bytes;
  const uint64_t states = needs.swap_states * state_bytes;
  if (blocks + states == 0) return 0;
  if (state_bytes == 0) return blocks;
  return 2 * std::max({blocks, states, block_bytes, state_bytes});
}

// ---- checking one ----

// A number of Describe that decides bits or limits.
struct Setting {
  const char* name;
  uint64_t recorded;
  uint64_t got;
};

absl::Status CheckEqual(const std::vector<Setting>& settings) {
  for (const Setting& setting : settings) {
    if (setting.got != setting.recorded)
      return Mismatch(setting.name, absl::StrCat(setting.got), absl::StrCat(setting.recorded));
  }
  return absl::OkStatus();
}

absl::Status CheckAtLeast(const std::vector<Setting>& settings) {
  for (const Setting& setting : settings) {
    if (setting.got >= setting.recorded) continue;
    return Mismatch(setting.name, absl::StrCat(setting.got),
                    absl::StrCat(setting.recorded, " or more"));
  }
  return absl::OkStatus();
}

absl::Status CheckNames(const v1::DescribeResponse& recorded, const v1::DescribeResponse& got) {
  const v1::Model& model = recorded.model();
  const v1::Model& other = got.model();
  if (other.architecture() != model.architecture())
    return Mismatch("architecture", other.architecture(), model.architecture());
  if (other.dtype() != model.dtype()) return Mismatch("dtype", other.dtype(), model.dtype());
  if (other.kv_dtype() != model.kv_dtype())
    return Mismatch("kv_dtype", other.kv_dtype(), model.kv_dtype());
  if (other.weight_dtype() != model.weight_dtype() &&
      (other.weight_dtype() == kRounded || model.weight_dtype() == kRounded))
    return Mismatch("weight_dtype", other.weight_dtype(), model.weight_dtype());
  if (got.linear_policy() != recorded.linear_policy())
    return Mismatch("linear_policy", got.linear_policy(), recorded.linear_policy());
  const auto& stops = model.eos_token_ids();
  const auto& others = other.eos_token_ids();
  if (!std::equal(stops.begin(), stops.end(), others.begin(), others.end())) {
    return Mismatch("eos_token_ids", absl::StrCat("[", absl::StrJoin(others, ", "), "]"),
                    absl::StrCat("[", absl::StrJoin(stops, ", "), "]"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ApplyRecordedSettings(const v1::RecordHeader& header, const ReplayNeeds& needs,
                                   EngineFlags* flags) {
  const v1::DescribeResponse& server = header.server();
  REPRISE_RETURN_IF_ERROR(ApplyModel(header, flags));
  REPRISE_RETURN_IF_ERROR(ApplyTypes(server, &flags->engine));
  ApplyLimits(server, &flags->engine);
  // With the scratch block; the pool takes two blocks at least.
  const uint64_t blocks = std::max(uint64_t{needs.blocks} + 1, uint64_t{2});
  const uint64_t block_bytes = server.pool().bytes() / std::max(1u, server.pool().num_blocks());
  flags->engine.kv_cache_bytes = blocks * block_bytes;
  flags->engine.swap_bytes = SwapBytes(needs, block_bytes, StateBytes(server));
  return absl::OkStatus();
}

absl::Status CheckAnswersAlike(const v1::DescribeResponse& recorded,
                               const v1::DescribeResponse& got) {
  REPRISE_RETURN_IF_ERROR(CheckNames(recorded, got));
  const v1::Model& model = recorded.model();
  const v1::Model& other = got.model();
  const v1::Limits& limits = recorded.limits();
  const v1::Limits& others = got.limits();
  REPRISE_RETURN_IF_ERROR(
      CheckEqual({{"vocab_size", model.vocab_size(), other.vocab_size()},
                  {"num_layers", model.num_layers(), other.num_layers()},
                  {"hidden_size", model.hidden_size(), other.hidden_size()},
                  {"num_heads", model.num_heads(), other.num_heads()},
                  {"num_kv_heads", model.num_kv_heads(), other.num_kv_heads()},
                  {"head_dim", model.head_dim(), other.head_dim()},
                  {"num_parameters", model.num_parameters(), other.num_parameters()},
                  {"block_size", recorded.pool().block_size(), got.pool().block_size()},
                  {"max_context_length", limits.max_context_length(), others.max_context_length()},
                  {"min_shared_tokens", limits.min_shared_tokens(), others.min_shared_tokens()},
                  {"batch_invariant", recorded.attention_tree().batch_invariant() ? 1u : 0u,
                   got.attention_tree().batch_invariant() ? 1u : 0u}}));
  return CheckAtLeast(
      {{"max_rows", limits.max_rows(), others.max_rows()},
       {"max_step_tokens", limits.max_step_tokens(), others.max_step_tokens()},
       {"max_steps_per_request", limits.max_steps_per_request(), others.max_steps_per_request()},
       {"adjust_logits", limits.adjust_logits() ? 1u : 0u, others.adjust_logits() ? 1u : 0u},
       {"max_logit_rows", limits.max_logit_rows(), others.max_logit_rows()},
       {"max_prompt_logprobs", limits.max_prompt_logprobs(), others.max_prompt_logprobs()},
       {"max_draft_tokens", limits.max_draft_tokens(), others.max_draft_tokens()},
       {"max_sampling_bytes", limits.max_sampling_bytes(), others.max_sampling_bytes()}});
}

std::string DoubtsText(const v1::DescribeResponse& recorded, const v1::DescribeResponse& got) {
  std::vector<std::string> doubts;
  if (recorded.device().name() != got.device().name()) {
    doubts.push_back(absl::StrCat("recorded on ", recorded.device().name(), " and repeated on ",
                                  got.device().name()));
  }
  if (recorded.attention_tree().text() != got.attention_tree().text())
    doubts.emplace_back("the attention tree is another");
  if (!recorded.attention_tree().batch_invariant())
    doubts.emplace_back("without batch invariance bits depend on what ran beside a row");
  if (doubts.empty()) return "";
  return absl::StrCat("bits may differ: ", absl::StrJoin(doubts, "; "));
}

}  // namespace reprise::tools
