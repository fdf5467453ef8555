// SPDX-License-Identifier: Apache-2.0
// BucketTable: the sizes that graphs are captured for, in one dimension or two, and the rule that
// picks one.
#ifndef REPRISE_GRAPHS_BUCKET_TABLE_H_
#define REPRISE_GRAPHS_BUCKET_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graphs/bucket.h"

namespace reprise::graphs {

// Distinct buckets, the one of the fewest cells first; of as many, the one of fewer rows.
class BucketTable {
 public:
  // In one dimension. Sorts and removes duplicates. Errors: InvalidArgument on none, or a capacity
  // < 1.
  static absl::StatusOr<BucketTable> Create(std::vector<int64_t> capacities,
                                            std::string_view prefix);
  // In two, likewise. Errors: InvalidArgument also where rows * tokens is beyond int64.
  static absl::StatusOr<BucketTable> CreateGrid(std::vector<BatchShape> shapes,
                                                std::string_view prefix);
  // 1, 2, 4, ... and `max` itself.
  static std::vector<int64_t> PowersOfTwoUpTo(int64_t max);

  // The smallest bucket with capacity >= size. Errors: InvalidArgument on size < 1; OutOfRange
  // (got, largest).
  absl::StatusOr<const Bucket*> SmallestThatFits(int64_t size) const;
  // The bucket of the fewest cells that has enough of both. Errors: the same.
  absl::StatusOr<const Bucket*> SmallestThatFits(const BatchShape& shape) const;
  // InvalidArgument where `shape` has less than 1 of either.
  absl::Status CheckShape(const BatchShape& shape) const;
  // OutOfRange: that `shape` fits no bucket.
  absl::Status TooLarge(const BatchShape& shape) const;

  std::span<const Bucket> buckets() const { return buckets_; }
  int64_t max_capacity() const { return max_capacity_; }

  // REQUIRES: one size for each bucket. All share the memory at `data`.
  void SetWorkspace(void* data, std::span<const size_t> bytes);

 private:
  static absl::StatusOr<BucketTable> CreateSorted(std::vector<BatchShape> shapes,
                                                  bool two_dimensions, std::string_view prefix);

  std::vector<Bucket> buckets_;
  int64_t max_capacity_ = 0;  // of any bucket
  int64_t max_tokens_ = 1;
  bool two_dimensions_ = false;
};

}  // namespace reprise::graphs

#endif  // REPRISE_GRAPHS_BUCKET_TABLE_H_
