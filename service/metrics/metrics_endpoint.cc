// SPDX-License-Identifier: Apache-2.0
#include "service/metrics/metrics_endpoint.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/http.h>
#include <event2/listener.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <new>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"
#include "service/clock.h"
#include "service/metrics/exposition.h"
#include "service/transport/connection_table.h"
#include "service/transport/file_descriptor.h"
#include "service/transport/listen_address.h"
#include "service/transport/listening_socket.h"

namespace reprise::service {
namespace {

constexpr char kPath[] = "/metrics";
// A request line and headers; a body has no use.
constexpr ev_ssize_t kMaxHeaderBytes = 8192;
constexpr ev_ssize_t kMaxBodyBytes = 1024;
// Without a byte read or written.
constexpr int kSilenceSeconds = 5;
// Between two looks at what is open.
constexpr timeval kTick = {.tv_sec = 0, .tv_usec = 100'000};
constexpr int kMethods = EVHTTP_REQ_GET | EVHTTP_REQ_POST | EVHTTP_REQ_HEAD | EVHTTP_REQ_PUT |
                         EVHTTP_REQ_DELETE | EVHTTP_REQ_OPTIONS | EVHTTP_REQ_TRACE |
                         EVHTTP_REQ_CONNECT | EVHTTP_REQ_PATCH;

template <auto free>
struct Free {
  template <typename T>
  void operator()(T* object) const {
    free(object);
  }
};
using Base = std::unique_ptr<event_base, Free<event_base_free>>;
using Http = std::unique_ptr<evhttp, Free<evhttp_free>>;
using Event = std::unique_ptr<event, Free<event_free>>;

absl::Status NoRoom() {
  return absl::UnavailableError("cannot serve metrics: the system has no room for it");
}

bool IsMetricsPath(evhttp_request* request) {
  const evhttp_uri* uri = evhttp_request_get_evhttp_uri(request);
  const char* path = uri == nullptr ? nullptr : evhttp_uri_get_path(uri);
  return path != nullptr && std::string_view(path) == kPath;
}

// The connection ends with the answer: evhttp closes it where this header says so.
void Reply(evhttp_request* request, int code, const char* reason, const char* type,
           std::string_view text) {
  evkeyvalq* headers = evhttp_request_get_output_headers(request);
  evhttp_add_header(headers, "Connection", "close");
  evhttp_add_header(headers, "Content-Type", type);
  evbuffer* body = evhttp_request_get_output_buffer(request);
  if (evbuffer_add(body, text.data(), text.size()) != 0) {
    evhttp_send_error(request, HTTP_SERVUNAVAIL, nullptr);
    return;
  }
  evhttp_send_reply(request, code, reason, nullptr);
}

void ReplyInWords(evhttp_request* request, int code, const char* reason, std::string_view words) {
  Reply(request, code, reason, "text/plain; charset=utf-8", words);
}

}  // namespace

class MetricsEndpoint::Impl {
 public:
  Impl(const MetricsEndpointOptions& options, std::vector<ListeningSocket> sockets)
      : options_(options),
        sockets_(std::move(sockets)),
        stop_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    // Nothing may be thrown through the library: these grow no further. Between two ticks that
    // many are accepted.
    new_.reserve(size_t{2} * options.max_accepts);
    open_.reserve(2 * (options.max_connections + options.max_accepts));
  }
  ~Impl() {
    if (!thread_.joinable()) return;
    const uint64_t one = 1;
    // An eventfd that is full is as good.
    [[maybe_unused]] const ssize_t written = ::write(stop_.get(), &one, sizeof(one));
    thread_.join();
  }

