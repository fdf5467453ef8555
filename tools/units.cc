// SPDX-License-Identifier: Apache-2.0
#include "tools/units.h"

#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <span>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/status_macros.h"

namespace reprise::tools {
namespace {

struct Unit {
  std::string_view name;  // lower case
  double scale;
};

constexpr std::array<Unit, 9> kByteUnits = {{{"b", 1.0},
                                             {"kib", 0x1p10},
                                             {"mib", 0x1p20},
                                             {"gib", 0x1p30},
                                             {"tib", 0x1p40},
                                             {"kb", 1e3},
                                             {"mb", 1e6},
                                             {"gb", 1e9},
                                             {"tb", 1e12}}};

constexpr std::array<Unit, 6> kTimeUnits = {
    {{"ns", 1.0}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}, {"m", 60e9}, {"h", 3600e9}}};

constexpr std::string_view kBytesAllowed =
    "a number and a unit, such as 4096, 256MiB or 4GiB (B, KiB, MiB, GiB, TiB, KB, MB, GB, TB)";
constexpr std::string_view kTimeAllowed =
    "a number and a unit, such as 500ms or 30s (ns, us, ms, s, m, h)";
constexpr std::string_view kBandwidthAllowed = "a size per second, such as 4.70TB/s or 900GB/s";

absl::Status Refuse(std::string_view what, std::string_view got, std::string_view allowed) {
  return absl::InvalidArgumentError(absl::StrCat(std::string(what), ": got \"", std::string(got),
                                                 "\", allowed: ", std::string(allowed)));
}

// Splits "1.5GiB" into a finite number >= 0 and a lower-case unit. False when there is no such
// number.
bool SplitNumber(std::string_view text, double* number, std::string* unit) {
  size_t digits = 0;
  while (digits < text.size() && (absl::ascii_isdigit(text[digits]) || text[digits] == '.'))
    ++digits;
  const char* end = text.data() + digits;
  const auto [stop, error] = std::from_chars(text.data(), end, *number, std::chars_format::fixed);
  if (digits == 0 || error != std::errc() || stop != end) return false;
  *unit = absl::AsciiStrToLower(absl::string_view(end, text.size() - digits));
  return true;
}

const Unit* FindUnit(std::span<const Unit> units, std::string_view name) {
  for (const Unit& unit : units) {
    if (unit.name == name) return &unit;
  }
  return nullptr;
}

}  // namespace

absl::StatusOr<uint64_t> ParseBytes(std::string_view text) {
  double number = 0;
  std::string unit_name;
  if (!SplitNumber(text, &number, &unit_name)) return Refuse("size", text, kBytesAllowed);
  const Unit* unit = FindUnit(kByteUnits, unit_name.empty() ? "b" : unit_name);
  if (unit == nullptr) return Refuse("size", text, kBytesAllowed);
  const double bytes = std::floor(number * unit->scale);
  // Whole numbers above 2^53 are not exact as a double, and no machine has that many bytes.
  if (bytes > 0x1p53) return Refuse("size", text, "at most 8192TiB");
  return static_cast<uint64_t>(bytes);
}

absl::StatusOr<std::chrono::nanoseconds> ParseDuration(std::string_view text) {
  double number = 0;
  std::string unit_name;
  if (!SplitNumber(text, &number, &unit_name)) return Refuse("duration", text, kTimeAllowed);
  if (unit_name.empty() && number == 0) return std::chrono::nanoseconds(0);
  const Unit* unit = FindUnit(kTimeUnits, unit_name);
  if (unit == nullptr) return Refuse("duration", text, kTimeAllowed);
  const double ns = number * unit->scale;
  if (ns > 365.0 * 24 * 3600e9) return Refuse("duration", text, "at most 8760h");
  return std::chrono::nanoseconds(static_cast<int64_t>(ns));
}

absl::StatusOr<double> ParseBandwidth(std::string_view text) {
  double number = 0;
  std::string unit_name;
  if (!SplitNumber(text, &number, &unit_name) || !unit_name.ends_with("/s")) {
    return Refuse("bandwidth", text, kBandwidthAllowed);
  }
  unit_name.resize(unit_name.size() - 2);
  const Unit* unit = FindUnit(kByteUnits, unit_name);
  if (unit == nullptr || number <= 0) return Refuse("bandwidth", text, kBandwidthAllowed);
  const double bytes_per_second = number * unit->scale;
  if (bytes_per_second > 1e18) return Refuse("bandwidth", text, "at most 1000000TB/s");
  return bytes_per_second;
}

