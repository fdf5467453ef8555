// SPDX-License-Identifier: Apache-2.0
// Speed of the memory-bound ops at sizes far beyond the caches, beside the speed of a plain copy on
// the same device. Takes the best device of the machine. Every time is of a captured graph of
// kLaunches launches, so that launching costs nothing; "bytes_per_second" counts what an op must
// read and write once.
#include <benchmark/benchmark.h>

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "kernels/fill/fill.h"
#include "kernels/kernel_set.h"
#include "kernels/memory_probe/memory_probe.h"
#include "kernels/rms_norm/rms_norm.h"
#include "kernels/rope_append/rope_append.h"
#include "kernels/silu_mul/silu_mul.h"
#include "runtime/device.h"
#include "runtime/dtype.h"
#include "runtime/memory/buffer.h"
#include "tests/kernels/benchmark_check.h"

namespace reprise::kernels {
namespace {

using runtime::DeviceBuffer;

constexpr int kLaunches = 10;
constexpr uint32_t kTokens = 16384;
constexpr int32_t kHidden = 4096, kWideHidden = 8192, kIntermediate = 14336, kHeadDim = 128,
                  kHeads = 32, kKvHeads = 8;
constexpr uint32_t kSiluTokens = 4096;
constexpr int32_t kBlockSize = 16;

class Bench {
 public:
  Bench()
      : device_(Check(runtime::Device::Create({.kind = runtime::CompiledDeviceKinds().front()}))),
        stream_(Check(device_->CreateStream())),
        kernels_(Check(KernelSet::Load(*device_, runtime::DType::kBf16))) {}

  runtime::Stream& stream() { return *stream_; }
  const KernelSet& kernels() const { return *kernels_; }

  // bf16 numbers of mean 0 and deviation 1.
  void* Random(size_t elements) {
    void* data = Keep(elements * 2);
    Check(RandomFill(*stream_, *kernels_,
                     {.out = data,
                      .dtype = kernels_->dtype,
                      .count = static_cast<int64_t>(elements),
                      .seed = buffers_.size(),
                      .stddev = 1.0f}));
    return data;
  }
  template <typename T>
  T* Values(const std::vector<T>& values) {
    void* data = Keep(values.size() * sizeof(T));
    Check(stream_->CopyToDevice(data, values.data(), values.size() * sizeof(T)));
    Check(stream_->Synchronize());
    return static_cast<T*>(data);
  }

  void Run(benchmark::State& state, size_t bytes, const std::function<absl::Status()>& launch) {
    Check(stream_->BeginCapture());
    for (int i = 0; i < kLaunches; ++i) Check(launch());
    const auto graph = Check(stream_->EndCapture());
    for (int i = 0; i < 3; ++i) Check(graph->Replay(*stream_));
    Check(stream_->Synchronize());
    for (auto _ : state) {
      const auto begin = std::chrono::steady_clock::now();
      Check(graph->Replay(*stream_));
      Check(stream_->Synchronize());
      state.SetIterationTime(
          std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() /
          kLaunches);
    }
    state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * bytes));
    state.SetLabel(device_->properties().name);
  }

 private:
  void* Keep(size_t bytes) {
    buffers_.push_back(Check(DeviceBuffer::Create(*device_, bytes)));
    return buffers_.back().data();
  }

  std::unique_ptr<runtime::Device> device_;
  std::unique_ptr<runtime::Stream> stream_;
  std::unique_ptr<KernelSet> kernels_;
  std::vector<DeviceBuffer> buffers_;
};

void Copy(benchmark::State& state) {
  Bench bench;
  const size_t bytes = size_t{kTokens} * kHidden * 2;
  const MemoryCopyArgs args{.from = bench.Random(bytes / 2),
                            .to = bench.Random(bytes / 2),
                            .bytes = static_cast<int64_t>(bytes)};
  bench.Run(state, 2 * bytes, [&] { return MemoryCopy(bench.stream(), bench.kernels(), args); });
}
BENCHMARK(Copy)->UseManualTime();

