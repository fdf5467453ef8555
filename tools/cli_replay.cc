// SPDX-License-Identifier: Apache-2.0
// `reprise replay`: repeats sessions that `reprise serve --record` recorded, in this process or
// against a running server, and names the first difference of tokens or log-probabilities.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "nlohmann/json.hpp"
#include "runtime/status_macros.h"
#include "service/record/record_format.h"
#include "service/wire/describe_to_wire.h"
#include "tools/address.h"
#include "tools/cli.h"
#include "tools/connection_flags.h"
#include "tools/engine_flags.h"
#include "tools/record.h"
#include "tools/replay/engine_target.h"
#include "tools/replay/recorded_engine.h"
#include "tools/replay/recorded_session.h"
#include "tools/replay/replay_needs.h"
#include "tools/replay/server_target.h"
#include "tools/signals.h"
#include "tools/units.h"

namespace reprise::tools {
namespace {

constexpr char kReplayExamples[] =
    "Examples:\n"
    "  reprise serve --model examples/byte-llama --record recordings\n"
    "  reprise replay recordings/*.record\n"
    "  reprise replay --connect 127.0.0.1:50061 recordings/*.record\n"
    "\n"
    "Exits with 0 when every answer was the same, to the bit, and with 1 at the first difference, "
    "when a file was skipped because its header is not whole, or when there was nothing to "
    "compare.";

struct ReplayFlags {
  std::vector<std::string> files;
  EngineFlags engine;
  bool device_given = false;
  ConnectionOptions connection;  // address "": an engine in this process
  std::chrono::nanoseconds timeout = std::chrono::seconds(60);  // of a server's call, or step
  std::string json_file;
};

// A recording, and the session in it.
struct LoadedFile {
  service::Recording recording;
  RecordedSession session;
};

std::string EndText(const service::Recording& recording, const RecordedSession& session) {
  if (session.missing_step != 0)
    return absl::StrCat("step ", session.missing_step, " is missing; what follows is not repeated");
  if (!recording.end) {
    const std::string rest =
        recording.bytes_cut_off == 0
            ? ""
            : absl::StrCat(" in a record, ", recording.bytes_cut_off, " bytes of which are there");
    return absl::StrCat("was cut off", rest, "; what is whole is repeated");
  }
  switch (*recording.end) {
    case v1::RECORD_END_REASON_LIMIT:
      return "stopped at the limit of all recordings; the session went on";
    case v1::RECORD_END_REASON_WRITE_FAILED:
      return "stopped when it could not be written; the session went on";
    case v1::RECORD_END_REASON_OVERFLOW:
      return "stopped when records came too fast; the session went on";
    case v1::RECORD_END_REASON_OUT_OF_MEMORY:
      return "stopped when the server had no memory for a record; the session went on";
    case v1::RECORD_END_REASON_KV_CALL:
      return "stopped at a call about KV blocks that could not be held; the session went on";
    default:
      return "";
  }
}

// What there is to repeat, and files of which nothing is known, which a server left that was killed
// or had no room as a session began.
struct LoadedFiles {
  std::vector<std::unique_ptr<LoadedFile>> files;
  std::vector<std::string> skipped;
};

// One among several that has no whole header is skipped, and said.
absl::StatusOr<LoadedFiles> ReadFiles(const ReplayFlags& flags, Console* console) {
  LoadedFiles loaded;
  for (const std::string& path : flags.files) {
    absl::StatusOr<service::Recording> recording = service::ReadRecording(path);
    if (absl::IsOutOfRange(recording.status()) && flags.files.size() > 1) {
      console->Note(absl::StrCat("reprise replay: ", recording.status().message(), "; skipped"));
      loaded.skipped.push_back(path);
      continue;
    }
    REPRISE_RETURN_IF_ERROR(recording.status());
    RecordedSession session(*recording);
    const std::string end = EndText(*recording, session);
    if (!end.empty()) console->Note(absl::StrCat(path, ": ", end));
    // Moving the recording leaves its calls, which the session views, where they are.
    loaded.files.push_back(std::make_unique<LoadedFile>(
        LoadedFile{.recording = *std::move(recording), .session = std::move(session)}));
  }
  return loaded;
}

// Of a run in which nothing differed.
absl::Status SkippedError(const ReplayFlags& flags, const std::vector<std::string>& skipped) {
  if (skipped.empty()) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("skipped ", skipped.size(), " of ", flags.files.size(),
                   " files, which end before their headers do: ", absl::StrJoin(skipped, ", ")));
}

// Of a run in which nothing differed, because nothing could.
absl::Status NothingError(size_t num_files) {
  return absl::FailedPreconditionError(
      absl::StrCat("nothing to compare: got no result of a row in ", num_files,
                   num_files == 1 ? " file" : " files",
                   ", allowed: recordings of steps that were answered with rows"));
}

// The same error, which says what else it is: wrong usage, say.
absl::Status InFile(const std::string& file, const absl::Status& status) {
  absl::Status located(status.code(), absl::StrCat(file, ": ", status.message()));
  status.ForEachPayload([&located](absl::string_view type, const absl::Cord& payload) {
    located.SetPayload(type, payload);
  });
  return located;
}

// Opens sessions on whatever fits a recording.
class Targets {
 public:
  // `interrupted` must outlive it.
  // `needs`: of all sessions that will be opened.
  Targets(const ReplayFlags& flags, const ReplayNeeds& needs, const std::atomic<bool>* interrupted,
          Console* console)
      : flags_(flags), needs_(needs), interrupted_(interrupted), console_(console) {}

