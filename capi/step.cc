// SPDX-License-Identifier: Apache-2.0
// Step requests of reprise.h, put together piece by piece. What they say of rows and blocks is the
// engine's to check.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "capi/call.h"
#include "capi/handles.h"
#include "capi/reprise.h"
#include "engine/sampling_params.h"
#include "engine/step_draft.h"
#include "engine/step_request.h"
#include "runtime/status_macros.h"

namespace reprise::capi {
namespace {

using engine::SamplingParams;
using engine::StepDraft;

absl::StatusOr<std::vector<uint32_t>> Numbers(std::string_view name, const uint32_t* numbers,
                                              size_t count) {
  REPRISE_RETURN_IF_ERROR(CheckArray(name, numbers, count));
  return std::vector<uint32_t>(numbers, numbers + count);
}

absl::StatusOr<std::vector<std::byte>> Bytes(std::string_view name, const uint8_t* bytes,
                                             size_t count) {
  REPRISE_RETURN_IF_ERROR(CheckArray(name, bytes, count));
  const auto* begin = reinterpret_cast<const std::byte*>(bytes);
  return std::vector<std::byte>(begin, begin + count);
}

reprise_sampling DefaultSampling() {
  const SamplingParams defaults;
  reprise_sampling sampling = {};
  sampling.top_p = defaults.top_p;
  sampling.repetition_penalty = defaults.repetition_penalty;
  return sampling;
}

// The numbers; the lists go to `lists`, which the parameters view.
absl::StatusOr<SamplingParams> Sampling(const reprise_sampling& given,
                                        reprise_step::SamplingLists* lists) {
  SamplingParams sampling;
  sampling.temperature = given.temperature;
  sampling.seed = given.seed;
  sampling.top_k = given.top_k;
  sampling.top_p = given.top_p;
  sampling.min_p = given.min_p;
  sampling.repetition_penalty = given.repetition_penalty;
  sampling.presence_penalty = given.presence_penalty;
  sampling.frequency_penalty = given.frequency_penalty;
  sampling.max_new_tokens = given.max_new_tokens;
  sampling.min_tokens = given.min_tokens;
  sampling.num_logprobs = given.num_logprobs;
  REPRISE_ASSIGN_OR_RETURN(sampling.stop_at_eos, ReadSwitch("stop_at_eos", given.stop_at_eos));
  REPRISE_ASSIGN_OR_RETURN(sampling.return_logits,
                           ReadSwitch("return_logits", given.return_logits));
  REPRISE_ASSIGN_OR_RETURN(lists->stop_tokens,
                           Numbers("stop_tokens", given.stop_tokens, given.num_stop_tokens));
  REPRISE_ASSIGN_OR_RETURN(lists->allowed_tokens,
                           Bytes("allowed_tokens", given.allowed_tokens, given.num_allowed_bytes));
  REPRISE_RETURN_IF_ERROR(CheckArray("bias_tokens", given.bias_tokens, given.num_biases));
  REPRISE_RETURN_IF_ERROR(CheckArray("biases", given.biases, given.num_biases));
  for (size_t i = 0; i < given.num_biases; ++i)
    lists->biases.push_back({.token = given.bias_tokens[i], .bias = given.biases[i]});
  sampling.stop_tokens = lists->stop_tokens;
  sampling.allowed_tokens = lists->allowed_tokens;
  sampling.logit_bias = lists->biases;
  return sampling;
}

absl::Status AddRow(reprise_step* step, const reprise_row_add* given) {
  reprise_row_add add = {};
  REPRISE_RETURN_IF_ERROR(ReadStruct(given, &add));
  reprise_sampling sampling = DefaultSampling();
  if (add.sampling != nullptr) REPRISE_RETURN_IF_ERROR(ReadStruct(add.sampling, &sampling));
  if (add.prompt_length > UINT32_MAX) {
    return absl::InvalidArgumentError(absl::StrCat("row add: prompt_length is ", add.prompt_length,
                                                   "; allowed: at most ", UINT32_MAX));
  }
  StepDraft::Add row{.row = add.row,
                     .context_length = add.context_length,
                     .prompt_length = static_cast<uint32_t>(add.prompt_length)};
  REPRISE_ASSIGN_OR_RETURN(const bool is_fork, ReadSwitch("is_fork", add.is_fork));
  if (is_fork) row.fork_of = add.fork_of;
  REPRISE_ASSIGN_OR_RETURN(const bool has_state,
                           ReadSwitch("has_swapped_state", add.has_swapped_state));
  if (has_state) row.swapped_state = add.swapped_state;
  REPRISE_ASSIGN_OR_RETURN(row.blocks, Numbers("blocks", add.blocks, add.num_blocks));
  REPRISE_ASSIGN_OR_RETURN(row.history, Numbers("history", add.history, add.num_history));
  // A vector that is moved keeps its elements where they are.
  reprise_step::SamplingLists lists;
  REPRISE_ASSIGN_OR_RETURN(row.sampling, Sampling(sampling, &lists));
  step->lists.push_back(std::move(lists));
  step->draft.add.push_back(std::move(row));
  return absl::OkStatus();
}

absl::Status RunChunk(reprise_step* step, const reprise_row_chunk* given) {
  reprise_row_chunk chunk = {};
  REPRISE_RETURN_IF_ERROR(ReadStruct(given, &chunk));
  StepDraft::Chunk row{.row = chunk.row};
  REPRISE_ASSIGN_OR_RETURN(row.tokens, Numbers("tokens", chunk.tokens, chunk.num_tokens));
  REPRISE_ASSIGN_OR_RETURN(row.sample, ReadSwitch("sample", chunk.sample));
  REPRISE_ASSIGN_OR_RETURN(row.prompt_logprobs,
                           ReadSwitch("prompt_logprobs", chunk.prompt_logprobs));
  REPRISE_ASSIGN_OR_RETURN(const bool has_next, ReadSwitch("has_next_token", chunk.has_next_token));
  if (has_next) {
    if (chunk.next_token > UINT32_MAX) {
      return absl::InvalidArgumentError(
          absl::StrCat("row chunk: next_token is ", chunk.next_token, "; allowed: a token id"));
    }
    row.next_token = static_cast<uint32_t>(chunk.next_token);
  }
  step->draft.chunks.push_back(std::move(row));
  return absl::OkStatus();
}

// The body of what changes a request.
template <typename Change>
reprise_code Edit(reprise_step* step, reprise_error* error, const Change& change) {
  return Call(error, [&]() -> absl::Status {
    REPRISE_RETURN_IF_ERROR(CheckHandle(step));
    return change();
  });
}

}  // namespace
}  // namespace reprise::capi

