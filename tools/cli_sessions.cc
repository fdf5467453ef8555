// SPDX-License-Identifier: Apache-2.0
// `reprise sessions`: the sessions of all clients of a server, for its administrators: lists them,
// and evicts one.
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "grpcpp/client_context.h"
#include "reprise/v1/step_service.grpc.pb.h"
#include "runtime/status_macros.h"
#include "tools/admin_server.h"
#include "tools/byte_text.h"
#include "tools/cli.h"
#include "tools/connection_flags.h"
#include "tools/console.h"
#include "tools/record.h"
#include "tools/table.h"
#include "tools/units.h"

namespace reprise::tools {
namespace {

constexpr char kSessionsExamples[] =
    "Examples:\n"
    "  reprise sessions list\n"
    "  reprise sessions list --json -\n"
    "  reprise sessions evict 7 --reason \"maintenance at noon\"\n"
    "\n"
    "The server's identities say who is an administrator; one without identities has to be started "
    "with --allow-administration.";

constexpr uint32_t kSessionsOfOneAnswer = 1000;

struct SessionsFlags {
  ConnectionOptions connection;
  std::string json;
};

struct EvictFlags : SessionsFlags {
  uint64_t id = 0;
  std::string reason;
};

absl::StatusOr<std::vector<v1::SessionStatus>> ListAll(const AdminServer& server) {
  std::vector<v1::SessionStatus> sessions;
  v1::ListSessionsRequest request;
  request.set_max_sessions(kSessionsOfOneAnswer);
  v1::ListSessionsResponse response;
  do {
    grpc::ClientContext context;
    server.Prepare(&context);
    REPRISE_RETURN_IF_ERROR(
        FromGrpc(server.stub->ListSessions(&context, request, &response), "ListSessions"));
    sessions.insert(sessions.end(), response.sessions().begin(), response.sessions().end());
    if (!sessions.empty()) request.set_after(sessions.back().id());
  } while (response.more() && !response.sessions().empty());
  return sessions;
}

std::string Time(uint64_t ms) { return FormatDuration(static_cast<double>(ms) * 1e6); }

double JointShare(const v1::SessionStatus& session) {
  if (session.requests() == 0) return 0;
  return static_cast<double>(session.joint_requests()) / static_cast<double>(session.requests());
}

// What others chose must not move the cursor, or pass for another line.
std::string Printable(std::string_view text) {
  std::string printable = ByteText(TokensOfText(text));
  return absl::StrReplaceAll(printable, {{"\n", "\\x0a"}});
}

std::string SessionsText(const std::vector<v1::SessionStatus>& sessions, size_t width) {
  if (sessions.empty()) return "no sessions are open\n";
  Table table({"id", "identity", "client", "rows", "blocks", "requests", "joint", "age", "idle",
               "stream", "peer"});
  for (const v1::SessionStatus& session : sessions) {
    table.AddRow(
        {absl::StrCat(session.id()), Printable(session.identity()), Printable(session.client()),
         FormatCount(session.rows()), FormatCount(session.blocks()),
         FormatCount(session.requests()), FormatPercent(JointShare(session)),
         Time(session.age_ms()), Time(session.idle_ms()),
         session.attached() ? "attached"
                            : absl::StrCat("lost, ", Time(session.grace_left_ms()), " left"),
         Printable(session.peer())});
  }
  return table.ToString(width);
}

nlohmann::json SessionJson(const v1::SessionStatus& session) {
  return {{"id", session.id()},
          {"identity", session.identity()},
          {"peer", session.peer()},
          {"client", session.client()},
          {"age_seconds", static_cast<double>(session.age_ms()) / 1e3},
          {"idle_seconds", static_cast<double>(session.idle_ms()) / 1e3},
          {"attached", session.attached()},
          {"resume_grace_seconds", static_cast<double>(session.resume_grace_ms()) / 1e3},
          {"grace_left_seconds", static_cast<double>(session.grace_left_ms()) / 1e3},
          {"rows", session.rows()},
          {"blocks", session.blocks()},
          {"last_sequence", session.last_sequence()},
          {"requests", session.requests()},
          {"joint_requests", session.joint_requests()}};
}

absl::Status List(const SessionsFlags& flags, const Invocation& invocation) {
  REPRISE_RETURN_IF_ERROR(PrepareRecord(flags.json, invocation.console));
  REPRISE_ASSIGN_OR_RETURN(const AdminServer server, ConnectToAdminister(flags.connection));
  REPRISE_ASSIGN_OR_RETURN(const std::vector<v1::SessionStatus> sessions, ListAll(server));
  invocation.console->Print(SessionsText(sessions, invocation.console->width()));
  nlohmann::json record = RecordOf("sessions list", invocation);
  record["address"] = flags.connection.address;
  record["sessions"] = nlohmann::json::array();
  for (const v1::SessionStatus& session : sessions)
    record["sessions"].push_back(SessionJson(session));
  return WriteRecord(flags.json, record, invocation.console);
}

absl::Status Evict(const EvictFlags& flags, const Invocation& invocation) {
  REPRISE_RETURN_IF_ERROR(PrepareRecord(flags.json, invocation.console));
  REPRISE_ASSIGN_OR_RETURN(const AdminServer server, ConnectToAdminister(flags.connection));
  grpc::ClientContext context;
  server.Prepare(&context);
  v1::EvictSessionRequest request;
  request.set_id(flags.id);
  request.set_reason(flags.reason);
  v1::EvictSessionResponse response;
  REPRISE_RETURN_IF_ERROR(
      FromGrpc(server.stub->EvictSession(&context, request, &response), "EvictSession"));
  invocation.console->Print(absl::StrCat("session ", flags.id, " is evicted\n"));
  nlohmann::json record = RecordOf("sessions evict", invocation);
  record["address"] = flags.connection.address;
  record["evicted"] = flags.id;
  record["reason"] = flags.reason;
  return WriteRecord(flags.json, record, invocation.console);
}

void AddCommonOptions(CLI::App* app, SessionsFlags* flags) {
  AddAddressOption(app, &flags->connection);
  app->add_option("--json", flags->json, "The same as JSON too; -: to stdout")->type_name("FILE");
  AddProofOptions(app, &flags->connection);
}

Command AddListCommand(CLI::App* sessions) {
  auto flags = std::make_shared<SessionsFlags>();
  CLI::App* app = sessions->add_subcommand("list", "List the sessions of all clients");
  AddCommonOptions(app, flags.get());
  return {app, [flags](const Invocation& invocation) { return List(*flags, invocation); }};
}

Command AddEvictCommand(CLI::App* sessions) {
  auto flags = std::make_shared<EvictFlags>();
  CLI::App* app = sessions->add_subcommand(
      "evict", "End a session: its client is told, what it held is free after its steps in flight");
  app->add_option("ID", flags->id, "Of the session, as `reprise sessions list` has it")->required();
  app->add_option("--reason", flags->reason, "What its client is told")->type_name("TEXT");
  AddCommonOptions(app, flags.get());
  return {app, [flags](const Invocation& invocation) { return Evict(*flags, invocation); }};
}

}  // namespace

Command AddSessionsCommand(CLI::App* root) {
  CLI::App* app = root->add_subcommand("sessions", "List the sessions of a server, or evict one");
  app->footer(kSessionsExamples);
  return CommandOf(app, {AddListCommand(app), AddEvictCommand(app)});
}

}  // namespace reprise::tools