  absl::Status Start() {
    // What the library would say on stderr is nobody's to act on.
    event_set_log_callback([](int, const char*) {});
    base_.reset(event_base_new());
    if (!stop_.valid() || base_ == nullptr) return NoRoom();
    http_.reset(evhttp_new(base_.get()));
    if (http_ == nullptr) return NoRoom();
    SetLimits();
    REPRISE_RETURN_IF_ERROR(AddListeners());
    REPRISE_RETURN_IF_ERROR(AddEvents());
    try {
      thread_ = std::thread([this] { Run(); });
    } catch (const std::system_error& error) {
      return absl::UnavailableError(
          absl::StrCat("cannot serve metrics: no thread: ", error.what()));
    }
    return absl::OkStatus();
  }

  const std::string& address() const { return sockets_.front().address; }

 private:
  struct Open {
    int fd = -1;
    uint64_t socket_id = 0;
    uint64_t since_ns = 0;
  };

  static Impl* Of(void* self) { return static_cast<Impl*>(self); }

  void SetLimits() {
    evhttp_set_max_headers_size(http_.get(), kMaxHeaderBytes);
    evhttp_set_max_body_size(http_.get(), kMaxBodyBytes);
    evhttp_set_timeout(http_.get(), kSilenceSeconds);
    evhttp_set_allowed_methods(http_.get(), kMethods);
    evhttp_set_bevcb(
        http_.get(), [](event_base* base, void* self) { return Of(self)->NewConnection(base); },
        this);
    evhttp_set_gencb(
        http_.get(), [](evhttp_request* request, void* self) { Of(self)->Answer(request); }, this);
  }

  absl::Status AddListeners() {
    for (const ListeningSocket& socket : sockets_) {
      evconnlistener* listener = evconnlistener_new(base_.get(), nullptr, nullptr,
                                                    LEV_OPT_CLOSE_ON_EXEC, 0, socket.fd.get());
      if (listener == nullptr) return NoRoom();
      // The system has no room for a connection now: asked again at the next tick.
      evconnlistener_set_error_cb(
          listener, [](evconnlistener* failed, void*) { evconnlistener_disable(failed); });
      if (evhttp_bind_listener(http_.get(), listener) == nullptr) {
        evconnlistener_free(listener);
        return NoRoom();
      }
      listeners_.push_back(listener);
    }
    return absl::OkStatus();
  }

  absl::Status AddEvents() {
    stop_event_.reset(event_new(
        base_.get(), stop_.get(), EV_READ,
        [](evutil_socket_t, short, void* self) { event_base_loopbreak(Of(self)->base_.get()); },
        this));
    tick_event_.reset(event_new(
        base_.get(), -1, EV_PERSIST, [](evutil_socket_t, short, void* self) { Of(self)->Tick(); },
        this));
    new_event_.reset(event_new(
        base_.get(), -1, 0, [](evutil_socket_t, short, void* self) { Of(self)->NoteNew(); }, this));
    if (stop_event_ == nullptr || tick_event_ == nullptr || new_event_ == nullptr) return NoRoom();
    if (event_add(stop_event_.get(), nullptr) != 0 || event_add(tick_event_.get(), &kTick) != 0)
      return NoRoom();
    return absl::OkStatus();
  }

  void Run() {
    // A client that is gone is an error of the write, not of the process.
    sigset_t pipe;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    ::pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
    event_base_dispatch(base_.get());
    for (bufferevent* connection : new_) bufferevent_decref(connection);
  }

  // evhttp has accepted a connection, and wants a buffer for it. It says nowhere what becomes of
  // the connection, so it is watched by its file descriptor, which is known as soon as this call is
  // over.
  bufferevent* NewConnection(event_base* base) {
    bufferevent* connection = bufferevent_socket_new(base, -1, BEV_OPT_CLOSE_ON_FREE);
    if (connection == nullptr) return nullptr;
    bufferevent_incref(connection);
    new_.push_back(connection);
    event_active(new_event_.get(), EV_TIMEOUT, 0);
    if (++num_accepted_ >= options_.max_accepts) StopAccepting();
    return connection;
  }

