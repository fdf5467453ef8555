// SPDX-License-Identifier: Apache-2.0
#include "service/transport/connection_admission.h"

#include "absl/strings/str_cat.h"

namespace reprise::service {

ConnectionAdmission::Peer& ConnectionAdmission::PeerOf(const std::string& peer, uint64_t now_ns) {
  const auto found = peers_.find(peer);
  if (found != peers_.end()) return found->second;
  return peers_
      .emplace(peer, Peer{.accepts = TokenBucket(limits_.accepts_per_peer, now_ns),
                          .meter = std::make_shared<PeerMeter>(limits_.calls_per_peer,
                                                               limits_.resets_per_peer, now_ns)})
      .first->second;
}

absl::StatusOr<std::shared_ptr<PeerMeter>> ConnectionAdmission::Admit(const std::string& peer,
                                                                      uint64_t now_ns) {
  if (num_connections_ >= limits_.max_connections) {
    return absl::ResourceExhaustedError(absl::StrCat("connections: got one more with ",
                                                     num_connections_, " open, allowed ",
                                                     limits_.max_connections));
  }
  Peer& from = PeerOf(peer, now_ns);
  if (from.connections >= limits_.max_connections_per_peer) {
    return absl::ResourceExhaustedError(
        absl::StrCat("connections of ", peer, ": got one more with ", from.connections,
                     " open, allowed ", limits_.max_connections_per_peer));
  }
  if (!from.accepts.Take(1, now_ns)) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "new connections of ", peer, ": got more, allowed ", limits_.accepts_per_peer.burst,
        " at once and ", limits_.accepts_per_peer.per_second, " a second"));
  }
  ++from.connections;
  ++num_connections_;
  return from.meter;
}

void ConnectionAdmission::Leave(const std::string& peer) {
  --peers_.at(peer).connections;
  --num_connections_;
}

void ConnectionAdmission::Punish(const std::string& peer, uint64_t now_ns) {
  PeerOf(peer, now_ns).accepts.Charge(limits_.accepts_per_cut, now_ns);
}

void ConnectionAdmission::ForgetQuiet(uint64_t now_ns) {
  absl::erase_if(peers_, [now_ns](auto& entry) {
    return entry.second.connections == 0 && entry.second.accepts.IsFull(now_ns);
  });
}

}  // namespace reprise::service
