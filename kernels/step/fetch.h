// SPDX-License-Identifier: Apache-2.0
// Fetch, the first node of a step: the metadata ring's entry comes to the device, and updates of
// block tables and of what rows keep for sampling go to the resident rows. One launch per replay.
#ifndef REPRISE_KERNELS_STEP_FETCH_H_
#define REPRISE_KERNELS_STEP_FETCH_H_

#include "absl/status/status.h"
#include "kernels/kernel_set.h"
#include "kernels/step/fetch_args.h"
#include "runtime/device.h"

namespace reprise::kernels {

// Reads entry (progress->requests % depth) of the ring, from its part `repeat` on where progress
// says that the request's first replay is over.
// Errors: InvalidArgument on a ring without entries.
absl::Status Fetch(runtime::Stream& stream, const KernelSet& kernels, const FetchArgs& args);

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_STEP_FETCH_H_
