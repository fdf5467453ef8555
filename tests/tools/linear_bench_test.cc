// SPDX-License-Identifier: Apache-2.0
// The parts of `reprise bench linear` by themselves: shapes and their formats, chains of weights,
// candidates, the check against the reference, what is measured.
#include "tools/bench/linear_bench.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/config/model_presets.h"
#include "models/config/weight_quantization.h"
#include "models/decoder.h"
#include "runtime/status_macros.h"
#include "tests/testing/status_codes.h"
#include "tests/testing/status_matchers.h"
#include "tools/bench/linear_candidates.h"
#include "tools/bench/linear_check.h"
#include "tools/bench/linear_report.h"
#include "tools/bench/linear_shapes.h"

namespace reprise::tools {
namespace {

using kernels::WeightFormat;
using models::WeightQuantization;
using ::reprise::testing::StatusIs;
using runtime::DType;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using ::reprise::testing::kInvalid;

WeightQuantization Fp8() { return {}; }
WeightQuantization Int4(int32_t group_size) {
  return {.storage = models::WeightStorage::kPackedInt4, .group_size = group_size};
}

TEST(LinearShapes, AreThoseOfAModelsStep) {
  ASSERT_OK_AND_ASSIGN(const auto llama, models::PresetSpec("llama-3.1-8b"));
  std::vector<std::string> texts;
  for (const LinearShape& shape : LinearsOf(llama))
    texts.push_back(shape.name + " " + shape.SizeText() + " " + std::to_string(shape.per_step));
  EXPECT_THAT(texts, ElementsAre("qkv 6144x4096 32", "o 4096x4096 32", "gate_up 28672x4096 32",
                                 "down 4096x14336 32", "lm_head 128256x4096 1"));
  EXPECT_EQ(StepWeightBytes(LinearsOf(llama)), 15009316864u);
  ASSERT_OK_AND_ASSIGN(const auto granite, models::PresetSpec("granite-8b-code"));
  const auto shapes = LinearsOf(granite);
  EXPECT_EQ(shapes[3].per_step, 36u);
  EXPECT_TRUE(shapes[3].biased);
  EXPECT_FALSE(shapes[4].biased);
  EXPECT_TRUE(shapes[4].out_is_f32);
}

TEST(LinearShapes, OfLayersWithExpertsAreTheRouters) {
  ASSERT_OK_AND_ASSIGN(auto qwen, models::PresetSpec("qwen3-30b-a3b"));
  const auto text = [&] {
    std::vector<std::string> texts;
    for (const LinearShape& shape : LinearsOf(qwen))
      texts.push_back(shape.name + " " + shape.SizeText() + " " + std::to_string(shape.per_step));
    return texts;
  };
  EXPECT_THAT(text(), ElementsAre("qkv 5120x2048 48", "o 2048x4096 48", "router 128x2048 48",
                                  "lm_head 151936x2048 1"));
  qwen.sparse.assign(48, true);
  qwen.sparse[0] = false;
  EXPECT_THAT(text(),
              ElementsAre("qkv 5120x2048 48", "o 2048x4096 48", "gate_up 12288x2048 1",
                          "down 2048x6144 1", "router 128x2048 47", "lm_head 151936x2048 1"));
}

TEST(LinearShapes, OfStateSpaceModelsAreTheirProjections) {
  ASSERT_OK_AND_ASSIGN(const auto granite, models::PresetSpec("granite-4.0-h-micro"));
  std::vector<std::string> texts;
  for (const LinearShape& shape : LinearsOf(granite))
    texts.push_back(shape.name + " " + shape.SizeText() + " " + std::to_string(shape.per_step));
  EXPECT_THAT(texts, ElementsAre("qkv 3072x2048 4", "o 2048x2048 4", "mamba_in 8512x2048 36",
                                 "mamba_out 2048x4096 36", "gate_up 16384x2048 40",
                                 "down 2048x8192 40", "lm_head 100352x2048 1"));
}

std::vector<LinearShape> FormattedLinearsOf(const models::ModelSpec& spec) {
  std::vector<LinearShape> shapes = LinearsOf(spec);
  SetFormats(&shapes, DType::kBf16, spec.weight_quantization);
  return shapes;
}

std::vector<std::string> Formats(const std::vector<LinearShape>& shapes) {
  std::vector<std::string> texts;
  for (const LinearShape& shape : shapes)
    texts.push_back(absl::StrCat(shape.name, " ", std::string(NameOf(shape.format)), " ",
                                 shape.group_size, " ", shape.WeightBytes()));
  return texts;
}

TEST(LinearShapes, OfQuantisedModelsHaveTheirFormats) {
  ASSERT_OK_AND_ASSIGN(auto llama, models::PresetSpec("llama-3.1-8b-fp8"));
  EXPECT_THAT(Formats(FormattedLinearsOf(llama)),
              ElementsAre(absl::StrCat("qkv fp8_e4m3 128 ", 6144 * 4096 + 6144 * 32 * 4),
                          absl::StrCat("o fp8_e4m3 128 ", 4096 * 4096 + 4096 * 32 * 4),
                          absl::StrCat("gate_up fp8_e4m3 128 ", 28672 * 4096 + 28672 * 32 * 4),
                          absl::StrCat("down fp8_e4m3 128 ", 4096 * 14336 + 4096 * 112 * 4),
                          absl::StrCat("lm_head bf16 0 ", 128256 * 4096 * 2)));
  llama.weight_quantization = Int4(64);
  EXPECT_EQ(Formats(FormattedLinearsOf(llama))[0],
            absl::StrCat("qkv int4 64 ", 6144 * 4096 / 2 + 6144 * 64 * 4));
  ASSERT_OK_AND_ASSIGN(const auto qwen, models::PresetSpec("qwen3-30b-a3b-int4"));
  EXPECT_EQ(Formats(FormattedLinearsOf(qwen))[2], absl::StrCat("router bf16 0 ", 128 * 2048 * 2));
  ASSERT_OK_AND_ASSIGN(auto granite, models::PresetSpec("granite-4.0-h-micro"));
  granite.weight_quantization = Fp8();
  EXPECT_EQ(FormattedLinearsOf(granite)[2].format, WeightFormat::kE4m3);
}

TEST(LinearShapes, OfQuantisedModelsAreThoseThatAStepReadsSo) {
  for (const char* name :
       {"llama-3.1-8b-fp8", "llama-3.1-8b-int4", "qwen3-8b-awq", "qwen3-30b-a3b-fp8"}) {
    ASSERT_OK_AND_ASSIGN(const auto spec, models::PresetSpec(name));
    ASSERT_OK_AND_ASSIGN(const auto decoder, models::Decoder::Create(spec));
    int64_t bytes = 0;
    for (const LinearShape& shape : FormattedLinearsOf(spec))
      if (shape.group_size != 0)
        bytes += static_cast<int64_t>(shape.per_step * shape.WeightBytes());
    EXPECT_EQ(bytes, decoder->PlanWeights(DType::kBf16).quantized_bytes_read()) << name;
  }
}

// Attention in two layers, and down in one of these.
TEST(LinearShapes, OfLayersLeftOutAreShapesOfTheirOwn) {
  ASSERT_OK_AND_ASSIGN(auto llama, models::PresetSpec("llama-3.1-8b-fp8"));
  llama.weight_quantization->left_out.assign(32, 0);
  llama.weight_quantization->left_out[0] = 1 + 2;
  llama.weight_quantization->left_out[31] = 1 + 2 + 8;
  std::vector<std::string> texts;
  uint64_t scaled = 0, plain = 0;
  for (const LinearShape& shape : FormattedLinearsOf(llama)) {
    texts.push_back(
        absl::StrCat(shape.name, " ", shape.per_step, " ", std::string(NameOf(shape.format))));
    (shape.group_size != 0 ? scaled : plain) += shape.per_step * shape.WeightBytes();
  }
  EXPECT_THAT(texts, ElementsAre("qkv 30 fp8_e4m3", "qkv_plain 2 bf16", "o 30 fp8_e4m3",
                                 "o_plain 2 bf16", "gate_up 32 fp8_e4m3", "down 31 fp8_e4m3",
                                 "down_plain 1 bf16", "lm_head 1 bf16"));
  ASSERT_OK_AND_ASSIGN(const auto decoder, models::Decoder::Create(llama));
  const models::WeightPlan plan = decoder->PlanWeights(DType::kBf16);
  EXPECT_EQ(scaled, static_cast<uint64_t>(plan.quantized_bytes_read()));
  const uint64_t norms = 65 * 4096;
  EXPECT_EQ(plain, (static_cast<uint64_t>(plan.elements_read()) - norms) * 2);
}

TEST(LinearShapes, CountWhatFillsRowsUp) {
  const LinearShape shape = {
      .out_features = 3, .in_features = 33, .format = WeightFormat::kInt4, .group_size = 32};
  EXPECT_EQ(shape.ElementBytes(), 3u * 64 / 2);
  EXPECT_EQ(shape.ScaleBytes(), 3u * 2 * 4);
}

TEST(LinearShapes, AreReadFromTextOrRefused) {
  ASSERT_OK_AND_ASSIGN(const auto shapes, ParseLinearShapes("6144x4096,33x7"));
  ASSERT_EQ(shapes.size(), 2u);
  EXPECT_EQ(shapes[1].out_features, 33);
  EXPECT_EQ(shapes[1].in_features, 7);
  EXPECT_EQ(shapes[1].per_step, 0u);
  for (const char* text : {"", "64", "64x", "x64", "0x4", "4x0", "4x4x4", "4x-4", "16777217x1"}) {
    EXPECT_THAT(ParseLinearShapes(text),
                StatusIs(kInvalid, "\", allowed: <out_features>x<in_features>, such as"))
        << text;
  }
  EXPECT_THAT(ParseLinearShapes("8x8,8x8"), StatusIs(kInvalid, "got \"8x8\" twice"));
}

// 2 KiB and 1 KiB in f32.
std::vector<LinearShape> TwoShapes() {
  std::vector<LinearShape> shapes = {
      {.name = "wide", .out_features = 32, .in_features = 16, .per_step = 2},
      {.name = "head", .out_features = 16, .in_features = 16, .per_step = 1}};
  SetFormats(&shapes, DType::kF32, std::nullopt);
  return shapes;
}

// By call: where its elements begin, and where its scales do.
std::vector<uint64_t> ElementsOf(const LinearChain& chain) {
  std::vector<uint64_t> begins;
  for (const LinearRanges& begin : chain.begins) begins.push_back(begin.elements);
  return begins;
}
std::vector<uint64_t> ScalesOf(const LinearChain& chain) {
  std::vector<uint64_t> begins;
  for (const LinearRanges& begin : chain.begins) begins.push_back(begin.scales);
  return begins;
}

TEST(LinearChains, ReadDistinctWeightsUntilTheyBeginAnew) {
  const LinearChain fits = ChainOfShape(TwoShapes(), 0, 3, 6144);
  EXPECT_THAT(ElementsOf(fits), ElementsAre(0, 2048, 4096));
  EXPECT_EQ(fits.cycled_bytes, 6144u);
  EXPECT_EQ(fits.unit_bytes, 2048u);
  EXPECT_EQ(fits.units(), 3);
  const LinearChain again = ChainOfShape(TwoShapes(), 0, 4, 6143);
  EXPECT_THAT(ElementsOf(again), ElementsAre(0, 2048, 0, 2048));
  EXPECT_EQ(again.cycled_bytes, 4096u);
}

TEST(LinearChains, HaveAStepsCallsInItsOrder) {
  const LinearChain steps = ChainOfSteps(TwoShapes(), 2, 1 << 20);
  EXPECT_THAT(steps.shapes, ElementsAre(0, 0, 1, 0, 0, 1));
  EXPECT_THAT(ElementsOf(steps), ElementsAre(0, 2048, 4096, 5120, 7168, 9216));
  EXPECT_EQ(steps.unit_bytes, 5120u);
  EXPECT_EQ(steps.cycled_bytes, 10240u);
  EXPECT_EQ(steps.units(), 2);
}

// 4 KiB with 128 bytes of scales, and 512 bytes of bf16.
TEST(LinearChains, HaveRangesForEveryFormat) {
  std::vector<LinearShape> shapes = {
      {.name = "wide", .out_features = 32, .in_features = 128, .per_step = 2},
      {.name = "head", .out_features = 16, .in_features = 16, .per_step = 1, .plain = true}};
  SetFormats(&shapes, DType::kBf16, Fp8());
  const LinearChain step = ChainOfSteps(shapes, 1, 2 * 4224 + 512);
  EXPECT_THAT(ElementsOf(step), ElementsAre(0, 4096, 0));
  EXPECT_THAT(ScalesOf(step), ElementsAre(0, 256, 0));
  EXPECT_EQ(step.unit_bytes, 2u * 4224 + 512);
  EXPECT_EQ(step.cycled_bytes, step.unit_bytes);
  const auto ranges = RangesOf(shapes, {step, ChainOfShape(shapes, 1, 3, 1 << 20)});
  ASSERT_EQ(ranges.size(), 2u);
  EXPECT_EQ(ranges.at(WeightFormat::kE4m3).elements, 8192u);
  EXPECT_EQ(ranges.at(WeightFormat::kE4m3).scales, 512u);
  EXPECT_EQ(ranges.at(WeightFormat::kBf16).elements, 3u * 512);
  EXPECT_EQ(ranges.at(WeightFormat::kBf16).scales, 0u);
  // Scales count: a byte less does not hold them all.
  const LinearChain wrapped = ChainOfShape(shapes, 0, 3, 2 * 4224 - 1);
  EXPECT_THAT(ScalesOf(wrapped), ElementsAre(0, 0, 0));
  EXPECT_EQ(wrapped.cycled_bytes, 4224u);
}

TEST(LinearChains, AreLongerThanCachesWhereAModelIsNot) {
  const std::vector<LinearShape> shapes = TwoShapes();
  EXPECT_EQ(DefaultLinearCalls(shapes[0], 1), 2u);  // those of a step
  EXPECT_EQ(DefaultLinearCalls(shapes[0], 20000), 10u);
  EXPECT_EQ(DefaultLinearCalls(shapes[0], 1 << 30), 512u);
  EXPECT_EQ(DefaultLinearSteps(shapes, 5121), 2u);
  EXPECT_EQ(DefaultLinearSteps(shapes, 1 << 30), 4096u / 3);
}

TEST(LinearPool, HoldsAModelsWeightsAsFarAsMemoryAllows) {
  ASSERT_OK_AND_ASSIGN(const auto llama, models::PresetSpec("llama-3.1-8b"));
  const auto shapes = LinearsOf(llama);
  const uint64_t step = StepWeightBytes(shapes);
  const runtime::DeviceProperties host;
  runtime::DeviceProperties gpu;
  gpu.kind = runtime::DeviceKind::kCuda;
  EXPECT_EQ(DefaultLinearPool(gpu, shapes, uint64_t{140} << 30), step);
  EXPECT_EQ(DefaultLinearPool(gpu, shapes, 10000000000), 8000000000u);
  // lm_head alone is larger than what the host takes otherwise.
  EXPECT_EQ(DefaultLinearPool(host, shapes, uint64_t{140} << 30), uint64_t{128256} * 4096 * 2);
  EXPECT_EQ(DefaultLinearPool(gpu, TwoShapes(), uint64_t{1} << 40), 256u << 20);
  EXPECT_EQ(DefaultLinearPool(host, TwoShapes(), uint64_t{1} << 40), 64u << 20);
}

TEST(LinearCandidatesTable, IsFoundByNameAndSuggested) {
  ASSERT_OK_AND_ASSIGN(const auto both, ParseLinearCandidates("portable,best"));
  ASSERT_EQ(both.size(), 2u);
  EXPECT_EQ(both[0]->name, "portable");
  EXPECT_THAT(ParseLinearCandidates("bst"),
              StatusIs(kInvalid, "candidate: got \"bst\"; did you mean \"best\"? allowed: best, "));
  EXPECT_THAT(ParseLinearCandidates("best,best"), StatusIs(kInvalid, "got \"best\" twice"));
}

// Odd sizes, a bias, outputs in f32.
std::vector<LinearShape> SmallShapes(DType dtype,
                                     const std::optional<WeightQuantization>& quantization) {
  std::vector<LinearShape> shapes = {
      {.name = "qkv", .out_features = 96, .in_features = 64, .per_step = 2, .biased = true},
      {.name = "odd", .out_features = 37, .in_features = 29, .per_step = 2},
      {.name = "head",
       .out_features = 130,
       .in_features = 64,
       .per_step = 1,
       .out_is_f32 = true,
       .plain = true}};
  SetFormats(&shapes, dtype, quantization);
  return shapes;
}

absl::StatusOr<std::unique_ptr<LinearBench>> SmallBench(
    runtime::Device& device, DType dtype, std::vector<const LinearCandidateEntry*> candidates = {},
    const std::optional<WeightQuantization>& quantization = std::nullopt) {
  if (candidates.empty())
    for (const LinearCandidateEntry& entry : LinearCandidates())
      if (entry.layout == kernels::WeightLayout::kRowMajor) candidates.push_back(&entry);
  return LinearBench::Create(device, SmallShapes(dtype, quantization), std::move(candidates),
                             {.dtype = dtype,
                              .rows = {1, 5},
                              .rounds = 1,
                              .replays = 2,
                              .calls = 3,
                              .pool_bytes = 1 << 16});
}

class LinearBenchDType : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Every, LinearBenchDType,
                         ::testing::Values(DType::kF32, DType::kBf16, DType::kF16),
                         [](const auto& info) { return std::string(NameOf(info.param)); });

void ExpectThatChecksPass(LinearBench* bench) {
  std::vector<LinearCell> cells = bench->Cells();
  ASSERT_EQ(cells.size(), 8u);  // 2 numbers of rows, 3 shapes and the step
  for (LinearCell& cell : cells) {
    ASSERT_OK(bench->Check(&cell));
    for (const LinearTimes& times : cell.candidates) {
      ASSERT_EQ(times.check.has_value(), !bench->chains()[cell.chain].is_step());
      if (!times.check) continue;
      EXPECT_GE(times.check->num_outputs, cell.rows * 2);
      EXPECT_GE(times.check->worst, 0.0);
      EXPECT_LE(times.check->worst, 1.0);
    }
  }
}

TEST_P(LinearBenchDType, EveryCandidateMatchesTheReference) {
  ASSERT_OK_AND_ASSIGN(const auto device, runtime::Device::Create({}));
  ASSERT_OK_AND_ASSIGN(const auto bench, SmallBench(*device, GetParam()));
  ExpectThatChecksPass(bench.get());
}

TEST_P(LinearBenchDType, EveryCandidateMatchesTheReferenceWithQuantisedWeights) {
  ASSERT_OK_AND_ASSIGN(const auto device, runtime::Device::Create({}));
  for (const WeightQuantization& quantization : {Fp8(), Int4(32), Int4(64), Int4(128)}) {
    SCOPED_TRACE(
        absl::StrCat(std::string(NameOf(quantization.format())), " ", quantization.scale_inputs()));
    ASSERT_OK_AND_ASSIGN(const auto bench, SmallBench(*device, GetParam(), {}, quantization));
    ASSERT_EQ(bench->shapes()[0].format, quantization.format());
    ASSERT_EQ(bench->shapes()[2].format, kernels::WeightFormatOf(GetParam()));
    ExpectThatChecksPass(bench.get());
  }
}

const LinearCandidateEntry* Candidate(std::string_view name) {
  for (const LinearCandidateEntry& entry : LinearCandidates())
    if (entry.name == name) return &entry;
  ADD_FAILURE() << name;
  return nullptr;
}

// Several scales of an output, and alone or beside candidates that read the same bits row-major.
TEST_P(LinearBenchDType, QuantisedWeightsAreCheckedInEitherOrder) {
  ASSERT_OK_AND_ASSIGN(const auto device, runtime::Device::Create({}));
  const std::vector<std::vector<const LinearCandidateEntry*>> together = {
      {Candidate("packed")}, {Candidate("best"), Candidate("packed"), Candidate("portable")}};
  for (const WeightQuantization& quantization : {Fp8(), Int4(32), Int4(64), Int4(128)}) {
    for (const auto& candidates : together) {
      SCOPED_TRACE(absl::StrCat(std::string(NameOf(quantization.format())), " ",
                                quantization.scale_inputs(), ", ", candidates.size()));
      std::vector<LinearShape> shapes = {
          {.name = "one", .out_features = 48, .in_features = 320, .biased = true}};
      SetFormats(&shapes, GetParam(), quantization);
      ASSERT_OK_AND_ASSIGN(const auto bench,
                           LinearBench::Create(*device, shapes, candidates,
                                               {.dtype = GetParam(), .rows = {3}, .calls = 2}));
      LinearCell cell = bench->Cells()[0];
      ASSERT_OK(bench->Check(&cell));
      EXPECT_EQ(cell.candidates.size(), candidates.size());
    }
  }
}

// Of whole tiles alone, and of 16 bits.
TEST(LinearBench, PackedWeightsAreCheckedInTheirOwnOrder) {
  ASSERT_OK_AND_ASSIGN(const auto device, runtime::Device::Create({}));
  const auto check = [&](LinearShape shape, DType dtype) {
    shape.name = "one";
    shape.format = kernels::WeightFormatOf(dtype);
    REPRISE_ASSIGN_OR_RETURN(const auto bench,
                             LinearBench::Create(*device, {shape}, {Candidate("packed")},
                                                 {.dtype = dtype, .rows = {3}, .calls = 2}));
    LinearCell cell = bench->Cells()[0];
    return bench->Check(&cell);
  };
  EXPECT_OK(check({.out_features = 48, .in_features = 192, .biased = true}, DType::kBf16));
  EXPECT_OK(check({.out_features = 16, .in_features = 64}, DType::kF16));
  EXPECT_THAT(check({.out_features = 40, .in_features = 64}, DType::kBf16),
              StatusIs(kInvalid, "candidate packed: got a weight of 40x64, allowed: multiples of"));
  EXPECT_THAT(check({.out_features = 48, .in_features = 64}, DType::kF32),
              StatusIs(absl::StatusCode::kUnimplemented, "packed and f32"));
}

absl::Status CheckOnly(const LinearCandidateEntry& entry, DType dtype,
                       const std::optional<WeightQuantization>& quantization = std::nullopt) {
  REPRISE_ASSIGN_OR_RETURN(const auto device, runtime::Device::Create({}));
  REPRISE_ASSIGN_OR_RETURN(const auto bench, SmallBench(*device, dtype, {&entry}, quantization));
  std::vector<LinearCell> cells = bench->Cells();
  const absl::Status checked = bench->Check(&cells[0]);
  EXPECT_EQ(cells[0].candidates[0].check.has_value(), checked.ok());  // else as it was
  return checked;
}

TEST(LinearCheck, FindsACandidateThatForgetsAnInput) {
  const LinearCandidateEntry forgetful{
      .name = "forgetful", .description = "", .enqueue = [](const LinearBenchCall& call) {
        kernels::LinearArgs args = call.args;
        args.scale = 0.99f;  // about what one input in a hundred adds
        return LinearCandidates()[0].enqueue({.stream = call.stream,
                                              .kernels = call.kernels,
                                              .weights = call.weights,
                                              .args = args,
                                              .max_rows = call.max_rows});
      }};
  for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF16})
    EXPECT_THAT(CheckOnly(forgetful, dtype),
                StatusIs(absl::StatusCode::kInternal, "check: \"forgetful\" of qkv with 1 row"));
}

