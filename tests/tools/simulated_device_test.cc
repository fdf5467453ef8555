// SPDX-License-Identifier: Apache-2.0
// Profiles as the cost of a simulated device's steps: one that was measured, and those that lack
// something.
#include "tools/simulated_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "nlohmann/json.hpp"

namespace reprise::tools {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

json Point(int rows, double context, double us) {
  return {{"rows", rows},
          {"mean_context", context + 1000},
          {"mean_attended", context},
          {"plain", {{"device_us", {{"p50", us}}}}}};
}

json Profile() {
  return {{"schema", "reprise.profile/1"},
          {"engine",
           {{"model", {{"architecture", "llama"}, {"parameters", 8030261248}}},
            {"device", {{"name", "NVIDIA H200"}}},
            {"dtype", "bf16"},
            {"kv_dtype", "bf16"},
            {"memory_bytes", {{"kv_cache", 1 << 30}}},
            {"graphs",
             {{{"name", "decode/8"}, {"capacity", 8}},
              {{"name", "mixed/256"}, {"capacity", 256}},
              {{"name", "mixed/512"}, {"capacity", 512}}}}}},
          {"points",
           {Point(1, 100, 5000), Point(1, 200, 5100), Point(8, 100, 5200), Point(8, 200, 5600)}}};
}

TEST(SimulatedDevice, IsReadFromAProfile) {
  const auto device = ParseSimulatedDevice("p.json", Profile().dump());
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_EQ(device->simulation->device_name, "sim (profile of NVIDIA H200)");
  EXPECT_EQ(device->simulation->cost.TimeNs({.tokens = 8, .kv_tokens = 1200}), 5400'000u);
  engine::DecodeEngineOptions options;
  engine::EngineDiagnostics diagnostics;
  ASSERT_TRUE(device->Apply({.preset = "llama-3.1-8b"}, &options, &diagnostics).ok());
  EXPECT_EQ(options.kv_cache_bytes, uint64_t{1} << 30);
  EXPECT_THAT(options.mixed_buckets, ElementsAre(256, 512));
  EXPECT_EQ(diagnostics.simulation, device->simulation.get());
}

// Prompts alone, or beside rows at `context`.
json PromptPoint(const json& prompts, double us, int rows = 0, double context = 0) {
  double tokens = rows * context;
  for (const json& prompt : prompts) tokens += prompt.get<double>();
  json point = Point(rows, tokens / (rows + static_cast<double>(prompts.size())), us);
  point["mean_context"] = point["mean_attended"];
  point["prompts"] = prompts;
  return point;
}

// A step's load of prompts alone, each from its first token on.
engine::StepLoad PromptsAlone(const std::vector<uint64_t>& prompts) {
  engine::StepLoad load{.chunk_rows = prompts.size()};
  for (const uint64_t tokens : prompts) {
    load.chunk_tokens += tokens;
    load.chunk_pairs += tokens * (tokens + 1) / 2;
  }
  load.tokens = load.kv_tokens = load.chunk_kv_tokens = load.chunk_tokens;
  return load;
}

TEST(SimulatedDevice, TakesTimesOfPromptsFromPointsOfPromptsAlone) {
  json profile = Profile();
  for (const json& point : {PromptPoint({64}, 8000), PromptPoint({1024}, 90000),
                            PromptPoint({256, 256, 256, 256}, 80000),
                            PromptPoint({64}, 8160, /*rows=*/8, /*context=*/100)})
    profile["points"].push_back(point);
  const auto device = ParseSimulatedDevice("p.json", profile.dump());
  ASSERT_TRUE(device.ok()) << device.status();
  const engine::StepCost& cost = device->simulation->cost;
  EXPECT_EQ(cost.TimeNs(PromptsAlone({64})), 8000'000u);
  EXPECT_EQ(cost.TimeNs(PromptsAlone({1024})), 90000'000u);
  EXPECT_EQ(cost.TimeNs(PromptsAlone({256, 256, 256, 256})), 80000'000u);
  EXPECT_EQ(cost.TimeNs({.tokens = 8, .kv_tokens = 1200}), 5400'000u) << "as without prompts";
  // 8,200 us, where 8,160 were measured.
  EXPECT_EQ(device->prompts_note,
            "simulated prompts: as p.json has them of 64 to 1,024 tokens a step; its points of "
            "prompts beside rows that decode, 1, differ from that by 0.5 % to 0.5 %");
}

TEST(SimulatedDevice, SaysWhatPromptsTake) {
  const auto note = [](const std::vector<json>& more) {
    json profile = Profile();
    for (const json& point : more) profile["points"].push_back(point);
    const auto device = ParseSimulatedDevice("p.json", profile.dump());
    EXPECT_TRUE(device.ok()) << device.status();
    return device.ok() ? device->prompts_note : "";
  };
  EXPECT_EQ(note({}),
            "simulated prompts: p.json has no points of prompts alone, so that a prompt's token "
            "takes what one more row takes: long chunks are too fast (docs/sim.md)");
  EXPECT_EQ(note({PromptPoint({64}, 8000)}),
            "simulated prompts: as p.json has them of 64 to 64 tokens a step; later chunks take "
            "what first ones do, as no two points of as many tokens tell what attending takes "
            "(docs/sim.md)");
  EXPECT_THAT(note({PromptPoint({64}, 20000, 8, 100)}), HasSubstr("decode, 1, differ"));
  json windowed = PromptPoint({64}, 20000, 8, 100);
  windowed["mean_attended"] = 20;
  EXPECT_EQ(note({windowed}), note({})) << "what its rows see is not known";
}

TEST(SimulatedDevice, RefusesPromptsThatCannotBe) {
  const auto refusal = [](const std::vector<json>& more) {
    json profile = Profile();
    for (const json& point : more) profile["points"].push_back(point);
    const auto device = ParseSimulatedDevice("p.json", profile.dump());
    EXPECT_EQ(device.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(device.status().message());
  };
  const auto of = [](const json& prompts) {
    json point = PromptPoint({64}, 8000);
    point["prompts"] = prompts;
    return point;
  };
  constexpr char kAllowed[] = "allowed an array of whole numbers from 1 on, up to 65536 together";
  for (const json& prompts :
       {json(5), json("64"), json::array({0}), json::array({64, -1}), json::array({1.5}),
        json::array({65537}), json::array({65536, 1}), json::array({uint64_t{1} << 63})}) {
    const std::string message = refusal({of(prompts)});
    EXPECT_THAT(message, HasSubstr("p.json: points[4].prompts: got ")) << prompts;
    EXPECT_THAT(message, HasSubstr(kAllowed)) << prompts;
  }
  EXPECT_THAT(refusal({PromptPoint({64}, 8000), PromptPoint({64}, 9000)}),
              HasSubstr("p.json: points: got two of 64 tokens of prompts that attend over 32.5 in "
                        "the mean, allowed: one"));
  EXPECT_THAT(refusal({PromptPoint({64}, 1e30)}),
              HasSubstr("points[4].plain.device_us.p50: got 1e+30"));
  json point = PromptPoint({64}, 8000);
  point.erase("rows");
  EXPECT_THAT(refusal({point}), HasSubstr("points[4].rows"));
  point = PromptPoint({64}, 8000);
  point["plain"] = nullptr;
  EXPECT_THAT(refusal({point}), HasSubstr("points[4].plain: got null"));
  EXPECT_THAT(refusal({PromptPoint({64}, 8000, 8, 0.5)}),
              HasSubstr("allowed one that leaves 8 rows a token beside prompts of 64"));
}

TEST(SimulatedDevice, RowsThatDecodeTakeNoTimesOfPromptsAndOfDifferentContexts) {
  json profile = Profile();
  profile["points"].push_back(Point(8, 150, 90000));
  profile["points"].back()["shortest_context"] = 50;
  profile["points"][0]["shortest_context"] = nullptr;
  profile["points"].push_back(Point(0, 0, 90000));
  profile["points"].back()["prompts"] = {256};
  const auto device = ParseSimulatedDevice("p.json", profile.dump());
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_EQ(device->simulation->cost.TimeNs({.tokens = 8, .kv_tokens = 1200}), 5400'000u);
}

TEST(SimulatedDevice, LeavesWhatWasAskedFor) {
  const auto device = ParseSimulatedDevice("p.json", Profile().dump());
  ASSERT_TRUE(device.ok()) << device.status();
  engine::DecodeEngineOptions options{.kv_cache_bytes = 5, .mixed_buckets = {64}};
  engine::EngineDiagnostics diagnostics;
  ASSERT_TRUE(device->Apply({.preset = "llama-3.1-8b"}, &options, &diagnostics).ok());
  EXPECT_EQ(options.kv_cache_bytes, 5u);
  EXPECT_THAT(options.mixed_buckets, ElementsAre(64));
}

// An 8B model's block of 16 tokens takes 2 MiB.
TEST(SimulatedDevice, BoundsThePoolByWhatIsKeptOfEachBlock) {
  constexpr uint64_t kMost = kMaxSimulatedBlocks << 21;
  const auto apply = [](uint64_t profiled, uint64_t asked) {
    json profile = Profile();
    profile["engine"]["memory_bytes"]["kv_cache"] = profiled;
    const auto device = ParseSimulatedDevice("p.json", profile.dump());
    if (!device.ok()) return device.status();
    engine::DecodeEngineOptions options{.kv_cache_bytes = asked};
    engine::EngineDiagnostics diagnostics;
    return device->Apply({.preset = "llama-3.1-8b"}, &options, &diagnostics);
  };
  EXPECT_EQ(apply(kMost, 0), absl::OkStatus());
  EXPECT_EQ(apply(1, kMost), absl::OkStatus());
  const absl::Status profiled = apply(kMost + (1 << 21), 0);
  EXPECT_EQ(profiled.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(profiled.message()),
              HasSubstr("p.json: engine.memory_bytes.kv_cache: got 140737490452480 bytes, 67108865 "
                        "KV blocks of 2097152, allowed: at most 140737488355328 bytes, 67108864 "));
  EXPECT_THAT(std::string(apply(1, uint64_t{1} << 53).message()),
              HasSubstr("KV cache: got 9007199254740992 bytes, 4294967296 KV blocks"));
}

TEST(SimulatedDevice, BoundsWhatAStepIsSaidToTake) {
  const auto refusal = [](const json& point) {
    json profile = Profile();
    profile["points"][1] = point;
    const auto device = ParseSimulatedDevice("p.json", profile.dump());
    EXPECT_EQ(device.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(device.status().message());
  };
  EXPECT_THAT(refusal(Point(1, 200, 1e30)),
              HasSubstr("p.json: points[1].plain.device_us.p50: got 1e+30, allowed a number up to "
                        "30000000, after which an engine gives a step up"));
  EXPECT_THAT(refusal(Point(1, 2e9, 5000)),
              HasSubstr("points[1].mean_attended: got 2000000000.0, allowed a number up to "
                        "1073741824 tokens"));
  EXPECT_THAT(refusal(Point(65537, 200, 5000)),
              HasSubstr("points[1].rows: got 65537, allowed an integer from 1 to 65536"));
  json slow = Profile();
  for (json& point : slow["points"]) point["plain"]["device_us"]["p50"] = 30e6;
  EXPECT_TRUE(ParseSimulatedDevice("p.json", slow.dump()).ok());
}

TEST(SimulatedDevice, RefusesAProfileOfSomethingElse) {
  const auto device = ParseSimulatedDevice("p.json", Profile().dump());
  ASSERT_TRUE(device.ok()) << device.status();
  engine::EngineDiagnostics diagnostics;
  const auto refusal = [&](const models::ModelSource& source, engine::DecodeEngineOptions options) {
    const absl::Status status = device->Apply(source, &options, &diagnostics);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    return std::string(status.message());
  };
  EXPECT_THAT(refusal({.preset = "llama-3.2-1b"}, {}),
              HasSubstr("allowed: 8030261248, which the profile is of"));
  EXPECT_THAT(refusal({.preset = "qwen3-8b"}, {}),
              HasSubstr("architecture: got qwen3, allowed: llama"));
  EXPECT_THAT(refusal({.preset = "llama-3.1-8b"},
                      {.dtype = runtime::DType::kF32, .dtype_from_checkpoint = false}),
              HasSubstr("dtype: got f32, allowed: bf16"));
  EXPECT_THAT(refusal({.preset = "llama-3.1-8b"}, {.kv_dtype = runtime::DType::kE4m3}),
              HasSubstr("kv_dtype: got fp8_e4m3, allowed: bf16"));
}

TEST(SimulatedDevice, NamesWhatAProfileLacks) {
  const auto refusal = [](const json& profile) {
    const auto device = ParseSimulatedDevice("p.json", profile.dump());
    EXPECT_EQ(device.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(device.status().message());
  };
  const auto without = [&](const std::string& path) {
    json profile = Profile();
    const json::json_pointer pointer(path);
    profile[pointer.parent_pointer()].erase(pointer.back());
    return refusal(profile);
  };
  EXPECT_THAT(without("/schema"), HasSubstr("p.json: schema: got nothing"));
  EXPECT_THAT(without("/engine"), HasSubstr("p.json: engine: got none, allowed: an object"));
  EXPECT_THAT(without("/engine/model"), HasSubstr("engine.model: got none"));
  EXPECT_THAT(without("/engine/model/parameters"), HasSubstr("engine.model.parameters"));
  EXPECT_THAT(without("/engine/device/name"), HasSubstr("engine.device.name"));
  EXPECT_THAT(without("/engine/dtype"), HasSubstr("engine.dtype"));
  EXPECT_THAT(without("/points"), HasSubstr("points: got none, allowed: an array"));
  json profile = Profile();
  profile["points"][1]["plain"]["device_us"] = nullptr;
  EXPECT_THAT(refusal(profile), HasSubstr("points[1].plain.device_us: got null"));
  profile = Profile();
  profile["points"][2].erase("rows");
  EXPECT_THAT(refusal(profile), HasSubstr("points[2].rows"));
  profile = Profile();
  profile["points"].erase(3);
  EXPECT_THAT(refusal(profile), HasSubstr("got one context for 8 rows"));
  EXPECT_THAT(std::string(ParseSimulatedDevice("p.json", "[]").status().message()),
              HasSubstr("p.json"));
  EXPECT_EQ(ReadSimulatedDevice("/no/such.json").status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace reprise::tools
