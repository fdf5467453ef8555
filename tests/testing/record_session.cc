// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/record_session.h"

#include <bit>
#include <stdexcept>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace reprise::testing {
namespace {

void MustSucceed(const absl::Status& status, const std::string& what) {
  if (!status.ok()) throw std::runtime_error(absl::StrCat(what, ": ", status.ToString()));
}

std::string Bits(float value) {
  return absl::StrCat(absl::Hex(std::bit_cast<uint32_t>(value), absl::kZeroPad8));
}

// FNV-1a.
std::string HashOf(std::span<const float> values) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const float value : values)
    for (int shift = 0; shift < 32; shift += 8)
      hash = (hash ^ (std::bit_cast<uint32_t>(value) >> shift & 255u)) * 0x100000001b3u;
  return absl::StrCat(absl::Hex(hash, absl::kZeroPad16));
}

std::string TopOf(const engine::StepResult& result, const engine::TopRange& range) {
  std::string text;
  for (uint32_t i = 0; i < range.count; ++i) {
    const engine::TokenLogprob& top = result.top_logprobs.at(range.begin + i);
    absl::StrAppend(&text, i == 0 ? "" : ",", top.token, ":", Bits(top.logprob));
  }
  return text.empty() ? "-" : text;
}

std::string TextOf(const engine::StepReport& report) {
  return absl::StrCat(" graph=", std::string(report.graph), " replayed=", report.replayed ? 1 : 0,
                      " rows=", report.rows, " tokens=", report.tokens,
                      " padding=", report.padding_rows, ",", report.padding_tokens, "\n");
}

// All but the logits.
std::string TextOf(const engine::StepResult& result, const engine::RowOutcome& row) {
  return absl::StrCat(" row=", row.row, " position=", row.context_length,
                      " token=", row.sampled ? absl::StrCat(row.token) : "-",
                      " logprob=", row.sampled ? Bits(row.logprob) : "-", " rank=", row.rank,
                      " top=", TopOf(result, row.top), " status=", static_cast<int>(row.status),
                      " finish=", static_cast<int>(row.finish));
}

std::string TextOf(const engine::StepResult& result, const engine::PromptLogprob& given) {
  return absl::StrCat(" row=", given.row, " given=", given.position,
                      " logprob=", Bits(given.logprob), " rank=", given.rank,
                      " top=", TopOf(result, given.top), "\n");
}

std::string TextOf(const std::string& label, size_t vocab_size, const engine::StepResult& result) {
  std::string text = absl::StrCat(label, TextOf(result.report));
  std::span<const float> logits = result.logits;
  for (const engine::RowOutcome& row : result.rows) {
    absl::StrAppend(&text, label, TextOf(result, row));
    if (row.has_logits) {
      absl::StrAppend(&text, " logits=", HashOf(logits.first(vocab_size)));
      logits = logits.subspan(vocab_size);
    }
    text += "\n";
  }
  for (const engine::PromptLogprob& given : result.prompt_logprobs)
    absl::StrAppend(&text, label, TextOf(result, given));
  return text;
}

}  // namespace

RecordSession::RecordSession(engine::DecodeEngine& engine, std::string label,
                             engine::ExecutionMode mode, std::FILE* out)
    : engine_(engine),
      label_(absl::StrCat(label,
                          mode == engine::ExecutionMode::kEager ? " mode=eager" : " mode=replay")),
      mode_(mode),
      out_(out),
      session_(engine.OpenSession()),
      block_size_(engine.pool().block_size) {}

RecordSession::~RecordSession() { engine_.CloseSession(session_.id).IgnoreError(); }

void RecordSession::Grow(uint32_t row, uint32_t num_tokens) {
  std::vector<uint32_t>& held = blocks_[row];
  const uint32_t wanted = (num_tokens + block_size_ - 1) / block_size_;
  if (wanted <= held.size()) return;
  const auto blocks =
      engine_.AllocateBlocks(session_.id, wanted - static_cast<uint32_t>(held.size()));
  MustSucceed(blocks.status(), absl::StrCat(label_, ": AllocateBlocks"));
  held.insert(held.end(), blocks->begin(), blocks->end());
}

