// SPDX-License-Identifier: Apache-2.0
// GuardedMemory: device buffers for kernel tests. Every buffer lies between guard words; contents
// are poisoned (0xff: NaN in every floating format, an impossible index otherwise) unless given;
// buffers declared constant must come out as they went in.
//
//   GuardedMemory memory(device, stream);
//   args.x = memory.Constant(x);            // a std::vector of plain values
//   args.out = memory.Poisoned(bytes);
//   ... launch on stream ...
//   memory.Check();                         // synchronises; EXPECTs guards and constants intact
//   std::vector<double> out = memory.ReadTensor(DType::kBf16, args.out);
//
// On the host under AddressSanitizer a read of a guard is a fault too. A failed device call fails
// the test and throws.
#ifndef REPRISE_TESTS_TESTING_GUARDED_MEMORY_H_
#define REPRISE_TESTS_TESTING_GUARDED_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "runtime/device.h"
#include "runtime/dtype.h"

namespace reprise::testing {

class GuardedMemory {
 public:
  GuardedMemory(runtime::Device& device, runtime::Stream& stream)
      : device_(device), stream_(stream) {}
  ~GuardedMemory();
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;

  // `bytes` of 0xff, aligned to 256 bytes. Zero bytes are allowed.
  void* Poisoned(size_t bytes);
  template <typename T>
  T* Poisoned(size_t count) {
    return static_cast<T*>(Poisoned(count * sizeof(T)));
  }
  // With contents that kernels must not change.
  template <typename T>
  const T* Constant(const std::vector<T>& values) {
    return static_cast<const T*>(Filled(std::as_bytes(std::span(values)), true));
  }
  const void* ConstantTensor(runtime::DType dtype, std::span<const double> values);
  // With contents that kernels may change.
  template <typename T>
  T* Variable(const std::vector<T>& values) {
    return static_cast<T*>(Filled(std::as_bytes(std::span(values)), false));
  }
  void* VariableTensor(runtime::DType dtype, std::span<const double> values);

  // Waits for the stream; EXPECTs that no guard word and no constant changed.
  void Check();

  // The contents of a whole buffer, by the address that one of the above returned. Call Check
  // first.
  std::vector<std::byte> ReadBytes(const void* buffer);
  template <typename T>
  std::vector<T> Read(const T* buffer) {
    const std::vector<std::byte> bytes = ReadBytes(buffer);
    std::vector<T> values(bytes.size() / sizeof(T));
    if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
    return values;
  }
  std::vector<double> ReadTensor(runtime::DType dtype, const void* buffer);

 private:
  struct Buffer {
    std::byte* base = nullptr;  // guard, contents, guard
    size_t bytes = 0;           // of the contents
    bool constant = false;
    std::vector<std::byte> original;  // of a constant
  };

  void* Filled(std::span<const std::byte> contents, bool constant);
  std::byte* Add(Buffer buffer, std::span<const std::byte> image);
  std::vector<std::byte> Download(const std::byte* from, size_t bytes);
  // Access to the guards on the host, where AddressSanitizer watches.
  void GuardsAccessible(const Buffer& buffer, bool accessible) const;
  void CheckBuffer(const Buffer& buffer);

  runtime::Device& device_;
  runtime::Stream& stream_;
  std::vector<Buffer> buffers_;
};

}  // namespace reprise::testing

#endif  // REPRISE_TESTS_TESTING_GUARDED_MEMORY_H_
