// SPDX-License-Identifier: Apache-2.0
// EmulatedDevice: a GPU that is not there. The host device's memory, streams and graphs, with the
// properties of a GPU of one kind of matrix unit, and the catalogue's GPU kernels under emulation.
// So ops and engines choose what they would choose on that GPU, and run it. A launch that asks for
// more shared memory than a block has there (kernels/device/traits.h) is InvalidArgument; one whose
// static variables no longer fit beside it is the launch's error, as other misuse is.
#ifndef REPRISE_TESTS_EMULATED_EMULATED_DEVICE_H_
#define REPRISE_TESTS_EMULATED_EMULATED_DEVICE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "runtime/device.h"
#include "runtime/host/test_delays.h"
#include "runtime/matrix_unit.h"

namespace reprise::testing {

// "mma", "mfma", "wmma".
const char* NameOf(runtime::MatrixUnit unit);

// options.kind is kHost; host_threads is the number of multiprocessors too.
// Errors: Unimplemented in builds that cannot emulate (ThreadSanitizer); the host device's.
absl::StatusOr<std::unique_ptr<runtime::Device>> CreateEmulatedDevice(
    runtime::MatrixUnit unit, const runtime::DeviceOptions& options,
    const runtime::TestDelays& delays = {});

}  // namespace reprise::testing

#endif  // REPRISE_TESTS_EMULATED_EMULATED_DEVICE_H_
