// SPDX-License-Identifier: Apache-2.0
#include "tools/profile/kernel_tracer.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <mutex>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/shared_library.h"
#include "runtime/status_macros.h"

namespace reprise::tools {
namespace {

// ---- the few of CUPTI's names that are needed, as its documentation gives them ----

constexpr int kSuccess = 0;
constexpr unsigned kConcurrentKernel = 10;  // kind of a record: a kernel, which others may overlap
constexpr unsigned kFlushForced = 1;

// What CUpti_ActivityKernel6 to CUpti_ActivityKernel10 begin with: CUDA 11.2 to 13.
struct KernelRecord {
  uint32_t kind;
  uint32_t before_start[3];
  uint64_t start;  // ns; this and the end: 0 where they are not known
  uint64_t end;
  uint32_t before_correlation_id[15];
  uint32_t correlation_id;
  int64_t grid_id;
  const char* name;
};
static_assert(offsetof(KernelRecord, start) == 16 && offsetof(KernelRecord, end) == 24 &&
              offsetof(KernelRecord, correlation_id) == 92 && offsetof(KernelRecord, name) == 104);

// Versions of the interface: single numbers up to CUDA 12, 130001 for 13.0 update 1.
constexpr uint32_t kOldestVersion = 15;  // CUDA 11.2
constexpr uint32_t kEndOfVersions = 140000;

using Context = struct CuptiContextStruct*;

struct Cupti {
  int (*get_version)(uint32_t*) = nullptr;
  int (*get_result_string)(int, const char**) = nullptr;
  int (*register_callbacks)(void (*)(uint8_t**, size_t*, size_t*),
                            void (*)(Context, uint32_t, uint8_t*, size_t, size_t)) = nullptr;
  int (*enable)(unsigned) = nullptr;
  int (*disable)(unsigned) = nullptr;
  int (*flush_all)(uint32_t) = nullptr;
  int (*get_next_record)(uint8_t*, size_t, void**) = nullptr;
  int (*get_num_dropped)(Context, uint32_t, size_t*) = nullptr;
};

absl::Status FindAll(const runtime::SharedLibrary& library, Cupti* cupti) {
  REPRISE_RETURN_IF_ERROR(library.Find("cuptiGetVersion", &cupti->get_version));
  REPRISE_RETURN_IF_ERROR(library.Find("cuptiGetResultString", &cupti->get_result_string));
  REPRISE_RETURN_IF_ERROR(
      library.Find("cuptiActivityRegisterCallbacks", &cupti->register_callbacks));
  REPRISE_RETURN_IF_ERROR(library.Find("cuptiActivityEnable", &cupti->enable));
  REPRISE_RETURN_IF_ERROR(library.Find("cuptiActivityDisable", &cupti->disable));
  REPRISE_RETURN_IF_ERROR(library.Find("cuptiActivityFlushAll", &cupti->flush_all));
  REPRISE_RETURN_IF_ERROR(library.Find("cuptiActivityGetNextRecord", &cupti->get_next_record));
  return library.Find("cuptiActivityGetNumDroppedRecords", &cupti->get_num_dropped);
}

// ---- buffers, which CUPTI asks for and hands back from threads of its own ----

constexpr size_t kBufferBytes = size_t{4} << 20;
constexpr std::align_val_t kBufferAlignment{8};

// What a full buffer held. Its callbacks carry no pointer of ours: one tracer at a time.
struct Records {
  std::mutex mutex;
  bool taken = false;  // by a tracer
  Cupti cupti;
  std::vector<TracedKernel> kernels;
  size_t num_dropped = 0;
};

Records& TheRecords() {
  static auto* records = new Records;  // never destroyed: CUPTI's threads outlive main()
  return *records;
}

void GiveBuffer(uint8_t** buffer, size_t* bytes, size_t* max_records) {
  *buffer = new (kBufferAlignment, std::nothrow) uint8_t[kBufferBytes];
  *bytes = *buffer == nullptr ? 0 : kBufferBytes;
  *max_records = 0;  // as many as there is room for
}

void TakeBuffer(Context context, uint32_t stream, uint8_t* buffer, size_t, size_t valid_bytes) {
  Records& records = TheRecords();
  {
    const std::lock_guard lock(records.mutex);
    void* next = nullptr;
    while (records.cupti.get_next_record(buffer, valid_bytes, &next) == kSuccess) {
      KernelRecord record;
      std::memcpy(&record.kind, next, sizeof(record.kind));
      if (record.kind != kConcurrentKernel) continue;
      std::memcpy(&record, next, sizeof(record));
      if (record.start == 0 || record.end == 0) {
        ++records.num_dropped;
        continue;
      }
      records.kernels.push_back({.name = record.name == nullptr ? "" : record.name,
                                 .launch = record.correlation_id,
                                 .begin_ns = record.start,
                                 .end_ns = record.end});
    }
    size_t dropped = 0;
    if (records.cupti.get_num_dropped(context, stream, &dropped) == kSuccess)
      records.num_dropped += dropped;
  }
  operator delete[](buffer, kBufferAlignment);
}

// ---- the tracer ----

class CuptiTracer final : public KernelTracer {
 public:
  CuptiTracer(runtime::SharedLibrary library, Cupti cupti, uint32_t version)
      : library_(std::move(library)), cupti_(cupti), version_(version) {}
  ~CuptiTracer() override {
    if (tracing_) Stop().IgnoreError();
    const std::lock_guard lock(TheRecords().mutex);
    TheRecords().taken = false;
  }

