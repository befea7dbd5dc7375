#include "lockstep/config/options.hpp"

#include "option_groups.hpp"

namespace lockstep {

const OptionTable<Config>& train_options() {
  static const OptionTable<Config> table = [] {
    OptionTable<Config> all;
    add_learning_options(all);
    add_running_options(all);
    return all;
  }();
  return table;
}

}  // namespace lockstep
