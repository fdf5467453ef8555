// SPDX-License-Identifier: Apache-2.0
// TlsFiles: the files that make a server one of TLS, and what is in them, checked before gRPC gets
// it, which would say only that it did not start. Threads: values.
#ifndef REPRISE_SERVICE_TRANSPORT_TLS_FILES_H_
#define REPRISE_SERVICE_TRANSPORT_TLS_FILES_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace reprise::service {

// Paths of PEM files; "" where there is none.
struct TlsFiles {
  std::string certificate = {};  // the server's, and those between it and its root
  std::string key = {};
  std::string client_ca = {};   // roots of clients' certificates
  std::string client_crl = {};  // which of those are revoked

  bool empty() const {
    return certificate.empty() && key.empty() && client_ca.empty() && client_crl.empty();
  }
};

// Their text.
struct TlsTexts {
  std::string certificate = {};
  std::string key = {};
  std::string client_ca = {};
  std::string client_crl = {};
};

// Errors name the file: those of ReadPrivateFile; InvalidArgument when it is not what it has to be,
// when the key is that of another certificate, when the certificate's time is over, and when a list
// of revoked certificates is out of date or missing for an authority of the client CA file.
absl::StatusOr<TlsTexts> ReadTlsFiles(const TlsFiles& files);

// What ReadTlsFiles checks. `where` names the file in errors.
absl::Status CheckCertificate(const std::string& where, const std::string& pem);
absl::Status CheckKey(const std::string& where, const std::string& key_pem,
                      const std::string& certificate_pem);
absl::Status CheckCrls(const std::string& where, const std::string& crl_pem,
                       const std::string& ca_pem);

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_TRANSPORT_TLS_FILES_H_