  std::string source() const override { return absl::StrCat("CUPTI ", version_); }

  absl::Status Start() override {
    if (!registered_) {
      REPRISE_RETURN_IF_ERROR(Check("cuptiActivityRegisterCallbacks",
                                    cupti_.register_callbacks(GiveBuffer, TakeBuffer)));
      registered_ = true;
    }
    {
      const std::lock_guard lock(TheRecords().mutex);
      TheRecords().kernels.clear();
      TheRecords().num_dropped = 0;
    }
    REPRISE_RETURN_IF_ERROR(Check("cuptiActivityEnable", cupti_.enable(kConcurrentKernel)));
    tracing_ = true;
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<TracedKernel>> Stop() override {
    tracing_ = false;
    absl::Status status = Check("cuptiActivityFlushAll", cupti_.flush_all(kFlushForced));
    status.Update(Check("cuptiActivityDisable", cupti_.disable(kConcurrentKernel)));
    REPRISE_RETURN_IF_ERROR(status);
    std::vector<TracedKernel> kernels;
    {
      const std::lock_guard lock(TheRecords().mutex);
      kernels = std::exchange(TheRecords().kernels, {});
      if (TheRecords().num_dropped > 0) {
        return absl::DataLossError(
            absl::StrCat("CUPTI dropped ", TheRecords().num_dropped,
                         " records of kernels, or does not know their times"));
      }
    }
    std::stable_sort(kernels.begin(), kernels.end(), [](const auto& a, const auto& b) {
      return a.begin_ns != b.begin_ns ? a.begin_ns < b.begin_ns : a.end_ns < b.end_ns;
    });
    return kernels;
  }

 private:
  absl::Status Check(const char* call, int error) const {
    if (error == kSuccess) return absl::OkStatus();
    const char* text = nullptr;
    if (cupti_.get_result_string(error, &text) != kSuccess || text == nullptr) text = "?";
    return absl::UnavailableError(absl::StrCat(call, ": ", text, " (", error, ")"));
  }

  runtime::SharedLibrary library_;
  const Cupti cupti_;
  const uint32_t version_;
  bool registered_ = false;
  bool tracing_ = false;
};

absl::StatusOr<runtime::SharedLibrary> OpenFirst(const std::vector<std::string>& names) {
  absl::StatusOr<runtime::SharedLibrary> library =
      absl::InvalidArgumentError("no library is named");
  for (const std::string& name : names) {
    library = runtime::SharedLibrary::Open(name, runtime::SharedLibrary::Unload::kNever);
    if (library.ok()) return library;
  }
  if (names.size() < 2) return library;
  return absl::UnavailableError(
      absl::StrCat("there is none of ", absl::StrJoin(names, ", "), " that can be opened"));
}

}  // namespace

std::vector<std::string> CuptiLibraries() {
  return {"libcupti.so.13", "libcupti.so.12", "libcupti.so", "/usr/local/cuda/lib64/libcupti.so",
          "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so"};
}

absl::StatusOr<std::unique_ptr<KernelTracer>> KernelTracer::Open(
    const runtime::DeviceProperties& device, const std::vector<std::string>& libraries) {
  if (device.kind != runtime::DeviceKind::kCuda) {
    return absl::UnimplementedError(absl::StrCat("device '",
                                                 std::string(runtime::NameOf(device.kind)),
                                                 "' has nothing that traces kernels"));
  }
  REPRISE_ASSIGN_OR_RETURN(runtime::SharedLibrary library, OpenFirst(libraries));
  Cupti cupti;
  REPRISE_RETURN_IF_ERROR(FindAll(library, &cupti));
  uint32_t version = 0;
  if (cupti.get_version(&version) != kSuccess || version < kOldestVersion ||
      version >= kEndOfVersions) {
    return absl::UnavailableError(absl::StrCat(library.name(), ": got version ", version,
                                               " of CUPTI's interface, allowed: those of CUDA "
                                               "11.2 to 13"));
  }
  {
    Records& records = TheRecords();
    const std::lock_guard lock(records.mutex);
    if (records.taken)
      return absl::FailedPreconditionError("kernels are traced already: one tracer at a time");
    records.taken = true;
    records.cupti = cupti;
  }
  return std::make_unique<CuptiTracer>(std::move(library), cupti, version);
}

}  // namespace reprise::tools
