// SPDX-License-Identifier: Apache-2.0
// The functions of CUPTI that tools/profile/kernel_tracer.cc opens, as a library of our own: while
// kernels are traced it takes those that a test names, and hands them back in buffers, two to each,
// with a record of another kind before each of them.
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace {

struct Kernel {
  std::string name;
  uint32_t correlation_id;
  uint64_t start, end;
};

constexpr size_t kRecordBytes = 216;  // of CUpti_ActivityKernel10
constexpr size_t kOtherBytes = 48;
constexpr size_t kKernelsOfBuffer = 2;
constexpr uint32_t kKernelKind = 10, kOtherKind = 4;
constexpr int kSuccess = 0, kMaxLimitReached = 12, kNotInitialized = 15;

uint32_t version = 130001;
bool enabled = false;
int enable_error = 0;
size_t num_dropped = 0;
std::vector<Kernel> kernels;
void (*request)(uint8_t**, size_t*, size_t*) = nullptr;
void (*complete)(void*, uint32_t, uint8_t*, size_t, size_t) = nullptr;

template <typename T>
void Put(uint8_t* record, size_t at, T value) {
  std::memcpy(record + at, &value, sizeof(value));
}

size_t BytesOf(const uint8_t* record) {
  uint32_t kind = 0;
  std::memcpy(&kind, record, sizeof(kind));
  return kind == kKernelKind ? kRecordBytes : kOtherBytes;
}

}  // namespace

extern "C" {

// ---- what tests call ----

void FakeCuptiSet(uint32_t api_version, int error_of_enable, size_t dropped) {
  version = api_version;
  enable_error = error_of_enable;
  num_dropped = dropped;
}
void FakeCuptiLaunch(const char* name, uint32_t correlation_id, uint64_t start, uint64_t end) {
  if (enabled) kernels.push_back({name, correlation_id, start, end});
}
int FakeCuptiIsEnabled() { return enabled ? 1 : 0; }

// ---- CUPTI's ----

int cuptiGetVersion(uint32_t* got) {
  *got = version;
  return kSuccess;
}
int cuptiGetResultString(int error, const char** text) {
  *text = error == kNotInitialized ? "CUPTI_ERROR_NOT_INITIALIZED" : "CUPTI_ERROR_UNKNOWN";
  return kSuccess;
}
int cuptiActivityRegisterCallbacks(decltype(request) on_request, decltype(complete) on_complete) {
  request = on_request;
  complete = on_complete;
  return kSuccess;
}
int cuptiActivityEnable(uint32_t kind) {
  if (enable_error != 0) return enable_error;
  enabled = kind == kKernelKind;
  return kSuccess;
}
int cuptiActivityDisable(uint32_t) {
  enabled = false;
  return kSuccess;
}
int cuptiActivityFlushAll(uint32_t) {
  for (size_t first = 0; first < kernels.size(); first += kKernelsOfBuffer) {
    uint8_t* buffer = nullptr;
    size_t bytes = 0, max_records = 0, used = 0;
    request(&buffer, &bytes, &max_records);
    for (size_t i = first; i < kernels.size() && i < first + kKernelsOfBuffer; ++i) {
      std::memset(buffer + used, 0xff, kOtherBytes + kRecordBytes);
      Put(buffer + used, 0, kOtherKind);
      uint8_t* record = buffer + used + kOtherBytes;
      Put(record, 0, kKernelKind);
      Put(record, 16, kernels[i].start);
      Put(record, 24, kernels[i].end);
      Put(record, 92, kernels[i].correlation_id);
      Put(record, 104, kernels[i].name.c_str());
      used += kOtherBytes + kRecordBytes;
    }
    complete(nullptr, 0, buffer, bytes, used);
  }
  kernels.clear();
  return kSuccess;
}
int cuptiActivityGetNextRecord(uint8_t* buffer, size_t valid_bytes, void** record) {
  uint8_t* next = *record == nullptr ? buffer : static_cast<uint8_t*>(*record);
  if (*record != nullptr) next += BytesOf(next);
  if (next >= buffer + valid_bytes) return kMaxLimitReached;
  *record = next;
  return kSuccess;
}
int cuptiActivityGetNumDroppedRecords(void*, uint32_t, size_t* dropped) {
  *dropped = num_dropped;
  return kSuccess;
}

}  // extern "C"