void Norm(benchmark::State& state, int32_t hidden, bool residual) {
  Bench bench;
  const size_t elements = size_t{kTokens} * kHidden;
  const auto rows = static_cast<uint32_t>(elements / static_cast<size_t>(hidden));
  RmsNormArgs args{.residual = bench.Random(elements),
                   .weight = bench.Random(static_cast<size_t>(hidden)),
                   .out = bench.Random(elements),
                   .num_rows = bench.Values<uint32_t>({rows}),
                   .hidden = hidden,
                   .eps = 1e-5f};
  if (residual) {
    args.branch = bench.Random(elements);
    args.residual_out = bench.Random(elements);
  }
  bench.Run(state, (residual ? 4 : 2) * elements * 2,
            [&] { return RmsNorm(bench.stream(), bench.kernels(), args, rows); });
}
BENCHMARK_CAPTURE(Norm, plain, kHidden, false)->UseManualTime();
BENCHMARK_CAPTURE(Norm, residual, kHidden, true)->UseManualTime();
BENCHMARK_CAPTURE(Norm, wide, kWideHidden, false)->UseManualTime();
BENCHMARK_CAPTURE(Norm, wide_residual, kWideHidden, true)->UseManualTime();

void Silu(benchmark::State& state) {
  Bench bench;
  const size_t elements = size_t{kSiluTokens} * kIntermediate;
  const SiluMulArgs args{.gate_up = bench.Random(2 * elements),
                         .out = bench.Random(elements),
                         .num_tokens = bench.Values<uint32_t>({kSiluTokens}),
                         .intermediate = kIntermediate};
  bench.Run(state, 3 * elements * 2,
            [&] { return SiluMul(bench.stream(), bench.kernels(), args, kSiluTokens); });
}
BENCHMARK(Silu)->UseManualTime();

void Rope(benchmark::State& state, bool normed) {
  Bench bench;
  constexpr size_t kAllHeads = kHeads + 2 * kKvHeads;
  std::vector<uint32_t> blocks(kTokens), offsets(kTokens);
  for (uint32_t t = 0; t < kTokens; ++t) {
    blocks[t] = t / kBlockSize;
    offsets[t] = t % kBlockSize;
  }
  RopeAppendArgs args{.qkv = bench.Random(kTokens * kAllHeads * kHeadDim),
                      .q_out = bench.Random(size_t{kTokens} * kHeads * kHeadDim),
                      .kv_cache = bench.Random(size_t{kTokens} * 2 * kKvHeads * kHeadDim),
                      .rope = bench.Values(std::vector<float>(size_t{kTokens} * kHeadDim, 0.7f)),
                      .token_block = bench.Values(blocks),
                      .token_offset = bench.Values(offsets),
                      .num_tokens = bench.Values<uint32_t>({kTokens}),
                      .num_heads = kHeads,
                      .kv = {.num_kv_heads = kKvHeads,
                             .head_dim = kHeadDim,
                             .block_size = kBlockSize,
                             .dtype = runtime::DType::kBf16}};
  if (normed) {
    args.q_norm = bench.Random(kHeadDim);
    args.k_norm = bench.Random(kHeadDim);
    args.norm_eps = 1e-6f;
  }
  const size_t bytes = size_t{kTokens} * kHeadDim * (2 * kAllHeads * 2 + sizeof(float));
  bench.Run(state, bytes,
            [&] { return RopeAppend(bench.stream(), bench.kernels(), args, kTokens); });
}
BENCHMARK_CAPTURE(Rope, plain, false)->UseManualTime();
BENCHMARK_CAPTURE(Rope, normed, true)->UseManualTime();

// Clearing blocks of a pool of 32 layers, spread over it: what it costs to give them to another
// session.
void BlockClear(benchmark::State& state) {
  Bench bench;
  constexpr int32_t kLayers = 32;
  constexpr uint32_t kPoolBlocks = 4096;
  constexpr int64_t kBlockElements = int64_t{2} * kKvHeads * kBlockSize * kHeadDim;
  BlockFillArgs args{.out = bench.Random(kLayers * kPoolBlocks * size_t{kBlockElements}),
                     .dtype = bench.kernels().dtype,
                     .layer_elements = kPoolBlocks * kBlockElements,
                     .block_elements = kBlockElements,
                     .layers = kLayers,
                     .count = static_cast<int32_t>(state.range(0))};
  for (uint32_t i = 0; i < kMaxFillBlocks; ++i) args.block[i] = (i * 977 + 1) % kPoolBlocks;
  bench.Run(state, static_cast<size_t>(args.count) * kLayers * kBlockElements * 2,
            [&] { return BlockFill(bench.stream(), bench.kernels(), args); });
}
BENCHMARK(BlockClear)->Arg(1)->Arg(32)->Arg(256)->UseManualTime();

}  // namespace
}  // namespace reprise::kernels
