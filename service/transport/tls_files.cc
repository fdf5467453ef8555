// SPDX-License-Identifier: Apache-2.0
#include "service/transport/tls_files.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <memory>

#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"
#include "service/identity/private_file.h"

namespace reprise::service {
namespace {

template <auto Free>
struct Freed {
  template <typename T>
  void operator()(T* object) const {
    Free(object);
  }
};
using Bio = std::unique_ptr<BIO, Freed<BIO_free>>;
using Certificate = std::unique_ptr<X509, Freed<X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY_free>>;

Bio BioOf(const std::string& pem) {
  return Bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
}

// The first of the file; nullptr when there is none.
Certificate ReadCertificate(const std::string& pem) {
  const Bio bio = BioOf(pem);
  Certificate certificate(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
  ERR_clear_error();
  return certificate;
}

// Nobody is asked for a password.
int NoPassword(char* /*buffer*/, int /*size*/, int /*writing*/, void* /*data*/) { return -1; }

Key ReadKey(const std::string& pem) {
  const Bio bio = BioOf(pem);
  Key key(PEM_read_bio_PrivateKey(bio.get(), nullptr, NoPassword, nullptr));
  ERR_clear_error();
  return key;
}

std::string TextOf(const ASN1_TIME* time) {
  const Bio bio(BIO_new(BIO_s_mem()));
  if (bio == nullptr || ASN1_TIME_print(bio.get(), time) != 1) return "its end";
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &data);
  return {data, static_cast<size_t>(size)};
}

}  // namespace

absl::Status CheckCertificate(const std::string& where, const std::string& pem) {
  const Certificate certificate = ReadCertificate(pem);
  if (certificate == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": got no certificate, allowed: one or more in PEM form"));
  }
  const ASN1_TIME* end = X509_get0_notAfter(certificate.get());
  if (X509_cmp_current_time(end) < 0) {
    return absl::InvalidArgumentError(absl::StrCat(where, ": got a certificate that ended at ",
                                                   TextOf(end), ", allowed: one that is valid"));
  }
  return absl::OkStatus();
}

absl::Status CheckKey(const std::string& where, const std::string& key_pem,
                      const std::string& certificate_pem) {
  const Key key = ReadKey(key_pem);
  if (key == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": got no key, allowed: a private key in PEM form without a password"));
  }
  const Certificate certificate = ReadCertificate(certificate_pem);
  const bool same = certificate != nullptr && X509_check_private_key(certificate.get(), key.get());
  ERR_clear_error();
  if (same) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(where, ": got the key of another certificate, allowed: of the one given"));
}

absl::StatusOr<TlsTexts> ReadTlsFiles(const TlsFiles& files) {
  TlsTexts texts;
  REPRISE_ASSIGN_OR_RETURN(
      texts.certificate, ReadPrivateFile("TLS certificate", files.certificate, FileKind::kTrusted));
  REPRISE_RETURN_IF_ERROR(CheckCertificate(absl::StrCat("TLS certificate file ", files.certificate),
                                           texts.certificate));
  REPRISE_ASSIGN_OR_RETURN(texts.key, ReadPrivateFile("TLS key", files.key, FileKind::kSecret));
  REPRISE_RETURN_IF_ERROR(
      CheckKey(absl::StrCat("TLS key file ", files.key), texts.key, texts.certificate));
  if (files.client_ca.empty()) return texts;
  REPRISE_ASSIGN_OR_RETURN(texts.client_ca,
                           ReadPrivateFile("client CA", files.client_ca, FileKind::kTrusted));
  REPRISE_RETURN_IF_ERROR(
      CheckCertificate(absl::StrCat("client CA file ", files.client_ca), texts.client_ca));
  return texts;
}

}  // namespace reprise::service
