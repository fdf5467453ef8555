// SPDX-License-Identifier: Apache-2.0
#include "service/acceptors.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "grpcpp/security/server_credentials.h"
#include "service/identity/user_tag.h"
#include "service/transport/peer.h"

namespace reprise::service {
namespace {

// Where a certificate is the only proof that there is over TCP, nobody gets further without one.
std::shared_ptr<grpc::ServerCredentials> TlsCredentials(const TlsTexts& texts,
                                                        const std::vector<Identity>& identities) {
  const bool has_tokens =
      std::any_of(identities.begin(), identities.end(),
                  [](const Identity& identity) { return !identity.tokens.empty(); });
  const grpc_ssl_client_certificate_request_type asked =
      texts.client_ca.empty() ? GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE
      : has_tokens            ? GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_AND_VERIFY
                              : GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY;
  grpc::SslServerCredentialsOptions options(asked);
  options.pem_root_certs = texts.client_ca;
  options.pem_key_cert_pairs = {{.private_key = texts.key, .cert_chain = texts.certificate}};
  return grpc::SslServerCredentials(options);
}

std::unique_ptr<Acceptors::Acceptor> NewAcceptor(
    grpc::ServerBuilder* builder, const std::shared_ptr<grpc::ServerCredentials>& credentials) {
  return builder->experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, credentials);
}

}  // namespace

void Acceptors::AddTo(grpc::ServerBuilder* builder, const std::vector<Identity>& identities,
                      const TlsTexts& tls) {
  plain_ = NewAcceptor(builder, grpc::InsecureServerCredentials());
  for (size_t i = 0; i < identities.size(); ++i) {
    const bool by_user = !identities[i].unix_users.empty();
    by_user_.push_back(by_user ? NewAcceptor(builder, UserTag::CredentialsOf(i)) : nullptr);
  }
  if (!tls.certificate.empty()) tls_ = NewAcceptor(builder, TlsCredentials(tls, identities));
}

Acceptors::Acceptor& Acceptors::Of(const FileDescriptor& fd,
                                   const ListeningSocket& listening) const {
  if (listening.is_encrypted) return *tls_;
  if (!listening.is_unix || by_user_.empty()) return *plain_;
  const std::optional<uint32_t> user = UserOf(fd.get());
  const auto account = user.has_value() ? callers_.AccountOfUser(*user) : std::nullopt;
  return account.has_value() ? *by_user_[*account] : *plain_;
}

}  // namespace reprise::service
