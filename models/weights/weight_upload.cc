// SPDX-License-Identifier: Apache-2.0
// Parallel, staged upload; see weight_upload.h. Each thread takes the next chunk from a shared
// list, converts it into one of its two staging buffers while the other one's copy is still
// running, and enqueues its copy. The calling thread reports progress.
#include "models/weights/weight_upload.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "models/weights/int4_tensors.h"
#include "models/weights/tile_packing.h"
#include "runtime/float_convert.h"
#include "runtime/memory/buffer.h"
#include "runtime/status_macros.h"

namespace reprise::models {
namespace {

// What goes through a staging buffer at once: neighbours on the device.
struct Chunk {
  std::byte* destination;
  size_t count;  // elements there
  runtime::DType dtype;
  // Of a matrix as it is:
  runtime::DType source_dtype;
  const std::byte* source;
  // Of a MatrixUpload: some of its tiles of outputs, or row-major as many outputs. Of one of 4
  // bits, its tiles; row-major, its outputs.
  const MatrixUpload* matrix = nullptr;
  const Int4Upload* int4 = nullptr;
  int64_t first_tile = 0;
  size_t upload = 0;  // of all, the one that it is a part of

  size_t bytes() const { return count * runtime::SizeOf(dtype); }
};

void CutPlain(const WeightUpload& upload, size_t stage_bytes, std::vector<Chunk>& chunks) {
  const size_t of_source = runtime::SizeOf(upload.source_dtype);
  const size_t count = upload.source.size() / of_source, element = runtime::SizeOf(upload.dtype);
  const size_t max_count = std::max<size_t>(1, stage_bytes / element);
  for (size_t first = 0; first < count; first += max_count)
    chunks.push_back({.destination = upload.destination + first * element,
                      .count = std::min(max_count, count - first),
                      .dtype = upload.dtype,
                      .source_dtype = upload.source_dtype,
                      .source = upload.source.data() + first * of_source});
}

// Elements of a tile of outputs, of all inputs.
int64_t TileElements(const MatrixUpload& upload) {
  return kernels::IsPacked(upload.layout)
             ? upload.matrix.Elements(upload.format) / upload.matrix.OutputTiles()
             : upload.matrix.in_features * kernels::kPackedTileOutputs;
}

void CutMatrix(const MatrixUpload& upload, size_t stage_bytes, std::vector<Chunk>& chunks) {
  const size_t element = runtime::SizeOf(upload.dtype);
  const size_t max_count = std::max<size_t>(1, stage_bytes / element);
  const int64_t of_tile = TileElements(upload);
  const int64_t all = kernels::IsPacked(upload.layout)
                          ? upload.matrix.Elements(upload.format)
                          : upload.matrix.out_features * upload.matrix.in_features;
  const int64_t step = std::max<int64_t>(1, static_cast<int64_t>(max_count) / of_tile);
  for (int64_t first = 0; first < upload.matrix.OutputTiles(); first += step) {
    const int64_t tiles = std::min(step, upload.matrix.OutputTiles() - first);
    chunks.push_back(
        {.destination = upload.destination + static_cast<size_t>(first * of_tile) * element,
         .count = static_cast<size_t>(std::min(tiles * of_tile, all - first * of_tile)),
         .dtype = upload.dtype,
         .source_dtype = upload.dtype,
         .source = nullptr,
         .matrix = &upload,
         .first_tile = first});
  }
}

// Outputs of 4 bits that are read together, since they may share words.
constexpr int64_t kEight = 8;

// Bytes of a tile of outputs of 4 bits; row-major, of an output.
int64_t Int4StepBytes(const Int4Upload& upload) {
  return kernels::IsPacked(upload.layout)
             ? upload.matrix.InputTiles() * kernels::kPackedTileElements / 2
             : upload.matrix.Int4RowElements() / 2;
}

// Outputs that are read together, some inputs at a time: those whose published words share a line
// of memory. Of words of one output there are none, and many rows at once would be too many lines.
int64_t BlockOutputs(WeightStorage storage) {
  return storage == WeightStorage::kPackedInt4 ? kernels::kPackedTileOutputs : 128;
}

void CutInt4(const Int4Upload& upload, size_t stage_bytes, std::vector<Chunk>& chunks) {
  const int64_t bytes = Int4StepBytes(upload);
  const int64_t all =
      kernels::IsPacked(upload.layout) ? upload.matrix.OutputTiles() : upload.matrix.out_features;
  // Whole blocks where a stage has room for one; eight outputs are read at a time.
  const bool packed = kernels::IsPacked(upload.layout);
  const int64_t block = BlockOutputs(upload.storage) / (packed ? kernels::kPackedTileOutputs : 1);
  const int64_t room = static_cast<int64_t>(stage_bytes) / bytes;
  const int64_t least = room >= block ? block : packed ? 1 : kEight;
  const int64_t step = std::max(least, room / least * least);
  for (int64_t first = 0; first < all; first += step)
    chunks.push_back({.destination = upload.destination + first * bytes,
                      .count = static_cast<size_t>(std::min(step, all - first) * bytes),
                      .dtype = runtime::DType::kE4m3,
                      .source_dtype = runtime::DType::kE4m3,
                      .source = nullptr,
                      .int4 = &upload,
                      .first_tile = first});
}

// All chunks, and what may be released once all those of an upload were read: one by one, each
// would stop the other threads, which have the same pages mapped.
struct ChunkList {
  std::vector<Chunk> chunks;
  std::vector<std::vector<std::span<const std::byte>>> read;  // by upload
};

ChunkList CutIntoChunks(std::span<const WeightUpload> uploads,
                        std::span<const MatrixUpload> matrices, std::span<const Int4Upload> int4,
                        size_t stage_bytes) {
  ChunkList list;
  size_t begin = 0;  // of the upload
  const auto end_upload = [&](std::vector<std::span<const std::byte>> read) {
    for (; begin < list.chunks.size(); ++begin) list.chunks[begin].upload = list.read.size();
    list.read.push_back(std::move(read));
  };
  for (const WeightUpload& upload : uploads) {
    CutPlain(upload, stage_bytes, list.chunks);
    end_upload({upload.source});
  }
  for (const MatrixUpload& upload : matrices) {
    CutMatrix(upload, stage_bytes, list.chunks);
    std::vector<std::span<const std::byte>> read;
    for (const PublishedMatrix& part : upload.parts)
      if (part.is_plain()) read.push_back(part.source);
    end_upload(std::move(read));
  }
  for (const Int4Upload& upload : int4) {
    CutInt4(upload, stage_bytes, list.chunks);
    end_upload({});
  }
  return list;
}

// Rows of a matrix, as they are counted.
struct RowRange {
  int64_t begin, end;
};
// Those that lie in the tiles [begin, end) of outputs.
std::vector<RowRange> RowsOfTiles(const MatrixUpload& upload, int64_t begin, int64_t end) {
  const int64_t rows = upload.matrix.out_features;
  const RowRange all{begin * kernels::kPackedTileOutputs,
                     std::min(end * kernels::kPackedTileOutputs, rows)};
  if (upload.layout != kernels::WeightLayout::kPackedPairs) return {all};
  // Half a tile is of either half.
  return {{all.begin / 2, all.end / 2}, {(rows + all.begin) / 2, (rows + all.end) / 2}};
}

// E4M3 has one NaN, with either sign, and packed words are read as if it were a number.
absl::Status CheckNumbers(const PublishedMatrix& part, int64_t row, const std::byte* elements,
                          int64_t count) {
  const auto is_nan = [](std::byte e) { return (e & std::byte{0x7f}) == std::byte{0x7f}; };
  // Without an early end, which would cost more than it saves; as bytes, of which a vector has
  // most.
  uint8_t any = 0;
  for (int64_t i = 0; i < count; ++i) any |= static_cast<uint8_t>(is_nan(elements[i]));
  if (any == 0) return absl::OkStatus();
  const std::byte* const nan = std::find_if(elements, elements + count, is_nan);
  return absl::InvalidArgumentError(
      absl::StrCat(part.name, "[", row, ", ", nan - elements, "] is NaN; allowed: numbers"));
}

// Puts output `row` of a chunk's matrix where it lies.
void PlaceRow(const Chunk& chunk, int64_t row, const std::byte* elements, std::byte* stage) {
  const MatrixUpload& upload = *chunk.matrix;
  const kernels::PackedLayout& matrix = upload.matrix;
  const size_t element = runtime::SizeOf(upload.dtype);
  const auto place = [&](int64_t tile) {
    return stage + static_cast<size_t>((tile - chunk.first_tile) * TileElements(upload)) * element;
  };
  constexpr int64_t kTileOutputs = kernels::kPackedTileOutputs;
  if (!kernels::IsPacked(upload.layout)) {
    const size_t bytes = static_cast<size_t>(matrix.in_features) * element;
    std::memcpy(place(row / kTileOutputs) + static_cast<size_t>(row % kTileOutputs) * bytes,
                elements, bytes);
    return;
  }
  const bool pairs = upload.layout == kernels::WeightLayout::kPackedPairs;
  const int64_t output = pairs ? kernels::PairedOutput(row, matrix.out_features) : row;
  const auto pack = upload.format == kernels::WeightFormat::kE4m3          ? &PackOutputE4m3
                    : upload.format == kernels::WeightFormat::kE4m3Rounded ? &PackOutputRounded
                                                                           : &PackOutput16;
  pack(matrix.in_features, static_cast<int>(output % kTileOutputs), elements,
       place(output / kTileOutputs));
}

// Converts the rows of a chunk of a matrix into their places.
absl::Status PlaceRows(const Chunk& chunk, PublishedMatrix::Scratch& scratch, std::byte* stage) {
  const MatrixUpload& upload = *chunk.matrix;
  const kernels::PackedLayout& matrix = upload.matrix;
  const bool packed_e4m3 =
      upload.dtype == runtime::DType::kE4m3 && kernels::IsPacked(upload.layout);
  const int64_t of_tile = TileElements(upload);
  const int64_t tiles = (static_cast<int64_t>(chunk.count) + of_tile - 1) / of_tile;
  const int64_t end = chunk.first_tile + tiles;
  // Outputs that fill the last tile up.
  if (end * kernels::kPackedTileOutputs > matrix.out_features) std::memset(stage, 0, chunk.bytes());
  for (const RowRange& range : RowsOfTiles(upload, chunk.first_tile, end)) {
    int64_t before = 0;  // rows of the parts before
    for (const PublishedMatrix& part : upload.parts) {
      const int64_t rows = part.Outputs(matrix.in_features);
      const int64_t first = std::max(range.begin, before);
      const int64_t last = std::min(range.end, before + rows);
      for (int64_t r = first; r < last; ++r) {
        const std::byte* const row =
            part.ReadOutput(r - before, matrix.in_features, upload.dtype, scratch);
        if (packed_e4m3)
          REPRISE_RETURN_IF_ERROR(
              CheckNumbers(part, part.Published(r - before, rows), row, matrix.in_features));
        PlaceRow(chunk, r, row, stage);
      }
      before += rows;
    }
  }
  return absl::OkStatus();
}

// `count` inputs from `input` on of eight outputs from `first` on, zeros of those behind the last
// one, as [8, kPackedTileInputs].
void ReadEightOutputs(const Int4Upload& upload, int64_t first, int64_t input, int64_t count,
                      uint8_t* to) {
  constexpr int64_t kStride = kernels::kPackedTileInputs;
  int64_t before = 0, output = first;  // outputs of the parts before
  for (const Int4Upload::Part& part : upload.parts) {
    const Int4Inputs inputs = {.words = part.words,
                               .outputs = part.outputs,
                               .inputs = upload.matrix.in_features,
                               .first = input,
                               .count = count,
                               .order = upload.order};
    const int64_t end = std::min(first + kEight, before + part.outputs);
    const int64_t of_part = output - before;
    if (end - output == kEight && of_part % kEight == 0 && part.is_published())
      return ReadInt4Outputs(upload.storage, inputs, of_part, to, kStride);
    for (; output < end; ++output, to += kStride)
      ReadInt4Output(upload.storage, inputs, part.Published(output - before), to);
    before += part.outputs;
  }
  for (; output < first + kEight; ++output, to += kStride) std::fill_n(to, count, uint8_t{0});
}

// Puts 4-bit elements of a chunk where they lie.
void PlaceInt4Tiles(const Chunk& chunk, std::byte* stage) {
  const Int4Upload& upload = *chunk.int4;
  const kernels::PackedLayout& matrix = upload.matrix;
  constexpr int64_t kInputs = kernels::kPackedTileInputs, kOutputs = kernels::kPackedTileOutputs;
  constexpr int64_t kTileBytes = kernels::kPackedTileElements / 2;
  const bool pairs = upload.layout == kernels::WeightLayout::kPackedPairs;
  const int64_t bytes = Int4StepBytes(upload), tiles = static_cast<int64_t>(chunk.count) / bytes;
  const auto pack = [&](int64_t i, int64_t input_tile) {
    const int64_t input = input_tile * kInputs, tile = chunk.first_tile + i;
    const int64_t count = std::min(kInputs, matrix.in_features - input);
    const int64_t first = tile * (pairs ? kEight : kOutputs);
    const int64_t second = first + (pairs ? matrix.out_features / 2 : kEight);
    Int4Tile elements = {};
    ReadEightOutputs(upload, first, input, count, elements[0]);
    ReadEightOutputs(upload, second, input, count, elements[kEight]);
    PackInt4Tile(elements, stage + i * bytes + input_tile * kTileBytes);
  };
  const int64_t block = BlockOutputs(upload.storage) / kOutputs;
  for (int64_t begin = 0; begin < tiles; begin += block)
    for (int64_t input_tile = 0; input_tile < matrix.InputTiles(); ++input_tile)
      for (int64_t i = begin; i < std::min(begin + block, tiles); ++i) pack(i, input_tile);
}

// The same, row-major.
void PlaceInt4Rows(const Chunk& chunk, std::byte* stage) {
  const Int4Upload& upload = *chunk.int4;
  const int64_t inputs = upload.matrix.in_features;
  constexpr int64_t kInputs = kernels::kPackedTileInputs, kRun = kernels::kInt4Run;
  const int64_t bytes = Int4StepBytes(upload), rows = static_cast<int64_t>(chunk.count) / bytes;
  const auto place = [&](int64_t first, int64_t input) {
    Int4Tile elements = {};
    ReadEightOutputs(upload, chunk.first_tile + first, input, std::min(kInputs, inputs - input),
                     elements[0]);
    for (int64_t row = first; row < std::min(first + kEight, rows); ++row) {
      std::byte* to = stage + row * bytes + input / 2;
      for (int64_t run = 0; run < kInputs && input + run < inputs; run += kRun)
        for (int64_t i = run; i < run + kRun / 2; ++i)
          *to++ = static_cast<std::byte>(elements[row - first][i] |
                                         elements[row - first][i + kRun / 2] << 4);
    }
  };
  const int64_t block = BlockOutputs(upload.storage);
  for (int64_t begin = 0; begin < rows; begin += block)
    for (int64_t input = 0; input < inputs; input += kInputs)
      for (int64_t row = begin; row < std::min(begin + block, rows); row += kEight)
        place(row, input);
}

class Uploader {
 public:
  Uploader(runtime::Device& device, ChunkList list, const UploadOptions& options)
      : device_(device), list_(std::move(list)), options_(options), left_(list_.read.size()) {
    for (const Chunk& chunk : list_.chunks) {
      ++left_[chunk.upload];
      total_bytes_ += chunk.bytes();
      stage_bytes_ = std::max(stage_bytes_, chunk.bytes());
    }
  }

