// SPDX-License-Identifier: Apache-2.0
// TlsHandshake: what the server shows in a handshake of TLS, whether it asks for a client's
// certificate, and which of those it takes. The server may replace it at any time: a handshake has
// the one that was in force when its connection was taken over, and goes on with it.
//
// gRPC 1.51 could read files anew by itself (FileWatcherCertificateProvider). That one asks the
// files every few seconds, takes what it finds there, checked or not, and goes on without a list of
// revoked certificates where one cannot be read. So this is set on each SSL object as gRPC makes
// it, by the same SSL_new() of ours that meters it (decrypted_bytes.h).
//
// Threads: a value that does not change; TlsOffer as MeteredTls.
#ifndef REPRISE_SERVICE_TRANSPORT_TLS_HANDSHAKE_H_
#define REPRISE_SERVICE_TRANSPORT_TLS_HANDSHAKE_H_

#include <openssl/ssl.h>

#include <memory>

#include "absl/status/statusor.h"
#include "service/transport/tls_files.h"

namespace reprise::service {

class TlsHandshake {
 public:
  // `needs_client`: without a certificate that `texts.client_ca` vouches for no client gets through
  // the handshake, where there is such a thing. REQUIRES: what ReadTlsFiles returned. Errors:
  // ResourceExhausted.
  static absl::StatusOr<std::shared_ptr<const TlsHandshake>> Create(const TlsTexts& texts,
                                                                    bool needs_client);
  ~TlsHandshake();
  TlsHandshake(const TlsHandshake&) = delete;
  TlsHandshake& operator=(const TlsHandshake&) = delete;

  // In place of what `ssl` has of its context. Sessions that began with another handshake are not
  // resumed. False when it cannot be had.
  bool ApplyTo(SSL* ssl) const;

 private:
  struct Parts;
  explicit TlsHandshake(std::unique_ptr<Parts> parts);
  const std::unique_ptr<Parts> parts_;
};

// While it lives, SSL objects that this thread makes have this handshake.
class TlsOffer {
 public:
  explicit TlsOffer(const TlsHandshake& handshake);
  ~TlsOffer();
  TlsOffer(const TlsOffer&) = delete;
  TlsOffer& operator=(const TlsOffer&) = delete;

  // What this thread offers; true where that is nothing.
  static bool ApplyTo(SSL* ssl);
};

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_TRANSPORT_TLS_HANDSHAKE_H_
