// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/row_script.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <stdexcept>
#include <utility>

namespace reprise::testing {
namespace {

// Writes a script step by step, and knows how far every row is.
class Author {
 public:
  explicit Author(const RowScriptOptions& options) : o_(options), random_(options.seed) {}

  RowScript Write() {
    while (script_.steps.size() < o_.num_steps) {
      RowScript::Step step;
      tokens_left_ = o_.max_step_tokens;
      Drops(step);
      Adds(step);
      // Half of the steps are decode steps.
      if (!One(2)) Chunks(step);
      Continues(step);
      if (step.drop.empty() && step.add.empty() && step.chunks.empty() && step.continues.empty())
        continue;
      script_.steps.push_back(std::move(step));
    }
    return std::move(script_);
  }

 private:
  struct Live {
    uint32_t context = 0, num_blocks = 0, chunk = 0;
    bool can_continue = false;
  };

  bool One(uint32_t in) { return random_.Below(in) == 0; }
  uint32_t BlocksFor(uint32_t tokens) const { return (tokens + o_.block_size - 1) / o_.block_size; }

  void Drops(RowScript::Step& step) {
    for (auto it = live_.begin(); it != live_.end();) {
      const bool full = it->second.context >= o_.max_context_length;
      if (full || One(it->second.can_continue ? 14 : 60)) {
        step.drop.push_back(it->first);
        it = live_.erase(it);
      } else {
        ++it;
      }
    }
  }

  void Adds(RowScript::Step& step) {
    while (live_.size() < o_.max_rows && One(2)) {
      RowLife life;
      do {
        life.plan.row = random_.Below(2 * o_.max_rows);
      } while (HasRow(life.plan.row));
      const uint32_t most = o_.max_context_length * 2 / 3;
      for (uint32_t n = 1 + random_.Below(One(3) ? most : 6); n > 0; --n)
        life.plan.prompt.push_back(random_.Below(o_.vocab_size));
      auto left = static_cast<uint32_t>(life.plan.prompt.size());
      while (left > 0) {
        const uint32_t chunk = std::min(left, 1 + random_.Below(One(2) ? 40 : 5));
        life.plan.chunks.push_back(chunk);
        left -= chunk;
      }
      if (One(2))
        life.plan.sampling = {.temperature = static_cast<float>(0.2 + 2.0 * random_.Uniform()),
                              .seed = random_.Bits()};
      life.first_blocks = BlocksFor(life.plan.chunks[0]) + random_.Below(3);
      life.first_blocks = std::min(life.first_blocks, BlocksFor(o_.max_context_length));
      const auto index = static_cast<uint32_t>(script_.lives.size());
      step.add.push_back(index);
      live_[index] = {.num_blocks = life.first_blocks};
      script_.lives.push_back(std::move(life));
    }
  }

  bool HasRow(uint32_t row) const {
    return std::any_of(live_.begin(), live_.end(), [&](const auto& entry) {
      return script_.lives[entry.first].plan.row == row;
    });
  }

  // Grows the table where `count` tokens need it.
  void Room(RowScript::Step& step, uint32_t index, uint32_t count) {
    Live& live = live_[index];
    const uint32_t needed = BlocksFor(live.context + count);
    if (needed <= live.num_blocks) return;
    const uint32_t most = BlocksFor(o_.max_context_length);
    const uint32_t blocks = std::min(most, needed + random_.Below(3));
    step.append.push_back({.life = index, .num_blocks = blocks - live.num_blocks});
    live.num_blocks = blocks;
  }

  void Chunks(RowScript::Step& step) {
    for (auto& [index, live] : live_) {
      const RowPlan& plan = script_.lives[index].plan;
      if (live.chunk == plan.chunks.size() || One(4)) continue;
      const uint32_t count = plan.chunks[live.chunk];
      if (count > tokens_left_) continue;
      Room(step, index, count);
      step.chunks.push_back({.life = index, .begin = live.context, .count = count});
      tokens_left_ -= count;
      live.context += count;
      if (++live.chunk == plan.chunks.size()) {
        ++script_.lives[index].num_tokens;
        live.can_continue = true;
        fresh_.push_back(index);
      }
    }
  }

  void Continues(RowScript::Step& step) {
    const bool all = One(2);
    bool left_out = false;
    for (auto& [index, live] : live_) {
      const bool ran = std::find(fresh_.begin(), fresh_.end(), index) != fresh_.end();
      if (ran || !live.can_continue) continue;
      if (tokens_left_ == 0 || (!all && One(3))) {
        left_out = true;
        continue;
      }
      Room(step, index, 1);
      step.continues.push_back(index);
      --tokens_left_;
      ++live.context;
      ++script_.lives[index].num_tokens;
    }
    // In the order of adding, which is that of the lives' indices.
    step.continue_all = !left_out && !step.continues.empty();
    fresh_.clear();
  }

