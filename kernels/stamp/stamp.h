// SPDX-License-Identifier: Apache-2.0
// The stamp: writes down when the kernels before it were done. Measuring work, never inside a
// step's own graph; graphs/profiled_graphs.h puts one behind every launch of a profiled graph.
#ifndef REPRISE_KERNELS_STAMP_STAMP_H_
#define REPRISE_KERNELS_STAMP_STAMP_H_

#include "absl/status/status.h"
#include "kernels/kernel_set.h"
#include "kernels/stamp/stamp_args.h"
#include "runtime/device.h"

namespace reprise::kernels {

// *out = nanoseconds on the device's clock, the clock of StepLedger::device_ns, read once
// everything before it on the stream is done. Grid: one block. Errors: InvalidArgument when `out`
// is null.
absl::Status Stamp(runtime::Stream& stream, const KernelSet& kernels, const StampArgs& args);

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_STAMP_STAMP_H_
