// SPDX-License-Identifier: Apache-2.0
#include "tests/stress/ownership_client.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <deque>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "reprise/v1/step_service.grpc.pb.h"
#include "runtime/status_macros.h"

namespace reprise::stress {
namespace {

using Blocks = std::vector<uint32_t>;

// What a client may be told: that there is no room, which happens, and that its session is over,
// which happens to those that were harmed. All else is a failure of the server's.
absl::Status NoRoom() { return absl::ResourceExhaustedError("no room"); }
absl::Status Lost(std::string_view how) { return absl::AbortedError(std::string(how)); }
absl::Status Wrong(std::string_view what) { return absl::InternalError(std::string(what)); }

std::string TextOf(const grpc::Status& status) {
  return absl::StrCat(static_cast<int>(status.error_code()), " ", status.error_message());
}

void Pause(uint64_t milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

std::shared_ptr<grpc::Channel> NewChannel(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // Small windows, so that a client that does not read soon keeps the server from writing.
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 2048);
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 500);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

// A StepStream call.
struct Stream {
  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientReaderWriter<v1::StepStreamRequest, v1::StepStreamResponse>> call;
};

// A row, and how much of its text it has said.
struct Row {
  uint32_t id;
  uint32_t text;
  uint32_t num_sampled = 0;
  Blocks blocks = {};
};

class OwnershipClient {
 public:
  OwnershipClient(OwnershipModel& model, const std::string& address, uint32_t slot, uint64_t seed)
      : model_(model),
        slot_(slot),
        identity_(slot % kNumIdentities),
        random_(seed),
        stub_(v1::StepService::NewStub(NewChannel(address))) {}

  void Run() {
    while (!model_.stopped()) {
      const absl::Status status = Live();
      model_.End(slot_);
      if (absl::IsAborted(status)) model_.Add(Count::kLost);
      stream_.reset();
      rows_.clear();
      sent_.clear();
      held_.clear();
      swapped_.clear();
      tickets_.clear();
      if (status.ok() || absl::IsAborted(status)) continue;
      model_.Fail(absl::StrCat("client ", slot_, ": ", status.ToString()));
      return;
    }
    model_.Park(slot_, true);
  }

 private:
  uint64_t Below(uint64_t bound) { return random_() % bound; }
  const Text& TextOfRow(const Row& row) const { return model_.texts()[row.text]; }

  // ---- a session ----

  absl::Status Live() {
    REPRISE_RETURN_IF_ERROR(Open());
    const absl::Status worked = Work();
    if (absl::IsAborted(worked)) return AfterLoss(worked);
    REPRISE_RETURN_IF_ERROR(worked);
    Leave();
    return absl::OkStatus();
  }

  absl::Status Work() {
    for (uint64_t left = 2 + Below(20); left > 0 && !model_.stopped(); --left) {
      REPRISE_RETURN_IF_ERROR(Settled());
      REPRISE_RETURN_IF_ERROR(ParkIfPaused());
      const absl::Status done = DoSomething();
      if (absl::IsResourceExhausted(done)) {
        // Others cannot go on either, unless somebody gives something up.
        model_.Add(Count::kNoRoom);
        REPRISE_RETURN_IF_ERROR(GiveUpAll());
        Pause(Below(30));
      } else {
        REPRISE_RETURN_IF_ERROR(done);
      }
    }
    return absl::OkStatus();
  }

  absl::Status Open() {
    has_grace_ = Below(2) == 0;
    sequence_ = last_read_ = 0;
    v1::StepStreamRequest first;
    first.mutable_open()->set_resume_grace_ms(has_grace_ ? kOwnershipGraceMs : 0);
    // The number that Begin is about to give: the audit finds the session by it.
    first.mutable_open()->set_client(absl::StrCat(slot_, ".", model_.HoldingOf(slot_).life + 1));
    grpc::Status status;
    for (int attempt = 0; attempt < kMaxOpens; ++attempt) {
      const uint64_t doubts = model_.NumDoubts(slot_);
      StartStream(first);
      v1::StepStreamResponse answer;
      if (stream_->call->Read(&answer) && answer.has_opened()) {
        token_ = answer.opened().session();
        life_ = model_.Begin(slot_, identity_, token_, doubts);
        model_.Add(Count::kSessions);
        return absl::OkStatus();
      }
      status = stream_->call->Finish();
      // A client that was frozen finds its connection gone.
      if (status.error_code() != grpc::StatusCode::UNAVAILABLE) break;
      Pause(100);
    }
    return Wrong(absl::StrCat("no session: ", TextOf(status)));
  }

  void StartStream(const v1::StepStreamRequest& first) {
    stream_ = std::make_unique<Stream>();
    Authorize(&stream_->context);
    stream_->call = stub_->StepStream(&stream_->context);
    stream_->call->Write(first);
  }

  void Authorize(grpc::ClientContext* context) const {
    context->AddMetadata("authorization", "Bearer " + IdentityToken(identity_));
  }

