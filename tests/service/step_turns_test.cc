// SPDX-License-Identifier: Apache-2.0
// Whose turn it is, without a clock and without a device: every step takes what the test says.
#include "service/step_turns.h"

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace reprise::service {
namespace {

constexpr uint64_t kMs = 1'000'000;

class Job final : public StepJob {
 public:
  void Finished(const absl::Status& /*status*/, const engine::StepResult* /*result*/) override {}
  int session = 0;
};

// A pipeline of `depth` places in front of a device that runs one step at a time.
class Bench {
 public:
  explicit Bench(size_t depth = 1) : depth_(depth) {}

  // A session of `share` whose steps take `step_ns` each; it always has some waiting once it is
  // asked to.
  int AddSession(StepShare& share, uint64_t step_ns) {
    sessions_.push_back(
        {.queue = std::make_unique<StepQueue>(share), .step_ns = step_ns, .ran_ns = 0, .steps = 0});
    return static_cast<int>(sessions_.size()) - 1;
  }
  void Ask(int session, int num_jobs) {
    for (int i = 0; i < num_jobs; ++i) {
      Job& job = jobs_.emplace_back();
      job.session = session;
      job.request.num_steps = 1;
      turns_.Add(&job, *sessions_[static_cast<size_t>(session)].queue);
    }
  }
  // Runs steps until `num_steps` more have ended; returns the sessions in the order of their ends.
  std::vector<int> Run(int num_steps) {
    std::vector<int> order;
    while (static_cast<int>(order.size()) < num_steps) {
      Fill();
      if (in_flight_.empty()) break;
      Job* job = in_flight_.front();
      in_flight_.pop_front();
      Session& session = sessions_[static_cast<size_t>(job->session)];
      turns_.NoteServed(*job, 1, session.step_ns);
      session.ran_ns += session.step_ns;
      ++session.steps;
      order.push_back(job->session);
    }
    return order;
  }
  uint64_t ran_ns(int session) const { return sessions_[static_cast<size_t>(session)].ran_ns; }
  int steps(int session) const { return sessions_[static_cast<size_t>(session)].steps; }
  StepTurns& turns() { return turns_; }
  StepQueue& queue(int session) { return *sessions_[static_cast<size_t>(session)].queue; }

 private:
  struct Session {
    std::unique_ptr<StepQueue> queue;
    uint64_t step_ns;
    uint64_t ran_ns;
    int steps;
  };
  void Fill() {
    while (in_flight_.size() < depth_) {
      auto* job = static_cast<Job*>(turns_.TakeNext());
      if (job == nullptr) return;
      StepTurns::NoteSubmitted(*job);
      in_flight_.push_back(job);
    }
  }

  const size_t depth_;
  StepTurns turns_;
  std::vector<Session> sessions_;
  std::deque<Job> jobs_;
  std::deque<Job*> in_flight_;
};

double Ratio(uint64_t a, uint64_t b) { return static_cast<double>(a) / static_cast<double>(b); }

TEST(StepTurns, IdentitiesGetTimeByTheirWeights) {
  for (const size_t depth : {1u, 2u, 4u}) {
    Bench bench(depth);
    StepShare heavy(3), light(1);
    const int a = bench.AddSession(heavy, kMs);
    const int b = bench.AddSession(light, kMs);
    bench.Ask(a, 1000);
    bench.Ask(b, 1000);
    bench.Run(400);
    EXPECT_NEAR(Ratio(bench.ran_ns(a), bench.ran_ns(b)), 3.0, 0.1) << "depth " << depth;
  }
}

TEST(StepTurns, ItIsTimeThatCountsAndNotSteps) {
  Bench bench(2);
  StepShare slow(1), fast(1);
  const int a = bench.AddSession(slow, 4 * kMs);
  const int b = bench.AddSession(fast, kMs);
  bench.Ask(a, 1000);
  bench.Ask(b, 1000);
  bench.Run(500);
  EXPECT_NEAR(Ratio(bench.ran_ns(a), bench.ran_ns(b)), 1.0, 0.1);
  EXPECT_NEAR(Ratio(static_cast<uint64_t>(bench.steps(b)), static_cast<uint64_t>(bench.steps(a))),
              4.0, 0.4);
}

// Otherwise whoever opens more sessions would get more.
TEST(StepTurns, ManySessionsOfOneIdentityGetNoMoreThanOne) {
  Bench bench(2);
  StepShare crowd(1), single(1);
  std::vector<int> many;
  for (int i = 0; i < 9; ++i) many.push_back(bench.AddSession(crowd, kMs));
  const int one = bench.AddSession(single, kMs);
  for (const int session : many) bench.Ask(session, 200);
  bench.Ask(one, 1000);
  bench.Run(600);
  uint64_t of_crowd = 0;
  for (const int session : many) {
    of_crowd += bench.ran_ns(session);
    EXPECT_NEAR(bench.steps(session), 300.0 / 9, 2);
  }
  EXPECT_NEAR(Ratio(of_crowd, bench.ran_ns(one)), 1.0, 0.05);
}

// Steps that go along in another one's replay are not paid for, so that accounts stay level: who
// cannot go along once, a long prompt for instance, waits for a turn and not for a debt.
TEST(StepTurns, WhoeverGoesAlongOwesNothing) {
  StepTurns turns;
  StepShare shares[2];
  StepQueue queues[3] = {StepQueue(shares[0]), StepQueue(shares[0]), StepQueue(shares[1])};
  std::deque<Job> jobs;
  const auto ask = [&](StepQueue& queue) {
    Job& job = jobs.emplace_back();
    job.request.num_steps = 1;
    turns.Add(&job, queue);
  };
  std::vector<StepJob*> joint;
  const auto everyone = [](const StepJob&) { return true; };
  for (StepQueue& queue : queues) ask(queue);
  for (int i = 0; i < 1000; ++i) {
    turns.ListJoint(turns.Next(), 8, everyone, &joint);
    ASSERT_EQ(joint.size(), 3u);
    for (StepJob* job : joint) {
      job == joint[0] ? turns.TakeTurn(*job) : turns.TakeAlong(*job);
      StepTurns::NoteSubmitted(*job);
    }
    for (StepQueue& queue : queues) ask(queue);
    for (StepJob* job : joint) turns.NoteServed(*job, 1, kMs);
  }
  EXPECT_LE(turns.Look(0).served_spread_ns, 2 * kMs);
  // Every session has its turn within as many.
  std::vector<StepJob*> order;
  for (int i = 0; i < 3; ++i) {
    StepJob* job = turns.TakeNext();
    StepTurns::NoteSubmitted(*job);
    turns.NoteServed(*job, 1, kMs);
    order.push_back(job);
  }
  EXPECT_EQ(turns.Next(), nullptr);
}

TEST(StepTurns, OnlyJobsOfOnePriorityGoTogetherAndThoseWhoseTurnIsSooner) {
  StepTurns turns;
  StepShare low(1, 0), high(1, 3);
  StepQueue lowest(low);
  std::deque<StepQueue> queues;
  std::deque<Job> jobs;
  const auto add = [&](StepQueue& queue) {
    Job& job = jobs.emplace_back();
    job.request.num_steps = 1;
    job.times.converted_ns = jobs.size();
    job.session = static_cast<int>(jobs.size());
    turns.Add(&job, queue);
  };
  add(lowest);
  for (int i = 0; i < 5; ++i) add(queues.emplace_back(high));
  std::vector<StepJob*> joint;
  turns.ListJoint(
      turns.Next(), 3, [](const StepJob&) { return true; }, &joint);
  std::vector<int> sessions;
  for (const StepJob* job : joint) sessions.push_back(static_cast<const Job*>(job)->session);
  EXPECT_EQ(sessions, (std::vector<int>{2, 3, 4}));
  turns.ListJoint(
      turns.Next(), 3,
      [](const StepJob& job) { return static_cast<const Job&>(job).session % 2 == 0; }, &joint);
  sessions.clear();
  for (const StepJob* job : joint) sessions.push_back(static_cast<const Job*>(job)->session);
  EXPECT_EQ(sessions, (std::vector<int>{2, 4, 6}));
}

TEST(StepTurns, AHigherPriorityGoesFirstAlways) {
  Bench bench(1);
  StepShare low(100, 0), high(1, 9);
  const int waits = bench.AddSession(low, kMs);
  const int goes = bench.AddSession(high, kMs);
  bench.Ask(waits, 50);
  bench.Run(10);
  bench.Ask(goes, 30);
  EXPECT_EQ(bench.Run(30), std::vector<int>(30, goes));
  EXPECT_EQ(bench.Run(5), std::vector<int>(5, waits));
}

// What one of another priority has had in the meantime takes nothing from those of its own.
TEST(StepTurns, PrioritiesHaveTimesOfTheirOwn) {
  Bench bench(1);
  StepShare high(1, 1), one(1, 0), two(1, 0);
  const int a = bench.AddSession(high, kMs);
  const int b = bench.AddSession(one, kMs);
  const int c = bench.AddSession(two, kMs);
  bench.Ask(a, 500);
  bench.Ask(b, 200);
  bench.Run(500);
  bench.Ask(c, 200);
  bench.Run(200);
  EXPECT_NEAR(bench.steps(b), 100, 2);
  EXPECT_NEAR(bench.steps(c), 100, 2);
}

TEST(StepTurns, HavingAskedForNothingGivesNoClaim) {
  Bench bench(1);
  StepShare busy(1), idle(1);
  const int a = bench.AddSession(busy, kMs);
  const int b = bench.AddSession(idle, kMs);
  bench.Ask(a, 2000);
  bench.Ask(b, 1);
  bench.Run(500);
  bench.Ask(b, 1000);
  const int before = bench.steps(a);
  bench.Run(100);
  EXPECT_NEAR(bench.steps(a) - before, 50, 2);
}

TEST(StepTurns, StepsOfASessionKeepTheirOrderAndCanBeTakenBack) {
  Bench bench(1);
  StepShare share;
  const int a = bench.AddSession(share, kMs);
  const int b = bench.AddSession(share, kMs);
  bench.Ask(a, 3);
  bench.Ask(b, 2);
  int taken = 0;
  while (bench.turns().Take(bench.queue(a)) != nullptr) ++taken;
  EXPECT_EQ(taken, 3);
  EXPECT_EQ(bench.Run(10), std::vector<int>({b, b}));
  EXPECT_EQ(bench.turns().TakeNext(), nullptr);
}

// A refusal costs what validating it takes, by weight.
TEST(StepTurns, RefusalsCount) {
  StepTurns turns;
  StepShare refused(1), fine(1);
  StepQueue first(refused), second(fine);
  Job a[2], b[2];
  for (Job& job : a) turns.Add(&job, first);
  StepJob* job = turns.TakeNext();
  EXPECT_EQ(job, &a[0]);
  StepTurns::NoteRefused(*job);
  for (Job& other : b) turns.Add(&other, second);
  EXPECT_EQ(turns.TakeNext(), &b[0]);
}

}  // namespace
}  // namespace reprise::service
