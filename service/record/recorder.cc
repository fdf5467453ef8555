// SPDX-License-Identifier: Apache-2.0
#include "service/record/recorder.h"

#include <algorithm>
#include <new>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/byte_count.h"
#include "runtime/status_macros.h"
#include "service/out_of_memory.h"
#include "service/record/record_format.h"
#include "service/utc_time.h"
#include "service/wire/describe_to_wire.h"

namespace reprise::service {
namespace {

// A place of the queue that held more does not keep it. All of them together keep no more than may
// wait (RecordOptions).
constexpr size_t kMaxKeptBytes = 16 << 10;

// Kept free below the limit for each file's last record.
constexpr uint64_t kEndBytes = 64;

// Of its time the thread measures the directory for one part.
constexpr uint64_t kMeasureShare = 100;
constexpr uint64_t kNsPerMs = 1'000'000;

// Made once, so that a file can be ended when nothing more can be allocated.
std::vector<std::string> FramedEnds() {
  std::vector<std::string> ends;
  for (int reason = 0; reason < v1::RecordEndReason_ARRAYSIZE; ++reason) {
    v1::SessionRecord record;
    record.mutable_end()->set_reason(static_cast<v1::RecordEndReason>(reason));
    AppendFramed(record.SerializeAsString(), &ends.emplace_back());
  }
  return ends;
}

// False where there is no memory for it.
bool Serialize(const v1::SessionRecord& record, size_t size, std::string* bytes) {
  try {
    bytes->resize(size);
  } catch (const std::bad_alloc&) {
    bytes->clear();
    return false;
  }
  record.SerializeWithCachedSizesToArray(reinterpret_cast<uint8_t*>(bytes->data()));
  return true;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Recorder>> Recorder::Open(
    const RecordOptions& options, std::function<void(const std::string&)> report) {
  REPRISE_ASSIGN_OR_RETURN(std::string config_sha256, ConfigSha256(options.source));
  REPRISE_RETURN_IF_ERROR(PrepareRecordDirectory(options.directory));
  REPRISE_ASSIGN_OR_RETURN(const RecordUse use, MeasureRecords(options.directory));
  try {
    return std::unique_ptr<Recorder>(
        new Recorder(options, std::move(config_sha256), use, std::move(report)));
  } catch (const std::system_error& error) {
    return absl::UnavailableError(absl::StrCat("recorder: no thread: ", error.what()));
  }
}

Recorder::Recorder(const RecordOptions& options, std::string config_sha256, const RecordUse& use,
                   std::function<void(const std::string&)> report)
    : options_(options),
      config_sha256_(std::move(config_sha256)),
      report_(std::move(report)),
      ring_(options.max_waiting),
      counters_(options.limit_bytes, use.files, use.bytes),
      measure_at_ns_(NowNs() + options.measure_interval_ms * kNsPerMs),
      ends_(FramedEnds()),
      thread_(std::chrono::milliseconds(options.write_interval_ms), [this] { Turn(); }) {}

// ---- any thread ----

std::unique_ptr<SessionRecording> Recorder::Begin(const engine::DecodeEngine& engine,
                                                  uint64_t session, std::string_view client) {
  std::unique_ptr<SessionRecording> recording;
  std::optional<RecordLoss> loss;
  const absl::Status tried = CatchOutOfMemory([&] {
    loss = TryBegin(engine, session, client, &recording);
    return absl::OkStatus();
  });
  if (!tried.ok()) loss = RecordLoss::kOutOfMemory;
  if (!loss) return recording;
  counters_.refused[static_cast<size_t>(*loss)].Add();
  Tell([&] { return absl::StrCat("a session is not recorded: ", WhyText(*loss, "")); });
  return nullptr;
}

std::optional<RecordLoss> Recorder::TryBegin(const engine::DecodeEngine& engine, uint64_t session,
                                             std::string_view client,
                                             std::unique_ptr<SessionRecording>* recording) {
  v1::SessionRecord record;
  FillHeader(engine, session, client, record.mutable_header());
  // Before its header is queued, which nothing takes back.
  auto shared = std::make_shared<Session>();
  recording->reset(new SessionRecording(*this, shared));
  return Push(shared, record);
}

void Recorder::FillHeader(const engine::DecodeEngine& engine, uint64_t session,
                          std::string_view client, v1::RecordHeader* header) const {
  DescribeToWire(engine.info(), engine.pool(), engine.captured_graphs(), engine.attention_tree(),
                 /*max_message_bytes=*/0, header->mutable_server());
  header->set_model_directory(options_.source.directory);
  header->set_config_sha256(config_sha256_);
  header->set_preset(options_.source.preset);
  header->set_random_seed(options_.source.random_seed);
  header->set_session(session);
  header->set_client(std::string(client));
  header->set_opened(UtcText(UtcNowNs()));
}

std::optional<RecordLoss> Recorder::Push(const std::shared_ptr<Session>& session,
                                         const v1::SessionRecord& record) {
  const size_t size = record.ByteSizeLong();
  if (size > kMaxRecordBytes) return RecordLoss::kOverflow;
  const uint64_t waiting = waiting_bytes_.fetch_add(size, std::memory_order_relaxed) + size;
  std::optional<RecordLoss> loss = RecordLoss::kOverflow;
  if (waiting <= options_.max_waiting_bytes) {
    ring_.Fill([&](Waiting& place) {
      place.session = session;
      place.is_step = record.has_step();
      session->num_queued.fetch_add(1, std::memory_order_relaxed);
      loss.reset();
      if (!Serialize(record, size, &place.bytes)) loss = RecordLoss::kOutOfMemory;
    });
  }
  if (loss) waiting_bytes_.fetch_sub(size, std::memory_order_relaxed);
  return loss;
}

bool Recorder::AwaitRoom(uint64_t bytes, uint64_t since_ns) {
  const uint64_t half = options_.max_waiting_bytes / 2;
  // What is larger than half waits until it is alone.
  const uint64_t most = half - std::min(half, bytes);
  std::unique_lock lock(room_mutex_);
  num_awaiting_room_.fetch_add(1);
  const std::chrono::nanoseconds waited(NowNs() - since_ns);
  const bool has_room =
      room_.wait_for(lock, kMaxRoomWait - waited, [&] { return waiting_bytes_.load() <= most; });
  num_awaiting_room_.fetch_sub(1);
  return has_room;
}

void Recorder::TellRoom() {
  if (num_awaiting_room_.load() == 0) return;
  { const std::lock_guard lock(room_mutex_); }
  room_.notify_all();
}

template <typename Text>
void Recorder::Tell(const Text& text) {
  if (report_ == nullptr) return;
  const absl::Status told = CatchOutOfMemory([&] {
    report_(text());
    return absl::OkStatus();
  });
  if (!told.ok()) num_untold_.fetch_add(1, std::memory_order_relaxed);
}

std::string Recorder::WhyText(RecordLoss loss, std::string_view detail) const {
  switch (loss) {
    case RecordLoss::kLimit:
      return absl::StrCat("the recordings in ", options_.directory, " would exceed ",
                          runtime::ByteCount(options_.limit_bytes), " (--record-limit)");
    case RecordLoss::kWriteFailed:
      return std::string(detail);
    case RecordLoss::kOverflow:
      return "records come faster than they are written";
    case RecordLoss::kOutOfMemory:
      return "the server is out of memory";
    case RecordLoss::kKvCall:
      return "what came into KV blocks could not be read, or was not known for certain";
  }
  return "";
}

// ---- the thread ----

void Recorder::Turn() {
  MeasureIfDue();
  WriteWaiting();
  bool has_ending = false;
  for (const auto& session : open_) {
    session->ending = session->ended.load(std::memory_order_acquire);
    has_ending = has_ending || session->ending;
  }
  if (has_ending) WriteWaiting();
  for (const auto& session : open_) {
    // A record of somebody else that is still being copied holds up those behind it: a later turn.
    const bool is_lost = session->lost.load(std::memory_order_acquire);
    if (session->num_taken != session->num_queued.load(std::memory_order_relaxed)) continue;
    if (session->writing && is_lost)
      Stop(session.get(), session->lost_for.load(std::memory_order_relaxed));
    if (session->writing && session->ending)
      End(session.get(), v1::RECORD_END_REASON_SESSION_ENDED);
  }
  std::erase_if(open_, [](const auto& session) { return !session->writing; });
  TellUntold();
}

void Recorder::MeasureIfDue() {
  const uint64_t begin_ns = NowNs();
  if (begin_ns < measure_at_ns_) return;
  CatchOutOfMemory([this] {
    // What cannot be measured is taken to be as it was.
    const absl::StatusOr<RecordUse> use = MeasureRecords(options_.directory);
    if (!use.ok()) return absl::OkStatus();
    counters_.files.store(use->files, std::memory_order_relaxed);
    counters_.bytes.store(use->bytes, std::memory_order_relaxed);
    return absl::OkStatus();
  }).IgnoreError();
  const uint64_t end_ns = NowNs();
  measure_at_ns_ = end_ns + std::max(options_.measure_interval_ms * kNsPerMs,
                                     kMeasureShare * (end_ns - begin_ns));
}

void Recorder::WriteWaiting() {
  // No more than were there when it began: under any load the turn comes to its end.
  for (size_t i = 0; i < ring_.capacity(); ++i) {
    if (!ring_.Take([this](Waiting& place) { Take(&place); })) return;
  }
}

void Recorder::Take(Waiting* place) {
  const std::shared_ptr<Session> session = std::exchange(place->session, nullptr);
  ++session->num_taken;
  waiting_bytes_.fetch_sub(place->bytes.size());
  const absl::Status written = CatchOutOfMemory([&] {
    if (!place->bytes.empty()) Write(session, *place);
    return absl::OkStatus();
  });
  if (!written.ok()) Stop(session.get(), RecordLoss::kOutOfMemory);
  place->bytes.clear();
  if (place->bytes.capacity() > kMaxKeptBytes) place->bytes = std::string();
  TellRoom();
}

bool Recorder::FitsLimit(uint64_t more_bytes, bool begins) const {
  const uint64_t kept = kEndBytes * (num_writing_ + (begins ? 1 : 0));
  return counters_.bytes.load(std::memory_order_relaxed) + more_bytes + kept <=
         options_.limit_bytes;
}

void Recorder::Write(const std::shared_ptr<Session>& session, const Waiting& waiting) {
  const bool begins = !session->begun;
  session->begun = true;
  if (!begins && !session->writing) return;
  framed_ = begins ? RecordFirstLine() : "";
  AppendFramed(waiting.bytes, &framed_);
  if (!FitsLimit(framed_.size(), begins)) return Stop(session.get(), RecordLoss::kLimit);
  if (begins) open_.push_back(session);
  absl::Status written = begins ? BeginFile(session.get()) : absl::OkStatus();
  if (written.ok()) written = session->file.Append(framed_);
  if (!written.ok()) {
    return Stop(session.get(), RecordLoss::kWriteFailed,
                {written.message().data(), written.message().size()});
  }
  counters_.bytes.fetch_add(framed_.size(), std::memory_order_relaxed);
  if (waiting.is_step) counters_.steps.Add();
  if (begins) session->has_header = true;
  if (begins) told_refused_ = false;
}

absl::Status Recorder::BeginFile(Session* session) {
  REPRISE_ASSIGN_OR_RETURN(session->file,
                           RecordFile::Create(NewRecordPath(options_.directory, ++num_named_)));
  session->writing = true;
  ++num_writing_;
  counters_.files.fetch_add(1, std::memory_order_relaxed);
  return absl::OkStatus();
}

void Recorder::Stop(Session* session, RecordLoss loss, std::string_view detail) {
  session->wanted.store(false, std::memory_order_relaxed);
  const bool had_header = session->has_header;
  if (session->writing) End(session, EndReasonOf(loss));
  (had_header ? counters_.stopped : counters_.refused)[static_cast<size_t>(loss)].Add();
  if (had_header) {
    return Tell([&] {
      return absl::StrCat("recording to ", session->file.path(),
                          " stopped: ", WhyText(loss, detail), "; serving goes on");
    });
  }
  // Of sessions that are not recorded at all, because the disk is full for example, the first is
  // enough.
  if (std::exchange(told_refused_, true)) return;
  Tell([&] {
    return absl::StrCat("a session is not recorded, and of further ones this is not said again: ",
                        WhyText(loss, detail), "; serving goes on");
  });
}

void Recorder::End(Session* session, v1::RecordEndReason reason) {
  session->writing = false;
  --num_writing_;
  if (!session->has_header) {
    session->file.Remove();
    counters_.files.fetch_sub(1, std::memory_order_relaxed);
    return;
  }
  // Where even this does not fit, the file is one that was cut off.
  const std::string& end = ends_[static_cast<size_t>(reason)];
  const absl::Status written = CatchOutOfMemory([&] { return session->file.Append(end); });
  if (written.ok()) counters_.bytes.fetch_add(end.size(), std::memory_order_relaxed);
  session->file.Close();
}

void Recorder::TellUntold() {
  const uint64_t untold = num_untold_.exchange(0, std::memory_order_relaxed);
  if (untold == 0) return;
  const absl::Status told = CatchOutOfMemory([&] {
    report_(absl::StrCat(untold, untold == 1 ? " session was" : " sessions were",
                         " not recorded, or not to the end, because the server was out of memory; "
                         "serving goes on"));
    return absl::OkStatus();
  });
  if (!told.ok()) num_untold_.fetch_add(untold, std::memory_order_relaxed);
}

}  // namespace reprise::service
