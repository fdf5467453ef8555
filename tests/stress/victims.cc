// SPDX-License-Identifier: Apache-2.0
#include "tests/stress/victims.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"

namespace reprise::stress {
namespace {

using std::chrono::steady_clock;

constexpr uint32_t kRow = 3;
constexpr size_t kTokens = 40;
const std::vector<uint32_t>& Prompt() {
  static const std::vector<uint32_t>& prompt = *new std::vector<uint32_t>{5, 80, 33};
  return prompt;
}

}  // namespace

Victims::Victims(service::ServedModel& served, int count)
    : expected_(served.Reference(Prompt(), kTokens)) {
  for (int i = 0; i < count; ++i) {
    clients_.push_back(std::make_unique<service::StreamClient>(served.NewChannel()));
    if (!clients_.back()->opened()) Fail("a session was not opened");
  }
}

void Victims::Start() {
  for (const auto& client : clients_) {
    threads_.emplace_back([this, &client] { Run(*client); });
  }
}

void Victims::Stop() {
  stop_ = true;
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void Victims::Run(service::StreamClient& client) {
  const std::vector<uint32_t> blocks =
      client.Allocate((Prompt().size() + kTokens) / service::kBlockSize + 1);
  for (uint64_t turn = 0; !stop_; ++turn) {
    for (size_t i = 0; i < kTokens; ++i) {
      v1::StepRequest step = client.NewStep();
      if (i == 0) {
        // In one step, so that nobody else takes the row's place in between.
        if (turn > 0) step.add_drop(kRow);
        v1::AddRow* add = step.add_add();
        add->set_row(kRow);
        add->mutable_blocks()->Add(blocks.begin(), blocks.end());
        v1::Chunk* chunk = step.add_chunks();
        chunk->set_row(kRow);
        chunk->mutable_tokens()->Add(Prompt().begin(), Prompt().end());
        chunk->set_sample(true);
      } else {
        step.set_continue_all(true);
      }
      const steady_clock::time_point sent = steady_clock::now();
      v1::StepStreamResponse response;
      if (!client.Send(step) || !client.Receive(&response)) return Fail("a stream ended");
      const std::chrono::duration<double, std::milli> took = steady_clock::now() - sent;
      if (!response.has_step()) return Fail(absl::StrCat("refused: ", response.error().message()));
      client.CountStep();
      const v1::RowResults& rows = response.step().rows();
      if (rows.token_size() != 1 || rows.token(0) != expected_[i]) {
        return Fail(absl::StrCat("token ", i, " of turn ", turn, " is not the model's"));
      }
      std::lock_guard lock(mutex_);
      milliseconds_.push_back(took.count());
    }
  }
}

void Victims::Fail(const std::string& what) {
  std::lock_guard lock(mutex_);
  if (failure_.empty()) failure_ = what;
}

std::string Victims::Failure() {
  std::lock_guard lock(mutex_);
  return failure_;
}

Latency Victims::TakeLatency() {
  std::vector<double> all;
  {
    std::lock_guard lock(mutex_);
    all = std::exchange(milliseconds_, {});
  }
  if (all.empty()) return {};
  std::sort(all.begin(), all.end());
  const auto at = [&](double share) {
    return all[std::min(all.size() - 1,
                        static_cast<size_t>(share * static_cast<double>(all.size())))];
  };
  return {.steps = all.size(), .p50 = at(0.5), .p99 = at(0.99), .max = all.back()};
}

}  // namespace reprise::stress
