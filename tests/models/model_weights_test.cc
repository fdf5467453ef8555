// SPDX-License-Identifier: Apache-2.0
// Weights from a checkpoint, tensor by tensor where the layers read them, and the checkpoints that
// are refused.
#include "models/weights/model_weights.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/weight_format.h"
#include "models/config/hf_config.h"
#include "models/config/model_presets.h"
#include "models/decoder.h"
#include "models/layers/attention_layer.h"
#include "models/layers/embedding_layer.h"
#include "models/layers/lm_head_layer.h"
#include "models/layers/mlp_layer.h"
#include "models/layers/norm_layer.h"
#include "runtime/float_convert.h"
#include "runtime/status_macros.h"
#include "tests/models/model_files.h"
#include "tests/testing/source_dir.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/tiny_model.h"

namespace reprise::models {
namespace {

using ::reprise::testing::BytesOf;
using ::reprise::testing::ExpectError;
using ::reprise::testing::ExpectInvalid;
using ::reprise::testing::FileTensor;
using ::reprise::testing::SafetensorsBytes;
using ::reprise::testing::TemporaryDirectory;
using ::reprise::testing::TinyModelOptions;
using ::reprise::testing::WriteBytes;
using ::reprise::testing::WriteTinyModel;

// A decoder with its weights, by the place that a tensor has in the model.
class LoadedModel {
 public:
  struct Block {
    const NormLayer* input_norm;
    const AttentionLayer* attention;
    const NormLayer* post_attention_norm;
    const MlpLayer* mlp;
  };

  static absl::StatusOr<LoadedModel> Load(runtime::Device& device, const ModelSpec& spec,
                                          const Checkpoint& checkpoint, runtime::DType dtype,
                                          const LoadProgress& progress = {}) {
    LoadedModel model;
    REPRISE_ASSIGN_OR_RETURN(model.decoder_, Decoder::Create(spec));
    const WeightPlan plan = model.decoder_->PlanWeights(dtype);
    REPRISE_ASSIGN_OR_RETURN(model.weights_,
                             ModelWeights::Load(device, plan, checkpoint, progress));
    EXPECT_EQ(model.bytes(), plan.bytes());
    return model;
  }
  static absl::StatusOr<LoadedModel> Random(runtime::Device& device, const ModelSpec& spec,
                                            runtime::DType dtype, uint64_t seed,
                                            const RandomFill& fill) {
    LoadedModel model;
    REPRISE_ASSIGN_OR_RETURN(model.decoder_, Decoder::Create(spec));
    const WeightPlan plan = model.decoder_->PlanWeights(dtype);
    REPRISE_ASSIGN_OR_RETURN(model.weights_, ModelWeights::Random(device, plan, seed, fill));
    EXPECT_EQ(model.bytes(), plan.bytes());
    return model;
  }

  size_t bytes() const { return weights_.bytes(); }
  const EmbeddingLayer& embedding() const {
    return dynamic_cast<const EmbeddingLayer&>(*decoder_->layers().front());
  }
  const LmHeadLayer& head() const {
    return dynamic_cast<const LmHeadLayer&>(*decoder_->layers().back());
  }
  // Norm, attention, norm, MLP: the block of most architectures.
  std::vector<Block> blocks() const {
    std::vector<Block> blocks;
    for (size_t i = 1; i + 4 < decoder_->layers().size(); i += 4) {
      blocks.push_back({LayerAt<NormLayer>(i), LayerAt<AttentionLayer>(i + 1),
                        LayerAt<NormLayer>(i + 2), LayerAt<MlpLayer>(i + 3)});
    }
    return blocks;
  }

 private:
  template <typename T>
  const T* LayerAt(size_t i) const {
    return &dynamic_cast<const T&>(*decoder_->layers()[i]);
  }

  std::unique_ptr<Decoder> decoder_;
  ModelWeights weights_;
};

size_t BytesFor(const ModelSpec& spec, runtime::DType dtype) {
  return (*Decoder::Create(spec))->PlanWeights(dtype).bytes();
}

class ModelWeightsTest : public ::testing::Test {
 protected:
  ModelWeightsTest() : device_(*runtime::Device::Create({.kind = runtime::DeviceKind::kHost})) {}

  runtime::Device& device() { return *device_; }
  const std::string& directory() const { return directory_.path(); }

