// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/targets.h"

#include "tests/fuzz/command_line_targets.h"
#include "tests/fuzz/conversations.h"
#include "tests/fuzz/model_targets.h"
#include "tests/fuzz/recording_targets.h"
#include "tests/fuzz/service_targets.h"
#include "tests/fuzz/tool_targets.h"
#include "tests/fuzz/wire_targets.h"

namespace reprise::fuzz {
namespace {

constexpr Target kTargets[] = {{"step", TakeStep, StepSeeds},
                               {"stream", TakeStreamMessage, StreamSeeds},
                               {"unary", TakeUnaryMessage, UnarySeeds},
                               {"kv_contents", TakeKvContents, KvSeeds},
                               {"conversations", TakeConversation, ConversationSeeds},
                               {"frames", TakeFrames, FrameSeeds},
                               {"traceparent", TakeTraceparent, TraceparentSeeds},
                               {"identities", TakeIdentities, IdentitySeeds},
                               {"listen_address", TakeListenAddress, ListenSeeds},
                               {"pem", TakePem, PemSeeds},
                               {"arrivals", TakeArrivals, ArrivalSeeds},
                               {"serve_config", TakeServeConfig, ServeConfigSeeds},
                               {"prompts", TakePrompts, PromptSeeds},
                               {"batches", TakeBatches, BatchSeeds},
                               {"export_window", TakeExportWindow, ExportWindowSeeds},
                               {"ticket", TakeTicket, TicketSeeds},
                               {"command_line", TakeCommandLine, CommandLineSeeds},
                               {"config", TakeConfig, ConfigSeeds},
                               {"safetensors", TakeSafetensors, SafetensorsSeeds},
                               {"shard_index", TakeShardIndex, ShardIndexSeeds},
                               {"int4_layer", TakeInt4Layer, Int4LayerSeeds},
                               {"reference_logits", TakeReferenceLogits, ReferenceLogitsSeeds},
                               {"recording", TakeRecording, RecordingSeeds},
                               {"record", TakeRecord, RecordSeeds},
                               {"attention_tree", TakeAttentionTree, AttentionTreeSeeds},
                               {"linear_table", TakeLinearTable, LinearTableSeeds},
                               {"profile", TakeProfile, ProfileSeeds},
                               {"simulated_device", TakeSimulatedDevice, ProfileSeeds},
                               {"graph", TakeGraph, GraphSeeds},
                               {"journal", TakeJournal, JournalSeeds},
                               {"measured_run", TakeMeasuredRun, MeasuredRunSeeds},
                               {"metrics", TakeMetrics, MetricsSeeds}};

}  // namespace

std::span<const Target> Targets() { return kTargets; }

}  // namespace reprise::fuzz
