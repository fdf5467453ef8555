// SPDX-License-Identifier: Apache-2.0
// What happens before there is an engine: defaults, ranges, the pool's size.
#include "engine/engine_setup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "tests/testing/status_codes.h"
#include "tests/testing/status_matchers.h"

namespace reprise::engine {
namespace {

using ::reprise::runtime::DeviceKind;
using ::reprise::runtime::DeviceProperties;
using ::reprise::testing::StatusIs;
using ::testing::ElementsAre;

using ::reprise::testing::kExhausted;
using ::reprise::testing::kInvalid;

models::ModelSpec Spec() {
  models::ModelSpec spec;
  spec.name = "spec";
  spec.architecture = "llama";
  spec.vocab_size = 100;
  spec.hidden_size = 32;
  spec.intermediate_size = 48;
  spec.num_layers = 2;
  spec.num_heads = 4;
  spec.num_kv_heads = 2;
  spec.head_dim = 8;
  spec.max_position_embeddings = 1000;
  spec.checkpoint_dtype = runtime::DType::kF16;
  return spec;
}

DeviceProperties Properties(DeviceKind kind) {
  DeviceProperties properties;
  properties.kind = kind;
  properties.total_bytes = 1000000;
  return properties;
}

absl::StatusOr<ResolvedOptions> Resolve(const DecodeEngineOptions& options,
                                        DeviceKind kind = DeviceKind::kHost) {
  return ResolveOptions(options, Spec(), Properties(kind));
}

TEST(ResolveOptions, KnowsTheKindOfDeviceAlone) {
  for (const DeviceKind kind : {DeviceKind::kHost, DeviceKind::kCuda})
    EXPECT_OK(Resolve({.linear = LinearPolicy::kPacked}, kind));
}

TEST(ResolveLinear, TakesWhatWasMeasuredToBeFaster) {
  DeviceProperties hopper = Properties(DeviceKind::kCuda);
  hopper.compute_capability = 90;
  DeviceProperties other = hopper;
  other.compute_capability = 80;
  using runtime::DType;
  const models::ModelSpec plain;
  EXPECT_EQ(ResolveLinear({.dtype = DType::kBf16}, plain, hopper), LinearPolicy::kPacked);
  EXPECT_EQ(ResolveLinear({.dtype = DType::kF16}, plain, hopper), LinearPolicy::kPacked);
  EXPECT_EQ(ResolveLinear({.dtype = DType::kF32}, plain, hopper), LinearPolicy::kRowMajor);
  EXPECT_EQ(ResolveLinear({.dtype = DType::kBf16}, plain, other), LinearPolicy::kRowMajor);
  EXPECT_EQ(ResolveLinear({}, plain, Properties(DeviceKind::kHost)), LinearPolicy::kRowMajor);
  for (const LinearPolicy policy :
       {LinearPolicy::kRowMajor, LinearPolicy::kPacked, LinearPolicy::kPortable})
    EXPECT_EQ(ResolveLinear({.linear = policy}, plain, hopper), policy);
}

// Matrix units read them packed, and in no other way.
TEST(ResolveLinear, PacksQuantizedWeightsWhereverThereAreMatrixUnits) {
  models::ModelSpec fp8, mxfp4;
  fp8.weight_quantization = models::WeightQuantization{};
  mxfp4.mxfp4_experts = true;
  using runtime::DType;
  for (const models::ModelSpec& spec : {fp8, mxfp4}) {
    DeviceProperties gpu = Properties(DeviceKind::kCuda);
    gpu.compute_capability = 80;
    EXPECT_EQ(ResolveLinear({.dtype = DType::kBf16}, spec, gpu), LinearPolicy::kRowMajor);
    gpu.matrix_unit = runtime::MatrixUnit::kMma;
    EXPECT_EQ(ResolveLinear({.dtype = DType::kBf16}, spec, gpu), LinearPolicy::kPacked);
    EXPECT_EQ(ResolveLinear({.dtype = DType::kF32}, spec, gpu), LinearPolicy::kRowMajor);
    EXPECT_EQ(ResolveLinear({.dtype = DType::kBf16}, spec, Properties(DeviceKind::kHost)),
              LinearPolicy::kRowMajor);
  }
}

TEST(CheckLinear, RefusesPackedWeightsThatNothingReads) {
  DeviceProperties gpu = Properties(DeviceKind::kCuda);
  gpu.name = "a GPU";
  gpu.matrix_unit = runtime::MatrixUnit::kMma;
  DecodeEngineOptions packed{.dtype = runtime::DType::kF16, .linear = LinearPolicy::kPacked};
  EXPECT_OK(CheckLinear(packed, gpu));
  packed.dtype = runtime::DType::kF32;
  EXPECT_THAT(CheckLinear(packed, gpu),
              StatusIs(kInvalid, "linear is packed with f32 on a GPU; allowed: packed with bf16"));
  packed.dtype = runtime::DType::kF16;
  gpu.matrix_unit = runtime::MatrixUnit::kNone;
  EXPECT_THAT(CheckLinear(packed, gpu),
              StatusIs(kInvalid, "packed with f16 on a GPU, which has no matrix units; allowed"));
}

TEST(ModelToRun, RoundsActivationsWhereTheModelMeansItAndAKernelDoes) {
  models::ModelSpec model;
  DeviceProperties gpu = Properties(DeviceKind::kCuda);
  gpu.name = "a GPU";
  gpu.matrix_unit = runtime::MatrixUnit::kMma;
  gpu.compute_capability = 90;
  DecodeEngineOptions options{.linear = LinearPolicy::kPacked, .round_activations = true};
  const char* const kMeaning = "a model that does not mean it; allowed: where quantization_config";
  EXPECT_THAT(ModelToRun(options, model, gpu), StatusIs(kInvalid, kMeaning));
  model.weight_quantization = models::WeightQuantization{};
  EXPECT_THAT(ModelToRun(options, model, gpu), StatusIs(kInvalid, kMeaning));
  model.weight_quantization->means_rounding = true;
  ASSERT_OK_AND_ASSIGN(const models::ModelSpec rounds, ModelToRun(options, model, gpu));
  EXPECT_EQ(rounds.weight_quantization->format(), kernels::WeightFormat::kE4m3Rounded);
  EXPECT_EQ(rounds.weight_quantization->storage_format(), kernels::WeightFormat::kE4m3);
  gpu.compute_capability = 80;
  EXPECT_THAT(ModelToRun(options, model, gpu),
              StatusIs(kInvalid, "packed linear layers of bf16 on a GPU; allowed: packed of bf16"));
  options.linear = LinearPolicy::kPortable;
  EXPECT_OK(ModelToRun(options, model, gpu));
  options = {.linear = LinearPolicy::kPacked};
  ASSERT_OK_AND_ASSIGN(const models::ModelSpec plain, ModelToRun(options, model, gpu));
  EXPECT_EQ(plain.weight_quantization->format(), kernels::WeightFormat::kE4m3);
}

TEST(ModelToRun, TakesTheFactorsOfLongropeThatItsContextsCallFor) {
  models::ModelSpec model;
  model.rope = {.scaling = models::RopeScaling::kLongRope, .original_max_position_embeddings = 100};
  const DeviceProperties host = Properties(DeviceKind::kHost);
  for (const bool before : {false, true}) {
    model.rope.takes_long_factors = before;
    ASSERT_OK_AND_ASSIGN(const auto is_short, ModelToRun({.max_context_length = 100}, model, host));
    EXPECT_FALSE(is_short.rope.takes_long_factors);
    ASSERT_OK_AND_ASSIGN(const auto is_long, ModelToRun({.max_context_length = 101}, model, host));
    EXPECT_TRUE(is_long.rope.takes_long_factors);
  }
}

TEST(ResolveOptions, FillsInEveryDefault) {
  ASSERT_OK_AND_ASSIGN(const ResolvedOptions r, Resolve({.max_rows = 24}));
  EXPECT_EQ(r.options.dtype, runtime::DType::kF16);  // the checkpoint's
  EXPECT_EQ(r.options.max_context_length, 1000u);
  EXPECT_THAT(r.options.decode_buckets, ElementsAre(1, 2, 4, 8, 16, 24));
  EXPECT_THAT(r.options.mixed_buckets, ElementsAre(64, 256, 1024));
  EXPECT_EQ(r.limits.max_rows, 24u);
  EXPECT_EQ(r.limits.max_context_length, 1000u);
  EXPECT_EQ(r.limits.max_blocks_per_row, 63u);  // of 16 tokens
  EXPECT_EQ(r.limits.max_step_tokens, 1024u);
  EXPECT_EQ(r.limits.pipeline_depth, 2u);
  EXPECT_EQ(r.limits.max_rows, 24u);
  EXPECT_EQ(r.limits.max_step_tokens, 1024u);
  EXPECT_EQ(r.limits.max_prompt_tokens, 1024u);
  EXPECT_EQ(r.limits.max_blocks_per_row, 63u);
  ASSERT_OK_AND_ASSIGN(const ResolvedOptions cuda, Resolve({}, DeviceKind::kCuda));
  EXPECT_THAT(cuda.options.mixed_buckets, ElementsAre(256, 512, 1024, 2048));
}

TEST(ResolveOptions, KeepsWhatIsSet) {
  ASSERT_OK_AND_ASSIGN(const ResolvedOptions r, Resolve({.dtype = runtime::DType::kF32,
                                                         .dtype_from_checkpoint = false,
                                                         .block_size = 7,
                                                         .max_rows = 40,
                                                         .max_context_length = 50,
                                                         .decode_buckets = {40, 3},
                                                         .mixed_buckets = {5, 9},
                                                         .pipeline_depth = 8}));
  EXPECT_EQ(r.options.dtype, runtime::DType::kF32);
  EXPECT_EQ(r.limits.max_context_length, 50u);
  EXPECT_EQ(r.limits.max_blocks_per_row, 8u);
  EXPECT_EQ(r.limits.max_step_tokens, 40u);  // the largest bucket of either kind
  EXPECT_EQ(r.limits.pipeline_depth, 8u);
  EXPECT_THAT(r.options.decode_buckets, ElementsAre(40, 3));
}

TEST(ResolveOptions, TheKvCacheHasTheComputeTypeUnlessItIsAskedForAnother) {
  using runtime::DType;
  ASSERT_OK_AND_ASSIGN(const ResolvedOptions plain,
                       Resolve({.dtype = DType::kF16, .dtype_from_checkpoint = false}));
  EXPECT_EQ(plain.options.kv_dtype, DType::kF16);
  for (const DType kv_dtype : {DType::kF16, DType::kE4m3, DType::kE5m2}) {
    ASSERT_OK_AND_ASSIGN(
        const ResolvedOptions r,
        Resolve({.dtype = DType::kF16, .dtype_from_checkpoint = false, .kv_dtype = kv_dtype}));
    EXPECT_EQ(r.options.kv_dtype, kv_dtype);
  }
  EXPECT_THAT(
      Resolve({.dtype = DType::kF16, .dtype_from_checkpoint = false, .kv_dtype = DType::kF32}),
      StatusIs(kInvalid, "kv_dtype is f32; allowed: f16 (the compute dtype), fp8_e4m3"));
  EXPECT_THAT(Resolve({.dtype = DType::kE4m3, .dtype_from_checkpoint = false}),
              StatusIs(kInvalid, "dtype is fp8_e4m3; allowed: bf16, f16, f32"));
  models::ModelSpec calibrated = Spec();
  calibrated.kv_cache_dtype = DType::kE4m3;
  const DeviceProperties host = Properties(DeviceKind::kHost);
  ASSERT_OK_AND_ASSIGN(const ResolvedOptions asked, ResolveOptions({}, calibrated, host));
  EXPECT_EQ(asked.options.dtype, DType::kF16);
  EXPECT_EQ(asked.options.kv_dtype, DType::kE4m3);
  ASSERT_OK_AND_ASSIGN(const ResolvedOptions other,
                       ResolveOptions({.kv_dtype = DType::kF16}, calibrated, host));
  EXPECT_EQ(other.options.kv_dtype, DType::kF16);
}

struct BadOption {
  std::string name;
  std::function<void(DecodeEngineOptions&)> spoil;
  std::string says;
};

TEST(ResolveOptions, RefusesOptionsOutOfRangeByName) {
  const BadOption cases[] = {
      {"zero block size", [](auto& o) { o.block_size = 0; }, "block_size is 0; allowed: 1"},
      {"huge block size", [](auto& o) { o.block_size = 0xffffffffu; }, "block_size is 4294967295"},
      {"zero rows", [](auto& o) { o.max_rows = 0; }, "max_rows is 0; allowed: 1"},
      {"huge rows", [](auto& o) { o.max_rows = 0xffffffffu; }, "max_rows is 4294967295"},
      {"zero depth", [](auto& o) { o.pipeline_depth = 0; }, "pipeline_depth is 0; allowed: 1 to 8"},
      {"depth", [](auto& o) { o.pipeline_depth = 9; }, "pipeline_depth is 9; allowed: 1 to 8"},
      {"context", [](auto& o) { o.max_context_length = 1001; },
       "max_context_length is 1001; allowed: 1 to 1000"},
      {"zero fraction", [](auto& o) { o.memory_fraction = 0.0; }, "memory_fraction is 0;"},
      {"fraction", [](auto& o) { o.memory_fraction = 1.01; }, "memory_fraction is 1.01"},
      {"nan fraction", [](auto& o) { o.memory_fraction = std::nan(""); }, "memory_fraction is nan"},
      {"zero bucket",
       [](auto& o) {
         o.decode_buckets = {4, 0};
       },
       "decode bucket is 0"},
      {"negative bucket", [](auto& o) { o.decode_buckets = {-1}; },
       "decode bucket is -1; allowed: 1 to 256"},
      {"bucket beyond the rows",
       [](auto& o) {
         o.decode_buckets = {1, 257};
       },
       "decode bucket is 257; allowed: 1 to 256"},
      {"zero mixed", [](auto& o) { o.mixed_buckets = {0}; }, "mixed bucket is 0"},
      {"huge mixed", [](auto& o) { o.mixed_buckets = {std::numeric_limits<int64_t>::max()}; },
       "mixed bucket is 9223372036854775807"},
  };
  for (const BadOption& bad : cases) {
    DecodeEngineOptions options;
    bad.spoil(options);
    EXPECT_THAT(Resolve(options), StatusIs(kInvalid, bad.says)) << bad.name;
  }
}

// Says how much memory there is; hands out none.
class MemoryReport final : public runtime::Device {
 public:
  MemoryReport(DeviceKind kind, size_t free_bytes)
      : properties_(Properties(kind)), free_bytes_(free_bytes) {}
  const DeviceProperties& properties() const override { return properties_; }
  absl::StatusOr<void*> Allocate(size_t) override { return None(); }
  void Free(void*) override {}
  absl::StatusOr<runtime::MappedPointers> AllocateMapped(size_t) override { return None(); }
  void FreeMapped(const runtime::MappedPointers&) override {}
  absl::StatusOr<size_t> FreeBytes() const override { return free_bytes_; }
  absl::StatusOr<std::unique_ptr<runtime::Stream>> CreateStream() override { return None(); }
  absl::StatusOr<std::unique_ptr<runtime::Stream>> WrapStream(void*) override { return None(); }
  absl::StatusOr<std::unique_ptr<runtime::KernelModule>> Load(
      const runtime::KernelImage&) override {
    return None();
  }

