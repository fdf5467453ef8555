// SPDX-License-Identifier: Apache-2.0
// ServerTarget: calls about KV blocks, each a unary one beside the session's stream.
#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"
#include "service/kv/kv_wire.h"
#include "tools/replay/server_target.h"

namespace reprise::tools {
namespace {

template <typename Ids>
std::vector<uint32_t> ListOf(const Ids& ids) {
  return {ids.begin(), ids.end()};
}

}  // namespace

template <typename Request, typename Response>
absl::Status ServerTarget::Call(Method<Request, Response> method, Request* request,
                                Response* response, const std::string& doing) {
  request->set_session(session_);
  const auto call = [&](grpc::ClientContext* context) {
    return (*server_.stub_.*method)(context, *request, response);
  };
  return server_.Call(call, doing);
}

absl::StatusOr<std::vector<uint32_t>> ServerTarget::Allocate(uint32_t count) {
  v1::AllocateRequest request;
  v1::AllocateResponse response;
  request.set_count(count);
  REPRISE_RETURN_IF_ERROR(
      Call(&Stub::Allocate, &request, &response, absl::StrCat("allocating ", count, " blocks")));
  return ListOf(response.blocks());
}

absl::Status ServerTarget::Free(const std::vector<uint32_t>& blocks) {
  v1::FreeRequest request;
  v1::FreeResponse response;
  request.mutable_blocks()->Assign(blocks.begin(), blocks.end());
  return Call(&Stub::Free, &request, &response, absl::StrCat("freeing ", blocks.size(), " blocks"));
}

absl::Status ServerTarget::Write(const v1::WriteBlocksRequest& write) {
  v1::WriteBlocksRequest request = write;
  v1::WriteBlocksResponse response;
  const v1::KvLayout& own = server_.description_.kv_layout();
  // A server that was not told its model recorded none.
  if (request.layout().model().empty()) request.mutable_layout()->set_model(own.model());
  REPRISE_RETURN_IF_ERROR(service::CheckKvLayout(request.layout(), own));
  return Call(&Stub::WriteBlocks, &request, &response,
              absl::StrCat("writing ", write.parts_size(), " parts of blocks"));
}

absl::StatusOr<std::vector<uint32_t>> ServerTarget::SwapOut(const std::vector<uint32_t>& blocks) {
  v1::SwapOutRequest request;
  v1::SwapOutResponse response;
  request.mutable_blocks()->Assign(blocks.begin(), blocks.end());
  REPRISE_RETURN_IF_ERROR(Call(&Stub::SwapOut, &request, &response,
                               absl::StrCat("swapping ", blocks.size(), " blocks out")));
  return ListOf(response.swapped());
}

absl::StatusOr<std::vector<uint32_t>> ServerTarget::SwapIn(const std::vector<uint32_t>& swapped) {
  v1::SwapInRequest request;
  v1::SwapInResponse response;
  request.mutable_swapped()->Assign(swapped.begin(), swapped.end());
  REPRISE_RETURN_IF_ERROR(Call(&Stub::SwapIn, &request, &response,
                               absl::StrCat("swapping ", swapped.size(), " blocks in")));
  return ListOf(response.blocks());
}

absl::StatusOr<engine::SwappedState> ServerTarget::SwapOutState(uint32_t row) {
  v1::SwapOutStateRequest request;
  v1::SwapOutStateResponse response;
  request.set_row(row);
  REPRISE_RETURN_IF_ERROR(Call(&Stub::SwapOutState, &request, &response,
                               absl::StrCat("swapping out the state of row ", row)));
  return engine::SwappedState{.place = response.swapped_state(),
                              .context_length = response.context_length()};
}

absl::Status ServerTarget::FreeSwapped(const std::vector<uint32_t>& swapped,
                                       const std::vector<uint32_t>& states) {
  v1::FreeSwappedRequest request;
  v1::FreeSwappedResponse response;
  request.mutable_swapped()->Assign(swapped.begin(), swapped.end());
  request.mutable_swapped_states()->Assign(states.begin(), states.end());
  return Call(&Stub::FreeSwapped, &request, &response, "freeing swap space");
}

absl::Status ServerTarget::Share(const std::string& name, const std::vector<uint32_t>& blocks) {
  v1::ShareBlocksRequest request;
  v1::ShareBlocksResponse response;
  request.set_name(name);
  request.mutable_blocks()->Assign(blocks.begin(), blocks.end());
  return Call(&Stub::ShareBlocks, &request, &response,
              absl::StrCat("sharing ", blocks.size(), " blocks"));
}

absl::Status ServerTarget::Release(const std::string& name) {
  v1::ReleaseBlocksRequest request;
  v1::ReleaseBlocksResponse response;
  request.set_name(name);
  return Call(&Stub::ReleaseBlocks, &request, &response, "releasing shared blocks");
}

}  // namespace reprise::tools
