// SPDX-License-Identifier: Apache-2.0
#include "service/wire/step_from_wire.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "google/protobuf/descriptor.h"
#include "runtime/check.h"
#include "runtime/status_macros.h"
#include "service/trace_id.h"

namespace reprise::service {
namespace {

using google::protobuf::FieldDescriptor;

std::span<const uint32_t> View(const google::protobuf::RepeatedField<uint32_t>& field) {
  return {field.data(), static_cast<size_t>(field.size())};
}

std::span<const std::byte> View(const std::string& bytes) {
  return std::as_bytes(std::span(bytes.data(), bytes.size()));
}

// The fields of reprise.v1.Sampling that carry the engine's numbers, in the order of
// ForEachSamplingNumber: they have the same names.
std::vector<const FieldDescriptor*> FindNumberFields() {
  std::vector<const FieldDescriptor*> fields;
  engine::ForEachSamplingNumber([&fields](const auto& number) {
    fields.push_back(v1::Sampling::descriptor()->FindFieldByName(std::string(number.name)));
    REPRISE_CHECK(fields.back() != nullptr);
  });
  return fields;
}

template <typename T>
T ReadNumber(const v1::Sampling& wire, const FieldDescriptor* field) {
  const google::protobuf::Reflection* reflection = wire.GetReflection();
  if constexpr (std::is_same_v<T, float>) return reflection->GetFloat(wire, field);
  if constexpr (std::is_same_v<T, uint32_t>) return reflection->GetUInt32(wire, field);
  if constexpr (std::is_same_v<T, uint64_t>) return reflection->GetUInt64(wire, field);
  if constexpr (std::is_same_v<T, bool>) return reflection->GetBool(wire, field);
}

// A field left out reads as 0 and stands for the default, which is not 0 for every number.
void NumbersFromWire(const v1::Sampling& wire, engine::SamplingParams* sampling) {
  static const std::vector<const FieldDescriptor*>& fields =
      *new std::vector<const FieldDescriptor*>(FindNumberFields());
  size_t next = 0;
  engine::ForEachSamplingNumber([&]<typename T>(const engine::SamplingNumber<T>& number) {
    const T got = ReadNumber<T>(wire, fields[next++]);
    if (got != T{}) sampling->*number.member = got;
  });
}

// Pairs of flat fields; `biases` has room for them, so that views of it stay valid.
absl::Status BiasFromWire(const v1::Sampling& wire, std::vector<engine::TokenBias>* biases,
                          engine::SamplingParams* sampling) {
  if (wire.logit_bias_token_size() != wire.logit_bias_size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "add.sampling.logit_bias: got ", wire.logit_bias_size(), " numbers for ",
        wire.logit_bias_token_size(), " tokens of logit_bias_token, allowed one each"));
  }
  const size_t begin = biases->size();
  for (int i = 0; i < wire.logit_bias_size(); ++i)
    biases->push_back({.token = wire.logit_bias_token(i), .bias = wire.logit_bias(i)});
  sampling->logit_bias = std::span(*biases).subspan(begin);
  return absl::OkStatus();
}

absl::Status SamplingFromWire(const v1::Sampling& wire, std::vector<engine::TokenBias>* biases,
                              engine::SamplingParams* sampling) {
  NumbersFromWire(wire, sampling);
  sampling->allowed_tokens = View(wire.allowed_tokens());
  sampling->stop_tokens = View(wire.stop_tokens());
  return BiasFromWire(wire, biases, sampling);
}

absl::Status AddsFromWire(const v1::StepRequest& wire, StepScratch* scratch) {
  scratch->add.clear();
  scratch->biases.clear();
  size_t num_biases = 0;
  for (const v1::AddRow& add : wire.add())
    num_biases += static_cast<size_t>(add.sampling().logit_bias_size());
  scratch->biases.reserve(num_biases);
  for (const v1::AddRow& add : wire.add()) {
    engine::RowAdd& row = scratch->add.emplace_back();
    REPRISE_RETURN_IF_ERROR(SamplingFromWire(add.sampling(), &scratch->biases, &row.sampling));
    row.row = add.row();
    row.context_length = add.context_length();
    row.blocks = View(add.blocks());
    row.history = View(add.history());
    row.prompt_length = add.prompt_length();
    if (add.has_fork_of()) row.fork_of = add.fork_of();
    if (add.has_swapped_state()) row.swapped_state = add.swapped_state();
  }
  return absl::OkStatus();
}

