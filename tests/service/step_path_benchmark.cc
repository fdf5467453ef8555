// SPDX-License-Identifier: Apache-2.0
// What a server adds to a streamed step of many rows over a unix socket: the client's time less the
// device's, beside an echo of the same messages by a server of gRPC's that does nothing else, step
// by step in the same run; the host's work by the ledger; and what is allocated, in the client and
// in both servers together. On every device that is here.
//
//   build/cuda/tests/service/reprise_step_path_benchmark
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/decode_engine.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "reprise/v1/step_service.grpc.pb.h"
#include "runtime/check.h"
#include "runtime/device.h"
#include "service/server.h"
#include "tests/testing/allocation_counter.h"
#include "tests/testing/tiny_model.h"

namespace reprise::service {
namespace {

using std::chrono::steady_clock;

constexpr uint32_t kBlockSize = 16, kContext = 2048;
constexpr int kWarmUpSteps = 50;

template <typename T>
T Value(absl::StatusOr<T> value) {
  REPRISE_CHECK(value.ok());
  return *std::move(value);
}

std::shared_ptr<grpc::Channel> NewChannel(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

class Served {
 public:
  Served(runtime::DeviceKind kind, uint32_t rows) {
    const std::string model =
        Value(testing::WriteTinyModel({.max_position_embeddings = kContext}, directory_.path()));
    device_ = Value(runtime::Device::Create({.kind = kind}));
    engine::DecodeEngineOptions options;
    options.block_size = kBlockSize;
    options.kv_cache_bytes = uint64_t{512} << 20;
    options.max_rows = rows;
    options.max_context_length = kContext;
    options.mixed_buckets = {512};
    engine_ = Value(engine::DecodeEngine::Create(*device_, {.directory = model}, options));
    server_ = Value(Server::Start(
        {.listen = {"unix:" + directory_.path() + "/socket"}, .max_message_bytes = 16u << 20}));
    server_->AttachEngine(*engine_);
  }
  const std::string& address() const { return server_->addresses()[0]; }

 private:
  testing::TemporaryDirectory directory_;
  std::unique_ptr<runtime::Device> device_;
  std::unique_ptr<engine::DecodeEngine> engine_;
  std::unique_ptr<Server> server_;
};

// Answers every message of a stream with the same bytes.
class Echo final
    : public v1::StepService::WithRawCallbackMethod_StepStream<v1::StepService::Service> {
 public:
  Echo() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address(), grpc::InsecureServerCredentials());
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    REPRISE_CHECK(server_ != nullptr);
  }
  ~Echo() override { server_->Shutdown(); }
  std::string address() const { return "unix:" + directory_.path() + "/echo"; }
  void SetAnswer(const v1::StepStreamResponse& answer) {
    const grpc::Slice slice(answer.SerializeAsString());
    answer_ = grpc::ByteBuffer(&slice, 1);
  }

 private:
  class Reactor final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
   public:
    explicit Reactor(const Echo& echo) : echo_(echo) { StartRead(&read_); }
    void OnReadDone(bool ok) override {
      if (!ok) return Finish(grpc::Status::OK);
      written_ = echo_.answer_;
      StartWrite(&written_);
    }
    void OnWriteDone(bool /*ok*/) override { StartRead(&read_); }
    void OnDone() override { delete this; }

   private:
    const Echo& echo_;
    grpc::ByteBuffer read_, written_;
  };
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* StepStream(
      grpc::CallbackServerContext* /*context*/) override {
    return new Reactor(*this);
  }

  testing::TemporaryDirectory directory_;
  grpc::ByteBuffer answer_;
  std::unique_ptr<grpc::Server> server_;
};

class Stream {
 public:
  explicit Stream(const std::string& address)
      : stub_(v1::StepService::NewStub(NewChannel(address))),
        stream_(stub_->StepStream(&context_)) {}
  ~Stream() {
    stream_->WritesDone();
    while (stream_->Read(&response_)) {
    }
    REPRISE_CHECK(stream_->Finish().ok());
  }
  // Its answer, and how long that took.
  const v1::StepStreamResponse& Ask(const v1::StepStreamRequest& request) {
    const auto begin = steady_clock::now();
    REPRISE_CHECK(stream_->Write(request) && stream_->Read(&response_));
    took_ = steady_clock::now() - begin;
    return response_;
  }
  double microseconds() const { return std::chrono::duration<double, std::micro>(took_).count(); }
  v1::StepService::Stub& stub() { return *stub_; }

