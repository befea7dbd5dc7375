#include "lockstep/checkpointing/state_snapshot.hpp"

#include "lockstep/engine/engine.hpp"
#include "lockstep/optim/weight_average.hpp"

#include <algorithm>
#include <numeric>
#include <span>

namespace lockstep {
namespace {

/// Touches every page, so that a lack of memory shows now and not during the run.
void touch(std::span<float> values) {
  constexpr std::size_t page = 4096 / sizeof(float);
#pragma omp parallel for schedule(static)
  for (std::size_t at = 0; at < values.size(); at += page) values[at] = 0;
}

}  // namespace

StateSnapshot::StateSnapshot(const Source& source, bool is_rank_0)
    : engine_(source.engine),
      transfer_(source.transfer),
      optimizer_(source.optimizer),
      average_(source.average),
      is_rank_0_(is_rank_0) {
  if (!is_rank_0) return;
  const std::size_t models = average_ != nullptr ? 2 : 1;
  statistics_.resize(models * engine_.running_statistics().size());
  copy_ = AlignedBuffer<float>((1 + optimizer_.slot_names().size()) * engine_.layout().size());
  touch(copy_.span());
  plan_entries();
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
  for (const std::size_t arena : by_name) {
    const std::string& group = groups[arena];
    // The arena is in backward's order, so the network's first layers are at its end.
    for (auto view = views.rbegin(); view != views.rend(); ++view) {
      const Parameter& parameter = parameters[static_cast<std::size_t>(view->parameter)];
      entries_.push_back({.group = group,
                          .parameter = view->parameter,
                          .begin = arena * engine_.layout().size() + view->offset,
                          .name = &parameter.name,
                          .shape = parameter.shape});
    }
    if (group == model_group) add_statistics(group, 0);
    if (group == ema_group) add_statistics(group, engine_.running_statistics().size());
  }
}

void StateSnapshot::add_statistics(const std::string& group, std::size_t begin) {
  for (const RunningStatistic& statistic : engine_.graph().statistics()) {
    entries_.push_back({.group = group,
                        .parameter = std::nullopt,
                        .begin = begin,
                        .name = &statistic.name,
                        .shape = Shape{statistic.channels}});
    begin += static_cast<std::size_t>(statistic.channels);
  }
}

void StateSnapshot::take() {
  const auto units = transfer_.units();
  const auto place = [&](std::size_t arena, const ArenaUnit& unit) {
    return is_rank_0_
               ? copy_.span().subspan(arena * engine_.layout().size() + unit.begin, unit.size())
               : std::span<float>();
  };
  for (std::size_t unit = 0; unit < units.size(); ++unit) {
    transfer_.gather_parameters(unit, place(0, units[unit]));
    for (std::size_t slot = 0; slot < optimizer_.slot_names().size(); ++slot) {
      transfer_.gather(unit, optimizer_.slot(slot), place(1 + slot, units[unit]));
    }
  }
  if (!is_rank_0_) return;
  const auto end = std::ranges::copy(engine_.running_statistics(), statistics_.begin()).out;
  if (average_ != nullptr) std::ranges::copy(average_->statistics(), end);
  next_entry_ = 0;
}

std::optional<StoredTensor> StateSnapshot::next() {
  if (next_entry_ == entries_.size()) return std::nullopt;
  const Entry& entry = entries_[next_entry_++];
  NamedTensor tensor{
      .name = *entry.name,
      .shape = entry.shape,
      .values = std::vector<float>(static_cast<std::size_t>(entry.shape.elements()))};
  if (entry.parameter) {
    const ArenaView& view = engine_.layout().view_of(*entry.parameter);
    engine_.to_plain(copy_.span().subspan(entry.begin, view.size), *entry.parameter, tensor.values);
  } else {
    std::copy_n(statistics_.begin() + static_cast<std::ptrdiff_t>(entry.begin),
                tensor.values.size(), tensor.values.begin());
  }
  return StoredTensor{.group = entry.group, .tensor = std::move(tensor)};
}

}  // namespace lockstep
