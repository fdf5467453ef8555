// SPDX-License-Identifier: Apache-2.0
#include "tools/sched/client.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "runtime/check.h"
#include "runtime/status_macros.h"
#include "tools/connection.h"

namespace reprise::tools {
namespace {

using std::chrono::steady_clock;

template <typename Values, typename Repeated>
void Assign(const Values& values, Repeated* out) {
  out->Assign(values.begin(), values.end());
}

std::string BytesOf(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

template <typename T>
void SetNumber(std::string_view name, T value, v1::Sampling* wire) {
  const google::protobuf::Reflection* reflection = wire->GetReflection();
  const auto* field = v1::Sampling::descriptor()->FindFieldByName(std::string(name));
  REPRISE_CHECK(field != nullptr);
  if constexpr (std::is_same_v<T, float>) reflection->SetFloat(wire, field, value);
  if constexpr (std::is_same_v<T, uint32_t>) reflection->SetUInt32(wire, field, value);
  if constexpr (std::is_same_v<T, uint64_t>) reflection->SetUInt64(wire, field, value);
  if constexpr (std::is_same_v<T, bool>) reflection->SetBool(wire, field, value);
}

// Numbers are left out where they have their default, as the contract has it.
void SamplingToWire(const engine::SamplingParams& sampling, v1::Sampling* wire) {
  const engine::SamplingParams defaults;
  engine::ForEachSamplingNumber([&](const auto& number) {
    const auto value = sampling.*number.member;
    if (value != defaults.*number.member) SetNumber(number.name, value, wire);
  });
  for (const engine::TokenBias& bias : sampling.logit_bias) {
    wire->add_logit_bias_token(bias.token);
    wire->add_logit_bias(bias.bias);
  }
  if (!sampling.allowed_tokens.empty()) wire->set_allowed_tokens(BytesOf(sampling.allowed_tokens));
  Assign(sampling.stop_tokens, wire->mutable_stop_tokens());
}

void AddToWire(const engine::StepDraft::Add& add, v1::AddRow* wire) {
  wire->set_row(add.row);
  Assign(add.blocks, wire->mutable_blocks());
  wire->set_context_length(add.context_length);
  SamplingToWire(add.sampling, wire->mutable_sampling());
  Assign(add.history, wire->mutable_history());
  wire->set_prompt_length(add.prompt_length);
  if (add.swapped_state.has_value()) wire->set_swapped_state(*add.swapped_state);
}

void ChunkToWire(const engine::StepDraft::Chunk& chunk, v1::Chunk* wire) {
  wire->set_row(chunk.row);
  Assign(chunk.tokens, wire->mutable_tokens());
  wire->set_sample(chunk.sample);
  wire->set_prompt_logprobs(chunk.prompt_logprobs);
  if (chunk.next_token) wire->set_next_token(*chunk.next_token);
}

void ToWire(const PlannedStep& step, v1::StepRequest* wire) {
  wire->Clear();
  wire->set_sequence(step.sequence);
  Assign(step.drop, wire->mutable_drop());
  for (const engine::StepDraft::Add& add : step.add) AddToWire(add, wire->add_add());
  for (const engine::StepDraft::Append& append : step.append) {
    v1::AppendBlocks* row = wire->add_append();
    row->set_row(append.row);
    Assign(append.blocks, row->mutable_blocks());
  }
  for (const engine::StepDraft::Prefix& prefix : step.prefixes) {
    v1::PrefixGroup* group = wire->add_prefixes();
    group->set_group(prefix.group);
    group->set_num_blocks(prefix.num_blocks);
    Assign(prefix.rows, group->mutable_rows());
  }
  for (const engine::StepDraft::Mask& mask : step.masks) {
    v1::SetAllowedTokens* row = wire->add_masks();
    row->set_row(mask.row);
    row->set_allowed_tokens(BytesOf(mask.allowed_tokens));
  }
  for (const engine::StepDraft::Chunk& chunk : step.chunks) ChunkToWire(chunk, wire->add_chunks());
  Assign(step.continue_rows, wire->mutable_continue_rows());
  wire->set_continue_all(step.continue_all);
  if (step.mode == engine::ExecutionMode::kEager) wire->set_mode(v1::EXECUTION_MODE_EAGER);
  if (step.num_steps != 1) wire->set_num_steps(step.num_steps);
  if (step.form == engine::StepForm::kProfiled) wire->set_stamped(true);
  if (step.form == engine::StepForm::kUnpadded) wire->set_unpadded(true);
  for (const engine::StepDraft::Draft& draft : step.drafts) {
    v1::RowDraft* row = wire->add_drafts();
    row->set_row(draft.row);
    Assign(draft.tokens, row->mutable_tokens());
  }
}

// Ranks and likeliest tokens, which most steps have none of.
absl::Status ChancesFromWire(const v1::RowResults& wire, StepOutcome* outcome) {
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
    engine::RowOutcome& row = outcome->rows[static_cast<size_t>(i)];
    row.rank = wire.rank(i);
    row.top = {.begin = static_cast<uint32_t>(next), .count = wire.num_top(i)};
    for (uint32_t j = 0; j < wire.num_top(i); ++j, ++next)
      outcome->top_logprobs.push_back({wire.top_token(next), wire.top_logprob(next)});
  }
  return absl::OkStatus();
}

// Accepted drafts, which most steps have none of.
absl::Status AcceptedFromWire(const v1::RowResults& results, StepOutcome* outcome) {
  if (!results.has_accepted()) return absl::OkStatus();
  const v1::AcceptedDrafts& wire = results.accepted();
  uint64_t tokens = 0, tops = 0;
  for (const uint32_t count : wire.count()) tokens += count;
  for (const uint32_t count : wire.num_top()) tops += count;
  const auto is_of_tokens = [&](int size) { return static_cast<uint64_t>(size) == tokens; };
  const bool ranks = wire.rank_size() != 0;
  if (wire.count_size() != results.row_size() || !is_of_tokens(wire.token_size()) ||
      !is_of_tokens(wire.logprob_size()) || (ranks && !is_of_tokens(wire.rank_size())) ||
      wire.num_top_size() != wire.rank_size() ||
      static_cast<uint64_t>(wire.top_token_size()) != tops ||
      wire.top_logprob_size() != wire.top_token_size()) {
    return absl::InternalError(absl::StrCat(
        "step result: accepted: got ", wire.count_size(), " count, ", wire.token_size(), " token, ",
        wire.logprob_size(), " logprob, ", wire.rank_size(), " rank, ", wire.num_top_size(),
        " num_top, ", wire.top_token_size(), " top_token, ", wire.top_logprob_size(),
        " top_logprob for ", results.row_size(), " rows; allowed: columns that agree"));
  }
  int next = 0, next_top = 0;
  for (int i = 0; i < wire.count_size(); ++i) {
    outcome->rows[static_cast<size_t>(i)].accepted = {.begin = static_cast<uint32_t>(next),
                                                      .count = wire.count(i)};
    for (const int end = next + static_cast<int>(wire.count(i)); next < end; ++next) {
      engine::AcceptedToken& token = outcome->accepted.emplace_back();
      token = {.token = wire.token(next), .logprob = wire.logprob(next)};
      if (!ranks) continue;
      token.rank = wire.rank(next);
      token.top = {.begin = static_cast<uint32_t>(outcome->top_logprobs.size()),
                   .count = wire.num_top(next)};
      for (const int last = next_top + static_cast<int>(token.top.count); next_top < last;
           ++next_top)
        outcome->top_logprobs.push_back({wire.top_token(next_top), wire.top_logprob(next_top)});
    }
  }
  return absl::OkStatus();
}

// The wire's finish reasons have the engine's numbers.
absl::StatusOr<engine::FinishReason> FinishFromWire(int wire) {
  if (v1::FinishReason_IsValid(wire)) return static_cast<engine::FinishReason>(wire);
  return absl::InternalError(
      absl::StrCat("step result: got finish_reason ", wire, ", allowed: 0 to 3"));
}

// Why rows stopped: a column that is empty in steps where none did.
absl::Status FinishesFromWire(const v1::RowResults& wire, StepOutcome* outcome) {
  if (wire.finish_reason_size() == 0) return absl::OkStatus();
  if (wire.finish_reason_size() != wire.row_size()) {
    return absl::InternalError(absl::StrCat("step result: got ", wire.finish_reason_size(),
                                            " finish_reason for ", wire.row_size(),
                                            " rows; allowed: one each, or none"));
  }
  for (int i = 0; i < wire.row_size(); ++i) {
    REPRISE_ASSIGN_OR_RETURN(outcome->rows[static_cast<size_t>(i)].finish,
                             FinishFromWire(wire.finish_reason(i)));
  }
  return absl::OkStatus();
}

absl::StatusOr<engine::RowStatus> StatusFromWire(int wire) {
  switch (wire) {
    case v1::ROW_STATUS_RAN:
      return engine::RowStatus::kRan;
    case v1::ROW_STATUS_STOPPED:
      return engine::RowStatus::kStopped;
    case v1::ROW_STATUS_PAUSED:
      return engine::RowStatus::kPaused;
    default:
      return absl::InternalError(absl::StrCat("step result: got status ", wire,
                                              ", allowed: 1 (ran), 2 (stopped), 3 (paused)"));
  }
}

absl::Status RowsFromWire(const v1::RowResults& wire, StepOutcome* outcome) {
  const int count = wire.row_size();
  if (wire.status_size() != count || wire.sampled_size() != count || wire.token_size() != count ||
      wire.logprob_size() != count || wire.context_length_size() != count) {
    return absl::InternalError(absl::StrCat(
        "step result: got columns of ", count, " rows, ", wire.status_size(), " status, ",
        wire.sampled_size(), " sampled, ", wire.token_size(), " token, ", wire.logprob_size(),
        " logprob, ", wire.context_length_size(), " context_length; allowed: equal lengths"));
  }
  outcome->rows.clear();
  outcome->top_logprobs.clear();
  outcome->accepted.clear();
  for (int i = 0; i < count; ++i) {
    REPRISE_ASSIGN_OR_RETURN(const engine::RowStatus status, StatusFromWire(wire.status(i)));
    outcome->rows.push_back({.row = wire.row(i),
                             .status = status,
                             .sampled = wire.sampled(i),
                             .token = wire.token(i),
                             .logprob = wire.logprob(i),
                             .context_length = wire.context_length(i)});
  }
  REPRISE_RETURN_IF_ERROR(FinishesFromWire(wire, outcome));
  REPRISE_RETURN_IF_ERROR(ChancesFromWire(wire, outcome));
  return AcceptedFromWire(wire, outcome);
}

using GraphNames = std::set<std::string, std::less<>>;

// `names` holds the graph's name, which the report only views.
engine::StepReport ReportFromWire(const v1::StepReport& wire, GraphNames* names) {
  return {.graph = *names->insert(wire.graph()).first,
          .replayed = wire.replayed(),
          .rows = wire.rows(),
          .tokens = wire.tokens(),
          .other_rows = wire.other_rows(),
          .other_tokens = wire.other_tokens(),
          .padding_rows = wire.padding_rows(),
          .padding_tokens = wire.padding_tokens(),
          .attention_tree = wire.attention_tree(),
          .attention_leaf = wire.attention_leaf()};
}

// The wire leaves out the only step of a request.
absl::Status StepsFromWire(const v1::StepResponse& wire, GraphNames* names, StepOutcome* outcome) {
  outcome->steps.clear();
  if (wire.steps().empty()) {
    outcome->steps.push_back({.num_rows = static_cast<uint32_t>(outcome->rows.size()),
                              .report = outcome->report,
                              .device_ns = outcome->ledger.device_ns});
    return absl::OkStatus();
  }
  uint64_t rows = 0;
  for (const v1::SingleStep& step : wire.steps()) {
    rows += step.num_rows();
    outcome->steps.push_back({.num_rows = step.num_rows(),
                              .report = ReportFromWire(step.report(), names),
                              .device_ns = step.device_ns()});
  }
  if (rows == outcome->rows.size()) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("step result: got ", outcome->rows.size(), " rows for ",
                                          rows, " of its ", wire.steps_size(),
                                          " steps; allowed: as many"));
}

absl::Status FromWire(const v1::StepResponse& wire, GraphNames* names, StepOutcome* outcome) {
  outcome->sequence = wire.sequence();
  outcome->refusal = absl::OkStatus();
  outcome->report = ReportFromWire(wire.report(), names);
  const v1::StepLedger& ledger = wire.ledger();
  outcome->ledger = {.validate_ns = ledger.validate_ns(),
                     .ring_ns = ledger.ring_ns(),
                     .launch_ns = ledger.launch_ns(),
                     .device_ns = ledger.device_ns(),
                     .total_ns = ledger.total_ns()};
  outcome->wire_ns = ledger.wire_ns();
  outcome->queue_ns = ledger.queue_ns();
  outcome->reply_ns = ledger.reply_ns();
  uint64_t done = outcome->stamps_begin_ns = wire.stamps().begin_ns();
  outcome->stamps_done_ns.clear();
  for (const uint64_t took : wire.stamps().took_ns())
    outcome->stamps_done_ns.push_back(done += took);
  REPRISE_RETURN_IF_ERROR(RowsFromWire(wire.rows(), outcome));
  return StepsFromWire(wire, names, outcome);
}

}  // namespace

