// SPDX-License-Identifier: Apache-2.0
// Quantiles of Student's t distribution. Pure arithmetic.
#ifndef REPRISE_TOOLS_COMPARE_STUDENT_T_H_
#define REPRISE_TOOLS_COMPARE_STUDENT_T_H_

namespace reprise::tools {

// The t > 0 with P(-t < T < t) = confidence, in (0, 1). degrees, of freedom: above 0, whole or not;
// more than 1,000 count as 1,000, whose quantiles lie within 1 % of the normal distribution's.
// Source: NIST Digital Library of Mathematical Functions, 8.17.4 and 8.17.8, solved by bisection.
double StudentQuantile(double confidence, double degrees);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_COMPARE_STUDENT_T_H_
