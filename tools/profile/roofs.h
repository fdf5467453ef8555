// SPDX-License-Identifier: Apache-2.0
// What the kernels of a profile have to read and to multiply, and how near they come to the rates
// that were measured: of reading (bandwidth.h) and of products (products.h). docs/profile.md says
// what is counted.
#ifndef REPRISE_TOOLS_PROFILE_ROOFS_H_
#define REPRISE_TOOLS_PROFILE_ROOFS_H_

#include <optional>

#include "tools/profile/kernel_times.h"
#include "tools/profile/profiler.h"
#include "tools/profile/report.h"

namespace reprise::tools {

// What all launches of an op in a step have to read, and the floating-point operations of their
// products, a multiplication and an addition two: of linear layers and experts, and of a step's
// only attention kernel. Unset of others.
std::optional<double> ReadBytes(const OpTime& op, const PointProfile& point,
                                const ProfileContext& context);
std::optional<double> Flops(const OpTime& op, const PointProfile& point,
                            const ProfileContext& context);
// Of all ops that have any.
double StepFlops(const PointProfile& point, const ProfileContext& context);
// How near an op's net time comes to what was measured: of reading or of products, what is nearer.
std::optional<double> ShareOfRoof(const OpTime& op, const PointProfile& point,
                                  const ProfileContext& context);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_PROFILE_ROOFS_H_
