// SPDX-License-Identifier: Apache-2.0
// How far logits are from those of a reference: ||ours - reference|| / ||reference|| over all rows
// compared, and the largest difference.
#ifndef REPRISE_TESTS_ENGINE_LOGITS_COMPARISON_H_
#define REPRISE_TESTS_ENGINE_LOGITS_COMPARISON_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "runtime/dtype.h"

namespace reprise::testing {

using Logits = std::vector<std::vector<float>>;  // [rows][vocab]

// Allowed relative error of a whole model: bf16 and f16 round every weight and activation.
inline double LogitsTolerance(runtime::DType dtype) {
  return dtype == runtime::DType::kF32 ? 1e-4 : 2e-2;
}

// Sums of squares, and the largest difference, over all rows that it is shown.
class LogitsComparison {
 public:
  void Add(const std::vector<float>& got, const std::vector<float>& want) {
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) {
      const double difference = double{got[i]} - want[i];
      difference_ += difference * difference;
      reference_ += double{want[i]} * want[i];
      largest_ = std::max(largest_, std::fabs(difference));
    }
    ++num_rows_;
  }
  void Add(const LogitsComparison& other) {
    difference_ += other.difference_;
    reference_ += other.reference_;
    largest_ = std::max(largest_, other.largest_);
    num_rows_ += other.num_rows_;
  }
  double relative() const { return std::sqrt(difference_ / reference_); }
  double largest() const { return largest_; }
  int num_rows() const { return num_rows_; }

 private:
  double difference_ = 0.0, reference_ = 0.0, largest_ = 0.0;
  int num_rows_ = 0;
};

}  // namespace reprise::testing

#endif  // REPRISE_TESTS_ENGINE_LOGITS_COMPARISON_H_
