// SPDX-License-Identifier: Apache-2.0
// The options by which a command says how to reach a server and who it is, for the commands that
// connect to one.
#ifndef REPRISE_TOOLS_CONNECTION_FLAGS_H_
#define REPRISE_TOOLS_CONNECTION_FLAGS_H_

#include <string>

#include "CLI/App.hpp"
#include "absl/status/status.h"
#include "tools/connection.h"

namespace reprise::tools {

// An option whose value is a file's name, which may not be empty: what an unset variable of a shell
// leaves is no word that the option was not given.
CLI::Option* AddFileOption(CLI::App* app, const std::string& name, std::string* file,
                           const std::string& description);

// --address.
void AddAddressOption(CLI::App* app, ConnectionOptions* options);
// --tls-ca, --tls-certificate, --tls-key, --token-file.
void AddProofOptions(CLI::App* app, ConnectionOptions* options);

// Usage errors of options that are wrong together: half of a pair, certificates without TLS, TLS on
// a unix socket, a token that would travel in the clear.
absl::Status CheckConnectionOptions(const ConnectionOptions& options);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_CONNECTION_FLAGS_H_
