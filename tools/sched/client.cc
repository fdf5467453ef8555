// SPDX-License-Identifier: Apache-2.0
#include "tools/sched/client.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"
#include "tools/connection.h"

namespace reprise::tools {
namespace {

using std::chrono::steady_clock;

template <typename Repeated>
void Assign(const std::vector<uint32_t>& values, Repeated* out) {
  out->Assign(values.begin(), values.end());
}

void SamplingToWire(const PlannedStep::Add& add, v1::Sampling* wire) {
  const SamplingChoice& sampling = add.sampling;
  wire->set_temperature(add.temperature);
  wire->set_seed(add.seed);
  wire->set_top_k(sampling.top_k);
  // Left out where neutral, as the contract has it.
  if (sampling.top_p != 1.0f) wire->set_top_p(sampling.top_p);
  wire->set_min_p(sampling.min_p);
  if (sampling.repetition_penalty != 1.0f)
    wire->set_repetition_penalty(sampling.repetition_penalty);
  wire->set_presence_penalty(sampling.presence_penalty);
  wire->set_frequency_penalty(sampling.frequency_penalty);
  Assign(sampling.logit_bias_tokens, wire->mutable_logit_bias_token());
  wire->mutable_logit_bias()->Assign(sampling.logit_bias.begin(), sampling.logit_bias.end());
  Assign(sampling.stop_tokens, wire->mutable_stop_tokens());
  wire->set_num_logprobs(sampling.num_logprobs);
}

void ToWire(const PlannedStep& step, uint64_t epoch, v1::StepRequest* wire) {
  wire->Clear();
  wire->set_epoch(epoch);
  wire->set_sequence(step.sequence);
  Assign(step.drop, wire->mutable_drop());
  for (const PlannedStep::Add& add : step.add) {
    v1::AddRow* row = wire->add_add();
    row->set_row(add.row);
    Assign(add.blocks, row->mutable_blocks());
    SamplingToWire(add, row->mutable_sampling());
    row->set_prompt_length(add.prompt_length);
  }
  for (const PlannedStep::Append& append : step.append) {
    v1::AppendBlocks* row = wire->add_append();
    row->set_row(append.row);
    Assign(append.blocks, row->mutable_blocks());
  }
  for (const PlannedStep::Chunk& chunk : step.chunks) {
    v1::Chunk* row = wire->add_chunks();
    row->set_row(chunk.row);
    Assign(chunk.tokens, row->mutable_tokens());
    row->set_sample(chunk.sample);
  }
  Assign(step.continue_rows, wire->mutable_continue_rows());
  wire->set_continue_all(step.continue_all);
  if (step.eager) wire->set_mode(v1::EXECUTION_MODE_EAGER);
}

// Ranks and likeliest tokens, which most steps have none of.
absl::Status ChancesFromWire(const v1::RowResults& wire, std::vector<StepOutcome::Row>* rows) {
  if (wire.rank_size() == 0) return absl::OkStatus();
  const auto lengths_differ = [&] {
    uint64_t tops = 0;
    for (const uint32_t count : wire.num_top()) tops += count;
    return wire.rank_size() != wire.row_size() || wire.num_top_size() != wire.row_size() ||
           static_cast<uint64_t>(wire.top_token_size()) != tops ||
           wire.top_logprob_size() != wire.top_token_size();
  };
  if (lengths_differ()) {
    return absl::InternalError(
        absl::StrCat("step result: got ", wire.rank_size(), " rank, ", wire.num_top_size(),
                     " num_top, ", wire.top_token_size(), " top_token, ", wire.top_logprob_size(),
                     " top_logprob for ", wire.row_size(), " rows; allowed: columns that agree"));
  }
  int next = 0;
  for (int i = 0; i < wire.row_size(); ++i) {
    StepOutcome::Row& row = (*rows)[static_cast<size_t>(i)];
    row.rank = wire.rank(i);
    for (uint32_t j = 0; j < wire.num_top(i); ++j, ++next)
      row.top.push_back({wire.top_token(next), wire.top_logprob(next)});
  }
  return absl::OkStatus();
}

absl::StatusOr<RowFinish> FinishFromWire(v1::FinishReason wire) {
  switch (wire) {
    case v1::FINISH_REASON_UNSPECIFIED:
      return RowFinish::kNone;
    case v1::FINISH_REASON_STOP_TOKEN:
      return RowFinish::kStopToken;
    case v1::FINISH_REASON_LENGTH:
      return RowFinish::kLength;
    case v1::FINISH_REASON_NO_CANDIDATE:
      return RowFinish::kNoCandidate;
    default:
      return absl::InternalError(absl::StrCat("step result: got finish_reason ",
                                              static_cast<int>(wire), ", allowed: 0 to 3"));
  }
}

// Why rows stopped: a column that is empty in steps where none did.
absl::Status FinishesFromWire(const v1::RowResults& wire, std::vector<StepOutcome::Row>* rows) {
  if (wire.finish_reason_size() == 0) return absl::OkStatus();
  if (wire.finish_reason_size() != wire.row_size()) {
    return absl::InternalError(absl::StrCat("step result: got ", wire.finish_reason_size(),
                                            " finish_reason for ", wire.row_size(),
                                            " rows; allowed: one each, or none"));
  }
  for (int i = 0; i < wire.row_size(); ++i) {
    REPRISE_ASSIGN_OR_RETURN((*rows)[static_cast<size_t>(i)].finish,
                             FinishFromWire(wire.finish_reason(i)));
  }
  return absl::OkStatus();
}

absl::Status RowsFromWire(const v1::RowResults& wire, std::vector<StepOutcome::Row>* rows) {
  const int count = wire.row_size();
  if (wire.status_size() != count || wire.sampled_size() != count || wire.token_size() != count ||
      wire.logprob_size() != count || wire.context_length_size() != count) {
    return absl::InternalError(absl::StrCat(
        "step result: got columns of ", count, " rows, ", wire.status_size(), " status, ",
        wire.sampled_size(), " sampled, ", wire.token_size(), " token, ", wire.logprob_size(),
        " logprob, ", wire.context_length_size(), " context_length; allowed: equal lengths"));
  }
  rows->clear();
  for (int i = 0; i < count; ++i) {
    rows->push_back({.row = wire.row(i),
                     .ran = wire.status(i) == v1::ROW_STATUS_RAN,
                     .sampled = wire.sampled(i),
                     .token = wire.token(i),
                     .logprob = wire.logprob(i),
                     .context_length = wire.context_length(i)});
  }
  REPRISE_RETURN_IF_ERROR(FinishesFromWire(wire, rows));
  return ChancesFromWire(wire, rows);
}

absl::Status FromWire(const v1::StepResponse& wire, StepOutcome* outcome) {
  outcome->sequence = wire.sequence();
  outcome->refusal = absl::OkStatus();
  outcome->graph = wire.report().graph();
  outcome->replayed = wire.report().replayed();
  outcome->tokens = wire.report().tokens();
  outcome->padding_rows = wire.report().padding_rows();
  outcome->padding_tokens = wire.report().padding_tokens();
  const v1::StepLedger& ledger = wire.ledger();
  outcome->ledger = {.wire_ns = ledger.wire_ns(),
                     .queue_ns = ledger.queue_ns(),
                     .validate_ns = ledger.validate_ns(),
                     .ring_ns = ledger.ring_ns(),
                     .launch_ns = ledger.launch_ns(),
                     .device_ns = ledger.device_ns(),
                     .reply_ns = ledger.reply_ns(),
                     .total_ns = ledger.total_ns()};
  return RowsFromWire(wire.rows(), &outcome->rows);
}

}  // namespace

absl::StatusOr<std::unique_ptr<GrpcClient>> GrpcClient::Connect(const ClientOptions& options) {
  auto client = std::unique_ptr<GrpcClient>(new GrpcClient(options));
  const std::shared_ptr<grpc::Channel> channel = OpenChannel(options.address);
  REPRISE_RETURN_IF_ERROR(
      WaitUntilServing(channel, options.address, options.wait, options.interrupted));
  if (options.timeout.count() > 0) {
    client->deadline_ = std::chrono::system_clock::now() +
                        std::chrono::duration_cast<std::chrono::microseconds>(options.timeout);
  }
  client->stub_ = v1::StepService::NewStub(channel);
  grpc::ClientContext context;
  client->SetDeadline(&context);
  REPRISE_RETURN_IF_ERROR(
      FromGrpc(client->stub_->Describe(&context, v1::DescribeRequest(), &client->description_),
               absl::StrCat("Describe of the server at ", options.address)));
  REPRISE_RETURN_IF_ERROR(client->OpenSession());
  return client;
}

void GrpcClient::SetDeadline(grpc::ClientContext* context) const {
  if (deadline_.time_since_epoch().count() != 0) context->set_deadline(deadline_);
}

absl::Status GrpcClient::OpenSession() {
  SetDeadline(&stream_context_);
  stream_ = stub_->StepStream(&stream_context_);
  request_.mutable_open()->set_client(options_.name);
  if (!stream_->Write(request_) || !stream_->Read(&response_))
    return StreamEnd("opening a session");
  if (!response_.has_opened()) {
    return absl::InternalError(absl::StrCat("the server at ", options_.address,
                                            " answered `open` with something other than `opened`"));
  }
  session_ = response_.opened().session();
  epoch_ = response_.opened().epoch();
  return absl::OkStatus();
}

GrpcClient::~GrpcClient() {
  if (stream_ == nullptr || finished_) return;
  stream_context_.TryCancel();
  stream_->Finish();
}

ServerLimits GrpcClient::limits() const { return LimitsOf(description_); }

absl::Status GrpcClient::Submit(const PlannedStep& step) {
  submit_times_.push_back(steady_clock::now());
  ToWire(step, epoch_, request_.mutable_step());
  if (!stream_->Write(request_)) return StreamEnd("sending a step");
  return absl::OkStatus();
}

absl::Status GrpcClient::Receive(StepOutcome* outcome) {
  if (!stream_->Read(&response_)) return StreamEnd("waiting for a step");
  const auto round_trip = steady_clock::now() - submit_times_.front();
  submit_times_.pop_front();
  outcome->round_trip_ns = static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(round_trip).count());
  if (response_.has_error()) {
    const v1::StepError& error = response_.error();
    outcome->sequence = error.sequence();
    outcome->refusal = absl::Status(
        static_cast<absl::StatusCode>(error.code()),
        absl::StrCat("the server refused step ", error.sequence(), ": ", error.message()));
    return absl::OkStatus();
  }
  if (!response_.has_step()) {
    return absl::InternalError(absl::StrCat("the server at ", options_.address,
                                            " sent something other than a step's result"));
  }
  ++num_results_;
  return FromWire(response_.step(), outcome);
}

