// SPDX-License-Identifier: Apache-2.0
// What the service's tests share: a tiny random model behind a real server on a unix socket, and a
// client that speaks only the public API. Nothing is faked: host device, DecodeEngine, gRPC over a
// socket.
#ifndef REPRISE_TESTS_SERVICE_SERVED_MODEL_H_
#define REPRISE_TESTS_SERVICE_SERVED_MODEL_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/decode_engine.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "reprise/v1/step_service.grpc.pb.h"
#include "runtime/device.h"
#include "service/kv/kv_exchange.h"
#include "service/server.h"
#include "tests/testing/tiny_model.h"

namespace reprise::service {

constexpr uint32_t kVocab = 97;
constexpr uint32_t kBlockSize = 4;
constexpr uint32_t kMaxRows = 6;
constexpr uint32_t kMaxContext = 64;
constexpr uint32_t kMaxStepTokens = 32;
constexpr uint32_t kMaxSteps = 8;  // per request
constexpr uint32_t kMaxDraftTokens = 6;

// The row that most tests run, and what it begins with.
constexpr uint32_t kRow = 17;
inline const std::vector<uint32_t> kPrompt = {5, 80, 33};
inline const std::vector<uint32_t> kLongPrompt = {5, 80, 33, 12, 96, 41, 7};

// A device with an engine over the tiny model, apart from any server.
struct TinyEngine {
  // `max_delay_us`: of the device's kernels, see DeviceOptions.
  explicit TinyEngine(const std::string& directory, int max_delay_us = 0,
                      uint64_t watchdog_timeout_ms = 30000, uint64_t swap_bytes = 0,
                      uint64_t export_bytes = 0);
  std::unique_ptr<runtime::Device> device;
  std::unique_ptr<engine::DecodeEngine> engine;
};

class ServedModel {
 public:
  struct Options {
    ServerOptions server;  // `listen` is a unix socket in a temporary directory unless set
    bool attach = true;    // false: the server stays in "loading"
    int max_delay_us = 0;
    uint64_t watchdog_timeout_ms = 30000;
    uint64_t swap_bytes = 0;
    uint64_t export_bytes = 0;
    std::string kv_exchange = {};  // its directory; "": none
    bool knows_model = true;       // the server is told its fingerprint
    uint64_t model_seed = 1;
    std::string architecture = "llama";
  };
  ServedModel() : ServedModel(Options()) {}
  explicit ServedModel(const Options& options);
  ~ServedModel();

  engine::DecodeEngine& engine() { return *tiny_->engine; }
  Server& server() { return *server_; }
  // Drops the server, leaves the engine.
  void StopServer() { server_.reset(); }
  const std::string& address() const { return server_->addresses()[0]; }
  // A connection of its own: nothing is shared with other channels.
  std::shared_ptr<grpc::Channel> NewChannel() const;

  // What the model says greedily, one row alone, on another engine and without gRPC.
  std::vector<uint32_t> Reference(std::span<const uint32_t> prompt, size_t count);

 private:
  testing::TemporaryDirectory directory_;
  std::unique_ptr<TinyEngine> tiny_;
  std::unique_ptr<TinyEngine> reference_;
  std::unique_ptr<KvExchange> exchange_;
  std::unique_ptr<Server> server_;
};

// Kernels take up to this much longer, in microseconds, so that steps overlap.
ServedModel::Options Slowed(int max_delay_us);

// One StepStream call. Steps are sent and read apart, so that tests can pipeline.
class StreamClient {
 public:
  using Metadata = std::vector<std::pair<std::string, std::string>>;
  // Opens a session, with that metadata; check `opened`. `token`: of a bearer, sent with every
  // call; "": none.
  explicit StreamClient(const std::shared_ptr<grpc::Channel>& channel, std::string token = "",
                        const Metadata& metadata = {});
  // The same, with a first message of the caller's.
  StreamClient(const std::shared_ptr<grpc::Channel>& channel, const v1::StepStreamRequest& first,
               std::string token = "", const Metadata& metadata = {});
  ~StreamClient();

  bool opened() const { return opened_; }
  // The answer to the first message.
  const v1::StepStreamResponse& first_answer() const { return first_answer_; }
  // The session's token.
  const std::string& session() const { return session_; }
  // The number that the next good step carries.
  uint64_t next_sequence() const { return next_sequence_; }

  // A step request with session and the next sequence number filled in.
  v1::StepRequest NewStep() const;
  bool Send(const v1::StepRequest& step);
  bool SendRaw(const v1::StepStreamRequest& message);
  // Reads one answer. False at the end of the stream.
  bool Receive(v1::StepStreamResponse* response);
  // Sends, reads, expects a result (a failure is recorded) and counts the sequence number.
  v1::StepResponse Step(const v1::StepRequest& step);
  // Sends, reads, expects a refusal.
  v1::StepError Refused(const v1::StepRequest& step);
  void CountStep() { ++next_sequence_; }
  void SetNextSequence(uint64_t sequence) { next_sequence_ = sequence; }

  // Blocks of this session; a failure is recorded.
  std::vector<uint32_t> Allocate(uint32_t count);
  // Adds a row with blocks for its whole life and runs its prompt; the first token.
  uint32_t StartRow(uint32_t row, std::span<const uint32_t> prompt, uint32_t max_context);

  // Says that nothing more comes.
  void HalfClose();
  // Half-closes, reads what is left, returns the call's status.
  grpc::Status Finish();
  // Vanishes: the call is reset.
  void Cancel() { context_.TryCancel(); }
  v1::StepService::Stub& stub() { return *stub_; }

 private:
  const std::string token_;
  std::unique_ptr<v1::StepService::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::StepStreamRequest, v1::StepStreamResponse>> stream_;
  v1::StepStreamResponse first_answer_;
  bool opened_ = false;
  bool half_closed_ = false;
  bool finished_ = false;
  std::string session_;
  uint64_t next_sequence_ = 1;
};

// First messages of streams.
v1::StepStreamRequest OpenWithGrace(uint64_t resume_grace_ms);
v1::StepStreamRequest ResumeOf(const std::string& session, uint64_t last_sequence);

// Sends the token of a bearer with the call; "": none.
void AddToken(const std::string& token, grpc::ClientContext* context);

// Runs `count` decode steps of all rows of the client, unpipelined; tokens of `row`.
std::vector<uint32_t> Continue(StreamClient& client, uint32_t row, size_t count);

// A unary call of StepService whose message is these bytes, whatever they are.
grpc::Status CallWithBytes(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                           const std::string& bytes, const std::string& token = "");

// What health says about `service`, or the error's code as a negative number.
int CheckHealth(const std::shared_ptr<grpc::Channel>& channel, const std::string& service = "");

// Waits up to a minute for `condition`.
template <typename Condition>
bool Eventually(const Condition& condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace reprise::service

#endif  // REPRISE_TESTS_SERVICE_SERVED_MODEL_H_
