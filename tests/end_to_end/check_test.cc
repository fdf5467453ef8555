// SPDX-License-Identifier: Apache-2.0
// `reprise check` as users run it: models that run, models that do not and all that is said of
// them, and logits that are and are not those of a reference.
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/end_to_end/bench_program.h"
#include "tests/end_to_end/program.h"
#include "tests/testing/json_schema.h"
#include "tests/testing/source_dir.h"

namespace reprise::testing {
namespace {

using ::nlohmann::json;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class CheckProgram : public BenchProgramTest {
 protected:
  static std::string Fixture(const std::string& name) {
    return testing::SourceDir() + "/tests/fixtures/" + name;
  }
  // A copy of a fixture that may be spoilt.
  std::string Copy(const std::string& name) const {
    std::filesystem::copy(Fixture(name), File(name));
    return File(name);
  }
  static void Change(const std::string& file, const json& changes) {
    json all = json::parse(ReadTextFile(file));
    all.update(changes);
    std::ofstream(file) << all.dump();
  }
  // The JSON of a run, which follows its schema.
  json Check(const std::string& model, int exit_code, std::vector<std::string> more = {}) {
    std::vector<std::string> words = {"check", model,    "--device",
                                      "host",  "--json", File("out.json")};
    words.insert(words.end(), more.begin(), more.end());
    Program program(words);
    EXPECT_EQ(program.Wait(), exit_code) << program.stdout_text() << program.stderr_text();
    text_ = program.stdout_text();
    errors_ = program.stderr_text();
    const json written = json::parse(ReadTextFile(File("out.json")));
    EXPECT_THAT(SchemaErrors(SchemaNamed("check"), written), IsEmpty());
    EXPECT_EQ(written["runs"], written["errors"].empty());
    return written;
  }

  std::string text_, errors_;
};

TEST_F(CheckProgram, SaysHowAModelRuns) {
  const json of = Check(Fixture("gemma3-tiny"), 0);
  EXPECT_THAT(text_, HasSubstr("gemma3-tiny runs, on tuned kernels\n"));
  EXPECT_THAT(text_, HasSubstr("rope_local_base_freq"));
  EXPECT_EQ(of["runs"], true);
  EXPECT_EQ(of["architecture"], "Gemma3ForCausalLM");
  EXPECT_EQ(of["engine"]["dtype"], "bf16");
  EXPECT_EQ(of["engine"]["path"], "tuned");
  // Two layers of K and V, one head of 16.
  EXPECT_EQ(of["engine"]["kv_bytes_per_token"], 2 * 2 * 16 * 2);
  EXPECT_EQ(of["checkpoint"]["bytes"], of["parameters"].get<int>() * 2);
  EXPECT_EQ(of["reference"], nullptr);
  const json wide = Check(Fixture("gemma3-tiny"), 0, {"--dtype", "f32", "--linear", "portable"});
  EXPECT_THAT(text_, HasSubstr("runs, on reference kernels\n"));
  EXPECT_EQ(wide["engine"]["kv_bytes_per_token"], 2 * 2 * 16 * 4);
  EXPECT_EQ(wide["engine"]["path"], "reference");
}

TEST_F(CheckProgram, SaysThatAVisionPartIsNotRun) {
  for (const char* name : {"gemma3-vision-tiny", "mistral3-vision-tiny"}) {
    const json of = Check(Fixture(name), 0,
                          {"--reference", Fixture(name) + "/reference.json", "--dtype", "f32"});
    EXPECT_THAT(text_, HasSubstr("not run, requests are text alone: "));
    EXPECT_EQ(of["reference"]["passed"], true);
    const json& checkpoint = of["checkpoint"];
    EXPECT_GT(checkpoint["vision_tensors"], 10);
    EXPECT_LT(checkpoint["vision_tensors"], checkpoint["tensors"]);
    // Of 16 bits, and the text part's are the parameters.
    EXPECT_EQ(checkpoint["bytes"],
              of["parameters"].get<int>() * 2 + checkpoint["vision_bytes"].get<int>());
  }
  Check(Fixture("gemma3-tiny"), 0);
  EXPECT_THAT(text_, Not(HasSubstr("vision")));
  const std::string model = Copy("gemma3-vision-tiny");
  json config = json::parse(ReadTextFile(model + "/config.json"));
  config["text_config"]["num_hidden_layers"] = 3;
  Change(model + "/config.json", config);
  EXPECT_THAT(Check(model, 1)["errors"][0],
              HasSubstr("tensor 'language_model.model.layers.2.input_layernorm.weight': missing"));
  config["text_config"]["moe_layers"] = 3;
  Change(model + "/config.json", config);
  EXPECT_THAT(Check(model, 1)["errors"][0], HasSubstr("\"text_config.moe_layers\": got 3"));
}

TEST_F(CheckProgram, SaysWhichFactorsOfLongropeCount) {
  EXPECT_EQ(Check(Fixture("phi3-longrope-tiny"), 0)["engine"]["longrope_factors"], "long");
  EXPECT_THAT(text_, HasSubstr("longrope, with its long factors: contexts may have 256 tokens"));
  EXPECT_EQ(Check(Fixture("phi4-mini-tiny"), 0)["engine"]["longrope_factors"], "short");
  EXPECT_THAT(text_, HasSubstr("longrope, with its short factors"));
  EXPECT_EQ(Check(Fixture("phi3-tiny"), 0)["engine"]["longrope_factors"], nullptr);
  EXPECT_THAT(text_, Not(HasSubstr("longrope")));
}

TEST_F(CheckProgram, NamesEveryFieldThatIsRefused) {
  const std::string model = Copy("llama-tiny");
  Change(model + "/config.json", {{"num_experts", 8}, {"hidden_act", "relu"}, {"vocab_size", 0}});
  const json of = Check(model, 1);
  EXPECT_EQ(of["errors"].size(), 3u);
  std::vector<std::string> refused;
  for (const json& field : of["fields"])
    if (field["use"] == "refused") refused.push_back(field["name"]);
  EXPECT_THAT(refused, ::testing::ElementsAre("hidden_act", "num_experts", "vocab_size"));
  EXPECT_EQ(of["engine"], nullptr);
  EXPECT_THAT(text_, HasSubstr("llama-tiny does not run\n"));
  EXPECT_THAT(errors_,
              HasSubstr("hidden_act: got \"relu\", allowed \"silu\" or absent; and 2 more"));
}

TEST_F(CheckProgram, NamesEveryTensorThatDoesNotFit) {
  const std::string model = Copy("llama-tiny");
  Change(model + "/config.json", {{"intermediate_size", 10}, {"attention_bias", true}});
  const json of = Check(model, 1);
  // Two layers: gate, up and down of another size, four biases that are missing.
  EXPECT_EQ(of["errors"].size(), 2u * (3 + 4));
  EXPECT_THAT(of["errors"][0], HasSubstr("tensor 'model.layers.0.self_attn.q_proj.bias': missing"));
  EXPECT_NE(of["engine"], nullptr);  // what it would be

  std::filesystem::remove(model + "/model.safetensors");
  EXPECT_EQ(Check(model, 1)["errors"].size(), 1u);
}

TEST_F(CheckProgram, SaysWhatIsWrongWithADirectoryThatIsNone) {
  const json none = Check(File("nothing"), 1);
  EXPECT_EQ(none["architecture"], nullptr);
  EXPECT_THAT(errors_, HasSubstr("nothing/config.json"));
  const std::string model = Copy("llama-tiny");
  Change(model + "/config.json",
         {{"architectures", {"MambaForCausalLM"}}, {"model_type", "mamba"}});
  EXPECT_THAT(Check(model, 1)["errors"][0], HasSubstr("architectures: got \"MambaForCausalLM\""));
}

TEST_F(CheckProgram, ComparesWithLogitsOfAnotherImplementation) {
  for (const char* name : {"gemma2-tiny", "olmo2-tiny", "phi3-longrope-tiny", "phi4-mini-tiny"}) {
    const std::string reference = Fixture(name) + "/reference.json";
    const json of = Check(Fixture(name), 0, {"--reference", reference, "--dtype", "f32"});
    EXPECT_EQ(of["reference"]["passed"], true);
    EXPECT_EQ(of["reference"]["positions"], 1 + 7 + 8 + 8);
    EXPECT_EQ(of["reference"]["same_likeliest_token"], 24);
    EXPECT_LT(of["reference"]["relative_error"], 1e-5);
    EXPECT_LT(of["reference"]["largest_difference"], 1e-4);
    Check(Fixture(name), 0, {"--reference", reference});
    EXPECT_EQ(Check(Fixture(name), 3, {"--reference", reference, "--tolerance", "0.0001"})["runs"],
              true);
    EXPECT_THAT(errors_, HasSubstr("relative error of logits: got 0.0"));
  }
}

// The same weights under a config that says otherwise.
TEST_F(CheckProgram, LogitsOfAnotherModelAreFar) {
  const std::string model = Copy("gemma2-tiny");
  for (const json& change : {json{{"sliding_window", 3}}, json{{"attn_logit_softcapping", nullptr}},
                             json{{"query_pre_attn_scalar", 5}}}) {
    std::filesystem::copy_file(Fixture("gemma2-tiny") + "/config.json", model + "/config.json",
                               std::filesystem::copy_options::overwrite_existing);
    Change(model + "/config.json", change);
    const json of = Check(model, 3, {"--reference", model + "/reference.json", "--dtype", "f32"});
    EXPECT_EQ(of["reference"]["passed"], false) << change;
  }
}

TEST_F(CheckProgram, RefusesReferencesThatFitNot) {
  const std::string model = Copy("llama-tiny"), file = model + "/reference.json";
  const json good = json::parse(ReadTextFile(file));
  const auto expect = [&](const json& changes, const char* message) {
    json bad = good;
    bad.merge_patch(changes);
    std::ofstream(file) << bad.dump();
    Program program({"check", model, "--device", "host", "--reference", file});
    EXPECT_EQ(program.Wait(), 1);
    EXPECT_THAT(program.stderr_text(), HasSubstr(message));
    EXPECT_THAT(program.stdout_text(), HasSubstr("llama-tiny runs, on tuned kernels"));
  };
  expect({{"vocab_size", 5}}, "vocab_size: got 5");
  expect({{"prompts", json::array()}}, "prompts: got []");
  json prompt = good["prompts"][1];
  prompt["first_position"] = 7;
  expect({{"prompts", {prompt}}}, "prompts[0].first_position: got 7");
  prompt = good["prompts"][1];
  prompt["tokens"][2] = 100000;
  expect({{"prompts", {prompt}}}, "prompts[0].tokens: got");
  prompt = good["prompts"][1];
  prompt["logits"] = "elsewhere";
  expect({{"prompts", {prompt}}}, "tensor 'elsewhere': missing");
  prompt["logits"] = "prompt_2.logits";
  expect({{"prompts", {prompt}}}, "tensor 'prompt_2.logits': got f32 [8, ");
  std::filesystem::remove(model + "/reference.safetensors");
  expect(json::object(), "reference.safetensors");
}

TEST_F(CheckProgram, RefusesWrongCommandLines) {
  const struct {
    std::vector<std::string> words;
    const char* message;
  } cases[] = {{{"check"}, "MODEL_DIR is required"},
               {{"check", "a", "b"}, "unknown argument \"b\""},
               {{"check", "a", "--tolerance", "2"}, "--tolerance: got \"2\""},
               {{"check", "a", "--dtype", "f64"}, "--dtype: got \"f64\""}};
  for (const auto& c : cases) {
    Program program(c.words);
    EXPECT_EQ(program.Wait(), 2);
    EXPECT_THAT(program.stderr_text(), HasSubstr(c.message));
  }
}

}  // namespace
}  // namespace reprise::testing
