// SPDX-License-Identifier: Apache-2.0
// Acceptors: the ways by which gRPC is handed connections that were accepted. Which one a
// connection takes says whether it is one of TLS, and what its calls know of the client.
// Threads: AddTo by the owner, before the server is built; Of by one thread at a time.
#ifndef REPRISE_SERVICE_ACCEPTORS_H_
#define REPRISE_SERVICE_ACCEPTORS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "grpcpp/server_builder.h"
#include "service/identity/callers.h"
#include "service/identity/user_tag.h"
#include "service/transport/file_descriptor.h"
#include "service/transport/listening_socket.h"
#include "service/transport/tls_files.h"

namespace reprise::service {

class Acceptors {
 public:
  using Acceptor = grpc::experimental::ExternalConnectionAcceptor;

  // `callers` must outlive this.
  explicit Acceptors(const Callers& callers) : callers_(callers) {}

  // `tls`: without a certificate there is no TLS.
  void AddTo(grpc::ServerBuilder* builder, bool has_unix_sockets, const TlsTexts& tls);

  // For a connection that was accepted on that listening socket.
  Acceptor& Of(const FileDescriptor& fd, const ListeningSocket& listening);

 private:
  struct UserAcceptor {
    UserTag tag;
    std::unique_ptr<Acceptor> acceptor;
  };

  const Callers& callers_;
  std::unique_ptr<Acceptor> plain_;
  std::unique_ptr<Acceptor> tls_;  // nullptr without TLS
  // One for each user that may ever be known, and whose they are: the first connections say.
  std::vector<UserAcceptor> user_acceptors_;
  absl::flat_hash_map<uint32_t, size_t> by_user_;
};

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_ACCEPTORS_H_
