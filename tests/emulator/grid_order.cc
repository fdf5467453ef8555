// SPDX-License-Identifier: Apache-2.0
// What blocks tell each other by fences and atomics; see grid_order.h.
#include "tests/emulator/grid_order.h"

#include <algorithm>
#include <utility>

namespace reprise::emulator {

void GridOrder::BeginLaunch() {
  blocks_.clear();
  told_at_.clear();
}

void GridOrder::BeginBlock(const Order& order, unsigned x, unsigned y) {
  blocks_.push_back({.first = order.first_epoch(), .x = x, .y = y});
  order_ = &order;
  has_fenced_ = false;
  fenced_ = nullptr;
  all_told_ = all_sure_ = released_ = nullptr;
  fences_.clear();
  told_.clear();
  sure_.clear();
  sure_of_thread_.assign(order.num_threads(), nullptr);
}

void GridOrder::Fence() {
  const Epoch at = order_->epoch();
  if (Past told = Known(all_told_, told_); told != nullptr && told != all_sure_) {
    sure_of_thread_[IdOf(at)] = told;
    sure_.push_back({.at = at, .past = std::move(told)});
  }
  FenceMark mark{
      .at = at, .block_base = order_->block_base(), .warp_base = order_->warp_base(), .known = {}};
  if (const uint32_t* clocks = order_->known_clocks(); clocks != nullptr) {
    mark.known.assign(clocks, clocks + order_->num_threads());
  }
  fences_.push_back(std::move(mark));
  has_fenced_ = true;
}

void GridOrder::Meet(const void* address, bool reads, bool writes) {
  const auto it = told_at_.find(address);
  const Past before = it == told_at_.end() ? nullptr : it->second;
  if (writes) {
    if (Past mine = Release(); mine != nullptr) told_at_[address] = Join(before, mine);
  }
  if (!reads || before == nullptr || before == all_told_) return;
  told_.push_back({.at = order_->epoch(), .past = before});
}

GridOrder::Past GridOrder::Release() const {
  if (released_ != nullptr && fences_.empty() && sure_.empty()) return released_;
  std::shared_ptr<const Fenced> fenced = fenced_;
  std::shared_ptr<Fenced> more;
  for (const FenceMark& mark : fences_) {
    if (!order_->IsBefore(mark.at)) continue;
    if (more == nullptr) {
      more = fenced == nullptr ? std::make_shared<Fenced>() : std::make_shared<Fenced>(*fenced);
    }
    Add(mark, more.get());
  }
  if (more != nullptr) fenced = std::move(more);
  if (fenced == nullptr) return nullptr;
  auto past = std::make_shared<std::vector<std::shared_ptr<const Fenced>>>(blocks_.size());
  past->back() = std::move(fenced);
  return Join(past, Known(all_sure_, sure_));
}

void GridOrder::Add(const FenceMark& mark, Fenced* to) const {
  to->clocks.resize(order_->num_threads());
  to->base = std::max(to->base, mark.block_base);
  const unsigned id = IdOf(mark.at);
  if (mark.warp_base > mark.block_base) {
    const unsigned begin = id / order_->warp_size() * order_->warp_size();
    for (unsigned i = begin; i < begin + order_->warp_size(); ++i) {
      to->clocks[i] = std::max(to->clocks[i], ClockOf(mark.warp_base) - 1);
    }
  }
  for (unsigned i = 0; i < mark.known.size(); ++i) {
    to->clocks[i] = std::max(to->clocks[i], mark.known[i]);
  }
  to->clocks[id] = std::max(to->clocks[id], ClockOf(mark.at));
}

void GridOrder::Fold() {
  if (!fences_.empty()) {
    auto fenced =
        fenced_ == nullptr ? std::make_shared<Fenced>() : std::make_shared<Fenced>(*fenced_);
    for (const FenceMark& mark : fences_) Add(mark, fenced.get());
    fenced_ = std::move(fenced);
  }
  for (const PastMark& mark : told_) all_told_ = Join(all_told_, mark.past);
  for (const PastMark& mark : sure_) all_sure_ = Join(all_sure_, mark.past);
  if (!sure_.empty()) std::fill(sure_of_thread_.begin(), sure_of_thread_.end(), nullptr);
  fences_.clear();
  told_.clear();
  sure_.clear();
  released_ = nullptr;
  released_ = Release();
}

bool GridOrder::IsKnown(Epoch e) const {
  const size_t block = IndexOf(e);
  if (Covers(all_sure_, block, e)) return true;
  if (Covers(sure_of_thread_[IdOf(order_->epoch())], block, e)) return true;
  return std::any_of(sure_.begin(), sure_.end(), [&](const PastMark& mark) {
    return order_->IsBefore(mark.at) && Covers(mark.past, block, e);
  });
}

size_t GridOrder::IndexOf(Epoch e) const {
  const auto after = std::upper_bound(blocks_.begin(), blocks_.end(), e,
                                      [](Epoch a, const Block& b) { return a < b.first; });
  return static_cast<size_t>(after - blocks_.begin()) - 1;
}

bool GridOrder::Covers(const Past& past, size_t block, Epoch e) const {
  if (past == nullptr || block >= past->size()) return false;
  const std::shared_ptr<const Fenced>& fenced = (*past)[block];
  return fenced != nullptr && fenced->Covers(e);
}

GridOrder::Past GridOrder::Known(const Past& common, const std::vector<PastMark>& marks) const {
  Past known = common;
  for (const PastMark& mark : marks) {
    if (order_->IsBefore(mark.at)) known = Join(known, mark.past);
  }
  return known;
}

GridOrder::Past GridOrder::Join(const Past& a, const Past& b) {
  if (a == b || b == nullptr) return a;
  if (a == nullptr) return b;
  auto both = std::make_shared<std::vector<std::shared_ptr<const Fenced>>>(*a);
  if (both->size() < b->size()) both->resize(b->size());
  for (size_t i = 0; i < b->size(); ++i) {
    std::shared_ptr<const Fenced>& to = (*both)[i];
    const std::shared_ptr<const Fenced>& from = (*b)[i];
    if (from == nullptr || from == to) continue;
    if (to == nullptr) {
      to = from;
      continue;
    }
    auto joined = std::make_shared<Fenced>(*to);
    joined->base = std::max(joined->base, from->base);
    for (size_t t = 0; t < joined->clocks.size(); ++t) {
      joined->clocks[t] = std::max(joined->clocks[t], from->clocks[t]);
    }
    to = std::move(joined);
  }
  return both;
}

}  // namespace reprise::emulator
