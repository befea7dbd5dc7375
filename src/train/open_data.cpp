#include "open_data.hpp"

#include "lockstep/config/config.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/train/run_plan.hpp"

#include <algorithm>
#include <cstdint>

namespace lockstep {

std::unique_ptr<Dataset> open_training_data(const Config& config, Communicator& comm) {
  if (!config.synthetic) return open_dataset(config.data, "train", comm);
  std::int64_t size = config.image_size != 0 ? config.image_size : default_image_size;
  for (const ImageSizeChange& change : config.image_size_schedule) {
    size = std::max(size, change.size);
  }
  return make_synthetic_dataset({.samples = config.synthetic_samples,
                                 .image = {.channels = config.channels != 0 ? config.channels : 3,
                                           .height = size,
                                           .width = size},
                                 .classes = config.classes != 0 ? config.classes : 1000,
                                 .seed = static_cast<std::uint64_t>(config.seed)});
}

MatchedData open_validation_data(const Config& config, const ClassNames& network,
                                 Communicator& comm) {
  if (config.synthetic) return {};
  bool present = false;
  collectively(comm, [&] { present = comm.rank() != 0 || has_split(config.val_data, "val"); });
  if (comm.all_reduce_value<std::int32_t>(present ? 1 : 0, ReduceOp::min) == 0) return {};
  MatchedData matched = match_data(network, open_dataset(config.val_data, "val", comm));
  const std::int64_t classes = matched.data->info().classes;
  if (classes > config.classes) {
    fail(ExitStatus::usage,
         "the validation split of {} has {} classes, but the network has {} (its labels need an "
         "output each); number the classes of both splits alike, from 0, or give --classes {} if "
         "training lacks the others",
         config.val_data, classes, config.classes, classes);
  }
  return matched;
}

}  // namespace lockstep