  // Ends the session in one of the ways in which clients do.
  void Leave() {
    model_.End(slot_);
    const uint64_t way = Below(4);
    if (way == 0) {
      stream_->context.TryCancel();
      model_.Add(Count::kCancelledStreams);
    } else if (way == 1) {
      // A call whose answer nobody waits for: the blocks are the session's, and end with it.
      grpc::ClientContext context;
      Authorize(&context);
      context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(1));
      v1::AllocateRequest request;
      v1::AllocateResponse response;
      request.set_session(token_);
      request.set_count(3);
      stub_->Allocate(&context, request, &response);
      model_.Add(Count::kCancelledCalls);
    }
    v1::StepStreamResponse response;
    stream_->call->WritesDone();
    while (stream_->call->Read(&response)) {
    }
    stream_->call->Finish();
  }

  absl::Status GiveUpAll() {
    REPRISE_RETURN_IF_ERROR(DropRows());
    REPRISE_RETURN_IF_ERROR(FreeSwapped());
    REPRISE_RETURN_IF_ERROR(FreeExported());
    return Free(Blocks(held_));
  }

  // Rests with a session that is certain: one that was harmed on the way here may be over, though
  // all its calls were answered. Nobody is harmed during a pause, but somebody may still rest from
  // the last one, and have been harmed in between.
  absl::Status ParkIfPaused() {
    while (model_.paused() && !model_.stopped()) {
      REPRISE_RETURN_IF_ERROR(Settled());
      model_.Park(slot_, true);
      while (model_.paused() && !model_.stopped() && model_.DoubtsOf(slot_) == 0) Pause(5);
      model_.Park(slot_, false);
    }
    return Settled();
  }

  // ---- harm ----

  // Returns when the session is certain again.
  absl::Status Settled() {
    while (const uint64_t doubts = model_.DoubtsOf(slot_)) {
      while (!sent_.empty()) REPRISE_RETURN_IF_ERROR(ReadStep());
      // A step that is refused, which is an answer.
      v1::StepStreamRequest message;
      message.mutable_step()->set_sequence(sequence_ + 1000);
      v1::StepStreamResponse answer;
      if (!stream_->call->Write(message) || !stream_->call->Read(&answer)) return Lost("silent");
      if (!answer.has_error()) return Wrong("a step with a wrong number was not refused");
      model_.Settle(slot_, doubts, held_);
    }
    return absl::OkStatus();
  }

  // A session that was harmed is there or not; one that was not is.
  absl::Status AfterLoss(const absl::Status& loss) {
    if (model_.DoubtsOf(slot_) == 0) {
      return Wrong(absl::StrCat("session ", slot_, ".", life_, " ended, which nobody harmed: ",
                                loss.ToString(), ", ", TextOf(stream_->call->Finish())));
    }
    if (!has_grace_) return loss;
    const absl::Status resumed = Resume();
    if (!resumed.ok()) return resumed;
    return loss;
  }

  // Goes on with the session on another stream. Afterwards nothing is unanswered, and the session
  // is certain. Rows are where their answers say.
  absl::Status Resume() {
    const uint64_t doubts = model_.DoubtsOf(slot_);
    const bool too_many_sent = sent_.size() > kMaxKept;
    v1::StepStreamRequest first;
    first.mutable_resume()->set_session(token_);
    first.mutable_resume()->set_last_sequence(last_read_);
    const std::unique_ptr<Stream> old = std::move(stream_);
    StartStream(first);
    v1::StepStreamResponse answer;
    if (!stream_->call->Read(&answer)) {
      const grpc::Status status = stream_->call->Finish();
      const bool over = status.error_code() == grpc::StatusCode::NOT_FOUND;
      const bool behind = status.error_code() == grpc::StatusCode::OUT_OF_RANGE && too_many_sent;
      const bool broken = status.error_code() == grpc::StatusCode::UNAVAILABLE;
      if (over || behind || broken) return Lost("not resumed");
      return Wrong(absl::StrCat("resume: ", TextOf(status)));
    }
    model_.Add(Count::kResumes);
    model_.Add(Count::kAnswersKept, answer.resumed().num_answers());
    for (uint32_t i = 0; i < answer.resumed().num_answers(); ++i)
      REPRISE_RETURN_IF_ERROR(ReadStep());
    sequence_ = last_read_ = answer.resumed().last_sequence();
    sent_.clear();
    if (!model_.Settle(slot_, doubts, held_)) return Settled();
    return absl::OkStatus();
  }

  // ---- unary calls ----

  template <typename Request, typename Response>
  grpc::Status Call(grpc::Status (v1::StepService::Stub::*method)(grpc::ClientContext*,
                                                                  const Request&, Response*),
                    Request request, Response* response) {
    request.set_session(token_);
    return CallWithSession(method, request, response);
  }
  template <typename Request, typename Response>
  grpc::Status CallWithSession(grpc::Status (v1::StepService::Stub::*method)(grpc::ClientContext*,
                                                                             const Request&,
                                                                             Response*),
                               const Request& request, Response* response) {
    grpc::ClientContext context;
    Authorize(&context);
    return ((*stub_).*method)(&context, request, response);
  }

