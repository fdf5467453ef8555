// SPDX-License-Identifier: Apache-2.0
// Quantities as people write and read them on a command line: sizes, durations, bandwidths, lists
// of numbers. Pure text; knows no flags.
//
// Every Parse* is InvalidArgument with what, got and allowed; none accepts trailing text, and a
// number where a unit is needed is refused rather than guessed.
#ifndef REPRISE_TOOLS_UNITS_H_
#define REPRISE_TOOLS_UNITS_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace reprise::tools {

inline constexpr double kNsToUs = 1e-3;

// "4GiB", "256MiB", "1.5GB", "4096" (bytes), "4096B". KiB, MiB, GiB, TiB are powers of 1024; KB,
// MB, GB, TB of 1000. Letter case is ignored. The result is rounded down to whole bytes.
absl::StatusOr<uint64_t> ParseBytes(std::string_view text);

// "30s", "500ms", "10us", "100ns", "2m", "1h", "1.5s", and "0".
absl::StatusOr<std::chrono::nanoseconds> ParseDuration(std::string_view text);

// Bytes per second, more than 0 and at most 1e18: "4.70TB/s", "900GB/s", "50GiB/s".
absl::StatusOr<double> ParseBandwidth(std::string_view text);

// A whole number in [min, max].
absl::StatusOr<uint64_t> ParseUnsigned(std::string_view text, uint64_t min, uint64_t max);

// A finite decimal number in [min, max].
absl::StatusOr<double> ParseDecimal(std::string_view text, double min, double max);

// "1,2,4": one or more whole numbers in [min, max].
absl::StatusOr<std::vector<uint64_t>> ParseUnsignedList(std::string_view text, uint64_t min,
                                                        uint64_t max);

// "128,1k,8k": as above; "k" multiplies by 1024 and "m" by 1024 * 1024, letter case is ignored.
absl::StatusOr<std::vector<uint64_t>> ParseCountList(std::string_view text, uint64_t min,
                                                     uint64_t max);

std::string FormatBytes(uint64_t bytes);  // "512 B", "1.50 KiB", "4.00 GiB"
std::string FormatDuration(double ns);    // "850 ns", "12.3 us", "4.56 ms", "1.23 s"; three digits
std::string FormatCount(uint64_t count);  // "1,234,567"
std::string FormatPercent(double fraction);            // 0.0341 -> "3.4 %"
std::string FormatBandwidth(double bytes_per_second);  // 4.7e12 -> "4.70 TB/s"
std::string FormatFlops(double flops);                 // 5.5e11 -> "550 GFLOP"; three digits
std::string FormatRate(double per_second);             // "1,234/s", "56.7/s"

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_UNITS_H_
