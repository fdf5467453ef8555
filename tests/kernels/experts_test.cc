// SPDX-License-Identifier: Apache-2.0
#include "kernels/experts/experts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/experts/experts_geometry.h"
#include "kernels/linear/linear.h"
#include "tests/testing/cases/experts_cases.h"
#include "tests/testing/guarded_memory.h"
#include "tests/testing/kernel_test.h"
#include "tests/testing/number.h"
#include "tests/testing/oracle.h"
#include "tests/testing/packed_weight.h"
#include "tests/testing/status_codes.h"
#include "tests/testing/status_matchers.h"

namespace reprise::testing {
namespace {

using kernels::ExpertCounts;
using kernels::ExpertItem;
using kernels::ExpertRoutes;
using kernels::ExpertsCase;
using kernels::ExpertsLinearArgs;
using kernels::ExpertsRouteArgs;
using kernels::ExpertWeights;
using kernels::LinearCandidate;
using kernels::WeightLayout;
using runtime::DType;

constexpr double kFiller = 96.0;  // of packed matrices: would be seen in a sum

// A way to run a linear layer: what is asked for, and how the matrices lie.
struct Way {
  LinearCandidate candidate;
  WeightLayout layout;
};

struct Input {
  std::vector<double> x, logits, weights, bias;  // of one expert after the other
  explicit Input(const ExpertsCase& c, DType dtype) {
    Random random(static_cast<uint64_t>(c.in_features) * 31 + c.tokens);
    const auto k = static_cast<size_t>(c.in_features), n = static_cast<size_t>(c.out_features);
    const auto experts = static_cast<size_t>(c.num_experts);
    x = random.Tensor(dtype, c.tokens * k);
    logits = random.Tensor(DType::kF32, c.tokens * experts, 2.0);
    weights = random.Tensor(dtype, experts * n * k, 1.0 / std::sqrt(static_cast<double>(k)));
    bias = random.Tensor(dtype, experts * n);
  }
  std::span<const double> RowOfX(uint32_t token, size_t k) const {
    return std::span(x).subspan(token * k, k);
  }
};

class ExpertsTest : public KernelTest {
 protected:
  std::vector<Way> Ways() const {
    std::vector<Way> ways;
    for (const LinearCandidate candidate : {LinearCandidate::kBest, LinearCandidate::kPortable}) {
      ways.push_back({candidate, WeightLayout::kRowMajor});
      if (dtype() != DType::kF32) ways.push_back({candidate, WeightLayout::kPacked});
    }
    return ways;
  }

  ExpertsRouteArgs RouteArgs(GuardedMemory& memory, const ExpertsCase& c,
                             std::vector<double> logits, int32_t tile_rows) {
    const auto experts = static_cast<size_t>(c.num_experts);
    const size_t choices = c.max_tokens * static_cast<size_t>(c.top_k);
    logits.resize(c.max_tokens * experts, NAN);
    ExpertsRouteArgs args;
    args.logits = static_cast<const float*>(memory.ConstantTensor(DType::kF32, logits));
    args.num_tokens = memory.Constant(std::vector<uint32_t>{c.tokens});
    args.routes = {.expert = memory.Poisoned<uint32_t>(choices),
                   .share = memory.Poisoned<float>(choices),
                   .place = memory.Poisoned<uint32_t>(choices),
                   .token = memory.Poisoned<uint32_t>(choices),
                   .items = memory.Poisoned<ExpertItem>(
                       kernels::MaxExpertItems(c.max_tokens, c.num_experts, c.top_k)),
                   .counts = memory.Poisoned<ExpertCounts>(1)};
    args.arrivals = memory.Variable(std::vector<uint32_t>{0});
    args.num_experts = c.num_experts;
    args.top_k = c.top_k;
    args.normalised = 1;
    args.tile_rows = tile_rows;
    return args;
  }

