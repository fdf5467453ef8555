// SPDX-License-Identifier: Apache-2.0
// What main() calls.
#ifndef REPRISE_TOOLS_COMMAND_LINE_H_
#define REPRISE_TOOLS_COMMAND_LINE_H_

#include <string>

namespace reprise::tools {

// The commit that the program was built from, "-dirty" behind it where files differed from it; ""
// where that is not known. Only the program has it, not the library.
extern const char kCommit[];

// Parses, runs, reports: one line on stderr for whatever goes wrong. Returns the exit code.
int RunCommandLine(int argc, const char* const* argv, const std::string& commit);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_COMMAND_LINE_H_