  // `needs`: of this session.
  absl::StatusOr<std::unique_ptr<ReplayTarget>> Open(const v1::RecordHeader& header,
                                                     const ReplayNeeds& needs) {
    if (!flags_.connection.address.empty()) return OpenOnServer(header, needs);
    REPRISE_RETURN_IF_ERROR(LoadFor(header));
    REPRISE_RETURN_IF_ERROR(CheckSwapSpace(needs, description_));
    return std::unique_ptr<ReplayTarget>(std::make_unique<EngineTarget>(loaded_.engine.get()));
  }
  // Of what Open opened last.
  const v1::DescribeResponse& description() const { return description_; }

 private:
  absl::StatusOr<std::unique_ptr<ReplayTarget>> OpenOnServer(const v1::RecordHeader& header,
                                                             const ReplayNeeds& needs) {
    if (server_ == nullptr) {
      REPRISE_ASSIGN_OR_RETURN(
          server_, ReplayServer::Connect(flags_.connection, flags_.timeout, interrupted_));
      description_ = server_->description();
    }
    REPRISE_RETURN_IF_ERROR(CheckAnswersAlike(header.server(), description_));
    REPRISE_RETURN_IF_ERROR(CheckSwapSpace(needs, description_));
    TellDoubts(header);
    return server_->OpenSession();
  }

  // Keeps the engine of the recording before where it serves this one, too.
  absl::Status LoadFor(const v1::RecordHeader& header) {
    const auto runs_alike = [&header](const v1::DescribeResponse& before) {
      const v1::DescribeResponse& server = header.server();
      return server.device().kind() == before.device().kind() &&
             server.device().name() == before.device().name() &&
             server.attention_tree().text() == before.attention_tree().text();
    };
    const bool same_model = loaded_.engine != nullptr && runs_alike(loaded_for_.server()) &&
                            header.model_directory() == loaded_for_.model_directory() &&
                            header.config_sha256() == loaded_for_.config_sha256() &&
                            header.preset() == loaded_for_.preset() &&
                            header.random_seed() == loaded_for_.random_seed();
    if (same_model && CheckAnswersAlike(header.server(), description_).ok())
      return absl::OkStatus();
    EngineFlags engine = flags_.engine;
    REPRISE_RETURN_IF_ERROR(ApplyRecordedSettings(header, needs_, &engine));
    const std::string& recorded_on = header.server().device().name();
    if (recorded_on.starts_with("sim (") && !engine.device.choice.simulated) {
      return absl::FailedPreconditionError(
          absl::StrCat("device: got none that is simulated, allowed: --device sim --profile FILE; "
                       "recorded on ",
                       recorded_on));
    }
    if (!flags_.device_given) {
      REPRISE_ASSIGN_OR_RETURN(engine.device.choice,
                               ParseDeviceChoice(header.server().device().kind()));
      engine.engine.attention_tree = header.server().attention_tree().text();
    }
    loaded_.engine.reset();
    REPRISE_ASSIGN_OR_RETURN(loaded_, LoadEngine(engine, console_));
    loaded_for_ = header;
    description_.Clear();
    service::DescribeToWire(loaded_.engine->info(), loaded_.engine->pool(),
                            loaded_.engine->captured_graphs(), loaded_.engine->attention_tree(),
                            /*max_message_bytes=*/0, &description_);
    REPRISE_RETURN_IF_ERROR(CheckAnswersAlike(header.server(), description_));
    TellDoubts(header);
    return absl::OkStatus();
  }

