// SPDX-License-Identifier: Apache-2.0
// `reprise health`: asks a server's standard health service, for scripts that wait for it.
#include <chrono>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "runtime/status_macros.h"
#include "tools/cli.h"
#include "tools/connection.h"
#include "tools/connection_flags.h"
#include "tools/console.h"
#include "tools/record.h"
#include "tools/units.h"

namespace reprise::tools {
namespace {

constexpr char kHealthExamples[] =
    "Examples:\n"
    "  reprise health\n"
    "  reprise health --address unix:/tmp/reprise.sock --wait 60s\n"
    "  reprise health --json -\n"
    "\n"
    "Exit codes: 0 the server says SERVING: it has loaded, captured, and can run steps; 1 it says "
    "something else, or nobody answers; 2 wrong usage.";

struct HealthFlags {
  ConnectionOptions connection;
  std::chrono::nanoseconds wait{0};
  std::string json_file;
};

absl::Status Health(const HealthFlags& flags, const Invocation& invocation) {
  const std::string& address = flags.connection.address;
  REPRISE_RETURN_IF_ERROR(CheckConnectionOptions(flags.connection));
  REPRISE_RETURN_IF_ERROR(PrepareRecord(flags.json_file, invocation.console));
  REPRISE_ASSIGN_OR_RETURN(const Connection connection, Connection::Open(flags.connection));
  const auto start = std::chrono::steady_clock::now();
  const absl::Status waited = WaitUntilServing(connection.channel(), address, flags.wait, nullptr);
  const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - start;
  nlohmann::json record = RecordOf("health", invocation);
  record["schema"] = "reprise.health/1";
  record["address"] = address;
  record["status"] = ServingStatusOf(waited);
  record["waited_ms"] = time.count();
  record["error"] = nullptr;
  if (!waited.ok()) record["error"] = std::string(waited.message());
  if (waited.ok()) invocation.console->Print(absl::StrCat("SERVING on ", address, "\n"));
  const absl::Status written = WriteRecord(flags.json_file, record, invocation.console);
  return waited.ok() ? written : waited;
}

}  // namespace

Command AddHealthCommand(CLI::App* root) {
  auto flags = std::make_shared<HealthFlags>();
  CLI::App* app = root->add_subcommand("health", "Ask a server whether it is ready");
  app->footer(kHealthExamples);
  AddAddressOption(app, &flags->connection);
  AddOption(app, "--wait", &flags->wait, ParseDuration, "TIME", "0s",
            "Wait this long for it to become ready");
  AddProofOptions(app, &flags->connection);
  AddFileOption(app, "--json", &flags->json_file, "Write the answer as JSON; -: to stdout");
  return {app, [flags](const Invocation& invocation) { return Health(*flags, invocation); }};
}

}  // namespace reprise::tools
