// SPDX-License-Identifier: Apache-2.0
// OpenSSL's objects with one owner, and PEM text as such objects. Threads: values.
#ifndef REPRISE_SERVICE_TRANSPORT_OPENSSL_TYPES_H_
#define REPRISE_SERVICE_TRANSPORT_OPENSSL_TYPES_H_

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/x509.h>

#include <memory>
#include <string>
#include <vector>

namespace reprise::service::openssl {

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
using Store = std::unique_ptr<X509_STORE, Freed<X509_STORE_free>>;

Bio BioOf(const std::string& pem);
// All of the file up to the first that cannot be read. `complete`: whether that was its end.
std::vector<Certificate> ReadCertificates(const std::string& pem, bool* complete);
std::vector<Crl> ReadCrls(const std::string& pem, bool* complete);
// The first of the file, without a password; nullptr when there is none.
Key ReadKey(const std::string& pem);

}  // namespace reprise::service::openssl

#endif  // REPRISE_SERVICE_TRANSPORT_OPENSSL_TYPES_H_
