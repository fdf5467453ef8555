// SPDX-License-Identifier: Apache-2.0
#include "tests/stress/ownership.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/decode_engine.h"
#include "grpcpp/client_context.h"
#include "grpcpp/create_channel.h"
#include "reprise/v1/step_service.grpc.pb.h"
#include "runtime/check.h"
#include "runtime/device.h"
#include "service/kv/kv_exchange.h"
#include "service/kv/model_fingerprint.h"
#include "service/server.h"
#include "tests/service/served_model.h"
#include "tests/stress/ownership_client.h"
#include "tests/stress/ownership_model.h"
#include "tests/stress/process.h"
#include "tests/testing/tiny_model.h"

namespace reprise::stress {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr uint32_t kKeepaliveMs = 3000;
// Longer than the server waits for a sign of life, and shorter by far.
constexpr int kLongFreezeMs = 2 * kKeepaliveMs + 2000, kShortFreezeMs = 400;
constexpr size_t kMaxFrozen = 6;
constexpr char kAdminToken[] = "token-of-admin";

template <typename T>
T Value(absl::StatusOr<T> value) {
  if (!value.ok()) ADD_FAILURE() << value.status();
  REPRISE_CHECK(value.ok());
  return *std::move(value);
}

// Too few blocks, rows, swap and export space for everybody at once, so that all of it changes
// hands quickly.
std::unique_ptr<engine::DecodeEngine> NewEngine(runtime::Device& device,
                                                const std::string& directory) {
  engine::DecodeEngineOptions options;
  options.block_size = kOwnershipBlockSize;
  options.kv_cache_bytes = 1 << 20;
  options.swap_bytes = 96 << 10;
  options.export_bytes = 64 << 10;
  options.max_rows = 72;
  options.max_context_length = 64;
  options.mixed_buckets = {16, 128};
  options.max_steps_per_request = 4;
  return Value(engine::DecodeEngine::Create(device, {.directory = directory}, options));
}

service::Identity IdentityOf(const std::string& name, service::Role role,
                             const std::string& token) {
  service::Identity identity{.name = name};
  identity.roles.Add(role);
  identity.tokens = {service::TokenDigest::Of(token)};
  return identity;
}

class OwnershipServer {
 public:
  OwnershipServer() {
    Value(testing::WriteTinyModel({}, model_.path()));
    EXPECT_EQ(chmod(exchanged_.path().c_str(), 0700), 0);
    device_ = Value(runtime::Device::Create({.kind = runtime::DeviceKind::kHost}));
    engine_ = NewEngine(*device_, model_.path());
    service::ServerOptions options;
    options.listen = {absl::StrCat("unix:", model_.path(), "/reprise.sock")};
    for (uint32_t i = 0; i < kNumIdentities; ++i) {
      options.identities.push_back(
          IdentityOf(IdentityName(i), service::Role::kStep, IdentityToken(i)));
    }
    options.identities.push_back(IdentityOf("admin", service::Role::kAdminister, kAdminToken));
    options.max_sessions = 1000;  // those of clients that were killed stay for their grace time
    options.keepalive_ms = kKeepaliveMs;
    options.model = Value(service::ModelFingerprint({.directory = model_.path()}));
    server_ = Value(service::Server::Start(options));
    exchange_ = Value(service::KvExchange::Create(*engine_, exchanged_.path(), options.model));
    server_->AttachEngine(*engine_, exchange_.get());
    stub_ = v1::StepService::NewStub(
        grpc::CreateChannel(server_->addresses()[0], grpc::InsecureChannelCredentials()));
  }

  const std::string& model_directory() const { return model_.path(); }
  const std::string& address() const { return server_->addresses()[0]; }
  engine::DecodeEngine& engine() { return *engine_; }
  runtime::Device& device() { return *device_; }
  service::Server& server() { return *server_; }

  std::vector<v1::SessionStatus> Sessions() {
    grpc::ClientContext context;
    service::AddToken(kAdminToken, &context);
    v1::ListSessionsRequest request;
    v1::ListSessionsResponse response;
    request.set_max_sessions(1000);
    EXPECT_TRUE(stub_->ListSessions(&context, request, &response).ok());
    return {response.sessions().begin(), response.sessions().end()};
  }