  // Matrices and biases of which no token's choice is are NaN.
  ExpertWeights Weights(GuardedMemory& memory, const ExpertsCase& c, const Input& in,
                        WeightLayout layout, const std::vector<uint32_t>& routed,
                        bool biased = false) {
    const auto k = static_cast<size_t>(c.in_features), n = static_cast<size_t>(c.out_features);
    std::vector<double> all, bias = in.bias;
    ExpertWeights weights;
    for (uint32_t e = 0; e < static_cast<uint32_t>(c.num_experts); ++e) {
      const auto begin = in.weights.begin() + static_cast<ptrdiff_t>(e * n * k);
      std::vector<double> matrix(begin, begin + static_cast<ptrdiff_t>(n * k));
      if (std::find(routed.begin(), routed.end(), e) == routed.end()) {
        std::fill(matrix.begin(), matrix.end(), NAN);
        std::fill_n(bias.begin() + static_cast<ptrdiff_t>(e * n), n, NAN);
      }
      if (layout == WeightLayout::kPacked) matrix = Packed(matrix, n, k, kFiller);
      if (layout == WeightLayout::kPackedPairs) matrix = PackedPairs(matrix, n, k, kFiller);
      weights.expert_elements = static_cast<int64_t>(matrix.size());
      all.insert(all.end(), matrix.begin(), matrix.end());
    }
    weights.first.format = kernels::WeightFormatOf(dtype());
    weights.first.layout = layout;
    weights.first.data = memory.ConstantTensor(dtype(), all);
    if (biased) weights.first.bias = memory.ConstantTensor(dtype(), bias);
    weights.first.in_features = c.in_features;
    weights.first.out_features = c.out_features;
    weights.num_experts = c.num_experts;
    return weights;
  }

  // Routes the case's tokens with a tile of so many rows. Fills expert and token of places.
  struct Routed {
    ExpertsRouteArgs args;
    std::vector<uint32_t> expert_of_place = {}, token_of_place = {}, place = {};
  };
  Routed Route(GuardedMemory& memory, const ExpertsCase& c, const Input& in, int32_t tile_rows) {
    Routed routed{.args = RouteArgs(memory, c, in.logits, tile_rows)};
    EXPECT_OK(RouteExperts(stream(), kernels(), routed.args, c.max_tokens));
    memory.Check();
    const std::vector<uint32_t> expert = memory.Read(routed.args.routes.expert);
    routed.place = memory.Read(routed.args.routes.place);
    routed.token_of_place = memory.Read(routed.args.routes.token);
    const size_t choices = c.tokens * static_cast<size_t>(c.top_k);
    routed.expert_of_place.resize(choices);
    for (size_t i = 0; i < choices; ++i) routed.expert_of_place.at(routed.place[i]) = expert[i];
    return routed;
  }

  // A linear layer over what was routed.
  ExpertsLinearArgs LinearArgsOf(GuardedMemory& memory, const ExpertsCase& c, const Routed& routed,
                                 std::vector<double> x, bool gathers, int64_t out_width) {
    const size_t places = c.max_tokens * static_cast<size_t>(c.top_k);
    x.resize((gathers ? c.max_tokens : places) * static_cast<size_t>(c.in_features), NAN);
    ExpertsLinearArgs args;
    args.linear.x = memory.ConstantTensor(dtype(), x);
    args.linear.out = memory.Poisoned(places * static_cast<size_t>(out_width) * SizeOf(dtype()));
    args.token = routed.args.routes.token;
    args.items = routed.args.routes.items;
    args.counts = routed.args.routes.counts;
    args.gathers = gathers ? 1 : 0;
    return args;
  }

