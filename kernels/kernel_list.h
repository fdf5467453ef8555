// SPDX-License-Identifier: Apache-2.0
// The names of all kernels, as lists for the preprocessor: catalog.cc makes the catalogue of them,
// the tests their table of emulated kernels. A kernel that is missing here does not exist.
#ifndef REPRISE_KERNELS_KERNEL_LIST_H_
#define REPRISE_KERNELS_KERNEL_LIST_H_

#define REPRISE_OF_EVERY_DTYPE(X, name) X(name##_f32) X(name##_bf16) X(name##_f16)
#define REPRISE_OF_EVERY_MATRIX_DTYPE(X, name, size) X(name##_bf16_##size) X(name##_f16_##size)

// Block style: on every device.
#define REPRISE_FOR_EACH_BLOCK_KERNEL(X)                \
  X(reprise_fetch)                                      \
  X(reprise_plan)                                       \
  X(reprise_publish)                                    \
  X(reprise_sample_partial)                             \
  X(reprise_sample_final)                               \
  X(reprise_stamp)                                      \
  X(reprise_memory_read)                                \
  X(reprise_memory_copy)                                \
  REPRISE_OF_EVERY_DTYPE(X, reprise_embedding)          \
  REPRISE_OF_EVERY_DTYPE(X, reprise_rms_norm)           \
  REPRISE_OF_EVERY_DTYPE(X, reprise_rope_append)        \
  REPRISE_OF_EVERY_DTYPE(X, reprise_rope_append_normed) \
  REPRISE_OF_EVERY_DTYPE(X, reprise_silu_mul)           \
  REPRISE_OF_EVERY_DTYPE(X, reprise_random_fill)        \
  REPRISE_OF_EVERY_DTYPE(X, reprise_nan_fill)           \
  REPRISE_OF_EVERY_DTYPE(X, reprise_linear_portable)    \
  REPRISE_OF_EVERY_DTYPE(X, reprise_attention_portable)

// Native to the host: streams weights with the CPU's vector units.
#define REPRISE_FOR_EACH_HOST_KERNEL(X) REPRISE_OF_EVERY_DTYPE(X, reprise_linear_native)

// Thread style over matrix units: on every device that has them (kernels/device/traits.h).
#define REPRISE_FOR_EACH_MATRIX_LINEAR(X)                     \
  REPRISE_OF_EVERY_MATRIX_DTYPE(X, reprise_linear_matrix, 16) \
  REPRISE_OF_EVERY_MATRIX_DTYPE(X, reprise_linear_matrix, 32) \
  REPRISE_OF_EVERY_MATRIX_DTYPE(X, reprise_linear_matrix, 64) \
  REPRISE_OF_EVERY_MATRIX_DTYPE(X, reprise_linear_matrix, whole)
#define REPRISE_FOR_EACH_MATRIX_ATTENTION(X)                             \
  REPRISE_OF_EVERY_MATRIX_DTYPE(X, reprise_attention_decode_matrix, 32)  \
  REPRISE_OF_EVERY_MATRIX_DTYPE(X, reprise_attention_decode_matrix, 64)  \
  REPRISE_OF_EVERY_MATRIX_DTYPE(X, reprise_attention_decode_matrix, 128) \
  REPRISE_OF_EVERY_MATRIX_DTYPE(X, reprise_attention_prefill_matrix, 32) \
  REPRISE_OF_EVERY_MATRIX_DTYPE(X, reprise_attention_prefill_matrix, 64) \
  REPRISE_OF_EVERY_MATRIX_DTYPE(X, reprise_attention_prefill_matrix, 128)

// Those that need fragments of 8 columns or more than 64 KB of shared memory: where mma.sync is.
#define REPRISE_FOR_EACH_LARGE_MATRIX_LINEAR(X)              \
  REPRISE_OF_EVERY_MATRIX_DTYPE(X, reprise_linear_matrix, 8) \
  REPRISE_OF_EVERY_MATRIX_DTYPE(X, reprise_linear_matrix, 128)
#define REPRISE_FOR_EACH_LARGE_MATRIX_ATTENTION(X)                       \
  REPRISE_OF_EVERY_MATRIX_DTYPE(X, reprise_attention_decode_matrix, 256) \
  REPRISE_OF_EVERY_MATRIX_DTYPE(X, reprise_attention_prefill_matrix, 256)

#endif  // REPRISE_KERNELS_KERNEL_LIST_H_
