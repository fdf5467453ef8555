// SPDX-License-Identifier: Apache-2.0
// UserTag: how a call knows which user is at the other end of its unix socket. The server asks the
// kernel when it accepts a connection (SO_PEERCRED), and hands it to gRPC through credentials that
// are that user's alone. These write the user's number into the connection's AuthContext, where no
// client can write: what clients send is call metadata, or fields of a certificate under names of
// gRPC's own. gRPC wants credentials before it starts, so a tag may be made before it is known
// whose it is going to be. Threads: gRPC's, and SetUser's.
#ifndef REPRISE_SERVICE_IDENTITY_USER_TAG_H_
#define REPRISE_SERVICE_IDENTITY_USER_TAG_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "grpcpp/security/auth_context.h"
#include "grpcpp/security/server_credentials.h"

namespace reprise::service {

class UserTag {
 public:
  UserTag();

  // Credentials whose connections, of unix sockets alone, carry the user's number.
  std::shared_ptr<grpc::ServerCredentials> NewCredentials() const;
  // Whose it is from now on. Once, and before the first connection.
  void SetUser(uint32_t user);
  // nullopt where the connection has none.
  static std::optional<uint32_t> Read(const grpc::AuthContext& connection);

 private:
  class Tagger;
  std::shared_ptr<Tagger> tagger_;
};

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_IDENTITY_USER_TAG_H_
