// SPDX-License-Identifier: Apache-2.0
// Advice on buckets: what it costs, what limits it, and the steps that it is verified with.
#include "tools/advise/advice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/testing/status_matchers.h"
#include "tools/advise/advice_report.h"
#include "tools/advise/step_sample.h"
#include "tools/text_width.h"

namespace reprise::tools {
namespace {

using nlohmann::json;
using ::reprise::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

TracedStep Decode(int64_t rows, double weight, double context = 0) {
  return {.rows = rows, .tokens = rows, .context = context, .weight = weight};
}
TracedStep Mixed(int64_t rows, int64_t tokens, double weight) {
  return {.rows = rows, .tokens = tokens, .weight = weight};
}

AdviceOptions Options() {
  return {.current = {.decode = {1, 2, 4, 8}, .mixed = {16, 64}},
          .decode_bytes = 10,
          .mixed_bytes = 30};
}

BatchTrace Trace() {
  return {.steps = {Decode(3, 10), Decode(5, 20), Decode(6, 1), Mixed(2, 20, 5), Mixed(2, 40, 1)}};
}

TEST(Advice, CountsPaddingWithoutAProfile) {
  ASSERT_OK_AND_ASSIGN(const Advice advice, Advise(Trace(), BucketCost(), Options()));
  EXPECT_EQ(advice.decode_steps, 31);
  EXPECT_EQ(advice.mixed_steps, 6);
  EXPECT_FALSE(advice.mean_context.has_value());
  ASSERT_THAT(advice.sets, SizeIs(3));
  EXPECT_EQ(advice.current().name, "current");
  EXPECT_DOUBLE_EQ(*advice.current().cost, (10 * 4 + 21 * 8 + 6 * 64) / 37.0);
  EXPECT_EQ(advice.current().bytes, 100);
  EXPECT_DOUBLE_EQ(advice.current().padding_share,
                   1 - (30 + 100 + 6 + 100 + 40) / (10 * 4 + 21 * 8 + 6 * 64.0));
  EXPECT_THAT(advice.sets[1].set.mixed, ElementsAre(1, 2, 4, 8, 16, 32, 64));
  // As many graphs as there are, the largest of each kind among them.
  EXPECT_THAT(advice.advised().set.decode, ElementsAre(3, 5, 8));
  EXPECT_THAT(advice.advised().set.mixed, ElementsAre(20, 40, 64));
  EXPECT_DOUBLE_EQ(*advice.advised().cost, (10 * 3 + 20 * 5 + 8 + 5 * 20 + 40) / 37.0);
  EXPECT_EQ(BucketFlags(advice.advised().set), "--decode-buckets 3,5,8 --mixed-buckets 20,40,64");
}

double ChangeInJson(const Advice& advice, const BucketCost& cost) {
  const json written = AdviceToJson({"a.csv"}, advice, cost, Options(), std::nullopt);
  return written["change_against_powers_of_two"].get<double>();
}

TEST(Advice, SaysWhatItGainsAgainstPowersOfTwo) {
  ASSERT_OK_AND_ASSIGN(const Advice advice, Advise(Trace(), BucketCost(), Options()));
  EXPECT_DOUBLE_EQ(*advice.powers_of_two().cost, (10 * 4 + 21 * 8 + 5 * 32 + 64) / 37.0);
  EXPECT_NEAR(ChangeInJson(advice, BucketCost()), 278 / 432.0 - 1, 1e-12);
  EXPECT_THAT(AdviceText(advice, BucketCost(), kNoWidth),
              HasSubstr("\nadvised against powers of two: -35.6 % a step\n"));
}

TEST(Advice, KeepsWithinGraphsAndBytes) {
  AdviceOptions options = Options();
  options.max_graphs = 3;
  ASSERT_OK_AND_ASSIGN(const Advice few, Advise(Trace(), BucketCost(), options));
  EXPECT_THAT(few.advised().set.decode, ElementsAre(8));
  EXPECT_THAT(few.advised().set.mixed, ElementsAre(20, 64));
  ASSERT_THAT(few.by_graphs, SizeIs(2));
  EXPECT_EQ(few.by_graphs[0].set.num_graphs(), 2u);
  // A mixed graph takes as much as three of decode steps.
  options.max_graphs = 0;
  options.max_bytes = 69;
  ASSERT_OK_AND_ASSIGN(const Advice small, Advise(Trace(), BucketCost(), options));
  EXPECT_THAT(small.advised().set.decode, ElementsAre(3, 5, 8));
  EXPECT_THAT(small.advised().set.mixed, ElementsAre(64));
  EXPECT_EQ(small.advised().bytes, 60);
  options.max_bytes = 39;
  EXPECT_THAT(Advise(Trace(), BucketCost(), options),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       "graphs: got at most 6 (--max-graphs) and 39 bytes (--memory), allowed: at "
                       "least 2 of 40 bytes, for the largest bucket of each kind"));
  options.max_bytes.reset();
  options.max_graphs = 1;
  const absl::Status too_few = Advise(Trace(), BucketCost(), options).status();
  EXPECT_EQ(too_few.message(),
            "graphs: got at most 1 (--max-graphs), allowed: at least 2, for the largest bucket of "
            "each kind and those that stay as they are");
}

TEST(Advice, TakesNoGraphThatSavesNothing) {
  AdviceOptions options = Options();
  options.max_graphs = 100;
  ASSERT_OK_AND_ASSIGN(const Advice advice, Advise(Trace(), BucketCost(), options));
  EXPECT_THAT(advice.advised().set.decode, ElementsAre(3, 5, 6, 8));
  EXPECT_THAT(advice.advised().set.mixed, ElementsAre(20, 40, 64));
}

TEST(Advice, LeavesTheOtherKindAsItIs) {
  AdviceOptions options = Options();
  options.kind = AdviseKind::kDecode;
  ASSERT_OK_AND_ASSIGN(const Advice advice, Advise(Trace(), BucketCost(), options));
  EXPECT_EQ(advice.mixed_steps, 0);
  EXPECT_THAT(advice.advised().set.decode, ElementsAre(3, 5, 6, 8));
  EXPECT_THAT(advice.advised().set.mixed, ElementsAre(16, 64));
  EXPECT_THAT(advice.sets[1].set.mixed, ElementsAre(16, 64));
  options.kind = AdviseKind::kMixed;
  EXPECT_THAT(Advise({.steps = {Decode(3, 1)}}, BucketCost(), options),
              StatusIs(absl::StatusCode::kFailedPrecondition, "got no mixed step"));
}

TEST(Advice, RefusesStepsThatFitNoBucket) {
  AdviceOptions options = Options();
  EXPECT_THAT(Advise({.steps = {Mixed(2, 65, 1)}}, BucketCost(), options),
              StatusIs(absl::StatusCode::kOutOfRange, "a step of 65 query tokens"));
  options.current.mixed.clear();
  EXPECT_THAT(Advise(Trace(), BucketCost(), options),
              StatusIs(absl::StatusCode::kFailedPrecondition, "mixed buckets: got none"));
  EXPECT_THAT(Advise({.steps = {Decode(3, 1), Decode(9, 1)}}, BucketCost(), options),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "decode buckets: got 8 as the largest, and the trace has decode steps of 9 "
                       "rows; allowed: a largest one of 9 rows or more (--decode-buckets N,N,...), "
                       "or mixed buckets"));
  ASSERT_OK_AND_ASSIGN(const Advice decode,
                       Advise({.steps = {Decode(3, 1)}}, BucketCost(), options));
  EXPECT_EQ(BucketFlags(decode.advised().set), "--decode-buckets 3,8");
  // Steps that are not counted need no bucket.
  options.kind = AdviseKind::kDecode;
  ASSERT_OK_AND_ASSIGN(const Advice of_decode, Advise(Trace(), BucketCost(), options));
  EXPECT_THAT(of_decode.advised().set.decode, ElementsAre(3, 5, 6, 8));
}

