// SPDX-License-Identifier: Apache-2.0
// The batches that `reprise bench attention` measures: how long the rows of each are. A batch of
// given lengths is a cell. Numbers alone; no device.
#ifndef REPRISE_TOOLS_BENCH_BATCHES_H_
#define REPRISE_TOOLS_BENCH_BATCHES_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace reprise::tools {

// Lengths of the rows of a batch whose context is C tokens. Where they follow a distribution they
// are its quantiles, the middles of as many equal shares as there are rows: a seed changes their
// order alone, so figures of different seeds can be compared.
enum class BatchKind : uint8_t {
  kUniform,     // C each
  kLogUniform,  // between C / 128 and C, their logarithms uniform
  kSkewed,      // one of C, the others C / 128
  kShareGpt,    // lognormal as lengths of conversations are, mean 559, at most C
};

// "uniform", "log-uniform", "skewed", "sharegpt".
std::string_view NameOf(BatchKind kind);
std::vector<BatchKind> AllBatchKinds();

// Of the lognormal lengths: their mean before they are cut at C, in tokens, and the deviation of
// their logarithm.
inline constexpr double kShareGptMean = 559;
inline constexpr double kShareGptSigma = 1.0;
// Query tokens of a cell at most.
inline constexpr uint32_t kMaxQueryTokens = 1u << 24;
// How much shorter than the longest row the shortest ones of a batch are.
inline constexpr uint32_t kShortShare = 128;

// One row of a step: tokens whose K and V were there before, and tokens of this step. A row that
// decodes has one of these, the newest of its context.
struct BatchRow {
  uint32_t history = 0;
  uint32_t query_tokens = 1;
  uint32_t length() const { return history + query_tokens; }
  bool decodes() const { return query_tokens == 1; }

  bool operator==(const BatchRow&) const = default;
};

struct BenchCell {
  std::string name = {};  // "b8 x 4k"
  BatchKind kind = BatchKind::kUniform;
  std::vector<BatchRow> rows = {};
  uint32_t shared_tokens = 0;  // that all rows begin with, in the same blocks

  uint32_t query_tokens() const;
  uint32_t num_decode_rows() const;
  uint32_t longest() const;  // tokens of the longest row
  // Whether a row has several query tokens, so that a step needs attention's second phase.
  bool mixed() const { return num_decode_rows() < rows.size(); }
  // Tokens whose K and V the rows see between them, each once: a row's own, and those that are
  // shared, in the window of its first query token and after. window 0: all.
  uint64_t SeenTokens(uint32_t window) const;
  // Blocks that hold all tokens of the rows.
  uint64_t Blocks(uint32_t block_size) const;
};

struct CellOptions {
  std::vector<uint32_t> rows = {1, 8, 64};
  std::vector<uint32_t> contexts = {128, 1024};
  std::vector<BatchKind> kinds = {BatchKind::kUniform};
  // Percentages of rows that decode; the others have `chunk` query tokens on their length as
  // history.
  std::vector<uint32_t> decode_shares = {100};
  uint32_t chunk = 512;
  uint32_t shared_tokens = 0;  // BenchCell::shared_tokens
  uint64_t seed = 1;
};

// `rows` lengths in a random order, each from 1 to `context`. The same arguments give the same
// lengths on every machine. REQUIRES: rows, context >= 1.
std::vector<uint32_t> BatchLengths(BatchKind kind, uint32_t rows, uint32_t context, uint64_t seed);

// A cell for every number of rows, at every context, of every kind, with every decode share.
std::vector<BenchCell> MakeCells(const CellOptions& options);

// The standard cells: uniform batches of 1 to 128 rows from 128 to 32k tokens; 64 ragged rows
// (log-uniform, 64 to 8,192); one row of 32k beside 31 of 256; 128 rows of lognormal length, mean
// 559; 31 decodes at 1k beside a prompt of 512 tokens; and beside 2,048 tokens on 8k of history.
std::vector<BenchCell> StandardCells(uint64_t seed);

// Errors: OutOfRange names the cell, got and allowed, where its longest row or its query tokens are
// too many, or its shared tokens more than a row's history; InvalidArgument when these are not
// whole blocks, and when two cells have one name.
absl::Status CheckCells(const std::vector<BenchCell>& cells, uint32_t max_context,
                        uint32_t block_size = 1);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_BENCH_BATCHES_H_
