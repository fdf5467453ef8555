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
  threads_.resize(order.num_threads());
  ++meeting_;
}

GridOrder::Thread& GridOrder::Self() {
  Thread& self = threads_[IdOf(order_->epoch())];
  if (self.meeting != meeting_) {
    self = Thread();
    self.meeting = meeting_;
    self.fenced = fenced_;
    self.told = all_told_;
    self.sure = all_sure_;
  }
  return self;
}

template <typename Mark, typename Learn>
void GridOrder::Gather(const std::vector<Mark>& marks, Unknown* unknown, const Learn& learn) {
  for (; unknown->next < marks.size(); ++unknown->next) {
    unknown->older.push_back(static_cast<uint32_t>(unknown->next));
  }
  std::erase_if(unknown->older, [&](uint32_t index) {
    const Mark& mark = marks[index];
    if (!order_->IsBefore(mark.at)) return false;
    learn(mark);
    return true;
  });
}

void GridOrder::Gather(const std::vector<PastMark>& marks, Unknown* unknown, Past* past) {
  Gather(marks, unknown, [&](const PastMark& mark) { *past = Join(*past, mark.past); });
}

void GridOrder::Fence() {
  const Epoch at = order_->epoch();
  Thread& self = Self();
  Gather(told_, &self.told_marks, &self.told);
  if (self.told != nullptr && self.told != all_sure_ && self.told != self.last_sure) {
    self.last_sure = self.told;
    sure_.push_back({.at = at, .past = self.told});
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
  Thread& self = Self();
  if (before == self.last_told) return;  // as a thread that waits sees again and again
  self.last_told = before;
  told_.push_back({.at = order_->epoch(), .past = before});
}

GridOrder::Past GridOrder::Release() {
  if (released_ != nullptr && fences_.empty() && sure_.empty()) return released_;
  Thread& self = Self();
  std::shared_ptr<Fenced> more;
  Gather(fences_, &self.fences, [&](const FenceMark& mark) {
    if (more == nullptr) {
      more = self.fenced == nullptr ? std::make_shared<Fenced>()
                                    : std::make_shared<Fenced>(*self.fenced);
    }
    Add(mark, more.get());
  });
  if (more != nullptr) self.fenced = std::move(more);
  Gather(sure_, &self.sure_marks, &self.sure);
  if (self.released == nullptr || self.fenced != self.released_fenced ||
      self.sure != self.released_sure) {
    self.released = Together(self.fenced, self.sure);
    self.released_fenced = self.fenced;
    self.released_sure = self.sure;
  }
  return self.released;
}

GridOrder::Past GridOrder::Together(std::shared_ptr<const Fenced> fenced, const Past& sure) const {
  if (fenced == nullptr) return nullptr;
  auto past = std::make_shared<std::vector<std::shared_ptr<const Fenced>>>(blocks_.size());
  past->back() = std::move(fenced);
  return Join(past, sure);
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
  fences_.clear();
  told_.clear();
  sure_.clear();
  ++meeting_;
  released_ = Together(fenced_, all_sure_);
}

bool GridOrder::IsKnown(Epoch e) {
  const size_t block = IndexOf(e);
  if (Covers(all_sure_, block, e)) return true;
  if (sure_.empty()) return false;
  Thread& self = Self();
  Gather(sure_, &self.sure_marks, &self.sure);
  return Covers(self.sure, block, e);
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

bool GridOrder::Fenced::Covers(const Fenced& other) const {
  if (base < other.base) return false;
  for (size_t t = 0; t < clocks.size(); ++t) {
    if (clocks[t] < other.clocks[t]) return false;
  }
  return true;
}

GridOrder::Past GridOrder::Join(const Past& a, const Past& b) {
  if (a == b || b == nullptr) return a;
  if (a == nullptr) return b;
  const std::shared_ptr<const Fenced> nothing;
  std::shared_ptr<std::vector<std::shared_ptr<const Fenced>>> both;  // null: `a` has all
  for (size_t i = 0; i < b->size(); ++i) {
    const std::shared_ptr<const Fenced>& to = i < a->size() ? (*a)[i] : nothing;
    const std::shared_ptr<const Fenced>& from = (*b)[i];
    if (from == nullptr || from == to || (to != nullptr && to->Covers(*from))) continue;
    if (both == nullptr) {
      both = std::make_shared<std::vector<std::shared_ptr<const Fenced>>>(*a);
      both->resize(std::max(a->size(), b->size()));
    }
    if (to == nullptr || from->Covers(*to)) {
      (*both)[i] = from;
      continue;
    }
    auto joined = std::make_shared<Fenced>(*to);
    joined->base = std::max(joined->base, from->base);
    for (size_t t = 0; t < joined->clocks.size(); ++t) {
      joined->clocks[t] = std::max(joined->clocks[t], from->clocks[t]);
    }
    (*both)[i] = std::move(joined);
  }
  if (both == nullptr) return a;
  return both;
}

}  // namespace reprise::emulator
