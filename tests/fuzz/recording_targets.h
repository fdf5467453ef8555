// SPDX-License-Identifier: Apache-2.0
// What reads recordings of sessions, and repeats them: see targets.h.
#ifndef REPRISE_TESTS_FUZZ_RECORDING_TARGETS_H_
#define REPRISE_TESTS_FUZZ_RECORDING_TARGETS_H_

#include <string>
#include <string_view>
#include <vector>

namespace reprise::fuzz {

bool TakeRecording(std::string_view bytes);
std::vector<std::string> RecordingSeeds();

// One record of a file: checksums refuse nearly all that is almost right of a whole one.
bool TakeRecord(std::string_view bytes);
std::vector<std::string> RecordSeeds();

}  // namespace reprise::fuzz

#endif  // REPRISE_TESTS_FUZZ_RECORDING_TARGETS_H_
