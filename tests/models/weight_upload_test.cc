// SPDX-License-Identifier: Apache-2.0
// The staged upload: many odd-sized pieces, few bytes of staging, several threads.
#include "models/weights/weight_upload.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "runtime/float_convert.h"
#include "runtime/host/host_device.h"
#include "runtime/memory/buffer.h"
#include "tests/models/model_files.h"
#include "tests/testing/packed_weight.h"

namespace reprise::models {
namespace {

using ::reprise::testing::ExpectError;

// Element i of upload u: bf16 patterns that tell any two apart and are not NaN.
std::vector<uint16_t> Pattern(size_t u, size_t count) {
  std::vector<uint16_t> values(count);
  for (size_t i = 0; i < count; ++i)
    values[i] = static_cast<uint16_t>((u * 7919 + i * 31) % 0x7f00);
  return values;
}

TEST(WeightUpload, EveryElementArrivesConvertedUnderRandomDelays) {
  auto device = runtime::CreateHostDevice({}, {.max_us = 50});
  ASSERT_TRUE(device.ok()) << device.status();
  std::vector<std::vector<uint16_t>> sources;
  size_t total = 0;
  for (size_t u = 0; u < 40; ++u) {
    sources.push_back(Pattern(u, 1 + u * 97));
    total += sources.back().size();
  }
  auto buffer = runtime::DeviceBuffer::Create(**device, total * sizeof(float));
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  std::vector<WeightUpload> uploads;
  size_t offset = 0;
  for (const auto& source : sources) {
    uploads.push_back({runtime::DType::kBf16, std::as_bytes(std::span(source)),
                       buffer->as<std::byte>() + offset * sizeof(float), runtime::DType::kF32});
    offset += source.size();
  }
  std::vector<std::pair<size_t, size_t>> reports;
  const absl::Status status = UploadWeights(
      **device, uploads, {}, {}, [&](size_t done, size_t all) { reports.emplace_back(done, all); },
      {.max_threads = 3, .stage_bytes = 400});
  ASSERT_TRUE(status.ok()) << status;

  std::vector<float> got(total);
  auto stream = (*device)->CreateStream();
  ASSERT_TRUE((*stream)->CopyToHost(got.data(), buffer->data(), total * sizeof(float)).ok());
  ASSERT_TRUE((*stream)->Synchronize().ok());
  size_t at = 0;
  for (const auto& source : sources) {
    for (const uint16_t bits : source) {
      ASSERT_EQ(got[at], runtime::Bf16ToFloat(bits)) << at;
      ++at;
    }
  }
  ASSERT_FALSE(reports.empty());
  for (size_t i = 0; i < reports.size(); ++i) {
    EXPECT_EQ(reports[i].second, total * sizeof(float));
    EXPECT_GT(reports[i].first, i == 0 ? 0 : reports[i - 1].first);
  }
  EXPECT_EQ(reports.back().first, total * sizeof(float));
}

TEST(WeightUpload, EveryByteOfASourceIsReleasedOnceItWasRead) {
  auto device = runtime::CreateHostDevice({}, {.max_us = 20});
  ASSERT_TRUE(device.ok()) << device.status();
  const std::vector<uint16_t> pattern = Pattern(1, 6400);
  std::vector<uint16_t> plain = pattern, matrix = pattern;  // spoiled as soon as they are released
  auto buffer = runtime::DeviceBuffer::Create(**device, 2 * pattern.size() * sizeof(uint16_t));
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  auto* const to = buffer->as<uint16_t>();
  const WeightUpload upload = {runtime::DType::kBf16, std::as_bytes(std::span(plain)),
                               reinterpret_cast<std::byte*>(to), runtime::DType::kBf16};
  MatrixUpload rows = {{100, 64},
                       kernels::WeightLayout::kRowMajor,
                       {},
                       reinterpret_cast<std::byte*>(to + pattern.size()),
                       runtime::DType::kBf16,
                       kernels::WeightFormat::kBf16};
  const auto bytes = std::as_bytes(std::span(matrix));
  rows.parts = {{.dtype = runtime::DType::kBf16, .source = bytes.first(30 * 128)},
                {.dtype = runtime::DType::kBf16, .source = bytes.subspan(30 * 128)}};
  std::mutex mutex;
  size_t released = 0;
  const auto release = [&](std::span<const std::byte> source) {
    std::lock_guard lock(mutex);
    released += source.size();
    std::memset(const_cast<std::byte*>(source.data()), 0x7f, source.size());
  };
  ASSERT_TRUE(UploadWeights(**device, {&upload, 1}, {&rows, 1}, {}, {},
                            {.max_threads = 3, .stage_bytes = 400, .release = release})
                  .ok());
  EXPECT_EQ(released, 2 * pattern.size() * sizeof(uint16_t));
  std::vector<uint16_t> got(2 * pattern.size());
  auto stream = (*device)->CreateStream();
  ASSERT_TRUE((*stream)->CopyToHost(got.data(), to, got.size() * sizeof(uint16_t)).ok());
  ASSERT_TRUE((*stream)->Synchronize().ok());
  for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], pattern[i % pattern.size()]) << i;
}

