// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/linear_bench.h"

#include <algorithm>
#include <chrono>
#include <string>

#include "absl/strings/str_cat.h"
#include "graphs/capture_work.h"
#include "kernels/fill/fill.h"
#include "kernels/linear/linear.h"
#include "kernels/stamp/stamp.h"
#include "runtime/status_macros.h"
#include "tools/bench/replays.h"
#include "tools/profile/bandwidth.h"
#include "tools/units.h"

namespace reprise::tools {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kHostModelPool = uint64_t{512} << 20;
constexpr uint32_t kMostLinearCalls = 512;
// A chain of steps has no more calls than this.
constexpr uint64_t kMostStepCalls = 4096;
constexpr size_t kRowsWord = 2;  // behind two stamps

template <typename Count>
uint64_t Largest(const std::vector<LinearShape>& shapes, Count count) {
  uint64_t largest = 0;
  for (const LinearShape& shape : shapes)
    largest = std::max(largest, static_cast<uint64_t>(count(shape)));
  return largest;
}
uint64_t LargestWeight(const std::vector<LinearShape>& shapes) {
  return Largest(shapes, [](const LinearShape& s) { return s.WeightBytes(); });
}

bool OfModel(const std::vector<LinearShape>& shapes) { return shapes[0].per_step != 0; }

}  // namespace

uint64_t DefaultLinearPool(const runtime::DeviceProperties& device,
                           const std::vector<LinearShape>& shapes, uint64_t free_bytes) {
  uint64_t bytes = DefaultPoolBytes(device);
  if (OfModel(shapes)) {
    const uint64_t most =
        device.kind == runtime::DeviceKind::kHost ? kHostModelPool : free_bytes / 5 * 4;
    bytes = std::max(bytes, std::min(most, StepWeightBytes(shapes)));
  }
  return std::max(bytes, LargestWeight(shapes));
}

uint32_t DefaultLinearCalls(const LinearShape& shape, uint64_t cycled_bytes) {
  const uint64_t bytes = shape.WeightBytes();
  const uint64_t wanted = std::max<uint64_t>(shape.per_step, (cycled_bytes + bytes - 1) / bytes);
  return static_cast<uint32_t>(std::clamp<uint64_t>(wanted, 1, kMostLinearCalls));
}

uint32_t DefaultLinearSteps(const std::vector<LinearShape>& shapes, uint64_t cycled_bytes) {
  const uint64_t bytes = StepWeightBytes(shapes);
  uint64_t calls = 0;
  for (const LinearShape& shape : shapes) calls += shape.per_step;
  const uint64_t most = std::max<uint64_t>(kMostStepCalls / calls, 1);
  return static_cast<uint32_t>(std::clamp<uint64_t>((cycled_bytes + bytes - 1) / bytes, 1, most));
}

absl::StatusOr<std::unique_ptr<LinearBench>> LinearBench::Create(
    runtime::Device& device, std::vector<LinearShape> shapes,
    std::vector<const LinearCandidateEntry*> candidates, const LinearBenchOptions& options) {
  std::unique_ptr<LinearBench> bench(
      new LinearBench(std::move(shapes), std::move(candidates), options));
  REPRISE_ASSIGN_OR_RETURN(const Samples stamp_cost, MeasureStampCost(device));
  bench->stamp_cost_ns_ = stamp_cost.Percentile(50);
  REPRISE_ASSIGN_OR_RETURN(bench->stream_, device.CreateStream());
  REPRISE_ASSIGN_OR_RETURN(bench->kernels_, kernels::KernelSet::Load(device, options.dtype));
  LinearBenchOptions& own = bench->options_;
  REPRISE_ASSIGN_OR_RETURN(const size_t free_bytes, device.FreeBytes());
  if (own.pool_bytes == 0) {
    own.pool_bytes = DefaultLinearPool(device.properties(), bench->shapes_, free_bytes);
  }
  own.pool_bytes = std::max(own.pool_bytes, LargestWeight(bench->shapes_));
  const uint64_t cycled = std::min(own.pool_bytes, DefaultPoolBytes(device.properties()));
  for (size_t i = 0; i < bench->shapes_.size(); ++i) {
    const uint32_t calls =
        own.calls != 0 ? own.calls : DefaultLinearCalls(bench->shapes_[i], cycled);
    bench->chains_.push_back(ChainOfShape(bench->shapes_, i, calls, own.pool_bytes));
  }
  if (OfModel(bench->shapes_)) {
    const uint32_t steps = DefaultLinearSteps(bench->shapes_, cycled);
    bench->chains_.push_back(ChainOfSteps(bench->shapes_, steps, own.pool_bytes));
  }
  REPRISE_RETURN_IF_ERROR(bench->Allocate(device));
  REPRISE_RETURN_IF_ERROR(bench->Fill());
  return bench;
}

