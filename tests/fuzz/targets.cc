// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/targets.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "engine/attention_tree_text.h"
#include "grpcpp/impl/grpc_library.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/slice.h"
#include "models/config/hf_config.h"
#include "models/weights/safetensors.h"
#include "reprise/v1/step_service.pb.h"
#include "runtime/check.h"
#include "service/identity/identity_file.h"
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
#include "tests/service/certificates.h"
#include "tools/compare/measured_run.h"
#include "tools/profile/profile_file.h"
#include "tools/sched/arrival_trace.h"
#include "tools/top/metrics_text.h"

namespace reprise::fuzz {
namespace {

std::string FileText(const std::string& path) {
  std::ifstream file(absl::StrCat(REPRISE_SOURCE_DIR, "/", path), std::ios::binary);
  REPRISE_CHECK(file.good());
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// A file in memory alone, for what reads by path.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view bytes) : fd_(::memfd_create("fuzz", MFD_CLOEXEC)) {
    REPRISE_CHECK(fd_ >= 0);
    REPRISE_CHECK(::write(fd_, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
  }
  ~MemoryFile() { ::close(fd_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  std::string path() const { return absl::StrCat("/proc/self/fd/", fd_); }

 private:
  const int fd_;
};

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
  switch (which % 16) {
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
  return {std::string(1, '\1') + free.SerializeAsString(),
          std::string(1, '\3') + share.SerializeAsString()};
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

// ---- files of models ----

bool TakeConfig(std::string_view bytes) { return models::ParseHfConfig(bytes).ok(); }

std::vector<std::string> ConfigSeeds() {
  std::vector<std::string> seeds;
  for (const char* model : {"llama-tiny", "granite-tiny", "mistral-tiny", "qwen3-tiny",
                            "llama3-rope-bias-tiny", "yarn-rope-tiny"}) {
    seeds.push_back(FileText(absl::StrCat("tests/fixtures/", model, "/config.json")));
  }
  return seeds;
}

bool TakeSafetensors(std::string_view bytes) {
  const MemoryFile file(bytes);
  const auto opened = models::SafetensorsFile::Open(file.path());
  if (!opened.ok()) return false;
  // All that is promised of a tensor is there to be read.
  unsigned sum = 0;
  for (const auto& [name, tensor] : (*opened)->tensors())
    for (const std::byte byte : tensor.data) sum += static_cast<unsigned>(byte);
  return sum < ~0u;
}

std::vector<std::string> SafetensorsSeeds() {
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},)"
      R"("b":{"dtype":"BF16","shape":[3],"data_offsets":[8,14]}})";
  std::string file(8, '\0');
  for (size_t i = 0; i < 8; ++i) file[i] = static_cast<char>(header.size() >> (8 * i));
  return {file + header + std::string(14, 'x')};
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
                               {"config", TakeConfig, ConfigSeeds},
                               {"safetensors", TakeSafetensors, SafetensorsSeeds},
                               {"recording", TakeRecording, RecordingSeeds},
                               {"attention_tree", TakeAttentionTree, AttentionTreeSeeds},
                               {"profile", TakeProfile, ProfileSeeds},
                               {"measured_run", TakeMeasuredRun, MeasuredRunSeeds},
                               {"metrics", TakeMetrics, MetricsSeeds}};

}  // namespace

std::span<const Target> Targets() { return kTargets; }

}  // namespace reprise::fuzz
