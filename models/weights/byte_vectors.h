// SPDX-License-Identifier: Apache-2.0
// Vectors of 16 bytes, for what lays weights out: g++ and clang make one instruction of each
// operation, on any CPU that has such vectors. It is part of the implementation of tile_packing.h
// and int4_tensors.h.
#ifndef REPRISE_MODELS_WEIGHTS_BYTE_VECTORS_H_
#define REPRISE_MODELS_WEIGHTS_BYTE_VECTORS_H_

#include <cstdint>

namespace reprise::models {

inline constexpr int kVectorBytes = 16;
using U8x16 [[gnu::vector_size(kVectorBytes)]] = uint8_t;
using U16x8 [[gnu::vector_size(kVectorBytes)]] = uint16_t;
using U32x4 [[gnu::vector_size(kVectorBytes)]] = uint32_t;
using U64x2 [[gnu::vector_size(kVectorBytes)]] = uint64_t;

// The bytes of both by turns, `first`'s lowest first.
inline U8x16 Interleave(uint64_t first, uint64_t second) {
  return __builtin_shufflevector(reinterpret_cast<U8x16>(U64x2{first, 0}),
                                 reinterpret_cast<U8x16>(U64x2{second, 0}), 0, 16, 1, 17, 2, 18, 3,
                                 19, 4, 20, 5, 21, 6, 22, 7, 23);
}

// Of two vectors, the lower and the upper elements by turns.
inline U16x8 InterleaveLower(U16x8 a, U16x8 b) {
  return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
}
inline U16x8 InterleaveUpper(U16x8 a, U16x8 b) {
  return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
}
inline U32x4 InterleaveLower(U32x4 a, U32x4 b) { return __builtin_shufflevector(a, b, 0, 4, 1, 5); }
inline U32x4 InterleaveUpper(U32x4 a, U32x4 b) { return __builtin_shufflevector(a, b, 2, 6, 3, 7); }
inline U64x2 InterleaveLower(U64x2 a, U64x2 b) { return __builtin_shufflevector(a, b, 0, 2); }
inline U64x2 InterleaveUpper(U64x2 a, U64x2 b) { return __builtin_shufflevector(a, b, 1, 3); }

}  // namespace reprise::models

#endif  // REPRISE_MODELS_WEIGHTS_BYTE_VECTORS_H_
