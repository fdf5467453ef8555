// SPDX-License-Identifier: Apache-2.0
// Numbers as tests see them: doubles, and the storage formats by their definition (significand,
// exponent range), not by bit tricks. Shares no code with runtime/float_convert.h or
// kernels/device/.
#ifndef REPRISE_TESTS_TESTING_NUMBER_H_
#define REPRISE_TESTS_TESTING_NUMBER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/dtype.h"

namespace reprise::testing {

// The nearest value of the format, ties to even; beyond the largest one infinity or, of 8 bits, the
// largest. NaN stays.
double RoundTo(runtime::DType dtype, double value);

// Half the distance between neighbours in the format at |value|: what one rounding may add.
double HalfUlp(runtime::DType dtype, double value);

// Values rounded to the format, as they lie in memory (little endian).
std::vector<std::byte> Encode(runtime::DType dtype, std::span<const double> values);
// Exact.
std::vector<double> Decode(runtime::DType dtype, std::span<const std::byte> bytes);

// Random test data, the same on every machine.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 1) {}

  uint64_t Bits();
  uint32_t Below(uint32_t n);  // REQUIRES: n > 0
  double Uniform();            // in (0, 1)
  double Normal();             // zero mean, unit variance

  // n normal numbers, rounded to the format: never zeros, every sign and many magnitudes.
  std::vector<double> Tensor(runtime::DType dtype, size_t n, double stddev = 1.0);
  // 0 .. n - 1 in a random order.
  std::vector<uint32_t> Permutation(uint32_t n);

 private:
  uint64_t state_;
};

}  // namespace reprise::testing

#endif  // REPRISE_TESTS_TESTING_NUMBER_H_
