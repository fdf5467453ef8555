// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/record_script.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/step_request.h"
#include "tests/testing/record_session.h"

namespace reprise::testing {
namespace {

using engine::ExecutionMode;
using engine::SamplingParams;
using Session = RecordSession;
using Tokens = RecordSession::Tokens;

// How large the cases are.
struct Sizes {
  Tokens chunks = {};          // lengths of the pieces of one prompt
  uint32_t rows = 0;           // that start together
  uint32_t rows_later = 0;     // that join them
  uint32_t prompt_stride = 0;  // what each of their prompts is longer than the one before
  Tokens rows_left = {};       // how many stay, in turn
  Tokens beside = {};          // lengths of prompts that run beside decoding rows
  uint32_t long_prompt = 0;    // in the case of several KV splits, each of 256 tokens
  int steps = 0;               // of decoding
};
Sizes SizesOf(ScriptLength length) {
  if (length == ScriptLength::kFull)
    return {.chunks = {1, 7, 33, 20},
            .rows = 7,
            .rows_later = 9,
            .prompt_stride = 5,
            .rows_left = {8, 4, 2, 1},
            .beside = {3, 14, 29, 60, 120, 250},
            .long_prompt = 550,
            .steps = 3};
  if (length == ScriptLength::kShort)
    return {.chunks = {1, 11},
            .rows = 3,
            .rows_later = 6,
            .prompt_stride = 3,
            .rows_left = {1},
            .beside = {45},
            .long_prompt = 280,
            .steps = 1};
  return {.chunks = {3}, .long_prompt = 280, .steps = 1};
}

class Script {
 public:
  Script(engine::DecodeEngine& engine, const std::string& label, ScriptLength length,
         std::FILE* out)
      : engine_(engine),
        label_(label),
        length_(length),
        sizes_(SizesOf(length)),
        out_(out),
        vocab_(static_cast<uint32_t>(engine.info().model.vocab_size)) {
    // Lists for rows that want them: every so-many-th token.
    const uint32_t stride = std::max(vocab_ / 32, 1u);
    for (uint32_t t = 0; t < vocab_; t += stride)
      bias_.push_back({.token = t, .bias = 0.125f * static_cast<float>(bias_.size()) - 2.0f});
    for (uint32_t t = 1; t < vocab_ && stop_.size() < 48; t += 2) stop_.push_back(t);
    even_.resize((vocab_ + 7) / 8);
    for (uint32_t t = 0; t < vocab_; t += 2) even_[t / 8] |= std::byte{1} << t % 8;
    one_.resize(even_.size());
    one_[42 / 8] = std::byte{1} << 42 % 8;
  }

  void Play() {
    Chunks();
    if (engine_.info().limits.max_context_length >= kScriptLongContext) Long();
    if (length_ == ScriptLength::kMinimal) return;
    Together();
    Mixed();
    if (length_ == ScriptLength::kFull) {
      Alone();
      Features();
      Pipelined();
      mode_ = ExecutionMode::kEager;
      Chunks();
      Together();
    }
    mode_ = ExecutionMode::kEager;
    Features();
  }

 private:
  Session Open(const char* name) const {
    return Session(engine_, absl::StrCat(label_, " case=", name), mode_, out_);
  }
  // Random token ids, the same for the same seed (splitmix64).
  Tokens Prompt(uint64_t seed, uint32_t count) const;
  // Half of the rows are greedy.
  static SamplingParams SamplingOf(uint32_t row) {
    if (row % 2 == 0) return {};
    return {.temperature = 0.6f + 0.1f * static_cast<float>(row), .seed = 1000 + row};
  }
  // Adds the row and runs a prompt of so many tokens, which the next step does; it has room for
  // `count` more.
  void Start(Session& session, uint32_t row, uint32_t length, uint32_t count) const {
    session.Add(row, length + count, SamplingOf(row));
    session.Chunk(row, Prompt(row, length));
  }

