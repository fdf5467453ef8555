// SPDX-License-Identifier: Apache-2.0
// The parts of `reprise bench attention` by themselves: candidates, the check against the
// reference, what is measured, charts.
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/kernel_test.h"
#include "tests/testing/status_codes.h"
#include "tests/testing/status_matchers.h"
#include "tools/bench/attention_bench.h"
#include "tools/bench/bench_report.h"
#include "tools/bench/candidates.h"
#include "tools/bench/svg_chart.h"

namespace reprise::tools {
namespace {

using ::reprise::testing::StatusIs;
using ::testing::HasSubstr;
using ::testing::Not;

using ::reprise::testing::kInvalid;

TEST(Candidates, AreFoundByNameAndSuggested) {
  ASSERT_OK_AND_ASSIGN(const auto both, ParseCandidates("portable,best"));
  ASSERT_EQ(both.size(), 2u);
  EXPECT_EQ(both[0]->name, "portable");
  EXPECT_EQ(both[1]->name, "best");
  EXPECT_THAT(ParseCandidates("potable"),
              StatusIs(kInvalid,
                       "candidate: got \"potable\"; did you mean \"portable\"? allowed: "
                       "best, alone, splits, portable, naive, "));
  EXPECT_THAT(ParseCandidates("best,"),
              StatusIs(kInvalid, "got \"\", allowed: best, alone, splits, portable, naive, "));
  EXPECT_THAT(ParseCandidates("best,best"), StatusIs(kInvalid, "got \"best\" twice"));
}

TEST(Shapes, RefusesHeadsThatCannotBe) {
  EXPECT_OK(CheckShape({}));
  EXPECT_THAT(CheckShape({.num_heads = 5, .num_kv_heads = 2}),
              StatusIs(kInvalid, "heads: got 5, allowed: multiples of the KV heads, 2"));
  EXPECT_THAT(CheckShape({.num_heads = 1, .num_kv_heads = 2}), StatusIs(kInvalid, "heads: got 1"));
  EXPECT_THAT(CheckShape({.head_dim = 20}),
              StatusIs(kInvalid,
                       "head size: got 20, allowed: multiples of 8 (16 bytes of bf16) up "
                       "to 256"));
  EXPECT_THAT(CheckShape({.head_dim = 264}), StatusIs(kInvalid, "head size: got 264"));
  EXPECT_THAT(CheckShape({.block_size = 65536}),
              StatusIs(kInvalid, "block size: got 65536, allowed: 1 to 8192"));
}

AttentionShape SmallShape(runtime::DType dtype, uint32_t window = 0) {
  return {.model = "",
          .num_heads = 4,
          .num_kv_heads = 2,
          .head_dim = 16,
          .block_size = 4,
          .dtype = dtype,
          .window = window};
}

std::vector<BenchCell> SmallCells() {
  std::vector<BenchCell> cells = MakeCells({.rows = {1, 3},
                                            .contexts = {5, 90},
                                            .kinds = {BatchKind::kUniform, BatchKind::kSkewed},
                                            .decode_shares = {0, 50, 100},
                                            .chunk = 9});
  for (BenchCell& cell : MakeCells({.rows = {3},
                         .contexts = {90},
                         .decode_shares = {50, 100},
                         .chunk = 9,
                         .shared_tokens = 32}))
    cells.push_back(std::move(cell));
  return cells;
}

constexpr AttentionBenchOptions kSmallOptions = {
    .max_context = 128, .rounds = 1, .replays = 2, .pool_bytes = 1 << 20};

absl::StatusOr<std::unique_ptr<AttentionBench>> SmallBench(
    runtime::Device& device, const AttentionShape& shape,
    const AttentionBenchOptions& options = kSmallOptions) {
  std::vector<const AttentionCandidateEntry*> candidates;
  for (const AttentionCandidateEntry& entry : AttentionCandidates()) candidates.push_back(&entry);
  return AttentionBench::Create(device, shape, SmallCells(), candidates, options);
}

class BenchDType : public ::testing::TestWithParam<runtime::DType> {};
INSTANTIATE_TEST_SUITE_P(Every, BenchDType,
                         ::testing::Values(runtime::DType::kF32, runtime::DType::kBf16,
                                           runtime::DType::kF16),
                         [](const auto& info) { return std::string(NameOf(info.param)); });

TEST_P(BenchDType, EveryCandidateMatchesTheReferenceInEveryCell) {
  ASSERT_OK_AND_ASSIGN(const auto device, runtime::Device::Create({}));
  for (const uint32_t window : {0u, 7u}) {
    ASSERT_OK_AND_ASSIGN(const auto bench, SmallBench(*device, SmallShape(GetParam(), window)));
    for (size_t cell = 0; cell < bench->cells().size(); ++cell) {
      CellTimes times;
      ASSERT_OK(bench->Check(cell, &times)) << bench->cells()[cell].name;
      for (const SubjectTimes& candidate : times.candidates) {
        EXPECT_GE(candidate.check->num_pairs, 2u);
        EXPECT_GT(candidate.check->worst, 0.0);
        EXPECT_LE(candidate.check->worst, candidate.check->allowed);
      }
    }
  }
}

TEST(Candidates, TakeKvOfEightBitsAsTheirTableSays) {
  ASSERT_OK_AND_ASSIGN(const auto device, runtime::Device::Create({}));
  AttentionShape shape = SmallShape(runtime::DType::kBf16);
  shape.kv_format = runtime::DType::kE4m3;
  const std::vector<BenchCell> cells =
      MakeCells({.rows = {3}, .contexts = {90}, .decode_shares = {50}, .chunk = 9});
  for (const AttentionCandidateEntry& entry : AttentionCandidates()) {
    ASSERT_OK_AND_ASSIGN(const auto bench,
                         AttentionBench::Create(*device, shape, cells, {&entry}, kSmallOptions));
    CellTimes times;
    const absl::Status checked = bench->Check(0, &times);
    if (entry.takes_fp8) {
      EXPECT_OK(checked) << entry.name;
    } else {
      EXPECT_THAT(checked, StatusIs(absl::StatusCode::kUnimplemented, "KV is fp8_e4m3"))
          << entry.name;
    }
  }
}

// Where a device reads shared tokens once.
TEST(SharedPrefix, MatchesTheReferenceInTilesAndAlone) {
  auto device = testing::MakeTestDevice(
      {.dtype = runtime::DType::kBf16, .emulated = runtime::MatrixUnit::kMma});
  if (!device.ok()) GTEST_SKIP() << device.status().message();
  const AttentionShape shape{.num_heads = 8, .num_kv_heads = 2, .head_dim = 64};
  const std::vector<BenchCell> cells =
      MakeCells({.rows = {3, 10}, .contexts = {150}, .shared_tokens = 128});
  ASSERT_OK_AND_ASSIGN(const auto candidates, ParseCandidates("best,alone"));
  ASSERT_OK_AND_ASSIGN(
      const auto bench,
      AttentionBench::Create(
          **device, shape, cells, candidates,
          {.max_context = 160, .rounds = 1, .replays = 1, .calls = 1, .pool_bytes = 1 << 20}));
  for (size_t cell = 0; cell < cells.size(); ++cell) {
    CellTimes times;
    ASSERT_OK(bench->Check(cell, &times));
    EXPECT_NE(times.candidates[0].check->worst, times.candidates[1].check->worst)
        << "tiles round otherwise";
  }
}

// Attention over half of the tokens that there are.
absl::Status ForgetfulAttention(const AttentionCall& call) {
  kernels::AttentionArgs args = call.attention;
  args.scale *= 0.5f;
  const AttentionCall other{.stream = call.stream,
                            .kernels = call.kernels,
                            .plan = call.plan,
                            .attention = args,
                            .mixed = call.mixed};
  return AttentionCandidates()[1].enqueue_attention(other);
}

TEST(ReferenceCheck, FindsACandidateThatIsWrong) {
  ASSERT_OK_AND_ASSIGN(const auto device, runtime::Device::Create({}));
  AttentionCandidateEntry wrong = AttentionCandidates()[1];
  wrong.name = "wrong";
  wrong.enqueue_attention = ForgetfulAttention;
  ASSERT_OK_AND_ASSIGN(const auto bench,
                       AttentionBench::Create(*device, SmallShape(runtime::DType::kBf16),
                                              SmallCells(), {&wrong}, kSmallOptions));
  CellTimes times;
  EXPECT_THAT(bench->Check(1, &times),
              StatusIs(absl::StatusCode::kInternal, "check: \"wrong\" in cell \"b1 x 90, 0 % "));
  EXPECT_TRUE(times.candidates.empty());  // as it was
}

// A candidate that writes nothing leaves what the check put there, which is no number.
TEST(ReferenceCheck, FindsACandidateThatWritesNothing) {
  ASSERT_OK_AND_ASSIGN(const auto device, runtime::Device::Create({}));
  AttentionCandidateEntry idle = AttentionCandidates()[1];
  idle.enqueue_attention = [](const AttentionCall&) { return absl::OkStatus(); };
  ASSERT_OK_AND_ASSIGN(const auto bench,
                       AttentionBench::Create(*device, SmallShape(runtime::DType::kF32),
                                              SmallCells(), {&idle}, kSmallOptions));
  CellTimes times;
  EXPECT_THAT(bench->Check(0, &times), StatusIs(absl::StatusCode::kInternal, "got nan"));
}

TEST(AttentionBench, MeasuresFloorCandidatesAndPlans) {
  ASSERT_OK_AND_ASSIGN(const auto device, runtime::Device::Create({}));
  ASSERT_OK_AND_ASSIGN(const auto bench, SmallBench(*device, SmallShape(runtime::DType::kBf16)));
  CellTimes times;
  uint32_t replays = 0;
  const auto measured = [&](uint32_t more) {
    replays += more;
    return absl::OkStatus();
  };
  ASSERT_OK(bench->Measure(3, measured, &times));
  ASSERT_OK(bench->Measure(3, measured, &times));
  const BenchCell& cell = bench->cells()[3];
  EXPECT_EQ(replays, 4u);
  EXPECT_EQ(times.kv_bytes, cell.SeenTokens(0) * 2 * 2 * 16 * 2);
  EXPECT_GT(times.calls, 1u);
  EXPECT_EQ(times.floor.call_ns.count(), 4u);
  EXPECT_EQ(times.floor.round_ns.count(), 2u);
  EXPECT_TRUE(times.floor.Spread().has_value());
  EXPECT_TRUE(times.floor.plan_ns.empty());
  ASSERT_EQ(times.candidates.size(), AttentionCandidates().size());
  for (const SubjectTimes& candidate : times.candidates) {
    EXPECT_EQ(candidate.call_ns.count(), 4u);
    EXPECT_GT(candidate.plan_ns.Percentile(50), 0.0);
    EXPECT_GT(times.BytesPerSecond(candidate), 0.0);
    EXPECT_FALSE(candidate.check.has_value());
  }
}

// Rows of 20 tokens or more in a leaf of their own.
constexpr char kSmallTree[] = R"({
  "schema": "reprise-attention-tree/1",
  "rows": {"ask": "visible_tokens", "below": 20,
           "then": {"leaf": "short", "min_split_tokens": 64},
           "else": {"leaf": "long", "min_split_tokens": 16, "split_multiple": 16}},
  "batch": {"ask": "batch_rows", "below": 2, "then": {"leaf": "one"}, "else": {"leaf": "many"}}
})";

