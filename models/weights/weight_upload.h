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
#include "runtime/device.h"
#include "runtime/dtype.h"

namespace reprise::models {

struct WeightUpload {
  runtime::DType source_dtype;
  std::span<const std::byte> source;  // any alignment
  std::byte* destination;             // on the device
  runtime::DType dtype;               // there
};

// A matrix that lies packed on the device. Tiles hold rows of several parts.
struct PackedUpload {
  // Some of its rows, below those of the part before.
  struct Part {
    runtime::DType source_dtype;
    std::span<const std::byte> source;  // whole rows, any alignment
  };
  kernels::PackedLayout matrix;
  kernels::WeightLayout layout;  // packed, or packed pairs
  std::vector<Part> parts;       // together all rows
  std::byte* destination;        // on the device; matrix.Elements(), filled up with zeros
  runtime::DType dtype;          // there: of 16 bits, or kE4m3
};

struct UploadOptions {
  int max_threads = 4;                   // more do not help: storage and the bus are the limits
  size_t stage_bytes = size_t{4} << 20;  // one staging buffer, in converted bytes; two per thread
  // Called with each part of a source that has been read and is not read again, from any thread.
  std::function<void(std::span<const std::byte>)> release = {};
};

// Returns when every byte is on the device, or after the first error, when nothing is in flight any
// more. `progress(done_bytes, total_bytes)`, in converted bytes, is called on this thread; the last
// call of a run without errors has done == total. Errors: the device's.
absl::Status UploadWeights(runtime::Device& device, std::span<const WeightUpload> uploads,
                           std::span<const PackedUpload> packed,
                           const std::function<void(size_t, size_t)>& progress,
                           const UploadOptions& options = {});

}  // namespace reprise::models

#endif  // REPRISE_MODELS_WEIGHTS_WEIGHT_UPLOAD_H_
