// SPDX-License-Identifier: Apache-2.0
// Which files a command line writes and reads, and that none of them would be lost: that no two
// outputs are one file, and that no output is a file that is read.
#ifndef REPRISE_TOOLS_OUTPUTS_H_
#define REPRISE_TOOLS_OUTPUTS_H_

#include <string>
#include <vector>

#include "CLI/App.hpp"
#include "absl/status/status.h"

namespace reprise::tools {

// A file, and the option or argument that names it.
struct NamedFile {
  std::string option, path;
};

// Two paths are one file where they lead to the same place, by links too; devices and pipes take
// what several write. An input may be a model's directory, of which files are read that have
// the name of a part of a model. An output of "" is none, "-" is stdout. Errors: usage.
absl::Status CheckOutputs(const std::vector<NamedFile>& outputs,
                          const std::vector<NamedFile>& inputs);

// The same of all files that the options and arguments of `app`, which has been parsed, name.
absl::Status CheckOutputsOf(const CLI::App& app);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_OUTPUTS_H_