TEST(LinearCheck, FindsACandidateThatWritesNothingOrLeavesTheBias) {
  const LinearCandidateEntry idle{
      .name = "idle", .description = "", .enqueue = [](const LinearBenchCall&) {
        return absl::OkStatus();
      }};
  EXPECT_THAT(CheckOnly(idle, DType::kBf16), StatusIs(absl::StatusCode::kInternal, "got nan"));
  const LinearCandidateEntry unbiased{
      .name = "unbiased", .description = "", .enqueue = [](const LinearBenchCall& call) {
        kernels::LinearWeights weights = call.weights;
        weights.bias = nullptr;
        return LinearCandidates()[1].enqueue({.stream = call.stream,
                                              .kernels = call.kernels,
                                              .weights = weights,
                                              .args = call.args,
                                              .max_rows = call.max_rows});
      }};
  EXPECT_THAT(CheckOnly(unbiased, DType::kBf16),
              StatusIs(absl::StatusCode::kInternal, "times what is allowed"));
}

// Reads the scales of other outputs, or the elements of other inputs.
template <int kScales, int kBytes>
absl::Status EnqueueShifted(const LinearBenchCall& call) {
  kernels::LinearWeights weights = call.weights;
  weights.scales += kScales;
  weights.data = static_cast<const std::byte*>(weights.data) + kBytes;
  return LinearCandidates()[0].enqueue({.stream = call.stream,
                                        .kernels = call.kernels,
                                        .weights = weights,
                                        .args = call.args,
                                        .max_rows = call.max_rows});
}

