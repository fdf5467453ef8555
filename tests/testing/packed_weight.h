// SPDX-License-Identifier: Apache-2.0
// A matrix in the packed layout, written from what kernels/packed_layout.h says of it and
// with none of its code.
#ifndef REPRISE_TESTS_TESTING_PACKED_WEIGHT_H_
#define REPRISE_TESTS_TESTING_PACKED_WEIGHT_H_

#include <cstddef>
#include <cstdint>
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
// Where bit b, 7 the sign, of the element at place % 4 of a word lies in it.
inline int PackedFp8Bit(size_t place, int b) {
  const int half = place % 2 == 0 ? 0 : 16;
  if (place % 4 < 2) return half + (b == 7 ? 15 : 4 + b);
  return half + (b == 7 ? 11 : b >= 4 ? 8 + b : b);
}
// The packed words of elements in the order of their places.
inline std::vector<uint8_t> PackedFp8Words(const std::vector<uint8_t>& places) {
  std::vector<uint8_t> packed(places.size());
  for (size_t place = 0; place < places.size(); ++place) {
    for (int b = 0; b < 8; ++b) {
      const auto to = static_cast<size_t>(PackedFp8Bit(place, b));
      const int bit = places[place] >> b & 1;
      packed[place / 4 * 4 + to / 8] |= static_cast<uint8_t>(bit << to % 8);
    }
  }
  return packed;
}
// Of E4M3 bytes.
inline std::vector<uint8_t> PackedFp8(const std::vector<uint8_t>& matrix, size_t rows,
                                      size_t columns, uint8_t filler) {
  std::vector<uint8_t> places((rows + 15) / 16 * ((columns + 63) / 64) * 1024, filler);
  for (size_t row = 0; row < rows; ++row)
    for (size_t column = 0; column < columns; ++column)
      places[PackedFp8Place(row, column, columns)] = matrix[row * columns + column];
  return PackedFp8Words(places);
}
// Of E4M3 bytes of kE4m3Rounded: two neighbours as one element of 16 bits, the first one below.
inline std::vector<uint8_t> PackedRounded(const std::vector<uint8_t>& matrix, size_t rows,
                                          size_t columns, uint8_t filler) {
  const size_t pairs = (columns + 1) / 2;
  std::vector<uint8_t> packed((rows + 15) / 16 * ((pairs + 63) / 64) * 2048, filler);
  for (size_t row = 0; row < rows; ++row)
    for (size_t column = 0; column < columns; ++column)
      packed[PackedPlace(row, column / 2, pairs) * 2 + column % 2] = matrix[row * columns + column];
  return packed;
}
// Where an element of 4 bits lies, two to a byte.
inline size_t PackedInt4Place(size_t row, size_t column, size_t columns) {
  const size_t tiles_across = (columns + 63) / 64;
  const size_t tile = row / 16 * tiles_across + column / 64;
  const size_t lane = row % 8 * 4 + column % 8 / 2, step = column % 64 / 16;
  constexpr size_t kOrder[2][2][2] = {{{0, 4}, {2, 6}}, {{1, 5}, {3, 7}}};  // row, column halves
  const size_t of_word = kOrder[row % 16 / 8][column % 16 / 8][column % 2];
  return tile * 1024 + lane * 32 + step * 8 + of_word;
}
inline size_t RowMajorInt4Place(size_t row, size_t column, size_t columns) {
  const size_t byte = (row * ((columns + 31) / 32) + column / 32) * 16 + column % 16;
  return 2 * byte + (column % 32 >= 16 ? 1 : 0);
}
// Bytes of a matrix of elements from 0 to 15, filled up with `filler`.
inline std::vector<uint8_t> Int4Bytes(const std::vector<uint8_t>& matrix, size_t rows,
                                      size_t columns, bool packed, uint8_t filler) {
  const size_t bytes =
      packed ? (rows + 15) / 16 * ((columns + 63) / 64) * 512 : rows * ((columns + 31) / 32) * 16;
  std::vector<uint8_t> out(bytes, static_cast<uint8_t>(filler * 17));
  for (size_t row = 0; row < rows; ++row) {
    for (size_t column = 0; column < columns; ++column) {
      const size_t place =
          packed ? PackedInt4Place(row, column, columns) : RowMajorInt4Place(row, column, columns);
      uint8_t& byte = out[place / 2];
      const uint8_t element = matrix[row * columns + column];
      byte = static_cast<uint8_t>(place % 2 == 0 ? (byte & 0xf0) | element
                                                 : (byte & 0x0f) | element << 4);
    }
  }
  return out;
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
