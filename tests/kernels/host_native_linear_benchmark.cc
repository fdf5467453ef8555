// SPDX-License-Identifier: Apache-2.0
// Speed of the host's native linear on the host device, per instruction set, beside the speed at
// which the same threads only read the same bytes. Weights cycle over more memory than any cache
// holds, as the layers of a model do.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/linear/host_native.h"
#include "kernels/linear/host_native_targets.h"
#include "kernels/linear/linear_args.h"
#include "kernels/linear/linear_geometry.h"
#include "kernels/memory_probe/host_native_targets.h"
#include "kernels/memory_probe/memory_probe_args.h"
#include "runtime/device.h"
#include "runtime/dtype.h"
#include "runtime/memory/buffer.h"
#include "tests/kernels/benchmark_check.h"
#include "tests/testing/cases/linear_cases.h"

namespace reprise::kernels {
namespace {

using on_host::NativeLinearTarget;
using runtime::DeviceBuffer;
using runtime::DType;

// More than the last-level cache of the machines this is for.
constexpr size_t kWeightBytesInAll = size_t{512} << 20;

// One kernel on one host device.
class Bench {
 public:
  explicit Bench(runtime::HostKernelFn fn)
      : def_{{.name = "kernel", .host = fn}},
        device_(Check(runtime::Device::Create({.kind = runtime::DeviceKind::kHost}))),
        stream_(Check(device_->CreateStream())),
        module_(Check(device_->Load({.kernels = def_, .cuda_fatbins = {}}))),
        kernel_(Check(module_->Find("kernel"))) {}

  // Filled with the bytes of small f32 or bf16 numbers, so that no value is subnormal.
  DeviceBuffer Buffer(size_t bytes) {
    DeviceBuffer buffer = Check(DeviceBuffer::Create(*device_, bytes));
    uint32_t x = 1;
    for (size_t i = 0; i + 4 <= bytes; i += 4) {
      x = x * 1664525u + 1013904223u;
      buffer.as<uint32_t>()[i / 4] = 0x3c003c00u | (x & 0x83ff83ffu);
    }
    return buffer;
  }
  template <typename Args>
  void Run(unsigned blocks, const Args& args) {
    Check(stream_->Launch(kernel_, {.grid_x = blocks}, args));
    Check(stream_->Synchronize());
  }

 private:
  const runtime::KernelDef def_[1];
  std::unique_ptr<runtime::Device> device_;
  std::unique_ptr<runtime::Stream> stream_;
  std::unique_ptr<runtime::KernelModule> module_;
  runtime::Kernel kernel_;
};

// The floor: reads as many bytes and does next to nothing with them.
void BenchRead(benchmark::State& state, size_t bytes) {
  Bench bench(on_host::NativeMemoryProbeTargets().front().read);
  const DeviceBuffer data = bench.Buffer(kWeightBytesInAll);
  const auto pieces = static_cast<unsigned>(bytes / kMemoryProbePiece);
  const DeviceBuffer matches = bench.Buffer(pieces * sizeof(uint32_t));
  const size_t copies = kWeightBytesInAll / bytes;
  size_t n = 0;
  for (auto _ : state) {
    bench.Run(pieces, MemoryReadArgs{.data = data.as<const std::byte>() + n++ % copies * bytes,
                                     .matches = matches.as<uint32_t>(),
                                     .bytes = static_cast<int64_t>(bytes)});
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * bytes));
}

// weight: that of dtype, or one whose scales count as bytes of the weight.
void BenchLinear(benchmark::State& state, runtime::HostKernelFn fn, DType dtype,
                 WeightFormat weight, const LinearCase& c) {
  Bench bench(fn);
  const size_t elements =
      static_cast<size_t>(c.in_features) * c.out_features * static_cast<size_t>(BitsOf(weight)) / 8;
  const PackedLayout shape{c.out_features, c.in_features};
  const size_t scales =
      IsScaled(weight) ? static_cast<size_t>(c.out_features * shape.ScaleGroups()) * sizeof(float)
                       : 0;
  const size_t bytes = elements + scales;
  const size_t copies = std::max<size_t>(1, kWeightBytesInAll / bytes);
  const DeviceBuffer weights = bench.Buffer(copies * bytes);
  const DeviceBuffer x = bench.Buffer(c.rows * static_cast<size_t>(c.in_features) * SizeOf(dtype));
  const DeviceBuffer out =
      bench.Buffer(c.rows * static_cast<size_t>(c.out_features) * SizeOf(dtype));
  const unsigned tiles =
      static_cast<unsigned>((c.out_features + kNativeTileFeatures - 1) / kNativeTileFeatures);
  size_t n = 0;
  for (auto _ : state) {
    LinearArgs args;
    args.x = x.data();
    args.weight = weights.as<const std::byte>() + n++ % copies * bytes;
    args.scales =
        reinterpret_cast<const float*>(static_cast<const std::byte*>(args.weight) + elements);
    args.out = out.data();
    args.num_rows = &c.rows;
    args.in_features = c.in_features;
    args.out_features = c.out_features;
    args.scale_inputs = kScaleInputs;
    bench.Run(tiles, args);
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * bytes));
  state.counters["flops"] = benchmark::Counter(
      2.0 * c.rows * c.in_features * c.out_features * static_cast<double>(state.iterations()),
      benchmark::Counter::kIsRate);
}

void RegisterAll() {
  for (const size_t mib : {32, 64})
    benchmark::RegisterBenchmark(absl::StrCat("read/", mib, "MiB").c_str(),
                                 [=](benchmark::State& s) { BenchRead(s, mib << 20); })
        ->UseRealTime();
  for (const NativeLinearTarget& target : on_host::NativeLinearTargets()) {
    struct Kernel {
      DType dtype;
      WeightFormat weight;
      runtime::HostKernelFn fn;
    };
    const Kernel kernels[] = {{DType::kBf16, WeightFormat::kBf16, target.bf16},
                              {DType::kF16, WeightFormat::kF16, target.f16},
                              {DType::kF32, WeightFormat::kF32, target.f32},
                              {DType::kBf16, WeightFormat::kE4m3, target.bf16_e4m3},
                              {DType::kBf16, WeightFormat::kInt4, target.bf16_int4}};
    for (const auto& [dtype, weight, fn] : kernels) {
      for (const LinearCase& c : kLinearTimedCases) {
        const std::string_view type = NameOf(weight);
        benchmark::RegisterBenchmark(
            absl::StrCat("linear/", target.name, "/", absl::string_view(type.data(), type.size()),
                         "/", c.name)
                .c_str(),
            [fn = fn, dtype = dtype, weight = weight, &c](benchmark::State& s) {
              BenchLinear(s, fn, dtype, weight, c);
            })
            ->UseRealTime();
      }
    }
  }
}

}  // namespace
}  // namespace reprise::kernels

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  reprise::kernels::RegisterAll();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
