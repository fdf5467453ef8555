// SPDX-License-Identifier: Apache-2.0
#include "service/sessions.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace reprise::service {
namespace {

absl::Status Draining() {
  return absl::UnavailableError("draining: the server is stopping and takes nothing new");
}

absl::Status NotOpen(engine::SessionId session) {
  return absl::NotFoundError(
      absl::StrCat("session: got ", session, ", allowed one that is open on a StepStream"));
}

}  // namespace

absl::Status Sessions::CheckAdmitting() const {
  std::lock_guard lock(mutex_);
  return draining_ ? Draining() : absl::OkStatus();
}

absl::Status Sessions::Join(const std::shared_ptr<Stream>& stream) {
  std::lock_guard lock(mutex_);
  if (draining_) return Draining();
  streams_[stream.get()] = stream;
  return absl::OkStatus();
}

void Sessions::Leave(const Stream* stream) {
  std::lock_guard lock(mutex_);
  streams_.erase(stream);
  if (IsIdle()) idle_.notify_all();
}

void Sessions::Settle() const { const std::lock_guard lock(mutex_); }

void Sessions::Open(engine::SessionId session) {
  std::lock_guard lock(mutex_);
  open_[session] = 0;
}

void Sessions::Close(engine::SessionId session) {
  std::lock_guard lock(mutex_);
  open_.erase(session);
}

absl::Status Sessions::CheckOpen(engine::SessionId session) const {
  std::lock_guard lock(mutex_);
  return open_.contains(session) ? absl::OkStatus() : NotOpen(session);
}

absl::Status Sessions::BeginStep(engine::SessionId session, uint32_t limit) {
  std::lock_guard lock(mutex_);
  if (draining_) return Draining();
  auto it = open_.find(session);
  if (it == open_.end()) return NotOpen(session);
  if (it->second >= limit) {
    return absl::ResourceExhaustedError(absl::StrCat("unary steps of session ", session,
                                                     " waiting: got one more, allowed ", limit));
  }
  ++it->second;
  ++unary_steps_;
  return absl::OkStatus();
}

void Sessions::EndStep(engine::SessionId session) {
  std::lock_guard lock(mutex_);
  auto it = open_.find(session);
  if (it != open_.end()) --it->second;
  --unary_steps_;
  if (IsIdle()) idle_.notify_all();
}

void Sessions::Drain() {
  std::vector<std::shared_ptr<Stream>> streams;
  {
    std::lock_guard lock(mutex_);
    draining_ = true;
    for (const auto& [key, stream] : streams_) {
      if (auto alive = stream.lock()) streams.push_back(std::move(alive));
    }
  }
  for (const auto& stream : streams) stream->Drain();
}

bool Sessions::WaitIdle(std::chrono::steady_clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  return idle_.wait_until(lock, deadline, [this] { return IsIdle(); });
}

bool Sessions::IsIdle() const { return streams_.empty() && unary_steps_ == 0; }

}  // namespace reprise::service
