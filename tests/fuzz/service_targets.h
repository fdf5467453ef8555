// SPDX-License-Identifier: Apache-2.0
// Targets of targets.h that read what operators of a server, other servers and recordings give it,
// each with what it takes to begin with.
#ifndef REPRISE_TESTS_FUZZ_SERVICE_TARGETS_H_
#define REPRISE_TESTS_FUZZ_SERVICE_TARGETS_H_

#include <string>
#include <string_view>
#include <vector>

namespace reprise::fuzz {

// A file of identities.
bool TakeIdentities(std::string_view bytes);
std::vector<std::string> IdentitySeeds();
// Where to listen.
bool TakeListenAddress(std::string_view bytes);
std::vector<std::string> ListenSeeds();
// Certificates, keys and lists of those revoked.
bool TakePem(std::string_view bytes);
std::vector<std::string> PemSeeds();
// Another server's file in the exchange directory.
bool TakeExportWindow(std::string_view bytes);
std::vector<std::string> ExportWindowSeeds();
// A ticket for a copy of a KV block, looked up in a window.
bool TakeTicket(std::string_view bytes);
std::vector<std::string> TicketSeeds();

}  // namespace reprise::fuzz

#endif  // REPRISE_TESTS_FUZZ_SERVICE_TARGETS_H_
