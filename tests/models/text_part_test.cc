// SPDX-License-Identifier: Apache-2.0
// The text part of checkpoints with a vision part, in both namings: what is found, what is counted
// and left unread, and that refusals name tensors as the files do.
#include "models/weights/text_part.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "models/config/hf_config.h"
#include "models/decoder.h"
#include "models/weights/model_weights.h"
#include "runtime/device.h"
#include "tests/models/model_files.h"
#include "tests/models/vision_files.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/tiny_model.h"

namespace reprise::models {
namespace {

using ::reprise::testing::BesideVision;
using ::reprise::testing::ExpectError;
using ::reprise::testing::ExpectInvalid;
using ::reprise::testing::FileTensor;
using ::reprise::testing::kVisionNamings;
using ::reprise::testing::NameBesideVision;
using ::reprise::testing::VisionNaming;

class TextPartTest : public ::testing::Test {
 protected:
  TextPartTest() : device_(*runtime::Device::Create({.kind = runtime::DeviceKind::kHost})) {
    EXPECT_OK(testing::WriteTinyModel({.architecture = "mistral"}, text_path()));
    text_ = testing::ReadTensors(text_path());
    spec_ = *ReadHfConfig(text_path());
    spec_.beside_vision = true;
  }

  std::string text_path() const { return directory_.path() + "/text"; }
  // Of the model of text alone.
  const std::vector<FileTensor>& text() const { return text_; }

  const Checkpoint& Open(const std::vector<FileTensor>& tensors) {
    const std::string path = absl::StrCat(directory_.path(), "/", checkpoints_.size());
    std::filesystem::create_directory(path);
    testing::WriteBytes(path + "/model.safetensors", testing::SafetensorsBytes(tensors));
    checkpoints_.push_back(*Checkpoint::Open(path));
    return *checkpoints_.back();
  }
  std::vector<absl::Status> Check(const std::vector<FileTensor>& tensors) {
    const auto decoder = *Decoder::Create(spec_);
    const WeightPlan plan = decoder->PlanWeights(runtime::DType::kF32);
    const Checkpoint& checkpoint = Open(tensors);
    std::vector<absl::Status> errors = ModelWeights::Check(plan, checkpoint);
    // Loading stops at an error that is among them.
    const absl::Status loaded = ModelWeights::Load(*device_, plan, checkpoint).status();
    EXPECT_EQ(loaded.ok(), errors.empty()) << loaded;
    EXPECT_TRUE(loaded.ok() || std::find(errors.begin(), errors.end(), loaded) != errors.end())
        << loaded;
    return errors;
  }
  static std::vector<FileTensor> Without(std::vector<FileTensor> tensors, const std::string& name) {
    EXPECT_EQ(std::erase_if(tensors, [&](const FileTensor& t) { return t.name == name; }), 1u);
    return tensors;
  }

  std::unique_ptr<runtime::Device> device_;
  ModelSpec spec_;

