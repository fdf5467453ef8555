// SPDX-License-Identifier: Apache-2.0
// What 16 rows cost as one session and as 16 sessions of one row, each a client of its own over a
// unix socket: time per step of a row. A client sends its next step when it has the answer, or one
// step ahead of that, so that steps of all sessions wait together. On the host device, over a model
// whose step takes some milliseconds, and on CUDA over the 8B shape.
#include <benchmark/benchmark.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/decode_engine.h"
#include "grpcpp/create_channel.h"
#include "reprise/v1/step_service.grpc.pb.h"
#include "runtime/check.h"
#include "runtime/device.h"
#include "runtime/host/host_device.h"
#include "service/server.h"
#include "tests/testing/tiny_model.h"

namespace reprise::service {
namespace {

constexpr uint32_t kRows = 16;
constexpr uint32_t kStepsPerRound = 50;
constexpr uint32_t kBlockSize = 16, kContext = 256;

template <typename T>
T Value(absl::StatusOr<T> value) {
  REPRISE_CHECK(value.ok());
  return *std::move(value);
}

class Served {
 public:
  Served(runtime::DeviceKind kind, uint32_t max_joint_requests) {
    engine::DecodeEngineOptions options;
    options.block_size = kBlockSize;
    options.kv_cache_bytes = uint64_t{64} << 20;
    options.max_rows = kRows;
    options.max_context_length = kContext;
    options.decode_buckets = {1, 2, 4, 8, 16};
    options.mixed_buckets = {64};
    models::ModelSource source;
    if (kind == runtime::DeviceKind::kHost) {
      source.directory = WriteModel();
      device_ = Value(runtime::CreateHostDevice({.host_threads = 1}, {}));
    } else {
      source.preset = "llama-3.1-8b";
      options.kv_cache_bytes = uint64_t{1} << 30;
      device_ = Value(runtime::Device::Create({.kind = kind}));
    }
    engine_ = Value(engine::DecodeEngine::Create(*device_, source, options));
    ServerOptions server;
    server.listen = {"unix:" + directory_.path() + "/socket"};
    server.joint.max_requests = max_joint_requests;
    server_ = Value(Server::Start(server));
    server_->AttachEngine(*engine_);
  }
  const std::string& address() const { return server_->addresses()[0]; }

 private:
  std::string WriteModel() {
    return Value(testing::WriteTinyModel({.vocab_size = 2048,
                                          .hidden_size = 512,
                                          .intermediate_size = 2048,
                                          .num_layers = 4,
                                          .num_heads = 8,
                                          .num_kv_heads = 2,
                                          .head_dim = 64,
                                          .max_position_embeddings = 4096},
                                         directory_.path()));
  }

  testing::TemporaryDirectory directory_;
  std::unique_ptr<runtime::Device> device_;
  std::unique_ptr<engine::DecodeEngine> engine_;
  std::unique_ptr<Server> server_;
};

// A session of some rows, each of which begins anew when its context is full.
class Client {
 public:
  Client(const std::string& address, uint32_t rows) : rows_(rows) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    stub_ = v1::StepService::NewStub(
        grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
    stream_ = stub_->StepStream(&context_);
    v1::StepStreamRequest open;
    open.mutable_open()->set_client("benchmark");
    REPRISE_CHECK(stream_->Write(open) && stream_->Read(&response_));
    grpc::ClientContext context;
    v1::AllocateRequest allocate;
    allocate.set_session(response_.opened().session());
    allocate.set_count(rows * kContext / kBlockSize);
    v1::AllocateResponse blocks;
    REPRISE_CHECK(stub_->Allocate(&context, allocate, &blocks).ok());
    blocks_.assign(blocks.blocks().begin(), blocks.blocks().end());
  }
  ~Client() {
    stream_->WritesDone();
    while (stream_->Read(&response_)) {
    }
    REPRISE_CHECK(stream_->Finish().ok());
  }

  // ahead: steps that are sent before the answer to the one before them has come.
  void Run(uint32_t steps, uint32_t ahead) {
    for (uint32_t i = 0; i < steps + ahead; ++i) {
      if (i < steps) Send();
      if (i >= ahead) Receive();
    }
  }
  uint64_t other_rows() const { return other_rows_; }

