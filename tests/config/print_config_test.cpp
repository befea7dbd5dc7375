#include <boost/test/unit_test.hpp>

#include "lockstep/config/option_table.hpp"
#include "lockstep/config/options.hpp"
#include "lockstep/core/loss_options.hpp"

#include <algorithm>
#include <cmath>
#include <random>

using namespace lockstep;

namespace {

using Random = std::mt19937_64;

std::int64_t whole(Random& random, std::int64_t least, std::int64_t most) {
  return std::uniform_int_distribution<std::int64_t>(least, most)(random);
}
double real(Random& random, double least, double most) {
  return std::uniform_real_distribution<double>(least, most)(random);
}
bool coin(Random& random) {
  return whole(random, 0, 1) == 1;
}
std::string text(Random& random) {
  static const std::string letters = "abcXYZ019/._-=%[]'\" :,;$ü";
  std::string result = "p";
  for (auto left = whole(random, 0, 12); left > 0; --left) {
    result += letters[static_cast<std::size_t>(whole(random, 0, std::ssize(letters) - 1))];
  }
  result += 'q';  // a final blank would not be read back
  return result;
}
std::vector<double> list(Random& random, double least, double most) {
  std::vector<double> values(static_cast<std::size_t>(whole(random, 0, 4)));
  for (double& value : values) value = real(random, least, most);
  return values;
}

/// A configuration with random members, each within its option's range.
Config random_config(Random& random) {
  Config c;
  c.model = text(random);
  c.width = whole(random, 0, 65536);
  c.zero_init_residual = coin(random);
  c.stem = static_cast<Stem>(whole(random, 0, 3));
  c.shortcut = static_cast<Shortcut>(whole(random, 0, 1));
  c.stochastic_depth = real(random, 0, 0.99);
  c.data = coin(random) ? text(random) : std::string();
  c.val_data = coin(random) ? text(random) : std::string();
  c.image_size = whole(random, 0, 16384);
  for (std::int64_t left = whole(random, 0, 3); left > 0; --left) {
    c.image_size_schedule.push_back(
        {.size = whole(random, 1, 16384), .epoch = whole(random, 1, 1000000)});
  }
  c.eval_size = whole(random, 0, 16384);
  if (coin(random)) {
    c.eval_crop_ratio = real(random, 1e-6, 1);
  } else {
    c.eval_resize = whole(random, 0, 16384);
  }
  c.eval_interpolation = static_cast<ResizeFilter>(whole(random, 0, 1));
  c.train_interpolation = static_cast<ResizeFilter>(whole(random, 0, 2));
  c.channels = whole(random, 0, 1024);
  c.classes = whole(random, 0, 1 << 24);
  c.mean = list(random, 0, 1);
  c.std = list(random, 1e-9, 1);
  c.augment = static_cast<Augment>(whole(random, 0, 2));
  c.crop_padding = whole(random, 0, 4096);
  c.auto_augment = static_cast<AutoAugment>(whole(random, 0, 2));
  c.randaugment_ops = whole(random, 1, 64);
  c.randaugment_magnitude = whole(random, 0, 1023);
  c.randaugment_bins = whole(random, 2, 1024);
  c.auto_augment_interpolation = static_cast<Interpolation>(whole(random, 0, 1));
  c.repeated_augmentation = whole(random, 1, 1024);
  c.random_erasing = real(random, 0, 1);
  c.mixup = real(random, 0, 1000);
  c.cutmix = real(random, 0, 1000);
  c.shuffle_block = whole(random, 1, 1 << 20);
  c.stage_dir = coin(random) ? text(random) : std::string();
  c.synthetic = coin(random);
  c.synthetic_samples = whole(random, 1, 1 << 20);
  c.epochs = whole(random, 1, 1000000);
  c.max_steps = whole(random, 0, std::int64_t{1} << 50);
  (coin(random) ? c.batch_size : c.global_batch_size) = whole(random, 0, 1 << 24);
  c.accumulate = whole(random, 1, 65536);
  c.allow_batch_change = coin(random);
  c.optimizer = static_cast<OptimizerKind>(whole(random, 0, 3));
  c.lr = real(random, 0, 10);
  c.lr_base_batch = whole(random, 0, 1 << 20);
  c.lr_schedule = static_cast<LrSchedule>(whole(random, 0, 3));
  c.milestones = list(random, 0, 90);
  c.lr_gamma = real(random, 1e-6, 1);
  c.lr_min = real(random, 0, 1);
  c.lr_power = real(random, 1e-6, 9);
  c.warmup_epochs = real(random, 0, 9);
  c.momentum = real(random, 0, 1);
  c.nesterov = coin(random);
  c.beta1 = real(random, 0, 0.99);
  c.beta2 = real(random, 0, 0.99);
  c.eps = std::pow(10.0, real(random, -200, 0));
  c.weight_decay = real(random, 0, 1);
  c.decay_norm_and_bias = coin(random);
  for (auto left = whole(random, 0, 2); left > 0; --left) {
    c.freeze.push_back("layer" + std::to_string(left) + ".*");
    c.lr_scale.push_back({.pattern = "fc=*?[ab]", .factor = real(random, 1e-9, 100)});
  }
  c.layer_decay = real(random, 1e-6, 1);
  c.trust_coefficient = real(random, 1e-6, 1);
  c.clip_grad_norm = real(random, 0, 100);
  c.ema_decay = real(random, 0, 0.99);
  c.ema_every = whole(random, 1, 1 << 20);
  c.loss = loss_options[static_cast<std::size_t>(whole(random, 0, loss_options.size() - 1))].name;
  c.bce_target_threshold = real(random, 0, 0.99);
  c.label_smoothing = real(random, 0, 1);
  c.precision = static_cast<Precision>(whole(random, 0, 3));
  c.batch_norm = static_cast<BatchNormScope>(whole(random, 0, 1));
  c.sync_every = whole(random, 0, 1000);
  c.sync_start = real(random, 0, 9);
  c.sync_momentum = static_cast<SyncMomentum>(whole(random, 0, 1));
  c.bucket_mb = real(random, 1e-3, 1000);
  c.grad_compression = static_cast<GradCompression>(whole(random, 0, 2));
  c.reduce_dtype = static_cast<CommunicationDtype>(whole(random, 0, 3));
  c.shard = static_cast<ShardMode>(whole(random, 0, 4));
  c.param_dtype = static_cast<CommunicationDtype>(whole(random, 0, 3));
  c.shard_group = whole(random, 0, 4096);
  if (coin(random)) {
    c.profile_steps.first = whole(random, 1, 1 << 20);
    c.profile_steps.last = c.profile_steps.first + whole(random, 0, 1 << 20);
  }
  c.shard_unit.by = static_cast<ShardUnit::By>(whole(random, 0, 3));
  if (c.shard_unit.by == ShardUnit::By::size) c.shard_unit.smallest = whole(random, 1, 1 << 30);
  c.accumulate_full_gradients = coin(random);
  c.seed = whole(random, 0, INT64_MAX);
  c.run_dir = coin(random) ? text(random) : std::string();
  c.resume = coin(random) ? "none" : text(random);
  if (c.resume == "none") c.init_from = text(random);
  c.init_head = static_cast<InitHead>(whole(random, 0, 2));
  c.init_partial = coin(random);
  c.save_every = {.automatic = coin(random)};
  if (!c.save_every.automatic) {
    if (coin(random)) {
      c.save_every.steps = whole(random, 0, 1 << 30);
    } else {
      c.save_every.seconds = real(random, 1e-3, 1e6);
    }
  }
  c.keep = whole(random, 1, 1000000);
  c.eval_every = real(random, 0, 9);
  c.log_every = whole(random, 1, 1 << 20);
  c.log_ranks = coin(random);
  c.progress = static_cast<Progress>(whole(random, 0, 2));
  c.watchdog_seconds = real(random, 0, 1e6);
  c.watchdog_interface = text(random);
  c.nccl_start_seconds = real(random, 0, 1e6);
  c.time_limit.seconds = coin(random) ? 0 : real(random, 1e-3, 1e6);
  c.node_mttf = real(random, 1e-3, 1e6);
  c.check_replicas_every = whole(random, 0, 1 << 20);
  c.straggler_factor = real(random, 0, 9);
  c.debug_collectives = coin(random);
  c.wait_for_debugger = whole(random, -1, 4096);
  c.decode = static_cast<DecodeChoice>(whole(random, 0, 2));
  c.conv_algorithm = static_cast<ConvAlgorithm>(whole(random, 0, 2));
  c.recompute = static_cast<Recompute>(whole(random, 0, 3));
  c.deterministic = coin(random);
  c.cuda_graph = coin(random);
  c.threads = whole(random, 0, 4096);
  c.loader_threads = whole(random, -1, 1024);
  return c;
}

}  // namespace

