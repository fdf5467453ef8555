// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/batches.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/attention/plan.h"

namespace reprise::tools {
namespace {

using Engine = std::mt19937_64;

// The standard library's own shuffle differs between machines.
template <typename T>
void Shuffle(Engine& engine, std::vector<T>& values) {
  for (size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[engine() % i]);
}

// The x below which a normal variable lies with probability p, by bisection.
double NormalQuantile(double p) {
  double low = -10, high = 10;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (0.5 * std::erfc(-middle / std::sqrt(2.0)) < p ? low : high) = middle;
  }
  return low;
}

uint32_t Shortest(uint32_t context) { return std::max(1u, context / kShortShare); }

// The middle of share i of n equal ones.
double Middle(size_t i, size_t n) {
  return (static_cast<double>(i) + 0.5) / static_cast<double>(n);
}

std::vector<double> LogUniformLengths(size_t n, uint32_t context) {
  const double shortest = Shortest(context);
  std::vector<double> lengths(n);
  for (size_t i = 0; i < n; ++i) lengths[i] = shortest * std::pow(context / shortest, Middle(i, n));
  return lengths;
}

// Scaled to the mean, of which the middles of the last shares miss a part.
std::vector<double> LognormalLengths(size_t n) {
  std::vector<double> lengths(n);
  for (size_t i = 0; i < n; ++i)
    lengths[i] = std::exp(kShareGptSigma * NormalQuantile(Middle(i, n)));
  const double sum = std::accumulate(lengths.begin(), lengths.end(), 0.0);
  for (double& length : lengths) length *= kShareGptMean * static_cast<double>(n) / sum;
  return lengths;
}

// "128", "4k".
std::string ShortCount(uint32_t count) {
  if (count >= 1024 && count % 1024 == 0) return absl::StrCat(count / 1024, "k");
  return absl::StrCat(count);
}

std::string CellName(const CellOptions& options, uint32_t rows, uint32_t context, BatchKind kind,
                     uint32_t decode_share) {
  std::string name = absl::StrCat("b", rows, " x ", ShortCount(context));
  if (kind != BatchKind::kUniform) absl::StrAppend(&name, " ", std::string(NameOf(kind)));
  if (options.shared_tokens != 0)
    absl::StrAppend(&name, " sharing ", ShortCount(options.shared_tokens));
  if (decode_share == 100) return name;
  return absl::StrCat(name, ", ", decode_share, " % decode + ", ShortCount(options.chunk));
}

BenchCell MakeCell(const CellOptions& options, uint32_t rows, uint32_t context, BatchKind kind,
                   uint32_t decode_share) {
  BenchCell cell{.name = CellName(options, rows, context, kind, decode_share),
                 .kind = kind,
                 .rows = {},
                 .shared_tokens = options.shared_tokens};
  const uint32_t num_decode = (rows * decode_share + 50) / 100;
  // Lengths come in a random order, so these are any rows.
  for (const uint32_t length : BatchLengths(kind, rows, context, options.seed)) {
    const bool decodes = cell.rows.size() < num_decode;
    cell.rows.push_back(decodes ? BatchRow{length - 1, 1} : BatchRow{length, options.chunk});
  }
  Engine engine(options.seed + 1);
  Shuffle(engine, cell.rows);
  return cell;
}

// 31 decodes at 1k of context, and one row of several query tokens among them.
BenchCell MixedCell(std::string name, BatchRow chunk) {
  BenchCell cell{.name = std::move(name), .kind = BatchKind::kUniform, .rows = {}};
  cell.rows.assign(32, BatchRow{1023, 1});
  cell.rows[15] = chunk;
  return cell;
}

}  // namespace

std::string_view NameOf(BatchKind kind) {
  switch (kind) {
    case BatchKind::kUniform:
      return "uniform";
    case BatchKind::kLogUniform:
      return "log-uniform";
    case BatchKind::kSkewed:
      return "skewed";
    case BatchKind::kShareGpt:
      return "sharegpt";
  }
  return "unknown";
}

std::vector<BatchKind> AllBatchKinds() {
  return {BatchKind::kUniform, BatchKind::kLogUniform, BatchKind::kSkewed, BatchKind::kShareGpt};
}

uint32_t BenchCell::query_tokens() const {
  uint32_t sum = 0;
  for (const BatchRow& row : rows) sum += row.query_tokens;
  return sum;
}

uint32_t BenchCell::num_decode_rows() const {
  return static_cast<uint32_t>(
      std::count_if(rows.begin(), rows.end(), [](const BatchRow& row) { return row.decodes(); }));
}

uint32_t BenchCell::longest() const {
  uint32_t most = 0;
  for (const BatchRow& row : rows) most = std::max(most, row.length());
  return most;
}