 private:
  void Send() {
    v1::StepStreamRequest message;
    v1::StepRequest* step = message.mutable_step();
    step->set_sequence(++sequence_);
    if (context_length_ % (kContext - 1) != 0) {
      step->set_continue_all(true);
    } else {
      for (uint32_t row = 0; row < rows_; ++row) StartRow(row, step);
    }
    ++context_length_;
    REPRISE_CHECK(stream_->Write(message));
  }
  void Receive() {
    REPRISE_CHECK(stream_->Read(&response_) && response_.has_step());
    other_rows_ += response_.step().report().other_rows();
  }
  void StartRow(uint32_t row, v1::StepRequest* step) {
    if (context_length_ > 0) step->add_drop(row);
    v1::AddRow* add = step->add_add();
    add->set_row(row);
    const uint32_t count = kContext / kBlockSize;
    for (uint32_t b = 0; b < count; ++b) add->add_blocks(blocks_[row * count + b]);
    v1::Chunk* chunk = step->add_chunks();
    chunk->set_row(row);
    chunk->add_tokens(1 + row);
    chunk->set_sample(true);
  }

  const uint32_t rows_;
  std::unique_ptr<v1::StepService::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::StepStreamRequest, v1::StepStreamResponse>> stream_;
  v1::StepStreamResponse response_;
  std::vector<uint32_t> blocks_;
  uint64_t sequence_ = 0, context_length_ = 0, other_rows_ = 0;
};

void Sessions(benchmark::State& state, runtime::DeviceKind kind, uint32_t sessions,
              uint32_t max_joint_requests, uint32_t ahead) {
  std::string why;
  if (kind == runtime::DeviceKind::kCuda && runtime::CountCudaDevices(&why) == 0)
    return state.SkipWithError(why.c_str());
  const Served served(kind, max_joint_requests);
  std::vector<std::unique_ptr<Client>> clients;
  for (uint32_t i = 0; i < sessions; ++i)
    clients.push_back(std::make_unique<Client>(served.address(), kRows / sessions));
  const auto run = [&] {
    std::vector<std::thread> threads;
    for (const auto& client : clients)
      threads.emplace_back([&client, ahead] { client->Run(kStepsPerRound, ahead); });
    for (std::thread& thread : threads) thread.join();
  };
  run();  // paces become known, buffers grow
  for (auto _ : state) {
    const auto begin = std::chrono::steady_clock::now();
    run();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    state.SetIterationTime(took.count() / kStepsPerRound);
  }
  uint64_t other_rows = 0, steps = 0;
  for (const auto& client : clients) other_rows += client->other_rows();
  steps = sessions * (static_cast<uint64_t>(state.iterations()) + 1) * kStepsPerRound;
  state.counters["rows of others"] = static_cast<double>(other_rows) / static_cast<double>(steps);
}

void Register(const std::string& device, runtime::DeviceKind kind) {
  struct Case {
    const char* name;
    uint32_t sessions, max_joint_requests, ahead;
  };
  constexpr Case kCases[] = {
      {"OneSessionOf16Rows", 1, 64, 0},
      {"SixteenSessionsOfOneRow", kRows, 64, 0},
      {"OneSessionOf16RowsAStepAhead", 1, 64, 1},
      {"SixteenSessionsOfOneRowAStepAhead", kRows, 64, 1},
      {"SixteenSessionsEachAlone", kRows, 1, 0},
  };
  for (const Case& c : kCases)
    benchmark::RegisterBenchmark((device + c.name).c_str(),
                                 [c, kind](benchmark::State& state) {
                                   Sessions(state, kind, c.sessions, c.max_joint_requests, c.ahead);
                                 })
        ->UseManualTime()
        ->Iterations(4)
        ->Unit(benchmark::kMicrosecond);
}

}  // namespace
}  // namespace reprise::service

int main(int argc, char** argv) {
  reprise::service::Register("Host", reprise::runtime::DeviceKind::kHost);
  reprise::service::Register("Cuda", reprise::runtime::DeviceKind::kCuda);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
