// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/model_targets.h"

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>

#include "absl/strings/str_cat.h"
#include "kernels/linear/linear_weights.h"
#include "models/config/hf_config.h"
#include "models/config/weight_quantization.h"
#include "models/weights/checkpoint.h"
#include "models/weights/model_weights.h"
#include "models/weights/safetensors.h"
#include "models/weights/weight_plan.h"
#include "runtime/check.h"
#include "runtime/device.h"
#include "runtime/dtype.h"
#include "tests/fuzz/fuzz_files.h"
#include "tests/models/model_files.h"
#include "tools/check/reference_logits.h"

namespace reprise::fuzz {
namespace {

using ::reprise::models::WeightQuantization;
using ::reprise::models::WeightStorage;
using ::reprise::testing::BytesOf;
using ::reprise::testing::FileTensor;
using ::reprise::testing::SafetensorsBytes;

// All that is promised of a tensor is there to be read.
bool ReadsWhole(const models::TensorView& tensor) {
  unsigned sum = 0;
  for (const std::byte byte : tensor.data) sum += static_cast<unsigned>(byte);
  return sum < ~0u;
}

// ---- layers of 4 bits ----

constexpr int64_t kOutputs = 16, kInputs = 64, kGroup = 32;

struct Int4Kind {
  WeightStorage storage;
  int32_t group_size = kGroup;
  bool symmetric = false;
  bool reorders_inputs = false;
};
constexpr Int4Kind kInt4Kinds[] = {
    {.storage = WeightStorage::kGptq},
    {.storage = WeightStorage::kGptq, .reorders_inputs = true},
    {.storage = WeightStorage::kAwq},
    {.storage = WeightStorage::kPackedInt4},
    {.storage = WeightStorage::kPackedInt4, .reorders_inputs = true},
    {.storage = WeightStorage::kPackedInt4, .group_size = 0, .symmetric = true}};

WeightQuantization QuantizationOf(const Int4Kind& kind) {
  WeightQuantization quantization{.storage = kind.storage,
                                  .group_size = kind.group_size,
                                  .symmetric = kind.symmetric,
                                  .reorders_inputs = kind.reorders_inputs};
  if (kind.storage != WeightStorage::kPackedInt4) quantization.scale_name = "scales";
  if (kind.storage == WeightStorage::kGptq) quantization.zero_point_offset = 1;
  return quantization;
}

// Words of eight elements or zero points.
FileTensor Words(const std::string& name, int64_t rows, int64_t columns) {
  const std::vector<uint32_t> words(static_cast<size_t>(rows * columns), 0x76543210u);
  return {name, "I32", {rows, columns}, BytesOf(words)};
}
FileTensor Floats(const std::string& name, int64_t rows, int64_t columns) {
  const std::vector<float> floats(static_cast<size_t>(rows * columns), 0.5f);
  return {name, "F32", {rows, columns}, BytesOf(floats)};
}
// Of inputs in turn.
FileTensor GroupsInTurn(const std::string& name) {
  std::vector<int32_t> groups;
  for (int64_t input = 0; input < kInputs; ++input)
    groups.push_back(static_cast<int32_t>(input % (kInputs / kGroup)));
  return {name, "I32", {kInputs}, BytesOf(groups)};
}

std::vector<FileTensor> TensorsOf(const Int4Kind& kind) {
  const int64_t groups = kind.group_size == 0 ? 1 : kInputs / kind.group_size;
  std::vector<FileTensor> tensors;
  if (kind.storage == WeightStorage::kPackedInt4) {
    tensors = {Words("a.weight_packed", kOutputs, kInputs / 8),
               Floats("a.weight_scale", kOutputs, groups),
               {"a.weight_shape", "I64", {2}, BytesOf(std::vector<int64_t>{kOutputs, kInputs})}};
    if (!kind.symmetric) tensors.push_back(Words("a.weight_zero_point", kOutputs / 8, groups));
  } else {
    const bool awq = kind.storage == WeightStorage::kAwq;
    tensors = {
        awq ? Words("a.qweight", kInputs, kOutputs / 8) : Words("a.qweight", kInputs / 8, kOutputs),
        Floats("a.scales", groups, kOutputs), Words("a.qzeros", groups, kOutputs / 8)};
  }
  if (kind.reorders_inputs)
    tensors.push_back(
        GroupsInTurn(kind.storage == WeightStorage::kGptq ? "a.g_idx" : "a.weight_g_idx"));
  return tensors;
}

}  // namespace

bool TakeConfig(std::string_view bytes) {
  const size_t end = bytes.find('\0');
  if (end == std::string_view::npos) return models::ParseHfConfig(bytes).ok();
  return models::ParseHfConfig(bytes.substr(0, end), bytes.substr(end + 1)).ok();
}

std::vector<std::string> ConfigSeeds() {
  std::vector<std::string> seeds;
  for (const char* model :
       {"llama-tiny",           "granite-tiny",          "mistral-tiny",
        "qwen3-tiny",           "llama3-rope-bias-tiny", "yarn-rope-tiny",
        "gemma2-tiny",          "gemma3-tiny",           "ministral-tiny",
        "fp8-tensor-tiny",      "fp8-channel-tiny",      "fp8-block-tiny",
        "int4-gptq-tiny",       "int4-act-order-tiny",   "int4-awq-tiny",
        "int4-compressed-tiny", "fp8-modelopt-tiny",     "fp8-fbgemm-tiny",
        "int4-ignore-tiny",     "mixtral-tiny",          "qwen3moe-tiny",
        "granitemoe-tiny",      "gpt-oss-tiny",          "granite-hybrid-moe-tiny",
        "bamba-tiny",           "phi3-longrope-tiny",    "phi4-mini-tiny",
        "gemma3-vision-tiny",   "mistral3-vision-tiny"}) {
    seeds.push_back(FileText(absl::StrCat("tests/fixtures/", model, "/config.json")));
  }
  seeds.push_back(
      FileText("tests/fixtures/llama-tiny/config.json") + std::string(1, '\0') +
      R"({"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8",)"
      R"( "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head", "*.0.self_attn*"]}})");
  return seeds;
}

bool TakeSafetensors(std::string_view bytes) {
  const MemoryFile file(bytes);
  const auto opened = models::SafetensorsFile::Open(file.path());
  if (!opened.ok()) return false;
  for (const auto& [name, tensor] : (*opened)->tensors())
    if (!ReadsWhole(tensor)) return false;
  return true;
}

std::vector<std::string> SafetensorsSeeds() {
  return {SafetensorsBytes(
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},)"
      R"("b":{"dtype":"BF16","shape":[3],"data_offsets":[8,14]}})",
      std::string(14, 'x'))};
}

