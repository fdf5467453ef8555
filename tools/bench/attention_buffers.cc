// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/attention_buffers.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/attention/attention.h"
#include "kernels/fill/fill.h"
#include "kernels/page_walk/page_walk.h"
#include "kernels/plan/plan.h"
#include "runtime/status_macros.h"
#include "tools/units.h"

namespace reprise::tools {
namespace {

constexpr int32_t kMaxHeadDim = 256;
constexpr size_t kRowBytes = 16;  // what a head of a token must be a multiple of
constexpr uint64_t kMaxPoolPages = uint64_t{1} << 31;

uint32_t BlocksOf(uint32_t tokens, uint32_t block_size) {
  return (tokens + block_size - 1) / block_size;
}

std::vector<uint32_t> Permutation(uint32_t n, std::mt19937_64& engine) {
  std::vector<uint32_t> order(n);
  std::iota(order.begin(), order.end(), 0u);
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[engine() % i]);
  return order;
}

absl::Status Refuse(const char* what, int64_t got, const std::string& allowed) {
  return absl::InvalidArgumentError(absl::StrCat(what, ": got ", got, ", allowed: ", allowed));
}

// What a cell is on the device.
struct LoadedCell {
  kernels::PlanCounts counts{};
  std::vector<kernels::RowEntry> rows;
  std::vector<kernels::PrefixMember> prefix;
  std::vector<uint32_t> context_length;  // by slot
  std::vector<uint32_t> block_table;     // by slot
  std::vector<kernels::WalkedPage> pages;
  uint32_t num_pages = 0;
};

// Those from token `begin` on.
void AddWalkedPages(const BatchRow& row, const AttentionShape& shape, uint32_t begin,
                    const std::vector<uint32_t>& blocks, LoadedCell& cell) {
  const auto size = static_cast<uint32_t>(shape.block_size);
  const uint32_t seen = std::max(begin, kernels::FirstSeen(shape.window, row.history));
  for (uint32_t i = seen / size; i < blocks.size(); ++i) {
    const uint32_t first = i * size;
    cell.pages.push_back({.block = blocks[i],
                          .begin = std::max(seen, first) - first,
                          .end = std::min(row.length(), first + size) - first});
  }
}

template <typename T>
absl::Status Upload(runtime::Stream& stream, T* to, const std::vector<T>& values) {
  if (values.empty()) return absl::OkStatus();
  return stream.CopyToDevice(to, values.data(), values.size() * sizeof(T));
}

}  // namespace

kernels::KvLayout AttentionShape::kv() const {
  return {.num_kv_heads = num_kv_heads,
          .head_dim = head_dim,
          .block_size = block_size,
          .dtype = kv_dtype()};
}

kernels::AttentionPlanRule AttentionShape::rule() const {
  return {.num_kv_heads = static_cast<uint32_t>(num_kv_heads), .windows = {window}};
}

float AttentionShape::softmax_scale() const {
  return scale != 0.0f ? scale : static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim)));
}

uint64_t AttentionShape::TokenBytes() const {
  return uint64_t{2} * static_cast<uint64_t>(num_kv_heads) * static_cast<uint64_t>(head_dim) *
         runtime::SizeOf(kv_dtype());
}

uint64_t AttentionShape::PageBytes() const {
  return TokenBytes() * static_cast<uint64_t>(block_size);
}

absl::Status CheckShape(const AttentionShape& shape) {
  if (shape.num_kv_heads < 1) return Refuse("KV heads", shape.num_kv_heads, "at least 1");
  if (shape.num_heads < 1 || shape.num_heads % shape.num_kv_heads != 0)
    return Refuse("heads", shape.num_heads,
                  absl::StrCat("multiples of the KV heads, ", shape.num_kv_heads));
  if (shape.kv_dtype() != shape.dtype && !runtime::IsFp8(shape.kv_dtype()))
    return absl::InvalidArgumentError(absl::StrCat(
        "kv dtype: got ", std::string(runtime::NameOf(shape.kv_dtype())), ", allowed: ",
        std::string(runtime::NameOf(shape.dtype)), " (that of queries), fp8_e4m3, fp8_e5m2"));
  const auto multiple = static_cast<int32_t>(kRowBytes / runtime::SizeOf(shape.kv_dtype()));
  if (shape.head_dim < 1 || shape.head_dim > kMaxHeadDim || shape.head_dim % multiple != 0)
    return Refuse(
        "head size", shape.head_dim,
        absl::StrCat("multiples of ", multiple, " (", kRowBytes, " bytes of ",
                     std::string(runtime::NameOf(shape.kv_dtype())), ") up to ", kMaxHeadDim));
  const auto token = static_cast<int64_t>(runtime::SizeOf(shape.kv_dtype())) * shape.head_dim;
  const int64_t most = kernels::kPageWalkMaxRunBytes / token;
  if (shape.block_size < 1 || shape.block_size > most)
    return Refuse("block size", shape.block_size, absl::StrCat("1 to ", most));
  return absl::OkStatus();
}