absl::StatusOr<std::unique_ptr<GrpcClient>> GrpcClient::Connect(const ClientOptions& options) {
  REPRISE_ASSIGN_OR_RETURN(Connection connection, Connection::Open(options.connection));
  auto client = std::unique_ptr<GrpcClient>(new GrpcClient(options, std::move(connection)));
  const std::shared_ptr<grpc::Channel>& channel = client->connection_.channel();
  REPRISE_RETURN_IF_ERROR(
      WaitUntilServing(channel, client->address(), options.wait, options.interrupted));
  if (options.timeout.count() > 0) {
    client->deadline_ =
        steady_clock::now() + std::chrono::duration_cast<steady_clock::duration>(options.timeout);
  }
  client->stub_ = v1::StepService::NewStub(channel);
  REPRISE_RETURN_IF_ERROR(client->DescribeServer(&client->description_));
  REPRISE_RETURN_IF_ERROR(client->OpenSession());
  return client;
}

absl::Status GrpcClient::DescribeServer(v1::DescribeResponse* description) {
  grpc::ClientContext context;
  Prepare(&context);
  return FromGrpc(stub_->Describe(&context, v1::DescribeRequest(), description),
                  absl::StrCat("Describe of the server at ", address()));
}

void GrpcClient::Prepare(grpc::ClientContext* context) const {
  connection_.Prove(context);
  if (deadline_.time_since_epoch().count() == 0) return;
  const auto left = std::max(steady_clock::duration(0), deadline_ - steady_clock::now());
  const int64_t us = std::chrono::duration_cast<std::chrono::microseconds>(left).count();
  context->set_deadline(
      gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_micros(us, GPR_TIMESPAN)));
}

