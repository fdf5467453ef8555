// SPDX-License-Identifier: Apache-2.0
// A batcher on a fake server, stepped by hand: what its tests have in common.
#ifndef REPRISE_TESTS_TOOLS_BATCHER_FIXTURE_H_
#define REPRISE_TESTS_TOOLS_BATCHER_FIXTURE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/tools/fake_step_server.h"
#include "tools/sched/batcher.h"

namespace reprise::tools {

// Of a small server.
inline ServerInfo Limits() {
  return {.limits = {.block_size = 4,
                     .vocab_size = 50,
                     .max_rows = 4,
                     .max_context_length = 64,
                     .max_step_tokens = 16,
                     .max_prompt_tokens = 16,
                     .pipeline_depth = 2},
          .num_blocks = 101};
}

class BatcherTest : public ::testing::Test {
 protected:
  void Start(const ServerInfo& limits, const BatcherOptions& options = {}) {
    limits_ = limits;
    server_ = std::make_unique<FakeStepServer>(limits);
    blocks_ = std::make_unique<BlockManager>(server_.get(), BlockManagerOptions{.batch = 1});
    batcher_ = std::make_unique<Batcher>(limits, options, blocks_.get());
    requests_.reserve(16);
  }

  Request* Add(uint32_t prompt_tokens, uint32_t max_new_tokens, int32_t priority = 0) {
    Request& request = requests_.emplace_back();
    request.id = static_cast<uint32_t>(requests_.size());
    for (uint32_t i = 0; i < prompt_tokens; ++i)
      request.prompt.push_back((7 * request.id + i) % 50);
    request.max_new_tokens = max_new_tokens;
    request.priority = priority;
    EXPECT_TRUE(batcher_->Add(&request).ok());
    return &request;
  }

  // Plans and submits; false when there is nothing to do.
  bool Submit() {
    const auto planned = batcher_->Plan(&step_);
    EXPECT_TRUE(planned.ok()) << planned.status();
    if (*planned) {
      EXPECT_TRUE(server_->Submit(step_).ok());
    }
    return *planned;
  }

  void Receive() {
    StepOutcome outcome;
    ASSERT_TRUE(server_->Receive(&outcome).ok());
    ASSERT_TRUE(outcome.refusal.ok()) << outcome.refusal;
    const absl::Status applied = batcher_->Apply(outcome, &progress_);
    ASSERT_TRUE(applied.ok()) << applied;
  }

  bool Step() {
    if (!Submit()) return false;
    Receive();
    return true;
  }

  void ExpectAllRight() {
    EXPECT_THAT(server_->violations, ::testing::IsEmpty());
    for (const Request& request : requests_) {
      EXPECT_TRUE(request.finished()) << request.id;
      EXPECT_EQ(request.tokens, ExpectedTokens(request, limits_.limits.vocab_size)) << request.id;
    }
  }

  ServerInfo limits_;
  std::unique_ptr<FakeStepServer> server_;
  std::unique_ptr<BlockManager> blocks_;
  std::unique_ptr<Batcher> batcher_;
  std::vector<Request> requests_;
  PlannedStep step_;
  Batcher::Progress progress_;  // of the last result
};

}  // namespace reprise::tools

#endif  // REPRISE_TESTS_TOOLS_BATCHER_FIXTURE_H_
