// SPDX-License-Identifier: Apache-2.0
#include "service/exposure.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"

namespace reprise::service {

absl::Status CheckTlsFiles(const TlsFiles& tls) {
  if (tls.certificate.empty() != tls.key.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("TLS: got a ", tls.key.empty() ? "certificate" : "key",
                     " alone, allowed: both it and its ", tls.key.empty() ? "key" : "certificate"));
  }
  if (!tls.client_ca.empty() && tls.certificate.empty()) {
    return absl::InvalidArgumentError(
        "client CA: got one without TLS, allowed: with a TLS certificate and its key");
  }
  if (!tls.client_crl.empty() && tls.client_ca.empty()) {
    return absl::InvalidArgumentError(
        "client CRL: got one without a client CA, allowed: with the one whose list it is");
  }
  return absl::OkStatus();
}

absl::Status CheckTlsOptions(const TlsFiles& tls, const std::vector<Identity>& identities) {
  REPRISE_RETURN_IF_ERROR(CheckTlsFiles(tls));
  const auto known =
      std::find_if(identities.begin(), identities.end(),
                   [](const Identity& identity) { return !identity.certificate_names.empty(); });
  if (known == identities.end()) {
    if (tls.client_ca.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "client CA: got one that no identity needs, allowed: with an identity that has "
        "certificate_names");
  }
  if (!tls.client_ca.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("identity ", known->name,
                   ": got certificate_names without a client CA, allowed: with one, which says "
                   "whose certificates are taken"));
}

absl::Status CheckExposure(const ServerOptions& options,
                           const std::vector<ListeningSocket>& sockets) {
  const bool has_tls = !options.tls.certificate.empty();
  const bool has_identities = !options.identities.empty();
  if (options.allow_anyone || (has_tls && has_identities)) return absl::OkStatus();
  for (const ListeningSocket& socket : sockets) {
    if (!socket.is_open) continue;
    const char* got = has_tls          ? "TLS without identities"
                      : has_identities ? "identities without TLS"
                                       : "neither TLS nor identities";
    return absl::FailedPreconditionError(absl::StrCat(
        "listen address ", socket.address, " is open to other hosts: got ", got,
        ", allowed: both (--tls-certificate, --tls-key, --identities), or none of it with "
        "--allow-anyone"));
  }
  return absl::OkStatus();
}

absl::Status CheckMetricsExposure(const ServerOptions& options,
                                  const std::vector<ListeningSocket>& sockets) {
  if (options.allow_anyone) return absl::OkStatus();
  for (const ListeningSocket& socket : sockets) {
    if (!socket.is_open) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "metrics address ", socket.address,
        " is open to other hosts: got plain HTTP, which knows no identities, allowed: an address "
        "of this host or unix:PATH, or any with --allow-anyone"));
  }
  return absl::OkStatus();
}

}  // namespace reprise::service