absl::Status GrpcClient::OpenSession() {
  StartStream();
  v1::StepStreamRequest request;
  request.mutable_open()->set_client(options_.name);
  request.mutable_open()->set_resume_grace_ms(
      static_cast<uint64_t>(std::max<int64_t>(0, options_.resume_grace.count())));
  if (!stream_->Write(request) || !stream_->Read(&response_))
    return StreamEnd(FinishStream(), "opening a session");
  if (!response_.has_opened()) {
    return absl::InternalError(absl::StrCat("the server at ", address(),
                                            " answered `open` with something other than `opened`"));
  }
  finished_ = false;
  session_ = response_.opened().session();
  grace_ = std::chrono::milliseconds(response_.opened().resume_grace_ms());
  return absl::OkStatus();
}

absl::Status GrpcClient::Submit(const PlannedStep& step) {
  Sent& sent = sent_.emplace_back();
  sent.time = steady_clock::now();
  if (!spare_.empty()) {
    sent.request = std::move(spare_.back());
    spare_.pop_back();
  }
  ToWire(step, sent.request.mutable_step());
  if (!stream_->Write(sent.request)) return Recover("sending a step");
  return absl::OkStatus();
}

absl::Status GrpcClient::Receive(StepOutcome* outcome) {
  while (!stream_->Read(&response_)) REPRISE_RETURN_IF_ERROR(Recover("waiting for a step"));
  if (sent_.empty()) {
    return absl::InternalError(
        absl::StrCat("the server at ", address(), " sent an answer to a step that nobody sent"));
  }
  const auto round_trip = steady_clock::now() - sent_.front().time;
  spare_.push_back(std::move(sent_.front().request));
  sent_.pop_front();
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
    return absl::InternalError(
        absl::StrCat("the server at ", address(), " sent something other than a step's result"));
  }
  ++num_results_;
  last_sequence_ = response_.step().sequence();
  return FromWire(response_.step(), &graph_names_, outcome);
}