  // `count` elements at device address `data`, as floats.
  std::vector<float> Read(const void* data, runtime::DType dtype, int64_t count) {
    std::vector<std::byte> bytes(static_cast<size_t>(count) * runtime::SizeOf(dtype));
    auto stream = *device_->CreateStream();
    EXPECT_TRUE(stream->CopyToHost(bytes.data(), data, bytes.size()).ok());
    EXPECT_TRUE(stream->Synchronize().ok());
    std::vector<float> values(static_cast<size_t>(count));
    runtime::ConvertElements(dtype, runtime::DType::kF32, bytes.data(),
                             reinterpret_cast<std::byte*>(values.data()), values.size());
    return values;
  }

  absl::Status LoadStatus(const ModelSpec& spec, const Checkpoint& checkpoint) {
    return LoadedModel::Load(device(), spec, checkpoint, runtime::DType::kF32).status();
  }

  // Writes, opens and returns the tensors as model.safetensors in a directory of their own.
  std::unique_ptr<Checkpoint> Open(const std::vector<FileTensor>& tensors) {
    const std::string path = absl::StrCat(directory(), "/", num_checkpoints_++);
    std::filesystem::create_directory(path);
    WriteBytes(path + "/model.safetensors", SafetensorsBytes(tensors));
    return *Checkpoint::Open(path);
  }