 private:
  testing::TemporaryDirectory model_, exchanged_;
  std::unique_ptr<runtime::Device> device_;
  std::unique_ptr<engine::DecodeEngine> engine_;
  std::unique_ptr<service::KvExchange> exchange_;
  std::unique_ptr<service::Server> server_;
  std::unique_ptr<v1::StepService::Stub> stub_;
};

// What rows say alone on an engine, without a server, neighbours and faults.
void WriteTexts(runtime::Device& device, const std::string& model, OwnershipModel& ownership) {
  const auto engine = NewEngine(device, model);
  std::mt19937 random(3);
  for (uint32_t i = 0; i < kNumTexts; ++i) {
    Text& text = ownership.texts()[i];
    text.prompt_length = 10 + i % 6;
    for (uint32_t& token : text.prompt) token = static_cast<uint32_t>(random() % 97);
    const engine::SessionInfo session = engine->OpenSession();
    const auto blocks = Value(engine->AllocateBlocks(session.id, 12));
    engine::RowAdd add = {.row = 1, .sampling = {}, .context_length = 0, .blocks = blocks};
    add.sampling.temperature = kOwnershipTemperature;
    add.sampling.seed = i;
    const engine::RowChunk chunk = {
        .row = 1, .sample = true, .tokens = std::span(text.prompt).first(text.prompt_length)};
    for (uint32_t t = 0; t < kTextTokens; ++t) {
      engine::StepRequest step;
      step.session = session.id;
      step.epoch = session.epoch;
      step.sequence = t + 1;
      if (t == 0) {
        step.add = {&add, 1};
        step.chunks = {&chunk, 1};
      }
      step.continue_all = t > 0;
      engine::StepResult result;
      const absl::Status status = engine->Step(step, &result);
      REPRISE_CHECK(status.ok() && result.rows.size() == 1);
      text.tokens[t] = result.rows[0].token;
      text.logprob_bits[t] = std::bit_cast<uint32_t>(result.rows[0].logprob);
    }
    EXPECT_TRUE(engine->CloseSession(session.id).ok());
  }
}

class OwnershipRun {
 public:
  explicit OwnershipRun(const OwnershipOptions& options)
      : options_(options),
        random_(options.seed),
        before_(server_.engine().pool()),
        file_(shared_.path() + "/model"),
        mapped_(OwnershipModel::Make(file_, options.clients)),
        model_(*mapped_),
        clients_(options.clients),
        thaw_at_(options.clients) {
    REPRISE_CHECK(options.clients <= kMaxSlots && before_.num_blocks <= kMaxModelBlocks);
    WriteTexts(server_.device(), server_.model_directory(), model_);
  }

  void Run() {
    for (uint32_t slot = 0; slot < options_.clients; ++slot) Spawn(slot);
    const auto end = steady_clock::now() + std::chrono::seconds(options_.seconds);
    auto next_audit = steady_clock::now() + std::chrono::seconds(options_.audit_seconds);
    while (steady_clock::now() < end && model_.Failure().empty()) {
      std::this_thread::sleep_for(milliseconds(20 + random_() % 160));
      ThawSome(/*all=*/false);
      Harm(static_cast<uint32_t>(random_() % options_.clients));
      if (steady_clock::now() < next_audit) continue;
      Audit();
      next_audit = steady_clock::now() + std::chrono::seconds(options_.audit_seconds);
    }
    if (model_.Failure().empty()) Audit();
    End();
    Print();
  }

 private:
  using Holding = OwnershipModel::Holding;

  void Spawn(uint32_t slot) {
    clients_[slot] = std::make_unique<Process>(std::vector<std::string>{
        "--ownership-client", absl::StrCat(slot), "--address", server_.address(), "--model-file",
        file_, "--seed", absl::StrCat(options_.seed + random_() % 1000000)});
  }

  bool IsFrozen(uint32_t slot) const { return thaw_at_[slot] != steady_clock::time_point(); }

