// SPDX-License-Identifier: Apache-2.0
// ConnectionTable: the connections that this process's servers have accepted, by file descriptor,
// and a meter for what comes in on each. gRPC reads them; every call of recvmsg() in this program
// is linked to a function that shows the bytes to this table first (received_bytes.cc), because
// gRPC 1.51 has no place of its own for looking at frames. One table per process, as there is one
// set of file descriptors.
// Threads: every method from any thread.
#ifndef REPRISE_SERVICE_TRANSPORT_CONNECTION_TABLE_H_
#define REPRISE_SERVICE_TRANSPORT_CONNECTION_TABLE_H_

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "service/transport/frame_meter.h"

namespace reprise::service {

class ConnectionTable {
 public:
  static ConnectionTable& OfProcess();

  // What identifies the socket behind `fd` as long as it is open; 0 when it is none. `fd` may be
  // any number: closed, or opened again by another thread as something else.
  static uint64_t SocketId(int fd);

  // From now on meters what is read from `fd`. `on_cut` is called once, with the reason, by the
  // thread that reads, when the connection sends too much; nothing is read from it after that.
  // `peer`: as FrameMeter's.
  void Add(int fd, const FrameLimits& limits, std::shared_ptr<PeerMeter> peer, CutCallback on_cut);
  // No more, if `socket_id` is still what was added.
  void Remove(int fd, uint64_t socket_id);

  // `bytes` have been read from `fd` into `parts`. False when the connection must end.
  bool Receive(int fd, std::span<const iovec> parts, size_t bytes);

 private:
  struct Connection {
    Connection(uint64_t id, const FrameLimits& limits, std::shared_ptr<PeerMeter> peer,
               CutCallback cut_callback);
    const uint64_t socket_id;
    FrameMeter meter;
    CutCallback on_cut;
    bool cut = false;
  };
  // Connections are read by several threads at once, each by one.
  struct Shard {
    std::mutex mutex;
    absl::flat_hash_map<int, std::unique_ptr<Connection>> connections ABSL_GUARDED_BY(mutex);
  };
  Shard& ShardOf(int fd) { return shards_[static_cast<size_t>(fd) % shards_.size()]; }

  std::array<Shard, 64> shards_;
};

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_TRANSPORT_CONNECTION_TABLE_H_
