// SPDX-License-Identifier: Apache-2.0
// Acceptors: the ways by which gRPC is handed connections that were accepted. Which one a
// connection takes says whether it is one of TLS, and what its calls know of the client.
// Threads: AddTo by the owner, before the server is built; Of by one thread at a time.
#ifndef REPRISE_SERVICE_ACCEPTORS_H_
#define REPRISE_SERVICE_ACCEPTORS_H_

#include <memory>
#include <vector>

#include "grpcpp/server_builder.h"
#include "service/identity/callers.h"
#include "service/identity/identity.h"
#include "service/transport/file_descriptor.h"
#include "service/transport/listening_socket.h"
#include "service/transport/tls_files.h"

namespace reprise::service {

class Acceptors {
 public:
  using Acceptor = grpc::experimental::ExternalConnectionAcceptor;

  // `callers` must outlive this.
  explicit Acceptors(const Callers& callers) : callers_(callers) {}

  // `identities`: those of the callers. `tls`: without a certificate there is no TLS.
  void AddTo(grpc::ServerBuilder* builder, const std::vector<Identity>& identities,
             const TlsTexts& tls);

  // For a connection that was accepted on that listening socket.
  Acceptor& Of(const FileDescriptor& fd, const ListeningSocket& listening) const;

 private:
  const Callers& callers_;
  std::unique_ptr<Acceptor> plain_;
  std::vector<std::unique_ptr<Acceptor>> by_user_;  // by account; nullptr where it names no user
  std::unique_ptr<Acceptor> tls_;                   // nullptr without TLS
};

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_ACCEPTORS_H_
