// SPDX-License-Identifier: Apache-2.0
#include "tests/service/tls_client.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>

#include <chrono>

#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"

namespace reprise::service {
namespace {

using std::chrono::steady_clock;

}  // namespace

TlsHttp2Client::TlsHttp2Client(const std::string& address)
    : Http2Client(address), context_(SSL_CTX_new(TLS_client_method())) {
  // OpenSSL writes to a connection that has ended without MSG_NOSIGNAL.
  ::signal(SIGPIPE, SIG_IGN);
  constexpr unsigned char kHttp2[] = {2, 'h', '2'};
  SSL_CTX_set_alpn_protos(context_.get(), kHttp2, sizeof(kHttp2));
  ssl_.reset(SSL_new(context_.get()));
  SSL_set_fd(ssl_.get(), fd());
  const bool shaken = connected() && SSL_connect(ssl_.get()) == 1;
  set_connected(shaken);
  ::fcntl(fd(), F_SETFL, ::fcntl(fd(), F_GETFL) | O_NONBLOCK);
}

TlsHttp2Client::~TlsHttp2Client() = default;

bool TlsHttp2Client::Send(std::string_view bytes) {
  const steady_clock::time_point give_up = steady_clock::now() + std::chrono::seconds(60);
  while (!bytes.empty()) {
    const int sent = SSL_write(ssl_.get(), bytes.data(), static_cast<int>(bytes.size()));
    if (sent > 0) {
      bytes.remove_prefix(static_cast<size_t>(sent));
      continue;
    }
    const int error = SSL_get_error(ssl_.get(), sent);
    if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE) return false;
    if (steady_clock::now() > give_up || !Drain()) return false;
    pollfd ready = {.fd = fd(), .events = POLLIN | POLLOUT, .revents = 0};
    ::poll(&ready, 1, 100);
  }
  return true;
}

bool TlsHttp2Client::Drain() {
  char bytes[4096];
  while (true) {
    const int count = SSL_read(ssl_.get(), bytes, sizeof(bytes));
    if (count > 0) continue;
    const int error = SSL_get_error(ssl_.get(), count);
    return error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE;
  }
}

TlsServerFiles::TlsServerFiles() {
  const testing::IssuedCertificate server =
      authority_.Issue({.common_name = "server", .names = "IP:127.0.0.1"});
  testing::WriteSecretFile(directory() + "/server.pem", server.certificate);
  testing::WriteSecretFile(directory() + "/server.key", server.key);
  testing::WriteSecretFile(directory() + "/ca.pem", authority_.certificate());
}

TlsFiles TlsServerFiles::files(bool clients) const {
  return {.certificate = directory() + "/server.pem",
          .key = directory() + "/server.key",
          .client_ca = clients ? directory() + "/ca.pem" : ""};
}

std::shared_ptr<grpc::Channel> TlsChannel(const std::string& address, const std::string& root,
                                          const testing::IssuedCertificate& client) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = root;
  options.pem_private_key = client.key;
  options.pem_cert_chain = client.certificate;
  return grpc::CreateCustomChannel(address, grpc::SslCredentials(options), arguments);
}

}  // namespace reprise::service