uint64_t BenchCell::SeenTokens(uint32_t window) const {
  uint64_t sum = 0;
  uint32_t first_shared = shared_tokens;  // that any row sees
  for (const BatchRow& row : rows) {
    const uint32_t first = kernels::FirstSeen(window, row.history);
    sum += row.length() - std::max(first, shared_tokens);
    first_shared = std::min(first_shared, first);
  }
  return sum + shared_tokens - first_shared;
}

uint64_t BenchCell::Blocks(uint32_t block_size) const {
  uint64_t sum = 0;
  for (const BatchRow& row : rows) sum += (row.length() + block_size - 1) / block_size;
  if (!rows.empty()) sum -= (rows.size() - 1) * (shared_tokens / block_size);
  return sum;
}

std::vector<uint32_t> BatchLengths(BatchKind kind, uint32_t rows, uint32_t context, uint64_t seed) {
  Engine engine(seed);
  std::vector<uint32_t> lengths(rows, context);
  if (kind == BatchKind::kSkewed) {
    std::fill(lengths.begin() + 1, lengths.end(), Shortest(context));
  } else if (kind != BatchKind::kUniform) {
    const std::vector<double> drawn =
        kind == BatchKind::kLogUniform ? LogUniformLengths(rows, context) : LognormalLengths(rows);
    for (uint32_t i = 0; i < rows; ++i)
      lengths[i] = static_cast<uint32_t>(std::clamp<double>(std::round(drawn[i]), 1, context));
  }
  Shuffle(engine, lengths);
  return lengths;
}

std::vector<BenchCell> MakeCells(const CellOptions& options) {
  std::vector<BenchCell> cells;
  for (const BatchKind kind : options.kinds)
    for (const uint32_t share : options.decode_shares)
      for (const uint32_t rows : options.rows)
        for (const uint32_t context : options.contexts)
          cells.push_back(MakeCell(options, rows, context, kind, share));
  return cells;
}

std::vector<BenchCell> StandardCells(uint64_t seed) {
  struct UniformBatches {
    uint32_t rows;
    std::vector<uint32_t> contexts;
  };
  const std::vector<UniformBatches> uniform = {{1, {128, 1024, 4096, 16384, 32768}},
                                               {8, {128, 512, 4096}},
                                               {32, {1024, 4096}},
                                               {64, {128, 1024, 4096}},
                                               {128, {128, 1024, 4096}}};
  std::vector<BenchCell> cells;
  const CellOptions options{.seed = seed};
  for (const UniformBatches& batch : uniform)
    for (const uint32_t context : batch.contexts)
      cells.push_back(MakeCell(options, batch.rows, context, BatchKind::kUniform, 100));
  const auto add = [&](std::string name, uint32_t rows, uint32_t context, BatchKind kind) {
    cells.push_back(MakeCell(options, rows, context, kind, 100));
    cells.back().name = std::move(name);
  };
  add("b64 ragged 64..8k", 64, 8192, BatchKind::kLogUniform);
  add("skew 1 x 32k + 31 x 256", 32, 32768, BatchKind::kSkewed);
  add("b128 ShareGPT-like", 128, 32768, BatchKind::kShareGpt);
  cells.push_back(MixedCell("31 x 1k + prompt 512", {0, 512}));
  cells.push_back(MixedCell("31 x 1k + 2k on 8k", {8192, 2048}));
  return cells;
}

absl::Status CheckCells(const std::vector<BenchCell>& cells, uint32_t max_context,
                        uint32_t block_size) {
  std::set<std::string> names;
  for (const BenchCell& cell : cells) {
    if (cell.shared_tokens % block_size != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("shared tokens: cell \"", cell.name, "\" has ", cell.shared_tokens,
                       ", allowed: whole blocks, multiples of ", block_size));
    }
    for (const BatchRow& row : cell.rows) {
      if (row.history < cell.shared_tokens) {
        return absl::OutOfRangeError(absl::StrCat(
            "shared tokens: cell \"", cell.name, "\" has ", cell.shared_tokens, " and a row with ",
            row.history, " tokens before its step, allowed: at most that"));
      }
    }
    if (cell.longest() > max_context) {
      return absl::OutOfRangeError(absl::StrCat("context: cell \"", cell.name, "\" has a row of ",
                                                cell.longest(), " tokens, allowed: at most ",
                                                max_context, " (--max-context)"));
    }
    uint64_t tokens = 0;
    for (const BatchRow& row : cell.rows) tokens += row.query_tokens;
    if (tokens > kMaxQueryTokens) {
      return absl::OutOfRangeError(absl::StrCat("query tokens: cell \"", cell.name, "\" has ",
                                                tokens, ", allowed: at most ", kMaxQueryTokens));
    }
    if (!names.insert(cell.name).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("cells: got \"", cell.name, "\" twice, allowed: every cell once"));
    }
  }
  return absl::OkStatus();
}

}  // namespace reprise::tools
