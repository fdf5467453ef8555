// SPDX-License-Identifier: Apache-2.0
// Loading of weights: a matrix from memory to the host device, laid out on the way, by so many
// threads. "bytes_per_second" is of what lies on the device.
#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "models/weights/weight_upload.h"
#include "runtime/memory/buffer.h"
#include "tests/kernels/benchmark_check.h"

namespace reprise::models {
namespace {

using kernels::Check;
using kernels::WeightLayout;

constexpr int64_t kOutputs = 14336, kInputs = 4096;

// Elements of which none is a NaN of 8 or 16 bits.
std::vector<std::byte> RandomBytes(size_t count) {
  std::vector<std::byte> bytes(count);
  std::minstd_rand random(1);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random() >> 8 & 0x3f);
  return bytes;
}

class Target {
 public:
  explicit Target(int64_t bytes)
      : device_(Check(runtime::Device::Create({.kind = runtime::DeviceKind::kHost}))),
        buffer_(Check(runtime::DeviceBuffer::Create(*device_, static_cast<size_t>(bytes)))) {}

  std::byte* data() const { return buffer_.as<std::byte>(); }

  void Upload(benchmark::State& state, std::span<const MatrixUpload> matrices,
              std::span<const Int4Upload> int4) {
    const UploadOptions options = {.max_threads = static_cast<int>(state.range(0))};
    for (auto _ : state) Check(UploadWeights(*device_, {}, matrices, int4, {}, options));
    state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(buffer_.bytes()));
  }

 private:
  std::unique_ptr<runtime::Device> device_;
  runtime::DeviceBuffer buffer_;
};

void UploadMatrix(benchmark::State& state, WeightLayout layout, runtime::DType from,
                  runtime::DType to) {
  const auto elements = static_cast<size_t>(kOutputs * kInputs);
  const std::vector<std::byte> source = RandomBytes(elements * runtime::SizeOf(from));
  Target target(static_cast<int64_t>(elements * runtime::SizeOf(to)));
  const MatrixUpload upload = {.matrix = {kOutputs, kInputs},
                               .layout = layout,
                               .parts = {{.dtype = from, .source = source}},
                               .destination = target.data(),
                               .dtype = to,
                               .format = kernels::WeightFormatOf(to)};
  target.Upload(state, {&upload, 1}, {});
}

void UploadInt4(benchmark::State& state, WeightStorage storage) {
  const std::vector<std::byte> source = RandomBytes(static_cast<size_t>(kOutputs * kInputs / 2));
  Target target(kOutputs * kInputs / 2);
  const Int4Upload upload = {.matrix = {kOutputs, kInputs},
                             .layout = WeightLayout::kPacked,
                             .storage = storage,
                             .parts = {{.words = source, .outputs = kOutputs}},
                             .destination = target.data()};
  target.Upload(state, {}, {&upload, 1});
}

BENCHMARK_CAPTURE(UploadMatrix, bf16_row_major, WeightLayout::kRowMajor, runtime::DType::kBf16,
                  runtime::DType::kBf16)
    ->Arg(1)
    ->Arg(2)
    ->UseRealTime();
BENCHMARK_CAPTURE(UploadMatrix, bf16_packed, WeightLayout::kPacked, runtime::DType::kBf16,
                  runtime::DType::kBf16)
    ->Arg(1)
    ->Arg(2)
    ->UseRealTime();
BENCHMARK_CAPTURE(UploadMatrix, bf16_packed_pairs, WeightLayout::kPackedPairs,
                  runtime::DType::kBf16, runtime::DType::kBf16)
    ->Arg(1)
    ->UseRealTime();
BENCHMARK_CAPTURE(UploadMatrix, f32_to_bf16_packed, WeightLayout::kPacked, runtime::DType::kF32,
                  runtime::DType::kBf16)
    ->Arg(1)
    ->UseRealTime();
BENCHMARK_CAPTURE(UploadMatrix, e4m3_packed, WeightLayout::kPacked, runtime::DType::kE4m3,
                  runtime::DType::kE4m3)
    ->Arg(1)
    ->Arg(2)
    ->UseRealTime();
BENCHMARK_CAPTURE(UploadInt4, gptq, WeightStorage::kGptq)->Arg(1)->UseRealTime();
BENCHMARK_CAPTURE(UploadInt4, awq, WeightStorage::kAwq)->Arg(1)->UseRealTime();
BENCHMARK_CAPTURE(UploadInt4, compressed_tensors, WeightStorage::kPackedInt4)
    ->Arg(1)
    ->Arg(2)
    ->UseRealTime();

}  // namespace
}  // namespace reprise::models
