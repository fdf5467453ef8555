// SPDX-License-Identifier: Apache-2.0
// The matrix-unit linear, compiled for CUDA and for HIP.
#include "kernels/linear/matrix_kernels.h"