TEST(GroupSteps, SortsByTheBucketThatAStepReplays) {
  const StepGroups groups =
      GroupSteps({Decode(2, 1, 100), Decode(2, 3), {}, Decode(9, 1, 50), Mixed(2, 9, 1)}, 8, 20);
  ASSERT_THAT(groups.decode, SizeIs(2));
  EXPECT_EQ(groups.decode[0].size, 1);  // of no row
  EXPECT_EQ(groups.decode[0].tokens, 0);
  EXPECT_EQ(groups.decode[1].weight, 4);
  EXPECT_EQ(groups.decode[1].kv_tokens, (2 * 100 + 3 * 2 * 20) / 4.0);
  ASSERT_THAT(groups.mixed, SizeIs(1));
  EXPECT_EQ(groups.mixed[0].size, 9);
  EXPECT_EQ(groups.mixed[0].kv_tokens, (9 * 50 + 2 * 20) / 2.0);
}

TEST(Advice, RoundsSizesUpWhereTheyAreTooMany) {
  AdviceOptions options = Options();
  options.current.mixed = {16384};
  BatchTrace trace;
  for (int64_t tokens = 2; tokens <= 8002; tokens += 2) trace.steps.push_back(Mixed(1, tokens, 1));
  options.max_graphs = 6;
  ASSERT_OK_AND_ASSIGN(const Advice advice, Advise(trace, BucketCost(), options));
  EXPECT_EQ(advice.mixed_grain, 4);
  EXPECT_THAT(advice.advised().set.mixed, ElementsAre(8000, 16384));
}

