// SPDX-License-Identifier: Apache-2.0
// The target of targets.h that reads values of the command line, with what it takes to begin with.
#ifndef REPRISE_TESTS_FUZZ_COMMAND_LINE_TARGETS_H_
#define REPRISE_TESTS_FUZZ_COMMAND_LINE_TARGETS_H_

#include <string>
#include <string_view>
#include <vector>

namespace reprise::fuzz {

// The value of an option, read as each kind that there is: sizes, durations, lists, cells, points
// and so on. Taken where one of them takes it. Aborts where what was read is not what the kind may
// hold, or is another when it is written and read again.
bool TakeCommandLine(std::string_view bytes);
std::vector<std::string> CommandLineSeeds();

}  // namespace reprise::fuzz

#endif  // REPRISE_TESTS_FUZZ_COMMAND_LINE_TARGETS_H_