  // Of a call that is right.
  absl::Status Expect(const char* what, const grpc::Status& status) {
    switch (status.error_code()) {
      case grpc::StatusCode::OK:
        return absl::OkStatus();
      case grpc::StatusCode::RESOURCE_EXHAUSTED:
        return NoRoom();
      case grpc::StatusCode::NOT_FOUND:
      case grpc::StatusCode::UNAVAILABLE:
      case grpc::StatusCode::ABORTED:
        return Lost(absl::StrCat(what, ": ", TextOf(status)));
      default:
        return Wrong(absl::StrCat(what, ": ", TextOf(status)));
    }
  }

  // ---- blocks ----

  absl::Status Claim(const Blocks& blocks) {
    while (!model_.Claim(slot_, blocks)) REPRISE_RETURN_IF_ERROR(Settled());
    held_.insert(held_.end(), blocks.begin(), blocks.end());
    return absl::OkStatus();
  }

  void LetGo(const Blocks& blocks) {
    model_.LetGo(slot_, blocks);
    std::erase_if(held_, [&](uint32_t block) { return std::ranges::count(blocks, block) != 0; });
  }

  absl::Status Allocate(uint32_t count, Blocks* blocks) {
    v1::AllocateRequest request;
    v1::AllocateResponse response;
    request.set_count(count);
    REPRISE_RETURN_IF_ERROR(
        Expect("Allocate", Call(&v1::StepService::Stub::Allocate, request, &response)));
    blocks->assign(response.blocks().begin(), response.blocks().end());
    if (blocks->size() != count) return Wrong("Allocate answered another number of blocks");
    model_.Add(Count::kAllocations);
    model_.Add(Count::kBlocks, count);
    return Claim(*blocks);
  }

  absl::Status Free(const Blocks& blocks) {
    if (blocks.empty()) return absl::OkStatus();
    LetGo(blocks);
    v1::FreeRequest request;
    v1::FreeResponse response;
    request.mutable_blocks()->Assign(blocks.begin(), blocks.end());
    return Expect("Free", Call(&v1::StepService::Stub::Free, request, &response));
  }

  absl::Status FreeSwapped() {
    if (swapped_.empty()) return absl::OkStatus();
    v1::FreeSwappedRequest request;
    v1::FreeSwappedResponse response;
    request.mutable_swapped()->Assign(swapped_.begin(), swapped_.end());
    swapped_.clear();
    model_.SetSwapped(slot_, 0);
    return Expect("FreeSwapped", Call(&v1::StepService::Stub::FreeSwapped, request, &response));
  }

  absl::Status FreeExported() {
    if (tickets_.empty()) return absl::OkStatus();
    v1::FreeExportedRequest request;
    v1::FreeExportedResponse response;
    for (const std::string& ticket : tickets_) request.add_tickets(ticket);
    tickets_.clear();
    model_.SetExported(slot_, 0);
    return Expect("FreeExported", Call(&v1::StepService::Stub::FreeExported, request, &response));
  }

  // ---- steps ----

  static constexpr size_t kMaxKept = 4;  // answers, by the server: twice its pipeline's depth

  v1::StepStreamRequest NewStep() {
    v1::StepStreamRequest message;
    message.mutable_step()->set_sequence(++sequence_);
    return message;
  }

  absl::Status Send(const v1::StepStreamRequest& message) {
    if (!stream_->call->Write(message)) return Lost("a stream takes no step");
    sent_.push_back(message.step().sequence());
    return absl::OkStatus();
  }

  absl::Status ReadStep() {
    v1::StepStreamResponse answer;
    if (!stream_->call->Read(&answer)) return Lost("a stream gives no answer");
    if (!sent_.empty()) sent_.pop_front();
    if (answer.has_error()) {
      // Those behind it are refused for their numbers.
      --sequence_;
      if (answer.error().code() == grpc::StatusCode::RESOURCE_EXHAUSTED) return NoRoom();
      return Wrong(absl::StrCat("session ", slot_, ".", life_, ", ", doing_, ", step ",
                                answer.error().sequence(), ": ", answer.error().code(), " ",
                                answer.error().message()));
    }
    return TakeAnswer(answer.step());
  }

  absl::Status TakeAnswer(const v1::StepResponse& answer) {
    last_read_ = answer.sequence();
    model_.Add(Count::kSteps);
    const v1::RowResults& rows = answer.rows();
    for (int i = 0; i < rows.row_size(); ++i) {
      if (!rows.sampled(i)) continue;
      const auto row =
          std::ranges::find_if(rows_, [&](const Row& own) { return own.id == rows.row(i); });
      if (row == rows_.end()) return Wrong(absl::StrCat("an answer of no row: ", rows.row(i)));
      const Text& text = TextOfRow(*row);
      const uint32_t at = row->num_sampled++;
      if (at >= kTextTokens) return Wrong("a row said more than its text");
      if (rows.token(i) != text.tokens[at] ||
          std::bit_cast<uint32_t>(rows.logprob(i)) != text.logprob_bits[at]) {
        return Wrong(absl::StrCat("session ", slot_, ".", life_, ", ", doing_, ", text ", row->text,
                                  ", token ", at, ": got ", rows.token(i), " of ", rows.logprob(i),
                                  ", without faults ", text.tokens[at], " of ",
                                  std::bit_cast<float>(text.logprob_bits[at])));
      }
      model_.Add(Count::kTokens);
    }
    return absl::OkStatus();
  }