using reprise::capi::Call;
using reprise::capi::Edit;

reprise_code reprise_sampling_init(reprise_sampling* sampling, size_t struct_size,
                                   reprise_error* error) {
  return Call(error, [&] {
    return reprise::capi::WriteStruct(reprise::capi::DefaultSampling(), struct_size, sampling);
  });
}

reprise_code reprise_step_create(reprise_step** step, reprise_error* error) {
  return Call(error, [&]() -> absl::Status {
    REPRISE_RETURN_IF_ERROR(reprise::capi::CheckNotNull("step", step));
    *step = new reprise_step();
    return absl::OkStatus();
  });
}

reprise_code reprise_step_destroy(reprise_step* step) { return reprise::capi::Destroy(step); }

reprise_code reprise_step_clear(reprise_step* step, reprise_error* error) {
  return Edit(step, error, [&] {
    step->draft = {};
    step->lists.clear();
    return absl::OkStatus();
  });
}

reprise_code reprise_step_drop_row(reprise_step* step, uint32_t row, reprise_error* error) {
  return Edit(step, error, [&] {
    step->draft.drop.push_back(row);
    return absl::OkStatus();
  });
}

reprise_code reprise_step_copy_block(reprise_step* step, uint32_t source, uint32_t destination,
                                     reprise_error* error) {
  return Edit(step, error, [&] {
    step->draft.copies.push_back({.source = source, .destination = destination});
    return absl::OkStatus();
  });
}

reprise_code reprise_step_add_row(reprise_step* step, const reprise_row_add* add,
                                  reprise_error* error) {
  return Edit(step, error, [&] { return reprise::capi::AddRow(step, add); });
}

