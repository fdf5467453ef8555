// SPDX-License-Identifier: Apache-2.0
// What a recording says of the engine that answered it: the options that build another like it, and
// whether an engine or a server is such a one.
#ifndef REPRISE_TOOLS_REPLAY_RECORDED_ENGINE_H_
#define REPRISE_TOOLS_REPLAY_RECORDED_ENGINE_H_

#include <string>

#include "absl/status/status.h"
#include "reprise/v1/record.pb.h"
#include "tools/engine_flags.h"
#include "tools/replay/replay_needs.h"

namespace reprise::tools {

// Fills in what was not asked for: the model where `flags` name none, all settings of the engine,
// and a pool and swap space for a session of such needs. The device is the caller's. Errors, with
// what, got and allowed: FailedPrecondition (a model or config.json other than the recorded one),
// InvalidArgument (settings that this program does not know); those of reading config.json.
absl::Status ApplyRecordedSettings(const v1::RecordHeader& header, const ReplayNeeds& needs,
                                   EngineFlags* flags);

// Whether `got` answers to the bit as `recorded` did, its device and its attention tree aside, and
// takes all that it took. Errors: FailedPrecondition names the first setting: what, got, allowed.
absl::Status CheckAnswersAlike(const v1::DescribeResponse& recorded,
                               const v1::DescribeResponse& got);

// What may make bits differ although nothing is wrong: another device, another attention tree, an
// engine that is not batch invariant; "" where there is nothing of the kind.
std::string DoubtsText(const v1::DescribeResponse& recorded, const v1::DescribeResponse& got);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_REPLAY_RECORDED_ENGINE_H_