 private:
  std::unique_ptr<v1::StepService::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::StepStreamRequest, v1::StepStreamResponse>> stream_;
  v1::StepStreamResponse response_;
  steady_clock::duration took_{};
};

// A session with so many rows that decode, and the step that they are added by.
v1::StepStreamRequest FirstStep(Stream& stream, uint32_t rows) {
  v1::StepStreamRequest open;
  open.mutable_open()->set_client("benchmark");
  v1::AllocateRequest allocate;
  allocate.set_session(stream.Ask(open).opened().session());
  constexpr uint32_t kBlocks = 64;
  allocate.set_count(rows * kBlocks);
  v1::AllocateResponse blocks;
  grpc::ClientContext context;
  REPRISE_CHECK(stream.stub().Allocate(&context, allocate, &blocks).ok());
  v1::StepStreamRequest first;
  first.mutable_step()->set_sequence(1);
  for (uint32_t row = 0; row < rows; ++row) {
    v1::AddRow* add = first.mutable_step()->add_add();
    add->set_row(row);
    for (uint32_t b = 0; b < kBlocks; ++b)
      add->add_blocks(blocks.blocks(static_cast<int>(row * kBlocks + b)));
    v1::Chunk* chunk = first.mutable_step()->add_chunks();
    chunk->set_row(row);
    chunk->add_tokens(1 + row % 60);
    chunk->set_sample(true);
  }
  return first;
}

double Median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + static_cast<ptrdiff_t>(values.size() / 2));
  return values[values.size() / 2];
}

void StreamedStep(benchmark::State& state, runtime::DeviceKind kind) {
  const auto rows = static_cast<uint32_t>(state.range(0));
  const Served served(kind, rows);
  Echo echo;
  Stream steps(served.address()), echoes(echo.address());
  v1::StepStreamRequest request = FirstStep(steps, rows);
  REPRISE_CHECK(steps.Ask(request).has_step());
  uint64_t sequence = 1;
  request.mutable_step()->Clear();
  request.mutable_step()->set_continue_all(true);
  std::vector<double> wall, device, added, work, echoed;
  uint64_t step_allocations = 0, echo_allocations = 0;
  const auto run = [&](bool counts) {
    request.mutable_step()->set_sequence(++sequence);
    const uint64_t before = testing::NumAllocations();
    const v1::StepStreamResponse& answer = steps.Ask(request);
    const uint64_t between = testing::NumAllocations();
    REPRISE_CHECK(answer.has_step());
    if (!counts) return echo.SetAnswer(answer);
    const v1::StepLedger ledger = answer.step().ledger();
    const uint64_t echo_before = testing::NumAllocations();
    echoes.Ask(request);
    echo_allocations += testing::NumAllocations() - echo_before;
    step_allocations += between - before;
    const auto us = [](uint64_t ns) { return static_cast<double>(ns) / 1000; };
    wall.push_back(steps.microseconds());
    device.push_back(us(ledger.device_ns()));
    added.push_back(wall.back() - device.back());
    work.push_back(us(ledger.wire_ns() + ledger.validate_ns() + ledger.ring_ns() +
                      ledger.launch_ns() + ledger.reply_ns()));
    echoed.push_back(echoes.microseconds());
  };
  for (int i = 0; i < kWarmUpSteps; ++i) run(/*counts=*/false);
  for (auto _ : state) run(/*counts=*/true);
  state.counters["wall_us"] = Median(wall);
  state.counters["device_us"] = Median(device);
  state.counters["added_us"] = Median(added);
  state.counters["echo_us"] = Median(echoed);
  state.counters["added_to_echo"] = Median(added) / Median(echoed);
  state.counters["host_work_us"] = Median(work);
  const auto steps_run = static_cast<double>(wall.size());
  state.counters["allocations"] = static_cast<double>(step_allocations) / steps_run;
  state.counters["echo_allocations"] = static_cast<double>(echo_allocations) / steps_run;
}

void Host(benchmark::State& state) { StreamedStep(state, runtime::DeviceKind::kHost); }
void Cuda(benchmark::State& state) {
  std::string why;
  if (runtime::CountCudaDevices(&why) == 0) return state.SkipWithError(why.c_str());
  StreamedStep(state, runtime::DeviceKind::kCuda);
}
BENCHMARK(Host)->Arg(1)->Arg(16)->Arg(256)->Iterations(300)->Unit(benchmark::kMicrosecond);
BENCHMARK(Cuda)->Arg(1)->Arg(16)->Arg(256)->Iterations(300)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace reprise::service
