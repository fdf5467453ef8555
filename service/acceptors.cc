// SPDX-License-Identifier: Apache-2.0
#include "service/acceptors.h"

#include <cstdint>
#include <optional>

#include "grpcpp/security/server_credentials.h"
#include "service/transport/peer.h"

namespace reprise::service {
namespace {

// What a handshake shows and asks for is the TlsHandshake's to say (tls_handshake.h), which may be
// replaced while the server runs, as these may not. gRPC hands on a client's certificate that was
// verified, whatever these ask for.
std::shared_ptr<grpc::ServerCredentials> TlsCredentials(const TlsTexts& texts) {
  grpc::SslServerCredentialsOptions options(GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE);
  options.pem_key_cert_pairs = {{.private_key = texts.key, .cert_chain = texts.certificate}};
  return grpc::SslServerCredentials(options);
}

std::unique_ptr<Acceptors::Acceptor> NewAcceptor(
    grpc::ServerBuilder* builder, const std::shared_ptr<grpc::ServerCredentials>& credentials) {
  return builder->experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, credentials);
}

}  // namespace

void Acceptors::AddTo(grpc::ServerBuilder* builder, bool has_unix_sockets, const TlsTexts& tls) {
  plain_ = NewAcceptor(builder, grpc::InsecureServerCredentials());
  if (!tls.certificate.empty()) tls_ = NewAcceptor(builder, TlsCredentials(tls));
  if (!has_unix_sockets || !callers_.has_identities()) return;
  user_acceptors_.resize(callers_.max_users());
  for (UserAcceptor& acceptor : user_acceptors_)
    acceptor.acceptor = NewAcceptor(builder, acceptor.tag.NewCredentials());
}

Acceptors::Acceptor& Acceptors::Of(const FileDescriptor& fd, const ListeningSocket& listening) {
  if (listening.is_encrypted) return *tls_;
  if (!listening.is_unix || user_acceptors_.empty()) return *plain_;
  const std::optional<uint32_t> user = UserOf(fd.get());
  if (!user.has_value() || !callers_.KnowsUser(*user)) return *plain_;
  const auto [found, is_new] = by_user_.try_emplace(*user, by_user_.size());
  UserAcceptor& acceptor = user_acceptors_[found->second];
  if (is_new) acceptor.tag.SetUser(*user);
  return *acceptor.acceptor;
}

}  // namespace reprise::service
