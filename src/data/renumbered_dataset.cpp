#include "lockstep/data/renumbered_dataset.hpp"

#include "lockstep/data/shard_copies.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace lockstep {
namespace {

class RenumberedDataset final : public Dataset {
 public:
  RenumberedDataset(std::unique_ptr<Dataset> data, ClassNumbering numbering, DatasetInfo info)
      : data_(std::move(data)), numbering_(std::move(numbering)), info_(std::move(info)) {}

  [[nodiscard]] const DatasetInfo& info() const noexcept override { return info_; }
  void read(std::int64_t index, RawSample& sample) const override {
    data_->read(index, sample);
    sample.label = numbering_[static_cast<std::size_t>(sample.label)];
  }
  [[nodiscard]] std::string describe(std::int64_t index) const override {
    return data_->describe(index);
  }
  [[nodiscard]] std::vector<ShardToCopy> shards_to_copy() const override {
    return data_->shards_to_copy();
  }
  void read_copies(const std::shared_ptr<const ShardCopies>& copies, std::size_t first) override {
    data_->read_copies(copies, first);
  }

 private:
  std::unique_ptr<Dataset> data_;
  ClassNumbering numbering_;
  DatasetInfo info_;
};

}  // namespace

std::unique_ptr<Dataset> renumber(std::unique_ptr<Dataset> data, RenumberedClasses classes) {
  DatasetInfo info = data->info();
  // Classes of the network that the data lacks have no samples either.
  std::vector<bool> is_empty(classes.class_names.size(), true);
  for (const std::int64_t number : classes.numbering) {
    is_empty[static_cast<std::size_t>(number)] = false;
  }
  for (const std::int64_t label : info.empty_classes) {
    is_empty[static_cast<std::size_t>(classes.numbering[static_cast<std::size_t>(label)])] = true;
  }
  info.empty_classes.clear();
  for (std::size_t i = 0; i < is_empty.size(); ++i) {
    if (is_empty[i]) info.empty_classes.push_back(static_cast<std::int64_t>(i));
  }
  info.classes = static_cast<std::int64_t>(classes.class_names.size());
  info.class_names = std::move(classes.class_names);
  info.identity = classes.identity;
  return std::make_unique<RenumberedDataset>(std::move(data), std::move(classes.numbering),
                                             std::move(info));
}

}  // namespace lockstep
