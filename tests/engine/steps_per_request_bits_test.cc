// SPDX-License-Identifier: Apache-2.0
// Several steps in one request have the bits of as many requests of one step, whatever rows do on
// the way: sample with every feature, stop, use up their budget, run out of blocks, go on with
// more. Pipelined, eager and poisoned too.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "engine/decode_engine.h"
#include "tests/engine/sampled_rows.h"
#include "tests/testing/engine_driver.h"
#include "tests/testing/engine_test.h"
#include "tests/testing/number.h"

namespace reprise::engine {
namespace {

using ::reprise::testing::EngineDriver;
using ::reprise::testing::MakeTestEngine;
using ::reprise::testing::Random;
using ::reprise::testing::RandomPrompt;
using ::reprise::testing::StepDraft;
using ::reprise::testing::TestEngine;
using ::reprise::testing::Token;

constexpr uint32_t kMaxSteps = 8;
constexpr uint32_t kMaxContext = 60;

class StepsPerRequestBitsTest : public SampledRowsTest {
 protected:
  testing::TestEngineOptions SeveralSteps() const {
    auto options = Options();
    options.engine.max_steps_per_request = kMaxSteps;
    options.engine.max_context_length = kMaxContext;
    return options;
  }
};
REPRISE_ENGINE_ON_EVERY_DEVICE(StepsPerRequestBitsTest);

// ---- random requests ----

SamplingParams RandomSampling(const SamplingLists& lists, Random& random) {
  SamplingParams s{.temperature = 0.5f * static_cast<float>(random.Below(4)),
                   .seed = random.Bits()};
  if (random.Below(4) == 0) s.top_k = 1 + random.Below(20);
  if (random.Below(4) == 0) s.top_p = 0.8f;
  if (random.Below(4) == 0) s.min_p = 0.02f;
  if (random.Below(3) == 0) s.repetition_penalty = 1.3f;
  if (random.Below(3) == 0) s.presence_penalty = 0.5f;
  if (random.Below(4) == 0) s.frequency_penalty = 0.25f;
  if (random.Below(4) == 0) s.logit_bias = lists.bias;
  if (random.Below(4) == 0) s.allowed_tokens = lists.mask;
  if (random.Below(3) == 0) s.num_logprobs = 1 + random.Below(5);
  if (random.Below(2) == 0) s.max_new_tokens = 4 + random.Below(20);
  if (random.Below(2) == 0) {
    s.stop_tokens = lists.stop;
    s.stop_at_eos = random.Below(2) == 0;
    s.min_tokens = std::min(random.Below(6), s.max_new_tokens == 0 ? 5 : s.max_new_tokens);
  }
  return s;
}

// One request. Blocks are counts: an engine says which.
struct Request {
  struct Grow {
    uint32_t row = 0, num_blocks = 0;
  };
  StepDraft draft;  // without blocks
  std::vector<Grow> add, append;
};

// Requests that are valid whenever their predecessors' results come: what they name has room for a
// token by what the rows before it may have run at most.
class RandomRequests {
 public:
  RandomRequests(const SamplingLists& lists, uint32_t block_size, uint64_t seed)
      : lists_(lists), block_size_(block_size), random_(seed) {}

  Request Next() {
    Request request;
    request.draft.num_steps = 1 + random_.Below(kMaxSteps);
    num_steps_ = request.draft.num_steps;
    prompt_logprobs_left_ = 20;
    for (auto row = rows_.begin(); row != rows_.end();) {
      const bool full = row->second.length >= kMaxContext;
      if (!full && random_.Below(14) != 0) {
        ++row;
        continue;
      }
      request.draft.drop.push_back(row->first);
      row = rows_.erase(row);
    }
    const size_t running = rows_.size();
    if (running < 8 && random_.Below(3) != 0) AddRow(&request);
    for (auto& [id, row] : rows_) {
      if (row.is_new || random_.Below(8) == 0) continue;
      RunRow(id, row, &request);
    }
    for (auto& [id, row] : rows_) row.is_new = false;
    return request;
  }

