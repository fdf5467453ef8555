// SPDX-License-Identifier: Apache-2.0
#include "service/kv/kv_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace reprise::service {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Job final : public KvJob {
 public:
  explicit Job(
      std::function<void()> run, std::function<void()> answer = [] {})
      : run_(std::move(run)), answer_(std::move(answer)) {}
  void Run() override { run_(); }
  void Answer() override { answer_(); }

 private:
  const std::function<void()> run_, answer_;
};

// Holds a queue's thread until it is opened.
class Gate {
 public:
  void Open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void Wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
};

TEST(KvQueue, RunsJobsInOrder) {
  std::vector<int> order;  // of the queue's thread, until that has ended
  std::deque<Job> jobs;
  Gate done;
  {
    KvQueue queue;
    for (int i = 0; i < 4; ++i) jobs.emplace_back([&order, i] { order.push_back(i); });
    jobs.emplace_back([&done] { done.Open(); });
    for (size_t i = 0; i < jobs.size(); ++i) EXPECT_TRUE(queue.Push(i, &jobs[i]).ok());
    done.Wait();
  }
  EXPECT_THAT(order, ElementsAre(0, 1, 2, 3));
}

// A client that keeps as many calls as it may pushes the next one when one is answered.
TEST(KvQueue, HasRoomForTheNextOneOfWhoeverIsAnswered) {
  std::vector<absl::StatusCode> pushed;  // of the queue's thread, until that has ended
  Gate begin, done;
  std::deque<Job> jobs;
  Job next([&done] { done.Open(); });
  {
    KvQueue queue;
    jobs.emplace_back([&begin] { begin.Wait(); },
                      [&] {
                        pushed.push_back(queue.Push(1, &next).code());
                        if (pushed.back() != absl::StatusCode::kOk) done.Open();
                      });
    while (jobs.size() < KvQueue::kMaxSessionJobs) jobs.emplace_back([] {});
    for (Job& job : jobs) EXPECT_TRUE(queue.Push(1, &job).ok());
    begin.Open();
    done.Wait();
  }
  EXPECT_THAT(pushed, ElementsAre(absl::StatusCode::kOk));
}

TEST(KvQueue, RefusesWhatIsTooMuchOfOneSessionAndOfAll) {
  Gate gate, done;
  std::deque<Job> jobs;
  Job last([&done] { done.Open(); });
  {
    KvQueue queue;
    const auto push = [&](engine::SessionId session) {
      jobs.emplace_back([&gate] { gate.Wait(); });
      return queue.Push(session, &jobs.back());
    };
    size_t taken = 0;
    for (engine::SessionId session = 1; taken < KvQueue::kMaxJobs; ++session) {
      for (size_t i = 0; i < KvQueue::kMaxSessionJobs && taken < KvQueue::kMaxJobs; ++i, ++taken)
        EXPECT_TRUE(push(session).ok());
    }
    const absl::Status of_one = push(1), of_all = push(1000);
    EXPECT_EQ(of_one.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(of_one.message()), HasSubstr("this session has 8"));
    EXPECT_EQ(of_all.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(of_all.message()), HasSubstr("the server has 64"));
    gate.Open();
    // The last one is taken once there is room for it.
    while (!queue.Push(2000, &last).ok()) std::this_thread::yield();
    done.Wait();
  }
}

}  // namespace
}  // namespace reprise::service
