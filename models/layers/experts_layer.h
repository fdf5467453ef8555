// SPDX-License-Identifier: Apache-2.0
// ExpertsLayer: a mixture of gated MLPs in place of one: a router chooses some of them for every
// token, and branch = sum over these of share * down(silu(gate(x)) * up(x)), or with the limited
// form of SiLU*up (kernels/silu_mul/silu_mul.h), and biases. Which experts are read is decided on
// the device (kernels/experts/experts.h). An MLP that all tokens go through may stand beside them:
// its branch is added to theirs.
#ifndef REPRISE_MODELS_LAYERS_EXPERTS_LAYER_H_
#define REPRISE_MODELS_LAYERS_EXPERTS_LAYER_H_

#include <memory>
#include <string>
#include <utility>

#include "kernels/experts/expert_weights.h"
#include "kernels/experts/experts_args.h"
#include "kernels/linear/linear_weights.h"
#include "models/config/architectures.h"
#include "models/config/model_spec.h"
#include "models/layers/layer.h"
#include "models/layers/linear.h"
#include "models/layers/mlp_layer.h"

namespace reprise::models {

class ExpertsLayer final : public Layer {
 public:
  // name: prefix of its tensors in the checkpoint, `tensors` what they are called behind it. `spec`
  // must outlive the layer. shared: the MLP beside them, or nullptr.
  ExpertsLayer(const ModelSpec& spec, std::string name, const ExpertTensors& tensors,
               BranchForm form = {}, std::unique_ptr<MlpLayer> shared = nullptr)
      : spec_(spec),
        name_(std::move(name)),
        tensors_(tensors),
        form_(form),
        shared_(std::move(shared)) {}

  void DeclareWeights(WeightPlan& weights) override;
  void DeclareBuffers(const LayerBuffers& buffers) override;
  absl::Status Enqueue(const LayerContext& context) const override;
  void AddBytes(const StepTraffic& traffic, StepBytes* bytes) const override;

  const kernels::LinearWeights& router() const { return router_; }
  const kernels::ExpertWeights& gate_up() const { return gate_up_; }  // rows: gate, then up
  const kernels::ExpertWeights& down() const { return down_; }
  const MlpLayer* shared() const { return shared_.get(); }

 private:
  // Gate and up come as the product that down reads.
  bool HasPairs() const { return gate_up_.first.layout == kernels::WeightLayout::kPackedPairs; }
  absl::Status EnqueueRouter(const LayerContext& context, int32_t tile_rows) const;
  // x: of tokens where it gathers, else of places.
  absl::Status EnqueueLinear(const LayerContext& context, const kernels::ExpertWeights& weights,
                             const void* x, void* out, bool gathers, int32_t tile_rows) const;
  int32_t top_k() const { return static_cast<int32_t>(spec_.experts_per_token); }

  const ModelSpec& spec_;
  const std::string name_;
  const ExpertTensors tensors_;
  const BranchForm form_;
  const std::unique_ptr<MlpLayer> shared_;
  kernels::LinearWeights router_;
  kernels::ExpertWeights gate_up_, down_;
  float* logits_ = nullptr;  // [max_step_tokens, experts]
  kernels::ExpertRoutes routes_;
  uint32_t* arrivals_ = nullptr;
  // Of places, max_step_tokens * experts_per_token:
  void* gate_up_out_ = nullptr;  // [places, 2 * intermediate]
  void* activated_ = nullptr;    // [places, intermediate]
  void* down_out_ = nullptr;     // [places, hidden]
  LinearScratch linear_;
};

}  // namespace reprise::models

#endif  // REPRISE_MODELS_LAYERS_EXPERTS_LAYER_H_
