// SPDX-License-Identifier: Apache-2.0
// Whether a server may start as it is asked to: what of TLS and identities goes together, and what
// an address needs that others than this host reach. Threads: free functions without state.
#ifndef REPRISE_SERVICE_EXPOSURE_H_
#define REPRISE_SERVICE_EXPOSURE_H_

#include <vector>

#include "absl/status/status.h"
#include "service/identity/identity.h"
#include "service/server.h"
#include "service/transport/listening_socket.h"

namespace reprise::service {

// Errors: InvalidArgument (what, got, allowed): files that need another, which is not there.
absl::Status CheckTlsFiles(const TlsFiles& tls);

// The same, and client certificates that nothing could verify, or that nobody would be known by.
absl::Status CheckTlsOptions(const TlsFiles& tls, const std::vector<Identity>& identities);

// Errors: FailedPrecondition for an address that others than this host reach, without both TLS and
// identities, unless `options` say that anyone is allowed.
absl::Status CheckExposure(const ServerOptions& options,
                           const std::vector<ListeningSocket>& sockets);

// The same of where metrics are answered. They are plain HTTP and know no identities, so that
// neither makes such an address good.
absl::Status CheckMetricsExposure(const ServerOptions& options,
                                  const std::vector<ListeningSocket>& sockets);

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_EXPOSURE_H_