absl::StatusOr<std::vector<uint32_t>> GrpcClient::Allocate(uint32_t count) {
  grpc::ClientContext context;
  SetDeadline(&context);
  v1::AllocateRequest request;
  v1::AllocateResponse response;
  request.set_session(session_);
  request.set_count(count);
  REPRISE_RETURN_IF_ERROR(CallEnd(stub_->Allocate(&context, request, &response),
                                  absl::StrCat("allocating ", count, " blocks")));
  return std::vector<uint32_t>(response.blocks().begin(), response.blocks().end());
}

absl::Status GrpcClient::Free(const std::vector<uint32_t>& blocks) {
  grpc::ClientContext context;
  SetDeadline(&context);
  v1::FreeRequest request;
  v1::FreeResponse response;
  request.set_session(session_);
  Assign(blocks, request.mutable_blocks());
  return CallEnd(stub_->Free(&context, request, &response),
                 absl::StrCat("freeing ", blocks.size(), " blocks"));
}

// A call beside the stream says in its own words that the session is over; the cause is told as
// StreamEnd tells it.
absl::Status GrpcClient::CallEnd(const grpc::Status& status, const std::string& doing) const {
  switch (status.error_code()) {
    case grpc::StatusCode::CANCELLED:
    case grpc::StatusCode::NOT_FOUND:
    case grpc::StatusCode::UNAVAILABLE:
    case grpc::StatusCode::UNKNOWN:
      if (cancelled_) return absl::CancelledError("interrupted");
      return FromGrpc(status,
                      absl::StrCat("the server at ", options_.address, " ended the session after ",
                                   num_results_, " steps, while ", doing));
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return absl::DeadlineExceededError(absl::StrCat("the timeout of the run is over after ",
                                                      num_results_, " steps, while ", doing));
    default:
      return FromGrpc(status, doing);
  }
}

