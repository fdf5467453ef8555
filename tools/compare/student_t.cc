// SPDX-License-Identifier: Apache-2.0
#include "tools/compare/student_t.h"

#include <algorithm>
#include <cmath>

namespace reprise::tools {
namespace {

constexpr double kMostDegrees = 1000;  // so that terms do not overflow

// The regularised incomplete beta function I_x(a, b), x in (0, 1).
double IncompleteBeta(double x, double a, double b) {
  if (x > 0.5) return 1 - IncompleteBeta(1 - x, b, a);
  double sum = 1, term = 1;
  for (double n = 0; term > 1e-15 * sum; ++n) {
    term *= x * (a + b + n) / (a + 1 + n);
    sum += term;
  }
  const double log_beta = std::lgamma(a) + std::lgamma(b) - std::lgamma(a + b);
  return sum * std::exp(a * std::log(x) + b * std::log1p(-x) - log_beta) / a;
}

}  // namespace

double StudentQuantile(double confidence, double degrees) {
  // P(|T| >= t) = I_x(degrees / 2, 1 / 2) where x = degrees / (degrees + t^2).
  degrees = std::min(degrees, kMostDegrees);
  double low = 0, high = 1;
  for (int i = 0; i < 100; ++i) {
    const double x = (low + high) / 2;
    (IncompleteBeta(x, degrees / 2, 0.5) < 1 - confidence ? low : high) = x;
  }
  return std::sqrt(degrees * (1 - high) / high);
}

}  // namespace reprise::tools