TEST(AttentionBench, FindsTheLeavesThatACellComesTo) {
  ASSERT_OK_AND_ASSIGN(const auto device, runtime::Device::Create({}));
  ASSERT_OK_AND_ASSIGN(const auto tree, engine::ParseAttentionTree(kSmallTree));
  const std::vector<BenchCell> cells = {{.name = "one", .rows = {{4, 1}}},
                                        {.name = "three", .rows = {{90, 1}, {18, 1}, {19, 1}}}};
  ASSERT_OK_AND_ASSIGN(const auto bench, AttentionBench::Create(
                                             *device, SmallShape(runtime::DType::kBf16), cells,
                                             {&AttentionCandidates()[0], &AttentionCandidates()[2]},
                                             kSmallOptions, tree));
  EXPECT_EQ(bench->tree().row_leaves, tree.row_leaves);
  CellTimes one, three;
  ASSERT_OK(bench->Check(0, &one));
  ASSERT_OK(bench->Check(1, &three));
  EXPECT_EQ(one.leaves, (TakenLeaves{.batch = 0, .rows = {1, 0}}));
  EXPECT_EQ(three.leaves, (TakenLeaves{.batch = 1, .rows = {1, 2}}));
}

TEST(AttentionBench, RefusesTreesThatAreNotForThisDeviceOrShape) {
  ASSERT_OK_AND_ASSIGN(const auto device, runtime::Device::Create({}));
  const auto create = [&](const engine::NamedAttentionTree& tree) {
    return AttentionBench::Create(*device, SmallShape(runtime::DType::kF32), SmallCells(),
                                  {&AttentionCandidates()[0]}, kSmallOptions, tree)
        .status();
  };
  engine::NamedAttentionTree tree;
  tree.device = "another";
  EXPECT_THAT(create(tree),
              StatusIs(absl::StatusCode::kFailedPrecondition, "made for device 'another', got '"));
  tree.device.reset();
  tree.head_dim = 128;
  EXPECT_THAT(create(tree),
              StatusIs(absl::StatusCode::kFailedPrecondition, "made for head_dim 128, got 16"));
  tree.head_dim.reset();
  tree.tree.batch.leaves[0].shares = 4;
  EXPECT_THAT(create(tree), StatusIs(kInvalid, "batch: leaf \"default\": shares is 4"));
}

