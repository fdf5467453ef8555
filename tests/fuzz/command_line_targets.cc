// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/command_line_targets.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "runtime/check.h"
#include "tools/address.h"
#include "tools/bench/bench_flags.h"
#include "tools/bench/linear_shapes.h"
#include "tools/bench/name_list.h"
#include "tools/bench/step_bench.h"
#include "tools/device_flags.h"
#include "tools/engine_flags.h"
#include "tools/profile/assertion.h"
#include "tools/profile/step_points.h"
#include "tools/sched/ngram_guess.h"
#include "tools/sched/workload.h"
#include "tools/units.h"

namespace reprise::fuzz {
namespace {

// ---- numbers ----

bool TakeBytesOption(std::string_view text) {
  const auto size = tools::ParseBytes(text);
  const auto pool = tools::ParsePoolBytes(text);
  REPRISE_CHECK(!size.ok() || *size <= uint64_t{1} << 53);
  REPRISE_CHECK(!pool.ok() || (size.ok() && *pool == *size && *pool > 0));
  return size.ok();
}

bool TakeDuration(std::string_view text) {
  const auto duration = tools::ParseDuration(text);
  REPRISE_CHECK(!duration.ok() ||
                (duration->count() >= 0 && *duration <= std::chrono::hours(365 * 24)));
  return duration.ok();
}

bool TakeBandwidth(std::string_view text) {
  const auto bandwidth = tools::ParseBandwidth(text);
  REPRISE_CHECK(!bandwidth.ok() || (std::isfinite(*bandwidth) && *bandwidth > 0));
  return bandwidth.ok();
}

bool TakeDecimal(std::string_view text) {
  constexpr double kMin = -1e6, kMax = 1e6;
  const auto value = tools::ParseDecimal(text, kMin, kMax);
  REPRISE_CHECK(!value.ok() || (*value >= kMin && *value <= kMax));
  return value.ok();
}

// ---- lists ----

template <typename Values>
bool AreWithin(const Values& values, uint64_t min, uint64_t max) {
  return !values.empty() && std::all_of(values.begin(), values.end(), [=](const auto value) {
    return value >= min && value <= max;
  });
}

bool TakeLists(std::string_view text) {
  constexpr uint64_t kMost = 1u << 20;
  const auto numbers = tools::ParseUnsignedList(text, 1, kMost);
  const auto counts = tools::ParseCountList(text, 1, kMost);
  const auto any = tools::ParseCountList(text, 0, ~uint64_t{0});
  REPRISE_CHECK(!numbers.ok() || AreWithin(*numbers, 1, kMost));
  REPRISE_CHECK(!counts.ok() || AreWithin(*counts, 1, kMost));
  // What has no suffix is read by both alike, and a wider range takes no less.
  REPRISE_CHECK(!numbers.ok() || (counts.ok() && *counts == *numbers));
  REPRISE_CHECK(!counts.ok() || (any.ok() && *any == *counts));
  const auto one = tools::ParseCount(text, 1, kMost);
  REPRISE_CHECK(one.ok() == (counts.ok() && counts->size() == 1));
  return numbers.ok() || any.ok();
}

bool TakeNames(std::string_view text) {
  const std::vector<std::string> known = {"uniform", "one-long", "mixed"};
  const auto chosen = tools::ParseNameList("batch", text, known);
  if (!chosen.ok()) return false;
  REPRISE_CHECK(!chosen->empty() && chosen->size() <= known.size());
  for (const size_t index : *chosen) REPRISE_CHECK(index < known.size());
  return true;
}

bool TakePromptLengths(std::string_view text) {
  const auto lengths = tools::ParsePromptLengths(text);
  if (!lengths.ok()) return false;
  REPRISE_CHECK(lengths->fixed.empty() ? lengths->min >= 1 && lengths->min <= lengths->max
                                       : AreWithin(lengths->fixed, 1, ~uint32_t{0}));
  return true;
}

// ---- what is measured ----

// Written and read again.
bool IsKept(const tools::StepPoint& point) {
  const auto again = tools::ParseStepPoint(tools::NameOf(point));
  return again.ok() && *again == point && point.num_rows() >= 1;
}

bool TakePoints(std::string_view text) {
  const auto point = tools::ParseStepPoint(text);
  const auto cells = tools::ParseStepCells(text);
  REPRISE_CHECK(!point.ok() || IsKept(*point));
  if (!cells.ok()) return point.ok();
  for (const tools::StepPoint& cell : *cells)
    REPRISE_CHECK(cell.is_decode() && cell.context >= 2 && IsKept(cell));
  return true;
}

bool TakeShapes(std::string_view text) {
  const auto shapes = tools::ParseLinearShapes(text);
  if (!shapes.ok()) return false;
  for (const tools::LinearShape& shape : *shapes) {
    const auto again = tools::ParseLinearShapes(shape.SizeText());
    REPRISE_CHECK(again.ok() && again->size() == 1 && (*again)[0].name == shape.name);
    REPRISE_CHECK(shape.WeightBytes() > 0);
  }
  return true;
}

bool TakeAssertion(std::string_view text) {
  const auto assertion = tools::ParseAssertion(text);
  if (!assertion.ok()) return false;
  REPRISE_CHECK(!assertion->subject.empty() && assertion->bound_ns >= 0);
  REPRISE_CHECK(!assertion->point || IsKept(*assertion->point));
  const auto again = tools::ParseAssertion(assertion->text);
  REPRISE_CHECK(again.ok() && again->subject == assertion->subject &&
                again->statistic == assertion->statistic && again->point == assertion->point);
  return true;
}

// ---- the rest ----

bool TakeDraft(std::string_view text) {
  const auto draft = tools::ParseDraft(text);
  if (!draft.ok()) return false;
  const auto again = tools::ParseDraft(tools::NameOf(*draft));
  REPRISE_CHECK(again.ok() && again->length == draft->length &&
                again->max_tokens == draft->max_tokens && draft->length > 0);
  return true;
}

bool TakeAddress(std::string_view text) {
  const auto address = tools::ParseAddress(text);
  REPRISE_CHECK(!address.ok() || *address == text);
  return address.ok();
}

bool TakeChoices(std::string_view text) {
  const bool device = tools::ParseDeviceChoice(text, /*offers_simulation=*/true).ok();
  const bool types = tools::ParseDType(text).ok() || tools::ParseKvDType(text).ok();
  const bool policies = tools::ParseLinear(text).ok() || tools::ParseDecode(text).ok();
  return tools::ParsePreset(text).ok() || tools::ParseSamplingKind(text).ok() || device || types ||
         policies;
}

constexpr bool (*kKinds[])(std::string_view) = {
    TakeBytesOption, TakeDuration,      TakeBandwidth, TakeDecimal, TakeLists,
    TakeNames,       TakePoints,        TakeShapes,    TakeDraft,   TakeAddress,
    TakeChoices,     TakePromptLengths, TakeAssertion};

}  // namespace

bool TakeCommandLine(std::string_view bytes) {
  bool taken = false;
  for (const auto take : kKinds) taken |= take(bytes);
  return taken;
}

std::vector<std::string> CommandLineSeeds() {
  return {"64MiB",
          "1.5GB",
          "250ms",
          "4.70TB/s",
          "0.95",
          "-1e3",
          "1,2,4,8",
          "128,1k,8k",
          "one-long,mixed",
          "1@512,2@512,1@16k",
          "8@64..512",
          "8@512+2x1k+1x64",
          "28672x4096,4096x14336",
          "ngram:3,4",
          "64..8192",
          "127.0.0.1:50061",
          "[::1]:50061",
          "unix:/run/s",
          "cuda:1",
          "fp8_e4m3",
          "row-major",
          "top-p",
          "p99(publish,32@512)<=1.5ms",
          "gap<10us"};
}

}  // namespace reprise::fuzz
