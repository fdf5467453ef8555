// SPDX-License-Identifier: Apache-2.0
// MeasuredRun: what a file of `reprise profile` or `reprise bench` says, as far as two of them can
// be compared: samples by round, and what the run was of.
#ifndef REPRISE_TOOLS_COMPARE_MEASURED_RUN_H_
#define REPRISE_TOOLS_COMPARE_MEASURED_RUN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"
#include "tools/compare/difference.h"

namespace reprise::tools {

// One quantity of a point, in microseconds.
struct MeasuredSeries {
  std::string name;     // "replay", "device"; a candidate's
  bool guards = false;  // a regression of it fails the comparison
  RoundSamples us;
};

// All launches of a kernel with one shape, in microseconds of a step.
struct MeasuredKernel {
  std::string name;    // of its op and shape: "linear_matrix 4096x4096"
  std::string kernel;  // in the catalogue
  uint32_t calls = 0;
  double net_us = 0;
  RoundSamples stamped_us;
};

struct MeasuredPoint {
  std::string name;  // "32@512"; a benchmark's cell
  std::vector<MeasuredSeries> series;
  std::vector<MeasuredKernel> kernels;
  std::optional<double> sm_clock_mhz;
};

// Something that should be the same in both files.
struct MeasuredFact {
  std::string name;  // "device", "settings.warmup"
  std::string value;
};

struct MeasuredRun {
  std::string file;
  std::string schema;                       // "reprise.profile/1"
  std::string device, date, commit, error;  // "" where the file does not say
  // Whether samples are single steps; else they are the medians of rounds.
  bool has_samples = false;
  std::vector<MeasuredFact> facts;
  std::optional<double> read_bytes_per_s;
  std::vector<MeasuredPoint> points;
};

// `text`: of a file that `reprise profile`, `bench step`, `bench linear` or `bench attention`
// wrote; `file` begins the messages. Errors: InvalidArgument names the field, what stands there and
// what is allowed.
absl::StatusOr<MeasuredRun> ParseMeasuredRun(const std::string& file, std::string_view text);
// Errors: as above; those of reading the file.
absl::StatusOr<MeasuredRun> ReadMeasuredRun(const std::string& file);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_COMPARE_MEASURED_RUN_H_
