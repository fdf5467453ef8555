// SPDX-License-Identifier: Apache-2.0
#include "tools/tune/tune_batches.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/attention/plan.h"

namespace reprise::tools {
namespace {

using kernels::AttentionFeature;

// Shorter rows are not swept where there are longer ones.
constexpr uint32_t kShortestRow = 128;
// Batches of fewer rows have no shape of their own.
constexpr uint32_t kLeastShapedRows = 4;
constexpr size_t kNumHeldOut = 30, kNumHeldOutPrompts = 8;
constexpr int kMostDraws = 64;
// Query tokens of rows that may be cut.
constexpr uint32_t kLeastCut = 2, kMostCut = 16;
// How far apart kinds count as being, where sizes range from 0 to 1.
constexpr double kKindDistance = 0.3;

uint32_t ShortestRow(const TuneGrid& grid) {
  return std::max(1u, std::min(kShortestRow, grid.max_context / 4));
}

// 1, 2, 4, ... and the most.
std::vector<uint32_t> PowersUpTo(uint32_t first, uint32_t most) {
  std::vector<uint32_t> values;
  for (uint64_t value = first; value < most; value *= 2)
    values.push_back(static_cast<uint32_t>(value));
  values.push_back(most);
  return values;
}

// And the middles between them.
std::vector<uint32_t> FinelyUpTo(uint32_t first, uint32_t most) {
  std::vector<uint32_t> values;
  for (const uint32_t value : PowersUpTo(first, most)) {
    if (!values.empty() && value - values.back() >= 2)
      values.push_back(values.back() + (value - values.back()) / 2);
    values.push_back(value);
  }
  return values;
}

class BatchMaker {
 public:
  explicit BatchMaker(const TuneGrid& grid) : grid_(grid), engine_(grid.seed) {}

  TuneBatches Make() {
    AddUniform();
    AddPrompts();
    const bool chunks = !batches_.prompts.empty();
    const bool short_prompts = grid_.cut_prompts && grid_.max_context > kMostCut;
    if (short_prompts) AddShortPrompts();
    if (grid_.dealt) AddDeal();
    if (grid_.standard)
      for (BenchCell& cell : StandardCells(grid_.seed)) Add(std::move(cell), &batches_.standard);
    for (size_t i = 0; i < kNumHeldOut; ++i) Draw(i, std::nullopt, &batches_.held_out);
    const ChunkDraw longer{std::max(2u, grid_.chunk / 8), grid_.chunk, ", chunks"};
    for (size_t i = 0; chunks && i < kNumHeldOutPrompts; ++i)
      Draw(i, longer, &batches_.held_out_prompts);
    const ChunkDraw few{kLeastCut, kMostCut, ", a few query tokens"};
    for (size_t i = 0; short_prompts && i < kNumHeldOutPrompts; ++i)
      Draw(i, few, &batches_.held_out_prompts);
    for (std::vector<size_t>* list : {&batches_.rows, &batches_.prompts, &batches_.deal,
                                      &batches_.held_out, &batches_.held_out_prompts})
      Spread(list);
    return std::move(batches_);
  }

 private:
  bool Fits(const BenchCell& cell) const {
    return cell.rows.size() <= grid_.max_rows && cell.longest() <= grid_.max_context &&
           cell.query_tokens() <= kMaxQueryTokens &&
           cell.Blocks(grid_.block_size) <= grid_.max_blocks;
  }

  // Every cell is there once, whoever needs it, and once in a list.
  void Add(BenchCell cell, std::vector<size_t>* list) {
    if (!Fits(cell)) return;
    const auto same = std::find_if(batches_.cells.begin(), batches_.cells.end(),
                                   [&](const BenchCell& c) { return c.name == cell.name; });
    const auto index = static_cast<size_t>(same - batches_.cells.begin());
    if (std::find(list->begin(), list->end(), index) == list->end()) list->push_back(index);
    if (same == batches_.cells.end()) batches_.cells.push_back(std::move(cell));
  }
  void AddAll(const CellOptions& options, std::vector<size_t>* list) {
    for (BenchCell& cell : MakeCells(options)) Add(std::move(cell), list);
  }

  void AddUniform() {
    AddAll({.rows = PowersUpTo(1, grid_.max_rows),
            .contexts = FinelyUpTo(ShortestRow(grid_), grid_.max_context),
            .seed = grid_.seed},
           &batches_.rows);
  }

  void AddPrompts() {
    std::vector<uint32_t> shares = grid_.decode_shares;
    std::erase(shares, 100u);
    if (shares.empty() || grid_.max_context <= grid_.chunk) return;
    const uint32_t most = grid_.max_context - grid_.chunk;
    std::set<uint32_t> rows, contexts, chunks;
    for (const uint32_t n : {2u, 8u}) rows.insert(std::min(n, grid_.max_rows));
    for (const uint32_t n : {128u, 1024u, 4096u, 16384u}) contexts.insert(std::min(n, most));
    for (const uint32_t n : {grid_.chunk / 8, grid_.chunk}) chunks.insert(std::max(2u, n));
    for (const uint32_t chunk : chunks)
      AddAll({.rows = {rows.begin(), rows.end()},
              .contexts = {contexts.begin(), contexts.end()},
              .decode_shares = shares,
              .chunk = chunk,
              .seed = grid_.seed},
             &batches_.prompts);
    std::erase_if(batches_.prompts, [&](size_t i) { return !batches_.cells[i].mixed(); });
  }

