// SPDX-License-Identifier: Apache-2.0
// On the host device, and on an emulated one that deals rows.
#include "tools/tune/tree_timer.h"

#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/kernel_test.h"
#include "tests/testing/status_matchers.h"
#include "tools/tune/journal.h"
#include "tools/tune/tree_choices.h"

namespace reprise::tools {
namespace {

using kernels::AttentionTree;
using kernels::AttentionTreeLimits;
using ::reprise::testing::StatusIs;
using ::testing::IsEmpty;

class TimerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(device_, runtime::Device::Create({}));
    const AttentionShape shape{
        .num_heads = 4, .num_kv_heads = 2, .head_dim = 16, .dtype = runtime::DType::kF32};
    ASSERT_OK_AND_ASSIGN(
        bench_, AttentionBench::Create(
                    *device_, shape, MakeCells({.rows = {1, 3}, .contexts = {64, 256}}),
                    {&AttentionCandidates()[0]}, {.max_context = 256, .pool_bytes = 1 << 16}));
    trees_.resize(2);
    trees_[1].rows.leaves[0].split.min_split_tokens = 64;
    ASSERT_OK_AND_ASSIGN(journal_, Journal::Open("", {}));
  }
  std::unique_ptr<runtime::Device> device_;
  std::unique_ptr<AttentionBench> bench_;
  std::unique_ptr<Journal> journal_;
  std::vector<AttentionTree> trees_;
};

absl::Status GoOn() { return absl::OkStatus(); }

TEST_F(TimerTest, MeasuresEveryTreeOnceAndKeepsItInTheJournal) {
  BenchTreeTimer timer(bench_.get(), journal_.get(), 2, GoOn);
  ASSERT_OK_AND_ASSIGN(const TreeTimes times, timer.Time(3, trees_, 60, 0));
  ASSERT_EQ(times.ns.size(), 2u);
  EXPECT_GT(times.ns[0], 0.0);
  EXPECT_GT(times.seconds, 0.0);
  EXPECT_EQ(timer.num_measured(), 2u);
  ASSERT_OK_AND_ASSIGN(const TreeTimes again, timer.Time(3, trees_, 60, 0));
  EXPECT_EQ(again.ns, times.ns);
  EXPECT_EQ(timer.num_measured(), 2u);
  ASSERT_OK_AND_ASSIGN(const TreeTimes repeated, timer.Time(3, trees_, 60, 1));
  EXPECT_NE(repeated.ns, times.ns);
  EXPECT_EQ(timer.num_measured(), 4u);
  BenchTreeTimer later(bench_.get(), journal_.get(), 2, GoOn);
  ASSERT_OK_AND_ASSIGN(const TreeTimes read, later.Time(3, trees_, 0, 0));  // costs no time
  EXPECT_EQ(read.ns, times.ns);
  EXPECT_NEAR(read.seconds, times.seconds, 1e-9);
  EXPECT_EQ(later.num_measured(), 0u);
}

TEST_F(TimerTest, CapturesNoGraphForATree) {
  ASSERT_OK_AND_ASSIGN(const PreparedCell prepared, bench_->Prepare(1));
  const size_t graphs = bench_->num_graphs();
  ASSERT_OK(
      bench_->TimeTrees(prepared, trees_, 3, [](uint32_t) { return absl::OkStatus(); }).status());
  EXPECT_EQ(bench_->num_graphs(), graphs);
}

TEST_F(TimerTest, LeavesOutWhatWouldTakeTooLong) {
  BenchTreeTimer timer(bench_.get(), journal_.get(), 1000, GoOn);
  ASSERT_OK_AND_ASSIGN(const TreeTimes times, timer.Time(0, trees_, 1e-6, 0));
  EXPECT_THAT(times.ns, IsEmpty());
  EXPECT_GT(times.seconds, 0.0);  // it took to find out
  // A larger batch is not even looked at.
  ASSERT_OK_AND_ASSIGN(const TreeTimes larger, timer.Time(3, trees_, 1e-6, 0));
  EXPECT_THAT(larger.ns, IsEmpty());
  EXPECT_EQ(larger.seconds, 0.0);
  EXPECT_EQ(journal_->num_entries(), 0u);
}

TEST_F(TimerTest, StopsWhereItIsInterrupted) {
  int replays = 0;
  BenchTreeTimer timer(bench_.get(), journal_.get(), 5, [&] {
    return ++replays == 3 ? absl::CancelledError("enough") : absl::OkStatus();
  });
  EXPECT_THAT(timer.Time(0, trees_, 60, 0), StatusIs(absl::StatusCode::kCancelled, "enough"));
  EXPECT_EQ(journal_->num_entries(), 0u);
}

TEST(DealingDevice, TakesEveryCandidateAndComputesTheSame) {
  auto device = testing::MakeTestDevice(
      {.dtype = runtime::DType::kBf16, .emulated = runtime::MatrixUnit::kMma});
  if (!device.ok()) GTEST_SKIP() << "needs the emulator: " << device.status();
  const AttentionShape shape{.num_heads = 2, .num_kv_heads = 1, .head_dim = 64};
  const AttentionBenchOptions options{.max_context = 256, .calls = 1, .pool_bytes = 1 << 12};
  const std::vector<BenchCell> cells = {{.name = "x", .rows = {{199, 1}, {20, 1}, {70, 1}}}};
  engine::NamedAttentionTree tree;
  ASSERT_OK_AND_ASSIGN(
      const auto bench,
      AttentionBench::Create(**device, shape, cells, {&AttentionCandidates()[0]}, options));
  const AttentionTreeLimits limits = bench->tree_limits();
  if (limits.num_shares == 0) GTEST_SKIP() << "needs the bulk decode kernel";
  EXPECT_EQ(DealCandidates(limits).size(), 20u);
  std::vector<AttentionTree> trees;
  for (const kernels::BatchChoice& choice : DealCandidates(limits)) {
    trees.emplace_back().batch.leaves[0] = choice;
    EXPECT_OK(kernels::CheckAttentionTree(trees.back(), limits));
  }
  ASSERT_OK_AND_ASSIGN(const PreparedCell prepared, bench->Prepare(0));
  ASSERT_OK_AND_ASSIGN(const auto samples, bench->TimeTrees(prepared, trees, 1, [](uint32_t) {
    return absl::OkStatus();
  }));
  for (const Samples& of_tree : samples) EXPECT_EQ(of_tree.count(), 1u);
  for (const AttentionTree& candidate : trees) {
    tree.tree = candidate;
    ASSERT_OK_AND_ASSIGN(
        const auto other,
        AttentionBench::Create(**device, shape, cells, {&AttentionCandidates()[0]}, options, tree));
    CellTimes times;
    ASSERT_OK(other->Check(0, &times)) << NameOf(candidate.batch.leaves[0]);
  }
}

}  // namespace
}  // namespace reprise::tools
