// SPDX-License-Identifier: Apache-2.0
// What it takes when a buffer moves that every node of a graph names: changing the nodes in place,
// the first replay behind that, and capturing the graph anew, each by the number of nodes. Takes
// the first device that is compiled in. "ns_per_node" is the time by the number of nodes.
#include <benchmark/benchmark.h>

#include <chrono>
#include <cstdint>
#include <memory>

#include "graphs/graph_manager.h"
#include "kernels/kernel_set.h"
#include "kernels/stamp/stamp.h"
#include "runtime/device.h"
#include "runtime/memory/buffer.h"
#include "tests/kernels/benchmark_check.h"

namespace reprise::graphs {
namespace {

using kernels::Check;
using Clock = std::chrono::steady_clock;

// A graph of so many kernels, each of which writes a word of one buffer.
class Chain {
 public:
  explicit Chain(int64_t nodes)
      : device_(Check(runtime::Device::Create({.kind = runtime::CompiledDeviceKinds().front()}))),
        stream_(Check(device_->CreateStream())),
        kernels_(Check(kernels::KernelSet::Load(*device_, runtime::DType::kBf16))),
        bytes_(static_cast<size_t>(nodes) * sizeof(uint64_t)),
        words_{Check(runtime::DeviceBuffer::Create(*device_, bytes_)),
               Check(runtime::DeviceBuffer::Create(*device_, bytes_))},
        nodes_(nodes) {
    Capture();
  }

  void Capture() {
    manager_ = nullptr;
    manager_ = Check(GraphManager::Create(
        *stream_,
        {.buckets = {1}, .warm_up = false, .buffers = {{"words", words_[0].data(), bytes_}}},
        [this](runtime::Stream& stream, const Bucket&) -> absl::Status {
          for (int64_t i = 0; i < nodes_; ++i) {
            const absl::Status status =
                kernels::Stamp(stream, *kernels_, {.out = words_[0].as<uint64_t>() + i});
            if (!status.ok()) return status;
          }
          return absl::OkStatus();
        }));
    at_ = 0;
  }
  void Move() {
    at_ = 1 - at_;
    const MoveReport report = Check(manager_->MoveBuffer("words", words_[at_].data()));
    if (report.num_nodes == nodes_) return;
    Check(absl::InternalError("not all nodes were changed in place"));
  }
  void Replay() {
    Check(manager_->Replay(1).status());
    Check(stream_->Synchronize());
  }

 private:
  std::unique_ptr<runtime::Device> device_;
  std::unique_ptr<runtime::Stream> stream_;
  std::unique_ptr<kernels::KernelSet> kernels_;
  const size_t bytes_;
  runtime::DeviceBuffer words_[2];
  const int64_t nodes_;
  int at_ = 0;
  std::unique_ptr<GraphManager> manager_;
};

// Times `timed`, with `before` in front of it, outside of what is timed.
template <typename Before, typename Timed>
void Time(benchmark::State& state, Before before, Timed timed) {
  double ns = 0;
  for (auto _ : state) {
    before();
    const Clock::time_point start = Clock::now();
    timed();
    const std::chrono::duration<double> took = Clock::now() - start;
    state.SetIterationTime(took.count());
    ns += took.count() * 1e9;
  }
  state.counters["ns_per_node"] =
      ns / static_cast<double>(state.iterations()) / static_cast<double>(state.range(0));
}

void MoveInPlace(benchmark::State& state) {
  Chain chain(state.range(0));
  Time(
      state, [&] { chain.Replay(); }, [&] { chain.Move(); });
}
void ReplayBehindAMove(benchmark::State& state) {
  Chain chain(state.range(0));
  Time(
      state, [&] { chain.Move(); }, [&] { chain.Replay(); });
}
void ReplayBehindAReplay(benchmark::State& state) {
  Chain chain(state.range(0));
  Time(
      state, [&] { chain.Replay(); }, [&] { chain.Replay(); });
}
void CaptureAnew(benchmark::State& state) {
  Chain chain(state.range(0));
  Time(
      state, [&] { chain.Replay(); }, [&] { chain.Capture(); });
}

constexpr int64_t kNodes[] = {10, 300};
void OfEverySize(benchmark::internal::Benchmark* benchmark) {
  for (const int64_t nodes : kNodes) benchmark->Arg(nodes);
  benchmark->UseManualTime()->Iterations(200)->Unit(benchmark::kMicrosecond);
}
BENCHMARK(MoveInPlace)->Apply(OfEverySize);
BENCHMARK(ReplayBehindAMove)->Apply(OfEverySize);
BENCHMARK(ReplayBehindAReplay)->Apply(OfEverySize);
BENCHMARK(CaptureAnew)->Apply(OfEverySize);

}  // namespace
}  // namespace reprise::graphs
