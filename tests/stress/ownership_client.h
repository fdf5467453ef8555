// SPDX-License-Identifier: Apache-2.0
// A client of the ownership run: decodes, forks, swaps, shares, exports and gives up sessions, and
// harms itself in every way that a client can, until the model says stop. Checks every token, and
// tells the model of every block.
#ifndef REPRISE_TESTS_STRESS_OWNERSHIP_CLIENT_H_
#define REPRISE_TESTS_STRESS_OWNERSHIP_CLIENT_H_

#include <cstdint>
#include <string>

#include "tests/stress/ownership_model.h"

namespace reprise::stress {

// What a bearer of the identity sends, and what it is called.
std::string IdentityName(uint32_t identity);
std::string IdentityToken(uint32_t identity);

inline constexpr uint32_t kOwnershipBlockSize = 4;
inline constexpr float kOwnershipTemperature = 0.9f;
// How long a session outlives its stream, where its client asks for that.
inline constexpr uint64_t kOwnershipGraceMs = 2000;

// Until the model stops. What was not as it must be is in the model's failure.
void RunOwnershipClient(OwnershipModel& model, const std::string& address, uint32_t slot,
                        uint64_t seed);

}  // namespace reprise::stress

#endif  // REPRISE_TESTS_STRESS_OWNERSHIP_CLIENT_H_