absl::Status CopiesFromWire(const v1::StepRequest& wire, StepScratch* scratch) {
  scratch->copies.clear();
  if (wire.copy_blocks_size() % 2 != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("copy_blocks: got ", wire.copy_blocks_size(),
                     " ids, allowed pairs of source and destination"));
  }
  for (int i = 0; i < wire.copy_blocks_size(); i += 2) {
    scratch->copies.push_back(
        {.source = wire.copy_blocks(i), .destination = wire.copy_blocks(i + 1)});
  }
  return absl::OkStatus();
}

absl::Status ModeFromWire(v1::ExecutionMode wire, engine::ExecutionMode* mode) {
  switch (wire) {
    case v1::EXECUTION_MODE_UNSPECIFIED:
    case v1::EXECUTION_MODE_REPLAY:
      *mode = engine::ExecutionMode::kReplay;
      return absl::OkStatus();
    case v1::EXECUTION_MODE_EAGER:
      *mode = engine::ExecutionMode::kEager;
      return absl::OkStatus();
    default:
      return absl::InvalidArgumentError(absl::StrCat("mode: got ", static_cast<int>(wire),
                                                     ", allowed 0 or 1 (replay) and 2 (eager)"));
  }
}

// Launched kernel by kernel, the steps of one request may be more than a driver queues, and a
// launch that waits for room there would hold up every session.
absl::Status CheckEagerSteps(const engine::StepRequest& step) {
  if (step.mode != engine::ExecutionMode::kEager || step.num_steps == 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("num_steps: got ", step.num_steps, " with mode eager, allowed with it: 1"));
}

}  // namespace

absl::Status StepFromWire(const v1::StepRequest& wire, StepScratch* scratch,
                          engine::StepRequest* step) {
  REPRISE_RETURN_IF_ERROR(CheckTraceId(wire.trace_id()));
  REPRISE_RETURN_IF_ERROR(CopiesFromWire(wire, scratch));
  REPRISE_RETURN_IF_ERROR(AddsFromWire(wire, scratch));
  scratch->append.clear();
  for (const v1::AppendBlocks& append : wire.append()) {
    scratch->append.push_back({.row = append.row(), .blocks = View(append.blocks())});
  }
  scratch->chunks.clear();
  for (const v1::Chunk& chunk : wire.chunks()) {
    engine::RowChunk& run = scratch->chunks.emplace_back();
    run = {.row = chunk.row(),
           .sample = chunk.sample(),
           .tokens = View(chunk.tokens()),
           .prompt_logprobs = chunk.prompt_logprobs()};
    if (chunk.has_next_token()) run.next_token = chunk.next_token();
  }
  scratch->masks.clear();
  for (const v1::SetAllowedTokens& mask : wire.masks()) {
    scratch->masks.push_back({.row = mask.row(), .allowed_tokens = View(mask.allowed_tokens())});
  }
  scratch->prefixes.clear();
  for (const v1::PrefixGroup& prefix : wire.prefixes()) {
    scratch->prefixes.push_back(
        {.group = prefix.group(), .num_blocks = prefix.num_blocks(), .rows = View(prefix.rows())});
  }
  scratch->drafts.clear();
  for (const v1::RowDraft& draft : wire.drafts()) {
    scratch->drafts.push_back({.row = draft.row(), .tokens = View(draft.tokens())});
  }
  REPRISE_RETURN_IF_ERROR(ModeFromWire(wire.mode(), &step->mode));
  step->sequence = wire.sequence();
  step->drop = View(wire.drop());
  step->copies = scratch->copies;
  step->add = scratch->add;
  step->append = scratch->append;
  step->masks = scratch->masks;
  step->prefixes = scratch->prefixes;
  step->chunks = scratch->chunks;
  step->continue_rows = View(wire.continue_rows());
  step->continue_all = wire.continue_all();
  step->drafts = scratch->drafts;
  step->isolate_bad_rows = wire.isolate_bad_rows();
  step->num_steps = wire.num_steps() == 0 ? 1 : wire.num_steps();
  return CheckEagerSteps(*step);
}

}  // namespace reprise::service
