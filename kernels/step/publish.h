// SPDX-License-Identifier: Apache-2.0
// Publish, the last node of a step: the rows advance, those that are done end, and results go to
// the result ring. One launch per replay.
#ifndef REPRISE_KERNELS_STEP_PUBLISH_H_
#define REPRISE_KERNELS_STEP_PUBLISH_H_

#include "absl/status/status.h"
#include "kernels/kernel_set.h"
#include "kernels/step/publish_args.h"
#include "runtime/device.h"

namespace reprise::kernels {

// One block. Results become visible to the host before the ring entry's sequence word does. Errors:
// InvalidArgument on a ring without entries.
absl::Status Publish(runtime::Stream& stream, const KernelSet& kernels, const PublishArgs& args);

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_STEP_PUBLISH_H_