TEST(AttentionBench, AnInterruptedRoundLeavesTheOnesBefore) {
  ASSERT_OK_AND_ASSIGN(const auto device, runtime::Device::Create({}));
  ASSERT_OK_AND_ASSIGN(const auto bench, SmallBench(*device, SmallShape(runtime::DType::kF32)));
  CellTimes times;
  ASSERT_OK(bench->Measure(
      0, [](uint32_t) { return absl::OkStatus(); }, &times));
  const auto stop = [](uint32_t) { return absl::CancelledError("enough"); };
  EXPECT_THAT(bench->Measure(0, stop, &times), StatusIs(absl::StatusCode::kCancelled, "enough"));
  EXPECT_THAT(bench->Sustain(0, 60, nullptr, stop, &times),
              StatusIs(absl::StatusCode::kCancelled, "enough"));
  EXPECT_EQ(times.floor.round_ns.count(), 1u);
  EXPECT_FALSE(times.floor.sustained.has_value());
}

TEST(AttentionBench, RunsBackToBackForAsLongAsItIsTold) {
  ASSERT_OK_AND_ASSIGN(const auto device, runtime::Device::Create({}));
  ASSERT_OK_AND_ASSIGN(const auto bench, SmallBench(*device, SmallShape(runtime::DType::kF32)));
  CellTimes times;
  ASSERT_OK(bench->Sustain(
      0, 0.02, nullptr, [](uint32_t) { return absl::OkStatus(); }, &times));
  for (const SubjectTimes* subject : {&times.floor, &times.candidates[0], &times.candidates[1]}) {
    ASSERT_TRUE(subject->sustained.has_value());
    EXPECT_GE(subject->sustained->seconds, 0.02);
    EXPECT_GT(subject->sustained->call_ns.Percentile(50), 0.0);
    EXPECT_TRUE(subject->sustained->power_w.empty());
  }
}

