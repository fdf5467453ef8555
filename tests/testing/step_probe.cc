// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/step_probe.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "models/config/hf_config.h"
#include "models/weights/checkpoint.h"
#include "runtime/status_macros.h"
#include "tests/testing/number.h"

namespace reprise::testing {
namespace {

constexpr engine::SessionId kSession = 1;

}  // namespace

absl::StatusOr<std::unique_ptr<StepProbe>> StepProbe::Create(runtime::Device& device,
                                                             const StepProbeOptions& options) {
  std::unique_ptr<StepProbe> probe(new StepProbe(device, options));
  REPRISE_RETURN_IF_ERROR(probe->Start());
  return probe;
}

absl::Status StepProbe::Start() {
  REPRISE_ASSIGN_OR_RETURN(spec_, models::ReadHfConfig(options_.directory));
  if (options_.round_activations) spec_.weight_quantization->rounds_activations = true;
  REPRISE_ASSIGN_OR_RETURN(stream_, device_.CreateStream());
  REPRISE_ASSIGN_OR_RETURN(kernels_, kernels::KernelSet::Load(device_, options_.dtype));
  REPRISE_ASSIGN_OR_RETURN(const auto checkpoint, models::Checkpoint::Open(options_.directory));
  REPRISE_ASSIGN_OR_RETURN(decoder_, models::Decoder::Create(spec_));
  const models::WeightPlan weights =
      decoder_->PlanWeights(options_.dtype, options_.dtype, options_.layout);
  REPRISE_ASSIGN_OR_RETURN(weights_, models::ModelWeights::Load(device_, weights, *checkpoint));

  const uint32_t max_blocks =
      (options_.max_context_length + options_.block_size - 1) / options_.block_size;
  const kernels::StepLimits limits{.block_size = options_.block_size,
                                   .vocab_size = static_cast<uint32_t>(spec_.vocab_size),
                                   .max_rows = options_.max_rows,
                                   .max_context_length = options_.max_context_length,
                                   .max_blocks_per_row = max_blocks,
                                   .max_step_tokens = options_.max_step_tokens};
  REPRISE_ASSIGN_OR_RETURN(state_, engine::StepState::Create(device_, *stream_, *decoder_,
                                                             *kernels_, options_.dtype, limits));
  const auto layout =
      kernels::StepEntryLayout::For(options_.max_rows, options_.max_step_tokens, max_blocks);
  REPRISE_ASSIGN_OR_RETURN(metadata_, runtime::MappedRing::Create(device_, 1, layout.bytes));
  REPRISE_ASSIGN_OR_RETURN(results_, runtime::MappedRing::Create(
                                         device_, 1, kernels::ResultEntryBytes(options_.max_rows)));
  const uint32_t num_blocks = options_.max_rows * max_blocks + 1;
  auto geometry = models::KvGeometry::For(spec_, options_.block_size, options_.dtype);
  geometry.swizzled = state_->attention.num_shares != 0;
  REPRISE_ASSIGN_OR_RETURN(pool_, models::KvPool::Create(device_, geometry, num_blocks));
  program_ = std::make_unique<engine::StepProgram>(engine::StepProgramParts{.kernels = *kernels_,
                                                                            .decoder = *decoder_,
                                                                            .pool = pool_,
                                                                            .state = *state_,
                                                                            .metadata = metadata_,
                                                                            .results = results_},
                                                   layout);
  rows_ = std::make_unique<engine::RowTable>(options_.max_rows, max_blocks);
  ledger_ = std::make_unique<engine::BlockLedger>(num_blocks);
  validator_ = std::make_unique<engine::StepValidator>(limits, std::span<const uint32_t>(), *rows_,
                                                       *ledger_);
  writer_ = std::make_unique<engine::StepWriter>(layout, limits.block_size, 1, limits.vocab_size,
                                                 std::span<const uint32_t>(), *rows_);
  // Blocks are handed out in a random order: no table names neighbours.
  std::vector<uint32_t> all;
  REPRISE_RETURN_IF_ERROR(ledger_->Allocate(kSession, num_blocks - 1, &all));
  for (const uint32_t i : Random(options_.block_size).Permutation(num_blocks - 1))
    REPRISE_RETURN_IF_ERROR(ledger_->Free(kSession, std::span(all).subspan(i, 1)));
  return absl::OkStatus();
}

absl::Status StepProbe::AddNewRows(StepDraft* draft) {
  for (const StepDraft::Chunk& chunk : draft->chunks) {
    if (rows_->Find(kSession, chunk.row) != engine::kNoSlot) continue;
    StepDraft::Add add{.row = chunk.row};
    REPRISE_RETURN_IF_ERROR(ledger_->Allocate(kSession, rows_->max_blocks_per_row(), &add.blocks));
    draft->add.push_back(std::move(add));
  }
  return absl::OkStatus();
}

absl::Status StepProbe::Execute(const StepDraft& draft) {
  const engine::DraftView view(draft, {.id = kSession}, 0);
  REPRISE_RETURN_IF_ERROR(validator_->Validate(view.request(), list_));
  const engine::StagedStep& staged = validator_->staged();
  writer_->Begin(++sequence_, metadata_.HostEntry(0));
  writer_->Add(view.request(), staged, list_);
  writer_->Finish();
  const models::StepShape shape{
      .max_rows = options_.max_rows,
      .max_tokens = staged.all_single ? options_.max_rows : options_.max_step_tokens,
      .mixed = !staged.all_single};
  REPRISE_RETURN_IF_ERROR(program_->Enqueue(*stream_, shape));
  REPRISE_RETURN_IF_ERROR(stream_->Synchronize());
  if (results_.Poll(0) == sequence_) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("step ", sequence_, " was not published"));
}

absl::StatusOr<std::vector<std::vector<float>>> StepProbe::Run(
    const std::vector<StepDraft::Chunk>& chunks) {
  StepDraft draft{.chunks = chunks};
  REPRISE_RETURN_IF_ERROR(AddNewRows(&draft));
  REPRISE_RETURN_IF_ERROR(Execute(draft));
  const auto num_sampled =
      std::count_if(chunks.begin(), chunks.end(), [](const auto& chunk) { return chunk.sample; });
  const auto vocab = static_cast<size_t>(spec_.vocab_size);
  std::vector<std::vector<float>> logits(static_cast<size_t>(num_sampled),
                                         std::vector<float>(vocab));
  for (size_t s = 0; s < logits.size(); ++s) {
    REPRISE_RETURN_IF_ERROR(stream_->CopyToHost(logits[s].data(), decoder_->logits() + s * vocab,
                                                vocab * sizeof(float)));
  }
  REPRISE_RETURN_IF_ERROR(stream_->Synchronize());
  return logits;
}

absl::Status StepProbe::Drop(uint32_t row) {
  const uint32_t slot = rows_->Find(kSession, row);
  if (slot == engine::kNoSlot) return absl::NotFoundError(absl::StrCat("row ", row));
  const auto table = rows_->table(slot).first(rows_->state(slot).table_length);
  const std::vector<uint32_t> blocks(table.begin(), table.end());
  REPRISE_RETURN_IF_ERROR(Execute({.drop = {row}}));
  return ledger_->Free(kSession, blocks);
}

}  // namespace reprise::testing
