// SPDX-License-Identifier: Apache-2.0
// What `reprise profile --address` asks a server for so that steps can be stamped, and run without
// padding (StepService.StartProfile), and what the answer is to the profiler and to the report.
#ifndef REPRISE_TOOLS_SERVER_STAMPS_H_
#define REPRISE_TOOLS_SERVER_STAMPS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"
#include "reprise/v1/step_service.pb.h"
#include "tools/profile/profiler.h"
#include "tools/profile/report.h"
#include "tools/profile/server_profiler.h"

namespace reprise::tools {

// Graphs of all points, with options.padding also of exactly the size of those that no bucket has,
// and bandwidth over so many bytes.
v1::StartProfileRequest StartRequestOf(const ProfileOptions& options, uint64_t bandwidth_bytes,
                                       const v1::DescribeResponse& server);
// Over which it is measured where nothing else is asked for: 1 GiB on a GPU, 64 MiB on the host. A
// server has little memory to spare, and its clients wait meanwhile.
uint64_t ServerBandwidthBytes(const v1::Device& device);
// "" where the server captured all graphs without padding that it was asked for.
std::string WhyNoPadding(const v1::StartProfileRequest& request,
                         const v1::StartProfileResponse& wire);
// Whether a profile that was refused so goes on without stamps: it was no matter of the connection,
// nor of what was asked for.
bool GoesOnWithoutStamps(const absl::Status& refusal);

// read_telemetry is left empty. Errors: InvalidArgument where the answer is of a model or of
// numbers that this program does not know.
absl::StatusOr<ServerStamps> StampsFromWire(const v1::StartProfileResponse& wire,
                                            const v1::Model& model);
// What the report sets kernels beside.
void StartToContext(const v1::StartProfileResponse& wire, const ServerStamps& stamps,
                    ProfileContext* context);
// {"graphs", "capture_ms", "device_bytes"}.
nlohmann::json ProfiledGraphsToJson(const v1::StartProfileResponse& wire);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_SERVER_STAMPS_H_
