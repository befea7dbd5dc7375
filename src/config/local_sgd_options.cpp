#include "lockstep/config/config.hpp"
#include "lockstep/config/options.hpp"
#include "lockstep/core/error.hpp"
#include "option_groups.hpp"

namespace lockstep {

void validate_local_sgd(const Config& config) {
  const auto refuse = [&](const char* option, const char* why, const char* suggestion) {
    fail(ExitStatus::usage, "--sync-every {} does not go with --{} {} ({}); {}", config.sync_every,
         option, train_options().get(config, option), why, suggestion);
  };
  if (config.sync_every == 0) return;
  if (config.shard != ShardMode::none) {
    refuse("shard", "each rank needs a replica of its own", "drop one");
  }
  if (config.batch_norm == BatchNormScope::sync) {
    refuse("batch-norm", "its sums over ranks are what local steps avoid", "drop one");
  }
  if (config.precision == Precision::fp16) {
    refuse("precision", "ranks would skip different steps", "use bf16");
  }
  if (config.sync_start >= static_cast<double>(config.epochs)) {
    refuse("sync-start", "all epochs would end before", "lower it, or drop both");
  }
  const bool reduces_in_16_bits = config.grad_compression != GradCompression::none ||
                                  config.reduce_dtype == CommunicationDtype::bf16 ||
                                  config.reduce_dtype == CommunicationDtype::fp16;
  if (config.sync_start == 0 && reduces_in_16_bits) {
    fail(ExitStatus::usage,
         "--sync-every {} reduces no gradients in 16 bits (every step is local, and averages are "
         "in fp32); drop --grad-compression and --reduce-dtype, or set --sync-start",
         config.sync_every);
  }
}

}  // namespace lockstep
