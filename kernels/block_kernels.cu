// SPDX-License-Identifier: Apache-2.0
// The block-style kernels, compiled for CUDA.
#include "kernels/block_kernels.h"