  void AddShortPrompts() {
    const uint32_t most = grid_.max_context - kMostCut;
    std::set<uint32_t> rows, contexts;
    for (const uint32_t n : {1u, 8u}) rows.insert(std::min(n, grid_.max_rows));
    for (const uint32_t n : {512u, 2048u, 8192u, 32768u}) contexts.insert(std::min(n, most));
    for (uint32_t chunk = kLeastCut; chunk <= kMostCut; chunk *= 2)
      AddAll({.rows = {rows.begin(), rows.end()},
              .contexts = {contexts.begin(), contexts.end()},
              .decode_shares = {0},
              .chunk = chunk,
              .seed = grid_.seed},
             &batches_.prompts);
  }

  void AddDeal() {
    const std::vector<uint32_t> contexts = PowersUpTo(ShortestRow(grid_), grid_.max_context);
    std::vector<uint32_t> rows = PowersUpTo(1, grid_.max_rows);
    AddAll({.rows = rows, .contexts = contexts, .seed = grid_.seed}, &batches_.deal);
    std::erase_if(rows, [](uint32_t n) { return n < kLeastShapedRows; });
    AddAll({.rows = rows,
            .contexts = contexts,
            .kinds = {BatchKind::kLogUniform, BatchKind::kSkewed},
            .seed = grid_.seed},
           &batches_.deal);
    AddAll({.rows = rows,
            .contexts = {std::min(2048u, grid_.max_context), grid_.max_context},
            .kinds = {BatchKind::kShareGpt},
            .seed = grid_.seed},
           &batches_.deal);
  }

  // Size and kind, all from 0 to about 1.
  std::array<double, 4> Coordinates(const BenchCell& cell) const {
    const auto log = [](uint64_t value, uint64_t most) {
      return std::log2(static_cast<double>(value)) /
             std::log2(static_cast<double>(std::max<uint64_t>(2, most)));
    };
    return {log(cell.rows.size(), grid_.max_rows), log(cell.longest(), grid_.max_context),
            kKindDistance * static_cast<double>(cell.kind),
            cell.mixed() ? log(cell.query_tokens(), uint64_t{grid_.chunk} * grid_.max_rows) : 0.0};
  }

  // The smallest first, then always the one that is farthest from all before it.
  void Spread(std::vector<size_t>* list) const {
    std::vector<std::array<double, 4>> at;
    at.reserve(list->size());
    for (const size_t i : *list) at.push_back(Coordinates(batches_.cells[i]));
    std::vector<double> distance(at.size(), std::numeric_limits<double>::infinity());
    std::vector<size_t> order;
    const auto size = [](const std::array<double, 4>& x) { return x[0] + x[1] + x[3]; };
    const auto smallest = std::min_element(
        at.begin(), at.end(), [&](const auto& a, const auto& b) { return size(a) < size(b); });
    for (auto next = static_cast<size_t>(smallest - at.begin()); order.size() < at.size();) {
      order.push_back((*list)[next]);
      distance[next] = -1;
      for (size_t i = 0; i < at.size(); ++i) {
        double sum = 0;
        for (size_t d = 0; d < at[i].size(); ++d) sum += std::pow(at[i][d] - at[next][d], 2);
        if (distance[i] >= 0) distance[i] = std::min(distance[i], sum);
      }
      next = static_cast<size_t>(std::max_element(distance.begin(), distance.end()) -
                                 distance.begin());
    }
    *list = std::move(order);
  }

  // ---- held out ----

  // From low to high, evenly in the logarithm; alike on every machine.
  double DrawBetween(double low, double high) {
    const double share = static_cast<double>(engine_() >> 11) * 0x1p-53;
    return low * std::pow(high / low, share);
  }
  uint32_t DrawCount(uint32_t low, uint32_t high) {
    return static_cast<uint32_t>(std::lround(DrawBetween(low, high)));
  }

  // Visible tokens of rows: all alike; ragged; two lengths; one long; around a mean.
  std::vector<uint32_t> DrawLengths(size_t kind, uint32_t rows, uint32_t most) {
    const uint32_t context = DrawCount(std::min(ShortestRow(grid_), most), most);
    const uint32_t shortest = std::max(1u, context / DrawCount(8, 256));
    const double mean = DrawBetween(std::min(64u, most), most);
    std::vector<uint32_t> lengths(rows, context);
    for (uint32_t i = 0; i < rows; ++i) {
      if (kind == 1) lengths[i] = DrawCount(shortest, context);
      if (kind == 2 && engine_() % 2 == 0) lengths[i] = shortest;
      if (kind == 3 && i > 0) lengths[i] = shortest;
      if (kind == 4) {
        double drawn = mean * DrawBetween(0.25, 4.0);
        drawn *= DrawBetween(0.5, 2.0);  // so that the middle is drawn more often
        lengths[i] = static_cast<uint32_t>(std::clamp(drawn, 1.0, static_cast<double>(most)));
      }
    }
    return lengths;
  }