absl::StatusOr<std::vector<uint32_t>> GrpcClient::Allocate(uint32_t count) {
  v1::AllocateRequest request;
  v1::AllocateResponse response;
  request.set_session(session_);
  request.set_count(count);
  const std::string doing = absl::StrCat("allocating ", count, " blocks");
  // Blocks whose ids were lost with the connection stay the session's until its end.
  bool repeated = false;
  REPRISE_RETURN_IF_ERROR(Call(
      [&](grpc::ClientContext* context) { return stub_->Allocate(context, request, &response); },
      doing, &repeated));
  return std::vector<uint32_t>(response.blocks().begin(), response.blocks().end());
}

absl::Status GrpcClient::Free(const std::vector<uint32_t>& blocks) {
  v1::FreeRequest request;
  v1::FreeResponse response;
  request.set_session(session_);
  Assign(blocks, request.mutable_blocks());
  const std::string doing = absl::StrCat("freeing ", blocks.size(), " blocks");
  bool repeated = false;
  const absl::Status status =
      Call([&](grpc::ClientContext* context) { return stub_->Free(context, request, &response); },
           doing, &repeated);
  // The call whose answer was lost had freed them.
  return repeated && absl::IsPermissionDenied(status) ? absl::OkStatus() : status;
}

absl::Status GrpcClient::StartProfile(v1::StartProfileRequest request,
                                      v1::StartProfileResponse* response) {
  request.set_session(session_);
  bool repeated = false;
  return Call(
      [&](grpc::ClientContext* context) { return stub_->StartProfile(context, request, response); },
      "starting a profile", &repeated);
}

