// SPDX-License-Identifier: Apache-2.0
// Recorder and SessionRecording: what a session asks of the server and what it is answered, on its
// way to a file of its own (docs/record.md). A thread of the recorder's writes, so that no step
// waits for a disk: where records come faster than they are written, where all files together reach
// the limit, where the disk is full, or where memory runs out, recording of that session stops, the
// file says so, the operator is told once, and serving goes on.
//
// Threads: Begin, and all of SessionRecording, from any thread; the rest by the owner.
#ifndef REPRISE_SERVICE_RECORD_RECORDER_H_
#define REPRISE_SERVICE_RECORD_RECORDER_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/decode_engine.h"
#include "engine/kv_part.h"
#include "reprise/v1/record.pb.h"
#include "service/clock.h"
#include "service/periodic_thread.h"
#include "service/record/record_counters.h"
#include "service/record/record_directory.h"
#include "service/record/record_file.h"
#include "service/record/record_options.h"
#include "service/record_ring.h"

namespace reprise::service {

class Recorder;

// One session's. Its file ends with it.
class SessionRecording {
 public:
  ~SessionRecording();
  SessionRecording(const SessionRecording&) = delete;
  SessionRecording& operator=(const SessionRecording&) = delete;

  // A step has its answer; the engine was handed it at `submitted_ns`. Takes the session's token
  // out of `step`. Takes no lock, throws nothing, and allocates nothing once the queue's places
  // have grown to the size of such steps.
  void AddStep(uint64_t submitted_ns, v1::StepRequest* step, v1::StepResponse* answer);

  // Held from before the engine does one of the calls below until it is added: their order is that
  // in which the engine did them. Of nullptr: nothing.
  class PoolLock {
   public:
    explicit PoolLock(SessionRecording* recording)
        : lock_(recording == nullptr ? std::unique_lock<std::mutex>()
                                     : std::unique_lock(recording->pool_mutex_)) {}

   private:
    std::unique_lock<std::mutex> lock_;
  };
  // None of them throws: what there is no memory for is lost. at_ns: before the engine did it.
  void AddAllocate(const v1::AllocateRequest& request, const v1::AllocateResponse& response);
  void AddFree(const v1::FreeRequest& request);
  void AddSwapOut(uint64_t at_ns, std::span<const uint32_t> blocks,
                  std::span<const uint32_t> swapped);
  void AddSwapIn(uint64_t at_ns, std::span<const uint32_t> swapped,
                 std::span<const uint32_t> blocks);
  void AddSwapOutState(uint64_t at_ns, uint32_t row, const engine::SwappedState& state);
  void AddFreeSwapped(uint64_t at_ns, std::span<const uint32_t> swapped,
                      std::span<const uint32_t> states);
  // A name goes as its digest (SharedNameDigest).
  void AddShare(uint64_t at_ns, std::string_view name, std::span<const uint32_t> blocks);
  void AddAdopted(uint64_t at_ns, std::span<const uint32_t> blocks);
  void AddRelease(uint64_t at_ns, std::string_view name);
  // Contents that came into blocks at `at_ns`, which may be much: waits until half of the queue is
  // free beside it, so that steps find their places. Recording ends where it is not by kMaxRoomWait
  // behind `at_ns`. For threads that may wait. Takes the session's token out of `write`.
  void AddWrite(uint64_t at_ns, v1::WriteBlocksRequest* write);
  // False once recording has ended.
  bool goes_on() const { return shared_->wanted.load(std::memory_order_relaxed); }
  // Whether so many bytes more, soon to come, may fit the limit of all recordings: otherwise
  // recording ends here. False, too, where it has ended.
  bool HasRoomFor(uint64_t more_bytes);
  // Something has happened that could not be added. Recording ends there, since what follows cannot
  // be repeated without it.
  void Lose(RecordLoss loss);

 private:
  friend class Recorder;
  // What the session's threads and the recorder's have in common.
  struct Shared {
    std::atomic<bool> wanted = true;  // more records: false once recording has stopped
    std::atomic<bool> lost = false;   // a record found no place
    std::atomic<RecordLoss> lost_for = RecordLoss::kOverflow;  // before `lost`
    std::atomic<bool> ended = false;                           // none comes any more
    std::atomic<uint64_t> num_queued = 0;  // records that have a place in the queue
    // Of the recorder's thread:
    uint64_t num_taken = 0;   // of them
    bool begun = false;       // the first record came
    bool writing = false;     // there is a file, and more is written to it
    bool has_header = false;  // and its header is whole
    bool ending = false;      // had ended when this turn began
    RecordFile file;
  };
  SessionRecording(Recorder& recorder, std::shared_ptr<Shared> shared)
      : recorder_(recorder), shared_(std::move(shared)) {}
  // Adds what `fill` makes of a record.
  template <typename Fill>
  void AddFilled(uint64_t at_ns, const Fill& fill);
  void Add(v1::SessionRecord* record, uint64_t at_ns);