absl::Status LinearBench::Allocate(runtime::Device& device) {
  const uint64_t most_rows = *std::max_element(options_.rows.begin(), options_.rows.end());
  const uint64_t most_in = Largest(shapes_, [](const LinearShape& s) { return s.in_features; });
  const uint64_t most_out = Largest(shapes_, [](const LinearShape& s) { return s.out_features; });
  const size_t element = runtime::SizeOf(options_.dtype);
  const auto max_rows = static_cast<uint32_t>(most_rows);
  // With more rows than any tile has, of the widest.
  const uint32_t widest = options_.room_for_all ? UINT32_MAX : max_rows;
  struct Wanted {
    const char* what;
    runtime::DeviceBuffer* buffer;
    uint64_t bytes;
  };
  std::vector<Wanted> all;
  for (const auto& [format, ranges] : RangesOf(shapes_, chains_)) {
    LinearPool& pool = weights_[format];
    all.push_back({"weights", &pool.elements, ranges.elements});
    all.push_back({"scales", &pool.scales, ranges.scales});
  }
  all.insert(all.end(), {{"biases", &bias_, most_out * element},
                         {"inputs", &x_, most_rows * most_in * element},
                         {"outputs", &out_, most_rows * most_out * sizeof(float)},
                         {"partial sums", &partials_,
                          kernels::LinearPartialFloats(*kernels_, widest) * sizeof(float)},
                         {"counters", &counters_,
                          kernels::LinearNumCounters(*kernels_, static_cast<uint32_t>(most_out)) *
                              sizeof(uint32_t)},
                         {"stamps", &words_, 3 * sizeof(uint64_t)}});
  uint64_t total = 0;
  for (const Wanted& wanted : all) total += wanted.bytes;
  for (const Wanted& wanted : all) {
    if (wanted.bytes == 0) continue;
    auto buffer = runtime::DeviceBuffer::Create(device, wanted.bytes);
    if (!buffer.ok()) {
      return absl::Status(
          buffer.status().code(),
          absl::StrCat("memory: ", max_rows, max_rows == 1 ? " row over " : " rows over ",
                       FormatBytes(options_.pool_bytes), " of weights need ", FormatBytes(total),
                       "; the ", wanted.what, " of ", FormatBytes(wanted.bytes), ": ",
                       buffer.status().message()));
    }
    *wanted.buffer = *std::move(buffer);
  }
  return absl::OkStatus();
}

absl::Status LinearBench::Fill() {
  uint64_t seed = options_.seed;
  const auto fill = [&](const runtime::DeviceBuffer& buffer) {
    return kernels::RandomFill(
        *stream_, *kernels_,
        {.out = buffer.data(),
         .dtype = options_.dtype,
         .count = static_cast<int64_t>(buffer.bytes() / runtime::SizeOf(options_.dtype)),
         .seed = seed++});
  };
  const bool packed =
      std::all_of(candidates_.begin(), candidates_.end(),
                  [](const auto* candidate) { return kernels::IsPacked(candidate->layout); });
  for (const auto& [format, pool] : weights_)
    REPRISE_RETURN_IF_ERROR(FillLinearPool(*stream_, *kernels_, format, packed, seed++, pool));
  REPRISE_RETURN_IF_ERROR(fill(bias_));
  REPRISE_RETURN_IF_ERROR(fill(x_));
  for (const runtime::DeviceBuffer* zeros : {&out_, &partials_, &counters_, &words_}) {
    if (zeros->bytes() != 0)
      REPRISE_RETURN_IF_ERROR(stream_->Fill(zeros->data(), 0, zeros->bytes()));
  }
  return stream_->Synchronize();
}