  // Query tokens of a chunk that is drawn.
  struct ChunkDraw {
    uint32_t least, most;
    const char* name;
  };

  BenchCell DrawCell(size_t index, const std::optional<ChunkDraw>& chunks) {
    static constexpr const char* kKinds[] = {"uniform", "ragged", "two lengths", "one long",
                                             "around a mean"};
    static constexpr BatchKind kAs[] = {BatchKind::kUniform, BatchKind::kLogUniform,
                                        BatchKind::kSkewed, BatchKind::kSkewed,
                                        BatchKind::kShareGpt};
    const size_t kind = index % std::size(kKinds);
    const uint32_t rows = DrawCount(1, std::min(grid_.max_rows, chunks ? 16u : grid_.max_rows));
    const uint32_t chunk = chunks ? DrawCount(chunks->least, chunks->most) : 0;
    const uint32_t share = chunks ? grid_.decode_shares[index % grid_.decode_shares.size()] : 100;
    BenchCell cell{
        .name = absl::StrCat("held out ", index + 1, ": ", rows, rows == 1 ? " row, " : " rows, ",
                             kKinds[kind], chunks ? chunks->name : ""),
        .kind = kAs[kind],
        .rows = {}};
    uint32_t left = chunks ? std::max(1u, rows - rows * std::min(share, 99u) / 100) : 0;
    for (const uint32_t length : DrawLengths(kind, rows, grid_.max_context - chunk)) {
      cell.rows.push_back(left > 0 ? BatchRow{length, chunk} : BatchRow{length - 1, 1});
      if (left > 0) --left;
    }
    for (size_t i = cell.rows.size(); i > 1; --i)
      std::swap(cell.rows[i - 1], cell.rows[engine_() % i]);
    return cell;
  }

  bool IsFittedOn(const BenchCell& cell) const {
    const auto sorted = [](std::vector<BatchRow> rows) {
      std::sort(rows.begin(), rows.end(), [](const BatchRow& a, const BatchRow& b) {
        return std::pair(a.history, a.query_tokens) < std::pair(b.history, b.query_tokens);
      });
      return rows;
    };
    const std::vector<BatchRow> rows = sorted(cell.rows);
    return std::any_of(batches_.cells.begin(), batches_.cells.end(),
                       [&](const BenchCell& other) { return sorted(other.rows) == rows; });
  }

  void Draw(size_t index, const std::optional<ChunkDraw>& chunks, std::vector<size_t>* list) {
    for (int draw = 0; draw < kMostDraws; ++draw) {
      BenchCell cell = DrawCell(index, chunks);
      if (!Fits(cell) || IsFittedOn(cell)) continue;
      Add(std::move(cell), list);
      return;
    }
  }

  const TuneGrid& grid_;
  std::mt19937_64 engine_;
  TuneBatches batches_;
};

uint32_t Visible(const BatchRow& row, uint32_t window) {
  return row.length() - kernels::FirstSeen(window, row.history);
}

}  // namespace

TuneBatches MakeTuneBatches(const TuneGrid& grid) { return BatchMaker(grid).Make(); }

FeatureValues FeaturesOf(const BenchCell& cell, uint32_t window, size_t row) {
  FeatureValues values{};
  const auto value = [&](AttentionFeature feature) -> uint32_t& {
    return values[static_cast<uint32_t>(feature)];
  };
  value(AttentionFeature::kVisibleTokens) = Visible(cell.rows[row], window);
  value(AttentionFeature::kQueryTokens) = cell.rows[row].query_tokens;
  value(AttentionFeature::kBatchRows) = static_cast<uint32_t>(cell.rows.size());
  for (const BatchRow& r : cell.rows) {
    if (!r.decodes()) {
      value(AttentionFeature::kPromptTokens) += r.query_tokens;
      continue;
    }
    const uint32_t visible = Visible(r, window);
    value(AttentionFeature::kDecodeTokens) += visible;
    uint32_t& longest = value(AttentionFeature::kLongestDecode);
    longest = std::max(longest, visible);
  }
  return values;
}

size_t LongestRow(const BenchCell& cell, uint32_t window, bool decodes) {
  size_t best = cell.rows.size();
  for (size_t i = 0; i < cell.rows.size(); ++i) {
    if (cell.rows[i].decodes() != decodes) continue;
    if (best == cell.rows.size() ||
        Visible(cell.rows[i], window) > Visible(cell.rows[best], window))
      best = i;
  }
  return best;
}

}  // namespace reprise::tools
