// SPDX-License-Identifier: Apache-2.0
// Server: one listening gRPC server: StepService, health, reflection. It may start before a model
// is loaded; AttachEngine makes it serve. It knows addresses and shutdown; what a step is, it
// leaves to StepService.
//
//   REPRISE_ASSIGN_OR_RETURN(auto server, Server::Start({.listen = {"unix:/run/reprise.sock"}}));
//   REPRISE_ASSIGN_OR_RETURN(auto engine, engine::DecodeEngine::Create(*device, source, options));
//   server->AttachEngine(*engine);
//   ... wait for a signal ...
//   server->Drain();
//
// Threads: every method from any thread; Start, AttachEngine and destruction by the owner.
#ifndef REPRISE_SERVICE_SERVER_H_
#define REPRISE_SERVICE_SERVER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/decode_engine.h"
#include "service/files_change.h"
#include "service/identity/identity.h"
#include "service/joint_limits.h"
#include "service/record/record_options.h"
#include "service/transport/connection_limits.h"
#include "service/transport/tls_files.h"

namespace reprise::service {

struct ServerOptions {
  // "unix:/path" or "host:port" (IPv6 in brackets); port 0 takes a free one.
  std::vector<std::string> listen;
  // Who may use the server. None: whoever reaches it, as one identity with all roles.
  std::vector<Identity> identities = {};
  // In place of them: the file that says so (identity_file.h), which Reload reads again.
  std::string identities_file = {};
  // TLS on every TCP address. Empty: none.
  TlsFiles tls = {};
  // Start on TCP addresses that other hosts reach without both TLS and identities.
  bool allow_anyone = false;
  // Of one message to the server; a larger one ends its call with RESOURCE_EXHAUSTED. An engine
  // with many rows, long tables or a large vocabulary takes steps beyond the default: MaxStepBytes
  // in message_bounds.h, which Describe tells beside this.
  uint32_t max_message_bytes = 4u << 20;
  // What all messages together may take that wait in the server; steps with large messages are
  // refused beyond it, small ones never. At least what one message of max_message_bytes takes.
  uint64_t max_waiting_bytes = uint64_t{256} << 20;
  // Sessions open at a time; a stream beyond it is refused.
  uint32_t max_sessions = 64;
  // What each of them may hold.
  engine::SessionLimits session_limits = {};
  // A session without a stream message or unary call for this long is ended, and what it held is
  // free for others. 0: never.
  uint64_t idle_timeout_ms = 0;
  // Longest that a session outlives a stream that is lost, where its client asks for it. 0: none
  // does.
  uint64_t max_resume_grace_ms = 30000;
  // Whether clients may replace the tree by which attention's plan decides, for everyone. With
  // identities their roles say so.
  bool allow_attention_trees = false;
  // Whether whoever reaches the server may list and evict sessions. With identities their roles say
  // so.
  bool allow_administration = false;
  // Which model is served: ModelFingerprint of its source. "": nobody knows, and contents of KV
  // blocks are neither read nor written.
  std::string model = {};
  // Which steps of different sessions run in one replay.
  JointLimits joint = {};
  // Connections, and what may come in on each before it is a call.
  ConnectionLimits connections = {};
  // Calls of one connection at a time; those beyond it wait in the client.
  uint32_t max_calls_per_connection = 100;
  // How long Drain waits for accepted steps before it cancels what is left.
  uint32_t drain_timeout_ms = 10000;
  // A connection that is silent for this long is asked for a sign of life, and dropped when none
  // comes within as long again: what a client held that vanished without closing its connection is
  // freed then. 0: never.
  uint32_t keepalive_ms = 20000;
  // Where GET /metrics is answered over plain HTTP, to whoever can connect, as `listen`; "":
  // nowhere. Where other hosts reach it, allow_anyone is needed, whatever else there is.
  std::string metrics_listen = {};
  // A line of JSON for each step request and session is appended to this file, "-": stderr; "":
  // nowhere. See AccessLog.
  std::string access_log = {};
  // Sessions are recorded where `record.directory` is set: who may read it reads what clients asked
  // and were answered. See Recorder.
  RecordOptions record = {};
  // What the program was built from, for reprise_build_info.
  std::string commit = {};
  // Told of connections that were refused or cut off, once in ten seconds at most, of recordings
  // that stopped, and of every Reload, on threads of the server's or the caller's. May be empty.
  std::function<void(const std::string&)> report = {};
};

class KvExchange;

class Server {
 public:
  // Listens on every address. Until AttachEngine, StepService calls answer UNAVAILABLE ("loading")
  // and health NOT_SERVING. Errors name the address: InvalidArgument (no address, or one that is
  // malformed; options of TLS that do not go together; identities that CheckIdentities refuses, or
  // both ways to name them), AlreadyExists (someone listens there already), FailedPrecondition (the
  // path is a file that is not a socket; the process's limit of file descriptors leaves too few
  // connections; other hosts reach the address, and it has not both TLS and identities, or answers
  // metrics), NotFound (its directory is missing), PermissionDenied, Unavailable (anything else);
  // of a file of TLS: see ReadTlsFiles; of identities: ReadIdentities; of `access_log`:
  // LogFile::Open's; of `record`: Recorder::Open's. A socket file on which nobody listens is
  // removed first.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const ServerOptions& options);
  // Drains without patience if Drain was not called; removes socket files.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Serves `engine`, which must outlive this server, and so must `exchange`, by which blocks go to
  // servers of other processes and come from them; nullptr: none do. Once only.
  void AttachEngine(engine::DecodeEngine& engine, KvExchange* exchange = nullptr);

  // Addresses as given, with port 0 replaced by the port taken.
  const std::vector<std::string>& addresses() const;
  // The same of metrics_listen; "" where there is none.
  std::string metrics_address() const;

  // Reads the files of identities and of TLS again. All of them are taken, or none. Identities go
  // on by their names; sessions of one that is gone, or has no role for sessions any more, are
  // ended. Quotas, weights and priorities hold from the next request on, TLS from the next
  // connection on. Told to `report`, and counted. Errors: FailedPrecondition (a file that is wrong,
  // with its name and the place; no files; files that do not go together), and what was in force
  // stays.
  absl::StatusOr<FilesChange> Reload();

  // Health turns NOT_SERVING; new streams and steps answer UNAVAILABLE ("draining"); steps accepted
  // before are finished and answered, then their streams end; then the server stops. Returns when
  // all is stopped, drain_timeout_ms later at most, plus the step that the device is working on.
  // True when nothing had to be cut off. Further calls return at once.
  bool Drain();

 private:
  class Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_SERVER_H_
