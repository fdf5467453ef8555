// SPDX-License-Identifier: Apache-2.0
#include "engine/engine_parts.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/engine_setup.h"
#include "engine/linear_table_text.h"
#include "engine/memory_fill.h"
#include "kernels/linear/linear_choice.h"
#include "kernels/plan/plan.h"
#include "runtime/status_macros.h"

namespace reprise::engine {
namespace {

using Clock = std::chrono::steady_clock;

// With what goes around it below the 4 MiB that gRPC's clients take where nothing else is set.
constexpr uint64_t kKvTransferBytes = uint64_t{3} << 20;
// Places times layers stay below 2^32.
constexpr uint64_t kMaxSwapPlaces = uint64_t{1} << 22;

uint64_t NanosecondsSince(Clock::time_point begin) {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begin).count());
}

}  // namespace

absl::StatusOr<std::unique_ptr<const EngineParts>> EngineParts::Create(
    runtime::Device& device, const models::ModelSource& source, const DecodeEngineOptions& options,
    const EngineDiagnostics& diagnostics, const ProgressFn& progress) {
  std::unique_ptr<EngineParts> parts(new EngineParts(device, diagnostics));
  REPRISE_ASSIGN_OR_RETURN(const uint64_t free_before, parts->FreeBytes());
  REPRISE_RETURN_IF_ERROR(parts->Load(source, options, progress));
  REPRISE_RETURN_IF_ERROR(parts->CreateRings());
  REPRISE_RETURN_IF_ERROR(parts->CreatePool());
  REPRISE_RETURN_IF_ERROR(parts->CreateTransferMemory());
  REPRISE_RETURN_IF_ERROR(parts->FillPool());
  REPRISE_RETURN_IF_ERROR(parts->Capture(progress));
  REPRISE_RETURN_IF_ERROR(parts->FinishReport(free_before));
  return parts;
}

absl::StatusOr<uint64_t> EngineParts::FreeBytes() const {
  // The host's memory is the machine's, which others take from all the time.
  if (device.kind() == runtime::DeviceKind::kHost) return 0;
  REPRISE_ASSIGN_OR_RETURN(const size_t bytes, device.FreeBytes());
  return bytes;
}

absl::Status EngineParts::FinishReport(uint64_t free_before) {
  start.activations_bytes = state->activations().bytes();
  start.state_bytes = state->state().bytes();
  start.rings_bytes =
      metadata.entry_bytes() * metadata.depth() + results.entry_bytes() * results.depth();
  start.transfer_bytes = kv_staging.bytes() + kv_notice.bytes();
  if (device.kind() != runtime::DeviceKind::kHost) {
    REPRISE_ASSIGN_OR_RETURN(start.free_bytes, FreeBytes());
    const MemoryInfo& memory = info.memory;
    const uint64_t told = memory.weights_bytes + memory.kv_cache_bytes + memory.workspace_bytes +
                          memory.graphs_bytes + memory.export_bytes;
    const uint64_t taken = free_before - std::min(free_before, start.free_bytes);
    start.driver_bytes = taken - std::min(taken, told);
    const uint64_t total = device.properties().total_bytes;
    start.before_bytes = total - std::min(total, free_before);
  }
  clock_.Mark("report");
  clock_.Finish(&start);
  return absl::OkStatus();
}

EngineParts::~EngineParts() {
  // A fault here has been reported by Wait already.
  if (stream != nullptr) stream->Synchronize().IgnoreError();
}

