#include "lockstep/checkpointing/state_snapshot.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/optim/weight_average.hpp"

#include <algorithm>
#include <chrono>
#include <numeric>

namespace lockstep {
namespace {

/// Touches every page, so that a lack of memory shows now and not during the run.
void touch(std::span<float> values) {
  constexpr std::size_t page = 4096 / sizeof(float);
#pragma omp parallel for schedule(static)
  for (std::size_t at = 0; at < values.size(); at += page) values[at] = 0;
}

}  // namespace

StateSnapshot::StateSnapshot(const Source& source, bool is_rank_0, std::size_t gathered_values)
    : engine_(source.engine),
      transfer_(source.transfer),
      optimizer_(source.optimizer),
      average_(source.average),
      is_rank_0_(is_rank_0),
      sharded_(engine_.layout().is_sharded()) {
  if (is_rank_0) {
    const std::size_t models = average_ != nullptr ? 2 : 1;
    statistics_.resize(models * engine_.running_statistics().size());
  }
  plan_entries();
  std::size_t size = 0;
  for (const Item& item : items_) {
    offsets_.push_back(size);
    size += contribution(item).size();
  }
  offsets_.push_back(size);
  copy_ = AlignedBuffer<float>(size);
  touch(copy_.span());
  if (!is_rank_0 || !sharded_) return;
  places_.resize(items_.size());
  buffer_size_ =
      gather_buffer_size(transfer_.units(), 1 + optimizer_.slot_names().size(), gathered_values);
}

void StateSnapshot::plan_entries() {
  std::vector<std::string> groups{model_group};
  for (const std::string& slot : optimizer_.slot_names()) {
    groups.push_back(slot == ema_slot ? std::string(ema_group) : slot_group(slot));
  }
  std::vector<std::size_t> by_name(groups.size());
  std::iota(by_name.begin(), by_name.end(), std::size_t{0});
  std::ranges::sort(by_name.begin() + 1, by_name.end(), {},
                    [&](std::size_t arena) { return groups[arena]; });
  const auto& parameters = engine_.graph().parameters();
  const auto& views = engine_.layout().views;
  const auto units = transfer_.units();
  for (const std::size_t arena : by_name) {
    const std::string& group = groups[arena];
    // The arena is in backward's order, so the network's first layers are at its end.
    auto view = views.rbegin();
    for (std::size_t unit = units.size(); unit-- > 0;) {
      for (; view != views.rend() && view->offset >= units[unit].begin; ++view) {
        const auto index = static_cast<std::size_t>(view->parameter);
        entries_.push_back({.group = group,
                            .item = items_.size(),
                            .index = index,
                            .name = &parameters[index].name,
                            .shape = parameters[index].shape});
      }
      items_.push_back({.arena = arena, .unit = unit});
    }
    if (group == model_group) add_statistics(group, 0);
    if (group == ema_group) add_statistics(group, engine_.running_statistics().size());
  }
}

void StateSnapshot::add_statistics(const std::string& group, std::size_t begin) {
  for (const RunningStatistic& statistic : engine_.graph().statistics()) {
    entries_.push_back({.group = group,
                        .item = std::nullopt,
                        .index = begin,
                        .name = &statistic.name,
                        .shape = Shape{statistic.channels}});
    begin += static_cast<std::size_t>(statistic.channels);
  }
}

std::span<const float> StateSnapshot::contribution(const Item& item) {
  return item.arena == 0 ? transfer_.local_parameters(item.unit)
                         : transfer_.local_values(item.unit, optimizer_.slot(item.arena - 1));
}

void StateSnapshot::take() {
  for (std::size_t item = 0; item < items_.size(); ++item) {
    const std::span<const float> part = contribution(items_[item]);
    engine_.memory().read(part, copy_.span().subspan(offsets_[item], part.size()));
  }
  if (buffer_.size() != buffer_size_) {
    buffer_ = AlignedBuffer<float>(buffer_size_);
    touch(buffer_.span());
  }
  if (is_rank_0_) {
    const auto end = std::ranges::copy(engine_.running_statistics(), statistics_.begin()).out;
    if (average_ != nullptr) std::ranges::copy(average_->statistics(), end);
  }
  next_entry_ = 0;
  sent_ = 0;
  const std::lock_guard lock(mutex_);
  written_ = 0;
  arrived_ = 0;
  given_up_ = false;
  waited_ = 0;
}

std::size_t StateSnapshot::size_of(std::size_t item) const {
  return transfer_.units()[items_[item].unit].size();
}

std::optional<std::size_t> StateSnapshot::place_behind(std::size_t first, std::size_t end,
                                                       std::size_t size) const {
  if (first == end) return 0;
  const std::size_t used_from = places_[first];
  const std::size_t used_to = places_[end - 1] + size_of(end - 1);
  const bool wraps = used_to <= used_from;
  if (used_to + size <= (wraps ? used_from : buffer_size_)) return used_to;
  return wraps || size > used_from ? std::nullopt : std::optional<std::size_t>(0);
}

int StateSnapshot::wanted() {
  if (!sharded_) return 0;
  const std::lock_guard lock(mutex_);
  std::size_t item = sent_;
  for (; item < items_.size(); ++item) {
    const auto place = place_behind(written_, item, size_of(item));
    if (!place) break;
    places_[item] = *place;
  }
  return static_cast<int>(item - sent_);
}

void StateSnapshot::deliver(int units) {
  for (; units > 0; --units, ++sent_) {
    const std::span<float> unsharded =
        is_rank_0_ ? buffer_.span().subspan(places_[sent_], size_of(sent_)) : std::span<float>();
    const std::size_t begin = offsets_[sent_];
    transfer_.gather(items_[sent_].unit, copy_.span().subspan(begin, offsets_[sent_ + 1] - begin),
                     unsharded);
    if (!is_rank_0_) continue;
    const std::lock_guard lock(mutex_);
    ++arrived_;
    moved_.notify_one();
  }
}

std::span<const float> StateSnapshot::unit_values_of(std::size_t item) {
  if (!sharded_) {
    return copy_.span().subspan(offsets_[item], offsets_[item + 1] - offsets_[item]);
  }
  std::unique_lock lock(mutex_);
  written_ = item;
  const auto begin = std::chrono::steady_clock::now();
  moved_.wait(lock, [&] { return given_up_ || arrived_ > item; });
  waited_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (given_up_) {
    fail(ExitStatus::cannot_write,
         "the state was not gathered (the run ended before); resume from an older "
         "checkpoint");
  }
  return buffer_.span().subspan(places_[item], size_of(item));
}

std::optional<StoredTensor> StateSnapshot::next() {
  if (next_entry_ == entries_.size()) return std::nullopt;
  const Entry& entry = entries_[next_entry_++];
  NamedTensor tensor{
      .name = *entry.name,
      .shape = entry.shape,
      .values = std::vector<float>(static_cast<std::size_t>(entry.shape.elements()))};
  if (entry.item) {
    const auto parameter = static_cast<ParameterId>(entry.index);
    const ArenaView& view = engine_.layout().view_of(parameter);
    const std::size_t begin = transfer_.units()[items_[*entry.item].unit].begin;
    engine_.to_plain(unit_values_of(*entry.item).subspan(view.offset - begin, view.size), parameter,
                     tensor.values);
  } else {
    std::copy_n(statistics_.begin() + static_cast<std::ptrdiff_t>(entry.index),
                tensor.values.size(), tensor.values.begin());
  }
  return StoredTensor{.group = entry.group, .tensor = std::move(tensor)};
}

double StateSnapshot::waited_seconds() {
  const std::lock_guard lock(mutex_);
  return waited_;
}

void StateSnapshot::give_up() {
  const std::lock_guard lock(mutex_);
  given_up_ = true;
  moved_.notify_one();
}

}  // namespace lockstep