bool TakeShardIndex(std::string_view bytes) {
  static const FuzzDirectory directory(
      {{"a.safetensors", SafetensorsBytes({Words("x", 1, 2), Words("y", 1, 1)})},
       {"b.safetensors", SafetensorsBytes({Words("z", 2, 2)})}});
  directory.Write("model.safetensors.index.json", bytes);
  const auto checkpoint = models::Checkpoint::Open(directory.path());
  if (!checkpoint.ok()) return false;
  for (const std::string& name : (*checkpoint)->Names()) {
    const models::TensorView* const tensor = (*checkpoint)->Find(name);
    REPRISE_CHECK(tensor != nullptr);
    if (!ReadsWhole(*tensor)) return false;
  }
  return true;
}

std::vector<std::string> ShardIndexSeeds() {
  return {R"({"metadata": {"total_size": 28}, "weight_map": {"x": "a.safetensors",)"
          R"( "y": "a.safetensors", "z": "b.safetensors"}})",
          R"({"weight_map": {"z": "b.safetensors"}})"};
}

bool TakeInt4Layer(std::string_view bytes) {
  if (bytes.empty()) return false;
  const auto which = static_cast<unsigned char>(bytes[0]);
  static const FuzzDirectory directory;
  static const std::unique_ptr<runtime::Device> device =
      *runtime::Device::Create({.kind = runtime::DeviceKind::kHost, .host_threads = 1});
  directory.Write("model.safetensors", bytes.substr(1));
  const auto checkpoint = models::Checkpoint::Open(directory.path());
  if (!checkpoint.ok()) return false;
  constexpr size_t kNumKinds = std::size(kInt4Kinds);
  models::WeightPlan plan(runtime::DType::kBf16, runtime::DType::kBf16,
                          which / kNumKinds % 2 == 0 ? kernels::WeightLayout::kRowMajor
                                                     : kernels::WeightLayout::kPacked,
                          QuantizationOf(kInt4Kinds[which % kNumKinds]), "fuzz");
  kernels::LinearWeights layer;
  plan.Linear(&layer, {{"a", kOutputs}}, kInputs, false);
  return models::ModelWeights::Load(*device, plan, **checkpoint).ok();
}

std::vector<std::string> Int4LayerSeeds() {
  std::vector<std::string> seeds;
  for (size_t i = 0; i < 2 * std::size(kInt4Kinds); ++i)
    seeds.push_back(std::string(1, static_cast<char>(i)) +
                    SafetensorsBytes(TensorsOf(kInt4Kinds[i % std::size(kInt4Kinds)])));
  return seeds;
}

// Of a vocabulary of four, so that seeds are short.
bool TakeReferenceLogits(std::string_view bytes) {
  constexpr int64_t kVocab = 4, kMaxContext = 16;
  static const FuzzDirectory directory(
      {{"reference.safetensors",
        SafetensorsBytes({Floats("p0", 3, kVocab), Floats("p1", 1, kVocab)})}});
  directory.Write("reference.json", bytes);
  const auto reference =
      tools::ReadReferenceLogits(directory.path("reference.json"), kVocab, kMaxContext);
  if (!reference.ok()) return false;
  for (const tools::ReferencePrompt& prompt : reference->prompts)
    REPRISE_CHECK(prompt.first_position + prompt.logits.size() == prompt.tokens.size());
  return reference->max_length() <= kMaxContext;
}

std::vector<std::string> ReferenceLogitsSeeds() {
  return {R"({"vocab_size": 4, "prompts": [)"
          R"({"tokens": [1, 0, 3, 2], "first_position": 1, "logits": "p0"},)"
          R"({"tokens": [2], "first_position": 0, "logits": "p1"}]})"};
}

}  // namespace reprise::fuzz