kernels::AttentionTreeLimits TreeLimitsOf(const AttentionShape& shape,
                                          const kernels::KernelSet& kernels) {
  const kernels::AttentionPlanRule rule = shape.rule();
  kernels::KvLayout kv = shape.kv();
  const uint32_t num_shares = kernels::NumDecodeShares(kernels, shape.num_heads, kv);
  kv.swizzled = num_shares != 0;
  return {.max_splits = rule.max_splits,
          .num_shares = num_shares,
          .max_prompt_q_tokens =
              kernels::PrefillQueryTokens(shape.num_heads / shape.num_kv_heads,
                                          kernels::NumPrefillRows(kernels, shape.num_heads, kv)),
          .batch_invariant = false};
}

uint32_t PageSpacing(const BenchCell& cell, const AttentionShape& shape, uint64_t pool_bytes,
                     uint32_t max_calls) {
  const uint64_t bytes = cell.Blocks(static_cast<uint32_t>(shape.block_size)) * shape.PageBytes();
  return static_cast<uint32_t>(
      std::clamp<uint64_t>((pool_bytes + bytes - 1) / bytes, 1, max_calls));
}

BufferLimits BufferLimits::For(const std::vector<BenchCell>& cells, const AttentionShape& shape,
                               uint32_t max_context, uint64_t pool_bytes, uint32_t max_calls) {
  BufferLimits limits{.max_context = max_context, .max_calls = max_calls};
  for (const BenchCell& cell : cells) {
    const uint64_t pages = cell.Blocks(static_cast<uint32_t>(shape.block_size));
    limits.max_rows = std::max(limits.max_rows, static_cast<uint32_t>(cell.rows.size()));
    limits.max_query_tokens = std::max(limits.max_query_tokens, cell.query_tokens());
    limits.max_pages = std::max(limits.max_pages, pages);
    limits.shares_prefixes |= cell.shared_tokens != 0;
    limits.pool_pages =
        std::max(limits.pool_pages,
                 pages * PageSpacing(cell, shape, pool_bytes, max_calls) + limits.max_calls);
  }
  return limits;
}

absl::StatusOr<std::unique_ptr<AttentionBuffers>> AttentionBuffers::Create(
    runtime::Device& device, runtime::Stream& stream, const kernels::KernelSet& kernels,
    const AttentionShape& shape, const BufferLimits& limits) {
  std::unique_ptr<AttentionBuffers> buffers(new AttentionBuffers(shape, limits));
  runtime::BufferPlan plan;
  buffers->Declare(kernels, plan);
  REPRISE_RETURN_IF_ERROR(buffers->Allocate(device, plan));
  REPRISE_RETURN_IF_ERROR(buffers->Fill(stream, kernels));
  return buffers;
}