uint64_t LinearBench::bytes() const {
  uint64_t total = 0;
  for (const runtime::DeviceBuffer* buffer : {&bias_, &x_, &out_, &partials_, &counters_, &words_})
    total += buffer->bytes();
  for (const auto& [format, pool] : weights_) total += pool.elements.bytes() + pool.scales.bytes();
  return total;
}

std::vector<LinearCell> LinearBench::Cells() const {
  std::vector<LinearCell> cells;
  for (const uint32_t rows : options_.rows) {
    for (size_t chain = 0; chain < chains_.size(); ++chain) {
      cells.push_back({.rows = rows, .chain = chain});
      cells.back().candidates.resize(candidates_.size());
    }
  }
  return cells;
}

kernels::LinearWeights LinearBench::Weights(const LinearChain& chain, size_t call,
                                            size_t candidate) const {
  const LinearShape& shape = shapes_[chain.shapes[call]];
  const LinearRanges& begin = chain.begins[call];
  const LinearPool& pool = weights_.at(shape.format);
  return {.format = shape.format,
          .layout = candidates_[candidate]->layout,
          .data = pool.elements.as<std::byte>() + begin.elements,
          .bias = shape.biased ? bias_.data() : nullptr,
          .out_features = shape.out_features,
          .in_features = shape.in_features,
          .scales = shape.group_size != 0 ? pool.scales.as<float>() + begin.scales / sizeof(float)
                                          : nullptr,
          .group_size = shape.group_size};
}

kernels::LinearArgs LinearBench::Args(const LinearChain& chain, size_t call) const {
  return {.x = x_.data(),
          .out = out_.data(),
          .num_rows = reinterpret_cast<const uint32_t*>(words_.as<uint64_t>() + kRowsWord),
          .partials = partials_.as<float>(),
          .counters = counters_.as<uint32_t>(),
          .out_is_f32 = shapes_[chain.shapes[call]].out_is_f32 ? 1 : 0,
          .reads_ahead = true};  // as in a model: no call writes weights, or the number of rows
}

absl::Status LinearBench::SetRows(uint32_t rows) {
  const uint64_t word = rows;
  REPRISE_RETURN_IF_ERROR(
      stream_->CopyToDevice(words_.as<uint64_t>() + kRowsWord, &word, sizeof(word)));
  return stream_->Synchronize();
}

absl::Status LinearBench::EnqueueGraph(const GraphKey& key) {
  const LinearChain& chain = chains_[key.chain];
  REPRISE_RETURN_IF_ERROR(kernels::Stamp(*stream_, *kernels_, {.out = words_.as<uint64_t>()}));
  const size_t calls = key.once ? 1 : chain.shapes.size();
  for (size_t call = 0; call < calls; ++call) {
    REPRISE_RETURN_IF_ERROR(
        candidates_[key.candidate]->enqueue({.stream = *stream_,
                                             .kernels = *kernels_,
                                             .weights = Weights(chain, call, key.candidate),
                                             .args = Args(chain, call),
                                             .max_rows = key.rows}));
  }
  return kernels::Stamp(*stream_, *kernels_, {.out = words_.as<uint64_t>() + 1});
}

absl::StatusOr<runtime::CapturedGraph*> LinearBench::Graph(const GraphKey& key) {
  std::unique_ptr<runtime::CapturedGraph>& graph = graphs_[key];
  if (graph != nullptr) return graph.get();
  // Taken away again: the other graphs have kernels of their own choice.
  if (key.kernel != nullptr) {
    const LinearShape& shape = shapes_[chains_[key.chain].shapes[0]];
    kernels_->linear_table = {{.out_features = shape.out_features,
                               .in_features = shape.in_features,
                               .group_size = shape.group_size,
                               .first_rows = key.rows,
                               .last_rows = key.rows,
                               .kernel = key.kernel}};
  }
  auto captured = graphs::CaptureWork(*stream_, [&] { return EnqueueGraph(key); });
  kernels_->linear_table.clear();
  REPRISE_ASSIGN_OR_RETURN(graph, std::move(captured));
  return graph.get();
}