absl::Status EngineParts::Load(const models::ModelSource& source, const DecodeEngineOptions& asked,
                               const ProgressFn& progress) {
  const Clock::time_point begin = Clock::now();
  REPRISE_ASSIGN_OR_RETURN(info.model, models::ReadModelSpec(source));
  REPRISE_ASSIGN_OR_RETURN(ResolvedOptions resolved,
                           ResolveOptions(asked, info.model, device.properties()));
  options = std::move(resolved.options);
  options.linear = ResolveLinear(options, info.model, device.properties());
  REPRISE_RETURN_IF_ERROR(CheckLinear(options, device.properties()));
  REPRISE_ASSIGN_OR_RETURN(info.model, ModelToRun(options, info.model, device.properties()));
  info.device = device.properties();
  if (diagnostics.simulation != nullptr) info.device.name = diagnostics.simulation->device_name;
  info.dtype = options.dtype;
  info.kv_dtype = *options.kv_dtype;
  info.linear = options.linear;
  info.limits = resolved.limits;
  clock_.Mark("model config");
  REPRISE_ASSIGN_OR_RETURN(stream, device.CreateStream());
  REPRISE_ASSIGN_OR_RETURN(kernel_set, kernels::KernelSet::Load(device, options.dtype));
  REPRISE_RETURN_IF_ERROR(LoadLinearTable());
  REPRISE_ASSIGN_OR_RETURN(decoder, models::Decoder::Create(info.model));
  clock_.Mark("kernels");
  REPRISE_RETURN_IF_ERROR(LoadModelWeights(source, progress));
  info.load_ns = NanosecondsSince(begin);

  REPRISE_ASSIGN_OR_RETURN(
      state, StepState::Create(device, *stream, *decoder, *kernel_set, info.kv_dtype, info.limits));
  row_states = RowStates(decoder->row_state());
  if (state->attention.tile_members == 0) info.limits.min_shared_tokens = 0;
  info.memory.workspace_bytes = state->bytes();
  REPRISE_RETURN_IF_ERROR(LoadAttentionTree());
  clock_.Mark("workspace");
  return absl::OkStatus();
}

absl::Status EngineParts::LoadModelWeights(const models::ModelSource& source,
                                           const ProgressFn& progress) {
  if (diagnostics.simulation != nullptr) {
    // Layers declare their buffers behind this; nothing reads the weights.
    return decoder->PlanWeights(kernel_set->dtype, info.kv_dtype).status();
  }
  REPRISE_ASSIGN_OR_RETURN(weights, LoadWeights(device, source, *decoder, *kernel_set,
                                                info.kv_dtype, info.linear, progress, &clock_));
  info.memory.weights_bytes = weights.bytes();
  return absl::OkStatus();
}

absl::Status EngineParts::LoadLinearTable() {
  if (options.linear_table.empty()) return absl::OkStatus();
  const bool simulated = diagnostics.simulation != nullptr;
  if (simulated || options.linear == LinearPolicy::kPortable)
    return absl::InvalidArgumentError(
        absl::StrCat("linear table: got one ",
                     simulated ? "in a simulation, which runs no layers"
                               : "with linear layers that are portable",
                     "; allowed: with linear layers that are tuned, row-major or packed"));
  REPRISE_ASSIGN_OR_RETURN(NamedLinearTable named, ParseLinearTable(options.linear_table));
  REPRISE_RETURN_IF_ERROR(CheckTableSite(named, info.device.name, info.dtype));
  REPRISE_RETURN_IF_ERROR(kernels::CheckLinearTable(*kernel_set, named.table));
  kernel_set->linear_table = std::move(named.table);
  info.linear_table_ranges = static_cast<uint32_t>(kernel_set->linear_table.size());
  return absl::OkStatus();
}

absl::Status EngineParts::LoadAttentionTree() {
  if (!options.attention_tree.empty()) {
    REPRISE_ASSIGN_OR_RETURN(attention_tree, ParseAttentionTree(options.attention_tree));
  }
  REPRISE_RETURN_IF_ERROR(CheckAttentionTree(attention_tree));
  return kernels::SetAttentionTree(*stream, *kernel_set, attention_tree.tree,
                                   state->attention_tree);
}

absl::Status EngineParts::CheckAttentionTree(const NamedAttentionTree& named) const {
  const kernels::AttentionPlanRule& rule = state->attention;
  const auto geometry = models::KvGeometry::For(info.model, options.block_size, info.kv_dtype);
  return CheckTreeFits(named,
                       {.device = info.device.name,
                        .num_heads = info.model.num_heads,
                        .kv = geometry.layout(),
                        .windows = {rule.windows, rule.windows + rule.num_windows}},
                       {.max_splits = rule.max_splits,
                        .num_shares = rule.num_shares,
                        .max_prompt_q_tokens = rule.prefill_q_tokens,
                        .batch_invariant = options.batch_invariant});
}

