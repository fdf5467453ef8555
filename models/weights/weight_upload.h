// SPDX-License-Identifier: Apache-2.0
// UploadWeights: many tensors from mapped files to one device buffer, converted on the way by a few
// threads through small pinned buffers, so that host memory stays small however large the model is.
// It knows neither models nor names. It is part of model_weights.cc's implementation.
#ifndef REPRISE_MODELS_WEIGHTS_WEIGHT_UPLOAD_H_
#define REPRISE_MODELS_WEIGHTS_WEIGHT_UPLOAD_H_

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "kernels/packed_layout.h"
#include "models/config/weight_quantization.h"
#include "models/weights/parallel.h"
#include "models/weights/published_matrix.h"
#include "runtime/device.h"
#include "runtime/dtype.h"

namespace reprise::models {

struct WeightUpload {
  runtime::DType source_dtype;
  std::span<const std::byte> source;  // any alignment
  std::byte* destination;             // on the device
  runtime::DType dtype;               // there
};

// A matrix that lies packed on the device, where tiles hold rows of several parts, or whose parts
// are not stored row by row.
struct MatrixUpload {
  kernels::PackedLayout matrix;
  kernels::WeightLayout layout;
  std::vector<PublishedMatrix> parts;  // rows, each below those of the part before; together all
  std::byte* destination;        // on the device; packed: matrix.Elements(), filled up with zeros
  runtime::DType dtype;          // there; packed: of 16 bits, or kE4m3
  kernels::WeightFormat format;  // there, which says how kE4m3 lies
};

// A matrix of 4-bit elements, in any layout.
struct Int4Upload {
  // Some of its outputs, below those of the part before.
  struct Part {
    std::span<const std::byte> words;  // all of a tensor, any alignment
    int64_t outputs;
    HeadOrder heads = {};
    bool alternates = false;  // as of PublishedMatrix

    bool is_published() const { return heads.is_published() && !alternates; }
    int64_t Published(int64_t output) const {
      return alternates ? AlternateOutput(output, outputs) : heads.Published(output);
    }
  };
  kernels::PackedLayout matrix;
  kernels::WeightLayout layout;
  WeightStorage storage;                 // of the parts
  std::vector<Part> parts;               // together all outputs
  std::byte* destination;                // on the device; filled up with zeros
  std::span<const uint32_t> order = {};  // Int4Inputs::order, of every part; outlives the upload
};

struct UploadOptions {
  int max_threads = kMaxLoadThreads;     // of as many cores, which convert and pack
  size_t stage_bytes = size_t{2} << 20;  // one staging buffer, in converted bytes; two per thread
  // Called with each source, or part of a matrix, once all of it has been read, from any thread.
  // Not of 4-bit elements and of matrices that are not plain, which may share tensors.
  std::function<void(std::span<const std::byte>)> release = {};
};

// Returns when every byte is on the device, or after the first error, when nothing is in flight any
// more. `progress(done_bytes, total_bytes)`, in converted bytes, is called on this thread; the last
// call of a run without errors has done == total. Errors: the device's; a NaN among packed elements
// of E4M3: those of kE4m3 cannot hold it (kernels/packed_layout.h), and what is refused does not
// depend on whether activations are rounded.
absl::Status UploadWeights(runtime::Device& device, std::span<const WeightUpload> uploads,
                           std::span<const MatrixUpload> matrices, std::span<const Int4Upload> int4,
                           const std::function<void(size_t, size_t)>& progress,
                           const UploadOptions& options = {});

}  // namespace reprise::models

#endif  // REPRISE_MODELS_WEIGHTS_WEIGHT_UPLOAD_H_
