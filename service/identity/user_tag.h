// SPDX-License-Identifier: Apache-2.0
// UserTag: how a call knows which user is at the other end of its unix socket. The server asks the
// kernel when it accepts a connection (SO_PEERCRED), and hands it to gRPC through the credentials
// of the account of that user. These write the account's number into the connection's AuthContext,
// where no client can write: what clients send is call metadata, or fields of a certificate under
// names of gRPC's own.
// Threads: gRPC's.
#ifndef REPRISE_SERVICE_IDENTITY_USER_TAG_H_
#define REPRISE_SERVICE_IDENTITY_USER_TAG_H_

#include <cstddef>
#include <memory>
#include <optional>

#include "grpcpp/security/auth_context.h"
#include "grpcpp/security/server_credentials.h"

namespace reprise::service {

class UserTag {
 public:
  // Credentials whose connections, of unix sockets alone, carry the number.
  static std::shared_ptr<grpc::ServerCredentials> CredentialsOf(size_t account);
  // nullopt where the connection has none.
  static std::optional<size_t> Read(const grpc::AuthContext& connection);
};

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_IDENTITY_USER_TAG_H_
