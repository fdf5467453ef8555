// SPDX-License-Identifier: Apache-2.0
// What is said of every field of a config, and that all that is wrong is said, not the first alone.
#include "models/config/config_report.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "models/config/hf_config.h"
#include "tests/models/model_files.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/tiny_model.h"

namespace reprise::models {
namespace {

using Json = nlohmann::json;

class ConfigReportTest : public ::testing::Test {
 protected:
  // The config of a tiny model with other fields.
  absl::StatusOr<ConfigReport> Report(const Json& changes) {
    EXPECT_OK(testing::WriteTinyModel({.architecture = "mistral"}, path()));
    std::ifstream stream(path() + "/config.json");
    Json config = Json::parse(stream);
    config.update(changes);
    testing::WriteBytes(path() + "/config.json", config.dump());
    return ReportHfConfig(path());
  }
  const std::string& path() const { return directory_.path(); }

 private:
  testing::TemporaryDirectory directory_;
};

std::map<std::string, FieldUse> UsesOf(const ConfigReport& report) {
  std::map<std::string, FieldUse> uses;
  for (const FieldReport& field : report.fields) uses[field.name] = field.use;
  return uses;
}

TEST_F(ConfigReportTest, SaysOfEveryFieldWhatBecomesOfIt) {
  ASSERT_OK_AND_ASSIGN(const ConfigReport report, Report({{"use_cache", true}}));
  EXPECT_TRUE(report.errors.empty());
  EXPECT_EQ(report.architecture, "MistralForCausalLM");
  const auto uses = UsesOf(report);
  EXPECT_EQ(uses.at("hidden_size"), FieldUse::kRead);
  EXPECT_EQ(uses.at("use_cache"), FieldUse::kIgnored);
  EXPECT_EQ(uses.at("hidden_act"), FieldUse::kNeutral);
  for (const FieldReport& field : report.fields) EXPECT_EQ(field.why, "");
  ASSERT_OK_AND_ASSIGN(const ModelSpec spec, ReadHfConfig(path()));
  EXPECT_EQ(report.spec.hidden_size, spec.hidden_size);
  EXPECT_EQ(report.spec.name, spec.name);
  EXPECT_EQ(report.spec.eos_token_ids, spec.eos_token_ids);
}

TEST_F(ConfigReportTest, NamesEverythingThatIsWrong) {
  ASSERT_OK_AND_ASSIGN(const ConfigReport report,
                       Report({{"moe_layers", 3},
                               {"hidden_act", "gelu"},
                               {"rms_norm_eps", -1},
                               {"rope_scaling", {{"rope_type", "dynamic"}, {"factor", 2.0}}},
                               {"torch_dtype", "int3"}}));
  EXPECT_EQ(report.errors.size(), 5u);
  const auto uses = UsesOf(report);
  for (const char* name :
       {"moe_layers", "hidden_act", "rms_norm_eps", "rope_scaling", "torch_dtype"})
    EXPECT_EQ(uses.at(name), FieldUse::kRefused) << name;
  EXPECT_EQ(uses.at("hidden_size"), FieldUse::kRead);
  for (const FieldReport& field : report.fields)
    EXPECT_EQ(field.why.empty(), field.use != FieldUse::kRefused) << field.name;
  // What loading answers.
  EXPECT_EQ(ReadHfConfig(path()).status(), report.errors.front());
}

TEST_F(ConfigReportTest, JudgesNoNumberByASizeThatIsWrong) {
  ASSERT_OK_AND_ASSIGN(const ConfigReport report, Report({{"num_attention_heads", 0},
                                                          {"head_dim", nullptr},
                                                          {"vocab_size", 0},
                                                          {"eos_token_id", 5},
                                                          {"torch_dtype", "int3"}}));
  EXPECT_EQ(report.errors.size(), 3u);
  const auto uses = UsesOf(report);
  EXPECT_EQ(uses.at("num_attention_heads"), FieldUse::kRefused);
  EXPECT_EQ(uses.at("vocab_size"), FieldUse::kRefused);
  EXPECT_EQ(uses.at("eos_token_id"), FieldUse::kRead);
}

// What rope turns of a head is not judged where there is no head.
TEST_F(ConfigReportTest, LeavesOutTheRopeOfAHeadThatIsNone) {
  ASSERT_OK_AND_ASSIGN(
      const ConfigReport report,
      Report({{"architectures", {"Phi3ForCausalLM"}},
              {"model_type", "phi3"},
              {"head_dim", -1},
              {"partial_rotary_factor", 0.75},
              {"rope_scaling",
               {{"type", "longrope"}, {"short_factor", {1.0}}, {"long_factor", {1.0}}}}}));
  ASSERT_EQ(report.errors.size(), 1u);
  EXPECT_THAT(std::string(report.errors[0].message()), ::testing::HasSubstr("head_dim: got -1"));
}

TEST_F(ConfigReportTest, ReadsTheOtherFilesWhereTheConfigIsRight) {
  ASSERT_OK(Report(Json::object()).status());
  testing::WriteBytes(path() + "/generation_config.json", R"({"eos_token_id": 500})");
  testing::WriteBytes(path() + "/tokenizer_config.json", "[]");
  ASSERT_OK_AND_ASSIGN(const ConfigReport report, ReportHfConfig(path()));
  ASSERT_EQ(report.errors.size(), 2u);
  EXPECT_THAT(std::string(report.errors[0].message()),
              ::testing::HasSubstr("generation_config.json: eos_token_id: got 500"));
  EXPECT_EQ(ReadHfConfig(path()).status(), report.errors.front());
}

TEST_F(ConfigReportTest, NothingIsSaidOfAConfigThatCannotBeJudged) {
  EXPECT_EQ(ReportHfConfig(path()).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(
      Report({{"architectures", {"OtherForCausalLM"}}, {"model_type", "other"}}).status().code(),
      absl::StatusCode::kUnimplemented);
  testing::WriteBytes(path() + "/config.json", "{");
  EXPECT_EQ(ReportHfConfig(path()).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace reprise::models
