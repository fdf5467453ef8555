// SPDX-License-Identifier: Apache-2.0
// A library that a program under test loads first (LD_PRELOAD): its wall clock is so many seconds
// ahead as the file named by REPRISE_CLOCK_OFFSET_FILE says, at any moment. Steady clocks stay as
// they are.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <ctime>

namespace {

int64_t Offset() {
  static const volatile int64_t* const offset = [] {
    const char* path = std::getenv("REPRISE_CLOCK_OFFSET_FILE");
    const int file = path == nullptr ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    void* data = mmap(nullptr, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    return data == MAP_FAILED ? nullptr : static_cast<const volatile int64_t*>(data);
  }();
  return offset == nullptr ? 0 : *offset;
}

}  // namespace

extern "C" int clock_gettime(clockid_t clock, timespec* time) noexcept {
  const long result = syscall(SYS_clock_gettime, clock, time);
  if (result == 0 && clock == CLOCK_REALTIME) time->tv_sec += Offset();
  return static_cast<int>(result);
}

extern "C" int gettimeofday(timeval* time, void*) noexcept {
  timespec now = {};
  clock_gettime(CLOCK_REALTIME, &now);
  time->tv_sec = now.tv_sec;
  time->tv_usec = now.tv_nsec / 1000;
  return 0;
}

extern "C" time_t time(time_t* to) noexcept {
  timespec now = {};
  clock_gettime(CLOCK_REALTIME, &now);
  if (to != nullptr) *to = now.tv_sec;
  return now.tv_sec;
}