 private:
  std::unique_ptr<runtime::Device> device_;
  TemporaryDirectory directory_;
  int num_checkpoints_ = 0;
};

// A published tensor as floats in `dtype`'s precision.
std::vector<float> Tensor(const Checkpoint& checkpoint, const std::string& name,
                          runtime::DType dtype) {
  const TensorView* view = checkpoint.Find(name);
  if (view == nullptr) {
    ADD_FAILURE() << name;
    return {};
  }
  const size_t count = view->data.size() / runtime::SizeOf(view->dtype);
  std::vector<std::byte> rounded(count * runtime::SizeOf(dtype));
  runtime::ConvertElements(view->dtype, dtype, view->data.data(), rounded.data(), count);
  std::vector<float> values(count);
  runtime::ConvertElements(dtype, runtime::DType::kF32, rounded.data(),
                           reinterpret_cast<std::byte*>(values.data()), count);
  return values;
}

std::vector<float> Joined(const Checkpoint& checkpoint, const std::vector<std::string>& names,
                          runtime::DType dtype) {
  std::vector<float> all;
  for (const std::string& name : names) {
    const std::vector<float> part = Tensor(checkpoint, name, dtype);
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

TEST_F(ModelWeightsTest, EveryTensorLiesWhereItsLayerReadsIt) {
  for (const runtime::DType file_dtype :
       {runtime::DType::kF32, runtime::DType::kBf16, runtime::DType::kF16}) {
    for (const runtime::DType dtype :
         {runtime::DType::kF32, runtime::DType::kBf16, runtime::DType::kF16}) {
      for (const std::string architecture : {"llama", "granite", "qwen2", "qwen3"}) {
        const bool variant = architecture == "granite";
        const bool qkv_bias = variant || architecture == "qwen2";
        TinyModelOptions options;
        options.dtype = file_dtype;
        options.tie_word_embeddings = variant;
        options.attention_bias = variant;
        options.mlp_bias = variant;
        options.architecture = architecture;
        const std::string path = *WriteTinyModel(options, directory() + "/model");
        const ModelSpec spec = *ReadHfConfig(path);
        const auto checkpoint = *Checkpoint::Open(path);
        const auto loaded = LoadedModel::Load(device(), spec, *checkpoint, dtype);
        ASSERT_TRUE(loaded.ok()) << loaded.status();
        const LoadedModel& w = *loaded;

        const auto expect_linear =
            [&](const kernels::LinearWeights& linear, const std::string& prefix,
                const std::vector<std::string>& parts, int64_t out, int64_t in, bool bias) {
              EXPECT_EQ(linear.out_features, out);
              EXPECT_EQ(linear.in_features, in);
              std::vector<std::string> names, biases;
              for (const std::string& part : parts) {
                names.push_back(prefix + part + ".weight");
                biases.push_back(prefix + part + ".bias");
              }
              EXPECT_EQ(Read(linear.data, dtype, out * in), Joined(*checkpoint, names, dtype));
              ASSERT_EQ(linear.bias != nullptr, bias) << prefix;
              if (!bias) return;
              EXPECT_EQ(Read(linear.bias, dtype, out), Joined(*checkpoint, biases, dtype));
            };
        const int64_t hidden = spec.hidden_size, intermediate = spec.intermediate_size;
        EXPECT_EQ(Read(w.embedding().table(), dtype, spec.vocab_size * hidden),
                  Tensor(*checkpoint, "model.embed_tokens.weight", dtype));
        EXPECT_EQ(Read(w.head().norm(), dtype, hidden),
                  Tensor(*checkpoint, "model.norm.weight", dtype));
        EXPECT_EQ(w.head().head().data == w.embedding().table(), variant);
        expect_linear(w.head().head(), "", {variant ? "model.embed_tokens" : "lm_head"},
                      spec.vocab_size, hidden, false);
        ASSERT_EQ(w.blocks().size(), 2u);
        for (size_t i = 0; i < 2; ++i) {
          const LoadedModel::Block layer = w.blocks()[i];
          const std::string prefix = absl::StrCat("model.layers.", i, ".");
          EXPECT_EQ(Read(layer.input_norm->weight(), dtype, hidden),
                    Tensor(*checkpoint, prefix + "input_layernorm.weight", dtype));
          EXPECT_EQ(Read(layer.post_attention_norm->weight(), dtype, hidden),
                    Tensor(*checkpoint, prefix + "post_attention_layernorm.weight", dtype));
          expect_linear(layer.attention->qkv(), prefix + "self_attn.",
                        {"q_proj", "k_proj", "v_proj"}, spec.qkv_size(), hidden, qkv_bias);
          ASSERT_EQ(layer.attention->q_norm() != nullptr, architecture == "qwen3");
          ASSERT_EQ(layer.attention->k_norm() != nullptr, architecture == "qwen3");
          if (architecture == "qwen3") {
            EXPECT_EQ(Read(layer.attention->q_norm(), dtype, spec.head_dim),
                      Tensor(*checkpoint, prefix + "self_attn.q_norm.weight", dtype));
            EXPECT_EQ(Read(layer.attention->k_norm(), dtype, spec.head_dim),
                      Tensor(*checkpoint, prefix + "self_attn.k_norm.weight", dtype));
          }
          expect_linear(layer.attention->o(), prefix + "self_attn.", {"o_proj"}, hidden,
                        spec.q_size(), variant);
          expect_linear(layer.mlp->gate_up(), prefix + "mlp.", {"gate_proj", "up_proj"},
                        2 * intermediate, hidden, variant);
          expect_linear(layer.mlp->down(), prefix + "mlp.", {"down_proj"}, hidden, intermediate,
                        variant);
        }
        EXPECT_EQ(Read(w.embedding().inverse_frequency(), runtime::DType::kF32, spec.head_dim / 2),
                  RopeInverseFrequencies(spec));
      }
    }
  }
}

// The smallest model there is: every tensor by name, so that single ones can be changed.
ModelSpec MinimalSpec() {
  ModelSpec spec;
  spec.architecture = "llama";
  spec.vocab_size = 3;
  spec.hidden_size = 2;
  spec.intermediate_size = 5;
  spec.num_layers = 1;
  spec.num_heads = 2;
  spec.num_kv_heads = 1;
  spec.head_dim = 2;
  spec.max_position_embeddings = 8;
  spec.attention_multiplier = 1;
  return spec;
}

std::vector<FileTensor> MinimalTensors() {
  const std::pair<const char*, std::vector<int64_t>> shapes[] = {
      {"model.embed_tokens.weight", {3, 2}},
      {"model.layers.0.input_layernorm.weight", {2}},
      {"model.layers.0.mlp.down_proj.weight", {2, 5}},
      {"model.layers.0.mlp.gate_proj.weight", {5, 2}},
      {"model.layers.0.mlp.up_proj.weight", {5, 2}},
      {"model.layers.0.post_attention_layernorm.weight", {2}},
      {"model.layers.0.self_attn.k_proj.weight", {2, 2}},
      {"model.layers.0.self_attn.o_proj.weight", {2, 4}},
      {"model.layers.0.self_attn.q_proj.weight", {4, 2}},
      {"model.layers.0.self_attn.v_proj.weight", {2, 2}},
      {"model.norm.weight", {2}},
      {"lm_head.weight", {3, 2}},
  };
  std::vector<FileTensor> tensors;
  for (const auto& [name, shape] : shapes) {
    int64_t count = 1;
    for (const int64_t size : shape) count *= size;
    std::vector<float> values;
    for (int64_t i = 0; i < count; ++i) {
      values.push_back(static_cast<float>(tensors.size() * 100) + static_cast<float>(i));
    }
    tensors.push_back({name, "F32", shape, BytesOf(values)});
  }
  return tensors;
}

TEST_F(ModelWeightsTest, LoadsTheMinimalModel) {
  EXPECT_TRUE(LoadStatus(MinimalSpec(), *Open(MinimalTensors())).ok());
}

TEST_F(ModelWeightsTest, EachMissingTensorIsNamed) {
  for (size_t i = 0; i < MinimalTensors().size(); ++i) {
    std::vector<FileTensor> tensors = MinimalTensors();
    const std::string name = tensors[i].name;
    tensors.erase(tensors.begin() + static_cast<std::ptrdiff_t>(i));
    ExpectError(LoadStatus(MinimalSpec(), *Open(tensors)), absl::StatusCode::kNotFound,
                {name.c_str(), "missing"});
  }
}

TEST_F(ModelWeightsTest, AWrongShapeIsNamed) {
  std::vector<FileTensor> tensors = MinimalTensors();
  tensors[2].shape = {5, 2};  // down_proj transposed: the same number of bytes
  ExpectInvalid(LoadStatus(MinimalSpec(), *Open(tensors)),
                {"mlp.down_proj.weight", "got shape [5, 2]", "allowed [2, 5]"});
}

TEST_F(ModelWeightsTest, ATensorThatNothingConsumesIsNamed) {
  for (const char* name :
       {"model.layers.0.self_attn.q_proj.bias", "model.layers.1.input_layernorm.weight",
        "model.layers.0.self_attn.q_norm.weight", "extra"}) {
    std::vector<FileTensor> tensors = MinimalTensors();
    tensors.push_back({name, "F32", {2}, std::string(8, '\0')});
    ExpectInvalid(LoadStatus(MinimalSpec(), *Open(tensors)), {name, "allowed only tensors"});
  }
}

TEST_F(ModelWeightsTest, ACheckNamesAllThatLoadingWouldRefuse) {
  ASSERT_OK_AND_ASSIGN(const auto decoder, Decoder::Create(MinimalSpec()));
  const WeightPlan plan = decoder->PlanWeights(runtime::DType::kF32);
  EXPECT_TRUE(ModelWeights::Check(plan, *Open(MinimalTensors())).empty());
  std::vector<FileTensor> tensors = MinimalTensors();
  tensors[2].shape = {5, 2};
  tensors.erase(tensors.begin() + 10);  // the last norm
  tensors.push_back({"extra", "F32", {2}, std::string(8, '\0')});
  tensors.push_back({"other", "F32", {2}, std::string(8, '\0')});
  const auto checkpoint = Open(tensors);
  const std::vector<absl::Status> errors = ModelWeights::Check(plan, *checkpoint);
  ASSERT_EQ(errors.size(), 4u);
  ExpectInvalid(errors[0], {"mlp.down_proj.weight", "got shape [5, 2]"});
  ExpectError(errors[1], absl::StatusCode::kNotFound, {"model.norm.weight", "missing"});
  ExpectInvalid(errors[2], {"'extra'", "allowed only tensors"});
  ExpectInvalid(errors[3], {"'other'", "allowed only tensors"});
  EXPECT_EQ(LoadStatus(MinimalSpec(), *checkpoint), errors[0]);
}

// Where the table is missing, it has no copy to compare.
TEST_F(ModelWeightsTest, ACheckBearsATiedTensorWithoutItsOriginal) {
  ModelSpec spec = MinimalSpec();
  spec.tie_word_embeddings = true;
  ASSERT_OK_AND_ASSIGN(const auto decoder, Decoder::Create(spec));
  std::vector<FileTensor> tensors = MinimalTensors();
  tensors.erase(tensors.begin());
  const std::vector<absl::Status> errors =
      ModelWeights::Check(decoder->PlanWeights(runtime::DType::kF32), *Open(tensors));
  ASSERT_EQ(errors.size(), 1u);
  ExpectError(errors[0], absl::StatusCode::kNotFound, {"model.embed_tokens.weight", "missing"});
}

TEST_F(ModelWeightsTest, FusedTensorsLieAsTheirPartsWould) {
  TinyModelOptions options{.architecture = "phi3"};
  ASSERT_OK(WriteTinyModel(options, directory()).status());
  ASSERT_OK_AND_ASSIGN(const ModelSpec spec, ReadHfConfig(directory()));
  ASSERT_OK_AND_ASSIGN(const auto checkpoint, Checkpoint::Open(directory()));
  ASSERT_OK_AND_ASSIGN(const LoadedModel w,
                       LoadedModel::Load(device(), spec, *checkpoint, runtime::DType::kF32));
  for (size_t i = 0; i < 2; ++i) {
    const LoadedModel::Block layer = w.blocks()[i];
    const std::string prefix = absl::StrCat("model.layers.", i, ".");
    EXPECT_EQ(layer.attention->qkv().out_features, spec.qkv_size());
    EXPECT_EQ(
        Read(layer.attention->qkv().data, runtime::DType::kF32, spec.qkv_size() * spec.hidden_size),
        Tensor(*checkpoint, prefix + "self_attn.qkv_proj.weight", runtime::DType::kF32));
    EXPECT_EQ(layer.mlp->gate_up().out_features, 2 * spec.intermediate_size);
    EXPECT_EQ(Read(layer.mlp->gate_up().data, runtime::DType::kF32,
                   2 * spec.intermediate_size * spec.hidden_size),
              Tensor(*checkpoint, prefix + "mlp.gate_up_proj.weight", runtime::DType::kF32));
  }
}

TEST_F(ModelWeightsTest, SavedRopeFrequenciesAreInert) {
  std::vector<FileTensor> tensors = MinimalTensors();
  tensors.push_back(
      {"model.layers.0.self_attn.rotary_emb.inv_freq", "F32", {1}, std::string(4, '\0')});
  EXPECT_TRUE(LoadStatus(MinimalSpec(), *Open(tensors)).ok());
}

// What attention of block 0 has as scales after tensors are added to those of a model of two KV
// heads, with a KV cache of 8 bits.
class KvScalesTest : public ModelWeightsTest {
 protected:
  struct KvScales {
    std::vector<float> k = {}, v = {};
  };
  absl::StatusOr<KvScales> Load(const std::vector<FileTensor>& added,
                                runtime::DType kv_dtype = runtime::DType::kE4m3) {
    std::vector<FileTensor> tensors = MinimalTensors();
    for (FileTensor& tensor : tensors) {
      if (!tensor.name.ends_with("k_proj.weight") && !tensor.name.ends_with("v_proj.weight"))
        continue;
      tensor.shape[0] *= 2;
      tensor.data += tensor.data;
    }
    tensors.insert(tensors.end(), added.begin(), added.end());
    const auto checkpoint = Open(tensors);
    ModelSpec spec = MinimalSpec();
    spec.num_kv_heads = 2;
    REPRISE_ASSIGN_OR_RETURN(const auto decoder, Decoder::Create(spec));
    const WeightPlan plan = decoder->PlanWeights(runtime::DType::kF32, kv_dtype);
    REPRISE_ASSIGN_OR_RETURN(const ModelWeights weights,
                             ModelWeights::Load(device(), plan, *checkpoint));
    EXPECT_EQ(weights.bytes(), plan.bytes());
    const auto& attention = dynamic_cast<const AttentionLayer&>(*decoder->layers()[2]);
    EXPECT_EQ(attention.scales().v != nullptr, attention.scales().k != nullptr);
    if (!attention.scales().any()) return KvScales();
    return KvScales{.k = Read(attention.scales().k, runtime::DType::kF32, spec.num_kv_heads),
                    .v = Read(attention.scales().v, runtime::DType::kF32, spec.num_kv_heads)};
  }
  void ExpectScales(const std::vector<FileTensor>& added, const std::vector<float>& k,
                    const std::vector<float>& v) {
    SCOPED_TRACE(added.empty() ? "none" : added.front().name);
    const absl::StatusOr<KvScales> scales = Load(added);
    ASSERT_TRUE(scales.ok()) << scales.status();
    EXPECT_EQ(scales->k, k);
    EXPECT_EQ(scales->v, v);
  }

  // Of K or of V: "k" or "v".
  static std::vector<std::string> Names(const std::string& part) {
    return {part + "_scale", part + "_proj." + part + "_scale", part + "_proj.output_scale"};
  }
  static FileTensor Scales(const std::string& name, const std::vector<int64_t>& shape,
                           const std::vector<float>& values) {
    return {"model.layers.0.self_attn." + name, "F32", shape, BytesOf(values)};
  }
};

TEST_F(KvScalesTest, HaveTheNamesAndShapesThatAreInUse) {
  const std::vector<float> ones = {1, 1}, halves = {0.5f, 0.5f}, each = {0.5f, 0.25f};
  ExpectScales({}, ones, ones);
  for (const std::string part : {"k", "v"}) {
    const auto expect = [&](const FileTensor& tensor, const std::vector<float>& scales) {
      ExpectScales({tensor}, part == "k" ? scales : ones, part == "v" ? scales : ones);
    };
    for (const std::string& name : Names(part)) {
      expect(Scales(name, {}, {0.5f}), halves);
      expect(Scales(name, {1}, {0.5f}), halves);
      expect(Scales(name, {2}, each), each);
    }
    FileTensor bf16 = Scales(Names(part)[0], {2}, {});
    bf16.dtype = "BF16";
    bf16.data = BytesOf(std::vector<uint16_t>{0x3f00, 0x3e80});
    expect(bf16, each);
  }
  ExpectScales({Scales("k_scale", {}, {0.5f}), Scales("v_proj.output_scale", {2}, each)}, halves,
               each);
}

// Where KV is not of 8 bits.
TEST_F(KvScalesTest, AreReadByNobodyWhoHasNoUseForThem) {
  for (const std::string part : {"k", "v"}) {
    for (const std::string& name : Names(part)) {
      const auto scales = Load({Scales(name, {}, {-1.0f})}, runtime::DType::kF32);
      ASSERT_TRUE(scales.ok()) << scales.status();
      EXPECT_TRUE(scales->k.empty() && scales->v.empty());
    }
  }
}

TEST_F(KvScalesTest, AreRefusedByName) {
  for (const std::string part : {"k", "v"}) {
    const std::vector<std::string> names = Names(part);
    for (const std::string& name : names) {
      ExpectInvalid(Load({Scales(name, {}, {0.0f})}).status(),
                    {name.c_str(), "got scale 0", "finite numbers above 0"});
      ExpectInvalid(Load({Scales(name, {}, {-1.0f})}).status(), {"got scale -1"});
      ExpectInvalid(Load({Scales(name, {}, {INFINITY})}).status(), {"got scale inf"});
      ExpectInvalid(Load({Scales(name, {}, {NAN})}).status(), {name.c_str(), "got scale nan"});
      ExpectInvalid(Load({Scales(name, {2}, {1.0f, NAN})}).status(), {"got scale nan"});
      ExpectInvalid(Load({Scales(name, {7}, std::vector<float>(7, 1.0f))}).status(),
                    {name.c_str(), "got shape [7], allowed [], [1] and [2]"});
    }
    const std::string first = "got it and 'model.layers.0.self_attn." + names[0] + "'";
    for (const std::string& other : {names[1], names[2]})
      ExpectInvalid(Load({Scales(names[0], {}, {1.0f}), Scales(other, {}, {1.0f})}).status(),
                    {other.c_str(), first.c_str(), "allowed one of them"});
  }
  ExpectInvalid(Load({Scales("kv_scale", {}, {1.0f})}).status(),
                {"kv_scale", "allowed only tensors"});
}

TEST_F(ModelWeightsTest, ATiedHeadMayBeThereOnlyAsACopy) {
  ModelSpec spec = MinimalSpec();
  spec.tie_word_embeddings = true;
  std::vector<FileTensor> tensors = MinimalTensors();
  ExpectInvalid(LoadStatus(spec, *Open(tensors)), {"lm_head.weight", "tie_word_embeddings"});
  tensors.back().data = tensors.front().data;
  const auto checkpoint = Open(tensors);
  const auto loaded = LoadedModel::Load(device(), spec, *checkpoint, runtime::DType::kF32);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->head().head().data, loaded->embedding().table());
  tensors.back().dtype = "BF16";
  tensors.back().data.resize(12);
  ExpectInvalid(LoadStatus(spec, *Open(tensors)), {"lm_head.weight"});
  tensors.pop_back();
  EXPECT_TRUE(LoadStatus(spec, *Open(tensors)).ok());
}

TEST_F(ModelWeightsTest, AnInvalidSpecIsRefusedBeforeAnythingIsAllocated) {
  ModelSpec spec = MinimalSpec();
  spec.num_layers = -1;
  ExpectInvalid(LoadStatus(spec, *Open(MinimalTensors())), {"num_layers: got -1"});
}

TEST_F(ModelWeightsTest, ProgressEndsAtAllBytes) {
  size_t last = 0, total = 0;
  const auto checkpoint = Open(MinimalTensors());
  const auto weights =
      LoadedModel::Load(device(), MinimalSpec(), *checkpoint, runtime::DType::kBf16,
                        [&](size_t done, size_t all) { last = done, total = all; });
  ASSERT_TRUE(weights.ok()) << weights.status();
  EXPECT_EQ(total, static_cast<size_t>(NumParameters(MinimalSpec())) * 2);
  EXPECT_EQ(last, total);
}

TEST_F(ModelWeightsTest, TensorsAreAlignedDisjointAndInsideTheBuffer) {
  for (const bool variant : {false, true}) {
    ModelSpec spec = MinimalSpec();
    spec.num_layers = 3;
    spec.qkv_bias = spec.o_bias = spec.mlp_bias = spec.tie_word_embeddings = variant;
    spec.qk_norm = variant;
    const auto fill = [](runtime::Stream&, void*, runtime::DType, kernels::WeightLayout, int64_t,
                         uint64_t, float) { return absl::OkStatus(); };
    const auto weights = LoadedModel::Random(device(), spec, runtime::DType::kBf16, 1, fill);
    ASSERT_TRUE(weights.ok()) << weights.status();
    std::map<uintptr_t, size_t> ranges;
    const auto add = [&](const void* data, int64_t bytes) {
      const auto address = reinterpret_cast<uintptr_t>(data);
      EXPECT_EQ(address % 256, 0u);
      EXPECT_TRUE(ranges.emplace(address, static_cast<size_t>(bytes)).second);
    };
    const auto add_linear = [&](const kernels::LinearWeights& linear) {
      add(linear.data, linear.out_features * linear.in_features * 2);
      if (linear.bias != nullptr) add(linear.bias, linear.out_features * 2);
    };
    add(weights->embedding().table(), 3 * 2 * 2);
    if (!variant) add_linear(weights->head().head());
    add(weights->head().norm(), 2 * 2);
    add(weights->embedding().inverse_frequency(), 4);
    for (const LoadedModel::Block& layer : weights->blocks()) {
      add(layer.input_norm->weight(), 2 * 2);
      add(layer.post_attention_norm->weight(), 2 * 2);
      if (variant) {
        add(layer.attention->q_norm(), spec.head_dim * 2);
        add(layer.attention->k_norm(), spec.head_dim * 2);
      }
      for (const kernels::LinearWeights* linear : {&layer.attention->qkv(), &layer.attention->o(),
                                                   &layer.mlp->gate_up(), &layer.mlp->down()}) {
        add_linear(*linear);
      }
    }
    uintptr_t end = ranges.begin()->first;
    for (const auto& [address, bytes] : ranges) {
      EXPECT_GE(address, end);
      EXPECT_LT(address, end + 256);  // no more than alignment between two
      end = address + bytes;
    }
    EXPECT_EQ(end - ranges.begin()->first, weights->bytes());
  }
}

// Only the way through ModelWeights is under test here: values that tell seed and index apart.
absl::Status HashFill(runtime::Stream& stream, void* dst, runtime::DType dtype,
                      kernels::WeightLayout, int64_t count, uint64_t seed, float stddev) {
  return stream.EnqueueHost([=] {
    for (int64_t i = 0; i < count; ++i) {
      const uint64_t hash = (seed ^ static_cast<uint64_t>(i)) * 0x9e3779b97f4a7c15ull;
      const float value = stddev * (static_cast<float>(hash >> 40) * 0x1p-23f - 1.0f);
      runtime::ConvertElements(
          runtime::DType::kF32, dtype, reinterpret_cast<const std::byte*>(&value),
          static_cast<std::byte*>(dst) + static_cast<size_t>(i) * runtime::SizeOf(dtype), 1);
    }
  });
}

TEST_F(ModelWeightsTest, RandomWeightsFollowFromSpecAndSeedAlone) {
  ModelSpec spec = MinimalSpec();
  spec.num_layers = 2;
  spec.qkv_bias = spec.qk_norm = true;
  spec.head_dim = 6;  // more than hidden_size
  const auto a = *LoadedModel::Random(device(), spec, runtime::DType::kF32, 7, HashFill);
  const auto b = *LoadedModel::Random(device(), spec, runtime::DType::kF32, 7, HashFill);
  const auto c = *LoadedModel::Random(device(), spec, runtime::DType::kF32, 8, HashFill);
  const auto qkv = [&](const LoadedModel& w, size_t block) {
    return Read(w.blocks()[block].attention->qkv().data, runtime::DType::kF32, spec.qkv_size() * 2);
  };
  EXPECT_EQ(a.bytes(), BytesFor(spec, runtime::DType::kF32));
  EXPECT_EQ(qkv(a, 0), qkv(b, 0));
  EXPECT_NE(qkv(a, 0), qkv(c, 0));
  EXPECT_NE(qkv(a, 0), qkv(a, 1));
  const std::vector<float> ones(2, 1.0f);
  EXPECT_EQ(Read(a.head().norm(), runtime::DType::kF32, 2), ones);
  for (const LoadedModel::Block& layer : a.blocks()) {
    EXPECT_EQ(Read(layer.input_norm->weight(), runtime::DType::kF32, 2), ones);
    EXPECT_EQ(Read(layer.post_attention_norm->weight(), runtime::DType::kF32, 2), ones);
    EXPECT_EQ(Read(layer.attention->q_norm(), runtime::DType::kF32, 6),
              std::vector<float>(6, 1.0f));
    EXPECT_EQ(Read(layer.attention->k_norm(), runtime::DType::kF32, 6),
              std::vector<float>(6, 1.0f));
    EXPECT_NE(Read(layer.attention->qkv().bias, runtime::DType::kF32, spec.qkv_size())[0], 0.0f);
    EXPECT_EQ(layer.mlp->down().bias, nullptr);
  }
  EXPECT_EQ(Read(a.embedding().inverse_frequency(), runtime::DType::kF32, 1),
            std::vector<float>{1.0f});
}

TEST_F(ModelWeightsTest, RandomReportsWhatTheFillReports) {
  ExpectInvalid(LoadedModel::Random(device(), MinimalSpec(), runtime::DType::kF32, 1, {}).status(),
                {"fill"});
  const auto fill = [](runtime::Stream&, void*, runtime::DType, kernels::WeightLayout, int64_t,
                       uint64_t, float) { return absl::UnavailableError("no kernel"); };
  ExpectError(LoadedModel::Random(device(), MinimalSpec(), runtime::DType::kF32, 1, fill).status(),
              absl::StatusCode::kUnavailable, {"no kernel"});
}

// Of the linear layers of blocks, all experts among them; of MXFP4 experts alone.
int64_t QuantizedElements(const ModelSpec& spec) {
  if (spec.mxfp4_experts)
    return spec.num_layers * spec.num_experts * 3 * spec.hidden_size *
           spec.expert_intermediate_size;
  if (!spec.weight_quantization) return 0;
  const int64_t inner = spec.num_experts == 0 ? spec.intermediate_size
                                              : spec.num_experts * spec.expert_intermediate_size;
  return spec.num_layers * spec.hidden_size * (spec.qkv_size() + spec.q_size() + 3 * inner);
}
// Of 8 or 4 bits, and 32 for 128 of them; where inputs are in another order, 32 for each. Of MXFP4
// 4 bits, and 32 for 32 of them.
int64_t QuantizedBytes(const ModelSpec& spec) {
  if (spec.mxfp4_experts) return QuantizedElements(spec) / 2 + QuantizedElements(spec) / 8;
  if (!spec.weight_quantization) return 0;
  const int64_t elements = QuantizedElements(spec);
  int64_t inputs = 0;
  if (spec.weight_quantization->reorders_inputs)
    inputs = spec.num_layers * (2 * spec.hidden_size + spec.q_size() + spec.intermediate_size);
  return elements * kernels::BitsOf(spec.weight_quantization->format()) / 8 + elements / 32 +
         4 * inputs;
}

// What is f32 whatever the dtype: convolutions and numbers of heads of state space models.
int64_t StateSpaceNumbers(const ModelSpec& spec) {
  if (!spec.mamba) return 0;
  return (spec.num_layers - spec.NumAttentionLayers()) *
         (spec.mamba->conv_size() * (spec.mamba->conv_width + 1) + 3 * spec.mamba->num_heads);
}

TEST(ModelWeightsBytes, PresetsTakeTheirParametersAndLittleMore) {
  for (const std::string_view name : PresetNames()) {
    const ModelSpec spec = *PresetSpec(name);
    const auto others = static_cast<size_t>(NumParameters(spec) - QuantizedElements(spec));
    const auto of_quantized = static_cast<size_t>(QuantizedBytes(spec));
    EXPECT_GE(BytesFor(spec, runtime::DType::kBf16), 2 * others + of_quantized);
    const auto wider = static_cast<size_t>(2 * StateSpaceNumbers(spec));
    EXPECT_LE(BytesFor(spec, runtime::DType::kBf16),
              2 * others + wider + of_quantized + 256 * 1000);
    EXPECT_GE(BytesFor(spec, runtime::DType::kF32), 4 * others + of_quantized);
  }
}

// Saved by transformers itself: one file, shards, untied and tied, biases, all three types.
TEST_F(ModelWeightsTest, FixturesLoad) {
  const std::string fixtures = testing::SourceDir() + "/tests/fixtures/";
  for (const char* name : {"llama-tiny", "granite-tiny", "llama3-rope-bias-tiny"}) {
    const auto spec = ReadHfConfig(fixtures + name);
    ASSERT_TRUE(spec.ok()) << spec.status();
    const auto checkpoint = Checkpoint::Open(fixtures + name);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    const auto weights = LoadedModel::Load(device(), *spec, **checkpoint, runtime::DType::kF32);
    ASSERT_TRUE(weights.ok()) << weights.status();
    EXPECT_EQ(Read(weights->head().norm(), runtime::DType::kF32, spec->hidden_size),
              Tensor(**checkpoint, "model.norm.weight", runtime::DType::kF32));
  }
}

}  // namespace
}  // namespace reprise::models
