// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/conversations.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <utility>

#include "engine/decode_engine.h"
#include "engine/diagnostics.h"
#include "engine/simulation/simulation.h"
#include "engine/step_draft.h"
#include "runtime/check.h"
#include "runtime/device.h"

namespace reprise::fuzz {
namespace {

using engine::StepDraft;

NumRequests num_requests;

// The bytes as numbers: mostly small ones, and some that no request should have.
class Numbers {
 public:
  explicit Numbers(std::string_view bytes) : bytes_(bytes) {}
  bool empty() const { return bytes_.empty(); }
  uint32_t Byte() {
    if (bytes_.empty()) return 0;
    const auto byte = static_cast<unsigned char>(bytes_[0]);
    bytes_.remove_prefix(1);
    return byte;
  }
  uint32_t Below(uint32_t bound) { return Byte() % bound; }
  uint32_t Any(uint32_t usual) {
    constexpr uint32_t kOdd[] = {0, 1u << 16, 1u << 31, ~0u};
    const uint32_t byte = Byte();
    return byte >= 252 ? kOdd[byte - 252] : byte % usual;
  }
  float Real() { return static_cast<float>(Byte()) / 16.0f - 2.0f; }

 private:
  std::string_view bytes_;
};

class Machine {
 public:
  Machine() {
    auto cost = engine::StepCost::Create({{1, 10, 1}, {1, 20, 1}, {4, 10, 1}, {4, 20, 1}});
    if (!cost.ok()) std::fprintf(stderr, "%s\n", cost.status().ToString().c_str());
    REPRISE_CHECK(cost.ok());
    simulation_ = std::make_unique<engine::Simulation>(engine::Simulation{
        .device_name = "fuzz", .cost = *std::move(cost), .wait = [](uint64_t, uint64_t) {}});
    auto device = runtime::Device::Create({.kind = runtime::DeviceKind::kHost, .host_threads = 1});
    REPRISE_CHECK(device.ok());
    device_ = *std::move(device);
    auto engine = engine::CreateEngineWithDiagnostics(*device_, {.preset = "llama-3.1-8b"},
                                                      {.block_size = 4,
                                                       .kv_cache_bytes = uint64_t{33} << 19,
                                                       .swap_bytes = uint64_t{4} << 20,
                                                       .max_rows = 4,
                                                       .max_context_length = 32,
                                                       .mixed_buckets = {16},
                                                       .max_steps_per_request = 4,
                                                       .max_logit_rows = 1,
                                                       .max_prompt_logprobs = 2,
                                                       .max_draft_tokens = 6},
                                                      {.simulation = simulation_.get()});
    if (!engine.ok()) std::fprintf(stderr, "%s\n", engine.status().ToString().c_str());
    REPRISE_CHECK(engine.ok());
    engine_ = *std::move(engine);
  }
  engine::DecodeEngine& engine() { return *engine_; }

 private:
  std::unique_ptr<engine::Simulation> simulation_;
  std::unique_ptr<runtime::Device> device_;
  std::unique_ptr<engine::DecodeEngine> engine_;
};

class Conversation {
 public:
  Conversation(engine::DecodeEngine& engine, std::string_view bytes)
      : engine_(engine), numbers_(bytes), before_(engine.pool()) {}

  bool Run() {
    for (Session& session : sessions_) session.info = engine_.OpenSession({.max_blocks = 20}, 0);
    while (!numbers_.empty()) {
      Session& session = sessions_[numbers_.Below(3)];
      const absl::Status status = Request(session);
      REPRISE_CHECK(engine_.health().ok());
      ++num_requests.made;
      num_requests.taken += status.ok();
      all_taken_ = all_taken_ && status.ok();
    }
    for (Session& session : sessions_) REPRISE_CHECK(engine_.CloseSession(session.info.id).ok());
    const engine::PoolInfo after = engine_.pool();
    REPRISE_CHECK(after.free_blocks == before_.free_blocks);
    REPRISE_CHECK(after.free_swap_blocks == before_.free_swap_blocks);
    REPRISE_CHECK(engine_.num_resident_rows() == 0);
    return all_taken_;
  }

 private:
  struct Session {
    engine::SessionInfo info;
    uint64_t sequence = 0;
    std::vector<uint32_t> swapped;
  };
  using Blocks = std::vector<uint32_t>;

  absl::Status Request(Session& session) {
    const engine::PoolInfo pool = engine_.pool();
    const uint32_t rows = engine_.num_resident_rows();
    const absl::Status status = Do(session);
    if (status.ok()) return status;
    REPRISE_CHECK(engine_.pool().free_blocks == pool.free_blocks);
    REPRISE_CHECK(engine_.pool().free_swap_blocks == pool.free_swap_blocks);
    REPRISE_CHECK(engine_.num_resident_rows() == rows);
    return status;
  }

