// SPDX-License-Identifier: Apache-2.0
// Blocks of a cluster that send to each other, over the device layer; see probe_kernels.h.
#include "kernels/device/matrix_group.h"
#include "kernels/device/thread.h"
#include "tests/emulator/probe_kernels.h"

namespace reprise::testing {

// Of a block, and what of it is whose.
class Ring {
 public:
  using Mistake = ClusterArgs::Mistake;
  explicit Ring(const ClusterArgs& args) : a_(args), self_(Block() % args.cluster) {}

  void Run() const {
    using namespace kernels::on_mma;  // the layer's, no more
    if (ThreadX() == 0) {
      BarrierInit(Full(), 1);
      BarrierInit(Empty(), 1);
    }
    if (a_.mistake == Mistake::kNotInitialised) {
      SyncBlock();
    } else {
      SyncCluster();
    }
    if (a_.mistake == Mistake::kEnds && self_ == 0) return;
    if (Warp() == 0) {
      Send();
    } else {
      Receive();
    }
    if (a_.mistake != Mistake::kNoBlockBarrier) SyncBlock();
    if (a_.mistake == Mistake::kDivergentCluster && self_ == 0) SyncCluster();
    if (Warp() == 0) a_.out[BlockX() * 32 + Lane()] = LoadShared<float>(Sum());
  }

 private:
  static int Block() { return kernels::on_mma::BlockX(); }
  static uint64_t* Full() { return reinterpret_cast<uint64_t*>(emulator::DynamicShared()); }
  static uint64_t* Empty() { return Full() + 1; }
  static uint32_t Slot() { return 64 + static_cast<uint32_t>(kernels::on_mma::Lane()) * 16; }
  static uint32_t Sum() { return 576 + static_cast<uint32_t>(kernels::on_mma::Lane()) * 4; }
  int Next() const { return (self_ + 1) % a_.cluster; }
  int Previous() const { return (self_ + a_.cluster - 1) % a_.cluster; }

  void Send() const {
    using namespace kernels::on_mma;
    if (a_.mistake == Mistake::kNoStore && self_ == a_.cluster - 1) return;
    const int to = a_.mistake == Mistake::kWrongBlock ? a_.cluster : Next();
    uint32_t slot = PeerAddress(Slot(), to);
    if (a_.mistake == Mistake::kNoPeerAddress) slot = Slot();
    if (a_.mistake == Mistake::kUnaligned) slot += 8;
    if (a_.mistake == Mistake::kBeyond) slot += kClusterSharedBytes;
    const int counts = a_.mistake == Mistake::kOwnBarrier ? self_ : to;
    const uint32_t full = PeerAddress(SharedAddress(Full()), counts);
    for (uint32_t round = 0; round < a_.rounds; ++round) {
      if (round > 0 && a_.mistake != Mistake::kNoWaitForEmpty)
        BarrierWaitForPeers(Empty(), round - 1);
      const auto x = static_cast<float>(Block() * 1000 + static_cast<int>(round) * 32 + Lane());
      StoreAtPeer(slot, {{x, x + 1, x + 2, x + 3}}, full);
    }
    if (a_.mistake == Mistake::kReadsPeer) LoadShared<float>(slot);
  }

  void Receive() const {
    using namespace kernels::on_mma;
    const uint32_t empty = PeerAddress(SharedAddress(Empty()), Previous());
    float sum = 0;
    for (uint32_t round = 0; round < a_.rounds; ++round) {
      if (Lane() == 0) BarrierArriveExpectBytes(Full(), 32 * 16);
      if (a_.mistake == Mistake::kPlainWait) {
        BarrierWait(Full(), round);
      } else if (a_.mistake != Mistake::kNoWait) {
        BarrierWaitForPeers(Full(), round);
      }
      sum += SumOf(LoadShared<Vec<float, 4>>(Slot() ^ 16));  // another lane's
      if (a_.mistake != Mistake::kNotFinished) FinishSharedReads();
      if (a_.mistake != Mistake::kNoSyncWarp) SyncWarp();
      const bool goes_on = round + 1 < a_.rounds || a_.mistake == Mistake::kArrivalTooMany;
      if (Lane() == 0 && goes_on && a_.mistake != Mistake::kNoArrival) BarrierArriveAtPeer(empty);
    }
    StoreShared(Sum(), sum);
  }
  static float SumOf(const kernels::on_mma::Vec<float, 4>& x) {
    return x.v[0] + x.v[1] + x.v[2] + x.v[3];
  }

  const ClusterArgs& a_;
  const int self_;  // of the cluster
};

void PassAround(void* args) { Ring(*static_cast<const ClusterArgs*>(args)).Run(); }

void TellPeerByGlobal(void* args) {
  using namespace kernels::on_mma;
  const auto& a = *static_cast<const ClusterGlobalArgs*>(args);
  auto* const told = reinterpret_cast<uint64_t*>(emulator::DynamicShared());
  const int self = BlockX() % 2;
  if (ThreadX() == 0) BarrierInit(told, 1);
  SyncCluster();
  if (ThreadX() == 0) a.words[BlockX()] = static_cast<uint32_t>(BlockX() + 1);
  if (!a.conflicting) SyncCluster();
  if (ThreadX() != 0) return;
  if (a.conflicting) {
    BarrierArriveAtPeer(PeerAddress(SharedAddress(told), 1 - self));
    BarrierWaitForPeers(told, 0);
  }
  a.out[BlockX()] = a.words[BlockX() ^ 1];
}

}  // namespace reprise::testing