reprise_code reprise_step_append_blocks(reprise_step* step, uint32_t row, const uint32_t* blocks,
                                        size_t num_blocks, reprise_error* error) {
  return Edit(step, error, [&]() -> absl::Status {
    REPRISE_ASSIGN_OR_RETURN(auto numbers, reprise::capi::Numbers("blocks", blocks, num_blocks));
    step->draft.append.push_back({.row = row, .blocks = std::move(numbers)});
    return absl::OkStatus();
  });
}

reprise_code reprise_step_set_allowed_tokens(reprise_step* step, uint32_t row,
                                             const uint8_t* allowed_tokens,
                                             size_t num_allowed_bytes, reprise_error* error) {
  return Edit(step, error, [&]() -> absl::Status {
    REPRISE_ASSIGN_OR_RETURN(
        auto bytes, reprise::capi::Bytes("allowed_tokens", allowed_tokens, num_allowed_bytes));
    step->draft.masks.push_back({.row = row, .allowed_tokens = std::move(bytes)});
    return absl::OkStatus();
  });
}

reprise_code reprise_step_set_prefix_group(reprise_step* step, uint32_t group, uint32_t num_blocks,
                                           const uint32_t* rows, size_t num_rows,
                                           reprise_error* error) {
  return Edit(step, error, [&]() -> absl::Status {
    REPRISE_ASSIGN_OR_RETURN(auto numbers, reprise::capi::Numbers("rows", rows, num_rows));
    step->draft.prefixes.push_back(
        {.group = group, .num_blocks = num_blocks, .rows = std::move(numbers)});
    return absl::OkStatus();
  });
}

reprise_code reprise_step_run_chunk(reprise_step* step, const reprise_row_chunk* chunk,
                                    reprise_error* error) {
  return Edit(step, error, [&] { return reprise::capi::RunChunk(step, chunk); });
}

reprise_code reprise_step_continue_row(reprise_step* step, uint32_t row, reprise_error* error) {
  return Edit(step, error, [&] {
    step->draft.continue_rows.push_back(row);
    return absl::OkStatus();
  });
}

reprise_code reprise_step_continue_all(reprise_step* step, reprise_error* error) {
  return Edit(step, error, [&] {
    step->draft.continue_all = true;
    return absl::OkStatus();
  });
}

reprise_code reprise_step_draft_tokens(reprise_step* step, uint32_t row, const uint32_t* tokens,
                                       size_t num_tokens, reprise_error* error) {
  return Edit(step, error, [&]() -> absl::Status {
    REPRISE_ASSIGN_OR_RETURN(auto numbers, reprise::capi::Numbers("tokens", tokens, num_tokens));
    step->draft.drafts.push_back({.row = row, .tokens = std::move(numbers)});
    return absl::OkStatus();
  });
}

reprise_code reprise_step_set_num_steps(reprise_step* step, uint32_t num_steps,
                                        reprise_error* error) {
  return Edit(step, error, [&] {
    step->draft.num_steps = num_steps;
    return absl::OkStatus();
  });
}

reprise_code reprise_step_set_mode(reprise_step* step, reprise_step_mode mode,
                                   reprise_error* error) {
  return Edit(step, error, [&]() -> absl::Status {
    if (mode != REPRISE_STEP_REPLAY && mode != REPRISE_STEP_EAGER) {
      return absl::InvalidArgumentError(
          absl::StrCat("step mode is ", mode, "; allowed: 0 (replay), 1 (eager)"));
    }
    step->draft.mode = mode == REPRISE_STEP_EAGER ? reprise::engine::ExecutionMode::kEager
                                                  : reprise::engine::ExecutionMode::kReplay;
    return absl::OkStatus();
  });
}

reprise_code reprise_step_set_isolate_bad_rows(reprise_step* step, uint32_t isolate,
                                               reprise_error* error) {
  return Edit(step, error, [&]() -> absl::Status {
    REPRISE_ASSIGN_OR_RETURN(step->draft.isolate_bad_rows,
                             reprise::capi::ReadSwitch("isolate", isolate));
    return absl::OkStatus();
  });
}
