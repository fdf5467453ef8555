// SPDX-License-Identifier: Apache-2.0
// `reprise health`: asks a server's standard health service, for scripts that wait for it.
#include <chrono>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"
#include "tools/address.h"
#include "tools/cli.h"
#include "tools/connection.h"
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
  std::string address{kDefaultAddress};
  std::chrono::nanoseconds wait{0};
};

absl::Status Health(const HealthFlags& flags, Console* console) {
  REPRISE_RETURN_IF_ERROR(
      WaitUntilServing(OpenChannel(flags.address), flags.address, flags.wait, nullptr));
  console->Print(absl::StrCat("SERVING on ", flags.address, "\n"));
  return absl::OkStatus();
}

}  // namespace

Command AddHealthCommand(CLI::App* root) {
  auto flags = std::make_shared<HealthFlags>();
  CLI::App* app = root->add_subcommand("health", "Ask a server whether it is ready");
  app->footer(kExamples);
  AddOption(app, "--address", &flags->address, ParseAddress, "ADDRESS",
            std::string(kDefaultAddress), "Of the server: HOST:PORT or unix:PATH");
  AddOption(app, "--wait", &flags->wait, ParseDuration, "TIME", "0s",
            "Wait this long for it to become ready");
  return {app,
          [flags](const Invocation& invocation) { return Health(*flags, invocation.console); }};
}

}  // namespace reprise::tools
