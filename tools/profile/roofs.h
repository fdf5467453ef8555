// SPDX-License-Identifier: Apache-2.0
// What the kernels of a profile have to move and to multiply, and how near they come to the rates
// that were measured: of reading (bandwidth.h) and of products (products.h). docs/profile.md says
// what is counted.
#ifndef REPRISE_TOOLS_PROFILE_ROOFS_H_
#define REPRISE_TOOLS_PROFILE_ROOFS_H_

#include <optional>

#include "tools/profile/kernel_times.h"
#include "tools/profile/op_bytes.h"
#include "tools/profile/profiler.h"
#include "tools/profile/report.h"

namespace reprise::tools {

// What all launches of an op in a step have to read and to write: of linear layers and experts
// their matrices, of a step's only attention kernel KV, of others what BytesByModel says. Unset of
// kernels that have none, and of several of attention, whose shares are not told.
std::optional<OpBytes> BytesOf(const OpTime& op, const PointProfile& point,
                               const ProfileContext& context);
// The floating-point operations of their products, a multiplication and an addition two: of linear
// layers and experts, and of a step's only attention kernel. Unset of others.
std::optional<double> Flops(const OpTime& op, const PointProfile& point,
                            const ProfileContext& context);
// Of all ops that have any.
double StepFlops(const PointProfile& point, const ProfileContext& context);
// How near an op's net time comes to what was measured: what it moves to the rate of reading, or
// its products to theirs, what is nearer.
std::optional<double> ShareOfRoof(const OpTime& op, const PointProfile& point,
                                  const ProfileContext& context);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_PROFILE_ROOFS_H_
