// SPDX-License-Identifier: Apache-2.0
// `reprise tree`: the attention tree of a running server: shows the one that is in force, and puts
// another in its place.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "engine/attention_tree_text.h"
#include "grpcpp/client_context.h"
#include "reprise/v1/step_service.grpc.pb.h"
#include "runtime/status_macros.h"
#include "service/wire/utf8.h"
#include "tools/admin_server.h"
#include "tools/byte_text.h"
#include "tools/cli.h"
#include "tools/connection_flags.h"
#include "tools/console.h"
#include "tools/input_file.h"
#include "tools/record.h"

namespace reprise::tools {
namespace {

constexpr char kTreeExamples[] =
    "Examples:\n"
    "  reprise tree show\n"
    "  reprise tree show --json -\n"
    "  reprise tree set tree.json\n"
    "\n"
    "A tree that is wrong is refused with its place, and the one in force stays; so is one that "
    "would change a row's bits where the server is batch invariant. Every identity may see the "
    "tree. Administrators may set it; a server without identities has to be started with "
    "--allow-attention-trees. docs/attention_tree.md says what trees are.";

struct TreeFlags {
  ConnectionOptions connection;
  std::string json;
};

struct SetTreeFlags : TreeFlags {
  std::string file;
};

using Names = google::protobuf::RepeatedPtrField<std::string>;

// `0 "one", 1 "more"`: steps name leaves by index.
std::string LeavesText(const Names& names) {
  std::string text;
  for (int i = 0; i < names.size(); ++i)
    absl::StrAppend(&text, i > 0 ? ", " : "", i, " ", nlohmann::json(names[i]).dump());
  return text;
}

std::string TreeText(const v1::AttentionTree& tree) {
  const std::string text =
      absl::StrCat("version ", tree.version(), tree.batch_invariant() ? ", batch invariant" : "",
                   "\nleaves of rows: ", LeavesText(tree.row_leaves()),
                   "\nleaves of batch: ", LeavesText(tree.batch_leaves()), "\n", tree.text());
  // What others chose must not move the cursor.
  return ByteText(TokensOfText(text));
}

nlohmann::json NamesJson(const Names& names) {
  nlohmann::json list = nlohmann::json::array();
  for (const std::string& name : names) list.push_back(name);
  return list;
}

absl::Status ShowTree(const TreeFlags& flags, const Invocation& invocation) {
  REPRISE_RETURN_IF_ERROR(PrepareRecord(flags.json, invocation.console));
  REPRISE_ASSIGN_OR_RETURN(const AdminServer server, ConnectToAdminister(flags.connection));
  grpc::ClientContext context;
  server.Prepare(&context);
  v1::DescribeResponse described;
  REPRISE_RETURN_IF_ERROR(
      FromGrpc(server.stub->Describe(&context, v1::DescribeRequest(), &described), "Describe"));
  const v1::AttentionTree& tree = described.attention_tree();
  invocation.console->Print(TreeText(tree));
  nlohmann::json record = RecordOf("tree show", invocation);
  record["address"] = flags.connection.address;
  record["version"] = tree.version();
  record["batch_invariant"] = tree.batch_invariant();
  record["row_leaves"] = NamesJson(tree.row_leaves());
  record["batch_leaves"] = NamesJson(tree.batch_leaves());
  record["text"] = tree.text();
  return WriteRecord(flags.json, record, invocation.console);
}

// Whether it is a tree the server says.
absl::StatusOr<std::string> ReadTreeText(const std::string& file) {
  REPRISE_ASSIGN_OR_RETURN(std::string text, ReadInputFileOrStdin("attention tree: ", file,
                                                                  engine::kMaxAttentionTreeBytes));
  if (service::ToUtf8(text) == text) return text;
  return absl::InvalidArgumentError(
      absl::StrCat("attention tree: ", file, ": got bytes that are no UTF-8, allowed: JSON text"));
}

absl::Status SetTree(const SetTreeFlags& flags, const Invocation& invocation) {
  REPRISE_RETURN_IF_ERROR(PrepareRecord(flags.json, invocation.console));
  REPRISE_ASSIGN_OR_RETURN(std::string text, ReadTreeText(flags.file));
  REPRISE_ASSIGN_OR_RETURN(const AdminServer server, ConnectToAdminister(flags.connection));
  grpc::ClientContext context;
  server.Prepare(&context);
  v1::SetAttentionTreeRequest request;
  request.set_text(std::move(text));
  v1::SetAttentionTreeResponse response;
  REPRISE_RETURN_IF_ERROR(
      FromGrpc(server.stub->SetAttentionTree(&context, request, &response), "SetAttentionTree"));
  // Each replacement makes it one more.
  const uint64_t before = response.version() - 1;
  invocation.console->Print(absl::StrCat("version ", response.version(),
                                         " of the attention tree is in force, in place of version ",
                                         before, "\n"));
  nlohmann::json record = RecordOf("tree set", invocation);
  record["address"] = flags.connection.address;
  record["file"] = flags.file;
  record["version"] = response.version();
  record["version_before"] = before;
  return WriteRecord(flags.json, record, invocation.console);
}

void AddCommonOptions(CLI::App* app, TreeFlags* flags) {
  AddAddressOption(app, &flags->connection);
  app->add_option("--json", flags->json, "The same as JSON too; -: to stdout")->type_name("FILE");
  AddProofOptions(app, &flags->connection);
}

Command AddShowCommand(CLI::App* tree) {
  auto flags = std::make_shared<TreeFlags>();
  CLI::App* app = tree->add_subcommand("show", "Show the tree that is in force, and its version");
  AddCommonOptions(app, flags.get());
  return {app, [flags](const Invocation& invocation) { return ShowTree(*flags, invocation); }};
}

Command AddSetCommand(CLI::App* tree) {
  auto flags = std::make_shared<SetTreeFlags>();
  CLI::App* app = tree->add_subcommand(
      "set", "Put another tree in force, from the next step on; nothing is captured again");
  AddFileOption(app, "FILE", &flags->file, "With the tree, as `reprise tune` writes it; -: stdin")
      ->required();
  AddCommonOptions(app, flags.get());
  return {app, [flags](const Invocation& invocation) { return SetTree(*flags, invocation); }};
}

}  // namespace

Command AddTreeCommand(CLI::App* root) {
  CLI::App* app =
      root->add_subcommand("tree", "Show the attention tree of a running server, or replace it");
  app->footer(kTreeExamples);
  return CommandOf(app, {AddShowCommand(app), AddSetCommand(app)});
}

}  // namespace reprise::tools