TEST(LinearCheck, FindsACandidateThatReadsOtherScalesOrElements) {
  for (const kernels::WeightLayout layout :
       {kernels::WeightLayout::kRowMajor, kernels::WeightLayout::kPacked}) {
    const auto check = [&](auto enqueue, const WeightQuantization& quantization) {
      return CheckOnly({.name = "shifted", .description = "", .enqueue = enqueue, .layout = layout},
                       DType::kBf16, quantization);
    };
    for (const WeightQuantization& quantization : {Fp8(), Int4(32), Int4(128)}) {
      SCOPED_TRACE(absl::StrCat(std::string(NameOf(layout)), ", ",
                                std::string(NameOf(quantization.format()))));
      EXPECT_OK(check(EnqueueShifted<0, 0>, quantization));
      EXPECT_THAT(check(EnqueueShifted<4, 0>, quantization),
                  StatusIs(absl::StatusCode::kInternal, "check: \"shifted\" of qkv with 1 row"));
      EXPECT_THAT(check(EnqueueShifted<0, 16>, quantization),
                  StatusIs(absl::StatusCode::kInternal, "check: \"shifted\" of qkv with 1 row"));
    }
  }
}

TEST(LinearBench, RefusesFormatsThatNoKernelReads) {
  ASSERT_OK_AND_ASSIGN(const auto device, runtime::Device::Create({}));
  std::vector<LinearShape> shapes = SmallShapes(DType::kF16, std::nullopt);
  ASSERT_OK_AND_ASSIGN(const auto bench, LinearBench::Create(*device, shapes, {Candidate("best")},
                                                             {.dtype = DType::kBf16, .rows = {1}}));
  std::vector<LinearCell> cells = bench->Cells();
  EXPECT_THAT(bench->Check(&cells[0]),
              StatusIs(absl::StatusCode::kUnimplemented, "weights are f16 with activations of"));
}

