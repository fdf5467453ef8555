// SPDX-License-Identifier: Apache-2.0
// Tuning linear layers with made-up times: when a kernel is chosen, for which rows, and what is
// said of it. And on the host, where there is nothing to choose from.
#include "tools/tune/linear_tuner.h"

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/linear_table_text.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/linear/instances.h"
#include "runtime/device.h"
#include "tests/testing/status_matchers.h"
#include "tools/text_width.h"
#include "tools/tune/linear_timer.h"
#include "tools/tune/linear_tune_report.h"

namespace reprise::tools {
namespace {

using kernels::KernelFamily;
using kernels::KernelInstance;
using ::nlohmann::json;
using ::reprise::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const KernelInstance* Kernel(const KernelFamily& family, int tile) {
  for (const KernelInstance& instance : kernels::kLinearInstances)
    if (instance.family == &family && instance.tile == tile &&
        instance.activation == kernels::ElementFormat::kBf16)
      return &instance;
  return nullptr;
}
const KernelInstance* Stream8() { return Kernel(kernels::kLinearStream, 8); }
const KernelInstance* Stream16() { return Kernel(kernels::kLinearStream, 16); }
const KernelInstance* Group16() { return Kernel(kernels::kLinearGroup, 16); }
const KernelInstance* Group32() { return Kernel(kernels::kLinearGroup, 32); }

// A device that exists on paper. Built in: linear_stream to 16 rows, of 8 tokens to 8, then
// linear_group. Times are those of `ns`, more and less by `noise` in turn.
class FakeTimer : public LinearTimer {
 public:
  using TimeFn = std::function<double(size_t shape, uint32_t rows, const KernelInstance& kernel)>;
  explicit FakeTimer(TimeFn ns, double noise = 0.0) : ns_(std::move(ns)), noise_(noise) {}

  absl::StatusOr<const KernelInstance*> BuiltIn(size_t, uint32_t rows) override {
    return rows <= 8 ? Stream8() : rows <= 16 ? Stream16() : Group32();
  }
  absl::StatusOr<std::vector<const KernelInstance*>> Rivals(size_t shape, uint32_t rows) override {
    std::vector<const KernelInstance*> rivals;
    if (shape == kAlone) return rivals;
    for (const KernelInstance* const kernel : {Stream8(), Stream16(), Group16(), Group32()})
      if (kernel != *BuiltIn(shape, rows)) rivals.push_back(kernel);
    return rivals;
  }
  absl::StatusOr<double> Time(size_t shape, uint32_t rows, const KernelInstance& kernel) override {
    order_.push_back(&kernel);
    const size_t asked = asked_[{shape, rows, &kernel}]++;
    if (asked == 0) return 1e9;  // the first replay of a graph
    return ns_(shape, rows, kernel) * (1 + (asked % 2 == 0 ? noise_ : -noise_));
  }
  void Finish() override { ++finished_; }

  static constexpr size_t kAlone = 2;
  size_t asked(size_t shape, uint32_t rows, const KernelInstance* kernel) const {
    const auto found = asked_.find({shape, rows, kernel});
    return found == asked_.end() ? 0 : found->second;
  }
  const std::vector<const KernelInstance*>& order() const { return order_; }
  size_t finished() const { return finished_; }