// ---- with a profile ----

json Point(int rows, double context, double us, int padding = 0) {
  return {{"rows", rows},
          {"context", context},
          {"mean_context", context},
          {"padding_rows", padding},
          {"plain", {{"device_us", {{"p50", us}}}}}};
}

json Profile() {
  return {{"engine",
           {{"device", {{"name", "NVIDIA H200"}}},
            {"graphs",
             {{{"name", "decode/8"}, {"capacity", 8}, {"device_bytes", 100}},
              {{"name", "decode/1"}, {"capacity", 1}, {"device_bytes", 300}},
              {{"name", "mixed/64"}, {"capacity", 64}}}}}},
          {"points",
           {Point(1, 100, 10), Point(1, 200, 11), Point(3, 100, 13, 1), Point(3, 200, 16, 1),
            Point(8, 100, 20), Point(8, 200, 28)}}};
}

TEST(BucketCost, IsTheTimeOfTheWholeBucketAtTheRowsContexts) {
  ASSERT_OK_AND_ASSIGN(const BucketCost cost, BucketCost::OfProfile("p.json", Profile()));
  EXPECT_TRUE(cost.is_time());
  EXPECT_EQ(cost.device(), "NVIDIA H200");
  // Measured with padding: a point of bucket 4.
  EXPECT_THAT(cost.sizes(StepKind::kDecode), ElementsAre(1, 4, 8));
  EXPECT_EQ(cost.shortest_context(), 100);
  EXPECT_THAT(cost.graphs().decode, ElementsAre(1, 8));
  EXPECT_EQ(cost.graphs().decode_bytes, 200);
  EXPECT_EQ(cost.Of(StepKind::kDecode, {.size = 8, .kv_tokens = 8 * 150}, 8), 24'000);
  // Three rows of 100 tokens in a bucket of four: what was measured.
  EXPECT_EQ(cost.Of(StepKind::kDecode, {.size = 3, .kv_tokens = 300}, 4), 13'000);
  EXPECT_EQ(cost.Of(StepKind::kDecode, {.size = 1, .kv_tokens = 150}, 1), 10'500);
  EXPECT_EQ(cost.Of(StepKind::kDecode, {.size = 1}, 9), std::numeric_limits<double>::infinity());
}

TEST(BucketCost, OfADecodeStepIsOfNoPromptsAndOfOneContext) {
  json profile = Profile();
  profile["points"].push_back(Point(6, 90, 900));
  profile["points"].back()["shortest_context"] = 50;
  profile["points"].push_back(Point(0, 0, 900));
  profile["points"].back()["prompts"] = {64};
  profile["points"].back()["padding_tokens"] = 0;
  ASSERT_OK_AND_ASSIGN(const BucketCost cost, BucketCost::OfProfile("p.json", profile));
  EXPECT_THAT(cost.sizes(StepKind::kDecode), ElementsAre(1, 4, 8));
  EXPECT_EQ(cost.shortest_context(), 100);
}

TEST(BucketCost, OfAMixedStepIsWhatWasMeasuredWithPrompts) {
  json profile = Profile();
  const auto add = [&profile](int rows, std::vector<int> prompts, int padding, double us) {
    profile["points"].push_back(Point(rows, rows == 0 ? 0 : 500, us));
    profile["points"].back()["prompts"] = std::move(prompts);
    profile["points"].back()["padding_tokens"] = padding;
  };
  add(0, {16}, 0, 40);
  add(2, {20, 20}, 22, 90);  // more padding than the next has
  add(4, {60}, 0, 100);
  add(0, {64}, 0, 120);
  ASSERT_OK_AND_ASSIGN(const BucketCost cost, BucketCost::OfProfile("p.json", profile));
  EXPECT_THAT(cost.sizes(StepKind::kMixed), ElementsAre(16, 64));
  EXPECT_EQ(cost.Of(StepKind::kMixed, {}, 16), 40'000);
  EXPECT_EQ(cost.Of(StepKind::kMixed, {}, 64), 110'000);
  EXPECT_EQ(cost.Of(StepKind::kMixed, {}, 40), 75'000);
  EXPECT_EQ(cost.Of(StepKind::kMixed, {}, 65), std::numeric_limits<double>::infinity());
  EXPECT_THAT(cost.sizes(StepKind::kDecode), ElementsAre(1, 4, 8));
  const BatchTrace trace{.steps = {Mixed(2, 20, 5), Mixed(2, 40, 1)}};
  ASSERT_OK_AND_ASSIGN(const Advice advice, Advise(trace, cost, Options()));
  EXPECT_THAT(advice.advised().set.mixed, ElementsAre(20, 64));
  EXPECT_THAT(Advise({.steps = {Mixed(2, 9, 1)}}, cost, Options()),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "mixed steps: got sizes from 9 to 9, allowed: 16 to 64"));
  profile["points"].back()["prompts"] = {"x"};
  EXPECT_THAT(BucketCost::OfProfile("p.json", profile),
              StatusIs(absl::StatusCode::kInvalidArgument, "p.json: points[9].prompts"));
}

TEST(BucketCost, NamesWhatIsWrongInAProfile) {
  const auto refused = [](const char* place, json value, const char* message) {
    json profile = Profile();
    profile[json::json_pointer(place)] = std::move(value);
    EXPECT_THAT(BucketCost::OfProfile("p.json", profile),
                StatusIs(absl::StatusCode::kInvalidArgument, message))
        << place;
  };
  refused("/engine/graphs/0", 7, "p.json: engine.graphs[0]: got 7, allowed: an object");
  refused("/engine/graphs/1/capacity", 0, "p.json: engine.graphs[1].capacity");
  refused("/engine/graphs/1/device_bytes", "x", "p.json: engine.graphs[1].device_bytes");
  refused("/points/2/rows", 0.5, "p.json: points[2].rows");
  refused("/points/3/mean_context", "x", "p.json: points[3].mean_context");
}

TEST(BucketCost, RefusesProfilesThatCoverTooLittle) {
  json few = Profile();
  few["points"] = {Point(1, 100, 10), Point(1, 200, 11)};
  EXPECT_THAT(BucketCost::OfProfile("p.json", few),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "p.json: points: got 1 numbers of rows, allowed: two or more"));
  ASSERT_OK_AND_ASSIGN(const BucketCost cost, BucketCost::OfProfile("p.json", Profile()));
  const auto refused = [&](const BatchTrace& trace, const char* message) {
    EXPECT_THAT(Advise(trace, cost, Options()),
                StatusIs(absl::StatusCode::kFailedPrecondition, message));
  };
  refused(Trace(),
          "p.json: it covers too little for the trace: mixed steps: got sizes from 20 to 40, "
          "allowed: 1 to 8");
  refused({.steps = {Decode(2, 1, 300)}},
          "decode steps: got a mean context of 300 tokens at 2 rows, allowed: up to 200");
}

TEST(Advice, WeighsStepsByAProfile) {
  ASSERT_OK_AND_ASSIGN(const BucketCost cost, BucketCost::OfProfile("p.json", Profile()));
  AdviceOptions options = Options();
  options.max_graphs = 4;
  const BatchTrace trace{.steps = {Decode(2, 10, 100), Decode(4, 100, 100), Decode(7, 5, 100)}};
  ASSERT_OK_AND_ASSIGN(const Advice advice, Advise(trace, cost, options));
  EXPECT_EQ(*advice.mean_context, 100);
  // The mixed buckets stay, as no step of the trace needs one.
  EXPECT_THAT(advice.advised().set.decode, ElementsAre(4, 8));
  EXPECT_THAT(advice.advised().set.mixed, ElementsAre(16, 64));
  const std::string text = AdviceText(advice, cost, kNoWidth);
  EXPECT_THAT(text, HasSubstr("trace: 115 decode and 0 mixed steps, 100 tokens of context\n"
                              "cost: a step's time on NVIDIA H200 (p.json)\n"));
  EXPECT_THAT(text, HasSubstr("\n--decode-buckets 4,8 --mixed-buckets 16,64\n"));
}

// A largest bucket that the profile has not measured may stay, as long as no step replays it.
TEST(Advice, KeepsALargestBucketThatWasNotMeasured) {
  ASSERT_OK_AND_ASSIGN(const BucketCost cost, BucketCost::OfProfile("p.json", Profile()));
  AdviceOptions options = Options();
  options.current.decode = {16};
  options.max_graphs = 4;
  ASSERT_OK_AND_ASSIGN(const Advice advice, Advise({.steps = {Decode(2, 1)}}, cost, options));
  EXPECT_THAT(advice.advised().set.decode, ElementsAre(2, 16));
  EXPECT_FALSE(advice.current().cost.has_value());
  EXPECT_THAT(AdviceText(advice, cost, kNoWidth), HasSubstr("at the shortest context"));
  // Powers of two have a bucket of two rows as well.
  EXPECT_EQ(ChangeInJson(advice, cost), 0);
  options.max_graphs = 3;
  EXPECT_THAT(
      Advise({.steps = {Decode(2, 1)}}, cost, options),
      StatusIs(absl::StatusCode::kResourceExhausted,
               "allowed: at least 3, for the largest bucket of each kind and those that stay as "
               "they are, and more, as the profile has not measured all of these"));
}

// Powers of two would replay a bucket of eight rows, and nothing tells what it takes.
TEST(Advice, LeavesOpenWhatItGainsWhereNothingTells) {
  json profile = Profile();
  profile["points"] = {Point(1, 100, 10), Point(1, 200, 11), Point(5, 100, 13), Point(5, 200, 16)};
  ASSERT_OK_AND_ASSIGN(const BucketCost cost, BucketCost::OfProfile("p.json", profile));
  AdviceOptions options = Options();
  options.current.decode = {5, 8};
  ASSERT_OK_AND_ASSIGN(const Advice advice, Advise({.steps = {Decode(5, 1, 100)}}, cost, options));
  EXPECT_TRUE(advice.advised().cost.has_value());
  EXPECT_FALSE(advice.powers_of_two().cost.has_value());
  EXPECT_THAT(AdviceText(advice, cost, kNoWidth),
              HasSubstr("\nadvised against powers of two: - a step\n"));
  const json written = AdviceToJson({"a.csv"}, advice, cost, options, std::nullopt);
  EXPECT_EQ(written["change_against_powers_of_two"], nullptr);
}

// ---- verification ----

TEST(SampleSteps, StandForTheTraceByWeight) {
  const auto steps =
      SampleSteps({Decode(2, 30, 100), Mixed(3, 13, 10), Decode(2, 30, 200), {}, Decode(1, 30)}, 10,
                  /*default_context=*/50, /*max_context=*/128);
  ASSERT_THAT(steps, SizeIs(3));
  EXPECT_EQ(steps[0].point, (StepPoint{.rows = 2, .context = 50, .prompts = {11}}));
  EXPECT_EQ(steps[0].count, 1u);
  EXPECT_EQ(NameOf(steps[1].point), "1@50");
  EXPECT_EQ(steps[1].count, 3u);
  EXPECT_EQ(NameOf(steps[2].point), "2@128");  // 150 in the mean, and no row has so many
  EXPECT_EQ(steps[2].count, 6u);
}

TEST(SampleSteps, CutPromptsAtARowsLimit) {
  const auto point = [](int64_t rows, int64_t tokens) {
    return SampleSteps({Mixed(rows, tokens, 1)}, 1, 8, /*max_context=*/16)[0].point;
  };
  EXPECT_EQ(NameOf(point(4, 19)), "3@8+1x16");
  EXPECT_EQ(NameOf(point(4, 23)), "2@8+1x11+1x10");
  EXPECT_EQ(point(4, 23).num_tokens(), 23u);
  EXPECT_EQ(point(1, 9), *ParseStepPoint("1x9"));
  EXPECT_THAT(SampleSteps({{}}, 5, 8, 16), IsEmpty());
}

// Of two rounds each.
VerifiedSet Measured(double first_ns, double second_ns) {
  VerifiedSet set{.device = "a device"};
  for (const double ns : {first_ns, second_ns}) {
    set.device_ns.Add(ns);
    set.replay_ns.Add(2 * ns);
  }
  return set;
}

TEST(Verification, ComparesWhatWasMeasuredWithBothOtherSets) {
  ASSERT_OK_AND_ASSIGN(const Advice advice, Advise(Trace(), BucketCost(), Options()));
  const Verification verification{.steps = 9,
                                  .current = Measured(2000, 2000),
                                  .advised = Measured(1000, 1100),
                                  .powers_of_two = Measured(1250, 1250)};
  const std::string text = VerificationText(verification, kNoWidth);
  EXPECT_THAT(text, HasSubstr("\npowers of two "));
  EXPECT_THAT(text, HasSubstr("\nadvised against current: device -50.0 %, replay -50.0 %\n"
                              "advised against powers of two: device -20.0 %, replay -20.0 %\n"));
  EXPECT_THAT(VerificationWarnings(verification), IsEmpty());
  const json verified =
      AdviceToJson({"a.csv"}, advice, BucketCost(), Options(), verification)["verified"];
  EXPECT_EQ(verified["powers_of_two"]["device_us"], json({1.25, 1.25}));
  EXPECT_NEAR(verified["device_change_against_powers_of_two"].get<double>(), -0.2, 1e-12);
  EXPECT_NEAR(verified["replay_change_against_powers_of_two"].get<double>(), -0.2, 1e-12);
}

TEST(Verification, LeavesPowersOfTwoOutWhereTheyAreAnotherSet) {
  ASSERT_OK_AND_ASSIGN(const Advice advice, Advise(Trace(), BucketCost(), Options()));
  const Verification verification{
      .steps = 9, .current = Measured(2000, 2000), .advised = Measured(1000, 1100)};
  EXPECT_THAT(VerificationText(verification, kNoWidth), Not(HasSubstr("powers of two")));
  const json verified =
      AdviceToJson({"a.csv"}, advice, BucketCost(), Options(), verification)["verified"];
  EXPECT_FALSE(verified.contains("powers_of_two"));
  EXPECT_FALSE(verified.contains("device_change_against_powers_of_two"));
}

TEST(Verification, WarnsOfChangesBelowTheSpreadOfRounds) {
  Verification verification{.steps = 9,
                            .current = Measured(1000, 1080),
                            .advised = Measured(950, 950),
                            .powers_of_two = Measured(2000, 2000)};
  EXPECT_THAT(VerificationWarnings(verification),
              ElementsAre("advised against current: device -5.0 % (spread 8.0 %), replay -5.0 % "
                          "(spread 8.0 %): rounds of one set differ by more, so that this means "
                          "nothing"));
  // Of one round nothing is known.
  verification.current.device_ns = verification.current.replay_ns = Samples();
  verification.current.device_ns.Add(1000);
  verification.current.replay_ns.Add(2000);
  EXPECT_THAT(VerificationWarnings(verification), IsEmpty());
  // A loss means as little as a gain, on either clock.
  verification.powers_of_two->replay_ns = Samples();
  for (const double ns : {1800, 2000}) verification.powers_of_two->replay_ns.Add(ns);
  EXPECT_THAT(VerificationWarnings(verification),
              ElementsAre(HasSubstr("advised against powers of two: replay +5.6 % (spread 11.1 %)"
                                    ": ")));
}

}  // namespace
}  // namespace reprise::tools