TEST(LinearBench, MeasuresCallsAndSteps) {
  ASSERT_OK_AND_ASSIGN(const auto device, runtime::Device::Create({}));
  ASSERT_OK_AND_ASSIGN(const auto bench, SmallBench(*device, DType::kBf16));
  std::vector<LinearCell> cells = bench->Cells();
  uint32_t replays = 0;
  const auto measured = [&](uint32_t more) {
    replays += more;
    return absl::OkStatus();
  };
  ASSERT_OK(bench->Measure(measured, &cells[3]));
  ASSERT_OK(bench->Measure(measured, &cells[3]));
  EXPECT_EQ(replays, 4u);
  EXPECT_EQ(bench->chains()[3].name, "step");
  ASSERT_EQ(cells[3].candidates.size(), 2u);
  for (const LinearTimes& times : cells[3].candidates) {
    EXPECT_EQ(times.unit_ns.count(), 4u);
    EXPECT_EQ(times.round_ns.count(), 2u);
    EXPECT_GT(times.MedianNs(), 0.0);
  }
}

// Of calls that take two milliseconds and more: three of a shape in a graph, and five in a step.
TEST(LinearBench, TimesAreOfOneCallOrOneStep) {
  ASSERT_OK_AND_ASSIGN(const auto device, runtime::Device::Create({}));
  const LinearCandidateEntry slow{
      .name = "slow", .description = "", .enqueue = [](const LinearBenchCall& call) {
        return call.stream.EnqueueHost(
            [] { std::this_thread::sleep_for(std::chrono::milliseconds(2)); });
      }};
  ASSERT_OK_AND_ASSIGN(const auto bench, SmallBench(*device, DType::kF32, {&slow}));
  std::vector<LinearCell> cells = bench->Cells();
  const auto measured = [](uint32_t) { return absl::OkStatus(); };
  ASSERT_OK(bench->Measure(measured, &cells[0]));
  EXPECT_GE(cells[0].candidates[0].MedianNs(), 1.9e6);
  ASSERT_OK(bench->Measure(measured, &cells[3]));
  EXPECT_GE(cells[3].candidates[0].MedianNs(), 9.5e6);
  // Not the time of all three: the clock of a busy machine may be late, but not every time.
  double least = cells[0].candidates[0].MedianNs();
  for (int i = 0; i < 20 && least >= 5e6; ++i) {
    std::vector<LinearCell> again = bench->Cells();
    ASSERT_OK(bench->Measure(measured, &again[0]));
    least = std::min(least, again[0].candidates[0].MedianNs());
  }
  EXPECT_LT(least, 5e6);
}

