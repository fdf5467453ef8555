// SPDX-License-Identifier: Apache-2.0
// Decoder: a model as the list of its layers, from token ids to logits. Which layers, in which
// order and under which names, is data: the architecture's table (config/architectures.h). It holds
// no memory of its own; weights, KV pool and buffers belong to whoever runs it.
//
//   REPRISE_ASSIGN_OR_RETURN(auto decoder, Decoder::Create(spec));
//   WeightPlan plan = decoder->PlanWeights(dtype);
//   REPRISE_ASSIGN_OR_RETURN(auto weights, ModelWeights::Load(device, plan, *checkpoint));
//   decoder->DeclareBuffers(buffers);
//   REPRISE_RETURN_IF_ERROR(decoder->Enqueue(inputs));
//
// Threads: external ordering; Enqueue is const and may run on several streams.
#ifndef REPRISE_MODELS_DECODER_H_
#define REPRISE_MODELS_DECODER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "models/config/architectures.h"
#include "models/config/model_spec.h"
#include "models/layers/attention_layer.h"
#include "models/layers/layer.h"
#include "models/step_bytes.h"
#include "models/weights/weight_plan.h"
#include "runtime/dtype.h"

namespace reprise::models {

class Decoder {
 public:
  // Errors: those of ValidateModelSpec; InvalidArgument on more parameters than can be addressed.
  static absl::StatusOr<std::unique_ptr<Decoder>> Create(const ModelSpec& spec);
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  const ModelSpec& spec() const { return spec_; }
  std::span<const std::unique_ptr<Layer>> layers() const { return layers_; }

  // The weights of all layers. Forgets the addresses of a plan that was bound before; binding the
  // new one sets them, so that the decoder must outlive the plan.
  // kv_dtype: of the KV cache; unset: dtype. layout: WeightPlan's.
  WeightPlan PlanWeights(runtime::DType dtype,
                         std::optional<runtime::DType> kv_dtype = std::nullopt,
                         kernels::WeightLayout layout = kernels::WeightLayout::kRowMajor);
  // Declares the activations that layers hand each other, and every layer's own buffers. Behind
  // PlanWeights.
  void DeclareBuffers(const LayerBuffers& buffers);
  // Embedding, layers, logits. Launches only. REQUIRES: weights are bound, buffers allocated.
  absl::Status Enqueue(const DecoderInputs& inputs) const;

  // [MaxLogits, vocab] f32, where Enqueue leaves them.
  float* logits() const { return activations_.logits; }
  // Where rows keep state from step to step, beside their KV. REQUIRES: buffers are allocated.
  std::vector<RowStateBuffer> row_state() const;
  // What the plan of a step lists work by: lists for each of ModelSpec::Windows.
  const kernels::AttentionPlanRule& attention_plan() const { return attention_plan_; }
  StepBytes BytesOfStep(runtime::DType dtype, runtime::DType kv_dtype, const StepRowCounts& counts,
                        double attended) const;

 private:
  explicit Decoder(const ModelSpec& spec);
  void AddLayers();
  // The layer of an entry that leaves a branch; nullptr: the block has none there.
  std::unique_ptr<Layer> MakeBranch(const Architecture& architecture, const LayerEntry& entry,
                                    int64_t block, std::string name, const BranchForm& form) const;

  const ModelSpec spec_;
  std::vector<std::unique_ptr<Layer>> layers_;
  kernels::AttentionPlanRule attention_plan_;
  DecoderActivations activations_;
  uint32_t max_draft_tokens_ = 0, max_prompt_logprobs_ = 0;
  int64_t elements_read_ = 0;  // of weights, by every step
  int64_t quantized_bytes_read_ = 0;
};

// Number of parameters of the model (tied embeddings counted once). Wants a spec that
// Decoder::Create accepts.
int64_t NumParameters(const ModelSpec& spec);

// Bytes of one step; see step_bytes.h. attended: tokens, by each query token in the mean. Errors:
// those of Decoder::Create.
absl::StatusOr<StepBytes> BytesOfStep(const ModelSpec& spec, runtime::DType dtype,
                                      runtime::DType kv_dtype, const StepRowCounts& counts,
                                      double attended);

}  // namespace reprise::models

#endif  // REPRISE_MODELS_DECODER_H_
