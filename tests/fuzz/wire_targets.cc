// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/wire_targets.h"

#include <cstddef>
#include <cstdint>

#include "grpcpp/impl/grpc_library.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/slice.h"
#include "reprise/v1/step_service.pb.h"
#include "runtime/check.h"
#include "service/kv/kv_wire.h"
#include "service/trace_id.h"
#include "service/transport/frame_meter.h"
#include "service/wire/message.h"
#include "service/wire/scan.h"
#include "service/wire/step_from_wire.h"

namespace reprise::fuzz {
namespace {

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

}  // namespace

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

bool TakeKvContents(std::string_view bytes) {
  v1::WriteBlocksRequest message;
  if (!ReadMessage(bytes, &message)) return false;
  v1::KvLayout own;
  service::KvLayoutToWire(kKvShape, "", &own);
  return service::CheckKvLayout(message.layout(), own).ok() &&
         service::PartsFromWire(kKvShape, message).ok();
}

std::vector<std::string> KvSeeds() {
  v1::WriteBlocksRequest write;
  service::KvLayoutToWire(kKvShape, "", write.mutable_layout());
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

}  // namespace reprise::fuzz
