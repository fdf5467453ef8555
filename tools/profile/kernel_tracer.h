// SPDX-License-Identifier: Apache-2.0
// KernelTracer: when each kernel of this process began and ended on the device, as the platform's
// own tracing says it: of NVIDIA GPUs CUPTI, a library of the CUDA toolkit that is opened at run
// time. Kernels of a graph are traced one by one, and run as they do untraced, those that overlap
// too; launching them takes longer.
//
//   auto tracer = KernelTracer::Open(device.properties());
//   (*tracer)->Start();
//   ...                              // launches
//   auto kernels = (*tracer)->Stop();
//
// One tracer of a process at a time. Threads: one at a time.
#ifndef REPRISE_TOOLS_PROFILE_KERNEL_TRACER_H_
#define REPRISE_TOOLS_PROFILE_KERNEL_TRACER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/device.h"

namespace reprise::tools {

struct TracedKernel {
  std::string name;       // in device code
  uint64_t launch = 0;    // of the call that launched it: all kernels of one graph launch have one
  uint64_t begin_ns = 0;  // of its first block; on a clock that all kernels have in common
  uint64_t end_ns = 0;    // of its last block
};

// Where CUPTI may be; the first that can be opened is used.
std::vector<std::string> CuptiLibraries();

class KernelTracer {
 public:
  virtual ~KernelTracer() = default;
  // "CUPTI 130001": the library's name and the version of its interface.
  virtual std::string source() const = 0;
  // Kernels that are launched from now on are traced. Errors: Unavailable, with what the library
  // says.
  virtual absl::Status Start() = 0;
  // No more. The kernels that were launched since, which must be done, in the order in which they
  // began. Errors: Unavailable, with what the library says; DataLoss where it dropped records, or
  // has no times.
  virtual absl::StatusOr<std::vector<TracedKernel>> Stop() = 0;

  // Errors: Unimplemented on a device of another platform; Unavailable when no library of that
  // name can be opened, or its version is not known; FailedPrecondition beside another tracer.
  static absl::StatusOr<std::unique_ptr<KernelTracer>> Open(
      const runtime::DeviceProperties& device,
      const std::vector<std::string>& libraries = CuptiLibraries());
};

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_PROFILE_KERNEL_TRACER_H_