absl::StatusOr<uint64_t> ParseUnsigned(std::string_view text, uint64_t min, uint64_t max) {
  uint64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (text.empty() || error != std::errc() || stop != end || value < min || value > max) {
    const std::string allowed = max == std::numeric_limits<uint64_t>::max()
                                    ? absl::StrCat("a whole number of at least ", min)
                                    : absl::StrCat("a whole number from ", min, " to ", max);
    return Refuse("number", text, allowed);
  }
  return value;
}

absl::StatusOr<double> ParseDecimal(std::string_view text, double min, double max) {
  double value = 0;
  const absl::string_view number(text.data(), text.size());
  // SimpleAtod passes over white space.
  if (number != absl::StripAsciiWhitespace(number) || !absl::SimpleAtod(number, &value) ||
      !std::isfinite(value) || value < min || value > max) {
    return Refuse("number", text, absl::StrFormat("a number from %g to %g", min, max));
  }
  return value;
}

absl::StatusOr<std::vector<uint64_t>> ParseUnsignedList(std::string_view text, uint64_t min,
                                                        uint64_t max) {
  std::vector<uint64_t> values;
  size_t begin = 0;
  while (true) {
    const size_t comma = text.find(',', begin);
    const std::string_view item =
        text.substr(begin, comma == text.npos ? text.npos : comma - begin);
    REPRISE_ASSIGN_OR_RETURN(const uint64_t value, ParseUnsigned(item, min, max));
    values.push_back(value);
    if (comma == text.npos) return values;
    begin = comma + 1;
  }
}

absl::StatusOr<std::vector<uint64_t>> ParseCountList(std::string_view text, uint64_t min,
                                                     uint64_t max) {
  std::vector<uint64_t> values;
  for (;;) {
    const size_t comma = text.find(',');
    const std::string_view item = text.substr(0, comma);
    const auto last = item.empty() ? '\0' : static_cast<char>(item.back() | 0x20);
    const int shift = last == 'k' ? 10 : last == 'm' ? 20 : 0;
    const auto number = ParseUnsigned(shift > 0 ? item.substr(0, item.size() - 1) : item, 0,
                                      std::numeric_limits<uint64_t>::max() >> shift);
    if (!number.ok() || *number << shift < min || *number << shift > max) {
      return Refuse("count", item,
                    absl::StrCat("whole numbers from ", min, " to ", max, ", such as 128 or 8k"));
    }
    values.push_back(*number << shift);
    if (comma == text.npos) return values;
    text.remove_prefix(comma + 1);
  }
}

std::string FormatBytes(uint64_t bytes) {
  static constexpr std::array<std::string_view, 4> kNames = {"KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) return absl::StrCat(bytes, " B");
  double value = static_cast<double>(bytes) / 1024;
  size_t name = 0;
  while (value >= 1024 && name + 1 < kNames.size()) {
    value /= 1024;
    ++name;
  }
  return absl::StrFormat("%.2f %s", value, std::string(kNames[name]));
}

std::string FormatDuration(double ns) {
  struct Scale {
    double ns;
    const char* name;
  };
  static constexpr std::array<Scale, 4> kScales = {
      {{1e9, "s"}, {1e6, "ms"}, {1e3, "us"}, {1, "ns"}}};
  for (const Scale& scale : kScales) {
    if (ns >= scale.ns || scale.ns == 1) {
      const double value = ns / scale.ns;
      const int decimals = scale.ns == 1 || value >= 100 ? 0 : value >= 10 ? 1 : 2;
      return absl::StrFormat("%.*f %s", decimals, value, scale.name);
    }
  }
  return "0 ns";
}

std::string FormatCount(uint64_t count) {
  const std::string digits = absl::StrCat(count);
  std::string text;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

std::string FormatPercent(double fraction) { return absl::StrFormat("%.1f %%", fraction * 100); }

std::string FormatBandwidth(double bytes_per_second) {
  if (bytes_per_second >= 1e12) return absl::StrFormat("%.2f TB/s", bytes_per_second / 1e12);
  return absl::StrFormat("%.2f GB/s", bytes_per_second / 1e9);
}

std::string FormatFlops(double flops) {
  constexpr const char* kUnits[] = {"FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP"};
  size_t unit = 0;
  for (; flops >= 999.5 && unit + 1 < std::size(kUnits); ++unit) flops /= 1000;
  const int decimals = unit == 0 || flops >= 99.95 ? 0 : flops >= 9.995 ? 1 : 2;
  return absl::StrFormat("%.*f %s", decimals, flops, kUnits[unit]);
}

std::string FormatRate(double per_second) {
  if (per_second >= 1000) return absl::StrCat(FormatCount(std::llround(per_second)), "/s");
  return absl::StrFormat("%.1f/s", per_second);
}

}  // namespace reprise::tools
