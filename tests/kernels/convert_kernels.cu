// SPDX-License-Identifier: Apache-2.0
// The conversion kernels of the tests, compiled for CUDA and for HIP.
#include "tests/kernels/convert_kernels.h"
