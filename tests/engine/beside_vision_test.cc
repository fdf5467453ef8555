// SPDX-License-Identifier: Apache-2.0
// The text part of a model with a vision part says, bit for bit, what a model of text alone with
// the same weights says: in both namings of tensors, with weights of 16, 8 and 4 bits and scales of
// a KV cache of 8 bits. Whether the numbers are right is parity_test.cc's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "engine/decode_engine.h"
#include "tests/models/vision_files.h"
#include "tests/testing/any_device.h"
#include "tests/testing/engine_test.h"
#include "tests/testing/prompt_likelihood.h"
#include "tests/testing/status_matchers.h"

namespace reprise::engine {
namespace {

using ::reprise::runtime::DType;
using ::reprise::testing::LikelihoodOf;
using ::reprise::testing::RandomPrompt;
using ::reprise::testing::TinyModelOptions;

class BesideVisionTest : public ::testing::Test {
 protected:
  std::vector<float> LikelihoodOfModel(const std::string& directory) const {
    DecodeEngineOptions options = testing::SmallEngineOptions();
    options.dtype = DType::kF32;
    options.kv_dtype = DType::kE4m3;
    const auto device = testing::MakeDevice(runtime::DeviceOptions{});
    EXPECT_OK(device);
    auto engine = DecodeEngine::Create(**device, {.directory = directory}, options);
    EXPECT_OK(engine);
    return engine.ok() ? LikelihoodOf(**engine, RandomPrompt(5, 40)) : std::vector<float>();
  }
  const std::string& path() const { return directory_.path(); }

 private:
  testing::TemporaryDirectory directory_;
};

TEST_F(BesideVisionTest, TextSaysWhatTextAloneSays) {
  const std::vector<float> k = {0.05f}, v = {0.0625f, 0.03f};
  const TinyModelOptions models[] = {
      {.architecture = "mistral", .head_dim = 16, .k_scales = k, .v_scales = v},
      {.architecture = "mistral", .head_dim = 16, .dtype = DType::kBf16, .sliding_window = 10},
      {.architecture = "gemma3",
       .head_dim = 16,
       .tie_word_embeddings = true,
       .sliding_window = 10,
       .k_scales = k,
       .v_scales = v,
       .slides = {true, false}},
      {.architecture = "mistral",
       .head_dim = 16,
       .fp8_weights = true,
       .k_scales = k,
       .v_scales = v},
      {.architecture = "mistral",
       .intermediate_size = 64,
       .head_dim = 16,
       .int4_weights = true,
       .reordered_inputs = true}};
  for (size_t i = 0; i < std::size(models); ++i) {
    SCOPED_TRACE(i);
    const std::string text = path() + "/text" + std::to_string(i);
    ASSERT_OK(testing::WriteTinyModel(models[i], text));
    const std::vector<float> alone = LikelihoodOfModel(text);
    ASSERT_FALSE(alone.empty());
    for (const testing::VisionNaming naming : testing::kVisionNamings) {
      const std::string whole = text + (naming == testing::VisionNaming::kPublished ? "p" : "m");
      testing::WriteBesideVision(text, whole, naming);
      EXPECT_EQ(LikelihoodOfModel(whole), alone);
    }
  }
}

// Scales stand where the text part's layers do.
TEST_F(BesideVisionTest, ScalesThatAreNoneAreRefusedAsTheFilesNameThem) {
  ASSERT_OK(
      testing::WriteTinyModel({.architecture = "mistral", .k_scales = {-1.0f}}, path() + "/text"));
  testing::WriteBesideVision(path() + "/text", path() + "/whole",
                             testing::VisionNaming::kPublished);
  DecodeEngineOptions options = testing::SmallEngineOptions();
  options.dtype = DType::kF32;
  options.kv_dtype = DType::kE4m3;
  const auto device = testing::MakeDevice(runtime::DeviceOptions{});
  ASSERT_OK(device);
  EXPECT_THAT(DecodeEngine::Create(**device, {.directory = path() + "/whole"}, options).status(),
              testing::StatusIs(
                  absl::StatusCode::kInvalidArgument,
                  "'language_model.model.layers.0.self_attn.k_scale': got scale -1, allowed finite "
                  "numbers above 0"));
}

}  // namespace
}  // namespace reprise::engine
