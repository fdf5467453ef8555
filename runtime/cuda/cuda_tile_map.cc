// SPDX-License-Identifier: Apache-2.0
// The driver encodes maps; it is asked for that function, so that libcuda is not linked.
#include "runtime/cuda/cuda_tile_map.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace reprise::runtime {
namespace {

// The driver wants the first aligned to more than a copy wants its map to be.
static_assert(sizeof(CUtensorMap) == sizeof(TileMap) && alignof(TileMap) == 64);

using Encode = decltype(&cuTensorMapEncodeTiled);

// nullptr with the reason in `error`.
Encode FindEncode(cudaError_t* error) {
  constexpr unsigned kSince = 12000;  // the CUDA version that brought it
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  *error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, kSince,
                                            cudaEnableDefault, &found);
  // The runtime keeps a thread's last error, which an embedder must not find.
  if (*error != cudaSuccess) cudaGetLastError();
  return *error == cudaSuccess && found == cudaDriverEntryPointSuccess
             ? reinterpret_cast<Encode>(function)
             : nullptr;
}

}  // namespace

absl::Status EncodeCudaTileMap(const TiledMatrix& matrix, TileMap* map) {
  cudaError_t error = cudaSuccess;
  const Encode encode = FindEncode(&error);
  if (encode == nullptr)
    return absl::UnavailableError(absl::StrCat(
        "cuTensorMapEncodeTiled: ",
        error != cudaSuccess ? cudaGetErrorString(error) : "the driver has no such function"));
  cuuint64_t sizes[kMaxTileRank] = {}, strides[kMaxTileRank] = {};
  cuuint32_t tile[kMaxTileRank] = {}, steps[kMaxTileRank] = {1, 1, 1, 1};
  std::copy_n(matrix.sizes, matrix.rank, sizes);
  std::copy_n(matrix.strides + 1, matrix.rank - 1, strides);
  std::copy_n(matrix.tile, matrix.rank, tile);
  // Of 16 bits whatever they mean: nothing is computed.
  CUtensorMap encoded;
  const CUresult result = encode(
      &encoded, CU_TENSOR_MAP_DATA_TYPE_UINT16, static_cast<cuuint32_t>(matrix.rank),
      const_cast<void*>(matrix.data), sizes, strides, tile, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
      matrix.swizzled ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_NONE,
      CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS)
    return absl::InternalError(absl::StrCat("cuTensorMapEncodeTiled: error ", result));
  std::memcpy(map->bytes, &encoded, sizeof(encoded));
  return absl::OkStatus();
}

}  // namespace reprise::runtime
