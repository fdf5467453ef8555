// SPDX-License-Identifier: Apache-2.0
#include "service/transport/listener.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <chrono>
#include <cstring>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"
#include "service/clock.h"
#include "service/transport/connection_admission.h"
#include "service/transport/connection_table.h"
#include "service/transport/decrypted_bytes.h"
#include "service/transport/peer.h"

namespace reprise::service {
namespace {

// Between two looks at which connections are still open.
constexpr uint64_t kTickNs = 1'000'000'000;
constexpr int kTickMs = 1000;
constexpr uint64_t kReportNs = 10'000'000'000;
// Between two looks when a limit is reached: each is a system call for every connection.
constexpr uint64_t kMinSweepNs = 10'000'000;
// Connections taken off one socket before the others have their turn.
constexpr int kAcceptsPerTurn = 64;
// Whoever connects as fast as it can is refused about 10,000 times a second, so that refusing it
// takes little of a core.
constexpr uint64_t kRefusalsPerPause = 32;
constexpr std::chrono::milliseconds kPause(3);

FileDescriptor OpenSpare() { return FileDescriptor(::open("/dev/null", O_RDONLY | O_CLOEXEC)); }

// What a client gets in place of a connection: a GOAWAY (RFC 9113, 6.8) that says ENHANCE_YOUR_CALM
// and, in words, why. Without the server's SETTINGS ahead of it a gRPC client has not connected, so
// its call fails at once, and it waits before it tries again; with them it would try again for as
// long as the call lasts.
std::string GoAway(std::string_view why) {
  constexpr size_t kMaxWords = 512;
  why = why.substr(0, kMaxWords);
  const size_t size = 8 + why.size();
  std::string bytes = {0, static_cast<char>(size >> 8), static_cast<char>(size), 7, 0, 0, 0, 0, 0};
  bytes += {0, 0, 0, 0, 0, 0, 0, 11};
  bytes += why;
  return bytes;
}

// Who was cut off and is to pay for it. Outlives the listener, as connections do.
class CutConnections {
 public:
  struct Cut {
    std::string peer;
    std::string why;
  };
  void Add(const std::string& peer, const std::string& why) {
    std::lock_guard lock(mutex_);
    // A listener that has stopped takes none off.
    if (cuts_.size() < kMost) cuts_.push_back({.peer = peer, .why = why});
  }
  std::vector<Cut> TakeAll() {
    std::lock_guard lock(mutex_);
    return std::exchange(cuts_, {});
  }

 private:
  static constexpr size_t kMost = 4096;
  std::mutex mutex_;
  std::vector<Cut> cuts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

class Listener::Impl {
 public:
  Impl(std::vector<ListeningSocket> sockets, const ListenerOptions& options,
       const ConnectionLimits& limits)
      : sockets_(std::move(sockets)),
        options_(options),
        limits_(limits),
        admission_(limits),
        stop_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        spare_(OpenSpare()) {
    open_.reserve(limits.max_connections);
  }
  ~Impl() { Stop(); }

  absl::Status Start() {
    if (!stop_.valid() || !spare_.valid()) {
      return absl::UnavailableError("cannot listen: the system has no file descriptors left");
    }
    try {
      thread_ = std::thread([this] { Run(); });
    } catch (const std::system_error& error) {
      return absl::UnavailableError(absl::StrCat("cannot listen: no thread: ", error.what()));
    }
    return absl::OkStatus();
  }

  void Stop() {
    if (!thread_.joinable()) return;
    const uint64_t one = 1;
    // An eventfd that is full is as good.
    [[maybe_unused]] const ssize_t written = ::write(stop_.get(), &one, sizeof(one));
    thread_.join();
    for (ListeningSocket& socket : sockets_) socket.fd.Reset();
  }

  const ConnectionLimits& limits() const { return limits_; }

 private:
  struct Open {
    int fd = -1;
    uint64_t socket_id = 0;
    std::string peer;
  };

  void Run() {
    std::vector<pollfd> polled = {{.fd = stop_.get(), .events = POLLIN, .revents = 0}};
    for (const ListeningSocket& socket : sockets_) {
      polled.push_back({.fd = socket.fd.get(), .events = POLLIN, .revents = 0});
    }
    while (true) {
      ::poll(polled.data(), polled.size(), kTickMs);
      if (polled[0].revents != 0) return;
      try {
        Turn(polled);
      } catch (const std::bad_alloc&) {
        // What it was about is closed, or looked at again in the next turn.
        std::this_thread::sleep_for(kPause);
      }
    }
  }

  void Turn(const std::vector<pollfd>& polled) {
    TakeCuts();
    const uint64_t refused_before = num_refused_;
    for (size_t i = 1; i < polled.size(); ++i) {
      if (polled[i].revents != 0) AcceptSome(sockets_[i - 1]);
    }
    if (num_refused_ - refused_before >= kRefusalsPerPause) std::this_thread::sleep_for(kPause);
    const uint64_t now_ns = NowNs();
    if (now_ns - ticked_ns_ < kTickNs) return;
    ticked_ns_ = now_ns;
    Sweep();
    admission_.ForgetQuiet(now_ns);
    Report(now_ns);
  }