TEST(LinearBench, AnInterruptedRoundLeavesTheOnesBefore) {
  ASSERT_OK_AND_ASSIGN(const auto device, runtime::Device::Create({}));
  ASSERT_OK_AND_ASSIGN(const auto bench, SmallBench(*device, DType::kF32));
  std::vector<LinearCell> cells = bench->Cells();
  const auto stop = [](uint32_t) { return absl::CancelledError("enough"); };
  EXPECT_THAT(bench->Measure(stop, &cells[0]), StatusIs(absl::StatusCode::kCancelled, "enough"));
  EXPECT_TRUE(cells[0].candidates[0].unit_ns.empty());
}

TEST(LinearBench, RefusesWhatMemoryDoesNotHold) {
  ASSERT_OK_AND_ASSIGN(const auto device, runtime::Device::Create({}));
  const LinearShape vast = {.name = "vast", .out_features = 1 << 24, .in_features = 1 << 24};
  EXPECT_THAT(LinearBench::Create(*device, {vast}, {&LinearCandidates()[0]}, {}),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       "memory: 256 rows over 512.00 TiB of weights need "));
}

// Of one million bytes in 100 us, where 20 GB/s can be read.
TEST(LinearReport, SharesAreOfTheBandwidthOfTheSameRun) {
  ASSERT_OK_AND_ASSIGN(const auto device, runtime::Device::Create({}));
  ASSERT_OK_AND_ASSIGN(const auto bench, SmallBench(*device, DType::kBf16));
  LinearContext context{.bench = *bench, .model = "", .device = {}, .bandwidth = {}};
  context.bandwidth.read.Add(16e9);
  context.bandwidth.read.Add(20e9);
  EXPECT_DOUBLE_EQ(LinearContext::Rate(1000000, 100e3), 10e9);
  EXPECT_DOUBLE_EQ(context.Share(1000000, 100e3), 0.5);
  std::vector<LinearCell> cells = bench->Cells();
  for (LinearCell& cell : cells) {
    for (LinearTimes& times : cell.candidates) {
      times.unit_ns.Add(1000.0 * static_cast<double>(cell.chain + 1));
      times.round_ns.Add(1000.0 * static_cast<double>(cell.chain + 1));
    }
  }
  const nlohmann::json json = LinearToJson(cells, context);
  // 2 x 1 us, 2 x 2 us and 1 x 3 us, of 2 x 96 x 64, 2 x 37 x 29 and 130 x 64 elements of 2 bytes.
  EXPECT_DOUBLE_EQ(json["steps"][0]["sum_us"], 9.0);
  EXPECT_EQ(json["steps"][0]["weight_bytes"], 2 * (2 * 96 * 64 + 2 * 37 * 29 + 130 * 64));
  EXPECT_DOUBLE_EQ(json["steps"][0]["chain"]["us"]["p50"], 4.0);
  EXPECT_THAT(LinearText(cells, context), HasSubstr("9.00"));
  EXPECT_EQ(json["shapes"][0]["weight_format"], "bf16");
  EXPECT_EQ(json["shapes"][0]["group_size"], nullptr);
  EXPECT_THAT(LinearHeader(context), HasSubstr("bf16, qkv 96x64, odd 37x29, head 130x64"));
}

TEST(LinearReport, NamesTheFormatsOfWeights) {
  ASSERT_OK_AND_ASSIGN(const auto device, runtime::Device::Create({}));
  ASSERT_OK_AND_ASSIGN(const auto bench, SmallBench(*device, DType::kF16, {}, Int4(64)));
  const LinearContext context{.bench = *bench, .model = "", .device = {}, .bandwidth = {}};
  EXPECT_THAT(LinearHeader(context),
              HasSubstr("f16, weights int4 in groups of 64: qkv 96x64, odd 37x29; weights f16: "
                        "head 130x64"));
  const nlohmann::json json = LinearToJson({}, context);
  EXPECT_EQ(json["dtype"], "f16");
  EXPECT_EQ(json["shapes"][0]["weight_format"], "int4");
  EXPECT_EQ(json["shapes"][0]["group_size"], 64);
  EXPECT_EQ(json["shapes"][0]["weight_bytes"], 96 * 64 / 2 + 96 * 4);
  EXPECT_EQ(json["shapes"][2]["weight_format"], "f16");
  EXPECT_EQ(json["shapes"][2]["group_size"], nullptr);
}

}  // namespace
}  // namespace reprise::tools