 private:
  testing::TemporaryDirectory directory_;
  std::vector<FileTensor> text_;
  std::vector<std::unique_ptr<Checkpoint>> checkpoints_;
};

TEST_F(TextPartTest, IsFoundInBothNamings) {
  const Checkpoint& plain = Open(text());
  for (const VisionNaming naming : kVisionNamings) {
    const Checkpoint& whole = Open(BesideVision(text(), naming));
    ASSERT_OK_AND_ASSIGN(const TextPart part, TextPart::Of(whole));
    EXPECT_EQ(part.tensors().Names(), plain.Names());
    for (const std::string& name : plain.Names()) {
      const TensorView* const got = part.tensors().Find(name);
      EXPECT_EQ(got, whole.Find(NameBesideVision(name, naming)));
      EXPECT_EQ(got->shape, plain.Find(name)->shape);
      EXPECT_TRUE(std::ranges::equal(got->data, plain.Find(name)->data));
    }
    EXPECT_EQ(part.num_vision_tensors(), 2u);
    EXPECT_EQ(part.vision_bytes(), 64u + 16u);
    EXPECT_TRUE(part.strangers().empty());
    EXPECT_EQ(part.tensors().Find("vision_tower.patch_conv.weight"), nullptr);
  }
}

TEST_F(TextPartTest, TakesNoMoreMemoryThanTextAlone) {
  const auto decoder = *Decoder::Create(spec_);
  const WeightPlan plan = decoder->PlanWeights(runtime::DType::kF32);
  ASSERT_TRUE(plan.takes_text_part());
  spec_.beside_vision = false;
  const auto alone = *Decoder::Create(spec_);
  EXPECT_EQ(alone->PlanWeights(runtime::DType::kF32).bytes(), plan.bytes());
  ASSERT_OK_AND_ASSIGN(
      const ModelWeights weights,
      ModelWeights::Load(*device_, plan, Open(BesideVision(text(), VisionNaming::kPublished))));
  EXPECT_EQ(weights.bytes(), plan.bytes());
}

TEST_F(TextPartTest, MayStandWithoutAVisionPart) {
  for (const VisionNaming naming : kVisionNamings) {
    std::vector<FileTensor> tensors = BesideVision(text(), naming);
    tensors.resize(text().size());
    EXPECT_TRUE(Check(tensors).empty());
  }
}

TEST_F(TextPartTest, ACheckpointWithoutOneIsRefusedByWhatIsWanted) {
  std::vector<FileTensor> vision = BesideVision(text(), VisionNaming::kPublished);
  vision.erase(vision.begin(), vision.end() - 2);
  for (const std::vector<FileTensor>& tensors : {text(), vision}) {
    const std::vector<absl::Status> errors = Check(tensors);
    ASSERT_EQ(errors.size(), 1u);
    ExpectError(errors[0], absl::StatusCode::kNotFound,
                {"'language_model.model.embed_tokens.weight'",
                 "'model.language_model.embed_tokens.weight'", "missing"});
  }
  // Of a model of text alone its names are others.
  spec_.beside_vision = false;
  EXPECT_TRUE(Check(text()).empty());
  EXPECT_FALSE(Check(BesideVision(text(), VisionNaming::kModules)).empty());
}

TEST_F(TextPartTest, ErrorsNameTensorsAsTheFilesDo) {
  for (const VisionNaming naming : kVisionNamings) {
    const std::vector<FileTensor> good = BesideVision(text(), naming);
    EXPECT_TRUE(Check(good).empty());
    for (const char* name : {"model.layers.1.self_attn.q_proj.weight", "model.norm.weight",
                             "lm_head.weight", "model.embed_tokens.weight"}) {
      const std::string named = NameBesideVision(name, naming);
      const std::vector<absl::Status> errors = Check(Without(good, named));
      ASSERT_EQ(errors.size(), 1u);
      ExpectError(errors[0], absl::StatusCode::kNotFound,
                  {absl::StrCat("tensor '", named, "': missing").c_str()});
    }
    std::vector<FileTensor> misshapen = good;
    const std::string norm = NameBesideVision("model.norm.weight", naming);
    for (FileTensor& tensor : misshapen)
      if (tensor.name == norm) tensor.shape.push_back(1);
    const std::vector<absl::Status> errors = Check(misshapen);
    ASSERT_EQ(errors.size(), 1u);
    ExpectInvalid(errors[0], {absl::StrCat("tensor '", norm, "': got shape [32, 1]").c_str()});
  }
}

// Those that neither part calls for, though one of them has the name that layers declare.
TEST_F(TextPartTest, StrangersAreRefusedByTheirNames) {
  const FileTensor some = {"", "F32", {1}, std::string(4, '\0')};
  for (const VisionNaming naming : kVisionNamings) {
    const std::vector<FileTensor> good = BesideVision(text(), naming);
    const VisionNaming other =
        naming == VisionNaming::kPublished ? VisionNaming::kModules : VisionNaming::kPublished;
    for (const std::string& name :
         {std::string("audio_tower.weight"), std::string("model.norm.weight"),
          std::string("model.layers.0.self_attn.q_proj.weight"),
          std::string("language_model.weight"),
          NameBesideVision("model.layers.0.mlp.gate.weight", naming),
          NameBesideVision("lm_head.weight", other), NameBesideVision("lm_head.bias", naming),
          naming == VisionNaming::kPublished ? std::string("model.vision_tower.weight")
                                             : std::string("vision_tower.weight")}) {
      SCOPED_TRACE(name);
      std::vector<FileTensor> tensors = good;
      tensors.push_back(some);
      tensors.back().name = name;
      const std::vector<absl::Status> errors = Check(tensors);
      ASSERT_EQ(errors.size(), 1u);
      ExpectInvalid(errors[0], {absl::StrCat("tensor '", name, "': got it").c_str()});
    }
  }
}

// One in each naming: the published one is taken, and the other is too much.
TEST_F(TextPartTest, TwoTextPartsAreOneTooMany) {
  std::vector<FileTensor> tensors = BesideVision(text(), VisionNaming::kPublished);
  for (const FileTensor& tensor : BesideVision(text(), VisionNaming::kModules))
    tensors.push_back(tensor);
  const std::vector<absl::Status> errors = Check(tensors);
  EXPECT_EQ(errors.size(), text().size() + 2);
  for (const absl::Status& error : errors) ExpectInvalid(error, {"got it, allowed only tensors"});
}

}  // namespace
}  // namespace reprise::models
