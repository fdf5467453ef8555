// SPDX-License-Identifier: Apache-2.0
// The program's manual page, in the macros of man(7), made from the definitions that parse its
// command line: every command with its options and examples.
#ifndef REPRISE_TOOLS_MAN_PAGE_H_
#define REPRISE_TOOLS_MAN_PAGE_H_

#include <string>

#include "tools/cli.h"

namespace reprise::tools {

// `root`: the program's, with all its commands.
std::string ManPage(const CLI::App& root);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_MAN_PAGE_H_
