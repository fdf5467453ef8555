// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/engine_driver.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <stdexcept>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"

namespace reprise::testing {
namespace {

void MustSucceed(const absl::Status& status, const char* what) {
  if (status.ok()) return;
  const std::string message = absl::StrCat(what, ": ", status.ToString());
  ADD_FAILURE() << message;
  throw std::runtime_error(message);
}

}  // namespace

float Token::logprob() const { return std::bit_cast<float>(logprob_bits); }

void PrintTo(const Token& token, std::ostream* os) {
  *os << token.id << " (" << token.logprob() << " = 0x" << std::hex << token.logprob_bits
      << std::dec << ", context " << token.context_length << ")";
}

Token TokenOf(const engine::RowOutcome& row) {
  return {.id = row.token,
          .logprob_bits = std::bit_cast<uint32_t>(row.logprob),
          .context_length = row.context_length};
}

EngineDriver::~EngineDriver() { EXPECT_TRUE(engine_.CloseSession(session_.id).ok()); }

std::vector<uint32_t> EngineDriver::Allocate(uint32_t count) {
  auto blocks = engine_.AllocateBlocks(session_.id, count);
  MustSucceed(blocks.status(), "AllocateBlocks");
  return *std::move(blocks);
}

std::vector<uint32_t> EngineDriver::AllocateFor(uint32_t tokens) {
  const uint32_t size = engine_.pool().block_size;
  return Allocate((tokens + size - 1) / size);
}

void EngineDriver::Free(std::span<const uint32_t> blocks) {
  MustSucceed(engine_.FreeBlocks(session_.id, blocks), "FreeBlocks");
}

absl::StatusOr<engine::StepResult> EngineDriver::TryStep(const StepDraft& draft,
                                                         engine::EngineProfiler* profiler) {
  const engine::DraftView view(draft, session_, sequence_);
  engine::StepResult result;
  REPRISE_RETURN_IF_ERROR(profiler != nullptr ? profiler->Step(view.request(), &result)
                                              : engine_.Step(view.request(), &result));
  ++sequence_;
  return result;
}

const engine::StepResult& EngineDriver::Step(const StepDraft& draft,
                                             engine::EngineProfiler* profiler) {
  auto result = TryStep(draft, profiler);
  MustSucceed(result.status(), "Step");
  result_ = *std::move(result);
  Collect();
  return result_;
}

engine::StepTicket EngineDriver::Submit(const StepDraft& draft) {
  const engine::DraftView view(draft, session_, sequence_);
  const auto ticket = engine_.Submit(view.request());
  MustSucceed(ticket.status(), "Submit");
  ++sequence_;
  return *ticket;
}

const engine::StepResult& EngineDriver::Wait(engine::StepTicket ticket) {
  MustSucceed(engine_.Wait(ticket, &result_), "Wait");
  Collect();
  return result_;
}

void EngineDriver::Collect() {
  for (const engine::RowOutcome& row : result_.rows) {
    if (!row.sampled) continue;
    for (uint32_t i = 0; i < row.accepted.count; ++i) {
      const engine::AcceptedToken& token = result_.accepted[row.accepted.begin + i];
      tokens_[row.row].push_back({.id = token.token,
                                  .logprob_bits = std::bit_cast<uint32_t>(token.logprob),
                                  .context_length = row.context_length - row.accepted.count + i});
    }
    tokens_[row.row].push_back(TokenOf(row));
  }
}

void EngineDriver::Start(const RowPlan& plan, uint32_t count) {
  const auto length = static_cast<uint32_t>(plan.prompt.size());
  std::vector<uint32_t> chunks = plan.chunks;
  if (chunks.empty()) chunks = {length};
  // The last token that is sampled is never run.
  blocks_[plan.row] = AllocateFor(length + count - 1);
  StepDraft step{
      .add = {{.row = plan.row, .blocks = blocks_[plan.row], .sampling = plan.sampling}}};
  auto begin = plan.prompt.begin();
  for (const uint32_t chunk : chunks) {
    const auto end = begin + chunk;
    step.chunks = {{.row = plan.row,
                    .tokens = std::vector<uint32_t>(begin, end),
                    .sample = end == plan.prompt.end()}};
    Step(step);
    step = StepDraft();
    begin = end;
  }
}

void EngineDriver::ContinueAll(uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) Step({.continue_all = true});
}

void EngineDriver::Drop(uint32_t row) {
  Step({.drop = {row}});
  Free(blocks_[row]);
  blocks_.erase(row);
}

std::vector<Token> EngineDriver::Generate(const RowPlan& plan, uint32_t count) {
  const size_t before = tokens_[plan.row].size();
  Start(plan, count);
  for (uint32_t i = 1; i < count; ++i) Step({.continue_rows = {plan.row}});
  Drop(plan.row);
  const std::vector<Token>& all = tokens_[plan.row];
  return {all.begin() + static_cast<std::ptrdiff_t>(before), all.end()};
}

std::vector<uint32_t> EvenChunks(uint32_t tokens, uint32_t chunk) {
  std::vector<uint32_t> chunks;
  for (uint32_t done = 0; done < tokens; done += chunks.back())
    chunks.push_back(std::min(chunk, tokens - done));
  return chunks;
}

}  // namespace reprise::testing