  void AcceptSome(const ListeningSocket& listening) {
    for (int i = 0; i < kAcceptsPerTurn; ++i) {
      FileDescriptor connection(
          ::accept4(listening.fd.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (connection.valid()) {
        Take(std::move(connection), listening);
        continue;
      }
      if (errno == EAGAIN || errno == EWOULDBLOCK) return;
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        TurnAway(listening);
        return;
      }
      // What went wrong with a connection before it was accepted is that connection's own.
    }
  }

  void Take(FileDescriptor connection, const ListeningSocket& listening) {
    const int fd = connection.get();
    Open open = {.fd = fd, .socket_id = ConnectionTable::SocketId(fd), .peer = PeerOf(fd)};
    if (open.peer.empty()) return;
    CutCallback on_cut = [cuts = cuts_, counters = options_.counters, peer = open.peer](
                             CutReason reason, const std::string& why) {
      counters->cut[static_cast<size_t>(reason)].Add();
      cuts->Add(peer, why);
    };
    const uint64_t now_ns = NowNs();
    auto admitted = admission_.Admit(open.peer, now_ns);
    if (!admitted.ok() && now_ns - swept_ns_ >= kMinSweepNs && Sweep()) {
      admitted = admission_.Admit(open.peer, now_ns);
    }
    if (!admitted.ok()) {
      options_.counters->refused_limit.Add();
      Refuse(std::move(connection), listening, admitted.status().message());
      return;
    }
    // Nothing may fail between the count and this; there is room.
    open_.push_back(std::move(open));
    options_.counters->accepted.Add();
    options_.counters->open.store(open_.size(), std::memory_order_relaxed);
    if (listening.is_encrypted) {
      const MeteredTls metered(limits_.frames, *std::move(admitted), std::move(on_cut));
      options_.accept(std::move(connection), listening);
      return;
    }
    ConnectionTable::OfProcess().Add(fd, limits_.frames, *std::move(admitted), std::move(on_cut));
    options_.accept(std::move(connection), listening);
  }

  // The process or the system is out of file descriptors, or of memory: takes whoever is next with
  // the one that was kept for it, and says so.
  void TurnAway(const ListeningSocket& listening) {
    const int error = errno;
    spare_.Reset();
    FileDescriptor connection(
        ::accept4(listening.fd.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (connection.valid()) {
      options_.counters->refused_system.Add();
      Refuse(std::move(connection), listening,
             absl::StrCat("the server can take no connection now: ", std::strerror(error)));
    }
    spare_ = OpenSpare();
    std::this_thread::sleep_for(kPause);
  }

  // A client that waits for TLS could not read the words.
  void Refuse(FileDescriptor connection, const ListeningSocket& listening, absl::string_view why) {
    if (!listening.is_encrypted) {
      const std::string bytes = GoAway({why.data(), why.size()});
      ::send(connection.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    ::shutdown(connection.get(), SHUT_WR);
    ++num_refused_;
    last_ = absl::StrCat(why);
  }

  void TakeCuts() {
    for (const CutConnections::Cut& cut : cuts_->TakeAll()) {
      admission_.Punish(cut.peer, NowNs());
      ++num_cut_;
      last_ = absl::StrCat("connection of ", cut.peer, " cut off: ", cut.why);
    }
  }

  // Forgets connections that have ended. True when there were any.
  bool Sweep() {
    swept_ns_ = NowNs();
    const size_t ended = std::erase_if(open_, [this](const Open& open) {
      if (ConnectionTable::SocketId(open.fd) == open.socket_id) return false;
      ConnectionTable::OfProcess().Remove(open.fd, open.socket_id);
      admission_.Leave(open.peer);
      return true;
    });
    options_.counters->open.store(open_.size(), std::memory_order_relaxed);
    return ended > 0;
  }

  void Report(uint64_t now_ns) {
    if (num_refused_ + num_cut_ == 0 || now_ns - reported_ns_ < kReportNs) return;
    reported_ns_ = now_ns;
    if (options_.report) {
      options_.report(absl::StrCat("connections refused: ", num_refused_, ", cut off: ", num_cut_,
                                   "; the last: ", last_));
    }
    num_refused_ = 0;
    num_cut_ = 0;
  }

  std::vector<ListeningSocket> sockets_;
  const ListenerOptions options_;
  const ConnectionLimits limits_;
  const std::shared_ptr<CutConnections> cuts_ = std::make_shared<CutConnections>();
  // Of the thread:
  ConnectionAdmission admission_;
  std::vector<Open> open_;
  uint64_t ticked_ns_ = NowNs();
  uint64_t swept_ns_ = 0;
  uint64_t reported_ns_ = 0;
  uint64_t num_refused_ = 0;  // since the last report
  uint64_t num_cut_ = 0;
  std::string last_;

  const FileDescriptor stop_;
  FileDescriptor spare_;
  std::thread thread_;
};

Listener::Listener(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Listener::~Listener() = default;

absl::StatusOr<std::unique_ptr<Listener>> Listener::Start(std::vector<ListeningSocket> sockets,
                                                          const ListenerOptions& options) {
  REPRISE_ASSIGN_OR_RETURN(const ConnectionLimits limits,
                           ResolveLimits(options.limits, options.kept_descriptors));
  auto impl = std::make_unique<Impl>(std::move(sockets), options, limits);
  REPRISE_RETURN_IF_ERROR(impl->Start());
  return std::unique_ptr<Listener>(new Listener(std::move(impl)));
}

void Listener::Stop() { impl_->Stop(); }

const ConnectionLimits& Listener::limits() const { return impl_->limits(); }

}  // namespace reprise::service
