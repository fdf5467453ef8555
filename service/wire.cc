// SPDX-License-Identifier: Apache-2.0
#include "service/wire.h"

#include <span>
#include <string>

#include "absl/strings/str_cat.h"
#include "google/protobuf/unknown_field_set.h"
#include "grpcpp/support/proto_buffer_reader.h"
#include "grpcpp/support/slice.h"
#include "models/decoder.h"
#include "runtime/dtype.h"
#include "runtime/status_macros.h"
#include "service/message_bounds.h"

namespace reprise::service {
namespace {

std::span<const uint32_t> View(const google::protobuf::RepeatedField<uint32_t>& field) {
  return {field.data(), static_cast<size_t>(field.size())};
}

std::string ToString(std::string_view text) { return std::string(text); }

absl::Status NotBuilt(std::string_view field) {
  return absl::UnimplementedError(
      absl::StrCat(absl::string_view(field.data(), field.size()), ": not built yet; leave it out"));
}

std::span<const std::byte> View(const std::string& bytes) {
  return std::as_bytes(std::span(bytes.data(), bytes.size()));
}

// Floats whose neutral value is not 0 take 0, which is what a field left out reads as, for it.
float OneIfZero(float x) { return x == 0.0f ? 1.0f : x; }

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
  REPRISE_RETURN_IF_ERROR(RefuseUnknownFields(wire));
  *sampling = {.temperature = wire.temperature(),
               .seed = wire.seed(),
               .top_k = wire.top_k(),
               .top_p = OneIfZero(wire.top_p()),
               .min_p = wire.min_p(),
               .repetition_penalty = OneIfZero(wire.repetition_penalty()),
               .presence_penalty = wire.presence_penalty(),
               .frequency_penalty = wire.frequency_penalty(),
               .allowed_tokens = View(wire.allowed_tokens()),
               .stop_tokens = View(wire.stop_tokens()),
               .stop_at_eos = wire.stop_at_eos(),
               .max_new_tokens = wire.max_new_tokens(),
               .min_tokens = wire.min_tokens(),
               .num_logprobs = wire.num_logprobs(),
               .return_logits = wire.return_logits()};
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
    REPRISE_RETURN_IF_ERROR(RefuseUnknownFields(add));
    engine::RowAdd& row = scratch->add.emplace_back();
    REPRISE_RETURN_IF_ERROR(SamplingFromWire(add.sampling(), &scratch->biases, &row.sampling));
    row.row = add.row();
    row.context_length = add.context_length();
    row.blocks = View(add.blocks());
    row.history = View(add.history());
    row.prompt_length = add.prompt_length();
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

v1::RowStatus RowStatusToWire(engine::RowStatus status) {
  switch (status) {
    case engine::RowStatus::kRan:
      return v1::ROW_STATUS_RAN;
    case engine::RowStatus::kStopped:
      return v1::ROW_STATUS_STOPPED;
  }
  return v1::ROW_STATUS_UNSPECIFIED;
}

v1::FinishReason FinishToWire(engine::FinishReason finish) {
  switch (finish) {
    case engine::FinishReason::kNone:
      return v1::FINISH_REASON_UNSPECIFIED;
    case engine::FinishReason::kStopToken:
      return v1::FINISH_REASON_STOP_TOKEN;
    case engine::FinishReason::kLength:
      return v1::FINISH_REASON_LENGTH;
    case engine::FinishReason::kNoCandidate:
      return v1::FINISH_REASON_NO_CANDIDATE;
  }
  return v1::FINISH_REASON_UNSPECIFIED;
}

// Columns that a step fills only where some row needs them.
void RareColumnsToWire(const engine::StepResult& result, v1::RowResults* wire) {
  bool finishes = false, ranks = false;
  for (const engine::RowOutcome& row : result.rows) {
    finishes |= row.finish != engine::FinishReason::kNone;
    ranks |= row.rank != 0;
  }
  for (const engine::RowOutcome& row : result.rows) {
    if (finishes) wire->add_finish_reason(FinishToWire(row.finish));
    if (row.has_logits) wire->add_logits_row(row.row);
    if (!ranks) continue;
    wire->add_rank(row.rank);
    wire->add_num_top(row.top.count);
    for (uint32_t i = 0; i < row.top.count; ++i) {
      const engine::TokenLogprob& top = result.top_logprobs[row.top.begin + i];
      wire->add_top_token(top.token);
      wire->add_top_logprob(top.logprob);
    }
  }
  if (!result.logits.empty())
    wire->mutable_logits()->Add(result.logits.begin(), result.logits.end());
}

void PromptLogprobsToWire(const engine::StepResult& result, v1::PromptLogprobs* wire) {
  wire->Clear();
  for (const engine::PromptLogprob& token : result.prompt_logprobs) {
    wire->add_row(token.row);
    wire->add_position(token.position);
    wire->add_logprob(token.logprob);
    wire->add_rank(token.rank);
    wire->add_num_top(token.top.count);
    for (uint32_t i = 0; i < token.top.count; ++i) {
      const engine::TokenLogprob& top = result.top_logprobs[token.top.begin + i];
      wire->add_top_token(top.token);
      wire->add_top_logprob(top.logprob);
    }
  }
}

void RowsToWire(const engine::StepResult& result, v1::RowResults* wire) {
  const std::vector<engine::RowOutcome>& rows = result.rows;
  wire->Clear();  // keeps the columns' capacity
  const int count = static_cast<int>(rows.size());
  wire->mutable_row()->Reserve(count);
  wire->mutable_status()->Reserve(count);
  wire->mutable_sampled()->Reserve(count);
  wire->mutable_token()->Reserve(count);
  wire->mutable_logprob()->Reserve(count);
  wire->mutable_context_length()->Reserve(count);
  for (const engine::RowOutcome& row : rows) {
    wire->add_row(row.row);
    wire->add_status(RowStatusToWire(row.status));
    wire->add_sampled(row.sampled);
    wire->add_token(row.sampled ? row.token : 0);
    wire->add_logprob(row.sampled ? row.logprob : 0.0f);
    wire->add_context_length(row.context_length);
  }
  RareColumnsToWire(result, wire);
}

void ReportToWire(const engine::StepReport& report, v1::StepReport* wire) {
  wire->set_graph(report.graph.data(), report.graph.size());
  wire->set_replayed(report.replayed);
  wire->set_rows(report.rows);
  wire->set_tokens(report.tokens);
  wire->set_padding_rows(report.padding_rows);
  wire->set_padding_tokens(report.padding_tokens);
}

void ModelToWire(const engine::EngineInfo& info, v1::Model* wire) {
  const models::ModelSpec& spec = info.model;
  wire->set_name(spec.name);
  wire->set_architecture(spec.architecture);
  wire->set_vocab_size(static_cast<uint32_t>(spec.vocab_size));
  wire->set_max_position_embeddings(static_cast<uint32_t>(spec.max_position_embeddings));
  wire->mutable_eos_token_ids()->Assign(spec.eos_token_ids.begin(), spec.eos_token_ids.end());
  wire->set_dtype(ToString(NameOf(info.dtype)));
  wire->set_num_layers(static_cast<uint32_t>(spec.num_layers));
  wire->set_hidden_size(static_cast<uint32_t>(spec.hidden_size));
  wire->set_num_heads(static_cast<uint32_t>(spec.num_heads));
  wire->set_num_kv_heads(static_cast<uint32_t>(spec.num_kv_heads));
  wire->set_head_dim(static_cast<uint32_t>(spec.head_dim));
  wire->set_num_parameters(static_cast<uint64_t>(models::NumParameters(spec)));
  wire->set_token_encoding(spec.token_encoding == models::TokenEncoding::kBytes
                               ? v1::TOKEN_ENCODING_BYTES
                               : v1::TOKEN_ENCODING_OPAQUE);
}

void LimitsToWire(const engine::EngineInfo& info, uint64_t max_message_bytes, v1::Limits* wire) {
  const engine::EngineLimits& limits = info.limits;
  wire->set_max_rows(limits.max_rows);
  wire->set_max_context_length(limits.max_context_length);
  wire->set_max_blocks_per_row(limits.max_blocks_per_row);
  wire->set_max_step_tokens(limits.max_step_tokens);
  wire->set_pipeline_depth(limits.pipeline_depth);
  wire->set_max_message_bytes(max_message_bytes);
  wire->set_adjust_logits(limits.adjust_logits);
  wire->set_max_logit_rows(limits.max_logit_rows);
  wire->set_max_prompt_logprobs(limits.max_prompt_logprobs);
  wire->set_max_sampling_bytes(limits.max_sampling_bytes);
  wire->set_max_stop_tokens(limits.max_stop_tokens);
  wire->set_max_logit_bias(limits.max_logit_bias);
  wire->set_max_logprobs(limits.max_logprobs);
  wire->set_max_step_bytes(MaxStepBytes(limits));
  wire->set_max_result_bytes(MaxResultBytes(limits, static_cast<uint64_t>(info.model.vocab_size)));
}

void BucketsToWire(const std::vector<graphs::CapturedBucket>& buckets, const char* kind,
                   v1::DescribeResponse* wire) {
  for (const graphs::CapturedBucket& captured : buckets) {
    v1::Bucket* bucket = wire->add_buckets();
    bucket->set_name(captured.bucket.name);
    bucket->set_kind(kind);
    bucket->set_capacity(static_cast<uint32_t>(captured.bucket.capacity));
    bucket->set_kernel_nodes(static_cast<uint32_t>(captured.num_kernel_nodes));
    bucket->set_other_nodes(static_cast<uint32_t>(captured.num_other_nodes));
    bucket->set_capture_ns(captured.capture_ns);
    bucket->set_device_bytes(captured.device_bytes);
  }
}

}  // namespace

absl::Status ParseWire(const grpc::ByteBuffer& bytes, google::protobuf::Message* message) {
  grpc::ByteBuffer shared = bytes;  // shares the bytes; the reader wants a mutable handle
  grpc::ProtoBufferReader reader(&shared);
  if (reader.status().ok() && message->ParseFromZeroCopyStream(&reader)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("message: got ", bytes.Length(),
                                                 " bytes that do not parse, allowed a ",
                                                 message->GetDescriptor()->full_name()));
}

grpc::ByteBuffer SerializeWire(const google::protobuf::Message& message) {
  grpc::Slice slice(message.ByteSizeLong());
  // The slice is ours alone until it is wrapped; gRPC offers no mutable view of it.
  message.SerializeWithCachedSizesToArray(const_cast<uint8_t*>(slice.begin()));
  return grpc::ByteBuffer(&slice, 1);
}

absl::Status RefuseUnknownFields(const google::protobuf::Message& message) {
  const google::protobuf::UnknownFieldSet& unknown =
      message.GetReflection()->GetUnknownFields(message);
  if (unknown.empty()) return absl::OkStatus();
  return absl::UnimplementedError(
      absl::StrCat(message.GetDescriptor()->full_name(), ": field ", unknown.field(0).number(),
                   " is not part of reprise.v1 as this server knows it"));
}

absl::Status StepFromWire(const v1::StepRequest& wire, StepScratch* scratch,
                          engine::StepRequest* step) {
  REPRISE_RETURN_IF_ERROR(RefuseUnknownFields(wire));
  if (wire.copy_blocks_size() != 0) return NotBuilt("copy_blocks");
  REPRISE_RETURN_IF_ERROR(AddsFromWire(wire, scratch));
  scratch->append.clear();
  for (const v1::AppendBlocks& append : wire.append()) {
    REPRISE_RETURN_IF_ERROR(RefuseUnknownFields(append));
    scratch->append.push_back({.row = append.row(), .blocks = View(append.blocks())});
  }
  scratch->chunks.clear();
  for (const v1::Chunk& chunk : wire.chunks()) {
    REPRISE_RETURN_IF_ERROR(RefuseUnknownFields(chunk));
    engine::RowChunk& run = scratch->chunks.emplace_back();
    run = {.row = chunk.row(),
           .sample = chunk.sample(),
           .tokens = View(chunk.tokens()),
           .prompt_logprobs = chunk.prompt_logprobs()};
    if (chunk.has_next_token()) run.next_token = chunk.next_token();
  }
  scratch->masks.clear();
  for (const v1::SetAllowedTokens& mask : wire.masks()) {
    REPRISE_RETURN_IF_ERROR(RefuseUnknownFields(mask));
    scratch->masks.push_back({.row = mask.row(), .allowed_tokens = View(mask.allowed_tokens())});
  }
  REPRISE_RETURN_IF_ERROR(ModeFromWire(wire.mode(), &step->mode));
  step->session = wire.session();
  step->epoch = wire.epoch();
  step->sequence = wire.sequence();
  step->drop = View(wire.drop());
  step->add = scratch->add;
  step->append = scratch->append;
  step->masks = scratch->masks;
  step->chunks = scratch->chunks;
  step->continue_rows = View(wire.continue_rows());
  step->continue_all = wire.continue_all();
  return absl::OkStatus();
}

void ResultToWire(const engine::StepResult& result, const StepTimes& times, bool omit_rows,
                  v1::StepResponse* wire) {
  wire->set_session(result.session);
  wire->set_sequence(result.sequence);
  if (omit_rows) {
    wire->clear_rows();
  } else {
    RowsToWire(result, wire->mutable_rows());
  }
  if (omit_rows || result.prompt_logprobs.empty()) {
    wire->clear_prompt_logprobs();
  } else {
    PromptLogprobsToWire(result, wire->mutable_prompt_logprobs());
  }
  ReportToWire(result.report, wire->mutable_report());
  v1::StepLedger* ledger = wire->mutable_ledger();
  ledger->set_wire_ns(times.converted_ns - times.received_ns);
  ledger->set_queue_ns(times.submitted_ns - times.converted_ns);
  ledger->set_validate_ns(result.ledger.validate_ns);
  ledger->set_ring_ns(result.ledger.ring_ns);
  ledger->set_launch_ns(result.ledger.launch_ns);
  ledger->set_device_ns(result.ledger.device_ns);
}

void SetReplyTimes(const StepTimes& times, uint64_t replied_ns, v1::StepLedger* ledger) {
  ledger->set_reply_ns(replied_ns - times.result_ns);
  ledger->set_total_ns(replied_ns - times.received_ns);
}

void ErrorToWire(uint64_t sequence, const absl::Status& status, v1::StepError* wire) {
  wire->set_sequence(sequence);
  wire->set_code(static_cast<int32_t>(status.code()));
  wire->set_message(std::string(status.message()));
}

void DescribeToWire(const engine::EngineInfo& info, const engine::PoolInfo& pool,
                    uint64_t max_message_bytes, v1::DescribeResponse* wire) {
  ModelToWire(info, wire->mutable_model());
  wire->mutable_pool()->set_block_size(pool.block_size);
  wire->mutable_pool()->set_num_blocks(pool.num_blocks);
  wire->mutable_pool()->set_free_blocks(pool.free_blocks);
  wire->mutable_pool()->set_bytes(pool.bytes);
  LimitsToWire(info, max_message_bytes, wire->mutable_limits());
  BucketsToWire(info.decode_buckets, "decode", wire);
  BucketsToWire(info.mixed_buckets, "mixed", wire);
  wire->mutable_device()->set_kind(ToString(runtime::NameOf(info.device.kind)));
  wire->mutable_device()->set_name(info.device.name);
  wire->mutable_device()->set_driver(info.device.driver);
  wire->mutable_device()->set_total_bytes(info.device.total_bytes);
  wire->mutable_memory()->set_weights_bytes(info.memory.weights_bytes);
  wire->mutable_memory()->set_kv_cache_bytes(info.memory.kv_cache_bytes);
  wire->mutable_memory()->set_workspace_bytes(info.memory.workspace_bytes);
  wire->mutable_memory()->set_graphs_bytes(info.memory.graphs_bytes);
  wire->set_rank(0);
  wire->set_world_size(1);
  wire->set_server_version(REPRISE_VERSION);
  wire->set_api_version("reprise.v1");
  wire->set_linear_policy(info.linear == engine::LinearPolicy::kTuned ? "tuned" : "portable");
}

}  // namespace reprise::service
