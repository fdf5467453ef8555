// SPDX-License-Identifier: Apache-2.0
#include "graphs/bucket_table.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace reprise::graphs {
namespace {

std::string SizeText(const BatchShape& shape, bool two_dimensions) {
  return two_dimensions ? absl::StrCat(shape.rows, "x", shape.tokens) : absl::StrCat(shape.rows);
}

}  // namespace

absl::StatusOr<BucketTable> BucketTable::Create(std::vector<int64_t> capacities,
                                                std::string_view prefix) {
  std::vector<BatchShape> shapes;
  for (const int64_t capacity : capacities) shapes.push_back({.rows = capacity});
  return CreateSorted(std::move(shapes), /*two_dimensions=*/false, prefix);
}

absl::StatusOr<BucketTable> BucketTable::CreateGrid(std::vector<BatchShape> shapes,
                                                    std::string_view prefix) {
  return CreateSorted(std::move(shapes), /*two_dimensions=*/true, prefix);
}

absl::StatusOr<BucketTable> BucketTable::CreateSorted(std::vector<BatchShape> shapes,
                                                      bool two_dimensions,
                                                      std::string_view prefix) {
  if (shapes.empty()) return absl::InvalidArgumentError("no buckets; allowed: at least one");
  for (const BatchShape& shape : shapes) {
    int64_t cells = 0;
    if (shape.rows >= 1 && shape.tokens >= 1 &&
        !__builtin_mul_overflow(shape.rows, shape.tokens, &cells)) {
      continue;
    }
    return absl::InvalidArgumentError(absl::StrCat(
        "bucket capacity is ", SizeText(shape, two_dimensions), "; allowed: at least 1",
        two_dimensions ? " of both, and a product that fits 64 bits" : ""));
  }
  const auto before = [](const BatchShape& a, const BatchShape& b) {
    const int64_t cells_a = a.rows * a.tokens;
    const int64_t cells_b = b.rows * b.tokens;
    return cells_a != cells_b ? cells_a < cells_b : a.rows < b.rows;
  };
  std::sort(shapes.begin(), shapes.end(), before);
  shapes.erase(std::unique(shapes.begin(), shapes.end()), shapes.end());
  BucketTable table;
  table.two_dimensions_ = two_dimensions;
  for (const BatchShape& shape : shapes) {
    table.buckets_.push_back({.index = static_cast<int>(table.buckets_.size()),
                              .capacity = shape.rows,
                              .name = absl::StrCat(absl::string_view(prefix.data(), prefix.size()),
                                                   "/", SizeText(shape, two_dimensions)),
                              .tokens = shape.tokens});
    table.max_capacity_ = std::max(table.max_capacity_, shape.rows);
    table.max_tokens_ = std::max(table.max_tokens_, shape.tokens);
  }
  return table;
}

std::vector<int64_t> BucketTable::PowersOfTwoUpTo(int64_t max) {
  std::vector<int64_t> capacities;
  if (max < 1) return capacities;
  for (int64_t capacity = 1; capacity < max; capacity *= 2) {
    capacities.push_back(capacity);
    if (capacity > max / 2) break;  // the next one would pass `max`, or overflow
  }
  capacities.push_back(max);
  return capacities;
}

absl::Status BucketTable::CheckShape(const BatchShape& shape) const {
  if (shape.rows >= 1 && shape.tokens >= 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("size is ", SizeText(shape, two_dimensions_ || shape.tokens != 1),
                   "; allowed: 1 to ", max_capacity(),
                   two_dimensions_ ? absl::StrCat(" rows of 1 to ", max_tokens_, " tokens") : ""));
}

absl::Status BucketTable::TooLarge(const BatchShape& shape) const {
  return absl::OutOfRangeError(
      absl::StrCat("size is ", SizeText(shape, two_dimensions_ || shape.tokens != 1),
                   "; the largest bucket is '", buckets_.back().name, "'"));
}

absl::StatusOr<const Bucket*> BucketTable::SmallestThatFits(int64_t size) const {
  return SmallestThatFits(BatchShape{.rows = size});
}

absl::StatusOr<const Bucket*> BucketTable::SmallestThatFits(const BatchShape& shape) const {
  if (const absl::Status status = CheckShape(shape); !status.ok()) return status;
  const auto it = std::find_if(buckets_.begin(), buckets_.end(),
                               [&](const Bucket& bucket) { return bucket.Fits(shape); });
  if (it == buckets_.end()) return TooLarge(shape);
  return &*it;
}

void BucketTable::SetWorkspace(void* data, std::span<const size_t> bytes) {
  for (size_t i = 0; i < buckets_.size(); ++i) {
    buckets_[i].workspace = data;
    buckets_[i].workspace_bytes = bytes[i];
  }
}

}  // namespace reprise::graphs
