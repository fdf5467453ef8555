// SPDX-License-Identifier: Apache-2.0
// `reprise reload`: has a server read its files of identities and TLS again.
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "grpcpp/client_context.h"
#include "reprise/v1/step_service.grpc.pb.h"
#include "runtime/status_macros.h"
#include "tools/admin_server.h"
#include "tools/cli.h"
#include "tools/connection_flags.h"
#include "tools/console.h"
#include "tools/record.h"

namespace reprise::tools {
namespace {

constexpr char kReloadExamples[] =
    "Examples:\n"
    "  reprise reload --address unix:/run/reprise.sock\n"
    "\n"
    "All files are taken, or none: where one is wrong, the error names it and the place, and what "
    "was in force stays. The server's identities say who is an administrator; one without "
    "identities has to be started with --allow-administration. SIGHUP does the same on the "
    "server's host.";

struct ReloadFlags {
  ConnectionOptions connection;
  std::string json;
};

absl::Status Reload(const ReloadFlags& flags, const Invocation& invocation) {
  REPRISE_RETURN_IF_ERROR(PrepareRecord(flags.json, invocation.console));
  REPRISE_ASSIGN_OR_RETURN(const AdminServer server, ConnectToAdminister(flags.connection));
  grpc::ClientContext context;
  server.Prepare(&context);
  v1::ReloadFilesResponse change;
  REPRISE_RETURN_IF_ERROR(FromGrpc(
      server.stub->ReloadFiles(&context, v1::ReloadFilesRequest(), &change), "ReloadFiles"));
  invocation.console->Print(
      absl::StrCat("identities: ", change.identities_added(), " added, ",
                   change.identities_changed(), " changed, ", change.identities_removed(),
                   " removed; sessions ended: ", change.sessions_ended(),
                   "\nTLS: ", change.tls() ? "read again, for new connections\n" : "none\n"));
  nlohmann::json record = RecordOf("reload", invocation);
  record["address"] = flags.connection.address;
  record["identities"] = {{"added", change.identities_added()},
                          {"changed", change.identities_changed()},
                          {"removed", change.identities_removed()}};
  record["sessions_ended"] = change.sessions_ended();
  record["tls"] = change.tls();
  return WriteRecord(flags.json, record, invocation.console);
}

}  // namespace

Command AddReloadCommand(CLI::App* root) {
  auto flags = std::make_shared<ReloadFlags>();
  CLI::App* app =
      root->add_subcommand("reload", "Have a server read its identities and TLS files again");
  app->footer(kReloadExamples);
  AddAddressOption(app, &flags->connection);
  app->add_option("--json", flags->json, "The same as JSON too; -: to stdout")->type_name("FILE");
  AddProofOptions(app, &flags->connection);
  return {app, [flags](const Invocation& invocation) { return Reload(*flags, invocation); }};
}

}  // namespace reprise::tools
