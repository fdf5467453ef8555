// SPDX-License-Identifier: Apache-2.0
// For tests of models with a vision part: a model of text alone (mistral or gemma3) rewritten as
// the text part of one that has both, in either naming of tensors (models/weights/text_part.h).
#ifndef REPRISE_TESTS_MODELS_VISION_FILES_H_
#define REPRISE_TESTS_MODELS_VISION_FILES_H_

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "models/weights/safetensors.h"
#include "tests/models/model_files.h"

namespace reprise::testing {

enum class VisionNaming { kPublished, kModules };

inline constexpr VisionNaming kVisionNamings[] = {VisionNaming::kPublished, VisionNaming::kModules};

// As safetensors files name the type of elements.
inline std::string ElementTypeOf(const models::TensorView& view) {
  if (view.integer_bytes == 1) return "U8";
  if (!view.is_float()) return view.integer_bytes == 4 ? "I32" : "I64";
  switch (view.dtype) {
    case runtime::DType::kBf16:
      return "BF16";
    case runtime::DType::kF16:
      return "F16";
    case runtime::DType::kE4m3:
      return "F8_E4M3";
    default:
      return "F32";
  }
}

// Of the file model.safetensors in a directory, by name.
inline std::vector<FileTensor> ReadTensors(const std::string& directory) {
  const auto file = models::SafetensorsFile::Open(directory + "/model.safetensors");
  EXPECT_TRUE(file.ok()) << file.status();
  std::vector<FileTensor> tensors;
  for (const auto& [name, view] : (*file)->tensors())
    tensors.push_back(
        {name, ElementTypeOf(view), view.shape,
         std::string(reinterpret_cast<const char*>(view.data.data()), view.data.size())});
  return tensors;
}

// The name in a model with both parts of a tensor of text alone.
inline std::string NameBesideVision(std::string_view name, VisionNaming naming) {
  const bool published = naming == VisionNaming::kPublished;
  constexpr std::string_view kText = "model.";
  if (name.starts_with(kText))
    return std::string(published ? "language_model.model." : "model.language_model.")
        .append(name.substr(kText.size()));
  return std::string(published ? "language_model." : "").append(name);
}

// With two tensors of a vision part, 64 and 16 bytes, that no model could compute with.
inline std::vector<FileTensor> BesideVision(std::vector<FileTensor> text, VisionNaming naming) {
  for (FileTensor& tensor : text) tensor.name = NameBesideVision(tensor.name, naming);
  const std::string prefix = naming == VisionNaming::kPublished ? "" : "model.";
  text.push_back(
      {prefix + "multi_modal_projector.linear_1.weight", "BF16", {2, 4}, std::string(16, '\xff')});
  text.push_back({prefix + "vision_tower.patch_conv.weight", "F32", {16}, std::string(64, '\xff')});
  return text;
}

// The config of the same model.
inline nlohmann::json ConfigBesideVision(nlohmann::json text) {
  const bool gemma = text["model_type"] == "gemma3_text";
  nlohmann::json whole = {
      {"model_type", gemma ? "gemma3" : "mistral3"},
      {"vision_config", {{"hidden_size", 16}}},
  };
  whole["architectures"] = {gemma ? "Gemma3ForConditionalGeneration"
                                  : "Mistral3ForConditionalGeneration"};
  for (const char* name : {"torch_dtype", "quantization_config"}) {
    if (text.contains(name)) whole[name] = text[name];
    text.erase(name);
  }
  text.erase("architectures");
  whole["text_config"] = text;
  return whole;
}

// The model of text alone in `from` as one with both parts in `to`, a new directory.
inline void WriteBesideVision(const std::string& from, const std::string& to, VisionNaming naming) {
  std::filesystem::create_directory(to);
  std::ifstream config(from + "/config.json");
  WriteBytes(to + "/config.json", ConfigBesideVision(nlohmann::json::parse(config)).dump());
  WriteBytes(to + "/model.safetensors", SafetensorsBytes(BesideVision(ReadTensors(from), naming)));
}

}  // namespace reprise::testing

#endif  // REPRISE_TESTS_MODELS_VISION_FILES_H_
