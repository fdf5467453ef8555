// SPDX-License-Identifier: Apache-2.0
// The device memory that attention is timed in: KV pages, queries and outputs, and what a step
// keeps for the plan and for attention, all at fixed addresses, so that one graph serves every
// cell. Loading a cell fills lengths and tables by copies; after that nothing is done on the host.
#ifndef REPRISE_TOOLS_BENCH_ATTENTION_BUFFERS_H_
#define REPRISE_TOOLS_BENCH_ATTENTION_BUFFERS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/attention/attention_args.h"
#include "kernels/attention/attention_tree.h"
#include "kernels/kernel_set.h"
#include "kernels/page_walk/page_walk_args.h"
#include "kernels/plan/plan_args.h"
#include "runtime/device.h"
#include "runtime/dtype.h"
#include "runtime/memory/arena.h"
#include "runtime/memory/buffer.h"
#include "runtime/memory/buffer_plan.h"
#include "tools/bench/batches.h"

namespace reprise::tools {

// The heads of a model and the cache that they read.
struct AttentionShape {
  std::string model = {};  // whose it is, "" for none's
  int32_t num_heads = 32;
  int32_t num_kv_heads = 8;
  int32_t head_dim = 128;
  int32_t block_size = 16;
  runtime::DType dtype = runtime::DType::kBf16;  // of queries and output
  std::optional<runtime::DType> kv_format = {};  // of KV; unset: dtype
  float scale = 0.0f;                            // of the softmax; 0: 1 / sqrt(head_dim)
  uint32_t window = 0;                           // sliding window in tokens; 0: none

  runtime::DType kv_dtype() const { return kv_format.value_or(dtype); }
  kernels::KvLayout kv() const;  // as a device without bulk copies lays it out
  kernels::AttentionPlanRule rule() const;
  float softmax_scale() const;
  // Of one block in one layer, K and V.
  uint64_t PageBytes() const;
  // Of one token in one layer, K and V.
  uint64_t TokenBytes() const;
};

// Errors: InvalidArgument with what, got, allowed.
absl::Status CheckShape(const AttentionShape& shape);

// What trees have to keep to on the device of `kernels`, but for batch invariance, which no
// benchmark asks for.
kernels::AttentionTreeLimits TreeLimitsOf(const AttentionShape& shape,
                                          const kernels::KernelSet& kernels);

// The leaves that a plan came to, by their index.
struct TakenLeaves {
  uint32_t batch = 0;          // of AttentionTree.batch
  std::vector<uint32_t> rows;  // how many rows came to each leaf of AttentionTree.rows

  bool operator==(const TakenLeaves&) const = default;
};

// What the memory is laid out for.
struct BufferLimits {
  uint32_t max_rows = 1;
  uint32_t max_query_tokens = 1;
  uint32_t max_context = 32768;  // tokens of a row: the width of the block tables
  uint64_t max_pages = 1;        // of a cell
  uint64_t pool_pages = 1;       // in all
  uint32_t max_calls = 1;        // calls of a graph
  uint32_t num_trees = 1;        // that plans decide by
  bool shares_prefixes = false;  // whether rows of any cell do

  // For all of `cells`, of which each cycles over at least pool_bytes of KV where max_calls pages
  // apart suffice for that.
  static BufferLimits For(const std::vector<BenchCell>& cells, const AttentionShape& shape,
                          uint32_t max_context, uint64_t pool_bytes, uint32_t max_calls);
};

// How far apart the pages of a cell lie, in pages. Call n of a graph reads its pages n pages
// further on, so so many calls read different bytes before the first ones come again.
uint32_t PageSpacing(const BenchCell& cell, const AttentionShape& shape, uint64_t pool_bytes,
                     uint32_t max_calls);

class AttentionBuffers {
 public:
  // Allocates everything, and fills K, V and queries with random numbers of variance 1 on `stream`;
  // waits for it. Errors: ResourceExhausted names the bytes and what takes them; the device's.
  static absl::StatusOr<std::unique_ptr<AttentionBuffers>> Create(runtime::Device& device,
                                                                  runtime::Stream& stream,
                                                                  const kernels::KernelSet& kernels,
                                                                  const AttentionShape& shape,
                                                                  const BufferLimits& limits);
  AttentionBuffers(const AttentionBuffers&) = delete;
  AttentionBuffers& operator=(const AttentionBuffers&) = delete;

  // Writes the lengths of a cell's rows, their block tables (pages `spacing` apart, in a random
  // order), that they share what they share, and the list of live pages, each once. Rows lie in
  // random slots. Waits until it is done.
  absl::Status Load(runtime::Stream& stream, const BenchCell& cell, uint32_t spacing,
                    uint64_t seed);

  // Plans by tree `index` that are enqueued from here on decide by `tree`, which must keep to
  // TreeLimitsOf. By default: AttentionTree().
  absl::Status SetTree(runtime::Stream& stream, const kernels::KernelSet& kernels,
                       const kernels::AttentionTree& tree, uint32_t index = 0);
  // What the plan that ran last, on `num_rows` rows and by tree 0, came to. Waits for `stream`.
  absl::StatusOr<TakenLeaves> ReadLeaves(runtime::Stream& stream, size_t num_rows) const;

  // Of every graph, by one of the trees. Deals rows of one query token where the device has a
  // kernel for that.
  kernels::PlanArgs plan(uint32_t tree) const;
  // Of call n: everything but the KV cache's address is the same.
  kernels::AttentionArgs Attention(uint32_t call) const;
  kernels::PageWalkArgs Walk(uint32_t call) const;
  uint32_t max_pages() const { return static_cast<uint32_t>(limits_.max_pages); }
  // [3] where graphs put their stamps: of both ends of what is timed, and of nothing.
  uint64_t* stamps() const { return stamps_; }

  // The block table of the cell that was loaded last, of the row at `index` in the cell.
  const std::vector<uint32_t>& blocks(size_t index) const { return blocks_[index]; }
  uint64_t bytes() const { return state_.bytes() + kv_.bytes(); }

 private:
  AttentionBuffers(const AttentionShape& shape, const BufferLimits& limits)
      : shape_(shape), limits_(limits) {}
  void Declare(const kernels::KernelSet& kernels, runtime::BufferPlan& plan);
  absl::Status Allocate(runtime::Device& device, const runtime::BufferPlan& plan);
  absl::Status Fill(runtime::Stream& stream, const kernels::KernelSet& kernels) const;
  void* Page(uint32_t page) const;

  const AttentionShape shape_;
  const BufferLimits limits_;
  kernels::KvLayout kv_layout_;
  kernels::PlanArgs plan_;
  kernels::AttentionArgs attention_;
  kernels::WalkedPage* walked_pages_ = nullptr;
  uint32_t* num_walked_ = nullptr;
  uint32_t* matches_ = nullptr;
  uint64_t* stamps_ = nullptr;
  kernels::AttentionTree* tree_ = nullptr;
  uint32_t num_row_leaves_ = 1;  // of tree 0
  void* q_ = nullptr;
  void* out_ = nullptr;
  std::vector<std::vector<uint32_t>> blocks_;
  runtime::DeviceBuffer kv_;
  runtime::Arena state_;
};

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_BENCH_ATTENTION_BUFFERS_H_
