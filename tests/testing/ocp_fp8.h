// SPDX-License-Identifier: Apache-2.0
// The 8-bit floats by their definition, in double, for tests: the value of a code, and the code of
// a value by looking at all of them. Shares no code with runtime/float_convert.h or
// kernels/device/.
#ifndef REPRISE_TESTS_TESTING_OCP_FP8_H_
#define REPRISE_TESTS_TESTING_OCP_FP8_H_

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace reprise::testing {

// OCP 8-bit Floating Point Specification 1.0, table 1. Codes without the sign, which is 0x80.
struct OcpFp8 {
  const char* name;
  int mantissa_bits, bias;
  uint8_t largest;    // finite code
  bool has_infinity;  // the code after the largest; all beyond are NaN
};
inline constexpr OcpFp8 kOcpE4m3 = {"e4m3", 3, 7, 0x7e, false};
inline constexpr OcpFp8 kOcpE5m2 = {"e5m2", 2, 15, 0x7b, true};
inline constexpr uint8_t kOcpNaN = 0x7f;

inline double ValueOf(const OcpFp8& format, uint8_t code) {
  const int magnitude = code & 0x7f;
  const double sign = (code & 0x80) != 0 ? -1 : 1;
  if (magnitude > format.largest) {
    return format.has_infinity && magnitude == format.largest + 1
               ? sign * std::numeric_limits<double>::infinity()
               : std::numeric_limits<double>::quiet_NaN();
  }
  const int exponent = magnitude >> format.mantissa_bits;
  const int mantissa = magnitude & ((1 << format.mantissa_bits) - 1);
  const int lowest = 1 - format.bias - format.mantissa_bits;
  if (exponent == 0) return sign * std::ldexp(mantissa, lowest);
  return sign * std::ldexp(mantissa + (1 << format.mantissa_bits), lowest + exponent - 1);
}

// The nearest finite code, of two as near the even one: beyond the largest value its code. That of
// NaN.
inline uint8_t NearestCode(const OcpFp8& format, double value) {
  if (std::isnan(value)) return kOcpNaN;
  const double magnitude = std::fabs(value);
  int best = format.largest;
  if (magnitude < ValueOf(format, format.largest)) {
    for (int code = format.largest - 1; code >= 0; --code) {
      const double to_best = std::fabs(magnitude - ValueOf(format, static_cast<uint8_t>(best)));
      const double to_code = std::fabs(magnitude - ValueOf(format, static_cast<uint8_t>(code)));
      if (to_code < to_best || (to_code == to_best && code % 2 == 0)) best = code;
    }
  }
  return static_cast<uint8_t>(best | (std::signbit(value) ? 0x80 : 0));
}

// Around every decision of rounding, both signs: all finite values, the middle between neighbours,
// and the floats next to it on either side; around the largest value and the least; infinities and
// NaNs of either sign.
inline std::vector<float> RoundingDecisions(const OcpFp8& format) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<float> values = {0.0f,
                               kInfinity,
                               std::numeric_limits<float>::quiet_NaN(),
                               std::numeric_limits<float>::signaling_NaN(),
                               std::numeric_limits<float>::denorm_min(),
                               std::numeric_limits<float>::min(),
                               std::numeric_limits<float>::max()};
  for (int code = 0; code <= format.largest; ++code) {
    const double low = ValueOf(format, static_cast<uint8_t>(code));
    // One step beyond the largest, where another code would be.
    const double high = code == format.largest
                            ? 2 * low - ValueOf(format, static_cast<uint8_t>(code - 1))
                            : ValueOf(format, static_cast<uint8_t>(code + 1));
    const auto middle = static_cast<float>((low + high) / 2);
    for (const float value : {static_cast<float>(low), middle})
      for (const float near :
           {value, std::nextafter(value, 0.0f), std::nextafter(value, kInfinity)})
        values.push_back(near);
  }
  const size_t count = values.size();
  for (size_t i = 0; i < count; ++i) values.push_back(-values[i]);
  return values;
}

}  // namespace reprise::testing

#endif  // REPRISE_TESTS_TESTING_OCP_FP8_H_