absl::StatusOr<double> LinearBench::Replay(const GraphKey& key) {
  REPRISE_ASSIGN_OR_RETURN(runtime::CapturedGraph * graph, Graph(key));
  REPRISE_RETURN_IF_ERROR(graph->Replay(*stream_));
  REPRISE_ASSIGN_OR_RETURN(const double ns,
                           NsBetweenStamps(*stream_, words_.as<uint64_t>(), stamp_cost_ns_));
  return ns / chains_[key.chain].units();
}

absl::StatusOr<double> LinearBench::TimeKernel(size_t shape, uint32_t rows,
                                               const kernels::KernelInstance& kernel) {
  REPRISE_RETURN_IF_ERROR(SetRows(rows));
  return Replay({.rows = rows, .chain = shape, .candidate = 0, .kernel = &kernel});
}

void LinearBench::DropKernelGraphs() {
  std::erase_if(graphs_, [](const auto& entry) { return entry.first.kernel != nullptr; });
}

absl::Status LinearBench::Check(LinearCell* cell) {
  const LinearChain& chain = chains_[cell->chain];
  if (chain.is_step()) return absl::OkStatus();
  REPRISE_RETURN_IF_ERROR(SetRows(cell->rows));
  std::vector<LinearTimes> checked = cell->candidates;
  const kernels::LinearArgs args = Args(chain, 0);
  for (size_t i = 0; i < candidates_.size(); ++i) {
    // Poisoned, so that what is not written shows.
    REPRISE_RETURN_IF_ERROR(stream_->Fill(out_.data(), 0xff, out_.bytes()));
    REPRISE_RETURN_IF_ERROR(
        Replay({.rows = cell->rows, .chain = cell->chain, .candidate = i, .once = true}).status());
    const kernels::LinearWeights weights = Weights(chain, 0, i);
    REPRISE_ASSIGN_OR_RETURN(checked[i].check, CheckLinear(*stream_,
                                                           {.candidate = candidates_[i]->name,
                                                            .shape = chain.name,
                                                            .weights = weights,
                                                            .args = args,
                                                            .rows = cell->rows,
                                                            .dtype = options_.dtype},
                                                           options_.seed));
  }
  cell->candidates = std::move(checked);
  return absl::OkStatus();
}

absl::Status LinearBench::Measure(const MeasuredReplays& measured, LinearCell* cell) {
  REPRISE_RETURN_IF_ERROR(SetRows(cell->rows));
  std::vector<Samples> round(candidates_.size());
  const Clock::time_point end = Clock::now() + candidates_.size() * kRoundTime;
  for (uint32_t replay = 0; replay <= options_.replays; ++replay) {
    if (replay > kLeastReplays && Clock::now() > end) {
      REPRISE_RETURN_IF_ERROR(measured(options_.replays - replay + 1));
      break;
    }
    // By turns, so that ratios are of one clock and one temperature; the first ones warm up.
    for (size_t i = 0; i < candidates_.size(); ++i) {
      REPRISE_ASSIGN_OR_RETURN(const double ns,
                               Replay({.rows = cell->rows, .chain = cell->chain, .candidate = i}));
      if (replay > 0) round[i].Add(ns);
    }
    REPRISE_RETURN_IF_ERROR(measured(replay == 0 ? 0 : 1));
  }
  for (size_t i = 0; i < candidates_.size(); ++i) {
    cell->candidates[i].unit_ns.AddAll(round[i]);
    cell->candidates[i].round_ns.Add(round[i].Percentile(50));
  }
  return absl::OkStatus();
}

}  // namespace reprise::tools