// Parts whose borders cut tiles, rows that are no whole chunks, stages smaller than a tile of the
// matrix and larger than all of it.
TEST(WeightUpload, PackedMatricesArriveInTheirPlaces) {
  auto device = runtime::CreateHostDevice({}, {.max_us = 20});
  ASSERT_TRUE(device.ok()) << device.status();
  struct Shape {
    std::vector<size_t> rows;
    size_t columns;
    bool pairs = false;
  };
  const Shape shapes[] = {
      {{1}, 1},         {{16}, 64},         {{5, 11, 30}, 77},     {{40, 8}, 200},
      {{3, 1, 1}, 130}, {{8, 8}, 64, true}, {{40, 40}, 136, true}, {{24, 24}, 72, true}};
  for (const size_t stage_bytes : {size_t{400}, size_t{9000}, size_t{1} << 20}) {
    std::vector<std::vector<uint16_t>> sources, wanted;
    std::vector<runtime::DeviceBuffer> buffers;
    std::vector<MatrixUpload> uploads;
    size_t released = 0, total = 0;
    for (const Shape& shape : shapes) {
      size_t rows = 0;
      for (const size_t of_part : shape.rows) rows += of_part;
      sources.push_back(Pattern(sources.size(), rows * shape.columns));
      wanted.push_back(shape.pairs
                           ? testing::PackedPairs<uint16_t>(sources.back(), rows, shape.columns, 0)
                           : testing::Packed<uint16_t>(sources.back(), rows, shape.columns, 0));
      total += sources.back().size() * 2;
      auto buffer = runtime::DeviceBuffer::Create(**device, wanted.back().size() * 2);
      ASSERT_TRUE(buffer.ok()) << buffer.status();
      buffers.push_back(*std::move(buffer));
    }
    for (size_t i = 0; i < std::size(shapes); ++i) {
      MatrixUpload upload = {
          {0, static_cast<int64_t>(shapes[i].columns)},
          shapes[i].pairs ? kernels::WeightLayout::kPackedPairs : kernels::WeightLayout::kPacked,
          {},
          buffers[i].as<std::byte>(),
          runtime::DType::kBf16,
          kernels::WeightFormat::kBf16};
      auto left = std::as_bytes(std::span(sources[i]));
      for (const size_t rows : shapes[i].rows) {
        const size_t bytes = rows * shapes[i].columns * 2;
        upload.parts.push_back({runtime::DType::kBf16, left.first(bytes)});
        upload.matrix.out_features += static_cast<int64_t>(rows);
        left = left.subspan(bytes);
      }
      uploads.push_back(upload);
    }
    std::mutex mutex;
    const absl::Status status =
        UploadWeights(**device, {}, uploads, {}, {},
                      {.max_threads = 3, .stage_bytes = stage_bytes, .release = [&](auto source) {
                         std::lock_guard lock(mutex);
                         released += source.size();
                       }});
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(released, total);
    auto stream = (*device)->CreateStream();
    for (size_t i = 0; i < std::size(shapes); ++i) {
      std::vector<uint16_t> got(wanted[i].size());
      ASSERT_TRUE((*stream)->CopyToHost(got.data(), buffers[i].data(), got.size() * 2).ok());
      ASSERT_TRUE((*stream)->Synchronize().ok());
      EXPECT_EQ(got, wanted[i]) << i << ", stages of " << stage_bytes;
    }
  }
}

// Elements of 4 bits as each method publishes them, by what its own format says.
std::vector<uint32_t> PublishInt4(WeightStorage storage, const std::vector<uint8_t>& elements,
                                  size_t outputs, size_t inputs) {
  constexpr size_t kAwqPlaces[8] = {0, 4, 1, 5, 2, 6, 3, 7};
  std::vector<uint32_t> words(outputs * inputs / 8);
  for (size_t output = 0; output < outputs; ++output) {
    for (size_t input = 0; input < inputs; ++input) {
      const uint32_t element = elements[output * inputs + input];
      if (storage == WeightStorage::kAwq)
        words[(input * outputs + output) / 8] |= element << 4 * kAwqPlaces[output % 8];
      else if (storage == WeightStorage::kGptq)
        words[input / 8 * outputs + output] |= element << 4 * (input % 8);
      else
        words[(output * inputs + input) / 8] |= element << 4 * (input % 8);
    }
  }
  return words;
}