absl::Status GrpcClient::ReadTelemetry(v1::ReadTelemetryResponse* response) {
  bool repeated = false;
  return Call(
      [&](grpc::ClientContext* context) { return stub_->ReadTelemetry(context, {}, response); },
      "reading clocks and power", &repeated);
}

namespace {

// A call that is refused when it is repeated had been made: what it named is not there any more.
absl::Status LostAnswer(const absl::Status& status, bool repeated, const std::string& doing) {
  const bool is_gone = absl::IsPermissionDenied(status) || absl::IsOutOfRange(status);
  if (!repeated || !is_gone) return status;
  return absl::DataLossError(
      absl::StrCat(doing, ": the answer was lost with the connection: ", status.message()));
}

}  // namespace

absl::StatusOr<std::vector<uint32_t>> GrpcClient::SwapOut(const std::vector<uint32_t>& blocks) {
  v1::SwapOutRequest request;
  v1::SwapOutResponse response;
  request.set_session(session_);
  Assign(blocks, request.mutable_blocks());
  const std::string doing = absl::StrCat("swapping out ", blocks.size(), " blocks");
  bool repeated = false;
  const absl::Status status = Call(
      [&](grpc::ClientContext* context) { return stub_->SwapOut(context, request, &response); },
      doing, &repeated);
  REPRISE_RETURN_IF_ERROR(LostAnswer(status, repeated, doing));
  return std::vector<uint32_t>(response.swapped().begin(), response.swapped().end());
}

absl::StatusOr<std::vector<uint32_t>> GrpcClient::SwapIn(const std::vector<uint32_t>& swapped) {
  v1::SwapInRequest request;
  v1::SwapInResponse response;
  request.set_session(session_);
  Assign(swapped, request.mutable_swapped());
  const std::string doing = absl::StrCat("swapping in ", swapped.size(), " blocks");
  bool repeated = false;
  const absl::Status status =
      Call([&](grpc::ClientContext* context) { return stub_->SwapIn(context, request, &response); },
           doing, &repeated);
  REPRISE_RETURN_IF_ERROR(LostAnswer(status, repeated, doing));
  return std::vector<uint32_t>(response.blocks().begin(), response.blocks().end());
}

// Asked again, the server says the copy that there is.
absl::StatusOr<uint32_t> GrpcClient::SwapOutState(uint32_t row) {
  v1::SwapOutStateRequest request;
  v1::SwapOutStateResponse response;
  request.set_session(session_);
  request.set_row(row);
  bool repeated = false;
  REPRISE_RETURN_IF_ERROR(Call(
      [&](grpc::ClientContext* context) {
        return stub_->SwapOutState(context, request, &response);
      },
      absl::StrCat("swapping out the state of row ", row), &repeated));
  return response.swapped_state();
}