  absl::Status Step(const v1::StepStreamRequest& message) {
    REPRISE_RETURN_IF_ERROR(Send(message));
    return ReadStep();
  }

  static void SetSampling(uint32_t text, v1::AddRow* add) {
    add->mutable_sampling()->set_temperature(kOwnershipTemperature);
    add->mutable_sampling()->set_seed(text);
  }

  Row& NewRow(uint32_t text, Blocks blocks) {
    rows_.push_back({.id = next_row_++, .text = text, .blocks = std::move(blocks)});
    model_.SetRows(slot_, static_cast<uint32_t>(rows_.size()));
    return rows_.back();
  }
  absl::Status Added(const absl::Status& ran) {
    if (ran.ok() || absl::IsAborted(ran)) return ran;
    rows_.pop_back();
    model_.SetRows(slot_, static_cast<uint32_t>(rows_.size()));
    return ran;
  }

  static uint32_t BlocksOf(const Text& text) {
    return (text.prompt_length + kTextTokens + kOwnershipBlockSize - 1) / kOwnershipBlockSize;
  }
  uint32_t ContextOf(const Row& row) const {
    return TextOfRow(row).prompt_length + row.num_sampled - 1;
  }

  // A row with room for its text, whose first token was sampled. `prefix`: blocks that hold the
  // first tokens of its prompt.
  absl::Status Start(uint32_t text, const Blocks& prefix) {
    const Text& is = model_.texts()[text];
    Blocks blocks;
    const auto have = static_cast<uint32_t>(prefix.size());
    REPRISE_RETURN_IF_ERROR(Allocate(BlocksOf(is) - have, &blocks));
    blocks.insert(blocks.begin(), prefix.begin(), prefix.end());
    const Row& row = NewRow(text, blocks);
    v1::StepStreamRequest message = NewStep();
    AddTo(row, have * kOwnershipBlockSize, message.mutable_step());
    v1::Chunk* chunk = message.mutable_step()->mutable_chunks(0);
    for (uint32_t i = have * kOwnershipBlockSize; i < is.prompt_length; ++i)
      chunk->add_tokens(is.prompt[i]);
    return Added(Step(message));
  }

  // Adds the row over what its blocks hold, and a chunk that samples.
  void AddTo(const Row& row, uint32_t context_length, v1::StepRequest* step) const {
    v1::AddRow* add = step->add_add();
    add->set_row(row.id);
    add->mutable_blocks()->Assign(row.blocks.begin(), row.blocks.end());
    add->set_context_length(context_length);
    SetSampling(row.text, add);
    v1::Chunk* chunk = step->add_chunks();
    chunk->set_row(row.id);
    chunk->set_sample(true);
  }

  // A row over blocks that hold so much of a text, which goes on with what it said last.
  absl::Status GoOn(uint32_t text, uint32_t num_sampled, const Blocks& blocks) {
    Row& row = NewRow(text, blocks);
    row.num_sampled = num_sampled;
    v1::StepStreamRequest message = NewStep();
    AddTo(row, ContextOf(row), message.mutable_step());
    message.mutable_step()->mutable_chunks(0)->add_tokens(TextOfRow(row).tokens[num_sampled - 1]);
    return Added(Step(message));
  }

  // Decodes with all rows, which have said equally much, so many tokens at most, `depth` steps
  // unanswered, or more at once in a request.
  absl::Status Decode(uint32_t tokens, size_t depth) {
    uint32_t left = kTextTokens;
    for (const Row& row : rows_) left = std::min(left, kTextTokens - row.num_sampled);
    tokens = std::min(tokens, left);
    const uint32_t at_once = Below(4) == 0 ? 4 : 1;
    while (tokens > 0) {
      v1::StepStreamRequest message = NewStep();
      message.mutable_step()->set_continue_all(true);
      const uint32_t now = std::min(tokens, at_once);
      message.mutable_step()->set_num_steps(now);
      tokens -= now;
      REPRISE_RETURN_IF_ERROR(Send(message));
      if (sent_.size() >= depth) REPRISE_RETURN_IF_ERROR(ReadStep());
    }
    return ReadAll();
  }

  absl::Status ReadAll() {
    while (!sent_.empty()) REPRISE_RETURN_IF_ERROR(ReadStep());
    return absl::OkStatus();
  }

  // Their blocks stay.
  absl::Status DropRows() {
    if (rows_.empty()) return absl::OkStatus();
    v1::StepStreamRequest message = NewStep();
    for (const Row& row : rows_) message.mutable_step()->add_drop(row.id);
    const absl::Status dropped = Step(message);
    if (!dropped.ok()) return dropped;
    rows_.clear();
    model_.SetRows(slot_, 0);
    return absl::OkStatus();
  }

