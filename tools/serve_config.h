// SPDX-License-Identifier: Apache-2.0
// Whether `reprise serve --config` takes a file, asked without starting a server: for commands that
// write such files. cli_serve.cc, whose options they are, has it.
#ifndef REPRISE_TOOLS_SERVE_CONFIG_H_
#define REPRISE_TOOLS_SERVE_CONFIG_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace reprise::tools {

// How many rows the server would have.
struct ServeConfig {
  uint32_t max_rows = 0;  // of the file, or serve's default
  bool has_max_rows = false;
};

// `text`: the file's; `path` begins the messages. What a command line may add to the file is no
// error: a model, the other half of a pair of options. What depends on the model is checked where
// its config can be read here; whether devices, addresses and other files are there is not. Errors:
// usage errors name the line and the key, or what is wrong with the model; FailedPrecondition names
// buckets that the file's own settings do not allow (key, got, allowed).
absl::StatusOr<ServeConfig> CheckServeConfig(const std::string& path, std::string_view text);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_SERVE_CONFIG_H_