  absl::Status Run(size_t num_threads, const std::function<void(size_t, size_t)>& progress) {
    num_threads = std::min(num_threads, list_.chunks.size());
    // Ahead of the threads: they would wait for each other in the driver.
    std::vector<std::unique_ptr<runtime::Stream>> streams(num_threads);
    for (std::unique_ptr<runtime::Stream>& stream : streams) {
      REPRISE_ASSIGN_OR_RETURN(stream, device_.CreateStream());
    }
    REPRISE_ASSIGN_OR_RETURN(
        const runtime::MappedBuffer stages,
        runtime::MappedBuffer::Create(device_, num_threads * kStages * stage_bytes_));
    std::vector<std::thread> threads;
    {
      std::lock_guard lock(mutex_);
      running_ = num_threads;
    }
    for (size_t i = 0; i < num_threads; ++i) {
      try {
        threads.emplace_back(
            [this, stream = streams[i].get(), own = stages.host() + i * kStages * stage_bytes_] {
              Finish(Work(*stream, own));
            });
      } catch (const std::system_error& error) {
        // Those that did start do the work of all; none at all is an error.
        for (size_t missing = i; missing < num_threads; ++missing) {
          Finish(i > 0 ? absl::OkStatus()
                       : absl::ResourceExhaustedError(absl::StrCat("thread: ", error.what())));
        }
        break;
      }
    }
    Report(progress);
    for (std::thread& thread : threads) thread.join();
    std::lock_guard lock(mutex_);
    return status_;
  }