 private:
  struct Row {
    std::vector<uint32_t> prompt;
    uint32_t length = 0;  // at most
    uint32_t num_blocks = 0;
    bool is_new = false;
  };

  uint32_t Room(const Row& row) const {
    return std::min(row.num_blocks * block_size_, kMaxContext);
  }
  // Blocks for `tokens` more tokens, at least.
  uint32_t BlocksFor(const Row& row, uint32_t tokens) const {
    const uint32_t wanted =
        (std::min(row.length + tokens, kMaxContext) + block_size_ - 1) / block_size_;
    return wanted - std::min(wanted, row.num_blocks);
  }

  void AddRow(Request* request) {
    const uint32_t id = next_id_++;
    Row& row = rows_[id];
    row.prompt = RandomPrompt(random_.Bits(), 1 + random_.Below(12));
    row.is_new = true;
    row.num_blocks = BlocksFor(row, static_cast<uint32_t>(row.prompt.size()) + random_.Below(6));
    request->draft.add.push_back({.row = id, .sampling = RandomSampling(lists_, random_)});
    request->add.push_back({id, row.num_blocks});
    RunChunk(id, row, request);
  }

  void RunChunk(uint32_t id, Row& row, Request* request) {
    const auto left = static_cast<uint32_t>(row.prompt.size()) - row.length;
    const uint32_t count = random_.Below(2) == 0 ? left : 1 + random_.Below(left);
    const auto begin = row.prompt.begin() + row.length;
    StepDraft::Chunk chunk{.row = id, .tokens = {begin, begin + count}, .sample = count == left};
    if (count <= prompt_logprobs_left_ && random_.Below(3) == 0) {
      chunk.prompt_logprobs = true;
      prompt_logprobs_left_ -= count;
    }
    request->draft.chunks.push_back(std::move(chunk));
    row.length += count;
    if (count == left) Advance(row, num_steps_ - 1);
  }

  void RunRow(uint32_t id, Row& row, Request* request) {
    const bool in_prompt = row.length < row.prompt.size();
    // Too few for all steps, now and then.
    const uint32_t wanted = in_prompt ? 0 : random_.Below(num_steps_ + 3);
    if (const uint32_t blocks = BlocksFor(row, wanted); blocks != 0) {
      request->append.push_back({id, blocks});
      row.num_blocks += blocks;
    }
    if (in_prompt) return RunChunk(id, row, request);
    if (row.length >= Room(row)) return;  // it waits for blocks
    request->draft.continue_rows.push_back(id);
    Advance(row, num_steps_);
  }

  void Advance(Row& row, uint32_t tokens) { row.length = std::min(row.length + tokens, Room(row)); }

