// SPDX-License-Identifier: Apache-2.0
#include "service/transport/connection_table.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "service/clock.h"

namespace reprise::service {

ConnectionTable::Connection::Connection(uint64_t id, const FrameLimits& limits,
                                        std::shared_ptr<PeerMeter> peer, CutCallback cut_callback)
    : socket_id(id), meter(limits, std::move(peer), NowNs()), on_cut(std::move(cut_callback)) {}

ConnectionTable& ConnectionTable::OfProcess() {
  // Never destroyed: gRPC's threads may read until the process ends.
  static ConnectionTable& table = *new ConnectionTable;
  return table;
}

uint64_t ConnectionTable::SocketId(int fd) {
  // statx() rather than fstat(): ThreadSanitizer takes the latter for a use of the file, and asking
  // about a number that gRPC has closed and another thread is opening again for a data race.
  struct statx info;
  if (::statx(fd, "", AT_EMPTY_PATH, STATX_TYPE | STATX_INO, &info) != 0) return 0;
  return S_ISSOCK(info.stx_mode) ? info.stx_ino : 0;
}

void ConnectionTable::Add(int fd, const FrameLimits& limits, std::shared_ptr<PeerMeter> peer,
                          CutCallback on_cut) {
  auto connection =
      std::make_unique<Connection>(SocketId(fd), limits, std::move(peer), std::move(on_cut));
  Shard& shard = ShardOf(fd);
  std::lock_guard lock(shard.mutex);
  shard.connections[fd] = std::move(connection);
}

void ConnectionTable::Remove(int fd, uint64_t socket_id) {
  Shard& shard = ShardOf(fd);
  std::lock_guard lock(shard.mutex);
  const auto found = shard.connections.find(fd);
  if (found == shard.connections.end() || found->second->socket_id != socket_id) return;
  shard.connections.erase(found);
}

bool ConnectionTable::Receive(int fd, std::span<const iovec> parts, size_t bytes) {
  Shard& shard = ShardOf(fd);
  std::unique_lock lock(shard.mutex);
  const auto found = shard.connections.find(fd);
  if (found == shard.connections.end()) return true;
  Connection& connection = *found->second;
  // gRPC closed the connection and something else of this process has its number.
  if (connection.socket_id != SocketId(fd)) {
    shard.connections.erase(found);
    return true;
  }
  if (connection.cut) return false;
  const uint64_t now_ns = NowNs();
  for (const iovec& part : parts) {
    const size_t size = std::min(part.iov_len, bytes);
    bytes -= size;
    const auto* data = static_cast<const std::byte*>(part.iov_base);
    if (!connection.meter.Receive({data, size}, now_ns)) {
      connection.cut = true;
      break;
    }
  }
  if (!connection.cut) return true;
  const std::string why = connection.meter.excess();
  const CutReason reason = connection.meter.cut_reason();
  const CutCallback on_cut = std::move(connection.on_cut);
  lock.unlock();
  on_cut(reason, why);
  return false;
}

}  // namespace reprise::service
