// SPDX-License-Identifier: Apache-2.0
// What a decoder must compute, in double and in plain loops, from the tensors of its checkpoint and
// the numbers of its config: embedding, norms before and behind layers, whichever of them the
// checkpoint has, attention over the positions that each layer sees or a state space model in its
// place, gated MLPs, mixtures of them or both, logits. Shares no code with layers and kernels.
// Numbers checked against transformers are parity_test.cc's; this one is for models that no fixture
// has.
#ifndef REPRISE_TESTS_TESTING_DECODER_ORACLE_H_
#define REPRISE_TESTS_TESTING_DECODER_ORACLE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "models/config/model_spec.h"
#include "models/weights/checkpoint.h"

namespace reprise::testing {

class DecoderOracle {
 public:
  // Errors: those of reading the directory; Unimplemented on rope of type llama3 or yarn.
  static absl::StatusOr<std::unique_ptr<DecoderOracle>> Open(const std::string& directory);

  // May be changed: what the same weights compute as another model.
  models::ModelSpec& spec() { return spec_; }
  // [tokens][vocab], of every position.
  std::vector<std::vector<float>> Logits(const std::vector<uint32_t>& tokens) const;

 private:
  using Vector = std::vector<double>;
  using Rows = std::vector<Vector>;  // [positions]

  DecoderOracle() = default;
  Vector Tensor(const std::string& name) const;
  Vector Normed(const Vector& x, const Vector& weight) const;
  // The norm over every head or over all of them where the model has one, then rope.
  void PrepareHeads(const std::string& norm, const models::RopeSpec& rope, uint32_t position,
                    Vector* x) const;
  // weight [out, in] of `name`, with its bias where there is one.
  Rows Linear(const std::string& name, const Rows& x) const;
  // Of each row the elements that lie side by side in the tensors `names`, which may be one tensor
  // named `fused`.
  std::vector<Rows> Split(const std::string& prefix, const std::string& fused,
                          const std::vector<std::string>& names, const std::vector<int64_t>& sizes,
                          const Rows& x) const;
  Rows Attention(int64_t layer, const Rows& x) const;
  // The Mamba-2 layer of that name, position by position.
  Rows Mamba(const std::string& name, const Rows& x) const;
  // The MLP of that name, or of one expert.
  Rows Mlp(const std::string& name, int64_t intermediate, const Rows& x) const;
  // A mixture of them where the layer has experts, and one beside them where it has that.
  Rows MlpOrExperts(int64_t layer, const Rows& x) const;
  // What expert `expert` makes of a row.
  Vector Expert(const std::string& name, size_t expert, const Vector& x) const;
  Vector LimitedExpert(const std::string& name, size_t expert, const Vector& x) const;
  // Element `index` of a tensor in MXFP4.
  double Mxfp4At(const std::string& name, size_t index) const;
  double Activated(double gate) const;
  // x with the norm of that name, or as it is where the checkpoint has none.
  Rows NormedBy(const std::string& name, const Rows& x) const;
  // Adds a branch, through the norm of that name where there is one.
  void AddBranch(const Rows& branch, const std::string& norm, Rows* x) const;

  models::ModelSpec spec_;
  std::unique_ptr<models::Checkpoint> checkpoint_;
};

}  // namespace reprise::testing

#endif  // REPRISE_TESTS_TESTING_DECODER_ORACLE_H_