absl::Status GrpcClient::FreeSwappedState(uint32_t state) {
  v1::FreeSwappedRequest request;
  v1::FreeSwappedResponse response;
  request.set_session(session_);
  request.add_swapped_states(state);
  bool repeated = false;
  const absl::Status status = Call(
      [&](grpc::ClientContext* context) { return stub_->FreeSwapped(context, request, &response); },
      "forgetting a swapped state", &repeated);
  // The call whose answer was lost had freed it.
  return repeated && absl::IsPermissionDenied(status) ? absl::OkStatus() : status;
}

absl::Status GrpcClient::FreeSwapped(const std::vector<uint32_t>& swapped) {
  v1::FreeSwappedRequest request;
  v1::FreeSwappedResponse response;
  request.set_session(session_);
  Assign(swapped, request.mutable_swapped());
  const std::string doing = absl::StrCat("forgetting ", swapped.size(), " swapped blocks");
  bool repeated = false;
  const absl::Status status = Call(
      [&](grpc::ClientContext* context) { return stub_->FreeSwapped(context, request, &response); },
      doing, &repeated);
  // The call whose answer was lost had freed them.
  return repeated && absl::IsPermissionDenied(status) ? absl::OkStatus() : status;
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
      return FromGrpc(status, absl::StrCat("the server at ", address(), " ended the session after ",
                                           num_results_, " steps, while ", doing));
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return absl::DeadlineExceededError(absl::StrCat("the timeout of the run is over after ",
                                                      num_results_, " steps, while ", doing));
    default:
      return FromGrpc(status, doing);
  }
}

absl::Status GrpcClient::StreamEnd(const grpc::Status& status, const std::string& doing) const {
  const std::string where = absl::StrCat("the server at ", address(), " ended the session after ",
                                         num_results_, " steps, while ", doing);
  if (cancelled_) return absl::CancelledError("interrupted");
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
    return absl::DeadlineExceededError(absl::StrCat("the timeout of the run is over after ",
                                                    num_results_, " steps, while ", doing));
  }
  if (status.ok()) return absl::UnavailableError(where);
  return FromGrpc(status, where);
}

ServerInfo ServerInfoOf(const v1::DescribeResponse& description) {
  const v1::Limits& limits = description.limits();
  ServerInfo server{
      .limits = {.block_size = description.pool().block_size(),
                 .vocab_size = description.model().vocab_size(),
                 .max_rows = limits.max_rows(),
                 .max_context_length = limits.max_context_length(),
                 .max_blocks_per_row = limits.max_blocks_per_row(),
                 .max_step_tokens = limits.max_step_tokens(),
                 .pipeline_depth = std::max(1u, limits.pipeline_depth()),
                 .max_steps_per_request = std::max(1u, limits.max_steps_per_request()),
                 .min_shared_tokens = limits.min_shared_tokens(),
                 .adjust_logits = limits.adjust_logits(),
                 .max_logit_rows = limits.max_logit_rows(),
                 .max_prompt_logprobs = limits.max_prompt_logprobs(),
                 .max_draft_tokens = limits.max_draft_tokens(),
                 .max_sampling_bytes = limits.max_sampling_bytes(),
                 .max_stop_tokens = limits.max_stop_tokens(),
                 .max_logit_bias = limits.max_logit_bias(),
                 .max_logprobs = limits.max_logprobs(),
                 .row_state_bytes = limits.row_state_bytes()},
      .num_blocks = description.pool().num_blocks(),
      .max_session_blocks = limits.max_session_blocks(),
      .eos_token_ids = {description.model().eos_token_ids().begin(),
                        description.model().eos_token_ids().end()},
      .byte_tokens = description.model().token_encoding() == v1::TOKEN_ENCODING_BYTES,
      .num_swap_blocks = description.pool().swap_blocks(),
      .num_swap_states = description.pool().swap_states(),
      .max_kv_blocks_per_call = limits.max_kv_blocks_per_call()};
  for (const v1::Bucket& bucket : description.buckets()) {
    if (bucket.kind() != "mixed") continue;
    server.limits.max_prompt_tokens = std::max(server.limits.max_prompt_tokens, bucket.capacity());
  }
  return server;
}

}  // namespace reprise::tools
