// SPDX-License-Identifier: Apache-2.0
#include "tests/service/served_model.h"

#include <gtest/gtest.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/impl/codegen/client_unary_call.h"
#include "grpcpp/impl/codegen/rpc_method.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/slice.h"
#include "runtime/check.h"
#include "runtime/host/host_device.h"
#include "service/kv/model_fingerprint.h"

namespace reprise::service {
namespace {

void WriteModel(const std::string& directory, uint64_t seed, const std::string& architecture) {
  testing::TinyModelOptions options;
  options.architecture = architecture;
  options.seed = seed;
  options.vocab_size = kVocab;
  options.max_position_embeddings = 128;
  const auto written = testing::WriteTinyModel(options, directory);
  if (!written.ok()) ADD_FAILURE() << written.status();
  REPRISE_CHECK(written.ok());
}

}  // namespace

TinyEngine::TinyEngine(const std::string& directory, int max_delay_us, uint64_t watchdog_timeout_ms,
                       uint64_t swap_bytes, uint64_t export_bytes) {
  runtime::DeviceOptions device_options;
  device_options.host_threads = 2;
  auto created_device = runtime::CreateHostDevice(device_options, {.max_us = max_delay_us});
  if (!created_device.ok()) ADD_FAILURE() << created_device.status();
  REPRISE_CHECK(created_device.ok());
  device = *std::move(created_device);

  engine::DecodeEngineOptions options;
  options.block_size = kBlockSize;
  options.kv_cache_bytes = 192 << 10;
  options.max_rows = kMaxRows;
  options.max_context_length = kMaxContext;
  options.watchdog_timeout_ms = watchdog_timeout_ms;
  options.mixed_buckets = {8, kMaxStepTokens};
  options.max_steps_per_request = kMaxSteps;
  options.max_draft_tokens = kMaxDraftTokens;
  options.swap_bytes = swap_bytes;
  options.export_bytes = export_bytes;
  models::ModelSource source;
  source.directory = directory;
  auto created = engine::DecodeEngine::Create(*device, source, options);
  if (!created.ok()) ADD_FAILURE() << created.status();
  REPRISE_CHECK(created.ok());
  engine = *std::move(created);
}

ServedModel::ServedModel(const Options& options) {
  WriteModel(directory_.path(), options.model_seed, options.architecture);
  tiny_ = std::make_unique<TinyEngine>(directory_.path(), options.max_delay_us,
                                       options.watchdog_timeout_ms, options.swap_bytes,
                                       options.export_bytes);
  ServerOptions server_options = options.server;
  if (options.knows_model) {
    const auto fingerprint = ModelFingerprint({.directory = directory_.path()});
    EXPECT_TRUE(fingerprint.ok()) << fingerprint.status();
    server_options.model = fingerprint.value_or("");
  }
  if (server_options.listen.empty()) {
    server_options.listen = {absl::StrCat("unix:", directory_.path(), "/reprise.sock")};
  }
  auto started = Server::Start(server_options);
  if (!started.ok()) ADD_FAILURE() << started.status();
  REPRISE_CHECK(started.ok());
  server_ = *std::move(started);
  if (!options.kv_exchange.empty()) {
    auto exchange = KvExchange::Create(*tiny_->engine, options.kv_exchange, server_options.model);
    if (!exchange.ok()) ADD_FAILURE() << exchange.status();
    REPRISE_CHECK(exchange.ok());
    exchange_ = *std::move(exchange);
  }
  if (options.attach) server_->AttachEngine(*tiny_->engine, exchange_.get());
}

ServedModel::~ServedModel() = default;

std::shared_ptr<grpc::Channel> ServedModel::NewChannel() const {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(address(), grpc::InsecureChannelCredentials(), arguments);
}

std::vector<uint32_t> ServedModel::Reference(std::span<const uint32_t> prompt, size_t count) {
  if (reference_ == nullptr) reference_ = std::make_unique<TinyEngine>(directory_.path());
  engine::DecodeEngine& engine = *reference_->engine;
  const engine::SessionInfo session = engine.OpenSession();
  const auto blocks = engine.AllocateBlocks(session.id, kMaxContext / kBlockSize);
  std::vector<uint32_t> tokens;
  if (!blocks.ok()) ADD_FAILURE() << blocks.status();
  const engine::RowAdd add = {.row = 1, .sampling = {}, .context_length = 0, .blocks = *blocks};
  const engine::RowChunk chunk = {.row = 1, .sample = true, .tokens = prompt};
  for (size_t i = 0; i < count; ++i) {
    engine::StepRequest step;
    step.session = session.id;
    step.epoch = session.epoch;
    step.sequence = i + 1;
    if (i == 0) {
      step.add = {&add, 1};
      step.chunks = {&chunk, 1};
    } else {
      step.continue_all = true;
    }
    engine::StepResult result;
    const absl::Status status = engine.Step(step, &result);
    if (!status.ok() || result.rows.size() != 1) {
      ADD_FAILURE() << status << ", " << result.rows.size() << " rows";
      break;
    }
    tokens.push_back(result.rows[0].token);
  }
  EXPECT_TRUE(engine.CloseSession(session.id).ok());
  return tokens;
}

ServedModel::Options Slowed(int max_delay_us) {
  ServedModel::Options options;
  options.max_delay_us = max_delay_us;
  return options;
}

v1::StepStreamRequest OpenWithGrace(uint64_t resume_grace_ms) {
  v1::StepStreamRequest message;
  message.mutable_open()->set_client("test");
  message.mutable_open()->set_resume_grace_ms(resume_grace_ms);
  return message;
}

v1::StepStreamRequest ResumeOf(const std::string& session, uint64_t last_sequence) {
  v1::StepStreamRequest message;
  message.mutable_resume()->set_session(session);
  message.mutable_resume()->set_last_sequence(last_sequence);
  return message;
}

void AddToken(const std::string& token, grpc::ClientContext* context) {
  if (!token.empty()) context->AddMetadata("authorization", "Bearer " + token);
}

StreamClient::StreamClient(const std::shared_ptr<grpc::Channel>& channel, std::string token,
                           const Metadata& metadata)
    : StreamClient(channel, OpenWithGrace(0), std::move(token), metadata) {}

StreamClient::StreamClient(const std::shared_ptr<grpc::Channel>& channel,
                           const v1::StepStreamRequest& first, std::string token,
                           const Metadata& metadata)
    : token_(std::move(token)), stub_(v1::StepService::NewStub(channel)) {
  AddToken(token_, &context_);
  for (const auto& [key, value] : metadata) context_.AddMetadata(key, value);
  stream_ = stub_->StepStream(&context_);
  if (!stream_->Write(first) || !stream_->Read(&first_answer_)) return;
  opened_ = first_answer_.has_opened() || first_answer_.has_resumed();
  session_ = first.has_resume() ? first.resume().session() : first_answer_.opened().session();
  if (first.has_resume()) next_sequence_ = first_answer_.resumed().last_sequence() + 1;
}

StreamClient::~StreamClient() {
  if (finished_) return;
  context_.TryCancel();
  Finish();
}

v1::StepRequest StreamClient::NewStep() const {
  v1::StepRequest step;
  step.set_session(session_);
  step.set_sequence(next_sequence_);
  return step;
}

bool StreamClient::Send(const v1::StepRequest& step) {
  v1::StepStreamRequest message;
  *message.mutable_step() = step;
  return stream_->Write(message);
}

bool StreamClient::SendRaw(const v1::StepStreamRequest& message) { return stream_->Write(message); }

bool StreamClient::Receive(v1::StepStreamResponse* response) { return stream_->Read(response); }

v1::StepResponse StreamClient::Step(const v1::StepRequest& step) {
  v1::StepStreamResponse response;
  EXPECT_TRUE(Send(step));
  EXPECT_TRUE(Receive(&response));
  EXPECT_TRUE(response.has_step()) << response.ShortDebugString();
  if (response.has_step()) CountStep();
  return response.step();
}

v1::StepError StreamClient::Refused(const v1::StepRequest& step) {
  v1::StepStreamResponse response;
  EXPECT_TRUE(Send(step));
  EXPECT_TRUE(Receive(&response));
  EXPECT_TRUE(response.has_error()) << response.ShortDebugString();
  EXPECT_EQ(response.error().sequence(), step.sequence());
  return response.error();
}

std::vector<uint32_t> StreamClient::Allocate(uint32_t count) {
  grpc::ClientContext context;
  AddToken(token_, &context);
  v1::AllocateRequest request;
  request.set_session(session_);
  request.set_count(count);
  v1::AllocateResponse response;
  const grpc::Status status = stub_->Allocate(&context, request, &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return {response.blocks().begin(), response.blocks().end()};
}

uint32_t StreamClient::StartRow(uint32_t row, std::span<const uint32_t> prompt,
                                uint32_t max_context) {
  v1::StepRequest step = NewStep();
  v1::AddRow* add = step.add_add();
  add->set_row(row);
  for (const uint32_t block : Allocate((max_context + kBlockSize - 1) / kBlockSize)) {
    add->add_blocks(block);
  }
  v1::Chunk* chunk = step.add_chunks();
  chunk->set_row(row);
  chunk->mutable_tokens()->Add(prompt.begin(), prompt.end());
  chunk->set_sample(true);
  const v1::StepResponse response = Step(step);
  EXPECT_EQ(response.rows().token_size(), 1);
  return response.rows().token_size() == 1 ? response.rows().token(0) : 0;
}

void StreamClient::HalfClose() {
  if (!half_closed_) stream_->WritesDone();
  half_closed_ = true;
}

grpc::Status StreamClient::Finish() {
  finished_ = true;
  HalfClose();
  v1::StepStreamResponse response;
  while (stream_->Read(&response)) {
  }
  return stream_->Finish();
}

std::vector<uint32_t> Continue(StreamClient& client, uint32_t row, size_t count) {
  std::vector<uint32_t> tokens;
  for (size_t i = 0; i < count; ++i) {
    v1::StepRequest step = client.NewStep();
    step.set_continue_all(true);
    const v1::StepResponse response = client.Step(step);
    for (int r = 0; r < response.rows().row_size(); ++r) {
      if (response.rows().row(r) == row) tokens.push_back(response.rows().token(r));
    }
  }
  return tokens;
}

// As the generated stubs do it. A completion queue of one's own hands answers over in a way that
// ThreadSanitizer cannot see.
grpc::Status CallWithBytes(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                           const std::string& bytes, const std::string& token) {
  const std::string path = absl::StrCat("/reprise.v1.StepService/", method);
  const grpc::internal::RpcMethod rpc(path.c_str(), grpc::internal::RpcMethod::NORMAL_RPC, channel);
  const grpc::Slice slice(bytes);
  const grpc::ByteBuffer request(&slice, 1);
  grpc::ClientContext context;
  AddToken(token, &context);
  grpc::ByteBuffer reply;
  return grpc::internal::BlockingUnaryCall<grpc::ByteBuffer, grpc::ByteBuffer, grpc::ByteBuffer,
                                           grpc::ByteBuffer>(channel.get(), rpc, &context, request,
                                                             &reply);
}

int CheckHealth(const std::shared_ptr<grpc::Channel>& channel, const std::string& service) {
  grpc::ClientContext context;
  grpc::health::v1::HealthCheckRequest request;
  request.set_service(service);
  grpc::health::v1::HealthCheckResponse response;
  const grpc::Status status =
      grpc::health::v1::Health::NewStub(channel)->Check(&context, request, &response);
  return status.ok() ? response.status() : -static_cast<int>(status.error_code());
}

}  // namespace reprise::service
