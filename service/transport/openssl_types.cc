// SPDX-License-Identifier: Apache-2.0
#include "service/transport/openssl_types.h"

#include <openssl/err.h>
#include <openssl/pem.h>

namespace reprise::service::openssl {
namespace {

// Nobody is asked for a password.
int NoPassword(char* /*buffer*/, int /*size*/, int /*writing*/, void* /*data*/) { return -1; }

template <typename Object, auto Read>
std::vector<Object> ReadAll(const std::string& pem, bool* complete) {
  const Bio bio = BioOf(pem);
  std::vector<Object> objects;
  while (Object object{Read(bio.get(), nullptr, NoPassword, nullptr)})
    objects.push_back(std::move(object));
  // What follows the last one is no PEM at all where the file ends.
  *complete = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  ERR_clear_error();
  return objects;
}

}  // namespace

Bio BioOf(const std::string& pem) {
  return Bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
}

std::vector<Certificate> ReadCertificates(const std::string& pem, bool* complete) {
  return ReadAll<Certificate, PEM_read_bio_X509>(pem, complete);
}

std::vector<Crl> ReadCrls(const std::string& pem, bool* complete) {
  return ReadAll<Crl, PEM_read_bio_X509_CRL>(pem, complete);
}

Key ReadKey(const std::string& pem) {
  const Bio bio = BioOf(pem);
  Key key(PEM_read_bio_PrivateKey(bio.get(), nullptr, NoPassword, nullptr));
  ERR_clear_error();
  return key;
}

}  // namespace reprise::service::openssl
