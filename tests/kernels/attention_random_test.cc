// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/kernels/attention_fixture.h"
#include "tests/testing/random_attention.h"

namespace reprise::testing {
namespace {

using kernels::AttentionCandidate;
using runtime::DType;

// REPRISE_ATTENTION_CASES=<first number>[:<how many>] runs these cases in place of the usual ones:
// a failure names its number, and the test that it is for. No two devices and dtypes draw the same.
TEST_P(AttentionTest, RandomCasesMatchTheOracle) {
  const bool gpu = !is_emulated() && GetParam().device != runtime::DeviceKind::kHost;
  const RandomAttentionLimits limits = gpu ? RandomAttentionLimits{5, 1500, 130, 20'000'000}
                                       : is_emulated() ? RandomAttentionLimits{}
                                                       : RandomAttentionLimits{3, 150, 20, 200'000};
  uint64_t first = 1'000'000 * static_cast<uint64_t>(GetParam().emulated) +
                   100'000 * static_cast<uint64_t>(GetParam().device) +
                   10'000 * static_cast<uint64_t>(dtype()) +
                   2'000 * static_cast<uint64_t>(GetParam().kv.value_or(DType::kF32));
  uint64_t count = gpu ? 1000 : is_emulated() ? 60 : 100;
  if (const char* const asked = std::getenv("REPRISE_ATTENTION_CASES"); asked != nullptr) {
    const std::pair<std::string, std::string> parts =
        absl::StrSplit(asked, absl::MaxSplits(':', 1));
    count = 1;
    ASSERT_TRUE(absl::SimpleAtoi(parts.first, &first)) << asked;
    ASSERT_TRUE(parts.second.empty() || absl::SimpleAtoi(parts.second, &count)) << asked;
  }
  for (uint64_t number = first; number < first + count && !HasFailure(); ++number) {
    const RandomAttention random(number, limits);
    SCOPED_TRACE(absl::StrCat("REPRISE_ATTENTION_CASES=", number, ": ", random.Text()));
    LimitMultiprocessors(random.multiprocessors);
    const std::vector<RowData> rows = MakeRows(random.shape, dtype(), kv_dtype(), number);
    for (const AttentionCandidate candidate : Candidates())
      if (count == 1 || candidate == AttentionCandidate::kBest || IsOfThisUnit(number))
        ExpectOracle(random.shape, rows, candidate);
  }
}

}  // namespace
}  // namespace reprise::testing
