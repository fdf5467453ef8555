// SPDX-License-Identifier: Apache-2.0
#include "service/transport/tls_files.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/x509.h>

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"
#include "service/identity/private_file.h"
#include "service/transport/openssl_types.h"

namespace reprise::service {
namespace {

std::string TextOf(const ASN1_TIME* time) {
  const openssl::Bio bio(BIO_new(BIO_s_mem()));
  if (bio == nullptr || ASN1_TIME_print(bio.get(), time) != 1) return "its end";
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &data);
  return {data, static_cast<size_t>(size)};
}

std::string TextOf(const X509_NAME* name) {
  const openssl::Bio bio(BIO_new(BIO_s_mem()));
  if (bio == nullptr || X509_NAME_print_ex(bio.get(), name, 0, XN_FLAG_RFC2253) < 0) return "?";
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &data);
  return absl::StrCat("\"", absl::string_view(data, static_cast<size_t>(size)), "\"");
}

}  // namespace

absl::Status CheckCertificate(const std::string& where, const std::string& pem) {
  bool complete = false;
  const std::vector<openssl::Certificate> certificates = openssl::ReadCertificates(pem, &complete);
  if (certificates.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": got no certificate, allowed: one or more in PEM form"));
  }
  if (!complete) {
    return absl::InvalidArgumentError(absl::StrCat(where, ": got no certificate behind the first ",
                                                   certificates.size(),
                                                   ", allowed: one or more in PEM form"));
  }
  const ASN1_TIME* end = X509_get0_notAfter(certificates[0].get());
  if (X509_cmp_current_time(end) < 0) {
    return absl::InvalidArgumentError(absl::StrCat(where, ": got a certificate that ended at ",
                                                   TextOf(end), ", allowed: one that is valid"));
  }
  return absl::OkStatus();
}

absl::Status CheckKey(const std::string& where, const std::string& key_pem,
                      const std::string& certificate_pem) {
  const openssl::Key key = openssl::ReadKey(key_pem);
  if (key == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": got no key, allowed: a private key in PEM form without a password"));
  }
  bool complete = false;
  const std::vector<openssl::Certificate> certificates =
      openssl::ReadCertificates(certificate_pem, &complete);
  const bool same =
      !certificates.empty() && X509_check_private_key(certificates[0].get(), key.get()) == 1;
  ERR_clear_error();
  if (same) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(where, ": got the key of another certificate, allowed: of the one given"));
}

absl::Status CheckCrls(const std::string& where, const std::string& crl_pem,
                       const std::string& ca_pem) {
  bool complete = false;
  const std::vector<openssl::Crl> crls = openssl::ReadCrls(crl_pem, &complete);
  if (crls.empty() || !complete) {
    const std::string got =
        crls.empty() ? "no list" : absl::StrCat("no list behind the first ", crls.size());
    return absl::InvalidArgumentError(absl::StrCat(
        where, ": got ", got, ", allowed: one or more lists of revoked certificates in PEM form"));
  }
  for (const openssl::Crl& crl : crls) {
    const ASN1_TIME* next = X509_CRL_get0_nextUpdate(crl.get());
    if (next == nullptr || X509_cmp_current_time(next) >= 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": got the list of ", TextOf(X509_CRL_get_issuer(crl.get())),
                     ", whose next was due at ", TextOf(next), ", allowed: one that is in date"));
  }
  for (const openssl::Certificate& root : openssl::ReadCertificates(ca_pem, &complete)) {
    X509_NAME* name = X509_get_subject_name(root.get());
    const openssl::Key key(X509_get_pubkey(root.get()));
    const bool has_list = std::ranges::any_of(crls, [&](const openssl::Crl& crl) {
      return X509_NAME_cmp(X509_CRL_get_issuer(crl.get()), name) == 0 && key != nullptr &&
             X509_CRL_verify(crl.get(), key.get()) == 1;
    });
    ERR_clear_error();
    if (has_list) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": got no list that ", TextOf(name),
                     " of the client CA file has signed, allowed: one of each there"));
  }
  return absl::OkStatus();
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
  if (files.client_crl.empty()) return texts;
  REPRISE_ASSIGN_OR_RETURN(texts.client_crl,
                           ReadPrivateFile("client CRL", files.client_crl, FileKind::kTrusted));
  REPRISE_RETURN_IF_ERROR(CheckCrls(absl::StrCat("client CRL file ", files.client_crl),
                                    texts.client_crl, texts.client_ca));
  return texts;
}

}  // namespace reprise::service
