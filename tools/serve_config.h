// SPDX-License-Identifier: Apache-2.0
// Whether `reprise serve --config` takes a file, asked without starting a server: for commands that
// write such files. cli_serve.cc, whose options they are, has it.
#ifndef REPRISE_TOOLS_SERVE_CONFIG_H_
#define REPRISE_TOOLS_SERVE_CONFIG_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/decode_engine.h"

namespace reprise::tools {

// The engine's options that the file comes to, and defaults.
//
// `text`: the file's; `path` begins the messages. A file without a model is no error: the command
// line may name it. What depends on the model is checked where its config can be read here; whether
// devices, addresses and other files are there is not. Errors: usage errors name the line and the
// key, or what does not go together; FailedPrecondition names buckets that the file's own settings
// do not allow (key, got, allowed).
absl::StatusOr<engine::DecodeEngineOptions> CheckServeConfig(const std::string& path,
                                                             std::string_view text);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_SERVE_CONFIG_H_