 private:
  static absl::Status None() { return absl::ResourceExhaustedError("only reports"); }
  const DeviceProperties properties_;
  const size_t free_bytes_;
};

constexpr models::KvGeometry kGeometry = {.num_layers = 2,
                                          .num_kv_heads = 2,
                                          .head_dim = 8,
                                          .block_size = 4,
                                          .dtype = runtime::DType::kBf16};  // 512 bytes a block

TEST(NumPoolBlocks, TakesWhatTheOptionSays) {
  const MemoryReport device(DeviceKind::kCuda, 10);
  const auto blocks = [&](uint64_t bytes) {
    return NumPoolBlocks(device, {.kv_cache_bytes = bytes}, kGeometry, 1000);
  };
  ASSERT_EQ(kGeometry.BlockBytes(), 512u);
  EXPECT_EQ(*blocks(1024), 2u);
  EXPECT_EQ(*blocks(512 * 100), 100u);
  EXPECT_EQ(*blocks(512 * 101 - 1), 100u);
  EXPECT_THAT(blocks(1023), StatusIs(kExhausted,
                                     "the KV pool gets 1023 bytes, kv_cache_bytes; needed: "
                                     "at least 1024 bytes, two blocks of 512 bytes"));
  EXPECT_THAT(blocks(1), StatusIs(kExhausted, "1 bytes"));
  EXPECT_EQ(*blocks(std::numeric_limits<uint64_t>::max()), uint64_t{1} << 31);
}

TEST(NumPoolBlocks, TakesWhatIsLeftOfTheFraction) {
  // 1000000 bytes in all, of which a quarter stays free, and 50000 go to graphs.
  const DecodeEngineOptions options{.memory_fraction = 0.75};
  const MemoryReport device(DeviceKind::kCuda, 600000);
  EXPECT_EQ(*NumPoolBlocks(device, options, kGeometry, 50000), (600000u - 250000 - 50000) / 512);
  const MemoryReport full(DeviceKind::kCuda, 300000);
  EXPECT_THAT(NumPoolBlocks(full, options, kGeometry, 50000),
              StatusIs(kExhausted, "300000 bytes free less 300000 bytes"));
  const MemoryReport fuller(DeviceKind::kCuda, 20);
  EXPECT_THAT(NumPoolBlocks(fuller, options, kGeometry, 50000),
              StatusIs(kExhausted, "the KV pool gets 0 bytes"));
}

TEST(NumPoolBlocks, HostHasADefaultOfItsOwn) {
  const MemoryReport device(DeviceKind::kHost, 0);
  EXPECT_EQ(*NumPoolBlocks(device, {}, kGeometry, 0), (uint64_t{256} << 20) / 512);
}

}  // namespace
}  // namespace reprise::engine