  void Alone() const;
  void Chunks() const;
  void Together() const;
  void Mixed() const;
  void Features() const;
  void AskOfEverything(Session& session) const;
  void ChangeMasks(Session& session) const;
  void TakeRowsOver(Session& session) const;
  void Pipelined() const;
  void Long() const;

  engine::DecodeEngine& engine_;
  const std::string label_;
  const ScriptLength length_;
  const Sizes sizes_;
  std::FILE* const out_;
  const uint32_t vocab_;
  ExecutionMode mode_ = ExecutionMode::kReplay;
  std::vector<engine::TokenBias> bias_;
  Tokens stop_;
  std::vector<std::byte> even_, one_;  // masks: even tokens, token 42
};

Tokens Script::Prompt(uint64_t seed, uint32_t count) const {
  Tokens tokens;
  uint64_t state = seed * 0x9e3779b97f4a7c15u;
  for (uint32_t i = 0; i < count; ++i) {
    state += 0x9e3779b97f4a7c15u;
    uint64_t z = state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    tokens.push_back(static_cast<uint32_t>((z ^ (z >> 31)) % vocab_));
  }
  return tokens;
}

// A greedy row and a sampled one, each with nothing beside it; prompts of one chunk.
void Script::Alone() const {
  for (const uint32_t row : {2u, 3u}) {
    Session session = Open("alone");
    Start(session, row, 4 * row + 1, 10);
    session.Step();
    session.Decode(2 * sizes_.steps);
  }
}

// A prompt in pieces, every token of which is asked about; its table grows as it needs.
void Script::Chunks() const {
  Session session = Open("chunks");
  uint32_t length = 0;
  for (const uint32_t chunk : sizes_.chunks) length += chunk;
  const Tokens prompt = Prompt(50, length);
  uint32_t begin = 0;
  for (const uint32_t chunk : sizes_.chunks) {
    const uint32_t end = begin + chunk;
    if (begin == 0) session.Add(1, end, {.num_logprobs = 3, .return_logits = true});
    if (begin != 0) session.Append(1, end);
    const Tokens tokens(prompt.begin() + begin, prompt.begin() + end);
    session.GivenChunk(1, tokens,
                       end < length ? std::optional<uint32_t>(prompt[end]) : std::nullopt);
    session.Step();
    begin = end;
  }
  session.Append(1, length + 10);
  session.Decode(sizes_.steps);
}

// Rows that start in one step, that others join, and that leave again: decode graphs of every size.
void Script::Together() const {
  Session session = Open("together");
  const uint32_t all = sizes_.rows + sizes_.rows_later;
  for (uint32_t row = 0; row < sizes_.rows; ++row)
    Start(session, row, 2 + sizes_.prompt_stride * row, 32);
  session.Step();
  session.Decode(sizes_.steps);
  for (uint32_t row = sizes_.rows; row < all; ++row) Start(session, row, row % 4 + 1, 32);
  session.Decode(1 + sizes_.steps);
  uint32_t first = 0;
  for (const uint32_t left : sizes_.rows_left) {
    for (; all - first > left; ++first) session.Drop(first);
    session.Decode(1);
  }
}

// Two rows decode while others' prompts run beside them, one after another.
void Script::Mixed() const {
  Session session = Open("mixed");
  Start(session, 2, 11, 10);
  Start(session, 3, 5, 10);
  session.Step();
  uint32_t other = 10;
  for (const uint32_t length : sizes_.beside) {
    session.Add(other, length, SamplingOf(other));
    session.Chunk(other, Prompt(other, length));
    session.ContinueAll();
    session.Step();
    session.Drop(other);
    ++other;
  }
  session.Decode(1);
}

void Script::Features() const {
  Session session = Open("features");
  AskOfEverything(session);
  session.Decode(2);
  ChangeMasks(session);
  TakeRowsOver(session);
  session.Decode(sizes_.steps);
}

// A row of every kind, each with a prompt of its own.
void Script::AskOfEverything(Session& session) const {
  session.Add(1, 40, {.temperature = 1.0f, .seed = 1, .num_logprobs = 5});
  session.Add(2, 40,
              {.repetition_penalty = 1.25f,
               .presence_penalty = 0.5f,
               .frequency_penalty = 0.25f,
               .logit_bias = bias_,
               .return_logits = true});
  session.Add(
      3, 40,
      {.temperature = 1.5f, .seed = 3, .stop_tokens = stop_, .stop_at_eos = true, .min_tokens = 2});
  session.Add(4, 40,
              {.temperature = 2.0f,
               .seed = 4,
               .top_k = 20,
               .top_p = 0.9f,
               .min_p = 0.01f,
               .allowed_tokens = even_,
               .max_new_tokens = 3,
               .num_logprobs = 32});
  session.GivenChunk(1, Prompt(61, 9));
  session.GivenChunk(2, Prompt(62, 6));
  session.Chunk(3, Prompt(63, 5));
  session.Chunk(4, Prompt(64, 3));
  session.Step();
  // The tokens of row 6 from the fifth on count as sampled ones.
  session.Add(5, 40, {.temperature = 0.7f, .seed = 5, .top_p = 0.8f});
  session.Add(6, 40,
              {.temperature = 0.8f, .seed = 6, .presence_penalty = 1.5f, .return_logits = true}, 4);
  session.Chunk(5, Prompt(65, 8));
  session.Chunk(6, Prompt(66, 9));
  session.Continue(2);
  session.Continue(4);
  session.Step();
}

// A row gets a mask and loses it; rows that have stopped are named all the same.
void Script::ChangeMasks(Session& session) const {
  session.Mask(5, one_);
  for (uint32_t row = 1; row <= 6; ++row) session.Continue(row);
  session.Step();
  session.Mask(5, {});
  session.Continue(5);
  session.Continue(1);
  session.Step();
}

// A row goes on from another's KV, whose tokens it names, in blocks and in a slot used before.
void Script::TakeRowsOver(Session& session) const {
  const Tokens known = Prompt(67, 10);
  session.Drop(4);
  session.Drop(6);
  session.Add(7, 40);
  session.Chunk(7, known, false);
  session.Step();
  session.AddInPlaceOf(7, 8, known, 6,
                       {.temperature = 1.0f,
                        .seed = 8,
                        .repetition_penalty = 1.5f,
                        .frequency_penalty = 0.5f,
                        .num_logprobs = 3});
  session.Chunk(8, {vocab_ - 1});
  session.Add(9, 40, {.max_new_tokens = 1});
  session.Chunk(9, Prompt(68, 2));
  session.Step();
}

// Two steps in flight. One row stops in a step while the next one is under way.
void Script::Pipelined() const {
  Session session = Open("pipelined");
  Start(session, 2, 7, 20);
  Start(session, 3, 4, 20);
  session.Add(4, 20, {.temperature = 1.0f, .seed = 4, .max_new_tokens = 3});
  session.Chunk(4, Prompt(4, 3));
  session.Submit();
  for (int i = 0; i < 2 * sizes_.steps + 1; ++i) {
    session.ContinueAll();
    session.Submit();
    session.Wait();
  }
  session.Wait();
}

// A context of several KV splits, with and without a short row beside them.
void Script::Long() const {
  Session session = Open("long");
  const uint32_t length = sizes_.long_prompt;
  const Tokens prompt = Prompt(80, length);
  session.Add(1, length + 10,
              {.temperature = 0.8f, .seed = 80, .num_logprobs = 2, .return_logits = true});
  for (uint32_t begin = 0; begin < length; begin += 240) {
    const uint32_t end = std::min(begin + 240, length);
    session.Chunk(1, {prompt.begin() + begin, prompt.begin() + end}, end == length);
    session.Step();
  }
  session.Decode(1);
  Start(session, 2, 12, 10);
  session.ContinueAll();
  session.Step();
  session.Decode(1);
}

}  // namespace

void PlayScript(engine::DecodeEngine& engine, const std::string& label, ScriptLength length,
                std::FILE* out) {
  Script(engine, label, length, out).Play();
}

}  // namespace reprise::testing
