// SPDX-License-Identifier: Apache-2.0
// SSL_new() and SSL_read() as whoever links reprise_service gets them. They need gRPC as a static
// library, as received_bytes.cc does: a shared one's connections are not metered.
#include "service/transport/decrypted_bytes.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <cstddef>
#include <new>
#include <utility>

#include "service/clock.h"
#include "service/transport/tls_handshake.h"

namespace reprise::service {
namespace {

// Of this thread; nullptr: none.
thread_local const MeteredTls* metering = nullptr;

}  // namespace

class MeteredTls::Meter {
 public:
  Meter(const FrameLimits& limits, std::shared_ptr<PeerMeter> peer, CutCallback on_cut)
      : meter_(limits, std::move(peer), NowNs()), on_cut_(std::move(on_cut)) {}

  bool is_cut() const { return cut_; }
  // False when the connection must end.
  bool Receive(const void* data, size_t size) {
    if (meter_.Receive({static_cast<const std::byte*>(data), size}, NowNs())) return true;
    cut_ = true;
    on_cut_(meter_.cut_reason(), meter_.excess());
    return false;
  }
  void Cut() { cut_ = true; }

 private:
  FrameMeter meter_;
  const CutCallback on_cut_;
  bool cut_ = false;
};

MeteredTls::MeteredTls(const FrameLimits& limits, std::shared_ptr<PeerMeter> peer,
                       CutCallback on_cut)
    : limits_(limits), peer_(std::move(peer)), on_cut_(std::move(on_cut)) {
  metering = this;
}

MeteredTls::~MeteredTls() { metering = nullptr; }

std::unique_ptr<MeteredTls::Meter> MeteredTls::NewMeter() {
  if (metering == nullptr) return nullptr;
  return std::make_unique<Meter>(metering->limits_, metering->peer_, metering->on_cut_);
}

namespace {

void FreeMeter(void* /*ssl*/, void* meter, CRYPTO_EX_DATA* /*data*/, int /*index*/, long /*number*/,
               void* /*pointer*/) {
  delete static_cast<MeteredTls::Meter*>(meter);
}

// Where an SSL object keeps its meter.
int MeterIndex() {
  static const int index = SSL_get_ex_new_index(0, nullptr, nullptr, nullptr, FreeMeter);
  return index;
}

// False when there is to be a meter and it cannot be had.
bool AddMeter(SSL* ssl) {
  std::unique_ptr<MeteredTls::Meter> meter;
  try {
    meter = MeteredTls::NewMeter();
  } catch (const std::bad_alloc&) {
    return false;
  }
  if (meter == nullptr) return true;
  if (SSL_set_ex_data(ssl, MeterIndex(), meter.get()) != 1) return false;
  (void)meter.release();  // the SSL object's
  return true;
}

// What gRPC takes for bytes that were tampered with: it closes the connection.
int FailToRead() {
  ERR_raise(ERR_LIB_USER, ERR_R_OPERATION_FAIL);
  return -1;
}

}  // namespace
}  // namespace reprise::service

// NOLINTBEGIN(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp): names of the linker's.
extern "C" SSL* __real_SSL_new(SSL_CTX* context);
extern "C" int __real_SSL_read(SSL* ssl, void* buffer, int size);

extern "C" SSL* __wrap_SSL_new(SSL_CTX* context) {
  SSL* ssl = __real_SSL_new(context);
  namespace service = reprise::service;
  if (ssl == nullptr || (service::AddMeter(ssl) && service::TlsOffer::ApplyTo(ssl))) return ssl;
  SSL_free(ssl);
  return nullptr;
}

extern "C" int __wrap_SSL_read(SSL* ssl, void* buffer, int size) {
  namespace service = reprise::service;
  auto* meter =
      static_cast<service::MeteredTls::Meter*>(SSL_get_ex_data(ssl, service::MeterIndex()));
  if (meter == nullptr) return __real_SSL_read(ssl, buffer, size);
  if (meter->is_cut()) return service::FailToRead();
  const int read = __real_SSL_read(ssl, buffer, size);
  if (read <= 0) return read;
  try {
    if (meter->Receive(buffer, static_cast<size_t>(read))) return read;
  } catch (const std::bad_alloc&) {
    meter->Cut();  // without a word of it
  }
  return service::FailToRead();
}
// NOLINTEND(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp)
