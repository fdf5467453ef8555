// SPDX-License-Identifier: Apache-2.0
// Checkpoint: the tensors of a Hugging Face model directory, memory-mapped read-only from one
// `model.safetensors` or from the shards that `model.safetensors.index.json` names. Holds views,
// copies nothing. Knows no architecture.
#ifndef REPRISE_MODELS_WEIGHTS_CHECKPOINT_H_
#define REPRISE_MODELS_WEIGHTS_CHECKPOINT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "models/weights/safetensors.h"
#include "runtime/dtype.h"

namespace reprise::models {

class Checkpoint {
 public:
  // Errors: NotFound (no weights file, or a shard that the index names is missing: which),
  // InvalidArgument (a file that lies about itself; a tensor named by the index that its shard
  // lacks, or in two shards).
  static absl::StatusOr<std::unique_ptr<Checkpoint>> Open(const std::string& directory);
  // Some tensors of another Checkpoint, which must outlive this one, under names of their own.
  static std::unique_ptr<Checkpoint> Of(
      absl::flat_hash_map<std::string, const TensorView*> tensors);

  // nullptr when there is no such tensor. The view lives as long as the Checkpoint.
  const TensorView* Find(std::string_view name) const;
  // All tensor names, sorted.
  std::vector<std::string> Names() const;

 private:
  Checkpoint() = default;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  absl::flat_hash_map<std::string, const TensorView*> tensors_;
};

}  // namespace reprise::models

#endif  // REPRISE_MODELS_WEIGHTS_CHECKPOINT_H_
