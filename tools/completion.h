// SPDX-License-Identifier: Apache-2.0
// Scripts that complete the program's command line in a shell, made from the definitions that
// parse it. What a value may be follows from what help calls it: FILE, DIR and PATH are files, and
// small letters between bars ("text|json") the words that there are.
#ifndef REPRISE_TOOLS_COMPLETION_H_
#define REPRISE_TOOLS_COMPLETION_H_

#include <string>

#include "tools/cli.h"

namespace reprise::tools {

enum class Shell : uint8_t { kBash, kZsh, kFish };

// `root`: the program's, with all its commands.
std::string CompletionScript(const CLI::App& root, Shell shell);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_COMPLETION_H_
