// SPDX-License-Identifier: Apache-2.0
#include "service/kv/kv_exchange.h"

#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "reprise/v1/step_service.pb.h"
#include "runtime/status_macros.h"
#include "service/kv/kv_ticket.h"
#include "service/kv/kv_wire.h"
#include "service/session_token.h"

namespace reprise::service {
namespace {

absl::Status CheckDirectory(const std::string& path) {
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0) {
    const std::string what = absl::StrCat("kv exchange: ", path, ": ", std::strerror(errno));
    return errno == ENOENT ? absl::NotFoundError(what) : absl::UnavailableError(what);
  }
  if (S_ISDIR(info.st_mode) && info.st_uid == geteuid() && (info.st_mode & 077) == 0)
    return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat(
      "kv exchange: ", path, ": got ", S_ISDIR(info.st_mode) ? "a directory" : "no directory",
      " of user ", info.st_uid, " with mode ", absl::Hex(info.st_mode & 0777),
      " (hexadecimal), allowed: a directory of user ", geteuid(),
      " that nobody else may use (chmod 700)"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<KvExchange>> KvExchange::Create(engine::DecodeEngine& engine,
                                                               const std::string& directory,
                                                               const std::string& model) {
  REPRISE_RETURN_IF_ERROR(CheckDirectory(directory));
  REPRISE_RETURN_IF_ERROR(ExportWindow::RemoveLeftBehind(directory));
  v1::KvLayout layout;
  KvLayoutToWire(engine.info().kv, model, &layout);
  std::unique_ptr<KvExchange> exchange(
      new KvExchange(engine, directory, layout.SerializeAsString()));
  const engine::ExportSpace space = engine.export_space();
  if (space.num_places == 0) return exchange;
  REPRISE_ASSIGN_OR_RETURN(
      exchange->own_,
      ExportWindow::Make(directory, {.id = std::string(SessionToken::Random().bytes()),
                                     .num_places = space.num_places,
                                     .handle = space.handle,
                                     .arrangement = space.arrangement,
                                     .layout = exchange->layout_}));
  engine.OnExportsFreed([window = exchange->own_.get()](std::span<const uint32_t> places) {
    for (const uint32_t place : places) window->Revoke(place);
  });
  return exchange;
}

KvExchange::~KvExchange() { engine_.OnExportsFreed({}); }

absl::StatusOr<std::vector<std::string>> KvExchange::Export(engine::SessionId session,
                                                            std::string_view identity,
                                                            std::span<const uint32_t> blocks) {
  std::vector<std::string> tickets;
  const auto publish = [&](std::span<const engine::ExportedBlock> exported) {
    for (const engine::ExportedBlock& block : exported) {
      const SessionToken key = SessionToken::Random();
      own_->Publish(block.place, key.bytes(), identity, block.num_tokens);
      tickets.push_back(
          BytesOf({.window = own_->description().id, .place = block.place, .key = key.bytes()}));
    }
  };
  REPRISE_RETURN_IF_ERROR(engine_.ExportBlocks(session, blocks, publish));
  return tickets;
}

absl::Status KvExchange::FreeExported(engine::SessionId session,
                                      std::span<const std::string_view> tickets) {
  std::vector<uint32_t> places;
  for (const std::string_view text : tickets) {
    REPRISE_ASSIGN_OR_RETURN(const KvTicket ticket, ParseKvTicket(text));
    if (own_ == nullptr || ticket.window != own_->description().id) {
      return absl::NotFoundError(
          "tickets: got one of another server, allowed: those that this one exported");
    }
    places.push_back(ticket.place);
  }
  return engine_.FreeExported(session, places);
}

absl::Status KvExchange::CheckFits(const ExportWindow::Description& description) const {
  v1::KvLayout theirs, own;
  if (!theirs.ParseFromString(description.layout) || !own.ParseFromString(layout_))
    return absl::FailedPreconditionError("tickets: the layout of the other server is none");
  REPRISE_RETURN_IF_ERROR(CheckKvLayout(theirs, own));
  const std::string arrangement = engine_.export_space().arrangement;
  if (description.arrangement == arrangement) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("tickets: got blocks that lie as \"", description.arrangement,
                   "\" on their device, allowed: as on this one, \"", arrangement, "\""));
}

absl::StatusOr<KvExchange::Source> KvExchange::Open(std::string_view id) {
  Opened opened;
  absl::StatusOr<std::unique_ptr<ExportWindow>> window = ExportWindow::Open(directory_, id);
  if (absl::IsNotFound(window.status())) {
    return absl::NotFoundError(
        "tickets: got some of a server that is not there, allowed: of one that runs with the same "
        "--kv-exchange");
  }
  if (!window.ok()) return window.status();
  opened.window = *std::move(window);
  const ExportWindow::Description& description = opened.window->description();
  REPRISE_RETURN_IF_ERROR(CheckFits(description));
  REPRISE_ASSIGN_OR_RETURN(opened.memory,
                           engine_.OpenExportSpace(description.handle, description.num_places));
  const auto kept = opened_.emplace(std::string(id), std::move(opened)).first;
  return Source{.window = kept->second.window.get(), .data = kept->second.memory.data()};
}

absl::StatusOr<KvExchange::Source> KvExchange::Find(std::string_view id) {
  if (own_ != nullptr && id == own_->description().id)
    return Source{.window = own_.get(), .data = engine_.export_space().data};
  // Memory of servers that have ended is given back. No copy from it is under way: each is awaited.
  absl::erase_if(opened_, [](const auto& entry) { return !entry.second.window->IsAlive(); });
  const auto found = opened_.find(std::string(id));
  if (found == opened_.end()) return Open(id);
  return Source{.window = found->second.window.get(), .data = found->second.memory.data()};
}

absl::StatusOr<std::vector<uint32_t>> KvExchange::Import(engine::SessionId session,
                                                         std::string_view identity,
                                                         std::span<const uint32_t> blocks,
                                                         std::span<const std::string_view> texts) {
  if (texts.empty() || texts.size() != blocks.size()) {
    return absl::InvalidArgumentError(absl::StrCat("tickets: got ", texts.size(), " for ",
                                                   blocks.size(),
                                                   " blocks, allowed: one for each, 1 or more"));
  }
  std::vector<KvTicket> tickets;
  for (const std::string_view text : texts) {
    REPRISE_ASSIGN_OR_RETURN(tickets.emplace_back(), ParseKvTicket(text));
    if (tickets.back().window == tickets.front().window) continue;
    return absl::InvalidArgumentError(
        "tickets: got those of several servers, allowed: of one in a call");
  }
  REPRISE_ASSIGN_OR_RETURN(const Source source, Find(tickets.front().window));
  std::vector<engine::ExportedBlock> copies;
  for (const KvTicket& ticket : tickets) {
    const std::optional<uint32_t> tokens = source.window->Find(ticket.place, ticket.key, identity);
    if (!tokens || *tokens == 0 || *tokens > engine_.info().kv.block_size) {
      return absl::NotFoundError(
          "tickets: got one for which there is no copy (any more), allowed: those of sessions of "
          "this identity that are open");
    }
    copies.push_back({.place = ticket.place, .num_tokens = *tokens});
  }
  const auto check = [&]() -> absl::Status {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    for (const KvTicket& ticket : tickets) {
      if (source.window->Find(ticket.place, ticket.key, identity)) continue;
      return absl::DataLossError("tickets: a copy was freed while it was read");
    }
    return absl::OkStatus();
  };
  REPRISE_RETURN_IF_ERROR(engine_.ImportBlocks(
      session, blocks, {.data = source.data, .blocks = copies, .check = check}));
  std::vector<uint32_t> num_tokens;
  for (const engine::ExportedBlock& copy : copies) num_tokens.push_back(copy.num_tokens);
  return num_tokens;
}

}  // namespace reprise::service
