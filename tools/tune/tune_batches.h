// SPDX-License-Identifier: Apache-2.0
// The batches that `reprise tune attention` measures: those that trees are fitted on, and others
// that show how good the trees are. Numbers alone; no device.
#ifndef REPRISE_TOOLS_TUNE_TUNE_BATCHES_H_
#define REPRISE_TOOLS_TUNE_TUNE_BATCHES_H_

#include <cstdint>
#include <vector>

#include "tools/bench/batches.h"
#include "tools/tune/cost_tree.h"

namespace reprise::tools {

struct TuneGrid {
  uint32_t max_rows = 128;
  uint32_t max_context = 32768;      // tokens of a row, those of this step included
  uint64_t max_blocks = UINT64_MAX;  // KV blocks of a batch; larger ones are left out
  uint32_t block_size = 16;
  // Percentages of rows that decode in batches with chunks of prompts; 100 adds none.
  std::vector<uint32_t> decode_shares = {50};
  uint32_t chunk = 512;      // query tokens of a chunk at most
  bool dealt = false;        // whether the deal is tuned, too
  bool cut_prompts = false;  // whether cutting the KV of rows of a few query tokens is
  bool standard = false;     // whether the standard cells are measured
  uint64_t seed = 1;
};

// Indices into `cells` come in the order in which they are to be measured: every beginning of a
// list is spread over all sizes, so that a sweep may end anywhere.
struct TuneBatches {
  std::vector<BenchCell> cells;
  std::vector<size_t> rows;     // uniform batches that decode
  std::vector<size_t> prompts;  // uniform batches with chunks, and of a few query tokens each
  std::vector<size_t> deal;     // decodes of every kind
  // Not fitted on: drawn at random by the seed, of other lengths, numbers of rows and kinds.
  std::vector<size_t> held_out;
  std::vector<size_t> held_out_prompts;
  std::vector<size_t> standard;  // StandardCells that fit; not fitted on as such
};

TuneBatches MakeTuneBatches(const TuneGrid& grid);

// What nodes may ask for, of row `row` of a batch. window: as AttentionShape's.
FeatureValues FeaturesOf(const BenchCell& cell, uint32_t window, size_t row);
// The row of most visible tokens, of those that decode or of those that do not. REQUIRES: there is
// one.
size_t LongestRow(const BenchCell& cell, uint32_t window, bool decodes);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_TUNE_TUNE_BATCHES_H_
