// SPDX-License-Identifier: Apache-2.0
// The text part of a checkpoint that has a vision part beside it: its tensors under the names that
// a model of text alone has, which are what layers declare (weight_plan.h). Two namings are met:
// that of published checkpoints (transformers 4.50),
//
//   language_model.model.*   language_model.lm_head.*   vision_tower.*   multi_modal_projector.*
//
// and that of the modules of transformers 5,
//
//   model.language_model.*   lm_head.*   model.vision_tower.*   model.multi_modal_projector.*
//
// Which one a checkpoint has is seen by its text part. Of the vision part nothing is read.
#ifndef REPRISE_MODELS_WEIGHTS_TEXT_PART_H_
#define REPRISE_MODELS_WEIGHTS_TEXT_PART_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "models/weights/checkpoint.h"

namespace reprise::models {

struct TensorNaming;

class TextPart {
 public:
  // `checkpoint` must outlive this. Errors: NotFound where it has a text part in neither naming: of
  // both, the tensor that every such checkpoint has.
  static absl::StatusOr<TextPart> Of(const Checkpoint& checkpoint);

  // "model.*" and "lm_head.*", of the text part alone.
  const Checkpoint& tensors() const { return *tensors_; }
  // Of the vision part.
  uint64_t num_vision_tensors() const { return num_vision_tensors_; }
  uint64_t vision_bytes() const { return vision_bytes_; }
  // Of neither part, as the checkpoint names them, sorted.
  const std::vector<std::string>& strangers() const { return strangers_; }

  // An error about tensors() with their names as they are in the files.
  absl::Status InNamesOfFiles(const absl::Status& error) const;

 private:
  explicit TextPart(const TensorNaming& naming) : naming_(&naming) {}

  const TensorNaming* naming_;
  std::unique_ptr<Checkpoint> tensors_;
  uint64_t num_vision_tensors_ = 0, vision_bytes_ = 0;
  std::vector<std::string> strangers_;
};

}  // namespace reprise::models

#endif  // REPRISE_MODELS_WEIGHTS_TEXT_PART_H_
