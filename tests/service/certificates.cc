// SPDX-License-Identifier: Apache-2.0
#include "tests/service/certificates.h"

#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

#include <fstream>

#include "runtime/check.h"

namespace reprise::testing {
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
using Crl = std::unique_ptr<X509_CRL, Freed<X509_CRL_free>>;
using Key = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY_free>>;
using Time = std::unique_ptr<ASN1_TIME, Freed<ASN1_TIME_free>>;

constexpr long kDay = 24L * 3600;

std::string TextOf(BIO* bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  return {data, static_cast<size_t>(size)};
}

std::string PemOf(X509* certificate) {
  const Bio bio(BIO_new(BIO_s_mem()));
  REPRISE_CHECK(PEM_write_bio_X509(bio.get(), certificate) == 1);
  return TextOf(bio.get());
}

std::string PemOf(EVP_PKEY* key) {
  const Bio bio(BIO_new(BIO_s_mem()));
  REPRISE_CHECK(PEM_write_bio_PrivateKey(bio.get(), key, nullptr, nullptr, 0, nullptr, nullptr) ==
                1);
  return TextOf(bio.get());
}

void AddExtension(X509* certificate, X509* issuer, int kind, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str());
  REPRISE_CHECK(extension != nullptr && X509_add_ext(certificate, extension, -1) == 1);
  X509_EXTENSION_free(extension);
}

// Without names and a signature.
Certificate NewCertificate(const CertificateRequest& request, EVP_PKEY* key) {
  Certificate certificate(X509_new());
  REPRISE_CHECK(certificate != nullptr && X509_set_version(certificate.get(), 2) == 1);
  uint64_t serial = 0;
  REPRISE_CHECK(RAND_bytes(reinterpret_cast<unsigned char*>(&serial), sizeof(serial)) == 1);
  REPRISE_CHECK(ASN1_INTEGER_set_uint64(X509_get_serialNumber(certificate.get()), serial) == 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), kDay * request.begins_in_days);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), kDay * request.ends_in_days);
  X509_NAME* subject = X509_get_subject_name(certificate.get());
  REPRISE_CHECK(X509_NAME_add_entry_by_txt(
                    subject, "CN", MBSTRING_UTF8,
                    reinterpret_cast<const unsigned char*>(request.common_name.c_str()), -1, -1,
                    0) == 1);
  REPRISE_CHECK(X509_set_pubkey(certificate.get(), key) == 1);
  return certificate;
}

}  // namespace

class CertificateAuthority::Impl {
 public:
  explicit Impl(const std::string& name) : key_(EVP_EC_gen("P-256")) {
    REPRISE_CHECK(key_ != nullptr);
    own_ = NewCertificate({.common_name = name}, key_.get());
    X509_set_issuer_name(own_.get(), X509_get_subject_name(own_.get()));
    AddExtension(own_.get(), own_.get(), NID_basic_constraints, "critical,CA:TRUE");
    REPRISE_CHECK(X509_sign(own_.get(), key_.get(), EVP_sha256()) != 0);
    pem_ = PemOf(own_.get());
  }

  IssuedCertificate Issue(const CertificateRequest& request) const {
    const Key key(EVP_EC_gen("P-256"));
    REPRISE_CHECK(key != nullptr);
    const Certificate certificate = NewCertificate(request, key.get());
    X509_set_issuer_name(certificate.get(), X509_get_subject_name(own_.get()));
    if (!request.names.empty()) {
      AddExtension(certificate.get(), own_.get(), NID_subject_alt_name, request.names);
    }
    REPRISE_CHECK(X509_sign(certificate.get(), key_.get(), EVP_sha256()) != 0);
    return {.certificate = PemOf(certificate.get()), .key = PemOf(key.get())};
  }

  std::string Revoke(const std::vector<IssuedCertificate>& revoked, int ends_in_days) const {
    const Crl crl(X509_CRL_new());
    REPRISE_CHECK(crl != nullptr && X509_CRL_set_version(crl.get(), 1) == 1);
    X509_CRL_set_issuer_name(crl.get(), X509_get_subject_name(own_.get()));
    const Time begin(X509_gmtime_adj(nullptr, -3 * kDay));
    const Time end(X509_gmtime_adj(nullptr, kDay * ends_in_days));
    X509_CRL_set1_lastUpdate(crl.get(), begin.get());
    X509_CRL_set1_nextUpdate(crl.get(), end.get());
    for (const IssuedCertificate& issued : revoked) {
      const Bio bio(
          BIO_new_mem_buf(issued.certificate.data(), static_cast<int>(issued.certificate.size())));
      const Certificate certificate(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
      X509_REVOKED* entry = X509_REVOKED_new();
      REPRISE_CHECK(certificate != nullptr && entry != nullptr);
      X509_REVOKED_set_serialNumber(entry, X509_get_serialNumber(certificate.get()));
      X509_REVOKED_set_revocationDate(entry, begin.get());
      REPRISE_CHECK(X509_CRL_add0_revoked(crl.get(), entry) == 1);
    }
    REPRISE_CHECK(X509_CRL_sign(crl.get(), key_.get(), EVP_sha256()) != 0);
    const Bio text(BIO_new(BIO_s_mem()));
    REPRISE_CHECK(PEM_write_bio_X509_CRL(text.get(), crl.get()) == 1);
    return TextOf(text.get());
  }

  const std::string& certificate() const { return pem_; }

 private:
  Key key_;
  Certificate own_;
  std::string pem_;
};

CertificateAuthority::CertificateAuthority(const std::string& name)
    : impl_(std::make_unique<Impl>(name)) {}
CertificateAuthority::~CertificateAuthority() = default;

IssuedCertificate CertificateAuthority::Issue(const CertificateRequest& request) const {
  return impl_->Issue(request);
}

std::string CertificateAuthority::Revoke(const std::vector<IssuedCertificate>& revoked,
                                         int ends_in_days) const {
  return impl_->Revoke(revoked, ends_in_days);
}

const std::string& CertificateAuthority::certificate() const { return impl_->certificate(); }

std::string WriteSecretFile(const std::string& path, const std::string& text) {
  {
    std::ofstream file(path, std::ios::trunc);
    file << text;
    REPRISE_CHECK(file.good());
  }
  REPRISE_CHECK(chmod(path.c_str(), 0600) == 0);
  return path;
}

}  // namespace reprise::testing