void RecordSession::Add(uint32_t row, uint32_t num_tokens, const engine::SamplingParams& sampling,
                        uint32_t prompt_length) {
  Grow(row, num_tokens);
  add_.push_back(
      {.row = row, .sampling = sampling, .blocks = blocks_[row], .prompt_length = prompt_length});
}

void RecordSession::AddInPlaceOf(uint32_t other, uint32_t row, const Tokens& known,
                                 uint32_t prompt_length, const engine::SamplingParams& sampling) {
  blocks_[row] = std::exchange(blocks_[other], {});
  Drop(other);
  add_.push_back({.row = row,
                  .sampling = sampling,
                  .context_length = static_cast<uint32_t>(known.size()),
                  .blocks = blocks_[row],
                  .history = Keep(known),
                  .prompt_length = prompt_length});
}

void RecordSession::Append(uint32_t row, uint32_t num_tokens) {
  const size_t before = blocks_[row].size();
  Grow(row, num_tokens);
  const auto grown = std::span(blocks_[row]).subspan(before);
  if (!grown.empty()) append_.push_back({.row = row, .blocks = grown});
}

void RecordSession::Mask(uint32_t row, std::span<const std::byte> mask) {
  masks_.push_back({.row = row, .allowed_tokens = mask});
}

void RecordSession::Chunk(uint32_t row, const Tokens& tokens, bool sample) {
  chunks_.push_back({.row = row, .sample = sample, .tokens = Keep(tokens)});
}

void RecordSession::GivenChunk(uint32_t row, const Tokens& tokens, std::optional<uint32_t> next) {
  chunks_.push_back({.row = row,
                     .sample = !next.has_value(),
                     .tokens = Keep(tokens),
                     .prompt_logprobs = true,
                     .next_token = next});
}

void RecordSession::Submit() {
  const auto ticket = engine_.Submit({.session = session_.id,
                                      .epoch = session_.epoch,
                                      .sequence = sequence_,
                                      .drop = drop_,
                                      .add = add_,
                                      .append = append_,
                                      .masks = masks_,
                                      .chunks = chunks_,
                                      .continue_rows = continue_rows_,
                                      .continue_all = continue_all_,
                                      .mode = mode_});
  MustSucceed(ticket.status(), absl::StrCat(label_, " step=", sequence_, ": Submit"));
  ++sequence_;
  in_flight_.push_back({.ticket = *ticket, .dropped = drop_});
  ClearStep();
}

void RecordSession::ClearStep() {
  kept_.clear();
  drop_.clear();
  continue_rows_.clear();
  add_.clear();
  append_.clear();
  masks_.clear();
  chunks_.clear();
  continue_all_ = false;
}

void RecordSession::Wait() {
  const InFlight step = in_flight_.front();
  in_flight_.pop_front();
  MustSucceed(engine_.Wait(step.ticket, &result_), absl::StrCat(label_, ": Wait"));
  const auto vocab_size = static_cast<size_t>(engine_.info().model.vocab_size);
  const std::string text =
      TextOf(absl::StrCat(label_, " step=", result_.sequence), vocab_size, result_);
  std::fwrite(text.data(), 1, text.size(), out_);
  FreeBlocksOf(step.dropped);
}

void RecordSession::FreeBlocksOf(const std::vector<uint32_t>& rows) {
  for (const uint32_t row : rows) {
    const std::vector<uint32_t> blocks = std::exchange(blocks_[row], {});
    if (blocks.empty()) continue;
    MustSucceed(engine_.FreeBlocks(session_.id, blocks), absl::StrCat(label_, ": FreeBlocks"));
  }
}

void RecordSession::Step() {
  Submit();
  Wait();
}

void RecordSession::Decode(int num_steps) {
  for (int i = 0; i < num_steps; ++i) {
    ContinueAll();
    Step();
  }
}

}  // namespace reprise::testing
