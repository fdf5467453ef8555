// SPDX-License-Identifier: Apache-2.0
// LinearBench: times the linear op alone, replayed from graphs that hold chains of calls over
// weights too large for any cache. Knows no command line and prints nothing. docs/bench_linear.md
// has the method.
#ifndef REPRISE_TOOLS_BENCH_LINEAR_BENCH_H_
#define REPRISE_TOOLS_BENCH_LINEAR_BENCH_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/kernel_instance.h"
#include "kernels/kernel_set.h"
#include "kernels/linear/linear_args.h"
#include "kernels/linear/linear_weights.h"
#include "kernels/weight_format.h"
#include "runtime/device.h"
#include "runtime/dtype.h"
#include "runtime/memory/buffer.h"
#include "tools/bench/linear_candidates.h"
#include "tools/bench/linear_check.h"
#include "tools/bench/linear_pool.h"
#include "tools/bench/linear_shapes.h"
#include "tools/bench/replays.h"
#include "tools/samples.h"

namespace reprise::tools {

struct LinearBenchOptions {
  runtime::DType dtype = runtime::DType::kBf16;  // of activations
  std::vector<uint32_t> rows = {1, 2, 4, 8, 16, 32, 64, 128, 256};
  uint32_t rounds = 3;      // over all cells, one cell after the other
  uint32_t replays = 20;    // of every graph, in every round
  uint32_t calls = 0;       // of a shape in a graph; 0: as DefaultLinearCalls
  uint64_t pool_bytes = 0;  // weights that a chain cycles over; 0: as DefaultLinearPool
  uint64_t seed = 1;        // of weights, activations and what --check looks at
  bool room_for_all =
      false;  // partial sums have room for every kernel that TimeKernel may be given
};

// Weights that calls cycle over: DefaultPoolBytes, more than caches hold. Of a model all weights of
// a step where these are more: on a GPU as far as four fifths of `free_bytes` hold them, on the
// host up to 512 MiB. At least the largest weight.
uint64_t DefaultLinearPool(const runtime::DeviceProperties& device,
                           const std::vector<LinearShape>& shapes, uint64_t free_bytes);
// As many as a step has, and so many that they read at least `cycled_bytes`, but at most 512.
uint32_t DefaultLinearCalls(const LinearShape& shape, uint64_t cycled_bytes);

// Steps of a chain: so many that they read as many bytes, where they are small.
uint32_t DefaultLinearSteps(const std::vector<LinearShape>& shapes, uint64_t cycled_bytes);

// What one candidate came to in one cell.
struct LinearTimes {
  Samples unit_ns;   // by replay: device time of one call, or of one step
  Samples round_ns;  // by round: the median of its replays
  std::optional<LinearCheckOutcome> check;

  double MedianNs() const { return unit_ns.Percentile(50); }
};

// A chain with so many rows.
struct LinearCell {
  uint32_t rows = 1;
  size_t chain = 0;                          // of the bench's chains
  std::vector<LinearTimes> candidates = {};  // in the order of the bench's
};

class LinearBench {
 public:
  // `device` must outlive the bench. Shapes have their formats (SetFormats): what kernels cannot
  // read is refused when it is measured. Fills all memory with random numbers and waits for it.
  // Errors: ResourceExhausted names the bytes and what takes them; the device's.
  static absl::StatusOr<std::unique_ptr<LinearBench>> Create(
      runtime::Device& device, std::vector<LinearShape> shapes,
      std::vector<const LinearCandidateEntry*> candidates, const LinearBenchOptions& options);
  LinearBench(const LinearBench&) = delete;
  LinearBench& operator=(const LinearBench&) = delete;

  const std::vector<LinearShape>& shapes() const { return shapes_; }
  // One for every shape, and behind them that of a step where they are a model's.
  const std::vector<LinearChain>& chains() const { return chains_; }
  const std::vector<const LinearCandidateEntry*>& candidates() const { return candidates_; }
  const LinearBenchOptions& options() const { return options_; }  // with the bytes of the pool
  uint64_t bytes() const;                                         // of device memory
  double stamp_cost_ns() const { return stamp_cost_ns_; }

  // Every chain with every number of rows, rows first.
  std::vector<LinearCell> Cells() const;
  // Compares every candidate's outputs with the reference; nothing for the chain of a step, whose
  // calls are those of the others. Errors: CheckLinear's.
  absl::Status Check(LinearCell* cell);
  // Adds a round. After an error `cell` is as it was.
  absl::Status Measure(const MeasuredReplays& measured, LinearCell* cell);

  // Device time of one call of a shape with so many rows by a kernel that a table may name for it,
  // from one replay of its chain, over the first candidate's weights. The graph is captured as an
  // engine with such a table captures it. REQUIRES: room_for_all.
  absl::StatusOr<double> TimeKernel(size_t shape, uint32_t rows,
                                    const kernels::KernelInstance& kernel);
  // No graph that TimeKernel has captured so far is asked for again.
  void DropKernelGraphs();

 private:
  struct GraphKey {
    uint32_t rows = 1;
    size_t chain = 0;
    size_t candidate = 0;
    bool once = false;                                // the first call of the chain alone
    const kernels::KernelInstance* kernel = nullptr;  // that a table names; nullptr: there is none
    auto AsTuple() const { return std::tuple(rows, chain, candidate, once, kernel); }
    bool operator<(const GraphKey& other) const { return AsTuple() < other.AsTuple(); }
  };

  LinearBench(std::vector<LinearShape> shapes, std::vector<const LinearCandidateEntry*> candidates,
              LinearBenchOptions options)
      : shapes_(std::move(shapes)),
        candidates_(std::move(candidates)),
        options_(std::move(options)) {}

  absl::Status Allocate(runtime::Device& device);
  absl::Status Fill();
  kernels::LinearWeights Weights(const LinearChain& chain, size_t call, size_t candidate) const;
  kernels::LinearArgs Args(const LinearChain& chain, size_t call) const;
  absl::Status SetRows(uint32_t rows);
  absl::Status EnqueueGraph(const GraphKey& key);
  absl::StatusOr<runtime::CapturedGraph*> Graph(const GraphKey& key);
  // Device time of one replay, less a stamp's, by the chain's units.
  absl::StatusOr<double> Replay(const GraphKey& key);

  const std::vector<LinearShape> shapes_;
  const std::vector<const LinearCandidateEntry*> candidates_;
  LinearBenchOptions options_;
  std::vector<LinearChain> chains_;
  double stamp_cost_ns_ = 0;
  std::unique_ptr<kernels::KernelSet> kernels_;
  std::map<kernels::WeightFormat, LinearPool> weights_;
  runtime::DeviceBuffer bias_, x_, out_, partials_, counters_;
  runtime::DeviceBuffer words_;  // two stamps, and the number of live rows
  std::map<GraphKey, std::unique_ptr<runtime::CapturedGraph>> graphs_;
  std::unique_ptr<runtime::Stream> stream_;  // drains before the memory goes
};

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_BENCH_LINEAR_BENCH_H_
