// SPDX-License-Identifier: Apache-2.0
// Certificates and keys for tests of TLS, made when they are asked for: nothing secret lies in the
// repository, and nothing ends on some day. A failure is fatal to the test program.
#ifndef REPRISE_TESTS_SERVICE_CERTIFICATES_H_
#define REPRISE_TESTS_SERVICE_CERTIFICATES_H_

#include <memory>
#include <string>
#include <vector>

namespace reprise::testing {

// PEM texts.
struct IssuedCertificate {
  std::string certificate;
  std::string key;
};

struct CertificateRequest {
  std::string common_name;
  std::string names = {};  // "DNS:localhost,IP:127.0.0.1,URI:spiffe://example/a"; none: ""
  int begins_in_days = -1;
  int ends_in_days = 1;
};

class CertificateAuthority {
 public:
  explicit CertificateAuthority(const std::string& name);
  ~CertificateAuthority();
  CertificateAuthority(const CertificateAuthority&) = delete;
  CertificateAuthority& operator=(const CertificateAuthority&) = delete;

  IssuedCertificate Issue(const CertificateRequest& request) const;
  // A list of revoked certificates, PEM, that is in date until `ends_in_days`.
  std::string Revoke(const std::vector<IssuedCertificate>& revoked, int ends_in_days = 1) const;
  // Its own, which clients and servers trust.
  const std::string& certificate() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// Writes `text` to a file that only its owner may read; returns the path.
std::string WriteSecretFile(const std::string& path, const std::string& text);

}  // namespace reprise::testing

#endif  // REPRISE_TESTS_SERVICE_CERTIFICATES_H_
