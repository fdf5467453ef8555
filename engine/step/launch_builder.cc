// SPDX-License-Identifier: Apache-2.0
#include "engine/step/launch_builder.h"

#include <algorithm>
#include <new>
#include <span>
#include <utility>
#include <vector>

#include "runtime/status_macros.h"

namespace reprise::engine {
namespace {

using Clock = LaunchBuilder::Clock;

uint64_t Nanoseconds(Clock::duration d) {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(d).count());
}

}  // namespace

void LaunchBuilder::Begin(const Place& place) {
  place_ = place;
  totals_ = {};
  copies_.clear();
  forks_.clear();
  returns_.clear();
  parts_.validator.NoteEnded(place.ended);
}

bool LaunchBuilder::MayJoin(const StepRequest& request) const {
  return request.mode == ExecutionMode::kReplay && mode_ == ExecutionMode::kReplay &&
         request.num_steps == num_steps_ &&
         std::ranges::none_of(place_.step->requests, [&](const InFlightRequest& other) {
           return other.session == request.session;
         });
}

absl::StatusOr<Session*> LaunchBuilder::Stage(const StepRequest& request) {
  StepValidator& validator = parts_.validator;
  REPRISE_ASSIGN_OR_RETURN(Session * session, parts_.sessions.Find(request.session));
  REPRISE_RETURN_IF_ERROR(session->CheckOrder(request));
  REPRISE_RETURN_IF_ERROR(place_.full);
  REPRISE_RETURN_IF_ERROR(validator.Validate(request, session->rows, session->limits.max_rows));
  absl::Status room = session->CheckAccountRows(validator.staged().request->add.size(),
                                                validator.staged().drop_slots.size());
  if (!room.ok()) {
    validator.Abandon();
    return room;
  }
  return session;
}

absl::StatusOr<Session*> LaunchBuilder::Fit(const StepRequest& request, LaunchTotals* totals) {
  REPRISE_ASSIGN_OR_RETURN(Session * session, Stage(request));
  *totals = totals_.With(parts_.validator.staged());
  if (!empty() && !totals->IsWithin(parts_.limits)) {
    parts_.validator.Abandon();
    return nullptr;
  }
  const absl::StatusOr<StepGraphs::Target> first = parts_.graphs.Pick(*totals, place_.form);
  // No more rows than the first replay has: its graphs have room for them.
  const absl::StatusOr<StepGraphs::Target> repeat =
      totals->num_replays > 1 ? parts_.graphs.PickSingle(totals->num_going_on) : first;
  if (!first.ok() || !repeat.ok()) {
    parts_.validator.Abandon();
    if (!empty()) return nullptr;
    return first.ok() ? repeat.status() : first.status();
  }
  first_ = *first;
  repeat_ = *repeat;
  return session;
}

void LaunchBuilder::Add(JointRequest& joint, Clock::time_point entered) {
  const StepRequest& request = *joint.request;
  joint.outcome = JointRequest::Outcome::kLeft;
  joint.status = absl::OkStatus();
  if (!empty() && !MayJoin(request)) return;
  LaunchTotals totals;
  absl::StatusOr<Session*> session = nullptr;
  try {
    session = Fit(request, &totals);
  } catch (const std::bad_alloc&) {
    parts_.validator.Abandon();
    if (empty()) throw;
    return;  // those before it have taken effect, and are launched
  }
  if (!session.ok()) {
    joint.outcome = JointRequest::Outcome::kRefused;
    joint.status = session.status();
    return;
  }
  if (*session == nullptr) return;
  const Clock::time_point validated = Clock::now();
  if (empty()) BeginStep(request);
  totals_ = totals;
  Write(request, **session);
  place_.step->requests.back().ledger = {.validate_ns = Nanoseconds(validated - entered),
                                         .ring_ns = Nanoseconds(Clock::now() - validated)};
  joint.outcome = JointRequest::Outcome::kTaken;
}