absl::Status EngineParts::CreateRings() {
  const kernels::StepLimits& limits = info.limits;
  metadata_layout = kernels::StepEntryLayout::For(limits.max_rows, limits.max_step_tokens,
                                                  limits.max_blocks_per_row,
                                                  limits.max_sampling_bytes / sizeof(uint32_t));
  REPRISE_ASSIGN_OR_RETURN(
      metadata, runtime::MappedRing::Create(device, limits.pipeline_depth, metadata_layout.bytes));
  REPRISE_ASSIGN_OR_RETURN(
      results,
      runtime::MappedRing::Create(device, limits.pipeline_depth * limits.max_steps_per_request,
                                  state->result_layout.bytes));
  clock_.Mark("rings");
  return absl::OkStatus();
}

absl::Status EngineParts::CreatePool() {
  auto geometry = models::KvGeometry::For(info.model, options.block_size, info.kv_dtype);
  geometry.swizzled = state->attention.num_shares != 0;
  // The pool takes what is left.
  REPRISE_RETURN_IF_ERROR(CreateExportSpace(geometry));
  uint64_t graphs_bytes = 0;
  if (options.kv_cache_bytes == 0 && device.kind() != runtime::DeviceKind::kHost) {
    REPRISE_ASSIGN_OR_RETURN(const models::KvPool smallest,
                             models::KvPool::Create(device, geometry, 2));
    REPRISE_ASSIGN_OR_RETURN(
        graphs_bytes, StepGraphs::EstimateBytes(*stream, ProgramOn(smallest, nullptr), options));
    clock_.Mark("estimate of graphs");
  }
  REPRISE_ASSIGN_OR_RETURN(const uint64_t blocks,
                           NumPoolBlocks(device, options, geometry, graphs_bytes));
  if (diagnostics.simulation != nullptr) {
    REPRISE_ASSIGN_OR_RETURN(pool, models::KvPool::CreateWithoutMemory(geometry, blocks));
    simulated =
        std::make_unique<SimulatedDecoder>(*diagnostics.simulation, *state, info.model,
                                           decoder->logits(), models::MaxLogits(info.limits));
  } else {
    REPRISE_ASSIGN_OR_RETURN(pool, models::KvPool::Create(device, geometry, blocks));
  }
  info.memory.kv_cache_bytes = pool.bytes();
  clock_.Mark("KV pool");
  return absl::OkStatus();
}

absl::Status EngineParts::CreateExportSpace(const models::KvGeometry& geometry) {
  const uint64_t places = options.export_bytes / geometry.BlockBytes();
  if (options.export_bytes == 0) return absl::OkStatus();
  if (places == 0 || places > kMaxSwapPlaces) {
    return absl::InvalidArgumentError(absl::StrCat(
        "export_bytes: got ", options.export_bytes, ", ", places, " KV blocks of ",
        geometry.BlockBytes(), " bytes; allowed: 0, or 1 to ", kMaxSwapPlaces, " blocks"));
  }
  if (diagnostics.simulation != nullptr) {
    return absl::InvalidArgumentError(
        "export_bytes: got some in a simulation, whose blocks hold nothing; allowed: 0");
  }
  num_export_places = static_cast<uint32_t>(places);
  info.memory.export_bytes = places * geometry.BlockBytes();
  REPRISE_ASSIGN_OR_RETURN(export_space,
                           runtime::SharedBuffer::Create(device, info.memory.export_bytes));
  clock_.Mark("export space");
  return absl::OkStatus();
}

absl::Status EngineParts::CreateTransferMemory() {
  const models::KvGeometry& geometry = pool.geometry();
  info.kv = {.num_layers = static_cast<uint32_t>(geometry.num_layers),
             .num_kv_heads = static_cast<uint32_t>(geometry.num_kv_heads),
             .head_dim = static_cast<uint32_t>(geometry.head_dim),
             .block_size = static_cast<uint32_t>(geometry.block_size),
             .dtype = geometry.dtype};
  info.max_kv_transfer_bytes = std::max(kKvTransferBytes, info.kv.WholeBytesOf({.num_layers = 1}));
  REPRISE_RETURN_IF_ERROR(DivideSwapSpace(geometry));
  if (diagnostics.simulation != nullptr) return absl::OkStatus();
  REPRISE_ASSIGN_OR_RETURN(kv_staging,
                           runtime::MappedBuffer::Create(device, info.max_kv_transfer_bytes));
  REPRISE_ASSIGN_OR_RETURN(kv_notice, runtime::MappedBuffer::Create(device, sizeof(uint64_t)));
  clock_.Mark("transfer memory");
  return options.swap_bytes == 0 ? absl::OkStatus() : CreateSwapSpace(geometry);
}

