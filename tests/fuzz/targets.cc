// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/targets.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "engine/attention_tree_text.h"
#include "engine/linear_table_text.h"
#include "graphs/graph_nodes.h"
#include "grpcpp/impl/grpc_library.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/slice.h"
#include "nlohmann/json.hpp"
#include "reprise/v1/step_service.pb.h"
#include "runtime/check.h"
#include "service/identity/identity_file.h"
#include "service/kv/export_window.h"
#include "service/kv/kv_wire.h"
#include "service/record/record_format.h"
#include "service/trace_id.h"
#include "service/transport/frame_meter.h"
#include "service/transport/listen_address.h"
#include "service/transport/tls_files.h"
#include "service/wire/message.h"
#include "service/wire/scan.h"
#include "service/wire/step_from_wire.h"
#include "tests/fuzz/conversations.h"
#include "tests/fuzz/fuzz_files.h"
#include "tests/fuzz/model_targets.h"
#include "tests/service/certificates.h"
#include "tools/advise/batch_trace.h"
#include "tools/compare/measured_run.h"
#include "tools/config_file.h"
#include "tools/graph/graph_dump.h"
#include "tools/profile/profile_file.h"
#include "tools/sched/arrival_trace.h"
#include "tools/sched/prompts_file.h"
#include "tools/serve_config.h"
#include "tools/simulated_device.h"
#include "tools/top/metrics_text.h"
#include "tools/tune/journal.h"

