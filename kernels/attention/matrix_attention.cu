// SPDX-License-Identifier: Apache-2.0
// The matrix-unit attention kernels, compiled for CUDA and for HIP.
#include "kernels/attention/matrix_kernels.h"
