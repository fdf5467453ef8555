// SPDX-License-Identifier: Apache-2.0
#include "tools/connection_flags.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "tools/address.h"
#include "tools/cli.h"

namespace reprise::tools {
namespace {

// By the address's text alone: what a name stands for is the network's word.
bool StaysOnThisHost(std::string_view address) {
  if (address.starts_with("unix:")) return true;
  std::string host(address.substr(0, address.rfind(':')));
  if (host == "localhost") return true;
  constexpr uint32_t kLoopbackNetwork = 127;
  in_addr v4{};
  if (::inet_pton(AF_INET, host.c_str(), &v4) == 1)
    return ntohl(v4.s_addr) >> 24 == kLoopbackNetwork;
  if (!host.starts_with('[') || !host.ends_with(']')) return false;
  in6_addr v6{};
  host = host.substr(1, host.size() - 2);
  return ::inet_pton(AF_INET6, host.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6) != 0;
}

}  // namespace

CLI::Option* AddFileOption(CLI::App* app, const std::string& name, std::string* file,
                           const std::string& description) {
  const auto parse = [](std::string_view text) -> absl::StatusOr<std::string> {
    if (!text.empty()) return std::string(text);
    return absl::InvalidArgumentError("file: got \"\", allowed: its name");
  };
  return AddOption(app, name, file, parse, "FILE", "", description);
}

void AddAddressOption(CLI::App* app, ConnectionOptions* options) {
  options->address = kDefaultAddress;
  AddOption(app, "--address", &options->address, ParseAddress, "ADDRESS",
            std::string(kDefaultAddress), "Address of the server: HOST:PORT or unix:PATH");
}

void AddProofOptions(CLI::App* app, ConnectionOptions* options) {
  AddFileOption(app, "--tls-ca", &options->tls_ca,
                "Connect by TLS; a file of the certificates that vouch for the server's");
  AddFileOption(app, "--tls-certificate", &options->tls_certificate,
                "The certificate that proves who this client is");
  AddFileOption(app, "--tls-key", &options->tls_key, "Its key");
  AddFileOption(app, "--token-file", &options->token_file,
                "A file with the token that proves who this client is");
}

absl::Status CheckConnectionOptions(const ConnectionOptions& options) {
  if (options.tls_certificate.empty() != options.tls_key.empty()) {
    const bool certificate = !options.tls_certificate.empty();
    return UsageError(absl::StrCat("TLS: got ", certificate ? "--tls-certificate" : "--tls-key",
                                   " alone, allowed: with ",
                                   certificate ? "--tls-key" : "--tls-certificate"));
  }
  if (!options.tls_certificate.empty() && options.tls_ca.empty()) {
    return UsageError(
        "TLS: got --tls-certificate without --tls-ca, allowed: with it, which says whom to trust");
  }
  if (!options.tls_ca.empty() && options.address.starts_with("unix:")) {
    return UsageError(absl::StrCat("TLS: got --tls-ca for ", options.address,
                                   ", allowed: for HOST:PORT; a unix socket is in plain text"));
  }
  if (!options.token_file.empty() && options.tls_ca.empty() && !StaysOnThisHost(options.address)) {
    return UsageError(absl::StrCat(
        "token: got --token-file without --tls-ca for ", options.address,
        ", allowed: with TLS, or to unix:PATH, localhost, 127.0.0.0/8 or [::1]; others could read "
        "it on the way"));
  }
  return absl::OkStatus();
}

}  // namespace reprise::tools
