// SPDX-License-Identifier: Apache-2.0
#include "service/answer_threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <set>
#include <thread>
#include <vector>

namespace reprise::service {
namespace {

TEST(AnswerThreads, AnswerEachOnce) {
  for (const size_t num_threads : {0, 1, 3}) {
    AnswerThreads threads(num_threads);
    for (int run = 0; run < 200; ++run) {
      const auto count = static_cast<size_t>(run % 20);
      std::vector<std::atomic<int>> answered(count);
      threads.Run(count, [&](size_t i) { ++answered.at(i); });
      for (const auto& of_one : answered) ASSERT_EQ(of_one, 1) << "run " << run;
    }
  }
}

// Four answers that wait for each other: one thread alone would wait for ever.
TEST(AnswerThreads, AnswerSideBySide) {
  AnswerThreads threads(3);
  for (int run = 0; run < 20; ++run) {
    std::latch all(4);
    threads.Run(4, [&](size_t) { all.arrive_and_wait(); });
  }
}

TEST(AnswerThreads, FewAreAnsweredByTheCallerInOrder) {
  AnswerThreads threads(3);
  std::vector<size_t> order;
  std::set<std::thread::id> by;
  threads.Run(3, [&](size_t i) {
    order.push_back(i);
    by.insert(std::this_thread::get_id());
  });
  EXPECT_EQ(order, (std::vector<size_t>{0, 1, 2}));
  EXPECT_EQ(by, std::set<std::thread::id>{std::this_thread::get_id()});
}

}  // namespace
}  // namespace reprise::service