  void TellDoubts(const v1::RecordHeader& header) {
    const std::string doubts = DoubtsText(header.server(), description_);
    if (doubts.empty() || doubts == told_) return;
    told_ = doubts;
    console_->Note(doubts);
  }

  const ReplayFlags& flags_;
  const ReplayNeeds needs_;
  const std::atomic<bool>* const interrupted_;
  Console* const console_;
  LoadedEngine loaded_;
  v1::RecordHeader loaded_for_;
  std::unique_ptr<ReplayServer> server_;
  v1::DescribeResponse description_;
  std::string told_;
};

nlohmann::json ToJson(const AnswerDifference& difference) {
  nlohmann::json json = {{"sequence", difference.sequence},
                         {"step", difference.step},
                         {"row", nullptr},
                         {"field", difference.field},
                         {"expected", difference.expected},
                         {"got", difference.got}};
  if (difference.row) json["row"] = *difference.row;
  return json;
}

nlohmann::json ToJson(const LoadedFile& file, const ReplayResult& result) {
  nlohmann::json json = {{"file", file.recording.name},
                         {"session", file.recording.header.session()},
                         {"opened", file.recording.header.opened()},
                         {"steps", result.steps},
                         {"rows", result.rows},
                         {"steps_without_rows", result.steps_without_rows},
                         {"complete", file.recording.end == v1::RECORD_END_REASON_SESSION_ENDED &&
                                          file.session.missing_step == 0},
                         {"difference", nullptr}};
  if (result.difference) json["difference"] = ToJson(*result.difference);
  return json;
}

std::string OutcomeText(const ReplayResult& result) {
  if (result.difference) return DifferenceText(*result.difference);
  return result.has_compared() ? "equal" : "nothing to compare";
}

std::string ResultText(const LoadedFile& file, const ReplayResult& result) {
  const std::string unseen = result.steps_without_rows == 0
                                 ? ""
                                 : absl::StrCat(" (", FormatCount(result.steps_without_rows),
                                                " steps were answered without rows)");
  return absl::StrCat(file.recording.name, ": ", FormatCount(result.steps), " of ",
                      FormatCount(file.session.num_steps), " steps, ", FormatCount(result.rows),
                      " results", unseen, ": ", OutcomeText(result), "\n");
}

// Repeats one file. Errors name it, but for the signal's.
absl::StatusOr<ReplayResult> ReplayFile(const LoadedFile& file, const Interrupt& interrupt,
                                        Targets* targets) {
  const auto repeat = [&]() -> absl::StatusOr<ReplayResult> {
    REPRISE_ASSIGN_OR_RETURN(const std::unique_ptr<ReplayTarget> target,
                             targets->Open(file.recording.header, file.session.needs));
    return ReplaySession(file.session, target.get(), interrupt.requested());
  };
  absl::StatusOr<ReplayResult> result = repeat();
  // A call that the signal broke off says so in words of its own.
  REPRISE_RETURN_IF_ERROR(interrupt.status());
  if (!result.ok()) return InFile(file.recording.name, result.status());
  return result;
}

absl::Status Replay(const ReplayFlags& flags, const Invocation& invocation) {
  Console* console = invocation.console;
  const bool connects = !flags.connection.address.empty();
  if (connects) REPRISE_RETURN_IF_ERROR(CheckConnectionOptions(flags.connection));
  if (!connects) REPRISE_RETURN_IF_ERROR(CheckDeviceFlags(flags.engine.device));
  REPRISE_RETURN_IF_ERROR(PrepareRecord(flags.json_file, console));
  Interrupt interrupt;
  REPRISE_ASSIGN_OR_RETURN(const LoadedFiles loaded, ReadFiles(flags, console));
  ReplayNeeds needs;
  for (const auto& file : loaded.files) needs.Widen(file->session.needs);
  Targets targets(flags, needs, &interrupt.requested(), console);
  nlohmann::json record = RecordOf("replay", invocation);
  record["schema"] = "reprise.replay/1";
  record["files"] = nlohmann::json::array();
  record["skipped"] = loaded.skipped;
  interrupt.Arm();
  std::string different;
  bool has_compared = false;
  for (const auto& file : loaded.files) {
    REPRISE_ASSIGN_OR_RETURN(const ReplayResult result, ReplayFile(*file, interrupt, &targets));
    has_compared |= result.has_compared();
    console->Print(ResultText(*file, result));
    record["files"].push_back(ToJson(*file, result));
    if (!result.difference) continue;
    different = absl::StrCat(file->recording.name, ": ", DifferenceText(*result.difference));
    break;
  }
  record["equal"] = different.empty() && loaded.skipped.empty();
  if (different.empty() && loaded.skipped.empty() && !has_compared) record["equal"] = nullptr;
  record["device"] = targets.description().device().name();
  REPRISE_RETURN_IF_ERROR(WriteRecord(flags.json_file, record, console));
  if (!different.empty()) return absl::AbortedError(different);
  REPRISE_RETURN_IF_ERROR(SkippedError(flags, loaded.skipped));
  return has_compared ? absl::OkStatus() : NothingError(flags.files.size());
}

void AddEngineChoice(CLI::App* app, ReplayFlags* flags) {
  app->add_option("--model", flags->engine.source.directory,
                  "Directory of the model (default: where it was when it was recorded)")
      ->type_name("DIR");
  AddOption(app, "--preset", &flags->engine.source.preset, ParsePreset, "NAME", "",
            "Preset with random weights (default: as recorded)");
  NameOptionGroup(app, "Model");
  AddDeviceOptions(app, &flags->engine.device, /*offers_simulation=*/true);
  app->get_option("--device")->default_str("as recorded");
  NameOptionGroup(app, "Device");
}

}  // namespace

