// SPDX-License-Identifier: Apache-2.0
// StepService::Attached: what a StepService has once there is an engine. Part of step_service.cc
// and step_service_methods.cc alone.
#ifndef REPRISE_SERVICE_STEP_SERVICE_ATTACHED_H_
#define REPRISE_SERVICE_STEP_SERVICE_ATTACHED_H_

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "engine/decode_engine.h"
#include "service/identity/callers.h"
#include "service/joint_limits.h"
#include "service/kv/kv_call.h"
#include "service/profile_lease.h"
#include "service/service_host.h"
#include "service/step_pipeline.h"
#include "service/step_service.h"

namespace reprise::service {

struct StepService::Attached {
  Attached(engine::DecodeEngine& engine, KvExchange* exchange, StepService& service,
           std::function<void()> on_fault)
      : pipeline(engine,
                 engine.attention_tree().batch_invariant ? service.joint_
                                                         : JointLimits{.max_requests = 1},
                 std::move(on_fault)),
        profile(engine),
        host{engine,           pipeline,           service.sessions_, service.admission_,
             service.memory_,  service.telemetry_, profile,           service.max_resume_grace_ms_,
             service.recorder_},
        kv{.model = service.model_, .exchange = exchange} {
    service.callers_.ForEachAccount(
        [this](Account& account, const Identity* identity) { SetUp(account, identity); });
  }

  // What an identity gets of the engine from now on.
  void SetUp(Account& account, const Identity* identity) {
    if (identity == nullptr) return;
    const engine::SessionLimits limits = {.max_rows = identity->quota.max_rows,
                                          .max_blocks = identity->quota.max_blocks};
    if (account.engine_account == 0) account.engine_account = host.engine.OpenAccount(limits);
    host.engine.SetAccountLimits(account.engine_account, limits);
    pipeline.SetShare(account.share, identity->weight, identity->priority);
  }

  StepPipeline pipeline;
  ProfileLease profile;
  const ServiceHost host;
  KvService kv;
};

// The names of graphs of both kinds, as Telemetry takes them.
inline std::vector<std::string> NamesOf(const engine::GraphsInfo& graphs) {
  std::vector<std::string> names;
  for (const auto* buckets : {&graphs.decode_buckets, &graphs.mixed_buckets}) {
    for (const graphs::CapturedBucket& captured : *buckets) names.push_back(captured.bucket.name);
  }
  return names;
}

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_STEP_SERVICE_ATTACHED_H_