  // ---- what a client does ----

  absl::Status DoSomething() {
    struct Deed {
      const char* name;
      absl::Status (OwnershipClient::*run)();
    };
    static constexpr Deed kDeeds[] = {
        {"decodes", &OwnershipClient::DecodeSome},
        {"forks", &OwnershipClient::Fork},
        {"swaps", &OwnershipClient::Swap},
        {"shares", &OwnershipClient::ShareAndUse},
        {"adopts", &OwnershipClient::AdoptAndUse},
        {"exports", &OwnershipClient::ExportAndGoOn},
        {"imports", &OwnershipClient::ImportAndGoOn},
        {"resumes", &OwnershipClient::LoseAndResume},
        {"reads slowly", &OwnershipClient::ReadSlowly},
        {"repeats unary steps", &OwnershipClient::RepeatUnary},
        {"steals", &OwnershipClient::Steal},
    };
    const Deed& deed = kDeeds[Below(std::size(kDeeds))];
    doing_ = deed.name;
    REPRISE_RETURN_IF_ERROR((this->*deed.run)());
    REPRISE_RETURN_IF_ERROR(DropRows());
    // Some blocks are kept while others of its stories go on.
    if (Below(3) != 0 || held_.size() > 24) return Free(Blocks(held_));
    return absl::OkStatus();
  }

  uint32_t AnyText() { return static_cast<uint32_t>(Below(kNumTexts)); }
  uint32_t Some() { return 1 + static_cast<uint32_t>(Below(kTextTokens / 2)); }

  absl::Status DecodeSome() {
    REPRISE_RETURN_IF_ERROR(Start(AnyText(), {}));
    return Decode(kTextTokens, 1 + Below(kMaxKept));
  }

  // Two rows that go on in a copy of the block in which they part, and say the same.
  absl::Status Fork() {
    REPRISE_RETURN_IF_ERROR(Start(AnyText(), {}));
    REPRISE_RETURN_IF_ERROR(Decode(Some(), 2));
    const Row parent = rows_.front();
    const uint32_t whole = ContextOf(parent) / kOwnershipBlockSize;
    const bool part = ContextOf(parent) % kOwnershipBlockSize != 0;
    Blocks own;
    REPRISE_RETURN_IF_ERROR(Allocate(static_cast<uint32_t>(parent.blocks.size()) - whole, &own));
    Blocks table(parent.blocks.begin(), parent.blocks.begin() + whole);
    table.insert(table.end(), own.begin(), own.end());
    Row& child = NewRow(parent.text, table);
    child.num_sampled = parent.num_sampled;
    v1::StepStreamRequest message = NewStep();
    if (part) {
      message.mutable_step()->add_copy_blocks(parent.blocks[whole]);
      message.mutable_step()->add_copy_blocks(own[0]);
    }
    AddTo(child, ContextOf(child), message.mutable_step());
    message.mutable_step()->mutable_chunks(0)->add_tokens(
        TextOfRow(child).tokens[child.num_sampled - 1]);
    message.mutable_step()->add_continue_rows(parent.id);
    REPRISE_RETURN_IF_ERROR(Added(Step(message)));
    model_.Add(Count::kForks);
    return Decode(kTextTokens, 2);
  }

  absl::Status Swap() {
    REPRISE_RETURN_IF_ERROR(Start(AnyText(), {}));
    REPRISE_RETURN_IF_ERROR(Decode(Some(), 2));
    const Row row = rows_.front();
    REPRISE_RETURN_IF_ERROR(DropRows());
    v1::SwapOutRequest out;
    v1::SwapOutResponse gone;
    out.mutable_blocks()->Assign(row.blocks.begin(), row.blocks.end());
    LetGo(row.blocks);
    const absl::Status left = Expect("SwapOut", Call(&v1::StepService::Stub::SwapOut, out, &gone));
    if (absl::IsResourceExhausted(left)) REPRISE_RETURN_IF_ERROR(Claim(row.blocks));
    REPRISE_RETURN_IF_ERROR(left);
    swapped_.assign(gone.swapped().begin(), gone.swapped().end());
    model_.SetSwapped(slot_, static_cast<uint32_t>(swapped_.size()));
    REPRISE_RETURN_IF_ERROR(ParkIfPaused());
    Pause(Below(20));
    if (Below(4) == 0) return FreeSwapped();
    v1::SwapInRequest in;
    v1::SwapInResponse back;
    in.mutable_swapped()->Assign(swapped_.begin(), swapped_.end());
    REPRISE_RETURN_IF_ERROR(Expect("SwapIn", Call(&v1::StepService::Stub::SwapIn, in, &back)));
    swapped_.clear();
    model_.SetSwapped(slot_, 0);
    const Blocks blocks(back.blocks().begin(), back.blocks().end());
    REPRISE_RETURN_IF_ERROR(Claim(blocks));
    model_.Add(Count::kSwaps);
    REPRISE_RETURN_IF_ERROR(GoOn(row.text, row.num_sampled, blocks));
    return Decode(kTextTokens, 2);
  }