TEST(AttentionBench, RefusesPoolsThatDoNotFit) {
  ASSERT_OK_AND_ASSIGN(const auto device, runtime::Device::Create({}));
  AttentionBenchOptions options = kSmallOptions;
  options.pool_bytes = uint64_t{1} << 40;
  options.calls = 1u << 31;
  EXPECT_THAT(SmallBench(*device, SmallShape(runtime::DType::kF32), options),
              StatusIs(absl::StatusCode::kResourceExhausted, "memory: the cells need "));
}

TEST(Pages, LieSoFarApartThatCallsReadThePool) {
  const AttentionShape shape = SmallShape(runtime::DType::kF32);  // pages of 1 KiB
  const auto cells = MakeCells({.rows = {2}, .contexts = {40}});  // 20 pages
  EXPECT_EQ(shape.PageBytes(), 1024u);
  EXPECT_EQ(PageSpacing(cells[0], shape, 1 << 20, 512), 52u);
  EXPECT_EQ(PageSpacing(cells[0], shape, 1 << 20, 8), 8u);
  EXPECT_EQ(PageSpacing(cells[0], shape, 1, 512), 1u);
  const auto limits = BufferLimits::For(cells, shape, 128, 1 << 20, 512);
  EXPECT_EQ(limits.max_pages, 20u);
  EXPECT_EQ(limits.pool_pages, 20 * 52 + 512u);
}

