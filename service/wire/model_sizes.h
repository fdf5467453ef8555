// SPDX-License-Identifier: Apache-2.0
// The sizes of a model that bytes and operations of its kernels are counted from, to
// reprise.v1.ModelSizes and back: what a client counts by is what the server would. Threads: free
// functions without state.
#ifndef REPRISE_SERVICE_WIRE_MODEL_SIZES_H_
#define REPRISE_SERVICE_WIRE_MODEL_SIZES_H_

#include "absl/status/statusor.h"
#include "models/config/model_spec.h"
#include "reprise/v1/step_service.pb.h"

namespace reprise::service {

void ModelSizesToWire(const models::ModelSpec& spec, v1::ModelSizes* wire);
// A spec that has these sizes and is no model to run: of all else (names of tensors, constants of
// rope, norms and multipliers) it has what does not change a size. Errors: InvalidArgument for
// sizes of no model that this program knows (ValidateModelSpec).
absl::StatusOr<models::ModelSpec> ModelSizesFromWire(const v1::ModelSizes& wire);

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_WIRE_MODEL_SIZES_H_
