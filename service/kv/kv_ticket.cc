// SPDX-License-Identifier: Apache-2.0
#include "service/kv/kv_ticket.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace reprise::service {

absl::StatusOr<KvTicket> ParseKvTicket(std::string_view text) {
  if (text.size() != KvTicket::kBytes) {
    return absl::InvalidArgumentError(absl::StrCat("tickets: got one of ", text.size(),
                                                   " bytes, allowed: those of ExportBlocks, of ",
                                                   KvTicket::kBytes));
  }
  KvTicket ticket;
  ticket.window = text.substr(0, ExportWindow::kIdBytes);
  for (size_t i = 0; i < sizeof(uint32_t); ++i)
    ticket.place |=
        static_cast<uint32_t>(static_cast<unsigned char>(text[ExportWindow::kIdBytes + i]))
        << (8 * i);
  ticket.key = text.substr(ExportWindow::kIdBytes + sizeof(uint32_t));
  return ticket;
}

std::string BytesOf(const KvTicket& ticket) {
  std::string bytes(ticket.window);
  for (size_t i = 0; i < sizeof(uint32_t); ++i)
    bytes.push_back(static_cast<char>(ticket.place >> (8 * i)));
  bytes.append(ticket.key);
  return bytes;
}

}  // namespace reprise::service