  // Whose offer to take: the own identity's, which is right, or anybody's.
  uint32_t Whose() { return Below(4) == 0 ? kNumIdentities : identity_; }

  static void SetWords(const std::string& words, Offer* offer) {
    offer->size = static_cast<uint32_t>(words.copy(offer->words.data(), offer->words.size()));
  }

  static constexpr uint32_t kSharedBlocks = 2;

  absl::Status ShareAndUse() {
    const uint32_t text = AnyText();
    REPRISE_RETURN_IF_ERROR(Start(text, {}));
    const Blocks prefix(rows_[0].blocks.begin(), rows_[0].blocks.begin() + kSharedBlocks);
    const std::string name = absl::StrCat(slot_, ".", life_, ".", ++num_names_);
    v1::ShareBlocksRequest request;
    v1::ShareBlocksResponse response;
    request.set_name(name);
    request.mutable_blocks()->Assign(prefix.begin(), prefix.end());
    REPRISE_RETURN_IF_ERROR(
        Expect("ShareBlocks", Call(&v1::StepService::Stub::ShareBlocks, request, &response)));
    model_.Share(slot_, prefix);
    model_.Add(Count::kShares);
    Offer offer = {.is_copy = false, .identity = identity_, .text = text};
    SetWords(name, &offer);
    model_.Post(offer);
    REPRISE_RETURN_IF_ERROR(Decode(kTextTokens, 2));
    REPRISE_RETURN_IF_ERROR(DropRows());
    REPRISE_RETURN_IF_ERROR(ParkIfPaused());
    return Release(name, prefix);
  }

  absl::Status Release(const std::string& name, const Blocks& blocks) {
    LetGo(blocks);
    v1::ReleaseBlocksRequest request;
    v1::ReleaseBlocksResponse response;
    request.set_name(name);
    return Expect("ReleaseBlocks", Call(&v1::StepService::Stub::ReleaseBlocks, request, &response));
  }

  absl::Status AdoptAndUse() {
    Offer offer;
    if (!model_.TakeOffer(/*is_copy=*/false, Whose(), random_(), &offer)) return absl::OkStatus();
    const std::string name(offer.words.data(), offer.size);
    v1::AdoptBlocksRequest request;
    v1::AdoptBlocksResponse response;
    request.set_name(name);
    const grpc::Status status = Call(&v1::StepService::Stub::AdoptBlocks, request, &response);
    if (status.ok() && offer.identity != identity_) {
      return Wrong(absl::StrCat("identity ", identity_, " adopted what identity ", offer.identity,
                                " shares"));
    }
    // It is gone by now, or another identity's; or the session is, which the next call tells.
    if (status.error_code() == grpc::StatusCode::NOT_FOUND) return Settled();
    REPRISE_RETURN_IF_ERROR(Expect("AdoptBlocks", status));
    const Blocks prefix(response.blocks().begin(), response.blocks().end());
    if (prefix.size() != kSharedBlocks) return Wrong("AdoptBlocks answered other blocks");
    while (!model_.Adopt(slot_, prefix)) REPRISE_RETURN_IF_ERROR(Settled());
    held_.insert(held_.end(), prefix.begin(), prefix.end());
    model_.Add(Count::kAdoptions);
    absl::Status used = Start(offer.text, prefix);
    if (used.ok()) used = Decode(Some(), 2);
    if (!used.ok() && !absl::IsResourceExhausted(used)) return used;
    REPRISE_RETURN_IF_ERROR(DropRows());
    REPRISE_RETURN_IF_ERROR(ParkIfPaused());
    REPRISE_RETURN_IF_ERROR(Release(name, prefix));
    return used;
  }

  absl::Status ExportAndGoOn() {
    REPRISE_RETURN_IF_ERROR(Start(AnyText(), {}));
    REPRISE_RETURN_IF_ERROR(Decode(1 + static_cast<uint32_t>(Below(6)), 2));
    const Row row = rows_.front();
    const uint32_t context = ContextOf(row);
    const uint32_t filled = (context + kOwnershipBlockSize - 1) / kOwnershipBlockSize;
    v1::ExportBlocksRequest request;
    v1::ExportBlocksResponse response;
    for (uint32_t i = 0; i < filled; ++i) request.add_blocks(row.blocks[i]);
    REPRISE_RETURN_IF_ERROR(
        Expect("ExportBlocks", Call(&v1::StepService::Stub::ExportBlocks, request, &response)));
    tickets_.assign(response.tickets().begin(), response.tickets().end());
    model_.SetExported(slot_, filled);
    model_.Add(Count::kExports);
    Offer offer = {.is_copy = true,
                   .identity = identity_,
                   .text = row.text,
                   .context_length = context,
                   .num_sampled = row.num_sampled};
    std::string words;
    for (const std::string& ticket : tickets_) words += ticket;
    SetWords(words, &offer);
    if (offer.size == words.size()) model_.Post(offer);
    REPRISE_RETURN_IF_ERROR(Decode(kTextTokens, 2));
    REPRISE_RETURN_IF_ERROR(ParkIfPaused());
    return FreeExported();
  }