void AttentionBuffers::Declare(const kernels::KernelSet& kernels, runtime::BufferPlan& buffers) {
  const size_t rows = limits_.max_rows, tokens = limits_.max_query_tokens;
  const auto heads = static_cast<size_t>(shape_.num_heads);
  const size_t q_size = heads * static_cast<size_t>(shape_.head_dim);
  kv_layout_ = shape_.kv();
  kernels::AttentionPlanRule& rule = plan_.attention;
  rule = shape_.rule();
  const kernels::AttentionTreeLimits of_kernels = TreeLimitsOf(shape_, kernels);
  rule.num_shares = of_kernels.num_shares;
  rule.prefill_q_tokens = of_kernels.max_prompt_q_tokens;
  if (limits_.shares_prefixes)
    rule.tile_members = kernels::TileMembers(kernels, shape_.num_heads, shape_.kv());
  kv_layout_.swizzled = rule.num_shares != 0;
  const uint32_t table = BlocksOf(limits_.max_context, static_cast<uint32_t>(shape_.block_size));
  kernels::StepPlan& plan = plan_.plan;
  buffers.Add(&plan.counts, 1, "counts");
  buffers.Add(&plan.given_rows, rows, "given_rows");
  buffers.Add(&plan.entries, rows, "entries");
  buffers.Add(&plan.given_tokens, tokens + rows, "given_tokens");
  buffers.Add(&plan.prefix, rows, "prefix");
  buffers.Add(&plan.query_start, rows + 1, "query_start");
  buffers.Add(&plan.context_before, rows, "context_before");
  buffers.Add(&plan.token_id, tokens, "token_id");
  buffers.Add(&plan.token_position, tokens, "token_position");
  buffers.Add(&plan.token_block, tokens, "token_block");
  buffers.Add(&plan.token_offset, tokens, "token_offset");
  buffers.Add(&plan.sampled_entry, rows, "sampled_entry");
  buffers.Add(&plan.sampled_token, rows, "sampled_token");
  kernels::AttentionLists& lists = plan.attention[0];
  buffers.Add(&lists.decode_items, kernels::MaxDecodeItems(rows, rule.max_splits), "decode_items");
  buffers.Add(&lists.decode_rows, 2 * rows, "decode_rows");
  buffers.Add(&lists.prefix_members, rows, "prefix_members");
  buffers.Add(&lists.decode_shares, rule.num_shares, "decode_shares");
  buffers.Add(&lists.prefill_items, kernels::MaxPrefillItems(rows, tokens, rule.max_splits),
              "prefill_items");
  buffers.Add(&plan.attention_leaf, rows, "attention_leaf");
  buffers.Add(&tree_, limits_.num_trees, "attention_tree");
  kernels::ResidentRows& resident = plan_.rows;
  buffers.Add(&resident.context_length, rows, "context_length");
  buffers.Add(&resident.last_token, rows, "last_token");
  buffers.Add(&resident.temperature, rows, "temperature");
  buffers.Add(&resident.seed, rows, "seed");
  buffers.Add(&resident.life, rows, "life");
  buffers.Add(&resident.block_table, rows * table, "block_table");
  resident.max_blocks_per_row = table;
  const size_t partials = rows * rule.max_splits * heads;
  buffers.Add(&attention_.partial_out, partials * static_cast<size_t>(shape_.head_dim),
              "partial_out");
  buffers.Add(&attention_.partial_max, partials, "partial_max");
  buffers.Add(&attention_.partial_sum, partials, "partial_sum");
  buffers.Add(&attention_.piece_leaves,
              rows * rule.max_splits * static_cast<size_t>(shape_.num_kv_heads), "piece_leaves");
  buffers.Add(&attention_.arrivals, rows * static_cast<size_t>(shape_.num_kv_heads), "arrivals");
  buffers.AddElements(&q_, tokens * q_size, shape_.dtype, "q");
  buffers.AddElements(&out_, tokens * q_size, shape_.dtype, "out");
  buffers.Add(&walked_pages_, limits_.max_pages, "walked_pages");
  buffers.Add(&num_walked_, 1, "num_walked");
  buffers.Add(&matches_, kernels::PageWalkGrid(kernels.device), "matches");
  buffers.Add(&stamps_, 3, "stamps");
}