  void NoteNew() {
    ForgetEnded();
    for (bufferevent* connection : new_) {
      const int fd = bufferevent_getfd(connection);
      bufferevent_decref(connection);
      const uint64_t socket_id = fd < 0 ? 0 : ConnectionTable::SocketId(fd);
      if (socket_id == 0) continue;
      if (open_.size() == open_.capacity()) {
        ::shutdown(fd, SHUT_RDWR);
      } else {
        open_.push_back({.fd = fd, .socket_id = socket_id, .since_ns = NowNs()});
      }
    }
    new_.clear();
    // In the order in which they came. Ended here, they are closed by evhttp, and forgotten later.
    for (size_t i = 0; i + options_.max_connections < open_.size(); ++i)
      ::shutdown(open_[i].fd, SHUT_RDWR);
  }

  void Tick() {
    num_accepted_ = 0;
    ForgetEnded();
    const uint64_t now_ns = NowNs();
    for (const Open& open : open_) {
      if (now_ns - open.since_ns >= options_.max_connection_ms * 1'000'000)
        ::shutdown(open.fd, SHUT_RDWR);
    }
    for (evconnlistener* listener : listeners_) evconnlistener_enable(listener);
  }

  // Nobody else closes them, and this thread alone accepts: a number is still the same socket or
  // it is not.
  void ForgetEnded() {
    std::erase_if(open_, [](const Open& open) {
      return ConnectionTable::SocketId(open.fd) != open.socket_id;
    });
  }

  void StopAccepting() {
    for (evconnlistener* listener : listeners_) evconnlistener_disable(listener);
  }

  void Answer(evhttp_request* request) {
    if (!IsMetricsPath(request)) {
      return ReplyInWords(request, HTTP_NOTFOUND, "Not Found", "there is /metrics alone\n");
    }
    if (evhttp_request_get_command(request) != EVHTTP_REQ_GET) {
      evhttp_add_header(evhttp_request_get_output_headers(request), "Allow", "GET");
      const bool has_body = evhttp_request_get_command(request) != EVHTTP_REQ_HEAD;
      return ReplyInWords(request, HTTP_BADMETHOD, "Method Not Allowed",
                          has_body ? "allowed: GET\n" : "");
    }
    try {
      Reply(request, HTTP_OK, "OK", Exposition::kContentType, options_.render());
    } catch (const std::bad_alloc&) {
      evhttp_send_error(request, HTTP_SERVUNAVAIL, nullptr);
    }
  }

  const MetricsEndpointOptions options_;
  std::vector<ListeningSocket> sockets_;
  const FileDescriptor stop_;
  Base base_;
  Event stop_event_, tick_event_, new_event_;
  Http http_;
  std::vector<evconnlistener*> listeners_;  // http_'s
  // Of the thread:
  std::vector<bufferevent*> new_;  // whose file descriptors are not known yet
  std::vector<Open> open_;
  uint32_t num_accepted_ = 0;  // since the last tick
  std::thread thread_;
};

MetricsEndpoint::MetricsEndpoint(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
MetricsEndpoint::~MetricsEndpoint() = default;

absl::StatusOr<std::unique_ptr<MetricsEndpoint>> MetricsEndpoint::Start(
    const MetricsEndpointOptions& options) {
  REPRISE_ASSIGN_OR_RETURN(const ListenAddress address, ParseListenAddress(options.listen));
  REPRISE_ASSIGN_OR_RETURN(std::vector<ListeningSocket> sockets, Listen(address));
  return Start(options, std::move(sockets));
}

absl::StatusOr<std::unique_ptr<MetricsEndpoint>> MetricsEndpoint::Start(
    const MetricsEndpointOptions& options, std::vector<ListeningSocket> sockets) {
  auto impl = std::make_unique<Impl>(options, std::move(sockets));
  REPRISE_RETURN_IF_ERROR(impl->Start());
  return std::unique_ptr<MetricsEndpoint>(new MetricsEndpoint(std::move(impl)));
}

const std::string& MetricsEndpoint::address() const { return impl_->address(); }

}  // namespace reprise::service