 private:
  static constexpr size_t kStages = 2;  // of a thread

  // One thread's share.
  absl::Status Work(runtime::Stream& stream, std::byte* stages) {
    const absl::Status copied = CopyChunks(stream, stages);
    // The buffers must not go while a copy still reads them.
    const absl::Status drained = stream.Synchronize();
    return copied.ok() ? drained : copied;
  }

  absl::Status CopyChunks(runtime::Stream& stream, std::byte* stages) {
    size_t in_flight_bytes = 0;
    PublishedMatrix::Scratch scratch;
    for (size_t turn = 0; !stop_; ++turn) {
      const size_t index = next_chunk_.fetch_add(1);
      if (index >= list_.chunks.size()) break;
      const Chunk& chunk = list_.chunks[index];
      const size_t bytes = chunk.bytes();
      std::byte* stage = stages + turn % kStages * stage_bytes_;
      if (chunk.matrix != nullptr) {
        REPRISE_RETURN_IF_ERROR(PlaceRows(chunk, scratch, stage));
      } else if (chunk.int4 != nullptr) {
        kernels::IsPacked(chunk.int4->layout) ? PlaceInt4Tiles(chunk, stage)
                                              : PlaceInt4Rows(chunk, stage);
      } else {
        runtime::ConvertElements(chunk.source_dtype, chunk.dtype, chunk.source, stage, chunk.count);
      }
      EndRead(chunk);
      // Frees the other stage for the next turn; this chunk's copy runs beside its conversion.
      REPRISE_RETURN_IF_ERROR(stream.Synchronize());
      AddDone(in_flight_bytes);
      REPRISE_RETURN_IF_ERROR(stream.CopyToDevice(chunk.destination, stage, bytes));
      in_flight_bytes = bytes;
    }
    REPRISE_RETURN_IF_ERROR(stream.Synchronize());
    AddDone(in_flight_bytes);
    return absl::OkStatus();
  }

