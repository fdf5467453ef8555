// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/service_targets.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "reprise/v1/step_service.pb.h"
#include "runtime/check.h"
#include "service/identity/identity_file.h"
#include "service/kv/export_window.h"
#include "service/kv/kv_ticket.h"
#include "service/kv/kv_wire.h"
#include "service/transport/listen_address.h"
#include "service/transport/tls_files.h"
#include "tests/fuzz/fuzz_files.h"
#include "tests/fuzz/wire_targets.h"
#include "tests/service/certificates.h"

namespace reprise::fuzz {
namespace {

constexpr std::string_view kWindowId = "0123456789abcdef", kWindowKey = "a key of a copy.";

static_assert(kWindowId.size() == service::ExportWindow::kIdBytes &&
              kWindowKey.size() == service::ExportWindow::kKeyBytes);

// A file of the exchange directory, whose server runs.
class WindowFile {
 public:
  WindowFile()
      : fd_(::open(directory_.path(Name()).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600)) {
    REPRISE_CHECK(fd_ >= 0 && ::flock(fd_, LOCK_EX | LOCK_NB) == 0);
  }
  ~WindowFile() { ::close(fd_); }
  WindowFile(const WindowFile&) = delete;
  WindowFile& operator=(const WindowFile&) = delete;
  static std::string Name() {
    return absl::StrCat(
        absl::BytesToHexString(absl::string_view(kWindowId.data(), kWindowId.size())), ".export");
  }
  const std::string& directory() const { return directory_.path(); }
  void Write(std::string_view bytes) const { directory_.Write(Name(), bytes); }

 private:
  const FuzzDirectory directory_;
  const int fd_;
};

// A window of two places, of which the first has a copy.
std::unique_ptr<service::ExportWindow> WindowOfTwo(const std::string& directory) {
  v1::KvLayout layout;
  service::KvLayoutToWire(kKvShape, "", &layout);
  auto window = service::ExportWindow::Make(directory, {.id = std::string(kWindowId),
                                                        .num_places = 2,
                                                        .handle = "a handle",
                                                        .arrangement = "plain 256",
                                                        .layout = layout.SerializeAsString()});
  REPRISE_CHECK(window.ok());
  (*window)->Publish(0, kWindowKey, "a", 3);
  return *std::move(window);
}

}  // namespace

bool TakeIdentities(std::string_view bytes) {
  return service::ParseIdentities(bytes, "identities.json").ok();
}

std::vector<std::string> IdentitySeeds() {
  return {absl::StrCat(R"({"identities": [{"name": "a", "roles": ["step", "observe"],
      "unix_users": [0, 7], "certificate_names": ["dns:a.example"], "weight": 3, "max_rows": 8,
      "priority": 9, "token_sha256": [")",
                       std::string(64, 'a'), "\"]},\n",
                       R"({"name": "b", "roles": ["administer"], "unix_users": [1]}]})")};
}

bool TakeListenAddress(std::string_view bytes) { return service::ParseListenAddress(bytes).ok(); }

std::vector<std::string> ListenSeeds() { return {"[::1]:50061", "127.0.0.1:0", "unix:/run/s"}; }

bool TakePem(std::string_view bytes) {
  const std::string pem(bytes);
  const bool certificate = service::CheckCertificate("file", pem).ok();
  const bool key = service::CheckKey("file", pem, pem).ok();
  return service::CheckCrls("file", pem, pem).ok() || certificate || key;
}

std::vector<std::string> PemSeeds() {
  const testing::CertificateAuthority authority("fuzz");
  const testing::IssuedCertificate issued = authority.Issue({.common_name = "a"});
  return {issued.certificate + issued.key, authority.certificate() + authority.Revoke({issued})};
}

bool TakeExportWindow(std::string_view bytes) {
  static const WindowFile file;
  file.Write(bytes);
  const auto window = service::ExportWindow::Open(file.directory(), kWindowId);
  if (!window.ok()) return false;
  const service::ExportWindow::Description& description = (*window)->description();
  v1::KvLayout theirs, own;
  service::KvLayoutToWire(kKvShape, "", &own);
  const bool is_layout = theirs.ParseFromString(description.layout);
  const bool fits = is_layout && service::CheckKvLayout(theirs, own).ok();
  // A ticket may name any place.
  const uint32_t places = description.num_places;
  for (const uint32_t place : {0u, 1u, places - 1, places, ~0u}) {
    const auto num_tokens = (*window)->Find(place, kWindowKey, "a");
    REPRISE_CHECK(!num_tokens || place < places);
  }
  return fits;
}

std::vector<std::string> ExportWindowSeeds() {
  const FuzzDirectory directory;
  const auto window = WindowOfTwo(directory.path());
  return {BytesOfFile(directory.path(WindowFile::Name()))};
}

bool TakeTicket(std::string_view bytes) {
  const auto ticket = service::ParseKvTicket(bytes);
  if (!ticket.ok()) return false;
  REPRISE_CHECK(service::BytesOf(*ticket) == bytes);
  static const FuzzDirectory directory;
  static const std::unique_ptr<service::ExportWindow> window = WindowOfTwo(directory.path());
  const bool found = window->Find(ticket->place, ticket->key, "a").has_value();
  // One of the two places has a copy.
  REPRISE_CHECK(found == (ticket->place == 0 && ticket->key == kWindowKey));
  return true;
}

std::vector<std::string> TicketSeeds() {
  std::vector<std::string> seeds;
  for (const uint32_t place : {0u, 1u, 2u, ~0u})
    seeds.push_back(service::BytesOf({.window = kWindowId, .place = place, .key = kWindowKey}));
  return seeds;
}

}  // namespace reprise::fuzz
