// SPDX-License-Identifier: Apache-2.0
// MeteredTls: meters what comes in on connections of TLS, once it is decrypted. gRPC reads it with
// SSL_read(); in this program every call of that, and of SSL_new(), is linked to functions of ours
// (the linker's --wrap, in service/CMakeLists.txt), as recvmsg() is for connections in plain text
// (connection_table.h). The meter hangs on the SSL object, and goes with it.
// Threads: one object per thread at a time; it is used and destroyed by the thread that made it.
#ifndef REPRISE_SERVICE_TRANSPORT_DECRYPTED_BYTES_H_
#define REPRISE_SERVICE_TRANSPORT_DECRYPTED_BYTES_H_

#include <memory>

#include "service/transport/frame_meter.h"

namespace reprise::service {

class MeteredTls {
 public:
  // While it lives, what this thread makes with SSL_new() is metered; gRPC makes it as it takes a
  // connection over. `on_cut` is called once, with the reason, by the thread that reads, when the
  // connection sends too much; every read fails after that, and gRPC closes it. `peer`: as
  // FrameMeter's.
  MeteredTls(const FrameLimits& limits, std::shared_ptr<PeerMeter> peer, CutCallback on_cut);
  ~MeteredTls();
  MeteredTls(const MeteredTls&) = delete;
  MeteredTls& operator=(const MeteredTls&) = delete;

  // A meter for one more SSL object of this thread; nullptr where none is asked for.
  class Meter;
  static std::unique_ptr<Meter> NewMeter();

 private:
  const FrameLimits limits_;
  const std::shared_ptr<PeerMeter> peer_;
  const CutCallback on_cut_;
};

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_TRANSPORT_DECRYPTED_BYTES_H_