  const SamplingLists& lists_;
  const uint32_t block_size_;
  Random random_;
  std::map<uint32_t, Row> rows_;
  uint32_t next_id_ = 1, num_steps_ = 1;
  uint32_t prompt_logprobs_left_ = 0;
};

std::vector<Request> MakeRequests(const SamplingLists& lists, uint32_t block_size, uint64_t seed) {
  RandomRequests random(lists, block_size, seed);
  std::vector<Request> requests;
  while (requests.size() < 60) {
    Request next = random.Next();
    const bool empty = next.draft.drop.empty() && next.draft.chunks.empty() &&
                       next.append.empty() && next.draft.continue_rows.empty();
    if (!empty) requests.push_back(std::move(next));
  }
  return requests;
}

// ---- playing them ----

// A row in a step, with the likeliest tokens beside it.
struct Seen {
  uint32_t row = 0;
  RowStatus status = RowStatus::kRan;
  FinishReason finish = FinishReason::kNone;
  Token token;  // of a row that did not sample: 0
  uint32_t rank = 0;
  std::vector<std::pair<uint32_t, uint32_t>> top = {};  // id, bits of the log-probability
  bool operator==(const Seen&) const = default;
};

void PrintTo(const Seen& seen, std::ostream* os) {
  *os << "row " << seen.row << " status " << static_cast<int>(seen.status) << " finish "
      << static_cast<int>(seen.finish) << " rank " << seen.rank << " token ";
  PrintTo(seen.token, os);
}

Seen See(const StepResult& result, const RowOutcome& row) {
  Seen seen{.row = row.row,
            .status = row.status,
            .finish = row.finish,
            .token = testing::TokenOf(row),
            .rank = row.rank};
  for (uint32_t i = row.top.begin; i < row.top.begin + row.top.count; ++i)
    seen.top.emplace_back(result.top_logprobs[i].token,
                          std::bit_cast<uint32_t>(result.top_logprobs[i].logprob));
  return seen;
}

// A given token, as if it were a sampled one of no id at the end of a context.
Seen See(const StepResult& result, const PromptLogprob& given) {
  RowOutcome row{.row = given.row,
                 .logprob = given.logprob,
                 .context_length = given.position,
                 .rank = given.rank};
  row.top = given.top;
  return See(result, row);
}

// By step.
using Steps = std::vector<std::vector<Seen>>;

// What came of a request.
struct Played {
  Steps steps;
  std::vector<Seen> prompt = {};  // given tokens
  bool operator==(const Played&) const = default;
};

void PrintTo(const Played& played, std::ostream* os) {
  *os << ::testing::PrintToString(played.steps) << ", prompt "
      << ::testing::PrintToString(played.prompt);
}

std::vector<Seen> SeePrompt(const StepResult& result) {
  std::vector<Seen> seen;
  for (const PromptLogprob& given : result.prompt_logprobs) seen.push_back(See(result, given));
  return seen;
}

Steps SeeSteps(const StepResult& result) {
  Steps steps;
  auto row = result.rows.begin();
  for (const SingleStep& step : result.steps) {
    steps.emplace_back();
    for (uint32_t i = 0; i < step.num_rows; ++i) steps.back().push_back(See(result, *row++));
  }
  EXPECT_EQ(row, result.rows.end());
  return steps;
}

Played SeeAll(const StepResult& result) {
  return {.steps = SeeSteps(result), .prompt = SeePrompt(result)};
}

// Each row's outcomes in order, without those in which it did nothing: how many these are depends
// on what was known of the row when the request came.
std::map<uint32_t, std::vector<Seen>> ByRow(const std::vector<Played>& played) {
  std::map<uint32_t, std::vector<Seen>> rows;
  for (const Played& request : played) {
    for (const Seen& given : request.prompt) rows[given.row].push_back(given);
    for (const std::vector<Seen>& step : request.steps)
      for (const Seen& seen : step)
        if (seen.status == RowStatus::kRan) rows[seen.row].push_back(seen);
  }
  return rows;
}

class Player {
 public:
  explicit Player(DecodeEngine& engine) : driver_(engine) {}

  // The request with blocks of this engine.
  StepDraft Prepare(const Request& request, ExecutionMode mode = ExecutionMode::kReplay) {
    StepDraft draft = request.draft;
    draft.mode = mode;
    for (size_t i = 0; i < request.add.size(); ++i) {
      draft.add[i].blocks = Take(request.add[i].row, request.add[i].num_blocks);
      budgets_[request.add[i].row] = draft.add[i].sampling.max_new_tokens;
    }
    for (const Request::Grow& grow : request.append)
      draft.append.push_back({.row = grow.row, .blocks = Take(grow.row, grow.num_blocks)});
    return draft;
  }
  void FreeDropped(const Request& request) {
    for (const uint32_t row : request.draft.drop) {
      driver_.Free(blocks_[row]);
      blocks_.erase(row);
    }
  }
  uint32_t RoomOf(uint32_t row) {
    const auto tokens =
        static_cast<uint32_t>(blocks_[row].size()) * driver_.engine().pool().block_size;
    return std::min(tokens, kMaxContext);
  }
  EngineDriver& driver() { return driver_; }

