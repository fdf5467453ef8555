// SPDX-License-Identifier: Apache-2.0
// The public face: passes on what decode_engine_impl.h does.
#include "engine/decode_engine.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/decode_engine_impl.h"
#include "engine/diagnostics.h"
#include "engine/engine_profiler.h"
#include "runtime/check.h"
#include "runtime/status_macros.h"

namespace reprise::engine {

DecodeEngine::DecodeEngine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
DecodeEngine::~DecodeEngine() = default;

absl::StatusOr<std::unique_ptr<DecodeEngine>> DecodeEngine::Create(
    runtime::Device& device, const models::ModelSource& source, const DecodeEngineOptions& options,
    const ProgressFn& progress) {
  return CreateEngineWithDiagnostics(device, source, options, {}, progress);
}

const EngineInfo& DecodeEngine::info() const { return impl_->info(); }
PoolInfo DecodeEngine::pool() const { return impl_->pool(); }
uint32_t DecodeEngine::num_resident_rows() const { return impl_->num_resident_rows(); }
GraphsInfo DecodeEngine::captured_graphs() const { return impl_->captured_graphs(); }
absl::StatusOr<GraphsInfo> DecodeEngine::SetBuckets(const BucketSets& buckets,
                                                    const GraphsFn& captured) {
  return impl_->SetBuckets(buckets, captured);
}
AttentionTreeInfo DecodeEngine::attention_tree() const { return impl_->attention_tree(); }
absl::StatusOr<uint64_t> DecodeEngine::SetAttentionTree(std::string_view text) {
  return impl_->SetAttentionTree(text);
}
absl::Status DecodeEngine::health() const { return impl_->health(); }
AccountId DecodeEngine::OpenAccount(const SessionLimits& limits) {
  return impl_->OpenAccount(limits);
}
void DecodeEngine::SetAccountLimits(AccountId account, const SessionLimits& limits) {
  impl_->SetAccountLimits(account, limits);
}

SessionInfo DecodeEngine::OpenSession(const SessionLimits& limits, AccountId account) {
  return impl_->OpenSession(limits, account);
}
bool DecodeEngine::IsOpen(SessionId session) const { return impl_->IsOpen(session); }
absl::StatusOr<SessionUse> DecodeEngine::session_use(SessionId session) const {
  return impl_->session_use(session);
}
absl::Status DecodeEngine::CloseSession(SessionId session) { return impl_->CloseSession(session); }
absl::StatusOr<std::vector<uint32_t>> DecodeEngine::AllocateBlocks(SessionId session,
                                                                   uint32_t count) {
  return impl_->AllocateBlocks(session, count);
}
absl::Status DecodeEngine::FreeBlocks(SessionId session, std::span<const uint32_t> blocks) {
  return impl_->FreeBlocks(session, blocks);
}
absl::Status DecodeEngine::ShareBlocks(SessionId session, std::string_view name,
                                       std::span<const uint32_t> blocks) {
  return impl_->ShareBlocks(session, name, blocks);
}
absl::StatusOr<std::vector<uint32_t>> DecodeEngine::AdoptBlocks(SessionId session,
                                                                std::string_view name) {
  return impl_->AdoptBlocks(session, name);
}
absl::Status DecodeEngine::ReleaseBlocks(SessionId session, std::string_view name) {
  return impl_->ReleaseBlocks(session, name);
}
absl::Status DecodeEngine::ReadBlocks(SessionId session, std::span<KvPart> parts,
                                      std::vector<std::byte>* contents) {
  return impl_->ReadBlocks(session, parts, contents);
}
absl::Status DecodeEngine::WriteBlocks(SessionId session, std::span<const KvPart> parts,
                                       std::span<const std::byte> contents) {
  return impl_->WriteBlocks(session, parts, contents);
}
absl::StatusOr<std::vector<uint32_t>> DecodeEngine::SwapOut(SessionId session,
                                                            std::span<const uint32_t> blocks) {
  return impl_->SwapOut(session, blocks);
}
absl::StatusOr<std::vector<uint32_t>> DecodeEngine::SwapIn(SessionId session,
                                                           std::span<const uint32_t> swapped) {
  return impl_->SwapIn(session, swapped);
}
absl::Status DecodeEngine::FreeSwapped(SessionId session, std::span<const uint32_t> swapped,
                                       std::span<const uint32_t> states) {
  return impl_->FreeSwapped(session, swapped, states);
}
absl::StatusOr<SwappedState> DecodeEngine::SwapOutState(SessionId session, uint32_t row) {
  return impl_->SwapOutState(session, row);
}
ExportSpace DecodeEngine::export_space() const { return impl_->export_space(); }
absl::StatusOr<runtime::OpenedBuffer> DecodeEngine::OpenExportSpace(std::string_view handle,
                                                                    uint32_t num_places) const {
  return impl_->OpenExportSpace(handle, num_places);
}
void DecodeEngine::OnExportsFreed(ExportsFreedFn freed) { impl_->OnExportsFreed(std::move(freed)); }
absl::Status DecodeEngine::ExportBlocks(SessionId session, std::span<const uint32_t> blocks,
                                        const PublishExportsFn& publish) {
  return impl_->ExportBlocks(session, blocks, publish);
}
absl::Status DecodeEngine::FreeExported(SessionId session, std::span<const uint32_t> places) {
  return impl_->FreeExported(session, places);
}
absl::Status DecodeEngine::ImportBlocks(SessionId session, std::span<const uint32_t> blocks,
                                        const ImportSource& source) {
  return impl_->ImportBlocks(session, blocks, source);
}
absl::StatusOr<StepTicket> DecodeEngine::Submit(const StepRequest& request) {
  return impl_->Submit(request);
}
absl::StatusOr<StepTicket> DecodeEngine::SubmitJoint(std::span<JointRequest> requests) {
  return impl_->SubmitJoint(requests);
}
absl::Status DecodeEngine::Wait(StepTicket ticket, StepResult* result) {
  return impl_->Wait(ticket, {result, 1});
}
absl::Status DecodeEngine::WaitJoint(StepTicket ticket, std::span<StepResult> results) {
  return impl_->Wait(ticket, results);
}
absl::Status DecodeEngine::Step(const StepRequest& request, StepResult* result) {
  return impl_->Step(request, StepForm::kPlain, result);
}

// ---- for tests and measurements: diagnostics.h, engine_profiler.h ----

absl::StatusOr<std::unique_ptr<DecodeEngine>> CreateEngineWithDiagnostics(
    runtime::Device& device, const models::ModelSource& source, const DecodeEngineOptions& options,
    const EngineDiagnostics& diagnostics, const ProgressFn& progress) {
  if (diagnostics.poison && diagnostics.random_kv_cache)
    return absl::InvalidArgumentError(
        "poison and random_kv_cache are both set; allowed: at most one of them");
  if (diagnostics.simulation != nullptr) {
    if (diagnostics.poison || diagnostics.random_kv_cache)
      return absl::InvalidArgumentError(
          "simulation: got poison or random_kv_cache beside it, whose memory is not there; "
          "allowed: neither");
    if (device.kind() != runtime::DeviceKind::kHost)
      return absl::FailedPreconditionError(absl::StrCat("simulation: got a device of kind ",
                                                        std::string(runtime::NameOf(device.kind())),
                                                        "; allowed: host"));
  }
  REPRISE_ASSIGN_OR_RETURN(auto parts,
                           EngineParts::Create(device, source, options, diagnostics, progress));
  return std::unique_ptr<DecodeEngine>(
      new DecodeEngine(std::make_unique<DecodeEngine::Impl>(std::move(parts))));
}

absl::Status EngineProfiler::Capture(std::span<const uint32_t> rows,
                                     std::span<const uint32_t> tokens) {
  return engine_.impl_->CaptureProfiledGraphs(rows, tokens);
}

namespace {

absl::Status CheckProfilable(const StepRequest& request) {
  if (request.mode != ExecutionMode::kReplay)
    return absl::InvalidArgumentError("a step of a profile is to run eagerly; allowed: kReplay");
  if (request.num_steps == 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a step of a profile has num_steps ", request.num_steps, "; allowed: 1"));
}

}  // namespace

absl::Status EngineProfiler::Step(const StepRequest& request, StepResult* result) {
  REPRISE_RETURN_IF_ERROR(CheckProfilable(request));
  return engine_.impl_->Step(request, StepForm::kProfiled, result);
}
absl::StatusOr<StepTicket> EngineProfiler::Submit(const StepRequest& request, StepForm form) {
  REPRISE_CHECK(form != StepForm::kPlain);
  REPRISE_RETURN_IF_ERROR(CheckProfilable(request));
  return engine_.impl_->SubmitProfiled(request, form);
}
std::vector<ProfiledGraphInfo> EngineProfiler::captured() const {
  return engine_.impl_->profiled_graphs();
}
std::vector<ProfiledGraphInfo> EngineProfiler::captured_unpadded() const {
  return engine_.impl_->unpadded_graphs();
}
absl::Status EngineProfiler::Drop() { return engine_.impl_->DropProfiledGraphs(); }
runtime::Device& EngineProfiler::device() { return engine_.impl_->device(); }
absl::Status EngineProfiler::CaptureUnpadded(std::span<const uint32_t> rows,
                                             std::span<const uint32_t> tokens) {
  return engine_.impl_->CaptureUnpaddedGraphs(rows, tokens);
}
absl::Status EngineProfiler::StepUnpadded(const StepRequest& request, StepResult* result) {
  REPRISE_RETURN_IF_ERROR(CheckProfilable(request));
  return engine_.impl_->Step(request, StepForm::kUnpadded, result);
}
absl::Status EngineProfiler::ReadStamps(uint32_t rows, StepStamps* stamps) {
  return engine_.impl_->ReadStamps(/*decode=*/true, rows, stamps);
}
absl::Status EngineProfiler::ReadLastStamps(StepStamps* stamps) {
  return engine_.impl_->ReadLastStamps(stamps);
}
absl::Status EngineProfiler::ReadMixedStamps(uint32_t tokens, StepStamps* stamps) {
  return engine_.impl_->ReadStamps(/*decode=*/false, tokens, stamps);
}
const StartReport& EngineProfiler::start_report() const { return engine_.impl_->start_report(); }
absl::StatusOr<std::vector<graphs::GraphNode>> EngineProfiler::ListNodes(std::string_view graph) {
  return engine_.impl_->ListNodes(graph);
}
absl::StatusOr<std::vector<kernels::ListedStage>> EngineProfiler::ListStages(
    std::string_view graph) {
  return engine_.impl_->ListStages(graph);
}
absl::StatusOr<graphs::CapturedNodes> EngineProfiler::ListCapturedNodes(std::string_view graph) {
  return engine_.impl_->ListCapturedNodes(graph);
}

}  // namespace reprise::engine
