// SPDX-License-Identifier: Apache-2.0
#include "engine/step/request_filter.h"

#include <algorithm>
#include <iterator>

namespace reprise::engine {
namespace {

uint32_t RowOf(uint32_t row) { return row; }
template <typename Entry>
uint32_t RowOf(const Entry& entry) {
  return entry.row;
}

// Appends the entries whose row is none of `rows`, which ascend.
template <typename Entry>
void CopyOthers(std::span<const Entry> entries, std::span<const uint32_t> rows,
                std::vector<Entry>* others) {
  std::ranges::copy_if(entries, std::back_inserter(*others), [rows](const Entry& entry) {
    return !std::ranges::binary_search(rows, RowOf(entry));
  });
}

template <typename Entry>
std::span<const Entry> Others(std::span<const Entry> entries, std::span<const uint32_t> rows,
                              std::vector<Entry>* others) {
  others->clear();
  CopyOthers(entries, rows, others);
  return *others;
}

}  // namespace

const StepRequest& RequestFilter::Without(const StepRequest& request,
                                          std::span<const uint32_t> rows) {
  left_ = request;
  left_.drop = Others(request.drop, rows, &drop_);
  left_.add = Others(request.add, rows, &add_);
  left_.append = Others(request.append, rows, &append_);
  left_.masks = Others(request.masks, rows, &masks_);
  left_.chunks = Others(request.chunks, rows, &chunks_);
  left_.continue_rows = Others(request.continue_rows, rows, &continue_rows_);
  left_.drafts = Others(request.drafts, rows, &drafts_);

  size_t num_members = 0;
  for (const PrefixGroup& prefix : request.prefixes) num_members += prefix.rows.size();
  prefix_rows_.clear();
  prefix_rows_.reserve(num_members);  // views of it stay valid
  prefixes_.clear();
  for (PrefixGroup prefix : request.prefixes) {
    const size_t begin = prefix_rows_.size();
    CopyOthers(prefix.rows, rows, &prefix_rows_);
    // A group that was named without any rows stays, and is refused for it.
    if (prefix_rows_.size() == begin && !prefix.rows.empty()) continue;
    prefix.rows = std::span(prefix_rows_).subspan(begin);
    prefixes_.push_back(prefix);
  }
  left_.prefixes = prefixes_;
  return left_;
}

}  // namespace reprise::engine
