// SPDX-License-Identifier: Apache-2.0
// KvExchange: how a server hands copies of KV blocks to others of the same machine, and takes
// theirs: over memory of the device that both map, in a directory that both were given and that is
// their user's alone. No client names memory: it has tickets (kv_ticket.h).
// Whoever exports under an identity, the same identity may import.
// Threads: any, but Export and Import from the KV queue's thread alone.
#ifndef REPRISE_SERVICE_KV_KV_EXCHANGE_H_
#define REPRISE_SERVICE_KV_KV_EXCHANGE_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/decode_engine.h"
#include "runtime/memory/shared_buffer.h"
#include "service/kv/export_window.h"

namespace reprise::service {

class KvExchange {
 public:
  // `engine` must outlive it, and no session be open before or after. `model`: ModelFingerprint.
  // Imports alone where the engine has no export space. Errors: of the directory (PermissionDenied:
  // not the user's alone), NotFound, Unavailable.
  static absl::StatusOr<std::unique_ptr<KvExchange>> Create(engine::DecodeEngine& engine,
                                                            const std::string& directory,
                                                            const std::string& model);
  ~KvExchange();
  KvExchange(const KvExchange&) = delete;
  KvExchange& operator=(const KvExchange&) = delete;

  // Tickets, in the order of the blocks. Errors: DecodeEngine::ExportBlocks's.
  absl::StatusOr<std::vector<std::string>> Export(engine::SessionId session,
                                                  std::string_view identity,
                                                  std::span<const uint32_t> blocks);
  // Errors: NotFound (no ticket of this server's); DecodeEngine::FreeExported's.
  absl::Status FreeExported(engine::SessionId session, std::span<const std::string_view> tickets);
  // Tokens of each. Errors: InvalidArgument (no tickets, malformed ones, of several servers, or not
  // one for each block), NotFound, FailedPrecondition (other layout), DataLoss (the copies went
  // meanwhile); DecodeEngine::ImportBlocks's.
  absl::StatusOr<std::vector<uint32_t>> Import(engine::SessionId session, std::string_view identity,
                                               std::span<const uint32_t> blocks,
                                               std::span<const std::string_view> tickets);

 private:
  // Another server's window, mapped.
  struct Opened {
    std::unique_ptr<ExportWindow> window;
    runtime::OpenedBuffer memory;
  };
  KvExchange(engine::DecodeEngine& engine, std::string directory, std::string layout)
      : engine_(engine), directory_(std::move(directory)), layout_(std::move(layout)) {}
  // Where another server's copies lie, or our own.
  struct Source {
    const ExportWindow* window = nullptr;
    const std::byte* data = nullptr;
  };
  absl::StatusOr<Source> Find(std::string_view id);
  absl::StatusOr<Source> Open(std::string_view id);
  absl::Status CheckFits(const ExportWindow::Description& description) const;

  engine::DecodeEngine& engine_;
  const std::string directory_;
  const std::string layout_;                         // v1.KvLayout, serialised
  std::unique_ptr<ExportWindow> own_;                // nullptr: no export space
  absl::flat_hash_map<std::string, Opened> opened_;  // by id
};

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_KV_KV_EXCHANGE_H_