 private:
  const TimeFn ns_;
  const double noise_;
  std::map<std::tuple<size_t, uint32_t, const KernelInstance*>, size_t> asked_;
  std::vector<const KernelInstance*> order_;
  size_t finished_ = 0;
};

const std::vector<LinearShape>& Shapes() {
  static const std::vector<LinearShape> shapes = {
      {.name = "o", .out_features = 4096, .in_features = 4096, .per_step = 32},
      {.name = "down", .out_features = 4096, .in_features = 14336, .per_step = 32},
      {.name = "odd", .out_features = 48, .in_features = 20}};
  return shapes;
}

absl::StatusOr<TunedLinear> Tune(FakeTimer* timer, std::vector<uint32_t> rows,
                                 size_t num_shapes = 1, LinearTunerOptions options = {}) {
  return TuneLinear(num_shapes, std::move(rows), options, timer,
                    [](const LinearTuneProgress&) { return absl::OkStatus(); });
}

// One kernel takes so much, all others a microsecond.
FakeTimer::TimeFn Only(const KernelInstance* fast, double ns) {
  return [fast, ns](size_t, uint32_t, const KernelInstance& kernel) {
    return &kernel == fast ? ns : 1000.0;
  };
}

TEST(LinearTuner, ChoosesAKernelThatIsFasterByMoreThanTheSpread) {
  FakeTimer timer(Only(Group16(), 900), 0.02);  // a spread of 40 ns, a gain of 100
  ASSERT_OK_AND_ASSIGN(const TunedLinear tuned, Tune(&timer, {16}));
  ASSERT_EQ(tuned.cells.size(), 1u);
  const LinearTuneCell& cell = tuned.cells[0];
  EXPECT_EQ(cell.built_in().kernel, Stream16());
  EXPECT_EQ(cell.best().kernel, Group16());
  EXPECT_NEAR(cell.Gain(), 0.1, 0.03);
  EXPECT_EQ(timer.finished(), 1u);
}

TEST(LinearTuner, KeepsTheBuiltInChoiceWithinTheSpread) {
  FakeTimer timer(Only(Group16(), 950), 0.04);  // a spread of 80 ns, a gain of 50
  ASSERT_OK_AND_ASSIGN(const TunedLinear tuned, Tune(&timer, {16}));
  EXPECT_EQ(tuned.cells[0].chosen, 0u);
  EXPECT_THAT(tuned.TableOf(Shapes()), IsEmpty());
}

// One whose own times are all over the place wins nothing either.
TEST(LinearTuner, KeepsItWhereTheRivalsSpreadIsTheWiderOne) {
  size_t turn = 0;
  FakeTimer timer([&turn](size_t, uint32_t, const KernelInstance& kernel) {
    if (&kernel != Group16()) return 1000.0;
    return turn++ % 2 == 0 ? 700.0 : 1100.0;
  });
  ASSERT_OK_AND_ASSIGN(const TunedLinear tuned, Tune(&timer, {16}));
  EXPECT_EQ(tuned.cells[0].chosen, 0u);
}

TEST(LinearTuner, OneReplayDecidesNothing) {
  FakeTimer timer(Only(Group16(), 500));
  ASSERT_OK_AND_ASSIGN(const TunedLinear tuned, Tune(&timer, {16}, 1, {.rounds = 1, .replays = 1}));
  EXPECT_EQ(tuned.cells[0].chosen, 0u);
}

TEST(LinearTuner, ASlowerKernelIsNeverChosen) {
  FakeTimer timer(Only(Group16(), 1100));
  ASSERT_OK_AND_ASSIGN(const TunedLinear tuned, Tune(&timer, {1, 16, 64}));
  for (const LinearTuneCell& cell : tuned.cells) EXPECT_EQ(cell.chosen, 0u);
}

// A range is that of the built-in choice that was beaten: below it there is another one, whose norm
// and sum a rival might not do.
TEST(LinearTuner, ARangeEndsWhereTheBuiltInChoiceChanges) {
  FakeTimer timer(Only(Group16(), 500));
  ASSERT_OK_AND_ASSIGN(const TunedLinear tuned, Tune(&timer, {16, 4, 64, 20, 4}));
  ASSERT_EQ(tuned.cells.size(), 4u);
  const auto range = [&](size_t i) {
    return std::pair(tuned.cells[i].first_rows, tuned.cells[i].last_rows);
  };
  EXPECT_EQ(range(0), std::pair(1u, 4u));
  EXPECT_EQ(range(1), std::pair(9u, 16u));
  EXPECT_EQ(range(2), std::pair(17u, 20u));
  EXPECT_EQ(range(3), std::pair(21u, 64u));
}

TEST(LinearTuner, WritesATableThatIsReadBack) {
  FakeTimer timer([](size_t shape, uint32_t rows, const KernelInstance& kernel) {
    const bool fast = shape == 1 && rows == 16 && &kernel == Group16();
    return fast ? 800.0 : 1000.0;
  });
  ASSERT_OK_AND_ASSIGN(const TunedLinear tuned, Tune(&timer, {8, 16, 32}, 3));
  const kernels::LinearTable table = tuned.TableOf(Shapes());
  EXPECT_THAT(table, ElementsAre(kernels::LinearTableEntry{.out_features = 4096,
                                                           .in_features = 14336,
                                                           .first_rows = 9,
                                                           .last_rows = 16,
                                                           .kernel = Group16()}));
  const std::string text = engine::LinearTableText({.device = "paper", .table = table});
  ASSERT_OK_AND_ASSIGN(const engine::NamedLinearTable read, engine::ParseLinearTable(text));
  EXPECT_EQ(read.table, table);
}

// Every kernel in every round, each time in another order; those without a chance in the first.
TEST(LinearTuner, MeasuresByTurnsInRandomOrder) {
  FakeTimer timer([](size_t, uint32_t, const KernelInstance& kernel) {
    return &kernel == Group32() ? 5000.0 : 1000.0;
  });
  const LinearTunerOptions options{.rounds = 6, .replays = 3};
  ASSERT_OK(Tune(&timer, {16}, 1, options));
  for (const KernelInstance* const kernel : {Stream8(), Stream16(), Group16()})
    EXPECT_EQ(timer.asked(0, 16, kernel), 1u + 6 * 3);
  EXPECT_EQ(timer.asked(0, 16, Group32()), 1u + 3);
  // Orders of the rounds behind the first, of three kernels each.
  std::set<std::vector<const KernelInstance*>> orders;
  for (size_t at = 4 + 4 * 3; at + 9 <= timer.order().size(); at += 9)
    orders.insert({timer.order()[at], timer.order()[at + 3], timer.order()[at + 6]});
  EXPECT_GT(orders.size(), 1u);
}

TEST(LinearTuner, DoesNotMeasureWhatHasNoRival) {
  FakeTimer timer(Only(Group16(), 500));
  ASSERT_OK_AND_ASSIGN(const TunedLinear tuned, Tune(&timer, {1, 16}, 3));
  EXPECT_EQ(timer.asked(FakeTimer::kAlone, 16, Stream16()), 0u);
  const std::string text = LinearTuneText(tuned, Shapes(), "paper", kNoWidth);
  EXPECT_THAT(text, HasSubstr("chosen: 4 of 4 cells"));
  EXPECT_THAT(text, HasSubstr("; 2 more have the built-in choice alone"));
}

TEST(LinearTuner, EndsWhereItIsStopped) {
  FakeTimer timer(Only(Group16(), 500));
  size_t rounds = 0;
  const auto stopped = TuneLinear(2, {16, 32}, {}, &timer, [&](const LinearTuneProgress& at) {
    EXPECT_EQ(at.total, 4u);
    return ++rounds < 7 ? absl::OkStatus() : absl::CancelledError("enough");
  });
  EXPECT_THAT(stopped, StatusIs(absl::StatusCode::kCancelled, "enough"));
}

TEST(LinearTuneReport, SaysWhatWasMeasuredAndChosen) {
  FakeTimer timer(Only(Group16(), 800), 0.01);
  ASSERT_OK_AND_ASSIGN(const TunedLinear tuned, Tune(&timer, {8, 16}, 2));
  const json notes = LinearTuneNotes(tuned, Shapes(), {{"command", "tune linear"}},
                                     {{"driver", "1.2"}}, {{"rows", {8, 16}}});
  EXPECT_EQ(notes["made_by"]["command"], "tune linear");
  EXPECT_EQ(notes["device"]["driver"], "1.2");
  EXPECT_EQ(notes["settings"]["rows"][1], 16);
  ASSERT_EQ(notes["measured"].size(), 4u);
  const json& down = notes["measured"][3];
  EXPECT_EQ(down["layer"], "down");
  EXPECT_EQ(down["in_features"], 14336);
  EXPECT_EQ(down["rows"], 16);
  EXPECT_EQ(down["built_in"], "reprise_linear_stream_bf16_16");
  EXPECT_EQ(down["chosen"], "reprise_linear_group_bf16_16");
  ASSERT_EQ(down["kernels"].size(), 4u);
  EXPECT_EQ(down["kernels"][0]["kernel"], down["built_in"]);
  EXPECT_EQ(down["kernels"][0]["replays"], 25);
  EXPECT_NEAR(down["kernels"][0]["us"].get<double>(), 1.0, 0.011);
  EXPECT_NEAR(down["kernels"][0]["spread_us"].get<double>(), 0.02, 0.001);
  const std::string text = LinearTuneText(tuned, Shapes(), "paper", kNoWidth);
  EXPECT_THAT(text, HasSubstr("down 4096x14336"));
  EXPECT_THAT(text, HasSubstr("9 to 16"));
  EXPECT_THAT(text, HasSubstr("reprise_linear_group_bf16_16\n"));
  EXPECT_EQ(LinearTuneWarning(tuned), "");
}

TEST(LinearTuneReport, WarnsOfTimesThatAreAllOverThePlace) {
  FakeTimer timer(Only(Group16(), 1000), 0.1);
  ASSERT_OK_AND_ASSIGN(const TunedLinear tuned, Tune(&timer, {16}));
  EXPECT_THAT(LinearTuneWarning(tuned), HasSubstr("replays of one kernel differ by "));
}

// The host has one kernel of each format: it says so, and takes no memory for weights.
TEST(LinearTuner, TheHostHasNothingToChooseFrom) {
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<runtime::Device> device,
                       runtime::Device::Create({.kind = runtime::DeviceKind::kHost}));
  const std::vector<LinearShape> shapes = {
      {.name = "vast", .out_features = 1 << 24, .in_features = 1 << 24}};
  ASSERT_OK_AND_ASSIGN(
      const auto timer,
      BenchLinearTimer::Create(*device, shapes, LinearCandidates()[0], {.rows = {1, 8}}));
  ASSERT_OK_AND_ASSIGN(const TunedLinear tuned,
                       TuneLinear(1, {1, 8}, {}, timer.get(),
                                  [](const LinearTuneProgress&) { return absl::OkStatus(); }));
  EXPECT_THAT(tuned.TableOf(shapes), IsEmpty());
  const std::string text = LinearTuneText(tuned, shapes, "a CPU", kNoWidth);
  EXPECT_THAT(text, HasSubstr("nothing to choose from: on a CPU no kernel but the built-in choice, "
                              "reprise_linear_native_bf16, has its bits; nothing was measured, and "
                              "the table has no entries"));
  EXPECT_THAT(LinearTuneNotes(tuned, shapes, {}, {}, {})["measured"], IsEmpty());
  EXPECT_EQ(LinearTuneWarning(tuned), "");
}

// Real kernels, by tables of one entry each.
TEST(LinearTuner, TimesEveryKernelOfAGpu) {
  std::string why;
  if (runtime::CountCudaDevices(&why) == 0) GTEST_SKIP() << why;
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<runtime::Device> device,
                       runtime::Device::Create({.kind = runtime::DeviceKind::kCuda}));
  const std::vector<LinearShape> shapes = {
      {.name = "o", .out_features = 1024, .in_features = 1024}};
  for (const LinearCandidateEntry& candidate : LinearCandidates()) {
    if (candidate.name == "portable") continue;
    ASSERT_OK_AND_ASSIGN(
        const auto timer,
        BenchLinearTimer::Create(*device, shapes, candidate,
                                 {.rows = {4, 32}, .calls = 4, .pool_bytes = 8 << 20}));
    ASSERT_OK_AND_ASSIGN(const TunedLinear tuned,
                         TuneLinear(1, {4, 32}, {.rounds = 2, .replays = 3}, timer.get(),
                                    [](const LinearTuneProgress&) { return absl::OkStatus(); }));
    for (const LinearTuneCell& cell : tuned.cells) {
      EXPECT_GT(cell.kernels.size(), 1u);
      for (const LinearKernelTimes& times : cell.kernels) EXPECT_GT(times.MedianNs(), 0);
    }
  }
}

}  // namespace
}  // namespace reprise::tools
