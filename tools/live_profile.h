// SPDX-License-Identifier: Apache-2.0
// `reprise profile --address`: the steps of a profile through a session of a running server, which
// go its whole way: over the wire, through its queue, to its engine and back.
#ifndef REPRISE_TOOLS_LIVE_PROFILE_H_
#define REPRISE_TOOLS_LIVE_PROFILE_H_

#include "absl/status/status.h"
#include "tools/cli.h"
#include "tools/profile_run.h"

namespace reprise::tools {

// Connects, refuses points that the server cannot run, measures, reports. Errors: usage; those of
// the connection; OutOfRange and ResourceExhausted name the point; Unavailable where the server
// goes away; those of RunProfile.
absl::Status ProfileServer(ProfileFlags flags, const Invocation& invocation);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_LIVE_PROFILE_H_