  // Bytes of every choice's row of a linear layer that gathers.
  std::vector<std::vector<std::byte>> ChoiceBytes(const ExpertsCase& c, const Input& in,
                                                  const Way& way, int32_t tile_rows) {
    GuardedMemory memory(device(), stream());
    const Routed routed = Route(memory, c, in, tile_rows);
    const ExpertWeights weights = Weights(memory, c, in, way.layout, routed.expert_of_place);
    const ExpertsLinearArgs args = LinearArgsOf(memory, c, routed, in.x, true, c.out_features);
    EXPECT_OK(ExpertsLinear(stream(), kernels(), weights, args, tile_rows, c.max_tokens, c.top_k,
                            way.candidate));
    memory.Check();
    const std::vector<std::byte> out = memory.ReadBytes(args.linear.out);
    const size_t row = static_cast<size_t>(c.out_features) * SizeOf(dtype());
    std::vector<std::vector<std::byte>> rows;
    for (size_t i = 0; i < c.tokens * static_cast<size_t>(c.top_k); ++i) {
      const auto begin = out.begin() + static_cast<ptrdiff_t>(routed.place[i] * row);
      rows.emplace_back(begin, begin + static_cast<ptrdiff_t>(row));
    }
    return rows;
  }
};
REPRISE_FOR_EVERY_DEVICE_AND_DTYPE(ExpertsTest);

TEST_P(ExpertsTest, TokensGoToTheExpertsOfTheirLargestLogits) {
  for (const ExpertsCase& c : kernels::kExpertsCases) {
    for (const int32_t normalised : {0, 1}) {
      SCOPED_TRACE(absl::StrCat(c.name, ", normalised ", normalised));
      const Input in(c, dtype());
      GuardedMemory memory(device(), stream());
      ExpertsRouteArgs args = RouteArgs(memory, c, in.logits, 32);
      args.normalised = normalised;
      ASSERT_OK(RouteExperts(stream(), kernels(), args, c.max_tokens));
      memory.Check();
      const auto experts = static_cast<size_t>(c.num_experts), k = static_cast<size_t>(c.top_k);
      std::vector<uint32_t> expert = memory.Read(args.routes.expert);
      Expected share;
      for (size_t t = 0; t < c.tokens; ++t) {
        const OracleRoute route =
            OracleExperts(std::span(in.logits).subspan(t * experts, experts), k, normalised != 0);
        EXPECT_EQ(std::vector<uint32_t>(expert.begin() + static_cast<ptrdiff_t>(t * k),
                                        expert.begin() + static_cast<ptrdiff_t>((t + 1) * k)),
                  route.expert)
            << "token " << t;
        for (size_t i = 0; i < k; ++i) share.Add(route.share.value[i], route.share.slack[i]);
      }
      ExpectNear(memory.ReadTensor(DType::kF32, args.routes.share), share, DType::kF32);
      EXPECT_EQ(memory.Read(args.arrivals), std::vector<uint32_t>{0});
    }
  }
}

// Padding has no choice, no place and no item: all of it is still poisoned.
TEST_P(ExpertsTest, ItemsAreThePlacesOfLiveTokensSortedByExpert) {
  for (const ExpertsCase& c : kernels::kExpertsCases) {
    SCOPED_TRACE(c.name);
    const Input in(c, dtype());
    GuardedMemory memory(device(), stream());
    const Routed routed = Route(memory, c, in, 32);
    const ExpertRoutes& routes = routed.args.routes;
    const size_t choices = c.tokens * static_cast<size_t>(c.top_k);
    const ExpertCounts counts = memory.Read(routes.counts).front();
    EXPECT_EQ(counts.num_places, choices);
    EXPECT_TRUE(std::is_sorted(routed.expert_of_place.begin(), routed.expert_of_place.end()));
    std::vector<uint32_t> places(routed.place.begin(),
                                 routed.place.begin() + static_cast<ptrdiff_t>(choices));
    for (size_t i = 0; i < choices; ++i)
      EXPECT_EQ(routed.token_of_place.at(places[i]), i / static_cast<size_t>(c.top_k));
    std::sort(places.begin(), places.end());
    for (size_t i = 0; i < choices; ++i) EXPECT_EQ(places[i], i);
    const std::vector<ExpertItem> items = memory.Read(routes.items);
    ASSERT_LE(counts.num_items, items.size());
    uint32_t next = 0;
    std::map<uint32_t, uint32_t> items_of;
    for (uint32_t i = 0; i < counts.num_items; ++i) {
      EXPECT_EQ(items[i].first, next);
      EXPECT_GE(items[i].count, 1u);
      EXPECT_LE(items[i].count, 32u);
      next += items[i].count;
      EXPECT_EQ(items[i].index, items_of[items[i].expert]);
      EXPECT_EQ(items[i - items[i].index].expert, items[i].expert);
      ++items_of[items[i].expert];
      for (uint32_t place = items[i].first; place < next; ++place)
        EXPECT_EQ(routed.expert_of_place.at(place), items[i].expert);
    }
    EXPECT_EQ(next, choices);
    for (const auto& [expert, count] : items_of) {
      const auto of_expert = static_cast<uint32_t>(
          std::count(routed.expert_of_place.begin(), routed.expert_of_place.end(), expert));
      EXPECT_EQ(count, (of_expert + 31) / 32) << "expert " << expert;
    }
    const auto padding = [&](const std::vector<uint32_t>& words) {
      return std::vector<uint32_t>(words.begin() + static_cast<ptrdiff_t>(choices), words.end());
    };
    EXPECT_THAT(padding(memory.Read(routes.expert)), ::testing::Each(0xffffffffu));
    EXPECT_THAT(padding(memory.Read(routes.place)), ::testing::Each(0xffffffffu));
    EXPECT_THAT(padding(memory.Read(routes.token)), ::testing::Each(0xffffffffu));
  }
}

// No choice is lost, or made twice, whatever logits are.
TEST_P(ExpertsTest, EqualLogitsAndNaNChooseTheLowerExpert) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  const ExpertsCase c{"", 4, 2, 8, 8, 4, 4};
  GuardedMemory memory(device(), stream());
  const ExpertsRouteArgs args = RouteArgs(memory, c,
                                          {1.0, 1.0, 1.0, 1.0,      //
                                           nan, nan, nan, nan,      //
                                           nan, 0.0, -inf, nan,     //
                                           -3.0, -3.0, 2.0, -3.0},  //
                                          kernels::kWholeExpert);
  ASSERT_OK(RouteExperts(stream(), kernels(), args, c.max_tokens));
  memory.Check();
  EXPECT_EQ(memory.Read(args.routes.expert), (std::vector<uint32_t>{0, 1, 0, 1, 1, 0, 2, 0}));
  EXPECT_EQ(memory.Read(args.routes.counts).front().num_places, 8u);
}

// With a bias where it gathers.
TEST_P(ExpertsTest, LinearTakesTheMatrixOfThePlacesExpert) {
  REPRISE_SKIP_IF_EMULATED_BUT_FOR_BF16();
  for (const ExpertsCase& c : kernels::kExpertsCases) {
    const Input in(c, dtype());
    const auto k = static_cast<size_t>(c.in_features), n = static_cast<size_t>(c.out_features);
    for (const Way& way : Ways()) {
      for (const bool gathers : {true, false}) {
        SCOPED_TRACE(absl::StrCat(c.name, ", ", std::string(NameOf(way.layout)),
                                  way.candidate == LinearCandidate::kBest ? ", best" : ", portable",
                                  gathers ? ", gathers" : ""));
        GuardedMemory memory(device(), stream());
        ExpertWeights shape;
        shape.first = {.layout = way.layout, .in_features = c.in_features};
        shape.num_experts = c.num_experts;
        const int32_t tile_rows =
            ExpertTileRows(kernels(), shape, c.max_tokens, c.top_k, way.candidate);
        const Routed routed = Route(memory, c, in, tile_rows);
        std::vector<double> x = in.x;
        if (!gathers) {
          x.clear();
          for (size_t p = 0; p < routed.expert_of_place.size(); ++p) {
            const auto row = in.RowOfX(routed.token_of_place[p], k);
            x.insert(x.end(), row.begin(), row.end());
          }
        }
        const ExpertWeights weights =
            Weights(memory, c, in, way.layout, routed.expert_of_place, gathers);
        const ExpertsLinearArgs args = LinearArgsOf(memory, c, routed, x, gathers, c.out_features);
        ASSERT_OK(ExpertsLinear(stream(), kernels(), weights, args, tile_rows, c.max_tokens,
                                c.top_k, way.candidate));
        memory.Check();
        Expected expected;
        for (size_t p = 0; p < routed.expert_of_place.size(); ++p) {
          const Expected row = OracleLinear(
              in.RowOfX(routed.token_of_place[p], k),
              std::span(in.weights).subspan(routed.expert_of_place[p] * n * k, n * k),
              gathers ? std::span<const double>(in.bias).subspan(routed.expert_of_place[p] * n, n)
                      : std::span<const double>{},
              k, 1.0);
          for (size_t i = 0; i < n; ++i) expected.Add(row.value[i], row.slack[i]);
        }
        ExpectNear(memory.ReadTensor(dtype(), args.linear.out), expected, dtype());
      }
    }
  }
}

// The matrices of all experts in 8 or 4 bits, as they lie, and what they are worth.
struct Quantised {
  std::vector<double> weights;  // [experts, outputs, inputs]
  std::vector<uint8_t> bytes;
  std::vector<float> scales;
  ExpertWeights shape;  // without addresses

