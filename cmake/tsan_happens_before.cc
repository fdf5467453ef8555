// SPDX-License-Identifier: Apache-2.0
// Preset tsan only: tells ThreadSanitizer what orders threads inside Abseil and gRPC. Debian's
// libraries are not instrumented, so the sanitizer would see no lock in absl::Mutex and no
// hand-over in gRPC, and report races that are none. The functions below take the place of the
// libraries' own, for the libraries too: the dynamic linker finds them in the program first. Not
// part of any product.
//
// Status: whatever precedes the drop of a reference happens before the deletion.
// Mutex: between a pre_ and a post_ call the sanitizer ignores memory accesses of the thread, so a
// waiter's condition that Unlock evaluates is not taken for an access without the lock. gRPC: what
// precedes the start of a batch happens before what follows its completion, which the tag
// identifies.
#include <dlfcn.h>
#include <grpc/grpc.h>
#include <grpcpp/support/callback_common.h>
#include <grpcpp/support/server_callback.h>
#include <sanitizer/tsan_interface.h>

#include <cstdint>
#include <type_traits>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "runtime/check.h"

namespace {

// The library's own function of that name.
template <typename Function>
Function* Next(const char* name) {
  void* symbol = dlsym(RTLD_NEXT, name);
  REPRISE_CHECK(symbol != nullptr);
  return reinterpret_cast<Function*>(symbol);
}

// The library calls some of these functions from others of them; the outermost call alone is told.
thread_local bool inside = false;

struct Inside {
  Inside() { inside = true; }
  ~Inside() { inside = false; }
};

// Runs `acquire`, which returns holding `mu`.
template <typename Acquire>
auto Acquiring(void* mu, unsigned flags, const Acquire& acquire) {
  if (inside) return acquire();
  const Inside mark;
  __tsan_mutex_pre_lock(mu, flags);
  struct Finish {
    void* mu;
    unsigned flags;
    ~Finish() { __tsan_mutex_post_lock(mu, flags, 0); }
  } finish{mu, flags};
  return acquire();
}

// Runs `release`, which lets go of `mu`.
template <typename Release>
void Releasing(void* mu, unsigned flags, const Release& release) {
  if (inside) return release();
  const Inside mark;
  __tsan_mutex_pre_unlock(mu, flags);
  release();
  __tsan_mutex_post_unlock(mu, flags);
}

// Runs `wait`, which lets go of `mu`, held for writing, and returns holding it again.
template <typename Wait>
auto Waiting(void* mu, const Wait& wait) {
  Releasing(mu, 0, [] {});
  return Acquiring(mu, 0, wait);
}

// Runs `attempt`, which says whether it got `mu`.
template <typename Attempt>
bool Trying(void* mu, unsigned flags, const Attempt& attempt) {
  if (inside) return attempt();
  const Inside mark;
  flags |= __tsan_mutex_try_lock;
  __tsan_mutex_pre_lock(mu, flags);
  const bool locked = attempt();
  __tsan_mutex_post_lock(mu, locked ? flags : flags | __tsan_mutex_try_lock_failed, 0);
  return locked;
}

using absl::Condition;
using absl::Duration;
using absl::Time;
using Functor = grpc_completion_queue_functor;

}  // namespace