absl::Status GrpcClient::Close() {
  stream_->WritesDone();
  while (stream_->Read(&response_)) {
  }
  finished_ = true;
  return FromGrpc(stream_->Finish(),
                  absl::StrCat("closing the session with the server at ", options_.address));
}

absl::Status GrpcClient::StreamEnd(const std::string& doing) {
  // A failed write leaves answers behind; Finish wants them read.
  while (stream_->Read(&response_)) {
  }
  finished_ = true;
  const grpc::Status status = stream_->Finish();
  const std::string where =
      absl::StrCat("the server at ", options_.address, " ended the session after ", num_results_,
                   " steps, while ", doing);
  if (cancelled_) return absl::CancelledError("interrupted");
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
    return absl::DeadlineExceededError(absl::StrCat("the timeout of the run is over after ",
                                                    num_results_, " steps, while ", doing));
  }
  if (status.ok()) return absl::UnavailableError(where);
  return FromGrpc(status, where);
}

ServerLimits LimitsOf(const v1::DescribeResponse& description) {
  ServerLimits limits{
      .block_size = description.pool().block_size(),
      .num_blocks = description.pool().num_blocks(),
      .max_rows = description.limits().max_rows(),
      .max_context_length = description.limits().max_context_length(),
      .max_step_tokens = description.limits().max_step_tokens(),
      .max_prompt_tokens = 0,
      .pipeline_depth = std::max(1u, description.limits().pipeline_depth()),
      .vocab_size = description.model().vocab_size(),
      .eos_token_ids = {description.model().eos_token_ids().begin(),
                        description.model().eos_token_ids().end()},
      .byte_tokens = description.model().token_encoding() == v1::TOKEN_ENCODING_BYTES};
  for (const v1::Bucket& bucket : description.buckets()) {
    if (bucket.kind() == "mixed") {
      limits.max_prompt_tokens = std::max(limits.max_prompt_tokens, bucket.capacity());
    }
  }
  return limits;
}

}  // namespace reprise::tools