  void Harm(uint32_t slot) {
    if (IsFrozen(slot) || clients_[slot]->HasEnded()) return;
    const auto frozen = std::ranges::count_if(
        thaw_at_, [](const auto& at) { return at != steady_clock::time_point(); });
    if (random_() % 2 == 0) {
      model_.Harm(slot, [&] { EXPECT_TRUE(clients_[slot]->Kill()); });
      model_.End(slot);
      model_.Add(Count::kKills);
      Spawn(slot);
    } else if (static_cast<size_t>(frozen) < kMaxFrozen) {
      model_.Harm(slot, [&] { clients_[slot]->Freeze(); });
      model_.Add(Count::kFreezes);
      const int time = random_() % 2 == 0 ? kLongFreezeMs : kShortFreezeMs;
      thaw_at_[slot] = steady_clock::now() + milliseconds(time);
    }
  }

  void ThawSome(bool all) {
    for (uint32_t slot = 0; slot < options_.clients; ++slot) {
      if (!IsFrozen(slot) || (!all && steady_clock::now() < thaw_at_[slot])) continue;
      // A keepalive that ends at this moment would end a session that has just said it is there.
      std::this_thread::sleep_until(all ? thaw_at_[slot] : steady_clock::now());
      thaw_at_[slot] = {};
      clients_[slot]->Thaw();
    }
  }

  // ---- audits ----

  // Everything rests, and the server has as much as the model.
  void Audit() {
    ThawSome(/*all=*/true);
    model_.Pause(true);
    for (uint32_t slot = 0; slot < options_.clients; ++slot) {
      const bool rests =
          Within(60, [&] { return model_.IsParked(slot) || !model_.Failure().empty(); });
      if (!rests) model_.Fail(absl::StrCat("client ", slot, " does not come to rest"));
    }
    if (model_.Failure().empty()) {
      std::string difference;
      if (!Within(20, [&] { return (difference = Difference()).empty(); })) model_.Fail(difference);
      model_.Add(Count::kAudits);
    }
    model_.Pause(false);
  }

  template <typename Condition>
  static bool Within(int seconds, const Condition& condition) {
    const auto deadline = steady_clock::now() + std::chrono::seconds(seconds);
    while (!condition()) {
      if (steady_clock::now() > deadline) return false;
      std::this_thread::sleep_for(milliseconds(20));
    }
    return true;
  }

  // Between the server and the model; "": none. Sessions that were lost may take their grace time.
  std::string Difference() {
    std::map<std::string, Holding> expected;
    uint32_t swapped = 0, exported = 0, rows = 0;
    for (uint32_t slot = 0; slot < options_.clients; ++slot) {
      const Holding holding = model_.HoldingOf(slot);
      if (!holding.has_session) continue;
      expected[absl::StrCat(slot, ".", holding.life)] = holding;
      swapped += holding.swapped;
      exported += holding.exported;
      rows += holding.rows;
    }
    for (const v1::SessionStatus& session : server_.Sessions()) {
      const auto found = expected.find(session.client());
      if (found == expected.end())
        return absl::StrCat("session ", session.client(), " is open, and nobody's");
      const std::string difference = DifferenceOf(session, found->second);
      if (!difference.empty()) return difference;
      expected.erase(found);
    }
    if (!expected.empty()) return "session " + expected.begin()->first + " is not open";
    const engine::PoolInfo pool = server_.engine().pool();
    return absl::StrCat(
        Unequal("blocks in use", before_.free_blocks - pool.free_blocks, model_.NumBlocks()),
        Unequal("blocks in swap space", before_.free_swap_blocks - pool.free_swap_blocks, swapped),
        Unequal("exported blocks", before_.free_export_blocks - pool.free_export_blocks, exported),
        Unequal("rows", server_.engine().num_resident_rows(), rows));
  }

  static std::string Unequal(std::string_view what, uint64_t got, uint64_t expected) {
    if (got == expected) return "";
    return absl::StrCat(std::string(what), ": the server has ", got, ", its clients ", expected,
                        ". ");
  }

