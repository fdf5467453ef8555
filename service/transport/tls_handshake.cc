// SPDX-License-Identifier: Apache-2.0
#include "service/transport/tls_handshake.h"

#include <openssl/err.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "service/transport/openssl_types.h"

namespace reprise::service {
namespace {

template <auto Free>
struct StackFreed {
  template <typename T>
  void operator()(T* stack) const {
    Free(stack);
  }
};
void FreeCertificates(STACK_OF(X509) * stack) { sk_X509_pop_free(stack, X509_free); }
void FreeNames(STACK_OF(X509_NAME) * stack) { sk_X509_NAME_pop_free(stack, X509_NAME_free); }
using Chain = std::unique_ptr<STACK_OF(X509), StackFreed<FreeCertificates>>;
using Names = std::unique_ptr<STACK_OF(X509_NAME), StackFreed<FreeNames>>;

// Of this thread; nullptr: none.
thread_local const TlsHandshake* offered = nullptr;

// Tells handshakes of this process apart.
std::array<unsigned char, 8> NextId() {
  static std::atomic<uint64_t> next = 1;
  const uint64_t number = next.fetch_add(1, std::memory_order_relaxed);
  std::array<unsigned char, 8> id = {};
  std::memcpy(id.data(), &number, sizeof(number));
  return id;
}

}  // namespace

struct TlsHandshake::Parts {
  openssl::Certificate certificate;
  Chain chain;  // those between it and its root
  openssl::Key key;
  openssl::Store clients;  // whose certificates are taken; nullptr: nobody is asked
  Names client_names;
  int verify = SSL_VERIFY_NONE;
  std::array<unsigned char, 8> id = NextId();

  bool Read(const TlsTexts& texts);
  bool ReadClients(const TlsTexts& texts);
};

bool TlsHandshake::Parts::Read(const TlsTexts& texts) {
  bool complete = false;
  std::vector<openssl::Certificate> certificates =
      openssl::ReadCertificates(texts.certificate, &complete);
  key = openssl::ReadKey(texts.key);
  chain.reset(sk_X509_new_null());
  if (certificates.empty() || key == nullptr || chain == nullptr) return false;
  certificate = std::move(certificates[0]);
  for (size_t i = 1; i < certificates.size(); ++i) {
    if (sk_X509_push(chain.get(), certificates[i].get()) == 0) return false;
    (void)certificates[i].release();  // the chain's
  }
  return texts.client_ca.empty() || ReadClients(texts);
}

bool TlsHandshake::Parts::ReadClients(const TlsTexts& texts) {
  bool complete = false;
  clients.reset(X509_STORE_new());
  client_names.reset(sk_X509_NAME_new_null());
  if (clients == nullptr || client_names == nullptr) return false;
  for (const openssl::Certificate& root : openssl::ReadCertificates(texts.client_ca, &complete)) {
    X509_NAME* name = X509_NAME_dup(X509_get_subject_name(root.get()));
    if (name == nullptr || sk_X509_NAME_push(client_names.get(), name) == 0) {
      X509_NAME_free(name);
      return false;
    }
    if (X509_STORE_add_cert(clients.get(), root.get()) != 1) return false;
  }
  if (texts.client_crl.empty()) return true;
  for (const openssl::Crl& crl : openssl::ReadCrls(texts.client_crl, &complete)) {
    if (X509_STORE_add_crl(clients.get(), crl.get()) != 1) return false;
  }
  // Of every certificate up to the root; one of whose authority there is no list, or one that is
  // out of date, is not taken.
  return X509_STORE_set_flags(clients.get(), X509_V_FLAG_CRL_CHECK | X509_V_FLAG_CRL_CHECK_ALL) ==
         1;
}

TlsHandshake::TlsHandshake(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

TlsHandshake::~TlsHandshake() = default;

absl::StatusOr<std::shared_ptr<const TlsHandshake>> TlsHandshake::Create(const TlsTexts& texts,
                                                                         bool needs_client) {
  auto parts = std::make_unique<Parts>();
  const bool read = parts->Read(texts);
  ERR_clear_error();
  if (!read) return absl::ResourceExhaustedError("TLS: no memory for certificates and keys");
  if (parts->clients != nullptr) {
    parts->verify = SSL_VERIFY_PEER | (needs_client ? SSL_VERIFY_FAIL_IF_NO_PEER_CERT : 0);
  }
  return std::shared_ptr<const TlsHandshake>(new TlsHandshake(std::move(parts)));
}

bool TlsHandshake::ApplyTo(SSL* ssl) const {
  SSL_certs_clear(ssl);
  if (SSL_use_cert_and_key(ssl, parts_->certificate.get(), parts_->key.get(), parts_->chain.get(),
                           /*override=*/1) != 1) {
    return false;
  }
  if (SSL_set_session_id_context(ssl, parts_->id.data(), parts_->id.size()) != 1) return false;
  SSL_set_verify(ssl, parts_->verify, nullptr);
  if (parts_->clients == nullptr) return true;
  STACK_OF(X509_NAME)* names = SSL_dup_CA_list(parts_->client_names.get());
  if (names == nullptr) return false;
  SSL_set_client_CA_list(ssl, names);  // takes them
  return SSL_set1_verify_cert_store(ssl, parts_->clients.get()) == 1;
}

TlsOffer::TlsOffer(const TlsHandshake& handshake) { offered = &handshake; }

TlsOffer::~TlsOffer() { offered = nullptr; }

bool TlsOffer::ApplyTo(SSL* ssl) { return offered == nullptr || offered->ApplyTo(ssl); }

}  // namespace reprise::service
