// SPDX-License-Identifier: Apache-2.0
// A matrix in the packed layout, written from what kernels/packed_layout.h says of it and
// with none of its code.
#ifndef REPRISE_TESTS_TESTING_PACKED_WEIGHT_H_
#define REPRISE_TESTS_TESTING_PACKED_WEIGHT_H_

#include <cstddef>
#include <vector>

namespace reprise::testing {

// Where an element of a matrix with so many columns lies.
inline size_t PackedPlace(size_t row, size_t column, size_t columns) {
  const size_t tiles_across = (columns + 63) / 64, chunk = column % 64 / 8;
  const size_t tile = row / 16 * tiles_across + column / 64;
  return tile * 1024 + row % 16 * 64 + (chunk ^ (row % 8)) * 8 + column % 8;
}

// The same of elements of 8 bits.
inline size_t PackedFp8Place(size_t row, size_t column, size_t columns) {
  const size_t tiles_across = (columns + 63) / 64, chunk = column % 64 / 16;
  const size_t tile = row / 16 * tiles_across + column / 64;
  constexpr size_t kOrder[16] = {0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15};
  return tile * 1024 + row % 16 * 64 + (chunk ^ (row / 2 % 4)) * 16 + kOrder[column % 16];
}
template <typename E>
std::vector<E> PackedFp8(const std::vector<E>& matrix, size_t rows, size_t columns, E filler) {
  std::vector<E> packed((rows + 15) / 16 * ((columns + 63) / 64) * 1024, filler);
  for (size_t row = 0; row < rows; ++row)
    for (size_t column = 0; column < columns; ++column)
      packed[PackedFp8Place(row, column, columns)] = matrix[row * columns + column];
  return packed;
}
// Scales [rows, groups] of such a matrix.
template <typename E>
std::vector<E> PackedFp8Scales(const std::vector<E>& scales, size_t rows, size_t groups, E filler) {
  std::vector<E> packed((rows + 15) / 16 * groups * 16, filler);
  for (size_t row = 0; row < rows; ++row)
    for (size_t group = 0; group < groups; ++group)
      packed[(row / 16 * groups + group) * 16 + row % 16] = scales[row * groups + group];
  return packed;
}

// [rows, columns], filled up with `filler`.
template <typename E>
std::vector<E> Packed(const std::vector<E>& matrix, size_t rows, size_t columns, E filler) {
  std::vector<E> packed((rows + 15) / 16 * ((columns + 63) / 64) * 1024, filler);
  for (size_t row = 0; row < rows; ++row)
    for (size_t column = 0; column < columns; ++column)
      packed[PackedPlace(row, column, columns)] = matrix[row * columns + column];
  return packed;
}

// Eight rows of the first half and then the same eight of the second, in turns.
template <typename E>
std::vector<E> RowsInTurns(const std::vector<E>& matrix, size_t rows, size_t columns) {
  std::vector<E> in_turns;
  for (size_t first = 0; first < rows / 2; first += 8)
    for (const size_t half : {size_t{0}, rows / 2})
      for (size_t row = half + first; row < half + first + 8; ++row)
        in_turns.insert(in_turns.end(), matrix.begin() + static_cast<ptrdiff_t>(row * columns),
                        matrix.begin() + static_cast<ptrdiff_t>((row + 1) * columns));
  return in_turns;
}
// The same, packed.
template <typename E>
std::vector<E> PackedPairs(const std::vector<E>& matrix, size_t rows, size_t columns, E filler) {
  return Packed(RowsInTurns(matrix, rows, columns), rows, columns, filler);
}

}  // namespace reprise::testing

#endif  // REPRISE_TESTS_TESTING_PACKED_WEIGHT_H_
