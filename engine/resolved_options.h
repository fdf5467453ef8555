// SPDX-License-Identifier: Apache-2.0
// What an engine made with given options would be, known before there is one: for sizing what has
// to be there first, such as a server's largest message.
#ifndef REPRISE_ENGINE_RESOLVED_OPTIONS_H_
#define REPRISE_ENGINE_RESOLVED_OPTIONS_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/engine_options.h"
#include "kernels/step/step_limits.h"
#include "models/config/model_spec.h"
#include "runtime/device.h"

namespace reprise::engine {

// The options with every default filled in for a model and a device, and the limits that follow.
struct ResolvedOptions {
  DecodeEngineOptions options = {};
  kernels::StepLimits limits = {};
};

// What ResolveOptions checks of the options alone: each of them, and every bucket, is one that
// there may be. Errors: InvalidArgument with option, got, allowed.
absl::Status CheckOptions(const DecodeEngineOptions& options);

// Of `device` only the kind is asked. Errors: InvalidArgument with option, got, allowed.
absl::StatusOr<ResolvedOptions> ResolveOptions(const DecodeEngineOptions& options,
                                               const models::ModelSpec& spec,
                                               const runtime::DeviceProperties& device);

// What kTuned stands for on a device that is open; any other policy is what it is.
LinearPolicy ResolveLinear(const DecodeEngineOptions& options, const models::ModelSpec& spec,
                           const runtime::DeviceProperties& device);

// Whether a device that is open has kernels for resolved options' linear layers. Errors:
// InvalidArgument with option, got, allowed.
absl::Status CheckLinear(const DecodeEngineOptions& options,
                         const runtime::DeviceProperties& device);

// The model as an engine of resolved options runs it: its rope fits their contexts
// (RopeSpec::FitContexts), and it rounds activations where they say so.
// Errors: InvalidArgument where its checkpoint does not mean that, or no kernel does it.
absl::StatusOr<models::ModelSpec> ModelToRun(const DecodeEngineOptions& options,
                                             const models::ModelSpec& spec,
                                             const runtime::DeviceProperties& device);

}  // namespace reprise::engine

#endif  // REPRISE_ENGINE_RESOLVED_OPTIONS_H_