BOOST_AUTO_TEST_CASE(any_printed_configuration_is_read_back_as_the_same_struct) {
  Random random(20);
  for (int i = 0; i < 300; ++i) {
    const Config config = random_config(random);
    const std::string printed = print_config(config);

    const Config stored = parse_config_text(printed);
    const Config given = parse_train_options({"--config", "c.ini"}, [&](const std::string&) {
                           return printed;
                         }).config;

    BOOST_TEST_CONTEXT(printed) {
      BOOST_TEST_REQUIRE((stored == config));
      BOOST_TEST_REQUIRE((given == config));
      BOOST_TEST_REQUIRE(print_config(stored) == printed);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_printed_configuration_holds_every_option_once) {
  const std::string printed = std::string("\n").append(print_config({}));
  for (const OptionName& option : train_options().names()) {
    const std::string line = std::string("\n").append(option.name).append("=");
    const std::size_t first = printed.find(line);
    BOOST_TEST_CONTEXT(option.name) {
      BOOST_TEST(first != std::string::npos);
      BOOST_TEST(printed.find(line, first + 1) == std::string::npos);
    }
  }
}

BOOST_AUTO_TEST_CASE(options_missing_from_a_stored_text_have_their_defaults) {
  Config expected;
  expected.epochs = 2;

  BOOST_TEST((parse_config_text("epochs=2\n") == expected));
  BOOST_TEST((parse_config_text("") == Config{}));
}

BOOST_AUTO_TEST_CASE(equal_configurations_have_no_differences) {
  Random random(3);
  const Config config = random_config(random);

  BOOST_TEST(differences(config, config).empty());
}

BOOST_AUTO_TEST_CASE(differences_name_the_options_and_both_values) {
  Config left;
  Config right;
  right.lr = 0.25;
  right.augment = Augment::crop_flip;
  left.milestones = {30, 60};
  right.nesterov = true;

  const auto found = differences(left, right);

  BOOST_TEST_REQUIRE(found.size() == 4U);
  const auto holds = [&](const char* name, const char* from, const char* to) {
    return std::any_of(found.begin(), found.end(), [&](const ConfigDifference& d) {
      return d.name == name && d.left == from && d.right == to;
    });
  };
  BOOST_TEST(holds("lr", "0.1", "0.25"));
  BOOST_TEST(holds("augment", "none", "crop-flip"));
  BOOST_TEST(holds("milestones", "30,60", ""));
  BOOST_TEST(holds("nesterov", "false", "true"));
}

BOOST_AUTO_TEST_CASE(differences_of_random_configurations_are_complete) {
  Random random(5);
  for (int i = 0; i < 50; ++i) {
    const Config left = random_config(random);
    Config right = random_config(random);
    // Applying all differences must make the configurations equal, so none is missing.
    for (const ConfigDifference& difference : differences(left, right)) {
      train_options().set(right, {difference.name, difference.left});
    }
    BOOST_TEST_REQUIRE((left == right));
  }
}
