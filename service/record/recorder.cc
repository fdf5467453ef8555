// SPDX-License-Identifier: Apache-2.0
#include "service/record/recorder.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
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

constexpr char kSuffix[] = ".record";

// A place of the queue that held more does not keep it. All of them together keep no more than may
// wait (RecordOptions).
constexpr size_t kMaxKeptBytes = 16 << 10;

// Kept free below the limit for each file's last record.
constexpr uint64_t kEndBytes = 64;

absl::Status FromErrno(std::string_view doing, const std::string& path, int error) {
  const std::string what = absl::StrCat("cannot ", std::string(doing), " ", path, ": ",
                                        std::generic_category().message(error));
  if (error == ENOENT || error == ENOTDIR) return absl::NotFoundError(what);
  if (error == EACCES || error == EPERM || error == EROFS) return absl::PermissionDeniedError(what);
  return absl::UnavailableError(what);
}

absl::Status PrepareDirectory(const std::string& path) {
  if (::mkdir(path.c_str(), S_IRWXU) != 0 && errno != EEXIST)
    return FromErrno("make the directory", path, errno);
  struct stat status = {};
  if (::stat(path.c_str(), &status) != 0) return FromErrno("look at", path, errno);
  if (!S_ISDIR(status.st_mode)) return FromErrno("record to", path, ENOTDIR);
  if (::access(path.c_str(), W_OK | X_OK) != 0) return FromErrno("write to", path, errno);
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> BytesOfRecordings(const std::string& directory) {
  uint64_t bytes = 0;
  std::error_code error;
  std::filesystem::directory_iterator entries(directory, error);
  for (; !error && entries != std::filesystem::directory_iterator(); entries.increment(error)) {
    std::error_code gone;  // a file may be removed meanwhile
    if (entries->path().extension() != kSuffix || !entries->is_regular_file(gone)) continue;
    const uintmax_t size = entries->file_size(gone);
    if (!gone) bytes += size;
  }
  if (error) return FromErrno("list", directory, error.value());
  return bytes;
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

// ---- a session ----

SessionRecording::~SessionRecording() { shared_->ended.store(true, std::memory_order_release); }

void SessionRecording::AddStep(uint64_t submitted_ns, v1::StepRequest* step,
                               v1::StepResponse* answer) {
  if (!shared_->wanted.load(std::memory_order_relaxed)) return;
  step->clear_session();
  v1::SessionRecord record;
  // The record views both, and owns neither.
  record.unsafe_arena_set_allocated_step(step);
  record.unsafe_arena_set_allocated_answer(answer);
  Add(&record, submitted_ns);
  record.unsafe_arena_release_step();
  record.unsafe_arena_release_answer();
}

void SessionRecording::AddAllocate(const v1::AllocateRequest& request,
                                   const v1::AllocateResponse& response) {
  const uint64_t now_ns = NowNs();
  v1::SessionRecord record;
  record.mutable_allocate()->set_count(request.count());
  *record.mutable_allocated() = response;
  Add(&record, now_ns);
}

void SessionRecording::AddFree(const v1::FreeRequest& request) {
  const uint64_t now_ns = NowNs();
  v1::SessionRecord record;
  *record.mutable_free()->mutable_blocks() = request.blocks();
  Add(&record, now_ns);
}

void SessionRecording::StopAtKvCall() {
  shared_->wanted.store(false, std::memory_order_relaxed);
  shared_->did_kv_call.store(true, std::memory_order_release);
}

void SessionRecording::Add(v1::SessionRecord* record, uint64_t at_ns) {
  if (!shared_->wanted.load(std::memory_order_relaxed)) return;
  record->set_time_ns(at_ns - started_ns_);
  if (recorder_.Push(shared_, *record)) return;
  // What follows cannot be repeated without it.
  shared_->wanted.store(false, std::memory_order_relaxed);
  shared_->lost.store(true, std::memory_order_release);
}

// ---- the recorder ----

absl::StatusOr<std::unique_ptr<Recorder>> Recorder::Open(
    const RecordOptions& options, std::function<void(const std::string&)> report) {
  REPRISE_ASSIGN_OR_RETURN(std::string config_sha256, ConfigSha256(options.source));
  REPRISE_RETURN_IF_ERROR(PrepareDirectory(options.directory));
  REPRISE_ASSIGN_OR_RETURN(const uint64_t bytes, BytesOfRecordings(options.directory));
  try {
    return std::unique_ptr<Recorder>(
        new Recorder(options, std::move(config_sha256), bytes, std::move(report)));
  } catch (const std::system_error& error) {
    return absl::UnavailableError(absl::StrCat("recorder: no thread: ", error.what()));
  }
}

Recorder::Recorder(const RecordOptions& options, std::string config_sha256, uint64_t bytes,
                   std::function<void(const std::string&)> report)
    : options_(options),
      config_sha256_(std::move(config_sha256)),
      report_(std::move(report)),
      ring_(options.max_waiting),
      bytes_(bytes),
      thread_(std::chrono::milliseconds(options.write_interval_ms), [this] { Turn(); }) {}

std::unique_ptr<SessionRecording> Recorder::Begin(const engine::DecodeEngine& engine,
                                                  uint64_t session, std::string_view client) {
  std::unique_ptr<SessionRecording> recording;
  CatchOutOfMemory([&] {
    recording = TryBegin(engine, session, client);
    if (recording == nullptr && report_ != nullptr)
      report_("a session is not recorded: records come faster than they are written");
    return absl::OkStatus();
  }).IgnoreError();
  return recording;
}

std::unique_ptr<SessionRecording> Recorder::TryBegin(const engine::DecodeEngine& engine,
                                                     uint64_t session, std::string_view client) {
  v1::SessionRecord record;
  v1::RecordHeader* header = record.mutable_header();
  DescribeToWire(engine.info(), engine.pool(), engine.attention_tree(), /*max_message_bytes=*/0,
                 header->mutable_server());
  header->set_model_directory(options_.source.directory);
  header->set_config_sha256(config_sha256_);
  header->set_preset(options_.source.preset);
  header->set_random_seed(options_.source.random_seed);
  header->set_session(session);
  header->set_client(std::string(client));
  header->set_opened(UtcText(UtcNowNs()));
  auto shared = std::make_shared<Session>();
  if (!Push(shared, record)) return nullptr;
  return std::unique_ptr<SessionRecording>(new SessionRecording(*this, std::move(shared)));
}

bool Recorder::Push(const std::shared_ptr<Session>& session, const v1::SessionRecord& record) {
  const size_t size = record.ByteSizeLong();
  if (size > kMaxRecordBytes) return false;
  const uint64_t waiting = waiting_bytes_.fetch_add(size, std::memory_order_relaxed) + size;
  bool copied = false;
  if (waiting <= options_.max_waiting_bytes) {
    ring_.Fill([&](Waiting& place) {
      place.session = session;
      session->num_queued.fetch_add(1, std::memory_order_relaxed);
      copied = Serialize(record, size, &place.bytes);
    });
  }
  if (!copied) waiting_bytes_.fetch_sub(size, std::memory_order_relaxed);
  return copied;
}

// ---- the thread ----

void Recorder::Turn() {
  WriteWaiting();
  std::vector<Session*> ended;
  for (const auto& session : open_)
    if (session->ended.load(std::memory_order_acquire)) ended.push_back(session.get());
  if (!ended.empty()) WriteWaiting();
  // A record of somebody else that is still being copied holds up those behind it: a later turn.
  std::erase_if(ended, [](const Session* session) {
    return session->num_taken != session->num_queued.load(std::memory_order_relaxed);
  });
  for (const auto& session : open_) {
    if (session->writing && session->lost.load(std::memory_order_acquire))
      Stop(session.get(), v1::RECORD_END_REASON_OVERFLOW,
           "records came faster than they could be written");
    // What it had recorded before is taken first.
    if (session->writing && session->did_kv_call.load(std::memory_order_acquire) &&
        session->num_taken == session->num_queued.load(std::memory_order_relaxed))
      Stop(session.get(), v1::RECORD_END_REASON_KV_CALL,
           "the session wrote contents of KV blocks or used swap space");
  }
  for (Session* session : ended)
    if (session->writing) End(session, v1::RECORD_END_REASON_SESSION_ENDED);
  std::erase_if(open_, [](const auto& session) { return !session->writing; });
}

void Recorder::WriteWaiting() {
  // No more than were there when it began: under any load the turn comes to its end.
  for (size_t i = 0; i < ring_.capacity(); ++i) {
    const bool taken = ring_.Take([this](Waiting& place) {
      const std::shared_ptr<Session> session = std::exchange(place.session, nullptr);
      ++session->num_taken;
      waiting_bytes_.fetch_sub(place.bytes.size(), std::memory_order_relaxed);
      const absl::Status written = CatchOutOfMemory([&] {
        if (!place.bytes.empty()) Write(session, place.bytes);
        return absl::OkStatus();
      });
      if (!written.ok())
        Stop(session.get(), v1::RECORD_END_REASON_WRITE_FAILED, "there is no memory");
      place.bytes.clear();
      if (place.bytes.capacity() > kMaxKeptBytes) place.bytes = std::string();
    });
    if (!taken) return;
  }
}

void Recorder::Write(const std::shared_ptr<Session>& session, std::string_view record) {
  const bool begins = !session->begun;
  session->begun = true;
  if (!begins && !session->writing) return;
  framed_ = begins ? RecordFirstLine() : "";
  AppendFramed(record, &framed_);
  const uint64_t needed = framed_.size() + (begins ? kEndBytes : 0);
  if (bytes_ + needed > options_.limit_bytes) {
    return Stop(session.get(), v1::RECORD_END_REASON_LIMIT,
                absl::StrCat("the recordings in ", options_.directory, " would exceed ",
                             runtime::ByteCount(options_.limit_bytes), " (--record-limit)"));
  }
  if (begins) open_.push_back(session);
  absl::Status written = begins ? BeginFile(session.get()) : absl::OkStatus();
  if (written.ok()) written = session->file.Append(framed_);
  if (!written.ok()) {
    return Stop(session.get(), v1::RECORD_END_REASON_WRITE_FAILED, std::string(written.message()));
  }
  bytes_ += needed;
}

absl::Status Recorder::BeginFile(Session* session) {
  REPRISE_ASSIGN_OR_RETURN(session->file, RecordFile::Create(NewPath()));
  session->writing = true;
  return absl::OkStatus();
}

std::string Recorder::NewPath() {
  std::string moment =
      UtcText(UtcNowNs()).substr(0, std::string_view("2026-11-23T09:15:02").size());
  std::erase_if(moment, [](char c) { return c == '-' || c == ':'; });
  return absl::StrCat(options_.directory, "/session-", moment, "-", ::getpid(), "-", ++num_files_,
                      kSuffix);
}

void Recorder::Stop(Session* session, v1::RecordEndReason reason, const std::string& why) {
  session->wanted.store(false, std::memory_order_relaxed);
  const bool had_file = session->writing;
  if (had_file) End(session, reason);
  // Of sessions that are not recorded at all because the directory is full, the first is enough.
  if (!had_file && std::exchange(told_full_, true)) return;
  if (report_ == nullptr) return;
  const std::string what =
      had_file ? absl::StrCat("recording to ", session->file.path(), " stopped")
               : "a session is not recorded, and of further ones this is not said again";
  report_(absl::StrCat(what, ": ", why, "; serving goes on"));
}

void Recorder::End(Session* session, v1::RecordEndReason reason) {
  v1::SessionRecord record;
  record.mutable_end()->set_reason(reason);
  std::string framed;
  AppendFramed(record.SerializeAsString(), &framed);
  // Where even this does not fit, the file is one that was cut off.
  session->file.Append(framed).IgnoreError();
  session->file.Close();
  session->writing = false;
}

}  // namespace reprise::service
