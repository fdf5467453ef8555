// SPDX-License-Identifier: Apache-2.0
#include "tools/tune/linear_tuner.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <utility>

#include "runtime/status_macros.h"

namespace reprise::tools {
namespace {

using kernels::KernelInstance;

// A kernel that takes so many times as long as the fastest in the first round is not measured in
// the others.
constexpr double kHopeless = 1.5;

class CellTuner {
 public:
  CellTuner(const LinearTunerOptions& options, LinearTimer* timer, std::mt19937_64* random,
            LinearTuneCell* cell)
      : options_(options), timer_(*timer), random_(*random), cell_(*cell) {}

  absl::Status Run(const std::function<absl::Status()>& before_round) {
    std::vector<size_t> order(cell_.kernels.size());
    std::iota(order.begin(), order.end(), size_t{0});
    // The first replay of a graph does what later ones do not.
    for (const LinearKernelTimes& times : cell_.kernels)
      REPRISE_RETURN_IF_ERROR(Time(times).status());
    for (uint32_t round = 0; round < options_.rounds; ++round) {
      REPRISE_RETURN_IF_ERROR(before_round());
      std::shuffle(order.begin(), order.end(), random_);
      for (const size_t i : order) {
        for (uint32_t replay = 0; replay < options_.replays; ++replay) {
          REPRISE_ASSIGN_OR_RETURN(const double ns, Time(cell_.kernels[i]));
          cell_.kernels[i].ns.Add(ns);
        }
      }
      if (round == 0) DropHopeless(&order);
    }
    Choose(order);
    return absl::OkStatus();
  }

 private:
  absl::StatusOr<double> Time(const LinearKernelTimes& times) {
    return timer_.Time(cell_.shape, cell_.last_rows, *times.kernel);
  }

  // The built-in choice stays.
  void DropHopeless(std::vector<size_t>* order) const {
    double fastest = cell_.built_in().MedianNs();
    for (const LinearKernelTimes& times : cell_.kernels)
      fastest = std::min(fastest, times.MedianNs());
    std::erase_if(*order, [&](size_t i) {
      return i != 0 && cell_.kernels[i].MedianNs() > kHopeless * fastest;
    });
  }

  // Of those that were measured in all rounds. One replay alone has no spread, and says nothing.
  void Choose(const std::vector<size_t>& order) {
    size_t best = 0;
    for (const size_t i : order)
      if (cell_.kernels[i].MedianNs() < cell_.kernels[best].MedianNs()) best = i;
    const LinearKernelTimes& built_in = cell_.built_in();
    const LinearKernelTimes& rival = cell_.kernels[best];
    const double spread = std::max(built_in.SpreadNs(), rival.SpreadNs());
    const bool is_known = built_in.ns.count() > 1;
    if (is_known && built_in.MedianNs() - rival.MedianNs() > spread) cell_.chosen = best;
  }

  const LinearTunerOptions& options_;
  LinearTimer& timer_;
  std::mt19937_64& random_;
  LinearTuneCell& cell_;
};

// Without times.
absl::StatusOr<LinearTuneCell> MakeCell(size_t shape, uint32_t rows, uint32_t rows_before,
                                        LinearTimer* timer) {
  LinearTuneCell cell{.shape = shape, .first_rows = rows, .last_rows = rows};
  REPRISE_ASSIGN_OR_RETURN(const KernelInstance* const built_in, timer->BuiltIn(shape, rows));
  cell.kernels.push_back({.kernel = built_in, .ns = {}});
  REPRISE_ASSIGN_OR_RETURN(const auto rivals, timer->Rivals(shape, rows));
  for (const KernelInstance* const rival : rivals)
    cell.kernels.push_back({.kernel = rival, .ns = {}});
  while (cell.first_rows > rows_before + 1) {
    REPRISE_ASSIGN_OR_RETURN(const KernelInstance* const below,
                             timer->BuiltIn(shape, cell.first_rows - 1));
    if (below != built_in) break;
    --cell.first_rows;
  }
  return cell;
}

}  // namespace

kernels::LinearTable TunedLinear::TableOf(const std::vector<LinearShape>& shapes) const {
  kernels::LinearTable table;
  for (const LinearTuneCell& cell : cells) {
    if (cell.chosen == 0) continue;
    const LinearShape& shape = shapes[cell.shape];
    table.push_back({.out_features = shape.out_features,
                     .in_features = shape.in_features,
                     .group_size = shape.group_size,
                     .first_rows = cell.first_rows,
                     .last_rows = cell.last_rows,
                     .kernel = cell.best().kernel});
  }
  return table;
}

absl::StatusOr<TunedLinear> TuneLinear(size_t num_shapes, std::vector<uint32_t> rows,
                                       const LinearTunerOptions& options, LinearTimer* timer,
                                       const LinearTuneProgressFn& progress) {
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  TunedLinear tuned;
  for (size_t shape = 0; shape < num_shapes; ++shape) {
    uint32_t before = 0;
    for (const uint32_t count : rows) {
      REPRISE_ASSIGN_OR_RETURN(LinearTuneCell cell, MakeCell(shape, count, before, timer));
      tuned.cells.push_back(std::move(cell));
      before = count;
    }
  }
  std::mt19937_64 random(options.seed);
  for (size_t i = 0; i < tuned.cells.size(); ++i) {
    LinearTuneCell& cell = tuned.cells[i];
    if (cell.kernels.size() == 1) continue;
    const LinearTuneProgress at{
        .done = i, .total = tuned.cells.size(), .shape = cell.shape, .rows = cell.last_rows};
    REPRISE_RETURN_IF_ERROR(
        CellTuner(options, timer, &random, &cell).Run([&] { return progress(at); }));
    timer->Finish();
  }
  return tuned;
}

}  // namespace reprise::tools