// Defines the function whose mangled name is `name`. In its body, `next` is the library's own.
#define TAKES_PLACE_OF(result, name, parameters, ...)                              \
  result name parameters {                                                         \
    static auto* const next = Next<std::remove_pointer_t<decltype(&name)>>(#name); \
    __VA_ARGS__                                                                    \
  }

extern "C" {

TAKES_PLACE_OF(void, _ZN4absl7debian35Mutex4LockEv, (void* mu),
               Acquiring(mu, 0, [&] { next(mu); });)
TAKES_PLACE_OF(void, _ZN4absl7debian35Mutex10ReaderLockEv, (void* mu),
               Acquiring(mu, __tsan_mutex_read_lock, [&] { next(mu); });)
TAKES_PLACE_OF(void, _ZN4absl7debian35Mutex6UnlockEv, (void* mu),
               Releasing(mu, 0, [&] { next(mu); });)
TAKES_PLACE_OF(void, _ZN4absl7debian35Mutex12ReaderUnlockEv, (void* mu),
               Releasing(mu, __tsan_mutex_read_lock, [&] { next(mu); });)
TAKES_PLACE_OF(bool, _ZN4absl7debian35Mutex7TryLockEv, (void* mu),
               return Trying(mu, 0, [&] { return next(mu); });)
TAKES_PLACE_OF(bool, _ZN4absl7debian35Mutex13ReaderTryLockEv, (void* mu),
               return Trying(mu, __tsan_mutex_read_lock, [&] { return next(mu); });)

TAKES_PLACE_OF(void, _ZN4absl7debian35Mutex8LockWhenERKNS0_9ConditionE,
               (void* mu, const Condition& condition),
               Acquiring(mu, 0, [&] { next(mu, condition); });)
TAKES_PLACE_OF(bool, _ZN4absl7debian35Mutex19LockWhenWithTimeoutERKNS0_9ConditionENS0_8DurationE,
               (void* mu, const Condition& condition, Duration limit),
               return Acquiring(mu, 0, [&] { return next(mu, condition, limit); });)
TAKES_PLACE_OF(bool, _ZN4absl7debian35Mutex20LockWhenWithDeadlineERKNS0_9ConditionENS0_4TimeE,
               (void* mu, const Condition& condition, Time limit),
               return Acquiring(mu, 0, [&] { return next(mu, condition, limit); });)
TAKES_PLACE_OF(void, _ZN4absl7debian35Mutex5AwaitERKNS0_9ConditionE,
               (void* mu, const Condition& condition), Waiting(mu, [&] { next(mu, condition); });)
TAKES_PLACE_OF(bool, _ZN4absl7debian35Mutex16AwaitWithTimeoutERKNS0_9ConditionENS0_8DurationE,
               (void* mu, const Condition& condition, Duration limit),
               return Waiting(mu, [&] { return next(mu, condition, limit); });)
TAKES_PLACE_OF(bool, _ZN4absl7debian35Mutex17AwaitWithDeadlineERKNS0_9ConditionENS0_4TimeE,
               (void* mu, const Condition& condition, Time limit),
               return Waiting(mu, [&] { return next(mu, condition, limit); });)

TAKES_PLACE_OF(void, _ZN4absl7debian37CondVar4WaitEPNS0_5MutexE, (void* cv, void* mu),
               Waiting(mu, [&] { next(cv, mu); });)
TAKES_PLACE_OF(bool, _ZN4absl7debian37CondVar15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE,
               (void* cv, void* mu, Duration limit),
               return Waiting(mu, [&] { return next(cv, mu, limit); });)
TAKES_PLACE_OF(bool, _ZN4absl7debian37CondVar16WaitWithDeadlineEPNS0_5MutexENS0_4TimeE,
               (void* cv, void* mu, Time limit),
               return Waiting(mu, [&] { return next(cv, mu, limit); });)

// Drops one reference to a shared absl::Status; the last one deletes what it refers to.
TAKES_PLACE_OF(void, _ZN4absl7debian36Status15UnrefNonInlinedEm, (uintptr_t rep), {
  __tsan_release(reinterpret_cast<void*>(rep));
  __tsan_acquire(reinterpret_cast<void*>(rep));
  next(rep);
})

}  // extern "C"

// How gRPC's callback tags are run. Private, and absent from a program that has no such tags.
#define RUN_OF(tag) "_ZN4grpc8internal" tag "9StaticRunEP29grpc_completion_queue_functori"
[[gnu::weak]] void RunSuccessTag(Functor*, int) __asm__(RUN_OF("22CallbackWithSuccessTag"));
[[gnu::weak]] void RunStatusTag(Functor*, int) __asm__(RUN_OF("21CallbackWithStatusTag"));

namespace {

void AcquireAndRunSuccessTag(Functor* tag, int ok) {
  __tsan_acquire(tag);
  RunSuccessTag(tag, ok);
}

void AcquireAndRunStatusTag(Functor* tag, int ok) {
  __tsan_acquire(tag);
  RunStatusTag(tag, ok);
}

}  // namespace

extern "C" {

// Memory that these libraries touch through libc (malloc, memcpy, sendmsg) is ordered by
// synchronisation of their own that the sanitizer cannot see. What our code touches, gRPC's headers
// included, is reported as ever. CopyCordToString, which gRPC makes a status's text with, writes it
// through std::string functions that the dynamic linker takes from the instrumented program.
const char* __tsan_default_suppressions() {
  return "called_from_lib:libabsl_cord.so\n"
         "called_from_lib:libabsl_graphcycles_internal.so\n"
         "called_from_lib:libabsl_random_internal_pool_urbg.so\n"
         "called_from_lib:libabsl_status.so\n"
         "called_from_lib:libabsl_synchronization.so\n"
         "called_from_lib:libabsl_time_zone.so\n"
         "called_from_lib:libgpr.so\n"
         "called_from_lib:libgrpc++.so\n"
         "called_from_lib:libgrpc.so\n"
         "called_from_lib:libupb.so\n"
         "race:absl::debian3::CopyCordToString\n";
}

TAKES_PLACE_OF(grpc_call_error, grpc_call_start_batch,
               (grpc_call * call, const grpc_op* ops, size_t num_ops, void* tag, void* reserved), {
                 auto* functor = static_cast<Functor*>(tag);
                 if (functor->functor_run == RunSuccessTag) {
                   functor->functor_run = AcquireAndRunSuccessTag;
                 } else if (functor->functor_run == RunStatusTag) {
                   functor->functor_run = AcquireAndRunStatusTag;
                 }
                 __tsan_release(tag);
                 return next(call, ops, num_ops, tag, reserved);
               })
TAKES_PLACE_OF(grpc_event, grpc_completion_queue_pluck,
               (grpc_completion_queue * queue, void* tag, gpr_timespec deadline, void* reserved), {
                 const grpc_event event = next(queue, tag, deadline, reserved);
                 if (event.type == GRPC_OP_COMPLETE) __tsan_acquire(tag);
                 return event;
               })
TAKES_PLACE_OF(grpc_event, grpc_completion_queue_next,
               (grpc_completion_queue * queue, gpr_timespec deadline, void* reserved), {
                 const grpc_event event = next(queue, deadline, reserved);
                 if (event.type == GRPC_OP_COMPLETE) __tsan_acquire(event.tag);
                 return event;
               })

// A ServerCallbackCall's counters are private; these are its members.
struct ServerCallbackCallMembers {
  void* vtable;
  int on_cancel_conditions_remaining;
  int callbacks_outstanding;
};
static_assert(sizeof(ServerCallbackCallMembers) == sizeof(grpc::internal::ServerCallbackCall));

TAKES_PLACE_OF(void, _ZN4grpc8internal18ServerCallbackCall14ScheduleOnDoneEb,
               (ServerCallbackCallMembers * call, bool inline_ondone), {
                 __tsan_acquire(&call->callbacks_outstanding);
                 next(call, inline_ondone);
               })
TAKES_PLACE_OF(void, _ZN4grpc8internal18ServerCallbackCall12CallOnCancelEPNS0_13ServerReactorE,
               (ServerCallbackCallMembers * call, void* reactor), {
                 __tsan_acquire(&call->on_cancel_conditions_remaining);
                 next(call, reactor);
               })

}  // extern "C"
