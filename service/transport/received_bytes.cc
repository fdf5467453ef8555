// SPDX-License-Identifier: Apache-2.0
// recvmsg() as whoever links reprise_service gets it (the linker's --wrap, in
// service/CMakeLists.txt): gRPC reads every connection with it. Nothing is kept or copied; where
// the table says that a connection must end, gRPC is told that the client has reset it. This needs
// gRPC as a static library: the reads of a shared one do not come here, and frames are not metered.
#include <sys/socket.h>

#include <cerrno>
#include <new>

#include "service/transport/connection_table.h"

// NOLINTBEGIN(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp): names of the linker's.
extern "C" ssize_t __real_recvmsg(int fd, msghdr* message, int flags);

extern "C" ssize_t __wrap_recvmsg(int fd, msghdr* message, int flags) {
  const ssize_t received = __real_recvmsg(fd, message, flags);
  if (received <= 0 || (flags & MSG_PEEK) != 0) return received;
  try {
    if (reprise::service::ConnectionTable::OfProcess().Receive(
            fd, {message->msg_iov, message->msg_iovlen}, static_cast<size_t>(received))) {
      return received;
    }
  } catch (const std::bad_alloc&) {
    // Cut off without a word of it.
  }
  errno = ECONNRESET;
  return -1;
}
// NOLINTEND(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp)