void LaunchBuilder::BeginStep(const StepRequest& request) {
  mode_ = request.mode;
  num_steps_ = request.num_steps;
  InFlightStep& step = *place_.step;
  step.ticket = place_.ticket;
  step.first_replay = place_.first_replay;
  step.requests.clear();
  step.first.rows.clear();
  step.repeat.rows.clear();
  parts_.writer.Begin(place_.first_replay, place_.ring_entry);
}

void LaunchBuilder::Write(const StepRequest& request, Session& session) {
  const StagedStep& staged = parts_.validator.staged();
  for (const BlockCopy& copy : staged.request->copies)
    copies_.push_back({.from = copy.source, .to = copy.destination});
  const uint32_t rows_before = session.rows.count;
  parts_.writer.Add(*staged.request, staged, session.rows);
  session.NoteRows(rows_before);
  NoteStates(*staged.request, session);
  InFlightStep& step = *place_.step;
  std::vector<InFlightRow>& first = step.first.rows;
  std::vector<InFlightRow>& repeat = step.repeat.rows;
  InFlightRequest in_flight{.session = request.session,
                            .sequence = request.sequence,
                            .num_replays = staged.num_replays,
                            .first = {.begin = static_cast<uint32_t>(first.size())},
                            .repeat = {.begin = static_cast<uint32_t>(repeat.size())}};
  for (size_t i = 0; i < staged.runs.size(); ++i) {
    const StagedRun& run = staged.runs[i];
    const uint32_t slot = parts_.writer.ran_slots()[i];
    RowState& state = parts_.rows.state(slot);
    state.last_step = place_.ticket;
    state.swapped_state.reset();
    const uint64_t generation = state.generation;
    first.push_back({.row = run.row,
                     .slot = slot,
                     .generation = generation,
                     .num_tokens = run.num_tokens,
                     .num_drafts = static_cast<uint32_t>(run.drafts.size()),
                     .num_prompt_logprobs = run.num_prompt_logprobs()});
    if (staged.num_replays > 1 && run.goes_on())
      repeat.push_back({.row = run.row, .slot = slot, .generation = generation, .num_tokens = 1});
    if (!run.stopped) NoteWritten(slot, run.context_before, run.num_tokens + run.num_repeats);
  }
  in_flight.first.count = static_cast<uint32_t>(first.size()) - in_flight.first.begin;
  in_flight.repeat.count = static_cast<uint32_t>(repeat.size()) - in_flight.repeat.begin;
  in_flight.refused_rows = std::move(parts_.validator.refused_rows());
  step.requests.push_back(std::move(in_flight));
  step.num_replays = totals_.num_replays;
  step.first.report = {.rows = totals_.num_rows,
                       .tokens = totals_.num_tokens,
                       .attention_tree = place_.attention_tree};
  step.repeat.report = {.rows = totals_.num_going_on,
                        .tokens = totals_.num_going_on,
                        .attention_tree = place_.attention_tree};
}

void LaunchBuilder::NoteStates(const StepRequest& request, Session& session) {
  for (const RowAdd& add : request.add) {
    if (!add.fork_of.has_value() && !add.swapped_state.has_value()) continue;
    const uint32_t slot = parts_.rows.Find(request.session, add.row);
    if (add.fork_of.has_value()) {
      forks_.push_back({.from = parts_.rows.Find(request.session, *add.fork_of), .to = slot});
      continue;
    }
    returns_.push_back({.place = *add.swapped_state, .slot = slot});
    parts_.states.Free({&*add.swapped_state, 1});
    --session.num_swapped;
  }
}

void LaunchBuilder::NoteWritten(uint32_t slot, uint32_t begin, uint32_t count) {
  const uint32_t block_size = parts_.limits.block_size;
  const std::span<const uint32_t> table = parts_.rows.table(slot);
  if (count == 1)
    return parts_.ledger.NoteWritten(table[begin / block_size], begin % block_size + 1);
  const uint32_t end = begin + count;
  for (uint32_t i = begin / block_size; i * block_size < end; ++i)
    parts_.ledger.NoteWritten(table[i], std::min(block_size, end - i * block_size));
}

}  // namespace reprise::engine