absl::Status AttentionBuffers::Allocate(runtime::Device& device, const runtime::BufferPlan& plan) {
  REPRISE_ASSIGN_OR_RETURN(const size_t state_bytes, plan.bytes());
  REPRISE_ASSIGN_OR_RETURN(const size_t free_bytes, device.FreeBytes());
  const bool too_many = limits_.pool_pages > kMaxPoolPages;
  const uint64_t kv_bytes = too_many ? 0 : limits_.pool_pages * shape_.PageBytes();
  if (too_many || state_bytes > free_bytes || kv_bytes > free_bytes - state_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("memory: the cells need ", limits_.pool_pages, " KV pages of ",
                     FormatBytes(shape_.PageBytes()), " and ", FormatBytes(state_bytes),
                     " beside them; ", FormatBytes(free_bytes),
                     " are free; allowed: fewer rows, shorter contexts, or less ", "--pool-bytes"));
  }
  REPRISE_ASSIGN_OR_RETURN(kv_, runtime::DeviceBuffer::Create(device, kv_bytes));
  REPRISE_ASSIGN_OR_RETURN(state_, plan.Allocate(device));
  plan_.block_size = static_cast<uint32_t>(shape_.block_size);
  plan_.max_rows = limits_.max_rows;
  attention_.q = q_;
  attention_.out = out_;
  const kernels::AttentionLists& lists = plan_.plan.attention[0];
  attention_.items = lists.decode_items;
  attention_.num_items = &plan_.plan.counts->num_decode_items[0];
  attention_.query_start = plan_.plan.query_start;
  attention_.context_before = plan_.plan.context_before;
  attention_.block_table = plan_.rows.block_table;
  attention_.max_blocks_per_row = plan_.rows.max_blocks_per_row;
  attention_.max_splits = plan_.attention.max_splits;
  attention_.num_heads = shape_.num_heads;
  attention_.kv = kv_layout_;
  attention_.decode_rows = lists.decode_rows;
  if (plan_.attention.tile_members != 0) attention_.prefix_members = lists.prefix_members;
  attention_.shares = lists.decode_shares;
  attention_.scale = shape_.softmax_scale();
  attention_.window = shape_.window;
  return absl::OkStatus();
}

absl::Status AttentionBuffers::Fill(runtime::Stream& stream,
                                    const kernels::KernelSet& kernels) const {
  REPRISE_RETURN_IF_ERROR(stream.Fill(state_.data(), 0, state_.bytes()));
  for (uint32_t i = 0; i < limits_.num_trees; ++i)
    REPRISE_RETURN_IF_ERROR(
        kernels::SetAttentionTree(stream, kernels, kernels::AttentionTree(), tree_ + i));
  const size_t element = runtime::SizeOf(shape_.kv_dtype());
  const auto q_count =
      static_cast<int64_t>(limits_.max_query_tokens) * shape_.num_heads * shape_.head_dim;
  REPRISE_RETURN_IF_ERROR(kernels::RandomFill(
      stream, kernels, {.out = q_, .dtype = shape_.dtype, .count = q_count, .seed = 1}));
  REPRISE_RETURN_IF_ERROR(kernels::RandomFill(stream, kernels,
                                              {.out = kv_.data(),
                                               .dtype = shape_.kv_dtype(),
                                               .count = static_cast<int64_t>(kv_.bytes() / element),
                                               .seed = 2}));
  return stream.Synchronize();
}

