// SPDX-License-Identifier: Apache-2.0
// Small kernels written directly over the emulator's contract, right ones and broken ones. The
// sources are compiled as emulated kernels; tests run them with RunBlock.
#ifndef REPRISE_TESTS_EMULATOR_PROBE_KERNELS_H_
#define REPRISE_TESTS_EMULATOR_PROBE_KERNELS_H_

#include <cstdint>

#include "runtime/tile_map.h"

namespace reprise::testing {

// ---- reduction_kernels.cc ----

struct ReductionArgs {
  const float* x = nullptr;  // [threads]
  float* out = nullptr;      // [1]
};
// out = sum of x: shuffles within warps, then shared memory. dynamic shared: 4 bytes a warp.
void BlockSum(void* args);
// out = sum of x by a tree in shared memory. dynamic shared: 4 bytes a thread.
void TreeSum(void* args);
// The same without the barrier between two levels of the tree.
void TreeSumWithoutBarrier(void* args);

struct ShuffleArgs {
  uint32_t* out = nullptr;  // [threads]
};
// out[t] = the thread that is `1` lane further, in its warp; 100 rounds of 1, 2, 3, ...
void RotateLanes(void* args);

// ---- race_kernels.cc. dynamic shared: 4 bytes a thread, `out`: [threads] ----

struct RaceArgs {
  uint32_t* out = nullptr;
  bool synchronised = false;  // with the barrier that makes it right
};
void ReadNeighbour(void* args);        // a write, then another thread's read
void OverwriteNeighbour(void* args);   // a read, then another thread's write
void WriteSameWord(void* args);        // two writes of one word
void ReadNeighbourInWarp(void* args);  // synchronised: by the warp's barrier
void ReadOtherWarp(void* args);        // synchronised: by the warp's barrier, which is not enough
void StoreHalves(void* args);          // 16-bit stores of neighbours to one word
void StoreOverlappingHalves(void* args);  // 16-bit stores over another's word
void CountTogether(void* args);      // atomics of all threads on one word, read after a barrier
void ReadCountTooEarly(void* args);  // the same read without the barrier
void BroadcastThenOverwrite(void* args);  // all read one word, one overwrites it
void CopyStruct(void* args);              // a structure of 32 bytes, copied by the C library
void ShareStatics(void* args);            // static variables of two keys
void LastArriver(void* args);             // orders by an atomic that releases and acquires

// ---- flag_kernels.cc ----

// The first warp of block 0 writes `values`, counts what it has written in `flag`, and every other
// thread of the grid reads one of them once it has waited for that.
struct FlagArgs {
  enum class Mistake { kNone, kNotReleased, kNotWaited, kNeverAdded };
  uint32_t* values = nullptr;  // [32]
  uint32_t* flag = nullptr;    // zero before
  uint32_t* out = nullptr;     // [blocks, threads]
  Mistake mistake = Mistake::kNone;
};
void WaitForFlag(void* args);

// ---- grid_kernels.cc ----

// out = sums over a grid, put together by the last block to arrive. dynamic shared: 4 bytes.
struct GridArgs {
  uint32_t* partials = nullptr;  // [blocks, threads]
  uint32_t* counter = nullptr;   // [1], 0 at first and at last
  uint32_t* out = nullptr;       // [threads]
  enum class Fences : uint8_t {
    kEveryThread,  // around the barriers
    kOneThread,    // within them
    kInAtomic,     // the atomic releases and acquires
  } fences = Fences::kEveryThread;
  enum class Mistake : uint8_t {
    kNone,
    kNoFenceBefore,    // what was written is not released
    kNoFenceBehind,    // what was told is not acquired
    kNoBarrierBefore,  // others of the block may not have written yet
    kPlainCounter,     // counts without an atomic
    kEarlyReset,       // sets the counter to zero before all have arrived
    kFirstReads,       // reads behind the first arrival, not the last
    kEarlyRead,        // reads what is its own to read at last, and another's before
  } mistake = Mistake::kNone;
};
void SumOverGrid(void* args);

struct GridRaceArgs {
  uint32_t* words = nullptr;  // [blocks + 1] or more
  bool conflicting = false;
};
void StoreToOneWord(void* args);    // or each block to its own
void StoreToHalfWord(void* args);   // each block its half; conflicting: the whole
void StoreToByte(void* args);       // each block its byte; conflicting: two bytes
void ReadOthersInput(void* args);   // all read one word; conflicting: and a block writes it
void ShiftInPlace(void* args);      // each block writes its word; conflicting: and reads the next
void CopyOthersOutput(void* args);  // conflicting: by an asynchronous copy. dynamic shared: 16
void PassAlong(void* args);         // block i reads what i - 1 wrote; conflicting: and 0 no fence
void ShiftInBlock(void* args);      // threads of one block; conflicting: without a barrier
void CountInBlock(void* args);      // the same by fences and atomics; conflicting: without fences
void ReadParameters(void* args);    // of a launch, by all

// A launch that waits for the one before: every block writes its word and reads a word behind all
// of them.
struct WaitArgs {
  uint32_t* words = nullptr;  // [blocks + 1]
  enum class Mistake : uint8_t {
    kNone,
    kReadsFirst,      // the last word, then waits
    kWritesFirst,     // its own, then waits
    kLetsBeginFirst,  // lets the next begin, then waits
    kBlock0Leaves,    // without waiting
    kBeginsFirst,     // no mistake by itself: LetNextBeginFirst
  } mistake = Mistake::kNone;
};
void WriteAfterWaiting(void* args);

// ---- misuse_kernels.cc ----

void BarrierInBranch(void* args);        // two barriers, half of the block at each
void BarrierForSome(void* args);         // the second half of the block returns first
void BarrierInLoop(void* args);          // one barrier, a different number of times
void BarrierInUnrolledLoop(void* args);  // right; compilers copy the call
void ExchangeForSome(void* args);        // half of a warp
void ExchangeOfTwoSizes(void* args);
void ExchangeAgainstSync(void* args);
void ReadBeyondDynamic(void* args);
void WriteBeforeDynamic(void* args);
void WriteBeyondStatic(void* args);
void WriteStatic(void* args);
void ReadUninitialised(void* args);
void ReadHalfInitialised(void* args);  // a word of which 2 bytes are written
void Throw(void* args);

// ---- wrapper_kernels.cc ----

void BarrierBehindWrapper(void* args);  // as BarrierInBranch, both by Block::Sync

// out = sums over a grid as in SumOverGrid, each thread its neighbour's, by Block::ArriveIsLast,
// round after round.
struct ArriveArgs {
  int rounds = 1;
  uint32_t* partials = nullptr;  // [rounds, blocks, threads]
  uint32_t* counters = nullptr;  // [rounds], 0 at first and at last
  uint32_t* out = nullptr;       // [rounds, threads]
};
void ArriveAgain(void* args);

// ---- copy_kernels.cc ----

// Loads `rows` tiles of one 16-byte vector a thread and adds them up. dynamic shared: 16 bytes a
// thread and stage.
struct CopyArgs {
  const float* x = nullptr;  // [rows, threads, 4]
  float* out = nullptr;      // [threads, 4]
  int rows = 1;
  enum class Mistake : uint8_t {
    kNone,
    kNoWait,           // reads before the copy landed
    kWaitTooLittle,    // leaves one group too many in flight
    kNoBarrier,        // another thread's copy, after its wait, without a barrier
    kNoBarrierBefore,  // starts a copy over what others may still read
    kNeverWaited,      // ends with copies in flight
    kNoExpect,         // bulk copies that nobody announced
    kArriveTooEarly,   // a consumer frees the stage before it has read it
    kNoInitBarrier,    // uses a barrier that nobody has ordered after its initialisation
  } mistake = Mistake::kNone;
};
// Every thread copies its own vector and reads its neighbour's. Stages: 2.
void CopyAsyncPipeline(void* args);
// Copies 16 bytes to a place between two vectors.
void CopyToUnaligned(void* args);
// One warp copies by CopyBulk, the others read, with full and empty barriers. Stages: 2; dynamic
// shared: 64 bytes more for the barriers, first.
void CopyBulkPipeline(void* args);

// Thread 0 copies 16 bytes of x, which complete one barrier, thread 1 stores -1 and arrives at
// another; the other threads wait for either, and put out one of the two. dynamic shared: 64 bytes.
struct EitherArgs {
  const float* x = nullptr;  // [4]
  float* out = nullptr;      // [threads]
  bool copies = false;
  bool arrives = false;
  bool reads_copied = false;
  uint32_t phase = 0;
};
void WaitForEither(void* args);

// out = a tile of a matrix as it lands: thread 0 copies it, all others wait for it and store what
// lies there. dynamic shared: 2048 bytes more than the tile, its last 8 for the barrier.
struct TileArgs {
  runtime::TileMap map = {};
  int32_t at[4] = {};
  int rank = 2;
  uint32_t elements = 0;  // of a tile, each of 16 bits
  uint16_t* out = nullptr;
  enum class Mistake : uint8_t {
    kNone,
    kNoWait,       // reads before the copy landed
    kTooFewBytes,  // announces less than a tile
    kUnaligned,    // to a place between two rows of 1024 bytes
    kNegative,     // from an element before the first
  } mistake = Mistake::kNone;
};
void CopyTileOut(void* args);

// ---- cluster_kernels.cc. 64 threads; dynamic shared: kClusterSharedBytes ----

// Round by round, each block of a cluster sends 16 bytes a lane to the next one's only slot, and
// adds up what it gets: warp 0 sends, warp 1 receives.
struct ClusterArgs {
  int cluster = 2;
  uint32_t rounds = 1;
  float* out = nullptr;  // [blocks, 32]: sums
  enum class Mistake : uint8_t {
    kNone,
    kNotInitialised,    // barriers, for the peers: the block alone meets
    kNoWait,            // reads before what is sent has landed
    kPlainWait,         // as for what the block itself brings
    kNoWaitForEmpty,    // sends over what may still be read
    kNotFinished,       // says that it has read before the reads have finished
    kNoSyncWarp,        // says so for other lanes too, which may not have read
    kNoArrival,         // never says so
    kArrivalTooMany,    // says so after the last round, when nobody waits for it
    kNoStore,           // the last block never sends
    kEnds,              // block 0 ends at once
    kWrongBlock,        // sends to a block that there is not
    kUnaligned,         // sends to between two places
    kBeyond,            // sends to behind shared memory
    kOwnBarrier,        // sends for a barrier that is not the peer's
    kReadsPeer,         // reads the peer's memory as if it was the block's own
    kNoPeerAddress,     // sends to an address of the block's own
    kNoBlockBarrier,    // between the warps of a block, at last
    kDivergentCluster,  // one block comes to the cluster's barrier once more
  } mistake = Mistake::kNone;
};
inline constexpr unsigned kClusterSharedBytes = 1024;
void PassAround(void* args);

// Each block writes a word, and the other block of its cluster reads it, once all of them have met;
// conflicting: once the other has arrived at the block's barrier, which says nothing of what was
// written.
struct ClusterGlobalArgs {
  uint32_t* words = nullptr;  // [blocks]
  uint32_t* out = nullptr;    // [blocks]
  bool conflicting = false;
};
void TellPeerByGlobal(void* args);

// ---- schedule_kernels.cc ----

struct OrderArgs {
  uint32_t* count = nullptr;  // 0 at first
  uint32_t* order = nullptr;  // [2 * threads]
};
// order = the threads in the order in which they ran: until a barrier, then after it.
void RecordOrder(void* args);

// The argument is an int: how often.
void MeetOften(void* rounds);            // block barriers
void MeetInWarpsOften(void* rounds);     // warp barriers
void MeetOnABarrierOften(void* rounds);  // phases of a barrier in shared memory
void AccessOften(void* rounds);          // 8 reads each; dynamic shared: 32 bytes a thread
void AccessGlobalOften(void* rounds);    // 8 reads each; 256 threads

}  // namespace reprise::testing

#endif  // REPRISE_TESTS_EMULATOR_PROBE_KERNELS_H_
