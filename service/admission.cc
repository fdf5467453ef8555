// SPDX-License-Identifier: Apache-2.0
#include "service/admission.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "service/out_of_memory.h"

namespace reprise::service {
namespace {

absl::Status Draining() {
  return absl::UnavailableError("draining: the server is stopping and takes nothing new");
}

}  // namespace

absl::Status Admission::CheckAdmitting() const {
  std::lock_guard lock(mutex_);
  return draining_ ? Draining() : absl::OkStatus();
}

absl::Status Admission::Join(const std::shared_ptr<Stream>& stream) {
  std::lock_guard lock(mutex_);
  if (draining_) return Draining();
  streams_[stream.get()] = stream;
  return absl::OkStatus();
}

void Admission::Leave(const Stream* stream) {
  std::lock_guard lock(mutex_);
  streams_.erase(stream);
  if (IsIdle()) idle_.notify_all();
}

void Admission::Settle() const { const std::lock_guard lock(mutex_); }

absl::Status Admission::BeginStep(engine::SessionId session, uint32_t limit) {
  std::lock_guard lock(mutex_);
  if (draining_) return Draining();
  UnarySteps& steps = unary_steps_[session];
  if (steps.unanswered >= limit) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "unary steps of session ", session, " that wait: got ", limit + 1, ", allowed ", limit));
  }
  if (steps.all >= 2 * limit) {
    return absl::ResourceExhaustedError(absl::StrCat("unary steps of session ", session,
                                                     " whose answers were not taken: got ",
                                                     2 * limit + 1, ", allowed ", 2 * limit));
  }
  ++steps.unanswered;
  ++steps.all;
  return absl::OkStatus();
}

void Admission::AnswerStep(engine::SessionId session) {
  std::lock_guard lock(mutex_);
  --unary_steps_.find(session)->second.unanswered;
}

void Admission::EndStep(engine::SessionId session) {
  std::vector<std::shared_ptr<Stream>> streams;
  {
    std::lock_guard lock(mutex_);
    const auto it = unary_steps_.find(session);
    if (--it->second.all != 0) return;
    // Whether one waits for them is the stream's to know. Without memory for the list a stream that
    // waits is cut off at the end of the drain.
    if (draining_) {
      CatchOutOfMemory([&] {
        streams = ConnectedStreams();
        return absl::OkStatus();
      }).IgnoreError();
    }
    unary_steps_.erase(it);
    if (IsIdle()) idle_.notify_all();
  }
  for (const auto& stream : streams) stream->Drain();
}

void Admission::Drain() {
  std::vector<std::shared_ptr<Stream>> streams;
  {
    std::lock_guard lock(mutex_);
    draining_ = true;
    streams = ConnectedStreams();
  }
  for (const auto& stream : streams) stream->Drain();
}

void Admission::EndIdleStreams(uint64_t since_ns) {
  std::vector<std::shared_ptr<Stream>> streams;
  {
    std::lock_guard lock(mutex_);
    streams = ConnectedStreams();
  }
  for (const auto& stream : streams) stream->EndIfIdle(since_ns);
}

void Admission::CutLostStreams(uint64_t since_ns) {
  std::vector<std::shared_ptr<Stream>> streams;
  {
    std::lock_guard lock(mutex_);
    streams = ConnectedStreams();
  }
  for (const auto& stream : streams) stream->CutIfLost(since_ns);
}

std::vector<std::shared_ptr<Admission::Stream>> Admission::ConnectedStreams() const {
  std::vector<std::shared_ptr<Stream>> streams;
  for (const auto& [key, stream] : streams_) {
    if (auto alive = stream.lock()) streams.push_back(std::move(alive));
  }
  return streams;
}

bool Admission::WaitIdle(std::chrono::steady_clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  return idle_.wait_until(lock, deadline, [this] { return IsIdle(); });
}

bool Admission::IsIdle() const { return streams_.empty() && unary_steps_.empty(); }

}  // namespace reprise::service