  absl::Status ImportAndGoOn() {
    Offer offer;
    if (!model_.TakeOffer(/*is_copy=*/true, Whose(), random_(), &offer)) return absl::OkStatus();
    const Text& text = model_.texts()[offer.text];
    const uint32_t filled = (offer.context_length + kOwnershipBlockSize - 1) / kOwnershipBlockSize;
    Blocks blocks;
    REPRISE_RETURN_IF_ERROR(Allocate(BlocksOf(text), &blocks));
    v1::ImportBlocksRequest request;
    v1::ImportBlocksResponse response;
    const size_t ticket_bytes = offer.size / filled;
    for (uint32_t i = 0; i < filled; ++i) {
      request.add_blocks(blocks[i]);
      request.add_tickets(std::string(offer.words.data() + i * ticket_bytes, ticket_bytes));
    }
    const grpc::Status status = Call(&v1::StepService::Stub::ImportBlocks, request, &response);
    if (status.ok() && offer.identity != identity_) {
      return Wrong(absl::StrCat("identity ", identity_, " imported what identity ", offer.identity,
                                " exported"));
    }
    const bool gone = status.error_code() == grpc::StatusCode::NOT_FOUND ||
                      status.error_code() == grpc::StatusCode::DATA_LOSS;
    if (gone) return Settled();
    REPRISE_RETURN_IF_ERROR(Expect("ImportBlocks", status));
    model_.Add(Count::kImports);
    REPRISE_RETURN_IF_ERROR(GoOn(offer.text, offer.num_sampled, blocks));
    return Decode(kTextTokens, 2);
  }

  // Loses its stream with steps on their way, and takes the session up again where it can.
  absl::Status LoseAndResume() {
    REPRISE_RETURN_IF_ERROR(Start(AnyText(), {}));
    REPRISE_RETURN_IF_ERROR(Decode(1 + static_cast<uint32_t>(Below(4)), 2));
    for (uint64_t left = Below(kMaxKept); left > 0; --left) {
      v1::StepStreamRequest message = NewStep();
      message.mutable_step()->set_continue_all(true);
      REPRISE_RETURN_IF_ERROR(Send(message));
    }
    model_.Doubt(slot_);
    // Or the server finds two streams that say they are the session's.
    if (Below(3) != 0) stream_->context.TryCancel();
    model_.Add(Count::kCancelledStreams);
    if (!has_grace_) {
      stream_->context.TryCancel();
      return Lost("given up");
    }
    REPRISE_RETURN_IF_ERROR(Resume());
    return Decode(kTextTokens, 2);
  }

  // Asks for much and takes no answers for a while.
  absl::Status ReadSlowly() {
    REPRISE_RETURN_IF_ERROR(Start(AnyText(), {}));
    for (uint32_t i = rows_[0].num_sampled; i < kTextTokens; ++i) {
      v1::StepStreamRequest message = NewStep();
      message.mutable_step()->set_continue_all(true);
      message.mutable_step()->set_trace_id(std::string(16, 'x'));
      REPRISE_RETURN_IF_ERROR(Send(message));
    }
    Pause(200 + Below(1500));
    model_.Add(Count::kSlowReads);
    return ReadAll();
  }

  // A call that ended early, the one that it repeats did, or too many of them are still there.
  static bool IsToBeSentAgain(const grpc::Status& status) {
    return status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED ||
           status.error_code() == grpc::StatusCode::CANCELLED ||
           status.error_code() == grpc::StatusCode::ABORTED ||
           status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED;
  }

  // Unary steps whose calls end early, and that are sent again until they are answered.
  absl::Status RepeatUnary() {
    REPRISE_RETURN_IF_ERROR(Start(AnyText(), {}));
    for (int i = 0; i < 4; ++i) {
      v1::StepRequest step = *NewStep().mutable_step();
      step.set_session(token_);
      step.set_continue_all(true);
      v1::StepResponse response;
      for (int attempt = 0;; ++attempt) {
        grpc::ClientContext context;
        Authorize(&context);
        if (attempt < 2) {
          context.set_deadline(std::chrono::system_clock::now() +
                               std::chrono::microseconds(Below(1500)));
        }
        const grpc::Status status = stub_->Step(&context, step, &response);
        if (status.ok()) break;
        if (attempt == kMaxAttempts || !IsToBeSentAgain(status)) return Expect("Step", status);
        model_.Add(Count::kCancelledCalls);
        if (attempt > 2) Pause(1);
      }
      REPRISE_RETURN_IF_ERROR(TakeAnswer(response));
    }
    return absl::OkStatus();
  }

  static constexpr int kMaxAttempts = 1000, kMaxOpens = 50;

  // ---- what nobody may ----

  absl::Status Steal() {
    const std::string token = Below(4) == 0 ? std::string(16, static_cast<char>(Below(256)))
                                            : model_.TokenOfAnother(slot_, identity_, random_());
    REPRISE_RETURN_IF_ERROR(StealSession(token));
    REPRISE_RETURN_IF_ERROR(StealCalls(token));
    return StealBlocks();
  }