  Recorder& recorder_;
  const std::shared_ptr<Shared> shared_;
  const uint64_t started_ns_ = NowNs();
  std::mutex pool_mutex_;
};

// Where a session keeps its recording: set once at most, while other threads may look.
class RecordingSlot {
 public:
  void Set(std::unique_ptr<SessionRecording> recording) {
    owned_ = std::move(recording);
    recording_.store(owned_.get(), std::memory_order_release);
  }
  // nullptr: the session is not recorded.
  SessionRecording* get() const { return recording_.load(std::memory_order_acquire); }

 private:
  std::unique_ptr<SessionRecording> owned_;
  std::atomic<SessionRecording*> recording_ = nullptr;
};

class Recorder {
 public:
  // `report` is told, on any thread, whose recording stopped and why; it may be empty. Errors name
  // the directory: NotFound, PermissionDenied, Unavailable; of the model's config.json:
  // ConfigSha256's.
  static absl::StatusOr<std::unique_ptr<Recorder>> Open(
      const RecordOptions& options, std::function<void(const std::string&)> report);
  // Writes what waits. REQUIRES: all SessionRecordings have gone.
  ~Recorder() = default;
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  // Of a session that was opened now. nullptr where there is no place in the queue, or no memory:
  // counted, and reported.
  std::unique_ptr<SessionRecording> Begin(const engine::DecodeEngine& engine, uint64_t session,
                                          std::string_view client);

  const RecordCounters& counters() const { return counters_; }

 private:
  friend class SessionRecording;
  // A stuck disk costs whoever waits for room no more.
  static constexpr std::chrono::seconds kMaxRoomWait{5};
  using Session = SessionRecording::Shared;
  struct Waiting {
    std::shared_ptr<Session> session;
    std::string bytes;  // of the record; "" where there was no memory for it
    bool is_step = false;
  };

  Recorder(const RecordOptions& options, std::string config_sha256, const RecordUse& use,
           std::function<void(const std::string&)> report);
  // nullopt: `recording` is set.
  std::optional<RecordLoss> TryBegin(const engine::DecodeEngine& engine, uint64_t session,
                                     std::string_view client,
                                     std::unique_ptr<SessionRecording>* recording);
  void FillHeader(const engine::DecodeEngine& engine, uint64_t session, std::string_view client,
                  v1::RecordHeader* header) const;
  // nullopt: it has its place. Throws nothing.
  std::optional<RecordLoss> Push(const std::shared_ptr<Session>& session,
                                 const v1::SessionRecord& record);
  // Waits until `bytes` more leave half of the queue's bytes free. Whether they do by kMaxRoomWait
  // behind `since_ns`.
  bool AwaitRoom(uint64_t bytes, uint64_t since_ns);
  void TellRoom();

  // What the thread does. None of it throws but Write and BeginFile.
  void Turn();
  void MeasureIfDue();
  void WriteWaiting();
  void Take(Waiting* place);
  void Write(const std::shared_ptr<Session>& session, const Waiting& waiting);
  absl::Status BeginFile(Session* session);
  // Ends a recording before its session: writes why, as far as that can be written, and nothing of
  // the session after it. A file without a whole header goes. `detail`: of kWriteFailed.
  void Stop(Session* session, RecordLoss loss, std::string_view detail = {});
  void End(Session* session, v1::RecordEndReason reason);
  bool FitsLimit(uint64_t more_bytes, bool begins) const;

  // What the operator is told; on any thread. What there is no memory to tell is told later.
  template <typename Text>
  void Tell(const Text& text);
  void TellUntold();
  std::string WhyText(RecordLoss loss, std::string_view detail) const;

  const RecordOptions options_;
  const std::string config_sha256_;
  const std::function<void(const std::string&)> report_;
  RecordRing<Waiting> ring_;
  std::atomic<uint64_t> waiting_bytes_ = 0;
  // Who waits for `waiting_bytes_` to become less.
  std::atomic<uint32_t> num_awaiting_room_ = 0;
  std::mutex room_mutex_;
  std::condition_variable room_;
  std::atomic<uint64_t> num_untold_ = 0;
  RecordCounters counters_;
  // Of the thread:
  uint64_t num_writing_ = 0;  // files, each with room kept for its end
  uint64_t num_named_ = 0;
  uint64_t measure_at_ns_ = 0;
  bool told_refused_ = false;
  std::string framed_;
  const std::vector<std::string> ends_;  // a file's last record, framed, by reason
  std::vector<std::shared_ptr<Session>> open_;

  PeriodicThread thread_;  // the last member: it uses the others
};

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_RECORD_RECORDER_H_