absl::Status AttentionBuffers::Load(runtime::Stream& stream, const BenchCell& cell,
                                    uint32_t spacing, uint64_t seed) {
  std::mt19937_64 engine(seed);
  const auto block_size = static_cast<uint32_t>(shape_.block_size);
  const std::vector<uint32_t> slot = Permutation(limits_.max_rows, engine);
  std::vector<uint32_t> page = Permutation(static_cast<uint32_t>(cell.Blocks(block_size)), engine);
  LoadedCell loaded;
  loaded.counts.num_rows = static_cast<uint32_t>(cell.rows.size());
  loaded.context_length.assign(limits_.max_rows, 0);
  loaded.block_table.assign(size_t{limits_.max_rows} * plan_.rows.max_blocks_per_row, 0);
  blocks_.assign(cell.rows.size(), {});
  uint32_t given = 0;
  for (size_t e = 0; e < cell.rows.size(); ++e) {
    const BatchRow& row = cell.rows[e];
    const uint32_t shared = e == 0 ? 0 : cell.shared_tokens / block_size;
    blocks_[e].assign(blocks_[0].begin(), blocks_[0].begin() + shared);
    for (uint32_t i = shared; i < BlocksOf(row.length(), block_size); ++i) {
      blocks_[e].push_back(page.back() * spacing);
      page.pop_back();
    }
    std::copy(blocks_[e].begin(), blocks_[e].end(),
              loaded.block_table.begin() +
                  static_cast<ptrdiff_t>(size_t{slot[e]} * plan_.rows.max_blocks_per_row));
    loaded.context_length[slot[e]] = row.history;
    const uint32_t flags = kernels::kRowSample | (row.decodes() ? 0u : kernels::kRowTokensGiven);
    loaded.rows.push_back(
        {.slot = slot[e], .flags = flags, .num_tokens = row.query_tokens, .given_offset = given});
    if (!row.decodes()) given += row.query_tokens;
    AddWalkedPages(row, shape_, shared * block_size, blocks_[e], loaded);
    if (cell.shared_tokens == 0 || !row.decodes()) continue;
    loaded.prefix.push_back({.entry = static_cast<uint32_t>(e),
                             .tokens = cell.shared_tokens,
                             .index = static_cast<uint32_t>(loaded.prefix.size()),
                             .count = cell.num_decode_rows()});
  }
  loaded.counts.num_prefix_members = static_cast<uint32_t>(loaded.prefix.size());
  loaded.num_pages = static_cast<uint32_t>(loaded.pages.size());
  REPRISE_RETURN_IF_ERROR(
      stream.CopyToDevice(plan_.plan.counts, &loaded.counts, sizeof(loaded.counts)));
  REPRISE_RETURN_IF_ERROR(Upload(stream, plan_.plan.given_rows, loaded.rows));
  REPRISE_RETURN_IF_ERROR(Upload(stream, plan_.plan.prefix, loaded.prefix));
  REPRISE_RETURN_IF_ERROR(Upload(stream, plan_.rows.context_length, loaded.context_length));
  REPRISE_RETURN_IF_ERROR(Upload(stream, plan_.rows.block_table, loaded.block_table));
  REPRISE_RETURN_IF_ERROR(Upload(stream, walked_pages_, loaded.pages));
  REPRISE_RETURN_IF_ERROR(
      stream.CopyToDevice(num_walked_, &loaded.num_pages, sizeof(loaded.num_pages)));
  return stream.Synchronize();
}

absl::Status AttentionBuffers::SetTree(runtime::Stream& stream, const kernels::KernelSet& kernels,
                                       const kernels::AttentionTree& tree, uint32_t index) {
  if (index == 0) num_row_leaves_ = tree.rows.num_leaves;
  return kernels::SetAttentionTree(stream, kernels, tree, tree_ + index);
}

kernels::PlanArgs AttentionBuffers::plan(uint32_t tree) const {
  kernels::PlanArgs args = plan_;
  args.attention.tree = tree_ + tree;
  return args;
}

absl::StatusOr<TakenLeaves> AttentionBuffers::ReadLeaves(runtime::Stream& stream,
                                                         size_t num_rows) const {
  kernels::PlanCounts counts{};
  std::vector<uint32_t> leaf_of(num_rows);
  REPRISE_RETURN_IF_ERROR(stream.CopyToHost(&counts, plan_.plan.counts, sizeof(counts)));
  REPRISE_RETURN_IF_ERROR(stream.CopyToHost(leaf_of.data(), plan_.plan.attention_leaf,
                                            leaf_of.size() * sizeof(uint32_t)));
  REPRISE_RETURN_IF_ERROR(stream.Synchronize());
  TakenLeaves taken{.batch = counts.attention_leaf, .rows = std::vector<uint32_t>(num_row_leaves_)};
  for (const uint32_t leaf : leaf_of) {
    if (leaf >= num_row_leaves_)
      return absl::InternalError(
          absl::StrCat("plan: a row came to leaf ", leaf, ", allowed: below ", num_row_leaves_));
    ++taken.rows[leaf];
  }
  return taken;
}

void* AttentionBuffers::Page(uint32_t page) const {
  return kv_.as<std::byte>() + page * shape_.PageBytes();
}

kernels::AttentionArgs AttentionBuffers::Attention(uint32_t call) const {
  kernels::AttentionArgs args = attention_;
  args.kv_cache = Page(call);
  return args;
}

kernels::PageWalkArgs AttentionBuffers::Walk(uint32_t call) const {
  return {.kv_cache = Page(call),
          .pages = walked_pages_,
          .num_pages = num_walked_,
          .matches = matches_,
          .kv = kv_layout_,
          .pattern = 0};
}

}  // namespace reprise::tools