Chart SmallChart() {
  return {.title = "a < b & \"c\"",
          .subtitle = "on one",
          .categories = {"b1 x 128", "<4k>"},
          .panels = {{.axis = "us",
                      .log = true,
                      .series = {{.name = "floor", .values = {2.3, 461}, .dashed = true},
                                 {.name = "best", .values = {6.3, NAN}}}},
                     {.axis = "GB/s", .series = {{.name = "floor", .values = {228, 4660}}}}}};
}

TEST(SvgChart, ShowsSeriesAxesAndLegendAndEscapesText) {
  const std::string svg = ToSvg(SmallChart());
  EXPECT_THAT(svg, HasSubstr("a &lt; b &amp; &quot;c&quot;"));
  EXPECT_THAT(svg, HasSubstr(">&lt;4k&gt;</text>"));
  EXPECT_THAT(svg, Not(HasSubstr("<4k>")));
  EXPECT_THAT(svg, HasSubstr("stroke-dasharray"));
  EXPECT_THAT(svg, HasSubstr(">best</text>"));
  EXPECT_THAT(svg, HasSubstr("<title>floor, b1 x 128: 2.3</title>"));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_THAT(svg, Not(HasSubstr("inf")));
  // Marks of the logarithmic axis from 2 to 500, of the linear one to 5,000.
  for (const char* mark : {">2</text>", ">10</text>", ">500</text>", ">4500</text>"})
    EXPECT_THAT(svg, HasSubstr(mark));
}

// There are fewer colours than candidates.
TEST(SvgChart, DrawsSeriesOfOneColourApart) {
  Chart chart{.categories = {"a"}, .panels = {{.axis = "us"}}};
  for (int i = 0; i < 9; ++i)
    chart.panels[0].series.push_back({.name = std::to_string(i), .values = {1.0 + i}});
  const std::string svg = ToSvg(chart);
  for (const char* style :
       {"fill=\"#0072b2\" stroke=\"#0072b2\"", "fill=\"#ffffff\" stroke=\"#0072b2\""})
    EXPECT_THAT(svg, HasSubstr(style));
  EXPECT_THAT(svg, Not(HasSubstr("fill=\"#ffffff\" stroke=\"#009e73\"")));
}

TEST(SvgChart, IsADocumentWithNothingToShow) {
  EXPECT_THAT(ToSvg({}), HasSubstr("</svg>"));
  EXPECT_THAT(
      ToSvg({.categories = {"a"},
             .panels = {{.axis = "us", .log = true, .series = {{.name = "x", .values = {0}}}}}}),
      HasSubstr("</svg>"));
}

TEST(SvgChart, LeavesOutWhatXmlCannotHold) {
  EXPECT_EQ(EscapeXml(std::string("a\x01\x1b[0mb\tc")), "a[0mb\tc");
}

}  // namespace
}  // namespace reprise::tools
