// SPDX-License-Identifier: Apache-2.0
// `reprise health`: asks a server's standard health service, for scripts that wait for it.
#include <chrono>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"
#include "tools/cli.h"
#include "tools/connection.h"
#include "tools/connection_flags.h"
#include "tools/console.h"
#include "tools/units.h"

namespace reprise::tools {
namespace {

constexpr char kExamples[] =
    "Examples:\n"
    "  reprise health\n"
    "  reprise health --address unix:/tmp/reprise.sock --wait 60s\n"
    "\n"
    "Exits with 0 when the server says SERVING: it has loaded, captured, and can run steps.";

struct HealthFlags {
  ConnectionOptions connection;
  std::chrono::nanoseconds wait{0};
};

absl::Status Health(const HealthFlags& flags, Console* console) {
  const std::string& address = flags.connection.address;
  REPRISE_RETURN_IF_ERROR(CheckConnectionOptions(flags.connection));
  REPRISE_ASSIGN_OR_RETURN(const Connection connection, Connection::Open(flags.connection));
  REPRISE_RETURN_IF_ERROR(WaitUntilServing(connection.channel(), address, flags.wait, nullptr));
  console->Print(absl::StrCat("SERVING on ", address, "\n"));
  return absl::OkStatus();
}

}  // namespace

Command AddHealthCommand(CLI::App* root) {
  auto flags = std::make_shared<HealthFlags>();
  CLI::App* app = root->add_subcommand("health", "Ask a server whether it is ready");
  app->footer(kExamples);
  AddAddressOption(app, &flags->connection);
  AddOption(app, "--wait", &flags->wait, ParseDuration, "TIME", "0s",
            "Wait this long for it to become ready");
  AddProofOptions(app, &flags->connection);
  return {app,
          [flags](const Invocation& invocation) { return Health(*flags, invocation.console); }};
}

}  // namespace reprise::tools
