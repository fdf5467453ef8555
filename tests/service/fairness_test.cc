// SPDX-License-Identifier: Apache-2.0
// Who runs next: a session that asks for little among others that ask for all they can.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include "tests/service/served_model.h"

namespace reprise::service {
namespace {

using std::chrono::steady_clock;

constexpr int kGreedy = 4;        // sessions that keep as many steps waiting as they may
constexpr uint32_t kWaiting = 4;  // of each

// One that always has steps waiting; each replays the largest bucket.
class GreedyClient {
 public:
  explicit GreedyClient(const ServedModel& served) : client_(served.NewChannel()) {
    const std::vector<uint32_t> blocks = client_.Allocate(8);
    v1::StepRequest step = client_.NewStep();
    v1::AddRow* add = step.add_add();
    add->set_row(kRow);
    add->mutable_blocks()->Add(blocks.begin(), blocks.end());
    client_.Step(step);
    thread_ = std::thread([this, blocks] { Run(blocks); });
  }
  ~GreedyClient() { Stop(); }
  // Asks for no more, and waits for what it has asked for. The time that each of its steps took on
  // the device, in nanoseconds.
  const std::vector<double>& Stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
    return device_ns_;
  }

 private:
  // The same row over and over: dropped, added, and its prompt run.
  void Run(const std::vector<uint32_t>& blocks) {
    uint32_t waiting = 0;
    while (!stop_ || waiting > 0) {
      for (; !stop_ && waiting < kWaiting; ++waiting) {
        v1::StepRequest step = client_.NewStep();
        step.add_drop(kRow);
        v1::AddRow* add = step.add_add();
        add->set_row(kRow);
        add->mutable_blocks()->Add(blocks.begin(), blocks.end());
        v1::Chunk* chunk = step.add_chunks();
        chunk->set_row(kRow);
        for (uint32_t i = 0; i < kMaxStepTokens; ++i) chunk->add_tokens(i);
        EXPECT_TRUE(client_.Send(step));
        client_.CountStep();
      }
      v1::StepStreamResponse response;
      EXPECT_TRUE(client_.Receive(&response));
      EXPECT_TRUE(response.has_step()) << response.ShortDebugString();
      device_ns_.push_back(static_cast<double>(response.step().ledger().device_ns()));
      --waiting;
    }
  }

  StreamClient client_;
  std::atomic<bool> stop_ = false;
  std::vector<double> device_ns_;  // the thread's, until it has ended
  std::thread thread_;
};

// With one queue for all a step waits behind kGreedy * kWaiting others. With turns it waits for
// those in flight, one more that went in as it came, and its own: four steps or so. All but its own
// are steps of the greedy ones, which may take longer.
TEST(Fairness, AStepOfAModestSessionWaitsForThoseInFlightOnly) {
  ServedModel::Options options;
  options.max_delay_us = 400;  // steps of some milliseconds
  ServedModel served(options);
  StreamClient modest(served.NewChannel());
  modest.StartRow(kRow, std::vector<uint32_t>{5, 80, 33}, 48);
  std::vector<std::unique_ptr<GreedyClient>> greedy;
  for (int i = 0; i < kGreedy; ++i) greedy.push_back(std::make_unique<GreedyClient>(served));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  std::vector<double> queued, device;
  for (int i = 0; i < 20; ++i) {
    v1::StepRequest step = modest.NewStep();
    step.set_continue_all(true);
    const v1::StepResponse response = modest.Step(step);
    queued.push_back(static_cast<double>(response.ledger().queue_ns()));
  }
  for (const std::unique_ptr<GreedyClient>& client : greedy) {
    const std::vector<double>& own = client->Stop();
    device.insert(device.end(), own.begin(), own.end());
  }
  ASSERT_FALSE(device.empty());
  std::sort(queued.begin(), queued.end());
  std::sort(device.begin(), device.end());
  const double median_queued = queued[queued.size() / 2];
  const double median_device = device[device.size() / 2];
  EXPECT_LT(median_queued, 0.5 * kGreedy * kWaiting * median_device)
      << "queued " << median_queued << " ns, greedy steps on the device " << median_device << " ns";
}

// Two that ask alike get alike.
TEST(Fairness, EqualsShareTheDevice) {
  ServedModel::Options options;
  options.max_delay_us = 100;
  ServedModel served(options);
  constexpr int kClients = 3;
  std::atomic<bool> stop = false;
  std::vector<std::atomic<int>> steps(kClients);
  std::vector<std::thread> threads;
  for (int i = 0; i < kClients; ++i) {
    threads.emplace_back([&, i] {
      StreamClient client(served.NewChannel());
      const std::vector<uint32_t> blocks = client.Allocate(2);
      bool resident = false;
      while (!stop) {
        v1::StepRequest step = client.NewStep();
        if (resident) step.add_drop(kRow);
        v1::AddRow* add = step.add_add();
        add->set_row(kRow);
        add->mutable_blocks()->Add(blocks.begin(), blocks.end());
        v1::Chunk* chunk = step.add_chunks();
        chunk->set_row(kRow);
        chunk->add_tokens(1);
        client.Step(step);
        resident = true;
        ++steps[static_cast<size_t>(i)];
      }
    });
  }
  const auto steps_since = [&steps](const std::vector<int>& before) {
    std::vector<int> counts;
    for (size_t i = 0; i < steps.size(); ++i) counts.push_back(steps[i].load() - before[i]);
    return counts;
  };
  // What each gets while all of them ask.
  const std::vector<int> none(kClients, 0);
  EXPECT_TRUE(Eventually([&] { return std::ranges::min(steps_since(none)) > 0; }));
  const std::vector<int> before = steps_since(none);
  std::vector<int> counts = before;
  EXPECT_TRUE(Eventually([&] {
    counts = steps_since(before);
    return std::accumulate(counts.begin(), counts.end(), 0) >= 400;
  }));
  stop = true;
  for (std::thread& thread : threads) thread.join();
  const auto [least, most] = std::minmax_element(counts.begin(), counts.end());
  EXPECT_GT(*least, 0);
  EXPECT_LT(*most, 3 * *least) << *most << " and " << *least << " steps";
}

}  // namespace
}  // namespace reprise::service