absl::Status EngineParts::DivideSwapSpace(const models::KvGeometry& geometry) {
  if (options.swap_bytes == 0) return absl::OkStatus();
  // Half of it each: a row that leaves takes its state with it, and how much KV, nobody knows.
  const uint64_t state_bytes = row_states.bytes();
  const uint64_t states = state_bytes == 0 ? 0 : options.swap_bytes / 2 / state_bytes;
  if (state_bytes != 0 && (states == 0 || states > kMaxSwapPlaces)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "swap_bytes: got ", options.swap_bytes, ", half of it for ", states, " rows' state of ",
        state_bytes, " bytes; allowed: 0, or room for 1 to ", kMaxSwapPlaces, " there"));
  }
  const uint64_t places = (options.swap_bytes - states * state_bytes) / geometry.BlockBytes();
  if (places == 0 || places > kMaxSwapPlaces) {
    return absl::InvalidArgumentError(absl::StrCat(
        "swap_bytes: got ", options.swap_bytes, ", ", places, " KV blocks of ",
        geometry.BlockBytes(), " bytes; allowed: 0, or 1 to ", kMaxSwapPlaces, " blocks"));
  }
  num_swap_places = static_cast<uint32_t>(places);
  num_state_places = static_cast<uint32_t>(states);
  return absl::OkStatus();
}

absl::Status EngineParts::CreateSwapSpace(const models::KvGeometry& geometry) {
  REPRISE_ASSIGN_OR_RETURN(
      swap_space, runtime::MappedBuffer::Create(device, num_swap_places * geometry.BlockBytes()));
  if (num_state_places != 0) {
    REPRISE_ASSIGN_OR_RETURN(
        state_space, runtime::MappedBuffer::Create(device, num_state_places * row_states.bytes()));
  }
  info.memory.swap_bytes = swap_space.bytes() + state_space.bytes();
  clock_.Mark("swap space");
  return absl::OkStatus();
}