// More outputs than are read together, parts whose borders cut eight outputs where words allow it,
// inputs that are no whole tiles, heads in another order, and stages of one tile and of all.
TEST(WeightUpload, ElementsOf4BitsArriveInTheirPlaces) {
  auto device = runtime::CreateHostDevice({}, {.max_us = 20});
  ASSERT_TRUE(device.ok()) << device.status();
  struct Shape {
    std::vector<int64_t> outputs;
    size_t inputs;
    kernels::WeightLayout layout;
    HeadOrder heads = {};
  };
  using kernels::WeightLayout;
  const HeadOrder turned{.head_dim = 32, .turned = 8};
  for (const auto storage :
       {WeightStorage::kGptq, WeightStorage::kAwq, WeightStorage::kPackedInt4}) {
    const int64_t cut = storage == WeightStorage::kPackedInt4 ? 3 : 0;  // else outputs share words
    const Shape shapes[] = {{{24 - cut, 280 + cut}, 136, WeightLayout::kPacked},
                            {{24 - cut, 280}, 136, WeightLayout::kRowMajor},
                            {{8, 16 - cut}, 72, WeightLayout::kPacked},
                            {{152 + cut, 152 - cut}, 200, WeightLayout::kPackedPairs},
                            {{64, 64}, 64, WeightLayout::kPacked, turned},
                            {{64}, 40, WeightLayout::kRowMajor, turned}};
    for (const size_t stage_bytes : {size_t{100}, size_t{20000}, size_t{1} << 20}) {
      for (const Shape& shape : shapes) {
        SCOPED_TRACE(::testing::Message()
                     << static_cast<int>(storage) << ", " << shape.inputs << " inputs, stages of "
                     << stage_bytes << ", " << kernels::NameOf(shape.layout));
        std::vector<std::vector<uint32_t>> words;
        std::vector<uint8_t> wanted;
        Int4Upload upload = {
            {0, static_cast<int64_t>(shape.inputs)}, shape.layout, storage, {}, nullptr};
        words.reserve(shape.outputs.size());
        for (const int64_t outputs : shape.outputs) {
          const auto count = static_cast<size_t>(outputs);
          std::vector<uint8_t> elements(count * shape.inputs);
          for (size_t i = 0; i < elements.size(); ++i)
            elements[i] = static_cast<uint8_t>((i * 7 + i / 16 + words.size()) % 16);
          for (int64_t output = 0; output < outputs; ++output) {
            const auto from = static_cast<size_t>(
                shape.heads.is_published() ? output : shape.heads.Published(output));
            const uint8_t* const row = elements.data() + from * shape.inputs;
            wanted.insert(wanted.end(), row, row + shape.inputs);
          }
          words.push_back(PublishInt4(storage, elements, count, shape.inputs));
          upload.parts.push_back({std::as_bytes(std::span(words.back())), outputs, shape.heads});
          upload.matrix.out_features += outputs;
        }
        const auto all = static_cast<size_t>(upload.matrix.out_features);
        if (shape.layout == WeightLayout::kPackedPairs)
          wanted = testing::RowsInTurns(wanted, all, shape.inputs);
        const auto bytes =
            testing::Int4Bytes(wanted, all, shape.inputs, kernels::IsPacked(shape.layout), 0);
        auto buffer = runtime::DeviceBuffer::Create(**device, bytes.size());
        ASSERT_TRUE(buffer.ok()) << buffer.status();
        upload.destination = buffer->as<std::byte>();
        const absl::Status status = UploadWeights(**device, {}, {}, {&upload, 1}, {},
                                                  {.max_threads = 3, .stage_bytes = stage_bytes});
        ASSERT_TRUE(status.ok()) << status;
        std::vector<uint8_t> got(bytes.size());
        auto stream = (*device)->CreateStream();
        ASSERT_TRUE((*stream)->CopyToHost(got.data(), buffer->data(), got.size()).ok());
        ASSERT_TRUE((*stream)->Synchronize().ok());
        EXPECT_EQ(got, bytes);
      }
    }
  }
}

TEST(WeightUpload, NothingToUploadIsFine) {
  auto device = runtime::Device::Create({.kind = runtime::DeviceKind::kHost});
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_TRUE(UploadWeights(**device, {}, {}, {}, {}).ok());
}

