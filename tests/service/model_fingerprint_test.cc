// SPDX-License-Identifier: Apache-2.0
#include "service/kv/model_fingerprint.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "tests/testing/status_matchers.h"
#include "tests/testing/tiny_model.h"

namespace reprise::service {
namespace {

std::string FingerprintOf(const testing::TinyModelOptions& options) {
  const testing::TemporaryDirectory directory;
  EXPECT_OK(testing::WriteTinyModel(options, directory.path()).status());
  const auto fingerprint = ModelFingerprint({.directory = directory.path()});
  EXPECT_OK(fingerprint.status());
  return fingerprint.value_or("");
}

TEST(ModelFingerprint, IsThatOfTheModelAndNotOfItsPlace) {
  const std::string first = FingerprintOf({});
  EXPECT_EQ(first.size(), 32u);
  EXPECT_EQ(FingerprintOf({}), first);
}

TEST(ModelFingerprint, OtherWeightsAndOtherConfigsAreOtherModels) {
  const std::string first = FingerprintOf({});
  EXPECT_NE(FingerprintOf({.seed = 2}), first);  // the same shapes
  EXPECT_NE(FingerprintOf({.max_position_embeddings = 512}), first);
  EXPECT_NE(FingerprintOf({.num_layers = 3}), first);
}

TEST(ModelFingerprint, PresetsGoByNameAndSeed) {
  const auto of = [](const std::string& preset, uint64_t seed) {
    const auto fingerprint = ModelFingerprint({.preset = preset, .random_seed = seed});
    EXPECT_OK(fingerprint.status());
    return fingerprint.value_or("");
  };
  EXPECT_EQ(of("llama-3.1-8b", 1), of("llama-3.1-8b", 1));
  EXPECT_NE(of("llama-3.1-8b", 1), of("llama-3.1-8b", 2));
  EXPECT_NE(of("llama-3.1-8b", 1), of("llama-3.2-1b", 1));
}

// Keys of short and of long factors are not the same, and a server must not take one for the other.
TEST(ModelFingerprint, WithLongropeTheLongestContextCounts) {
  const testing::TemporaryDirectory directory;
  const auto of = [&](const testing::TinyModelOptions& options, uint32_t max_context_length) {
    EXPECT_OK(testing::WriteTinyModel(options, directory.path()).status());
    const auto fingerprint = ModelFingerprint({.directory = directory.path()}, max_context_length);
    EXPECT_OK(fingerprint.status());
    return fingerprint.value_or("");
  };
  const testing::TinyModelOptions longrope = {
      .architecture = "phi3", .short_factors = {1.0, 1.2, 1.9}, .long_factors = {1.1, 2.5, 6.0}};
  EXPECT_EQ(of(longrope, 0), of(longrope, 256));
  EXPECT_EQ(of(longrope, 0), of(longrope, 33));
  EXPECT_EQ(of(longrope, 32), of(longrope, 20));
  EXPECT_NE(of(longrope, 32), of(longrope, 33));
  EXPECT_EQ(of({.architecture = "phi3"}, 32), of({.architecture = "phi3"}, 33));
  const auto preset = [](uint32_t max_context_length) {
    return ModelFingerprint({.preset = "phi-4-mini"}, max_context_length).value_or("");
  };
  EXPECT_NE(preset(4096), preset(0));
}

TEST(ModelFingerprint, NamesWhatCannotBeRead) {
  const testing::TemporaryDirectory directory;
  EXPECT_THAT(ModelFingerprint({.directory = directory.path()}).status(),
              testing::StatusIs(absl::StatusCode::kNotFound, "config.json"));
}

}  // namespace
}  // namespace reprise::service
