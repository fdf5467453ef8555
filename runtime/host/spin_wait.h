// SPDX-License-Identifier: Apache-2.0
// SpinWait: lets threads wait for a condition over atomics, spinning for a short while before they
// sleep. The host device uses it wherever one thread hands work to another: a wake-up through the
// kernel costs more than most kernels of a tiny model. It is no lock and guards no data.
//
//   waiter: wait.Wait([&] { return ready.load() == expected; });
//   waker:  ready.store(expected); wait.Wake();
#ifndef REPRISE_RUNTIME_HOST_SPIN_WAIT_H_
#define REPRISE_RUNTIME_HOST_SPIN_WAIT_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>

namespace reprise::runtime {

// Tells the core that this thread spins.
inline void CpuRelax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// How long a thread spins before it sleeps. About ten times a futex wake-up (3-5 us), so that the
// pauses between the kernels of a step are bridged and an idle device soon costs nothing.
inline constexpr std::chrono::microseconds kSpinTime{30};

class SpinWait {
 public:
  // spin_time 0: sleeps at once, which is right where threads outnumber cores.
  explicit SpinWait(std::chrono::nanoseconds spin_time = kSpinTime) : spin_time_(spin_time) {}

  // Returns once `ready()` is true. `ready` may run often, with a mutex of this object held, and
  // must read its atomics with memory_order_seq_cst: together with the sequentially consistent
  // write before Wake it excludes a lost wake-up.
  template <typename Ready>
  void Wait(Ready ready) {
    if (Spin(ready)) return;
    std::unique_lock<std::mutex> lock(mutex_);
    num_sleepers_.fetch_add(1, std::memory_order_seq_cst);
    while (!ready()) woken_.wait(lock);
    num_sleepers_.fetch_sub(1, std::memory_order_seq_cst);
  }

  // The same until `deadline` at the latest; says whether `ready()` is true.
  template <typename Ready>
  bool WaitUntil(Ready ready, std::chrono::steady_clock::time_point deadline) {
    if (Spin(ready)) return true;
    std::unique_lock<std::mutex> lock(mutex_);
    num_sleepers_.fetch_add(1, std::memory_order_seq_cst);
    const bool is_ready = woken_.wait_until(lock, deadline, ready);
    num_sleepers_.fetch_sub(1, std::memory_order_seq_cst);
    return is_ready;
  }

  // Wakes every sleeper; call it after the write (memory_order_seq_cst) that makes `ready()` true.
  // One load when nobody sleeps.
  void Wake() {
    if (num_sleepers_.load(std::memory_order_seq_cst) == 0) return;
    // The empty critical section waits for a sleeper between its last check and its sleep.
    { std::lock_guard<std::mutex> lock(mutex_); }
    woken_.notify_all();
  }

 private:
  template <typename Ready>
  bool Spin(Ready& ready) {
    constexpr int kPausesPerClockRead = 16;
    if (ready()) return true;
    if (spin_time_.count() == 0) return false;
    const auto deadline = std::chrono::steady_clock::now() + spin_time_;
    do {
      for (int i = 0; i < kPausesPerClockRead; ++i) {
        if (ready()) return true;
        CpuRelax();
      }
    } while (std::chrono::steady_clock::now() < deadline);
    return false;
  }

  const std::chrono::nanoseconds spin_time_;
  std::atomic<int> num_sleepers_{0};
  std::mutex mutex_;
  std::condition_variable woken_;
};

}  // namespace reprise::runtime

#endif  // REPRISE_RUNTIME_HOST_SPIN_WAIT_H_