  absl::Status Refused(const char* what, const grpc::Status& status, grpc::StatusCode code) {
    model_.Add(Count::kThefts);
    if (status.error_code() == code) return absl::OkStatus();
    // Of its own session, which was harmed.
    if (status.error_code() == grpc::StatusCode::UNAVAILABLE) return Lost(what);
    if (status.error_code() == grpc::StatusCode::NOT_FOUND) return Lost(what);
    return Wrong(absl::StrCat(what, " of another was not refused: ", TextOf(status)));
  }

  absl::Status StealSession(const std::string& token) {
    v1::StepStreamRequest first;
    first.mutable_resume()->set_session(token);
    Stream stream;
    Authorize(&stream.context);
    stream.call = stub_->StepStream(&stream.context);
    stream.call->Write(first);
    v1::StepStreamResponse answer;
    if (stream.call->Read(&answer)) return Wrong("a session of another was resumed");
    return Refused("resume", stream.call->Finish(), grpc::StatusCode::NOT_FOUND);
  }

  absl::Status StealCalls(const std::string& token) {
    using Stub = v1::StepService::Stub;
    constexpr auto kNone = grpc::StatusCode::NOT_FOUND;
    v1::AllocateRequest allocate;
    v1::AllocateResponse allocated;
    allocate.set_session(token);
    allocate.set_count(1);
    REPRISE_RETURN_IF_ERROR(
        Refused("Allocate", CallWithSession(&Stub::Allocate, allocate, &allocated), kNone));
    v1::FreeRequest free;
    v1::FreeResponse freed;
    free.set_session(token);
    free.add_blocks(1 + static_cast<uint32_t>(Below(100)));
    REPRISE_RETURN_IF_ERROR(Refused("Free", CallWithSession(&Stub::Free, free, &freed), kNone));
    v1::SwapOutRequest swap;
    v1::SwapOutResponse swapped;
    swap.set_session(token);
    swap.add_blocks(1 + static_cast<uint32_t>(Below(100)));
    REPRISE_RETURN_IF_ERROR(
        Refused("SwapOut", CallWithSession(&Stub::SwapOut, swap, &swapped), kNone));
    v1::StepRequest step;
    v1::StepResponse stepped;
    step.set_session(token);
    step.set_sequence(1);
    step.set_continue_all(true);
    return Refused("Step", CallWithSession(&Stub::Step, step, &stepped), kNone);
  }

  // Blocks that are not its own, in its own session.
  absl::Status StealBlocks() {
    constexpr auto kDenied = grpc::StatusCode::PERMISSION_DENIED;
    const uint32_t block = 1 + static_cast<uint32_t>(Below(400));
    if (std::ranges::count(held_, block) != 0) return absl::OkStatus();
    v1::FreeRequest free;
    v1::FreeResponse freed;
    free.add_blocks(block);
    REPRISE_RETURN_IF_ERROR(
        Refused("a block", Call(&v1::StepService::Stub::Free, free, &freed), kDenied));
    v1::StepStreamRequest message = NewStep();
    --sequence_;
    v1::AddRow* add = message.mutable_step()->add_add();
    add->set_row(next_row_);
    add->add_blocks(block);
    add->set_context_length(2);
    v1::Chunk* chunk = message.mutable_step()->add_chunks();
    chunk->set_row(next_row_);
    chunk->add_tokens(1);
    chunk->set_sample(true);
    v1::StepStreamResponse answer;
    if (!stream_->call->Write(message) || !stream_->call->Read(&answer))
      return Lost("a stream gives no answer");
    model_.Add(Count::kThefts);
    if (!answer.has_error()) return Wrong("a row was added over a block of another");
    return absl::OkStatus();
  }

  OwnershipModel& model_;
  const uint32_t slot_;
  const uint32_t identity_;
  std::mt19937_64 random_;
  std::unique_ptr<v1::StepService::Stub> stub_;

  // Of the session.
  std::unique_ptr<Stream> stream_;
  std::string token_;
  bool has_grace_ = false;
  uint64_t life_ = 0;
  uint64_t sequence_ = 0;      // of the step that was sent last
  uint64_t last_read_ = 0;     // of the answer that was read last
  std::deque<uint64_t> sent_;  // without an answer yet
  uint32_t next_row_ = 1;
  uint32_t num_names_ = 0;
  std::vector<Row> rows_;
  Blocks held_;  // claimed, and those that it shares
  Blocks swapped_;
  std::vector<std::string> tickets_;
  const char* doing_ = "";
};

}  // namespace

std::string IdentityName(uint32_t identity) { return absl::StrCat("user-", identity); }
std::string IdentityToken(uint32_t identity) { return absl::StrCat("token-of-user-", identity); }

void RunOwnershipClient(OwnershipModel& model, const std::string& address, uint32_t slot,
                        uint64_t seed) {
  OwnershipClient(model, address, slot, seed).Run();
}

}  // namespace reprise::stress