namespace reprise::fuzz {
namespace {

// ---- from clients ----

grpc::ByteBuffer BufferOf(std::string_view bytes) {
  static const grpc::internal::GrpcLibraryInitializer grpc_is_ready;
  const grpc::Slice slice(bytes.data(), bytes.size());
  return {&slice, 1};
}

// What a server does with a message before anyone is asked what it means. What is scanned is
// parsed.
template <typename Message>
bool ReadMessage(std::string_view bytes, Message* message) {
  const grpc::ByteBuffer buffer = BufferOf(bytes);
  service::WireHead head;
  constexpr uint32_t kMaxEntries = 512;
  if (!service::ScanWire(buffer, *Message::descriptor(), kMaxEntries, &head).ok()) return false;
  return service::ParseWire(buffer, message).ok();
}

bool TakeStep(std::string_view bytes) {
  v1::StepRequest message;
  if (!ReadMessage(bytes, &message)) return false;
  service::StepScratch scratch;
  engine::StepRequest step;
  return service::StepFromWire(message, &scratch, &step).ok();
}

std::vector<std::string> StepSeeds() {
  v1::StepRequest step;
  step.set_session(std::string(16, 's'));
  step.set_sequence(7);
  v1::AddRow* add = step.add_add();
  add->set_row(3);
  add->add_blocks(5);
  add->mutable_sampling()->set_temperature(0.5);
  v1::Chunk* chunk = step.add_chunks();
  chunk->set_row(3);
  chunk->add_tokens(300);
  step.add_copy_blocks(1);
  step.add_copy_blocks(2);
  v1::StepRequest next;
  next.set_sequence(8);
  next.set_continue_all(true);
  next.set_num_steps(4);
  next.set_trace_id(std::string(16, 't'));
  return {step.SerializeAsString(), next.SerializeAsString()};
}

bool TakeStreamMessage(std::string_view bytes) {
  v1::StepStreamRequest message;
  if (!ReadMessage(bytes, &message)) return false;
  // Into a message that was used before: it is the same.
  static v1::StepStreamRequest used;
  REPRISE_CHECK(service::ParseWireAgain(BufferOf(bytes), &used).ok());
  REPRISE_CHECK(used.SerializeAsString() == message.SerializeAsString());
  return true;
}

std::vector<std::string> StreamSeeds() {
  v1::StepStreamRequest open, step;
  open.mutable_open()->set_client("fuzz");
  step.mutable_step()->set_sequence(1);
  return {open.SerializeAsString(), step.SerializeAsString()};
}

// The first byte says which.
bool TakeUnaryMessage(std::string_view bytes) {
  if (bytes.empty()) return false;
  const auto which = static_cast<unsigned char>(bytes[0]);
  bytes.remove_prefix(1);
  const auto read = [bytes](auto message) { return ReadMessage(bytes, &message); };
  switch (which % 19) {
    case 0:
      return read(v1::AllocateRequest());
    case 1:
      return read(v1::FreeRequest());
    case 2:
      return read(v1::SwapInRequest());
    case 3:
      return read(v1::ShareBlocksRequest());
    case 4:
      return read(v1::AdoptBlocksRequest());
    case 5:
      return read(v1::SetAttentionTreeRequest());
    case 6:
      return read(v1::ListSessionsRequest());
    case 7:
      return read(v1::ExportBlocksRequest());
    case 8:
      return read(v1::ImportBlocksRequest());
    case 9:
      return read(v1::FreeExportedRequest());
    case 10:
      return read(v1::SetBucketsRequest());
    case 11:
      return read(v1::SwapOutStateRequest());
    case 12:
      return read(v1::FreeSwappedRequest());
    case 13:
      return read(v1::StartProfileRequest());
    case 14:
      return read(v1::ReadTelemetryRequest());
    case 15:
      return read(v1::SwapOutRequest());
    case 16:
      return read(v1::ReadBlocksRequest());
    case 17:
      return read(v1::ReleaseBlocksRequest());
    default:
      return read(v1::EvictSessionRequest());
  }
}

std::vector<std::string> UnarySeeds() {
  v1::FreeRequest free;
  free.set_session(std::string(16, 's'));
  free.add_blocks(300);
  v1::ShareBlocksRequest share;
  share.set_name("a name");
  share.add_blocks(1);
  v1::ReadBlocksRequest blocks;
  blocks.set_session(std::string(16, 's'));
  blocks.add_ranges()->set_block(2);
  return {std::string(1, '\1') + free.SerializeAsString(),
          std::string(1, '\3') + share.SerializeAsString(),
          std::string(1, '\20') + blocks.SerializeAsString()};
}

constexpr engine::KvShape kShape = {.num_layers = 2,
                                    .num_kv_heads = 1,
                                    .head_dim = 4,
                                    .block_size = 4,
                                    .dtype = runtime::DType::kF32};

bool TakeKvContents(std::string_view bytes) {
  v1::WriteBlocksRequest message;
  if (!ReadMessage(bytes, &message)) return false;
  v1::KvLayout own;
  service::KvLayoutToWire(kShape, "", &own);
  return service::CheckKvLayout(message.layout(), own).ok() &&
         service::PartsFromWire(kShape, message).ok();
}

std::vector<std::string> KvSeeds() {
  v1::WriteBlocksRequest write;
  service::KvLayoutToWire(kShape, "", write.mutable_layout());
  v1::KvPart* part = write.add_parts();
  part->set_block(3);
  part->set_num_layers(1);
  part->set_num_tokens(2);
  part->set_contents(std::string(1 * 2 * 1 * 2 * 4 * 4, 'k'));
  part->set_crc32(service::Crc32Of(*part));
  return {write.SerializeAsString()};
}

bool TakeFrames(std::string_view bytes) {
  service::FrameMeter meter(service::FrameLimits(), nullptr, 1);
  // In two reads, cut where the first byte says.
  const size_t cut = bytes.empty() ? 0 : static_cast<unsigned char>(bytes[0]) % bytes.size();
  const auto* data = reinterpret_cast<const std::byte*>(bytes.data());
  return meter.Receive({data, cut}, 2) && meter.Receive({data + cut, bytes.size() - cut}, 3);
}

std::vector<std::string> FrameSeeds() {
  using namespace std::string_literals;
  const std::string preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  const std::string settings = "\0\0\0\4\0\0\0\0\0"s;
  const std::string headers = "\0\0\1\1\4\0\0\0\1\x82"s;
  const std::string data = "\0\0\7\0\1\0\0\0\1\0\0\0\0\2ab"s;
  return {preface + settings + settings + headers + data};
}

bool TakeTraceparent(std::string_view bytes) {
  const service::TraceId id = service::TraceId::FromTraceparent(bytes);
  REPRISE_CHECK(id.empty() || id.Hex().size() == 2 * service::TraceId::kBytes);
  return !id.empty();
}

std::vector<std::string> TraceparentSeeds() {
  return {"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"};
}

// ---- from operators ----

bool TakeIdentities(std::string_view bytes) {
  return service::ParseIdentities(bytes, "identities.json").ok();
}

std::vector<std::string> IdentitySeeds() {
  return {absl::StrCat(R"({"identities": [{"name": "a", "roles": ["step", "observe"],
      "unix_users": [0, 7], "certificate_names": ["dns:a.example"], "weight": 3, "max_rows": 8,
      "priority": 9, "token_sha256": [")",
                       std::string(64, 'a'), "\"]},\n",
                       R"({"name": "b", "roles": ["administer"], "unix_users": [1]}]})")};
}

bool TakeListenAddress(std::string_view bytes) { return service::ParseListenAddress(bytes).ok(); }

std::vector<std::string> ListenSeeds() { return {"[::1]:50061", "127.0.0.1:0", "unix:/run/s"}; }

bool TakePem(std::string_view bytes) {
  const std::string pem(bytes);
  const bool certificate = service::CheckCertificate("file", pem).ok();
  const bool key = service::CheckKey("file", pem, pem).ok();
  return service::CheckCrls("file", pem, pem).ok() || certificate || key;
}

std::vector<std::string> PemSeeds() {
  const testing::CertificateAuthority authority("fuzz");
  const testing::IssuedCertificate issued = authority.Issue({.common_name = "a"});
  return {issued.certificate + issued.key, authority.certificate() + authority.Revoke({issued})};
}

bool TakeArrivals(std::string_view bytes) {
  return tools::ReadArrivalTrace(MemoryFile(bytes).path()).ok();
}

std::vector<std::string> ArrivalSeeds() {
  return {"time_s,prompt_tokens,new_tokens,priority\n0.0,512,128,0\n1.5,7,9,-2\n",
          "{\"time_s\": 0.0, \"prompt_tokens\": 512, \"new_tokens\": 128, \"priority\": 0}\n"};
}

// The model and the options of a server (`reprise serve --config`).
bool TakeServeConfig(std::string_view bytes) {
  if (!tools::CheckServeConfig("serve.toml", bytes).ok()) return false;
  // A file that is taken is taken with one more setting, too.
  const auto changed = tools::WithSettings("serve.toml", bytes, {{"max-sessions", "8"}});
  REPRISE_CHECK(changed.ok() && tools::CheckServeConfig("serve.toml", *changed).ok());
  return true;
}

std::vector<std::string> ServeConfigSeeds() {
  return {
      "# A comment.\npreset = \"llama-3.1-8b\"  # another\nmax-context = 4096\ndevice = 'cuda:0'\n",
      "listen = [\"unix:/run/s\", \"127.0.0.1:0\"]\nmax-rows = 64\ndecode-buckets = \"1,8,64\"\n"
      "allow-administration = true\nidle-timeout = \"1.5s\"\nkv-cache = \"1GiB\"\n"};
}

// Lines that are no JSON are texts or tokens.
bool TakePrompts(std::string_view bytes) {
  const MemoryFile file(bytes);
  const auto texts = tools::ReadPromptsFile(file.path(), tools::PlainLines::kText);
  const auto tokens = tools::ReadPromptsFile(file.path(), tools::PlainLines::kTokens);
  return texts.ok() && tokens.ok();
}

std::vector<std::string> PromptSeeds() {
  return {"1,2\r\n\n4294967295,0\n",
          "{\"prompt\": \"a\\nb\\u00e9\", \"max_new_tokens\": 7}\n{\"tokens\": [5, 0]}\n"};
}

bool TakeBatches(std::string_view bytes) {
  return tools::ReadBatchTrace({MemoryFile(bytes).path()}).ok();
}

std::vector<std::string> BatchSeeds() {
  return {"rows,tokens,context,steps\n4,131,512,20\n8,,,\n",
          "{\"rows\": 4, \"tokens\": 131, \"context\": 512.5, \"steps\": 20}\n{\"rows\": 1}\n"};
}

// ---- from other servers ----

constexpr std::string_view kWindowId = "0123456789abcdef", kWindowKey = "a key of a copy.";

static_assert(kWindowId.size() == service::ExportWindow::kIdBytes &&
              kWindowKey.size() == service::ExportWindow::kKeyBytes);

// A file of the exchange directory, whose server runs.
class WindowFile {
 public:
  WindowFile()
      : fd_(::open(directory_.path(Name()).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600)) {
    REPRISE_CHECK(fd_ >= 0 && ::flock(fd_, LOCK_EX | LOCK_NB) == 0);
  }
  ~WindowFile() { ::close(fd_); }
  WindowFile(const WindowFile&) = delete;
  WindowFile& operator=(const WindowFile&) = delete;
  static std::string Name() {
    return absl::StrCat(
        absl::BytesToHexString(absl::string_view(kWindowId.data(), kWindowId.size())), ".export");
  }
  const std::string& directory() const { return directory_.path(); }
  void Write(std::string_view bytes) const { directory_.Write(Name(), bytes); }

 private:
  const FuzzDirectory directory_;
  const int fd_;
};

bool TakeExportWindow(std::string_view bytes) {
  static const WindowFile file;
  file.Write(bytes);
  const auto window = service::ExportWindow::Open(file.directory(), kWindowId);
  if (!window.ok()) return false;
  const service::ExportWindow::Description& description = (*window)->description();
  v1::KvLayout theirs, own;
  service::KvLayoutToWire(kShape, "", &own);
  const bool is_layout = theirs.ParseFromString(description.layout);
  const bool fits = is_layout && service::CheckKvLayout(theirs, own).ok();
  // A ticket may name any place.
  const uint32_t places = description.num_places;
  for (const uint32_t place : {0u, 1u, places - 1, places, ~0u}) {
    const auto num_tokens = (*window)->Find(place, kWindowKey, "a");
    REPRISE_CHECK(!num_tokens || place < places);
  }
  return fits;
}

std::vector<std::string> ExportWindowSeeds() {
  const FuzzDirectory directory;
  v1::KvLayout layout;
  service::KvLayoutToWire(kShape, "", &layout);
  const auto window =
      service::ExportWindow::Make(directory.path(), {.id = std::string(kWindowId),
                                                     .num_places = 2,
                                                     .handle = "a handle",
                                                     .arrangement = "plain 256",
                                                     .layout = layout.SerializeAsString()});
  REPRISE_CHECK(window.ok());
  (*window)->Publish(0, kWindowKey, "a", 3);
  return {BytesOfFile(directory.path(WindowFile::Name()))};
}

// ---- files of our own ----

bool TakeRecording(std::string_view bytes) { return service::ParseRecording("f", bytes).ok(); }

std::vector<std::string> RecordingSeeds() {
  v1::SessionRecord header, step, end;
  header.mutable_header()->set_session(7);
  header.mutable_header()->mutable_server()->mutable_model()->set_name("tiny");
  step.mutable_step()->set_sequence(1);
  step.mutable_answer()->set_sequence(1);
  end.mutable_end()->set_reason(v1::RECORD_END_REASON_SESSION_ENDED);
  std::string file = service::RecordFirstLine();
  for (const v1::SessionRecord* record : {&header, &step, &end})
    service::AppendFramed(record->SerializeAsString(), &file);
  return {file};
}

bool TakeAttentionTree(std::string_view bytes) {
  const auto tree = engine::ParseAttentionTree(bytes);
  if (!tree.ok()) return false;
  // What is taken is written so that it is taken again, as the same.
  const std::string text = engine::AttentionTreeText(*tree);
  const auto again = engine::ParseAttentionTree(text);
  REPRISE_CHECK(again.ok() && engine::AttentionTreeText(*again) == text);
  return true;
}

std::vector<std::string> AttentionTreeSeeds() {
  return {engine::AttentionTreeText(engine::NamedAttentionTree())};
}

bool TakeProfile(std::string_view bytes) { return tools::ParseProfile("f", bytes).ok(); }

std::vector<std::string> ProfileSeeds() {
  return {FileText("docs/benchmarks/profile_8b_h200.json")};
}

bool TakeSimulatedDevice(std::string_view bytes) {
  return tools::ParseSimulatedDevice("f", bytes).ok();
}

bool TakeGraph(std::string_view bytes) {
  const auto graph = tools::ParseGraph("f", bytes);
  if (!graph.ok()) return false;
  // What is taken is written so that it is taken again, as the same.
  const auto again = tools::ParseGraph("f", tools::GraphToJson(*graph).dump());
  REPRISE_CHECK(again.ok() && again->nodes == graph->nodes);
  return true;
}

std::vector<std::string> GraphSeeds() {
  graphs::GraphNode kernel, fill;
  kernel.kind = graphs::GraphNode::Kind::kKernel;
  kernel.kernel = "reprise_linear";
  kernel.op = "linear";
  kernel.shape = "8x4";
  kernel.grid_x = 4;
  kernel.block = 128;
  fill.kind = graphs::GraphNode::Kind::kFill;
  tools::GraphDump dump;
  dump.graph = "decode/8";
  dump.capacity = 8;
  dump.nodes = {kernel, fill, kernel};
  return {tools::GraphToJson(dump).dump()};
}

bool TakeJournal(std::string_view bytes) {
  const nlohmann::json header = {{"schema", tools::kJournalSchema}, {"options", {{"seed", 1}}}};
  const MemoryFile file(bytes);
  size_t num_entries = 0;
  {
    const auto journal = tools::Journal::Open(file.path(), header);
    if (!journal.ok()) return false;
    num_entries = (*journal)->num_entries();
  }
  // A line that was cut off is gone, and the others are still there.
  const auto again = tools::Journal::Open(file.path(), header);
  REPRISE_CHECK(again.ok() && (*again)->num_entries() == num_entries);
  return true;
}

std::vector<std::string> JournalSeeds() {
  return {absl::StrCat(R"({"options":{"seed":1},"schema":")", tools::kJournalSchema, "\"}\n",
                       R"({"cell":{"rows":8},"choice":{"rows":1},"ns":5.5,"replays":3,)",
                       R"("seconds":0.25,"spread":0})", "\n",
                       R"({"cell":{"rows":8},"choice":{"rows":2},"ns":7,"repl)")};
}

bool TakeMeasuredRun(std::string_view bytes) { return tools::ParseMeasuredRun("f", bytes).ok(); }

std::vector<std::string> MeasuredRunSeeds() {
  return {FileText("docs/benchmarks/step_8b_h200.json")};
}

bool TakeMetrics(std::string_view bytes) { return tools::MetricsText::Parse(bytes).ok(); }

std::vector<std::string> MetricsSeeds() {
  return {
      "# HELP a A\n# TYPE a counter\na{graph=\"decode/8\",x=\"\\\"\"} 12\n# TYPE h histogram\n"
      "h_bucket{le=\"0.1\"} 1\nh_bucket{le=\"+Inf\"} 2\nh_sum 0.4\nh_count 2\n"};
}

// What is written is read as the same table.
bool TakeLinearTable(std::string_view bytes) {
  const auto named = engine::ParseLinearTable(bytes);
  if (!named.ok()) return false;
  const auto again = engine::ParseLinearTable(engine::LinearTableText(*named));
  REPRISE_CHECK(again.ok() && again->table == named->table);
  return true;
}

std::vector<std::string> LinearTableSeeds() {
  return {R"({"schema":"reprise-linear-table/1","made_for":{"device":"a","dtype":"bf16"},)"
          R"("layers":[{"weights":"bf16","group_size":0,"out_features":64,"in_features":512,)"
          R"("kernels":[{"rows_from":1,"rows_to":2,"kernel":"reprise_linear_group_bf16_16"},)"
          R"({"rows_from":3,"rows_to":8,"kernel":"reprise_linear_packed_bf16_32"}]}]})"};
}

constexpr Target kTargets[] = {{"step", TakeStep, StepSeeds},
                               {"stream", TakeStreamMessage, StreamSeeds},
                               {"unary", TakeUnaryMessage, UnarySeeds},
                               {"kv_contents", TakeKvContents, KvSeeds},
                               {"conversations", TakeConversation, ConversationSeeds},
                               {"frames", TakeFrames, FrameSeeds},
                               {"traceparent", TakeTraceparent, TraceparentSeeds},
                               {"identities", TakeIdentities, IdentitySeeds},
                               {"listen_address", TakeListenAddress, ListenSeeds},
                               {"pem", TakePem, PemSeeds},
                               {"arrivals", TakeArrivals, ArrivalSeeds},
                               {"serve_config", TakeServeConfig, ServeConfigSeeds},
                               {"prompts", TakePrompts, PromptSeeds},
                               {"batches", TakeBatches, BatchSeeds},
                               {"export_window", TakeExportWindow, ExportWindowSeeds},
                               {"config", TakeConfig, ConfigSeeds},
                               {"safetensors", TakeSafetensors, SafetensorsSeeds},
                               {"shard_index", TakeShardIndex, ShardIndexSeeds},
                               {"int4_layer", TakeInt4Layer, Int4LayerSeeds},
                               {"reference_logits", TakeReferenceLogits, ReferenceLogitsSeeds},
                               {"recording", TakeRecording, RecordingSeeds},
                               {"attention_tree", TakeAttentionTree, AttentionTreeSeeds},
                               {"linear_table", TakeLinearTable, LinearTableSeeds},
                               {"profile", TakeProfile, ProfileSeeds},
                               {"simulated_device", TakeSimulatedDevice, ProfileSeeds},
                               {"graph", TakeGraph, GraphSeeds},
                               {"journal", TakeJournal, JournalSeeds},
                               {"measured_run", TakeMeasuredRun, MeasuredRunSeeds},
                               {"metrics", TakeMetrics, MetricsSeeds}};

}  // namespace

std::span<const Target> Targets() { return kTargets; }

}  // namespace reprise::fuzz
