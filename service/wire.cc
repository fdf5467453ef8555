// SPDX-License-Identifier: Apache-2.0
#include "service/wire.h"

#include <span>
#include <string>

#include "absl/strings/str_cat.h"
#include "google/protobuf/unknown_field_set.h"
#include "grpcpp/support/proto_buffer_reader.h"
#include "grpcpp/support/slice.h"
#include "runtime/dtype.h"
#include "runtime/status_macros.h"

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

// A field counts as set when it differs from its default, NaN included.
absl::Status SamplingFromWire(const v1::Sampling& wire, graphs::SamplingParams* sampling) {
  REPRISE_RETURN_IF_ERROR(RefuseUnknownFields(wire));
  if (wire.top_k() != 0) return NotBuilt("add.sampling.top_k");
  if (wire.top_p() != 0) return NotBuilt("add.sampling.top_p");
  if (wire.min_p() != 0) return NotBuilt("add.sampling.min_p");
  if (wire.repetition_penalty() != 0) return NotBuilt("add.sampling.repetition_penalty");
  if (wire.presence_penalty() != 0) return NotBuilt("add.sampling.presence_penalty");
  if (wire.frequency_penalty() != 0) return NotBuilt("add.sampling.frequency_penalty");
  if (wire.num_logprobs() != 0) return NotBuilt("add.sampling.num_logprobs");
  *sampling = {.temperature = wire.temperature(), .seed = wire.seed()};
  return absl::OkStatus();
}

absl::Status AddsFromWire(const v1::StepRequest& wire, std::vector<graphs::RowAdd>* adds) {
  adds->clear();
  for (const v1::AddRow& add : wire.add()) {
    REPRISE_RETURN_IF_ERROR(RefuseUnknownFields(add));
    graphs::RowAdd& row = adds->emplace_back();
    REPRISE_RETURN_IF_ERROR(SamplingFromWire(add.sampling(), &row.sampling));
    row.row = add.row();
    row.context_length = add.context_length();
    row.blocks = View(add.blocks());
  }
  return absl::OkStatus();
}

absl::Status ModeFromWire(v1::ExecutionMode wire, graphs::ExecutionMode* mode) {
  switch (wire) {
    case v1::EXECUTION_MODE_UNSPECIFIED:
    case v1::EXECUTION_MODE_REPLAY:
      *mode = graphs::ExecutionMode::kReplay;
      return absl::OkStatus();
    case v1::EXECUTION_MODE_EAGER:
      *mode = graphs::ExecutionMode::kEager;
      return absl::OkStatus();
    default:
      return absl::InvalidArgumentError(absl::StrCat("mode: got ", static_cast<int>(wire),
                                                     ", allowed 0 or 1 (replay) and 2 (eager)"));
  }
}

v1::RowStatus RowStatusToWire(graphs::RowStatus status) {
  switch (status) {
    case graphs::RowStatus::kRan:
      return v1::ROW_STATUS_RAN;
    case graphs::RowStatus::kStopped:
      return v1::ROW_STATUS_STOPPED;
  }
  return v1::ROW_STATUS_UNSPECIFIED;
}

void RowsToWire(const std::vector<graphs::RowOutcome>& rows, v1::RowResults* wire) {
  wire->Clear();  // keeps the columns' capacity
  const int count = static_cast<int>(rows.size());
  wire->mutable_row()->Reserve(count);
  wire->mutable_status()->Reserve(count);
  wire->mutable_sampled()->Reserve(count);
  wire->mutable_token()->Reserve(count);
  wire->mutable_logprob()->Reserve(count);
  wire->mutable_context_length()->Reserve(count);
  for (const graphs::RowOutcome& row : rows) {
    wire->add_row(row.row);
    wire->add_status(RowStatusToWire(row.status));
    wire->add_sampled(row.sampled);
    wire->add_token(row.sampled ? row.token : 0);
    wire->add_logprob(row.sampled ? row.logprob : 0.0f);
    wire->add_context_length(row.context_length);
  }
}

