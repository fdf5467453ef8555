// SPDX-License-Identifier: Apache-2.0
// KvTicket: what a client holds of a copy of a KV block, and hands to the server that is to import
// it: whose copy, which place, and the key that proves that the client was given it
// (kv_exchange.h). Opaque bytes to clients. A ticket may come from anywhere and say anything.
// Threads: any.
#ifndef REPRISE_SERVICE_KV_KV_TICKET_H_
#define REPRISE_SERVICE_KV_KV_TICKET_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "service/kv/export_window.h"

namespace reprise::service {

// As bytes: window | place, little-endian | key.
struct KvTicket {
  static constexpr size_t kBytes =
      ExportWindow::kIdBytes + sizeof(uint32_t) + ExportWindow::kKeyBytes;
  std::string_view window;  // id of the server's window, kIdBytes
  uint32_t place = 0;       // of the copy in it, not checked
  std::string_view key;     // kKeyBytes
};

// Views `text`. Errors: InvalidArgument on another length; all else is for the window to say.
absl::StatusOr<KvTicket> ParseKvTicket(std::string_view text);

// The bytes of a ticket whose window and key have their lengths.
std::string BytesOf(const KvTicket& ticket);

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_KV_KV_TICKET_H_