  // All steps of the request at once.
  Played PlayTogether(const Request& request) {
    Played played = SeeAll(driver_.Step(Prepare(request)));
    FreeDropped(request);
    return played;
  }
  // One step per request, and what the contract says of rows that pause.
  Played PlayOneByOne(const Request& request) {
    StepDraft draft = Prepare(request);
    const uint32_t num_steps = std::exchange(draft.num_steps, 1);
    Played played = SeeAll(driver_.Step(draft));
    Steps& steps = played.steps;
    FreeDropped(request);
    std::vector<uint32_t> going_on;
    for (const StepDraft::Chunk& chunk : draft.chunks)
      if (chunk.sample) going_on.push_back(chunk.row);
    going_on.insert(going_on.end(), draft.continue_rows.begin(), draft.continue_rows.end());
    // A row that was known to have stopped is not repeated.
    std::map<uint32_t, Seen> last;
    for (const Seen& seen : steps[0]) last[seen.row] = seen;
    std::erase_if(going_on, [&](uint32_t row) { return last[row].status == RowStatus::kStopped; });
    uint32_t num_repeats = 0;
    for (const uint32_t row : going_on)
      num_repeats = std::max(num_repeats, NumRepeats(row, last[row].token.context_length));
    std::map<uint32_t, bool> stopped;
    for (uint32_t i = 1; i < std::min(num_steps, 1 + num_repeats); ++i) {
      std::vector<uint32_t> continues;
      for (const uint32_t row : going_on) {
        stopped[row] |= last[row].finish != FinishReason::kNone;
        if (stopped[row] || last[row].token.context_length < RoomOf(row)) continues.push_back(row);
      }
      std::map<uint32_t, Seen> ran;
      if (!continues.empty()) {
        const Steps one = SeeSteps(driver_.Step({.continue_rows = continues}));
        for (const Seen& seen : one[0]) ran[seen.row] = seen;
      }
      steps.emplace_back();
      for (const uint32_t row : going_on) {
        const Seen paused{.row = row,
                          .status = RowStatus::kPaused,
                          .token = {.context_length = last[row].token.context_length}};
        steps.back().push_back(ran.contains(row) ? ran[row] : paused);
        last[row] = steps.back().back();
      }
    }
    return played;
  }
  // Up to two requests in flight.
  std::vector<Played> PlayPipelined(const std::vector<Request>& requests, ExecutionMode mode) {
    std::vector<Played> played;
    std::vector<StepTicket> in_flight;
    for (const Request& request : requests) {
      if (in_flight.size() == 2) {
        played.push_back(SeeAll(driver_.Wait(in_flight.front())));
        in_flight.erase(in_flight.begin());
      }
      in_flight.push_back(driver_.Submit(Prepare(request, mode)));
      FreeDropped(request);
    }
    for (const StepTicket ticket : in_flight) played.push_back(SeeAll(driver_.Wait(ticket)));
    return played;
  }

 private:
  // Tokens that a row may bring beyond `context_length`, as far as is known when its first step is.
  uint32_t NumRepeats(uint32_t row, uint32_t context_length) {
    const uint32_t room = RoomOf(row) - context_length;
    if (budgets_[row] == 0) return room;
    const auto sampled = static_cast<uint32_t>(driver_.tokens(row).size());
    return std::min(room, budgets_[row] - std::min(budgets_[row], sampled));
  }
  std::vector<uint32_t> Take(uint32_t row, uint32_t count) {
    if (count == 0) return {};
    const std::vector<uint32_t> taken = driver_.Allocate(count);
    blocks_[row].insert(blocks_[row].end(), taken.begin(), taken.end());
    return taken;
  }

