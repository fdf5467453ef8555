// SPDX-License-Identifier: Apache-2.0
// What attention is to compute of a case, in double precision.
#ifndef REPRISE_TESTS_KERNELS_ATTENTION_ORACLE_H_
#define REPRISE_TESTS_KERNELS_ATTENTION_ORACLE_H_

#include <vector>

#include "runtime/dtype.h"
#include "tests/kernels/attention_batch.h"
#include "tests/testing/cases/attention_cases.h"
#include "tests/testing/oracle.h"

namespace reprise::testing {

// A slope for every head, falling by powers of two as models have them, and one that rises with the
// distance.
std::vector<float> SlopesOf(const kernels::AttentionCase& c);

// A sink for every head: near the scores, and so far above and below them that one of the two sums
// vanishes, or would overflow.
std::vector<float> SinksOf(const kernels::AttentionCase& c);

// What a stored element of K or V is worth, by KV head: all different, far from 1 and from each
// other. Of other caches than those of 8 bits: 1.
std::vector<float> ScalesOf(const kernels::AttentionCase& c, runtime::DType kv_dtype, int part);

// The output of all query tokens of a row. probabilities: the format in which they multiply V.
Expected OracleRow(const kernels::AttentionCase& c, const RowData& row, runtime::DType kv_dtype,
                   runtime::DType probabilities);

}  // namespace reprise::testing

#endif  // REPRISE_TESTS_KERNELS_ATTENTION_ORACLE_H_