absl::Status EngineParts::FillPool() {
  if (!diagnostics.poison && !diagnostics.random_kv_cache) return absl::OkStatus();
  REPRISE_RETURN_IF_ERROR(diagnostics.poison ? PoisonPool(*stream, *kernel_set, pool)
                                             : RandomFillPool(*stream, *kernel_set, pool));
  REPRISE_RETURN_IF_ERROR(stream->Synchronize());
  clock_.Mark("filling the KV pool");
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<StepKernels>> EngineParts::MakeStepKernels(
    runtime::Stream& copies, const std::vector<int64_t>& decode_buckets) const {
  if (options.decode != DecodePolicy::kStepKernel) return nullptr;
  if (simulated != nullptr)
    return absl::InvalidArgumentError(
        "decode is step-kernel in a simulation, which runs no layers; allowed: tuned, chain");
  const StepProgram program = ProgramOn(pool, nullptr);
  return StepKernels::Create(
      device, copies, *kernel_set, decode_buckets, [&](runtime::Stream& list, uint32_t rows) {
        return program.EnqueueLayers(
            list, {.max_rows = rows, .max_tokens = rows, .separate_norms = true});
      });
}

absl::Status EngineParts::Capture(const ProgressFn& progress) {
  auto set = std::make_unique<StepGraphs::Set>();
  REPRISE_ASSIGN_OR_RETURN(set->step_kernels, MakeStepKernels(*stream, options.decode_buckets));
  if (set->step_kernels != nullptr) {
    info.step_kernel_rows = set->step_kernels->max_rows();
    start.step_kernel_bytes = set->step_kernels->bytes();
    info.memory.workspace_bytes += start.step_kernel_bytes;
    clock_.Mark("step kernels");
  }
  set->program = std::make_unique<const StepProgram>(ProgramOn(pool, set->step_kernels.get()));
  set->max_rows = options.max_rows;
  REPRISE_RETURN_IF_ERROR(StepGraphs::CaptureSet(
      *stream, {.decode = options.decode_buckets, .mixed = options.mixed_buckets}, progress,
      set.get()));
  graphs = std::make_unique<StepGraphs>(*stream, std::move(set));
  GraphsInfo captured = graphs->info();
  uint64_t captures_ns = 0;
  for (const auto* buckets : {&captured.decode_buckets, &captured.mixed_buckets})
    for (const graphs::CapturedBucket& bucket : *buckets) captures_ns += bucket.capture_ns;
  info.decode_buckets = std::move(captured.decode_buckets);
  info.mixed_buckets = std::move(captured.mixed_buckets);
  info.memory.graphs_bytes = captured.device_bytes;
  info.capture_ns = captured.capture_ns;
  clock_.Mark("warm-up of graphs", "capture", captures_ns);
  return absl::OkStatus();
}

absl::Status EngineParts::CheckBuckets(const BucketSets& buckets) const {
  const kernels::StepLimits& limits = info.limits;
  const bool by_rows = limits.max_rows <= limits.max_step_tokens;
  const uint32_t most_rows = by_rows ? limits.max_rows : limits.max_step_tokens;
  for (const int64_t rows : buckets.decode) {
    if (rows >= 1 && rows <= most_rows) continue;
    return absl::InvalidArgumentError(absl::StrCat("decode bucket is ", rows, "; allowed: 1 to ",
                                                   most_rows, ", ",
                                                   by_rows ? "max_rows" : "max_step_tokens"));
  }
  const int64_t widest_decode = *std::max_element(buckets.decode.begin(), buckets.decode.end());
  const int64_t widest_mixed = *std::max_element(buckets.mixed.begin(), buckets.mixed.end());
  for (const int64_t tokens : buckets.mixed) {
    if (tokens >= 1 && tokens <= limits.max_prompt_tokens) continue;
    return absl::InvalidArgumentError(absl::StrCat("mixed bucket is ", tokens, "; allowed: 1 to ",
                                                   limits.max_prompt_tokens,
                                                   ", the largest that the engine started with"));
  }
  if (widest_mixed != limits.max_prompt_tokens) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the largest mixed bucket is ", widest_mixed, "; allowed: ", limits.max_prompt_tokens,
        ", so that steps may have as many query tokens as before"));
  }
  if (std::max(widest_decode, widest_mixed) != limits.max_step_tokens) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the largest decode bucket is ", widest_decode, "; allowed: ", limits.max_step_tokens,
        ", so that steps may have as many rows as before"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<StepGraphs::Set>> EngineParts::CaptureBeside(
    const BucketSets& buckets) const {
  auto set = std::make_unique<StepGraphs::Set>();
  REPRISE_ASSIGN_OR_RETURN(set->capture_stream, device.CreateStream());
  REPRISE_ASSIGN_OR_RETURN(set->step_kernels,
                           MakeStepKernels(*set->capture_stream, buckets.decode));
  set->program = std::make_unique<const StepProgram>(ProgramOn(pool, set->step_kernels.get()));
  set->max_rows = options.max_rows;
  REPRISE_RETURN_IF_ERROR(StepGraphs::CaptureSet(*stream, buckets, {}, set.get()));
  return set;
}

StepProgram EngineParts::ProgramOn(const models::KvPool& program_pool,
                                   const StepKernels* step_kernels) const {
  const auto linear = options.linear == LinearPolicy::kPortable
                          ? kernels::LinearCandidate::kPortable
                          : kernels::LinearCandidate::kBest;
  return {{.kernels = *kernel_set,
           .decoder = *decoder,
           .pool = program_pool,
           .state = *state,
           .metadata = metadata,
           .results = results,
           .simulated = simulated.get(),
           .step_kernels = step_kernels},
          metadata_layout,
          linear};
}

}  // namespace reprise::engine