  // Releases what its upload has read, if nothing of it is left to read.
  void EndRead(const Chunk& chunk) {
    if (left_[chunk.upload].fetch_sub(1) > 1 || !options_.release) return;
    for (const std::span<const std::byte> source : list_.read[chunk.upload])
      options_.release(source);
  }

  void AddDone(size_t bytes) {
    if (bytes == 0) return;
    std::lock_guard lock(mutex_);
    done_bytes_ += bytes;
    changed_.notify_one();
  }

  void Finish(const absl::Status& status) {
    if (!status.ok()) stop_ = true;
    std::lock_guard lock(mutex_);
    status_.Update(status);
    --running_;
    changed_.notify_one();
  }

  // Until every thread has finished.
  void Report(const std::function<void(size_t, size_t)>& progress) {
    size_t reported = 0;
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return running_ == 0 || done_bytes_ != reported; });
      const bool last = running_ == 0;
      if (done_bytes_ != reported) {
        reported = done_bytes_;
        lock.unlock();
        if (progress) progress(reported, total_bytes_);
        lock.lock();
      }
      if (last) return;
    }
  }

  runtime::Device& device_;
  const ChunkList list_;
  const UploadOptions& options_;
  std::vector<std::atomic<size_t>> left_;  // chunks to read, by upload
  size_t total_bytes_ = 0;
  size_t stage_bytes_ = 0;
  std::atomic<size_t> next_chunk_{0};
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
  size_t done_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t running_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::Status UploadWeights(runtime::Device& device, std::span<const WeightUpload> uploads,
                           std::span<const MatrixUpload> matrices, std::span<const Int4Upload> int4,
                           const std::function<void(size_t, size_t)>& progress,
                           const UploadOptions& options) {
  ChunkList list = CutIntoChunks(uploads, matrices, int4, options.stage_bytes);
  if (list.chunks.empty()) return absl::OkStatus();
  const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
  const auto num_threads =
      static_cast<size_t>(std::clamp<int64_t>(options.max_threads, 1, static_cast<int64_t>(cores)));
  return Uploader(device, std::move(list), options).Run(num_threads, progress);
}

}  // namespace reprise::models