void ReportToWire(const graphs::StepReport& report, v1::StepReport* wire) {
  wire->set_graph(report.graph.data(), report.graph.size());
  wire->set_replayed(report.replayed);
  wire->set_rows(report.rows);
  wire->set_tokens(report.tokens);
  wire->set_padding_rows(report.padding_rows);
  wire->set_padding_tokens(report.padding_tokens);
}

void ModelToWire(const graphs::EngineInfo& info, v1::Model* wire) {
  const runtime::ModelSpec& spec = info.model;
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
  wire->set_num_parameters(static_cast<uint64_t>(runtime::NumParameters(spec)));
  wire->set_token_encoding(spec.token_encoding == runtime::TokenEncoding::kBytes
                               ? v1::TOKEN_ENCODING_BYTES
                               : v1::TOKEN_ENCODING_OPAQUE);
}

void LimitsToWire(const graphs::EngineLimits& limits, uint64_t max_message_bytes,
                  v1::Limits* wire) {
  wire->set_max_rows(limits.max_rows);
  wire->set_max_context_length(limits.max_context_length);
  wire->set_max_blocks_per_row(limits.max_blocks_per_row);
  wire->set_max_step_tokens(limits.max_step_tokens);
  wire->set_pipeline_depth(limits.pipeline_depth);
  wire->set_max_message_bytes(max_message_bytes);
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
                          graphs::StepRequest* step) {
  REPRISE_RETURN_IF_ERROR(RefuseUnknownFields(wire));
  if (wire.copy_blocks_size() != 0) return NotBuilt("copy_blocks");
  REPRISE_RETURN_IF_ERROR(AddsFromWire(wire, &scratch->add));
  scratch->append.clear();
  for (const v1::AppendBlocks& append : wire.append()) {
    REPRISE_RETURN_IF_ERROR(RefuseUnknownFields(append));
    scratch->append.push_back({.row = append.row(), .blocks = View(append.blocks())});
  }
  scratch->chunks.clear();
  for (const v1::Chunk& chunk : wire.chunks()) {
    REPRISE_RETURN_IF_ERROR(RefuseUnknownFields(chunk));
    scratch->chunks.push_back(
        {.row = chunk.row(), .sample = chunk.sample(), .tokens = View(chunk.tokens())});
  }
  REPRISE_RETURN_IF_ERROR(ModeFromWire(wire.mode(), &step->mode));
  step->session = wire.session();
  step->epoch = wire.epoch();
  step->sequence = wire.sequence();
  step->drop = View(wire.drop());
  step->add = scratch->add;
  step->append = scratch->append;
  step->chunks = scratch->chunks;
  step->continue_rows = View(wire.continue_rows());
  step->continue_all = wire.continue_all();
  return absl::OkStatus();
}

void ResultToWire(const graphs::StepResult& result, const StepTimes& times, bool omit_rows,
                  v1::StepResponse* wire) {
  wire->set_session(result.session);
  wire->set_sequence(result.sequence);
  if (omit_rows) {
    wire->clear_rows();
  } else {
    RowsToWire(result.rows, wire->mutable_rows());
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

void DescribeToWire(const graphs::EngineInfo& info, const graphs::PoolInfo& pool,
                    uint64_t max_message_bytes, v1::DescribeResponse* wire) {
  ModelToWire(info, wire->mutable_model());
  wire->mutable_pool()->set_block_size(pool.block_size);
  wire->mutable_pool()->set_num_blocks(pool.num_blocks);
  wire->mutable_pool()->set_free_blocks(pool.free_blocks);
  wire->mutable_pool()->set_bytes(pool.bytes);
  LimitsToWire(info.limits, max_message_bytes, wire->mutable_limits());
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
  wire->set_linear_policy(info.linear == graphs::LinearPolicy::kTuned ? "tuned" : "portable");
}

}  // namespace reprise::service