  EngineDriver driver_;
  std::map<uint32_t, std::vector<uint32_t>> blocks_;
  std::map<uint32_t, uint32_t> budgets_;  // max_new_tokens
};

uint32_t LastRow(const std::vector<Request>& requests) {
  uint32_t last = 0;
  for (const Request& request : requests)
    for (const Request::Grow& add : request.add) last = std::max(last, add.row);
  return last;
}

TEST_P(StepsPerRequestBitsTest, GiveTheBitsOfAsManyRequestsOfOneStep) {
  const SamplingLists lists = MakeSamplingLists();
  uint32_t paused = 0, stopped = 0, finished = 0, resumed = 0;
  size_t given = 0;
  for (const uint32_t block_size : {1u, 4u, 7u}) {
    auto options = SeveralSteps();
    options.engine.block_size = block_size;
    const std::vector<Request> requests = MakeRequests(lists, block_size, 40 + block_size);
    const TestEngine one = MakeTestEngine(options), several = MakeTestEngine(options);
    Player expected(*one.engine), got(*several.engine);
    std::map<uint32_t, RowStatus> last;
    for (size_t i = 0; i < requests.size(); ++i) {
      SCOPED_TRACE("block size " + std::to_string(block_size) + ", request " + std::to_string(i));
      const Played want = expected.PlayOneByOne(requests[i]);
      ASSERT_EQ(got.PlayTogether(requests[i]), want);
      given += want.prompt.size();
      for (const std::vector<Seen>& step : want.steps) {
        for (const Seen& seen : step) {
          paused += seen.status == RowStatus::kPaused;
          stopped += seen.status == RowStatus::kStopped;
          finished += seen.finish != FinishReason::kNone;
          resumed += seen.status == RowStatus::kRan && last[seen.row] == RowStatus::kPaused;
          last[seen.row] = seen.status;
        }
      }
    }
  }
  EXPECT_GT(given, 50u);
  EXPECT_GT(paused, 100u);
  EXPECT_GT(stopped, 100u);
  EXPECT_GT(finished, 20u);
  EXPECT_GT(resumed, 20u);
}

TEST_P(StepsPerRequestBitsTest, GiveTheSameBitsPipelinedEagerAndPoisoned) {
  const SamplingLists lists = MakeSamplingLists();
  auto options = SeveralSteps();
  const TestEngine one = MakeTestEngine(options);
  // Kernels that finish late, in any order.
  options.delays = {.max_us = 50};
  const TestEngine late = MakeTestEngine(options);
  options.delays = {.max_us = 1};
  options.diagnostics.poison = true;
  const TestEngine poisoned = MakeTestEngine(options);
  for (const uint64_t seed : {1u, 2u}) {
    const std::vector<Request> requests = MakeRequests(lists, 4, seed);
    std::vector<Played> one_by_one;
    {
      Player player(*one.engine);
      for (const Request& request : requests) one_by_one.push_back(player.PlayOneByOne(request));
    }
    const std::vector<Played> pipelined =
        Player(*one.engine).PlayPipelined(requests, ExecutionMode::kReplay);
    const auto want = ByRow(one_by_one), got_in_time = ByRow(pipelined);
    for (uint32_t row = 1; row <= LastRow(requests); ++row) {
      ASSERT_TRUE(want.contains(row) && got_in_time.contains(row)) << "row " << row;
      EXPECT_EQ(got_in_time.at(row), want.at(row)) << "seed " << seed << ", row " << row;
    }
    const auto expect_same = [&](DecodeEngine& engine, ExecutionMode mode, const char* what) {
      Player player(engine);
      const std::vector<Played> got = player.PlayPipelined(requests, mode);
      ASSERT_EQ(got.size(), pipelined.size());
      for (size_t i = 0; i < got.size(); ++i)
        EXPECT_EQ(got[i], pipelined[i]) << what << ", seed " << seed << ", request " << i;
    };
    expect_same(*late.engine, ExecutionMode::kReplay, "late");
    expect_same(*poisoned.engine, ExecutionMode::kReplay, "poisoned");
    expect_same(*poisoned.engine, ExecutionMode::kEager, "poisoned, eager");
  }
}

}  // namespace
}  // namespace reprise::engine