  const RowScriptOptions o_;
  Random random_;
  RowScript script_;
  std::map<uint32_t, Live> live_;  // by life
  std::vector<uint32_t> fresh_;    // lives whose prompt ended in this step
  uint32_t tokens_left_ = 0;
};

}  // namespace

RowScript MakeRowScript(const RowScriptOptions& options) { return Author(options).Write(); }

RowScriptPlayer::RowScriptPlayer(engine::DecodeEngine& engine, const RowScript& script)
    : script_(script),
      driver_(engine),
      blocks_(script.lives.size()),
      tokens_(script.lives.size()) {}

StepDraft RowScriptPlayer::Draft(const RowScript::Step& step) {
  StepDraft draft;
  const auto row = [&](uint32_t life) { return script_.lives[life].plan.row; };
  for (const uint32_t life : step.drop) draft.drop.push_back(row(life));
  for (const uint32_t life : step.add) {
    blocks_[life] = driver_.Allocate(script_.lives[life].first_blocks);
    draft.add.push_back(
        {.row = row(life), .blocks = blocks_[life], .sampling = script_.lives[life].plan.sampling});
  }
  for (const RowScript::Append& append : step.append) {
    const std::vector<uint32_t> blocks = driver_.Allocate(append.num_blocks);
    blocks_[append.life].insert(blocks_[append.life].end(), blocks.begin(), blocks.end());
    draft.append.push_back({.row = row(append.life), .blocks = blocks});
  }
  for (const RowScript::Chunk& chunk : step.chunks) {
    const std::vector<uint32_t>& prompt = script_.lives[chunk.life].plan.prompt;
    const auto begin = prompt.begin() + chunk.begin;
    draft.chunks.push_back({.row = row(chunk.life),
                            .tokens = {begin, begin + chunk.count},
                            .sample = chunk.begin + chunk.count == prompt.size()});
  }
  draft.continue_all = step.continue_all;
  if (!step.continue_all)
    for (const uint32_t life : step.continues) draft.continue_rows.push_back(row(life));
  return draft;
}

std::vector<uint32_t> RowScriptPlayer::Runs(const RowScript::Step& step) const {
  std::vector<uint32_t> lives;
  for (const RowScript::Chunk& chunk : step.chunks) lives.push_back(chunk.life);
  lives.insert(lives.end(), step.continues.begin(), step.continues.end());
  return lives;
}

engine::StepTicket RowScriptPlayer::Submit(engine::ExecutionMode mode) {
  const RowScript::Step& step = script_.steps[num_submitted_];
  StepDraft draft = Draft(step);
  draft.mode = mode;
  const engine::StepTicket ticket = driver_.Submit(draft);
  ++num_submitted_;
  for (const uint32_t life : step.drop) driver_.Free(blocks_[life]);
  return ticket;
}

void RowScriptPlayer::Wait(engine::StepTicket ticket) {
  const std::vector<uint32_t> lives = Runs(script_.steps[num_waited_]);
  const engine::StepResult& result = driver_.Wait(ticket);
  ++num_waited_;
  EXPECT_EQ(result.session, driver_.session().id);
  EXPECT_EQ(result.sequence, num_waited_);
  if (result.rows.size() != lives.size()) throw std::runtime_error("another number of rows ran");
  for (size_t i = 0; i < lives.size(); ++i) {
    EXPECT_EQ(result.rows[i].row, script_.lives[lives[i]].plan.row);
    if (result.rows[i].sampled) tokens_[lives[i]].push_back(TokenOf(result.rows[i]));
  }
}

void RowScriptPlayer::Play(uint32_t depth, engine::ExecutionMode mode) {
  std::deque<engine::StepTicket> in_flight;
  while (!AllSubmitted() || !in_flight.empty()) {
    while (!AllSubmitted() && in_flight.size() < depth) in_flight.push_back(Submit(mode));
    Wait(in_flight.front());
    in_flight.pop_front();
  }
  for (size_t life = 0; life < tokens_.size(); ++life)
    EXPECT_EQ(tokens_[life].size(), script_.lives[life].num_tokens) << "life " << life;
}

std::vector<Token> Alone(engine::DecodeEngine& engine, const RowLife& life) {
  if (life.num_tokens == 0) return {};
  EngineDriver driver(engine);
  return driver.Generate(life.plan, life.num_tokens);
}

}  // namespace reprise::testing