Command AddReplayCommand(CLI::App* root) {
  auto flags = std::make_shared<ReplayFlags>();
  CLI::App* app =
      root->add_subcommand("replay", "Repeat recorded sessions and compare, bit by bit");
  app->footer(kReplayExamples);
  app->add_option("FILE", flags->files, "Recordings of `reprise serve --record`")
      ->type_name("FILE")
      ->required();
  app->add_option("--json", flags->json_file, "Write the outcome as JSON; -: to stdout")
      ->type_name("FILE");
  AddOption(app, "--connect", &flags->connection.address, ParseAddress, "ADDRESS", "",
            "Repeat against the server there, HOST:PORT or unix:PATH (default: in this process)");
  AddOption(app, "--timeout", &flags->timeout, ParseDuration, "TIME", "60s",
            "Give up when that server takes longer to answer a call or a step; 0: never");
  AddProofOptions(app, &flags->connection);
  NameOptionGroup(app, "Replay");
  AddEngineChoice(app, flags.get());
  return {app, [flags, app](const Invocation& invocation) -> absl::Status {
            if (app->count("--timeout") > 0 && app->count("--connect") == 0)
              return UsageError("--timeout: got no --connect, allowed: beside it");
            flags->device_given = app->count("--device") > 0;
            return Replay(*flags, invocation);
          }};
}

}  // namespace reprise::tools