  absl::Status Do(Session& session) {
    const engine::SessionId id = session.info.id;
    switch (numbers_.Below(8)) {
      case 0: {
        const auto blocks = engine_.AllocateBlocks(id, numbers_.Any(9));
        if (blocks.ok()) Own(id, *blocks);
        return blocks.status();
      }
      case 1: {
        const Blocks blocks = SomeBlocks();
        const absl::Status freed = engine_.FreeBlocks(id, blocks);
        if (freed.ok()) Disown(id, blocks);
        return freed;
      }
      case 2: {
        const Blocks blocks = SomeBlocks();
        const auto swapped = engine_.SwapOut(id, blocks);
        if (!swapped.ok()) return swapped.status();
        Disown(id, blocks);
        session.swapped = *swapped;
        return absl::OkStatus();
      }
      case 3: {
        const auto blocks = engine_.SwapIn(id, sessions_[numbers_.Below(3)].swapped);
        if (blocks.ok()) Own(id, *blocks);
        return blocks.status();
      }
      default:
        return Step(session);
    }
  }

  absl::Status Step(Session& session) {
    StepDraft draft;
    for (uint32_t left = numbers_.Below(3); left > 0; --left) AddPart(&draft);
    draft.continue_all = numbers_.Below(2) == 0;
    draft.num_steps = 1 + numbers_.Below(4);
    draft.isolate_bad_rows = numbers_.Below(2) == 0;
    if (numbers_.Below(8) == 0) draft.mode = engine::ExecutionMode::kEager;
    const uint64_t sequence = numbers_.Below(16) == 0 ? numbers_.Any(50) : session.sequence + 1;
    const engine::DraftView view(draft, session.info, sequence);
    engine::StepResult result;
    const absl::Status status = engine_.Step(view.request(), &result);
    // Nobody's number is taken by a request that was refused.
    const auto use = engine_.session_use(session.info.id);
    REPRISE_CHECK(use.ok());
    session.sequence += status.ok();
    REPRISE_CHECK(use->last_sequence == session.sequence);
    return status;
  }

  void AddPart(StepDraft* draft) {
    const uint32_t row = numbers_.Any(5);
    switch (numbers_.Below(8)) {
      case 0: {
        engine::SamplingParams sampling;
        sampling.temperature = numbers_.Real();
        sampling.top_p = numbers_.Real();
        sampling.top_k = numbers_.Any(100);
        sampling.max_new_tokens = numbers_.Any(20);
        draft->add.push_back({.row = row,
                              .blocks = SomeBlocks(),
                              .context_length = numbers_.Any(12),
                              .sampling = sampling});
        [[fallthrough]];
      }
      case 1: {
        Blocks tokens(numbers_.Below(9));
        for (uint32_t& token : tokens) token = numbers_.Any(200);
        draft->chunks.push_back({.row = row, .tokens = tokens, .sample = numbers_.Below(2) == 0});
        return;
      }
      case 2:
        draft->append.push_back({.row = row, .blocks = SomeBlocks()});
        return;
      case 3:
        draft->drop.push_back(row);
        return;
      case 4:
        draft->continue_rows.push_back(row);
        return;
      case 5:
        draft->copies.push_back({AnyBlock(), AnyBlock()});
        return;
      case 6: {
        Blocks tokens(numbers_.Below(5));
        for (uint32_t& token : tokens) token = numbers_.Any(200);
        draft->continue_rows.push_back(row);
        draft->drafts.push_back({.row = row, .tokens = tokens});
        return;
      }
      default:
        draft->prefixes.push_back({.group = numbers_.Any(3),
                                   .num_blocks = numbers_.Any(4),
                                   .rows = {row, numbers_.Any(5)}});
    }
  }

  uint32_t AnyBlock() { return numbers_.Any(34); }
  Blocks SomeBlocks() {
    Blocks blocks(numbers_.Below(5));
    uint32_t next = AnyBlock();
    for (uint32_t& block : blocks) block = numbers_.Below(4) == 0 ? AnyBlock() : next++;
    return blocks;
  }

  // ---- the model of who owns what ----

  void Own(engine::SessionId session, const Blocks& blocks) {
    for (const uint32_t block : blocks) REPRISE_CHECK(owner_.emplace(block, session).second);
  }
  void Disown(engine::SessionId session, const Blocks& blocks) {
    for (const uint32_t block : blocks) {
      const auto found = owner_.find(block);
      REPRISE_CHECK(found != owner_.end() && found->second == session);
      owner_.erase(found);
    }
  }

  engine::DecodeEngine& engine_;
  Numbers numbers_;
  const engine::PoolInfo before_;
  Session sessions_[3];
  std::map<uint32_t, engine::SessionId> owner_;
  bool all_taken_ = true;
};

}  // namespace

bool TakeConversation(std::string_view bytes) {
  static Machine machine;
  return Conversation(machine.engine(), bytes).Run();
}

std::vector<std::string> ConversationSeeds() {
  // Session 0 allocates 4 blocks.
  return {std::string("\0\0\4", 3)};
}

NumRequests RequestsOfConversations() { return num_requests; }

}  // namespace reprise::fuzz