// A device whose streams refuse the n-th copy.
class FailingStream : public runtime::Stream {
 public:
  FailingStream(std::unique_ptr<runtime::Stream> inner, std::atomic<int>& copies_left)
      : inner_(std::move(inner)), copies_left_(copies_left) {}
  absl::Status Launch(const runtime::Kernel& kernel, const runtime::LaunchShape& shape,
                      const void* args, size_t bytes) override {
    return inner_->Launch(kernel, shape, args, bytes);
  }
  absl::Status EnqueueHost(std::function<void()> work) override {
    return inner_->EnqueueHost(std::move(work));
  }
  absl::Status CopyToDevice(void* dst, const void* src, size_t bytes) override {
    if (copies_left_.fetch_sub(1) <= 0) return absl::InternalError("copy refused");
    return inner_->CopyToDevice(dst, src, bytes);
  }
  absl::Status CopyToHost(void* dst, const void* src, size_t bytes) override {
    return inner_->CopyToHost(dst, src, bytes);
  }
  absl::Status Fill(void* dst, unsigned char value, size_t bytes) override {
    return inner_->Fill(dst, value, bytes);
  }
  absl::Status Synchronize() override { return inner_->Synchronize(); }
  absl::Status Query() override { return inner_->Query(); }
  bool WaitUntil(const std::function<bool()>& done,
                 std::chrono::steady_clock::time_point deadline) override {
    return inner_->WaitUntil(done, deadline);
  }
  absl::Status BeginCapture() override { return inner_->BeginCapture(); }
  absl::StatusOr<std::unique_ptr<runtime::CapturedGraph>> EndCapture() override {
    return inner_->EndCapture();
  }
  void AbortCapture() override { inner_->AbortCapture(); }
  void* native_handle() const override { return inner_->native_handle(); }

 private:
  std::unique_ptr<runtime::Stream> inner_;
  std::atomic<int>& copies_left_;
};

class FailingDevice : public runtime::Device {
 public:
  FailingDevice(std::unique_ptr<runtime::Device> inner, int copies)
      : inner_(std::move(inner)), copies_left_(copies) {}
  const runtime::DeviceProperties& properties() const override { return inner_->properties(); }
  absl::StatusOr<void*> Allocate(size_t bytes) override { return inner_->Allocate(bytes); }
  void Free(void* data) override { inner_->Free(data); }
  absl::StatusOr<runtime::MappedPointers> AllocateMapped(size_t bytes) override {
    return inner_->AllocateMapped(bytes);
  }
  void FreeMapped(const runtime::MappedPointers& pointers) override {
    inner_->FreeMapped(pointers);
  }
  absl::StatusOr<size_t> FreeBytes() const override { return inner_->FreeBytes(); }
  absl::StatusOr<std::unique_ptr<runtime::Stream>> CreateStream() override {
    auto stream = inner_->CreateStream();
    if (!stream.ok()) return stream.status();
    return std::make_unique<FailingStream>(*std::move(stream), copies_left_);
  }
  absl::StatusOr<std::unique_ptr<runtime::Stream>> WrapStream(void* native) override {
    return inner_->WrapStream(native);
  }
  absl::StatusOr<std::unique_ptr<runtime::KernelModule>> Load(
      const runtime::KernelImage& image) override {
    return inner_->Load(image);
  }

 private:
  std::unique_ptr<runtime::Device> inner_;
  std::atomic<int> copies_left_;
};

TEST(WeightUpload, AFailedCopyEndsTheUploadWithItsError) {
  auto host = runtime::Device::Create({.kind = runtime::DeviceKind::kHost});
  ASSERT_TRUE(host.ok()) << host.status();
  FailingDevice device(*std::move(host), 5);
  const std::vector<uint16_t> source = Pattern(0, 10000);
  auto buffer = runtime::DeviceBuffer::Create(device, source.size() * sizeof(uint16_t));
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  const WeightUpload upload = {runtime::DType::kBf16, std::as_bytes(std::span(source)),
                               buffer->as<std::byte>(), runtime::DType::kBf16};
  size_t done = 0;
  ExpectError(
      UploadWeights(device, {&upload, 1}, {}, {}, [&](size_t bytes, size_t) { done = bytes; },
                    {.max_threads = 2, .stage_bytes = 64}),
      absl::StatusCode::kInternal, {"copy refused"});
  EXPECT_LE(done, 5u * 64);
}

}  // namespace
}  // namespace reprise::models
