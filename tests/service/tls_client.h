// SPDX-License-Identifier: Apache-2.0
// TlsHttp2Client: an Http2Client whose bytes go through TLS, and what else tests of TLS share: a
// server's files and channels to it.
#ifndef REPRISE_TESTS_SERVICE_TLS_CLIENT_H_
#define REPRISE_TESTS_SERVICE_TLS_CLIENT_H_

#include <openssl/ssl.h>

#include <memory>
#include <string>

#include "service/transport/tls_files.h"
#include "tests/service/certificates.h"
#include "tests/service/http2_client.h"
#include "tests/service/served_model.h"

namespace reprise::service {

// Trusts whoever answers.
class TlsHttp2Client final : public Http2Client {
 public:
  // Connects and shakes hands; a failure leaves `connected` false.
  explicit TlsHttp2Client(const std::string& address);
  ~TlsHttp2Client() override;

  bool Send(std::string_view bytes) override;
  bool Drain() override;

 private:
  struct Free {
    void operator()(SSL* ssl) const { SSL_free(ssl); }
    void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
  };
  std::unique_ptr<SSL_CTX, Free> context_;
  std::unique_ptr<SSL, Free> ssl_;
};

// An authority, and the files of a server whose certificate for 127.0.0.1 it has issued.
class TlsServerFiles {
 public:
  TlsServerFiles();
  const testing::CertificateAuthority& authority() const { return authority_; }
  // With the same authority for clients where `clients` says so.
  TlsFiles files(bool clients = false) const;
  const std::string& directory() const { return directory_.path(); }

 private:
  testing::TemporaryDirectory directory_;
  testing::CertificateAuthority authority_{"test authority"};
};

// A connection of its own over TLS, to a server whose certificate `root` has issued; with `client`,
// where it has a certificate, as the client's.
std::shared_ptr<grpc::Channel> TlsChannel(const std::string& address, const std::string& root,
                                          const testing::IssuedCertificate& client = {});

}  // namespace reprise::service

#endif  // REPRISE_TESTS_SERVICE_TLS_CLIENT_H_