  Quantised(const ExpertsCase& c, kernels::WeightFormat format, size_t inputs, bool packed,
            const std::vector<uint32_t>& routed) {
    Random random(static_cast<uint64_t>(c.in_features) * 17 + inputs);
    const auto k = static_cast<size_t>(c.in_features), n = static_cast<size_t>(c.out_features);
    const size_t groups = ((k + 63) / 64 * 64 + inputs - 1) / inputs;
    const bool int4 = format == kernels::WeightFormat::kInt4;
    const bool mxfp4 = format == kernels::WeightFormat::kMxfp4;
    for (uint32_t e = 0; e < static_cast<uint32_t>(c.num_experts); ++e) {
      std::vector<uint8_t> elements;
      std::vector<double> worth = random.Tensor(DType::kE4m3, n * k, 4.0);
      for (const std::byte code : Encode(DType::kE4m3, worth))
        elements.push_back(static_cast<uint8_t>(code));
      if (int4 || mxfp4)
        for (size_t i = 0; i < n * k; ++i)
          worth[i] = elements[i] = static_cast<uint8_t>(random.Uniform() * 15.99);
      if (mxfp4)
        for (double& of_element : worth) of_element = E2m1(of_element);
      std::vector<float> of_expert;
      for (size_t i = 0; i < n * groups; ++i) {
        const auto scale = static_cast<float>((0.5 + random.Uniform()) / std::sqrt(25.0 * k));
        const auto zero = static_cast<uint32_t>(random.Uniform() * 15.99);
        of_expert.push_back(int4    ? FloatOfBits(kernels::ScaleWord(scale, zero))
                            : mxfp4 ? std::exp2(std::floor(std::log2(scale)))
                                    : scale);
      }
      for (size_t i = 0; i < n * k; ++i) {
        const float scale = of_expert[i / k * groups + i % k / inputs];
        const uint32_t word = BitsOfFloat(scale);
        weights.push_back(int4 ? (worth[i] - kernels::ZeroPointOfWord(word)) *
                                     kernels::ScaleOfWord(word)
                               : worth[i] * scale);
      }
      // Of experts that no token goes to.
      if (std::find(routed.begin(), routed.end(), e) == routed.end())
        std::fill(of_expert.begin(), of_expert.end(), NAN);
      if (packed) of_expert = PackedFp8Scales(of_expert, n, groups, 3.0f);
      const bool four_bits = int4 || mxfp4;
      if (four_bits) elements = Int4Bytes(elements, n, k, packed, 13);
      if (!four_bits && packed) elements = PackedFp8(elements, n, k, 0x6c);
      shape.expert_elements = static_cast<int64_t>(elements.size()) * (four_bits ? 2 : 1);
      shape.expert_scales = static_cast<int64_t>(of_expert.size());
      bytes.insert(bytes.end(), elements.begin(), elements.end());
      scales.insert(scales.end(), of_expert.begin(), of_expert.end());
    }
    shape.first = {.format = format,
                   .layout = packed ? WeightLayout::kPacked : WeightLayout::kRowMajor,
                   .out_features = c.out_features,
                   .in_features = c.in_features,
                   .group_size = static_cast<int32_t>(inputs)};
    shape.num_experts = c.num_experts;
  }
  // What an element of kMxfp4 is worth. Source: OCP Microscaling Formats (MX), version 1.0.
  static double E2m1(double element) {
    constexpr double kMagnitudes[] = {0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0};
    const auto bits = static_cast<size_t>(element);
    return bits < 8 ? kMagnitudes[bits] : -kMagnitudes[bits - 8];
  }
  static float FloatOfBits(uint32_t bits) { return std::bit_cast<float>(bits); }
  static uint32_t BitsOfFloat(float value) { return std::bit_cast<uint32_t>(value); }
};

TEST_P(ExpertsTest, MatricesOf8And4BitsAreWorthWhatTheirScalesSay) {
  REPRISE_SKIP_IF_EMULATED_BUT_FOR_BF16();
  using kernels::WeightFormat;
  constexpr ExpertsCase kCases[] = {{"few", 5, 2, 200, 45, 9, 16}, {"many", 3, 2, 136, 80, 70, 70}};
  for (const ExpertsCase& c : kCases) {
    const Input in(c, dtype());
    const auto k = static_cast<size_t>(c.in_features), n = static_cast<size_t>(c.out_features);
    for (const auto& [format, inputs] :
         {std::pair(WeightFormat::kE4m3, size_t{128}), std::pair(WeightFormat::kInt4, size_t{32}),
          std::pair(WeightFormat::kInt4, size_t{128}),
          std::pair(WeightFormat::kMxfp4, size_t{32})}) {
      for (const Way& way : Ways()) {
        SCOPED_TRACE(absl::StrCat(c.name, ", ", std::string(NameOf(format)), " by ", inputs, ", ",
                                  std::string(NameOf(way.layout)),
                                  way.candidate == LinearCandidate::kBest ? "" : ", portable"));
        GuardedMemory memory(device(), stream());
        ExpertWeights shape;
        shape.first = {.format = format, .layout = way.layout, .in_features = c.in_features};
        shape.num_experts = c.num_experts;
        const int32_t tile_rows =
            ExpertTileRows(kernels(), shape, c.max_tokens, c.top_k, way.candidate);
        const Routed routed = Route(memory, c, in, tile_rows);
        const Quantised quantised(c, format, inputs, way.layout == WeightLayout::kPacked,
                                  routed.expert_of_place);
        ExpertWeights weights = quantised.shape;
        weights.first.data = memory.Constant(quantised.bytes);
        weights.first.scales = memory.Constant(quantised.scales);
        const ExpertsLinearArgs args = LinearArgsOf(memory, c, routed, in.x, true, c.out_features);
        ASSERT_OK(ExpertsLinear(stream(), kernels(), weights, args, tile_rows, c.max_tokens,
                                c.top_k, way.candidate));
        memory.Check();
        Expected expected;
        for (size_t p = 0; p < routed.expert_of_place.size(); ++p) {
          const Expected row = OracleLinear(
              in.RowOfX(routed.token_of_place[p], k),
              std::span(quantised.weights).subspan(routed.expert_of_place[p] * n * k, n * k), {}, k,
              1.0);
          for (size_t i = 0; i < n; ++i) expected.Add(row.value[i], row.slack[i]);
        }
        ExpectNear(memory.ReadTensor(dtype(), args.linear.out), expected, dtype());
      }
    }
  }
}

TEST_P(ExpertsTest, PairsComeAsTheirProduct) {
  if (!kernels::LinearTakesPairs(kernels(), 16, 8))
    GTEST_SKIP() << "needs a matrix unit that takes pairs, and 16 bits";
  const ExpertsCase c{"", 4, 2, 72, 96, 13, 16};
  const Input in(c, dtype());
  GuardedMemory memory(device(), stream());
  const Routed routed = Route(memory, c, in, kernels::kFewExpertRows);
  const ExpertWeights weights =
      Weights(memory, c, in, WeightLayout::kPackedPairs, routed.expert_of_place);
  ExpertsLinearArgs args = LinearArgsOf(memory, c, routed, in.x, true, c.out_features / 2);
  args.linear.silu_mul = 1;
  ASSERT_OK(ExpertsLinear(stream(), kernels(), weights, args, kernels::kFewExpertRows, c.max_tokens,
                          c.top_k));
  memory.Check();
  Expected expected;
  for (size_t p = 0; p < routed.expert_of_place.size(); ++p) {
    const Expected both = OracleLinear(
        in.RowOfX(routed.token_of_place[p], 72),
        std::span(in.weights).subspan(routed.expert_of_place[p] * 96 * 72, 96 * 72), {}, 72, 1.0);
    const Expected product = OracleSiluMul(both.value, 48);
    // SiLU's slope is below 1.1.
    for (size_t i = 0; i < 48; ++i)
      expected.Add(product.value[i],
                   product.slack[i] + 1.2 * (both.slack[i] * (std::fabs(both.value[48 + i]) + 1) +
                                             both.slack[48 + i] * (std::fabs(both.value[i]) + 1)));
  }
  ExpectNear(memory.ReadTensor(dtype(), args.linear.out), expected, dtype());
}

// Alone, among others, in a wider bucket and with tiles of another size.
TEST_P(ExpertsTest, ARowsBitsAreItsOwn) {
  const ExpertsCase many{"", 3, 2, 136, 64, 40, 48};
  const Input in(many, dtype());
  for (const Way& way : Ways()) {
    ExpertWeights shape;
    shape.first = {.layout = way.layout, .in_features = many.in_features};
    shape.num_experts = many.num_experts;
    const bool tiled =
        ExpertTileRows(kernels(), shape, 1, many.top_k, way.candidate) != kernels::kWholeExpert;
    const auto together =
        ChoiceBytes(many, in, way, tiled ? kernels::kManyExpertRows : kernels::kWholeExpert);
    for (const uint32_t token : {0u, 17u, 39u}) {
      ExpertsCase alone = many;
      alone.tokens = 1;
      alone.max_tokens = 2;
      Input own = in;
      const auto slice = [&](std::vector<double>& values, int32_t width) {
        const auto begin = values.begin() + static_cast<ptrdiff_t>(token) * width;
        values = std::vector<double>(begin, begin + width);
      };
      slice(own.x, many.in_features);
      slice(own.logits, many.num_experts);
      const auto rows =
          ChoiceBytes(alone, own, way, tiled ? kernels::kFewExpertRows : kernels::kWholeExpert);
      for (size_t rank = 0; rank < rows.size(); ++rank)
        EXPECT_EQ(rows[rank], together[token * 2 + rank]) << "token " << token;
    }
  }
}

TEST_P(ExpertsTest, CombiningAddsAllExpertsOfALiveToken) {
  for (const int32_t hidden : {1, 45, 64, 2056}) {
    SCOPED_TRACE(hidden);
    constexpr uint32_t kTokens = 3, kTopK = 2, kMaxTokens = 5;
    const auto h = static_cast<size_t>(hidden);
    Random random(h);
    const std::vector<double> x = random.Tensor(dtype(), kTokens * kTopK * h);
    const std::vector<double> share = random.Tensor(DType::kF32, kTokens * kTopK);
    const std::vector<uint32_t> place = {4, 0, 2, 5, 1, 3};
    GuardedMemory memory(device(), stream());
    kernels::ExpertsCombineArgs args;
    args.x = memory.ConstantTensor(dtype(), x);
    args.out = memory.Poisoned(kMaxTokens * h * SizeOf(dtype()));
    args.num_tokens = memory.Constant(std::vector<uint32_t>{kTokens});
    args.share = static_cast<const float*>(memory.ConstantTensor(DType::kF32, share));
    args.place = memory.Constant(place);
    args.top_k = kTopK;
    args.hidden = hidden;
    ASSERT_OK(CombineExperts(stream(), kernels(), args, kMaxTokens));
    memory.Check();
    Expected expected;
    for (size_t t = 0; t < kTokens; ++t) {
      for (size_t i = 0; i < h; ++i) {
        const double a = share[2 * t] * x[place[2 * t] * h + i];
        const double b = share[2 * t + 1] * x[place[2 * t + 1] * h + i];
        expected.Add(a + b, 0x1p-21 * (std::fabs(a) + std::fabs(b)));
      }
    }
    ExpectNear(memory.ReadTensor(dtype(), args.out), expected, dtype());

    // The same added to what is there.
    const std::vector<double> plus = random.Tensor(dtype(), kTokens * h);
    std::vector<double> all = plus;
    all.resize(kMaxTokens * h, NAN);
    args.out = memory.VariableTensor(dtype(), all);
    args.plus = args.out;
    ASSERT_OK(CombineExperts(stream(), kernels(), args, kMaxTokens));
    memory.Check();
    for (size_t i = 0; i < plus.size(); ++i) {
      expected.value[i] += plus[i];
      expected.slack[i] += 0x1p-21 * std::fabs(plus[i]);
    }
    ExpectNear(memory.ReadTensor(dtype(), args.out), expected, dtype());
  }
}

TEST_P(ExpertsTest, RefusesImpossibleShapes) {
  ExpertsRouteArgs route{.num_experts = 8, .top_k = 2, .tile_rows = 32};
  EXPECT_THAT(RouteExperts(stream(), kernels(), route, 0), StatusIs(kInvalid, "max_tokens is 0"));
  route.top_k = 9;
  EXPECT_THAT(RouteExperts(stream(), kernels(), route, 1),
              StatusIs(kInvalid, "top_k is 9; allowed: 1 to num_experts, 8"));
  route.num_experts = kernels::kMaxExperts + 1;
  EXPECT_THAT(RouteExperts(stream(), kernels(), route, 1),
              StatusIs(kInvalid, "num_experts is 1025; allowed: 1 to 1024"));
  route = {.num_experts = 8, .top_k = 2, .tile_rows = 8};
  EXPECT_THAT(RouteExperts(stream(), kernels(), route, 1), StatusIs(kInvalid, "tile_rows is 8"));
  EXPECT_THAT(CombineExperts(stream(), kernels(), {.top_k = 0, .hidden = 8}, 1),
              StatusIs(kInvalid, "top_k is 0"));
  EXPECT_THAT(CombineExperts(stream(), kernels(), {.top_k = 1, .hidden = 0}, 1),
              StatusIs(kInvalid, "hidden is 0"));

  ExpertWeights weights;
  weights.first = {.format = kernels::WeightFormatOf(dtype()),
                   .layout = WeightLayout::kRowMajor,
                   .out_features = 16,
                   .in_features = 64};
  weights.num_experts = 2;
  const auto linear = [&](ExpertsLinearArgs args) {
    return ExpertsLinear(stream(), kernels(), weights, args, kernels::kWholeExpert, 1, 1);
  };
  EXPECT_THAT(linear({.linear = {.silu_mul = 1}}),
              StatusIs(kInvalid, "silu_mul is 1 with weights that lie row-major"));
  weights.first.in_features = 0;
  EXPECT_THAT(linear({}), StatusIs(kInvalid, "in_features is 0"));
  weights.first.in_features = 64;
  const float scale = 1.0f;
  weights.first.scales = &scale;
  EXPECT_THAT(linear({}), StatusIs(absl::StatusCode::kUnimplemented, "have scales; allowed: none"));
  weights.first.scales = nullptr;
  weights.first.format = kernels::WeightFormat::kE4m3;
  EXPECT_THAT(linear({}), StatusIs(kInvalid, "experts: weights of format fp8_e4m3 have no scales"));
  weights.first.format = kernels::WeightFormat::kNone;
  EXPECT_THAT(linear({}), StatusIs(absl::StatusCode::kUnimplemented, "weights are none"));
  weights.num_experts = 0;
  EXPECT_THAT(linear({}), StatusIs(kInvalid, "num_experts is 0"));
}

}  // namespace
}  // namespace reprise::testing
