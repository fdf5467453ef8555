// SPDX-License-Identifier: Apache-2.0
// Advice as text for people and as JSON for programs (docs/advise.schema.json).
#ifndef REPRISE_TOOLS_ADVISE_ADVICE_REPORT_H_
#define REPRISE_TOOLS_ADVISE_ADVICE_REPORT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "tools/advise/advice.h"
#include "tools/advise/bucket_cost.h"
#include "tools/advise/verify.h"

namespace reprise::tools {

// What was measured of the sets.
struct Verification {
  uint32_t steps = 0;  // of a round
  VerifiedSet current, advised;
  std::optional<VerifiedSet> powers_of_two = {};  // unset where that is one of the other two
};

// "--decode-buckets 1,3,8 --mixed-buckets 64"; without the latter where there are none.
std::string BucketFlags(const BucketSet& set);

// `width` columns wide at most. The options are those that the advice comes from.
std::string AdviceText(const Advice& advice, const BucketCost& cost, size_t width);
std::string VerificationText(const Verification& verification, size_t width);
// Which measured changes mean nothing: those that are smaller than the spread of rounds.
std::vector<std::string> VerificationWarnings(const Verification& verification);

// Without what RecordOf says. `files`: of the trace.
nlohmann::json AdviceToJson(const std::vector<std::string>& files, const Advice& advice,
                            const BucketCost& cost, const AdviceOptions& options,
                            const std::optional<Verification>& verification);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_ADVISE_ADVICE_REPORT_H_