  static std::string DifferenceOf(const v1::SessionStatus& session, const Holding& holding) {
    const std::string of = absl::StrCat(" of session ", session.client());
    if (session.identity() != IdentityName(holding.identity)) return "the identity" + of;
    return absl::StrCat(Unequal("blocks" + of, session.blocks(), holding.blocks),
                        Unequal("shared blocks" + of, session.shared_blocks(), holding.shared),
                        Unequal("swapped blocks" + of, session.swapped_blocks(), holding.swapped),
                        Unequal("rows" + of, session.rows(), holding.rows));
  }

  // ---- the end ----

  void End() {
    model_.Stop();
    ThawSome(/*all=*/true);
    for (const auto& client : clients_) EXPECT_EQ(client->Wait(), 0);
    EXPECT_EQ(model_.Failure(), "");
    const auto all_free = [&] {
      const engine::PoolInfo pool = server_.engine().pool();
      return pool.free_blocks == before_.free_blocks &&
             pool.free_swap_blocks == before_.free_swap_blocks &&
             pool.free_export_blocks == before_.free_export_blocks &&
             server_.engine().num_resident_rows() == 0 && server_.Sessions().empty();
    };
    EXPECT_TRUE(Within(20, all_free))
        << "left behind: " << before_.free_blocks - server_.engine().pool().free_blocks
        << " blocks, " << server_.Sessions().size() << " sessions";
    for (const Count count :
         {Count::kTokens, Count::kForks, Count::kSwaps, Count::kShares, Count::kExports,
          Count::kResumes, Count::kThefts, Count::kKills, Count::kFreezes, Count::kAudits}) {
      EXPECT_GT(model_.Get(count), 0u) << "number " << static_cast<int>(count);
    }
    EXPECT_TRUE(server_.server().Drain());
  }

  void Print() {
    const auto get = [&](Count count) {
      return static_cast<unsigned long long>(model_.Get(count));
    };
    std::printf(
        "{\"clients\": %u, \"seconds\": %d, \"pool_blocks\": %u, \"sessions\": %llu, "
        "\"steps\": %llu, \"tokens_compared\": %llu, \"allocations\": %llu, "
        "\"blocks_allocated\": %llu, \"forks\": %llu, \"swaps\": %llu, \"shares\": %llu, "
        "\"adoptions\": %llu, \"exports\": %llu, \"imports\": %llu, \"cancelled_streams\": %llu, "
        "\"cancelled_calls\": %llu, \"resumes\": %llu, \"answers_kept\": %llu, "
        "\"slow_reads\": %llu, \"thefts_refused\": %llu, \"no_room\": %llu, \"kills\": %llu, "
        "\"freezes\": %llu, \"sessions_lost\": %llu, \"audits\": %llu}\n",
        options_.clients, options_.seconds, before_.free_blocks, get(Count::kSessions),
        get(Count::kSteps), get(Count::kTokens), get(Count::kAllocations), get(Count::kBlocks),
        get(Count::kForks), get(Count::kSwaps), get(Count::kShares), get(Count::kAdoptions),
        get(Count::kExports), get(Count::kImports), get(Count::kCancelledStreams),
        get(Count::kCancelledCalls), get(Count::kResumes), get(Count::kAnswersKept),
        get(Count::kSlowReads), get(Count::kThefts), get(Count::kNoRoom), get(Count::kKills),
        get(Count::kFreezes), get(Count::kLost), get(Count::kAudits));
  }

  const OwnershipOptions options_;
  std::mt19937_64 random_;
  OwnershipServer server_;
  const engine::PoolInfo before_;
  testing::TemporaryDirectory shared_;
  const std::string file_;
  const std::unique_ptr<OwnershipModel> mapped_;
  OwnershipModel& model_;
  std::vector<std::unique_ptr<Process>> clients_;
  std::vector<steady_clock::time_point> thaw_at_;  // of clients that are frozen
};

}  // namespace

void RunOwnership(const OwnershipOptions& options) { OwnershipRun(options).Run(); }

}  // namespace reprise::stress
