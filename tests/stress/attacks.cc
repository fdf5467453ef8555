// SPDX-License-Identifier: Apache-2.0
#include "tests/stress/attacks.h"

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "reprise/v1/step_service.grpc.pb.h"
#include "tests/service/http2_client.h"

namespace reprise::stress {
namespace {

using service::CallHeaders;
using service::Frame;
using service::FrameType;
using service::Http2Client;
using service::Http2Opening;

constexpr char kStepStream[] = "/reprise.v1.StepService/StepStream";

void Pause(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

std::shared_ptr<grpc::Channel> NewChannel(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

// A session, or none where the server refused it.
class Session {
 public:
  explicit Session(const std::string& address)
      : stub_(v1::StepService::NewStub(NewChannel(address))),
        stream_(stub_->StepStream(&context_)) {
    v1::StepStreamRequest message;
    message.mutable_open()->set_client("stress");
    v1::StepStreamResponse response;
    if (!stream_->Write(message) || !stream_->Read(&response)) return;
    token_ = response.opened().session();
  }
  ~Session() {
    context_.TryCancel();
    v1::StepStreamResponse response;
    while (stream_->Read(&response)) {
    }
    stream_->Finish();
  }

  bool opened() const { return !token_.empty(); }
  v1::StepService::Stub& stub() { return *stub_; }
  v1::StepRequest NewStep(uint64_t sequence) const {
    v1::StepRequest step;
    step.set_session(token_);
    step.set_sequence(sequence);
    return step;
  }
  bool Send(const v1::StepRequest& step) {
    v1::StepStreamRequest message;
    *message.mutable_step() = step;
    return stream_->Write(message);
  }
  // True when the answer is a result.
  bool Receive(bool* ended) {
    v1::StepStreamResponse response;
    *ended = !stream_->Read(&response);
    return response.has_step();
  }
  std::vector<uint32_t> Allocate(uint32_t count) {
    grpc::ClientContext context;
    v1::AllocateRequest request;
    request.set_session(token_);
    request.set_count(count);
    v1::AllocateResponse response;
    stub_->Allocate(&context, request, &response);
    return {response.blocks().begin(), response.blocks().end()};
  }

 private:
  std::unique_ptr<v1::StepService::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::StepStreamRequest, v1::StepStreamResponse>> stream_;
  std::string token_;
};

// Adds a row and runs a prompt of `tokens` in it.
void FillStep(const std::vector<uint32_t>& blocks, uint32_t tokens, v1::StepRequest* step) {
  constexpr uint32_t kRow = 9;
  step->add_drop(kRow);
  v1::AddRow* add = step->add_add();
  add->set_row(kRow);
  add->mutable_blocks()->Add(blocks.begin(), blocks.end());
  v1::Chunk* chunk = step->add_chunks();
  chunk->set_row(kRow);
  chunk->set_sample(true);
  for (uint32_t i = 0; i < tokens; ++i) chunk->add_tokens(i);
}

// Connections that open and close, with nothing, garbage or half a preface in between.
std::string Churn(const std::string& address) {
  std::vector<std::unique_ptr<Http2Client>> held;
  for (uint64_t i = 0;; ++i) {
    auto client = std::make_unique<Http2Client>(address);
    if (i % 3 == 1) client->Send(Http2Opening().substr(0, 20));
    if (i % 3 == 2) client->Send("GET / HTTP/1.1\r\n\r\n");
    if (i % 5 == 0) held.push_back(std::move(client));
    if (held.size() > 600) {
      held.clear();
      Pause(10);
    }
  }
}

// One connection at a time, with as many of these as go through. `piece` may be of a few frames.
template <typename Piece>
std::string Flood(const std::string& address, const Piece& piece) {
  while (true) {
    Http2Client client(address);
    bool alive = client.Send(Http2Opening());
    for (uint32_t i = 0; alive && i < 400000; i += 64) {
      std::string bytes;
      for (uint32_t j = i; j < i + 64; ++j) bytes += piece(j);
      alive = client.Send(bytes) && client.Drain();
    }
    Pause(1);
  }
}

std::string Resets(const std::string& address) {
  return Flood(address, [](uint32_t i) {
    return CallHeaders(2 * i + 1, kStepStream) + service::Reset(2 * i + 1);
  });
}

std::string Pings(const std::string& address) {
  return Flood(address, [](uint32_t i) {
    return Frame(FrameType::kPing, i % 2 == 0 ? 0 : 1, 0, "12345678");
  });
}

std::string Settings(const std::string& address) {
  return Flood(address, [](uint32_t) { return Frame(FrameType::kSettings, 0, 0, ""); });
}

std::string SmallFrames(const std::string& address) {
  return Flood(address, [](uint32_t i) {
    return i % 2 == 0 ? Frame(FrameType::kWindowUpdate, 0, 0, std::string_view("\0\0\0\1", 4))
                      : Frame(static_cast<FrameType>(0x42), 0, 0, "");
  });
}

// Some resets on each of many connections, none of which sends too many itself.
std::string ManyConnections(const std::string& address) {
  std::string bytes = Http2Opening();
  for (uint32_t i = 0; i < 180; ++i) {
    bytes += CallHeaders(2 * i + 1, kStepStream) + service::Reset(2 * i + 1);
  }
  while (true) Http2Client(address).Send(bytes);
}

// Messages and headers that never come whole, on as many connections as there may be.
std::string Unfinished(const std::string& address) {
  std::vector<std::unique_ptr<Http2Client>> clients;
  const std::string data = Frame(FrameType::kData, 0, 1, std::string(16000, 'x'));
  while (true) {
    clients.push_back(std::make_unique<Http2Client>(address));
    Http2Client& client = *clients.back();
    bool alive = client.Send(Http2Opening());
    if (clients.size() % 2 == 0) {
      alive = alive &&
              client.Send(CallHeaders(1, "/reprise.v1.StepService/Step") +
                          Frame(FrameType::kData, 0, 1, std::string_view("\0\xff\xff\xff\xff", 5)));
      for (int i = 0; alive && i < 2000; ++i) alive = client.Send(data) && client.Drain();
    } else {
      const std::string part(16000, 'x');
      alive = alive && client.Send(Frame(FrameType::kHeaders, 0, 1, service::LongHeader() + part));
      for (int i = 0; alive && i < 2000; ++i) {
        alive = client.Send(Frame(static_cast<FrameType>(9), 0, 1, part)) && client.Drain();
      }
    }
    if (clients.size() > 20) clients.clear();
    Pause(1);
  }
}

// Messages of few bytes on the wire and many in memory.
std::string Amplify(const std::string& address) {
  constexpr size_t kMegabytes = 3;
  std::string adds;
  while (adds.size() < kMegabytes << 20) adds += std::string("\x2a\x00", 2);
  std::vector<std::unique_ptr<Session>> sessions;
  for (int i = 0; i < 8; ++i) sessions.push_back(std::make_unique<Session>(address));
  v1::StepRequest large;
  large.ParseFromString(adds);
  while (true) {
    for (const auto& session : sessions) {
      if (!session->opened()) continue;
      large.set_session(session->NewStep(1).session());
      large.set_sequence(1);
      bool ended = false;
      if (session->Send(large) && session->Receive(&ended)) return "an oversized step ran";
    }
  }
}

// Sessions that keep as many long steps waiting as they may.
std::string Greedy(const std::string& address) {
  constexpr int kWaiting = 4;
  while (true) {
    Session session(address);
    const std::vector<uint32_t> blocks = session.Allocate(8);
    int waiting = 0;
    bool ended = !session.opened() || blocks.empty();
    for (uint64_t sequence = 1; !ended; ++sequence) {
      v1::StepRequest step = session.NewStep(sequence);
      FillStep(blocks, 30, &step);
      if (sequence == 1) step.clear_drop();
      if (!session.Send(step)) break;
      if (++waiting == kWaiting) {
        // The first step may have been refused, for want of a free row: then so are those behind.
        if (!session.Receive(&ended)) break;
        --waiting;
      }
    }
    Pause(5);
  }
}

// Sessions that end in the middle of what they asked for, and unary steps whose answers are lost.
std::string Vanish(const std::string& address) {
  std::mt19937 random(7);
  while (true) {
    auto session = std::make_unique<Session>(address);
    const std::vector<uint32_t> blocks = session->Allocate(4);
    if (!session->opened() || blocks.empty()) {
      Pause(5);
      continue;
    }
    v1::StepRequest step = session->NewStep(1);
    FillStep(blocks, 8, &step);
    step.clear_drop();
    if (random() % 2 == 0) {
      session->Send(step);
    } else {
      grpc::ClientContext context;
      context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(1));
      v1::StepResponse response;
      session->stub().Step(&context, step, &response);
    }
    Pause(static_cast<int>(random() % 3));
  }
}

// Tokens of sessions that it has not opened.
std::string Hijack(const std::string& address) {
  const auto stub = v1::StepService::NewStub(NewChannel(address));
  std::mt19937_64 random(11);
  while (true) {
    std::string token(16, '\0');
    for (char& c : token) c = static_cast<char>(random());
    if (random() % 4 == 0) token = std::string(16, '\1');
    {
      grpc::ClientContext context;
      v1::AllocateRequest request;
      request.set_session(token);
      request.set_count(1);
      v1::AllocateResponse response;
      if (stub->Allocate(&context, request, &response).ok()) return "blocks of a guessed session";
    }
    grpc::ClientContext context;
    v1::StepRequest step;
    step.set_session(token);
    step.set_sequence(1);
    v1::StepResponse response;
    const grpc::Status status = stub->Step(&context, step, &response);
    if (status.ok()) return "a step of a guessed session";
    if (status.error_message().find(token) != std::string::npos) return "a token in an error";
  }
}

constexpr std::array kAttacks = {
    Attack{"churn", "connections that open and close", &Churn},
    Attack{"resets", "calls that are reset at once", &Resets},
    Attack{"pings", "PING frames", &Pings},
    Attack{"settings", "SETTINGS frames", &Settings},
    Attack{"small-frames", "window updates and unknown frames", &SmallFrames},
    Attack{"connections", "resets spread over many connections", &ManyConnections},
    Attack{"unfinished", "messages and headers that never end", &Unfinished},
    Attack{"amplify", "messages that grow when parsed", &Amplify},
    Attack{"greedy", "as many long steps as may wait", &Greedy},
    Attack{"vanish", "sessions that end in the middle of a step", &Vanish},
    Attack{"hijack", "guessed session tokens", &Hijack},
};

}  // namespace

std::span<const Attack> Attacks() { return kAttacks; }

}  // namespace reprise::stress
