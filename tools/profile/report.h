// SPDX-License-Identifier: Apache-2.0
// What a profile says: as tables for people and as JSON for programs. The JSON is described by
// docs/profile.schema.json, every number by docs/profile.md.
#ifndef REPRISE_TOOLS_PROFILE_REPORT_H_
#define REPRISE_TOOLS_PROFILE_REPORT_H_

#include <string>
#include <vector>

#include "engine/decode_engine.h"
#include "kernels/weight_format.h"
#include "nlohmann/json.hpp"
#include "runtime/dtype.h"
#include "tools/profile/bandwidth.h"
#include "tools/profile/products.h"
#include "tools/profile/profiler.h"
#include "tools/profile/report_parts.h"
#include "tools/text_width.h"

namespace reprise::tools {

// What holds for all points.
struct ProfileContext {
  std::string device;                            // in words
  std::string model;                             // its name
  models::ModelSpec spec = {};                   // its sizes, of our own engine
  TelemetrySource telemetry;                     // of clocks and power
  runtime::DType dtype = runtime::DType::kBf16;  // of activations, and of matrices not quantised
  runtime::DType kv_dtype = runtime::DType::kBf16;
  int scale_inputs = kernels::kScaleInputs;  // of quantised matrices, of a scale
  TelemetrySource tracing = {};              // of kernels
  size_t width = kNoWidth;                   // columns that tables should fit into
  std::string server = {};                   // that was measured, in words; "": our own engine
  std::string why_no_stamps = {};            // of a server; "": its steps can be stamped
  std::string profiled_graphs = {};          // of a server, and what they cost it; in words
  std::string why_no_bandwidth = {};         // of a server; "": it was measured
  std::string why_no_products = {};          // likewise
  bool padding = false;                      // ProfileOptions::padding
  std::string why_no_padding = {};           // of a server; "": it was measured where asked for
  Bandwidth bandwidth;
  ProductRate products = {};
  Samples stamp_cost_ns;
  double StampCostNs() const { return stamp_cost_ns.Percentile(50); }
};

// "linear_matrix 4096x4096": a launch as tables name it.
std::string NameOf(const graphs::ProfiledLaunch& launch);

// By op of point.kernels: what was traced of all its launches in a step; begin_ns is not told.
// Zeros where nothing was.
std::vector<LaunchTrace> TracesOfOps(const PointProfile& point);

// Model, device, bandwidth, or what a server does not tell; ends in a blank line.
std::string ProfileHeader(const ProfileContext& context);
// One point's kernels, ends in a blank line.
std::string PointText(const PointProfile& point, const ProfileContext& context);
// "1 row of 128 tokens", "8 rows of 512 tokens and prompts of 1x256 tokens".
std::string PointName(const PointProfile& point);
// Why a point's figures are not to be trusted: its rounds differ by more than kTrustedSpread. ""
// for one whose are.
std::string SpreadWarning(const PointProfile& point);
// Likewise: steps of a server that ran rows of other sessions too. "" where none did.
std::string SharedWarning(const PointProfile& point);
// All points, one line each: latencies, then bytes, products and energy, then what padding costs.
std::string PointsText(const std::vector<PointProfile>& points, const ProfileContext& context);

// "read 4.41 TB/s, copy 4.31 TB/s (best of 8 passes over 4.00 GiB)".
std::string BandwidthText(const Bandwidth& bandwidth);
nlohmann::json BandwidthToJson(const Bandwidth& bandwidth);
// "512 TFLOP/s (best of 8 linear layers of 8,192x8,192 with 4,096 tokens, bf16)".
std::string ProductsText(const ProductRate& products);
nlohmann::json ProductsToJson(const ProductRate& products);
nlohmann::json PointToJson(const PointProfile& point, const ProfileContext& context);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_PROFILE_REPORT_H_
