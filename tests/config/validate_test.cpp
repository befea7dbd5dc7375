#include <boost/test/unit_test.hpp>

#include "core/refusal.hpp"
#include "lockstep/config/options.hpp"
#include "lockstep/config/unlikely_values.hpp"

#include <cmath>
#include <functional>

using namespace lockstep;

namespace {

/// The message of validate for a valid configuration with this change.
std::string refused(const std::function<void(Config&)>& change) {
  Config config;
  config.data = "shards";
  change(config);
  return test::refusal([&] { validate(config); });
}

bool is_valid(const std::function<void(Config&)>& change) {
  return refused(change) == "nothing was refused";
}

/// The message must contain each of `parts`.
void check_refused(const std::function<void(Config&)>& change,
                   const std::vector<std::string>& parts) {
  const std::string message = refused(change);
  for (const std::string& part : parts) {
    BOOST_TEST_CONTEXT("'" << message << "' without '" << part << "'")
    BOOST_TEST(test::contains(message, part));
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_default_with_data_or_synthetic_is_valid) {
  BOOST_TEST(is_valid([](Config&) {}));
  BOOST_TEST(is_valid([](Config& c) {
    c.data = "";
    c.synthetic = true;
  }));
}

BOOST_AUTO_TEST_CASE(options_that_contradict_shard_are_refused) {
  check_refused(
      [](Config& c) {
        c.shard = ShardMode::full;
        c.shard_group = 2;
      },
      {"--shard-group 2", "--shard hybrid"});
  check_refused([](Config& c) { c.accumulate_full_gradients = true; },
                {"--accumulate-full-gradients", "--shard is none"});
  check_refused(
      [](Config& c) {
        c.accumulate_full_gradients = true;
        c.shard = ShardMode::full;
      },
      {"--accumulate-full-gradients", "--accumulate is 1"});
}

BOOST_AUTO_TEST_CASE(options_of_another_policy_of_augmentation_are_refused) {
  for (const AutoAugment policy : {AutoAugment::none, AutoAugment::trivialaugment}) {
    const char* const given =
        policy == AutoAugment::none ? "--auto-augment is none" : "--auto-augment is trivialaugment";
    const auto with = [policy](std::int64_t Config::*option, std::int64_t value) {
      return [=](Config& c) {
        c.auto_augment = policy;
        c.*option = value;
      };
    };
    check_refused(with(&Config::randaugment_ops, 3), {"--randaugment-ops 3", given});
    check_refused(with(&Config::randaugment_magnitude, 8), {"--randaugment-magnitude 8", given});
    check_refused(with(&Config::randaugment_bins, 11), {"--randaugment-bins 11", given});
  }
  check_refused([](Config& c) { c.auto_augment_interpolation = Interpolation::bilinear; },
                {"--auto-augment-interpolation bilinear", "--auto-augment is none"});
  for (const AutoAugment policy : {AutoAugment::trivialaugment, AutoAugment::randaugment}) {
    BOOST_TEST(is_valid([=](Config& c) {
      c.auto_augment = policy;
      c.auto_augment_interpolation = Interpolation::bilinear;
    }));
  }
}

BOOST_AUTO_TEST_CASE(magnitudes_and_copies_are_in_range) {
  const auto with = [](std::int64_t magnitude, std::int64_t bins) {
    return [=](Config& c) {
      c.auto_augment = AutoAugment::randaugment;
      c.randaugment_magnitude = magnitude;
      c.randaugment_bins = bins;
    };
  };
  BOOST_TEST(is_valid(with(30, 31)));
  BOOST_TEST(is_valid(with(0, 2)));
  check_refused(with(31, 31), {"--randaugment-magnitude 31", "--randaugment-bins 31"});
  check_refused(with(-1, 31), {"--randaugment-magnitude"});
  check_refused(with(0, 1), {"--randaugment-bins"});
  check_refused([](Config& c) { c.repeated_augmentation = 0; }, {"--repeated-augmentation"});
}

BOOST_AUTO_TEST_CASE(the_data_type_of_reductions_is_given_once) {
  for (const ShardMode mode : {ShardMode::none, ShardMode::full}) {
    for (const CommunicationDtype type : {CommunicationDtype::fp32, CommunicationDtype::fp16}) {
      check_refused(
          [&](Config& c) {
            c.shard = mode;
            c.grad_compression = GradCompression::bf16;
            c.reduce_dtype = type;
          },
          {type == CommunicationDtype::fp32 ? "--reduce-dtype fp32" : "--reduce-dtype fp16",
           "--grad-compression bf16"});
    }
    BOOST_TEST(is_valid([&](Config& c) {
      c.shard = mode;
      c.grad_compression = GradCompression::bf16;
    }));
    BOOST_TEST(is_valid([&](Config& c) {
      c.shard = mode;
      c.grad_compression = GradCompression::bf16;
      c.reduce_dtype = CommunicationDtype::bf16;
    }));
  }
}

BOOST_AUTO_TEST_CASE(weights_are_gathered_in_the_compute_precision_or_in_fp32) {
  const auto with = [](ShardMode mode, Precision precision, CommunicationDtype type) {
    return [=](Config& c) {
      c.shard = mode;
      c.precision = precision;
      c.param_dtype = type;
    };
  };
  check_refused(with(ShardMode::full, Precision::fp32, CommunicationDtype::bf16),
                {"--param-dtype bf16", "--precision fp32"});
  check_refused(with(ShardMode::grad, Precision::bf16, CommunicationDtype::fp16),
                {"--param-dtype fp16", "--precision bf16"});
  check_refused(with(ShardMode::none, Precision::bf16, CommunicationDtype::bf16),
                {"--param-dtype bf16", "belongs to --shard"});
  BOOST_TEST(is_valid(with(ShardMode::full, Precision::bf16, CommunicationDtype::bf16)));
  BOOST_TEST(is_valid(with(ShardMode::optimizer, Precision::bf16, CommunicationDtype::fp32)));
  BOOST_TEST(is_valid(with(ShardMode::full, Precision::fp32, CommunicationDtype::fp32)));
}

BOOST_AUTO_TEST_CASE(image_sizes_change_at_ascending_epochs_before_the_last) {
  const auto with = [](std::vector<ImageSizeChange> schedule) {
    return [schedule = std::move(schedule)](Config& c) {
      c.epochs = 9;
      c.image_size_schedule = schedule;
    };
  };
  BOOST_TEST(is_valid(with({{.size = 64, .epoch = 1}, {.size = 32, .epoch = 8}})));
  check_refused(with({{.size = 64, .epoch = 4}, {.size = 96, .epoch = 4}}),
                {"--image-size-schedule 64@4,96@4", "not ascending"});
  check_refused(with({{.size = 64, .epoch = 4}, {.size = 96, .epoch = 2}}), {"not ascending"});
  check_refused(with({{.size = 64, .epoch = 9}}), {"64@9", "after 9 of 9 epochs", "--epochs"});
  check_refused(with({{.size = 0, .epoch = 4}}), {"--image-size-schedule is '0@4'"});
}

BOOST_AUTO_TEST_CASE(gpus_do_not_recompute_norms) {
  check_refused(
      [](Config& c) {
        c.recompute = Recompute::norms;
        c.device = DeviceChoice::cuda;
      },
      {"--recompute norms", "--device cuda"});
  for (const Recompute recompute : {Recompute::automatic, Recompute::none, Recompute::block}) {
    BOOST_TEST(is_valid([=](Config& c) {
      c.recompute = recompute;
      c.device = DeviceChoice::cuda;
    }));
  }
}

BOOST_AUTO_TEST_CASE(winograds_algorithm_needs_a_cpu) {
  check_refused(
      [](Config& c) {
        c.conv_algorithm = ConvAlgorithm::winograd;
        c.device = DeviceChoice::cuda;
      },
      {"--conv-algorithm winograd", "--device cuda"});
  BOOST_TEST(is_valid([](Config& c) {
    c.conv_algorithm = ConvAlgorithm::direct;
    c.device = DeviceChoice::cuda;
  }));
  check_refused(
      [](Config& c) {
        c.conv_algorithm = ConvAlgorithm::winograd;
        c.precision = Precision::fp16;
      },
      {"--conv-algorithm winograd", "--precision fp16"});
  BOOST_TEST(is_valid([](Config& c) {
    c.conv_algorithm = ConvAlgorithm::winograd;
    c.precision = Precision::bf16;
  }));
}

BOOST_AUTO_TEST_CASE(exactly_one_source_of_data_is_required) {
  check_refused([](Config& c) { c.data = ""; },
                {"no data", "--data", "lockstep pack", "--synthetic"});
  check_refused([](Config& c) { c.synthetic = true; }, {"--data shards", "--synthetic"});
  check_refused(
      [](Config& c) {
        c.data = "";
        c.synthetic = true;
        c.stage_dir = "/scratch";
      },
      {"--stage-dir /scratch", "--synthetic"});
  check_refused(
      [](Config& c) {
        c.data = "";
        c.synthetic = true;
        c.val_data = "more";
      },
      {"--val-data more", "--synthetic"});
}

BOOST_AUTO_TEST_CASE(exclusive_options_are_refused_in_a_struct_from_code_too) {
  check_refused(
      [](Config& c) {
        c.batch_size = 4;
        c.global_batch_size = 8;
      },
      {"--batch-size 4", "--global-batch-size 8"});
  check_refused(
      [](Config& c) {
        c.resume = "old.h5";
        c.init_from = "w.h5";
      },
      {"--resume old.h5", "--init-from w.h5"});
  BOOST_TEST(is_valid([](Config& c) {
    c.resume = "none";
    c.init_from = "w.h5";
  }));
}

BOOST_AUTO_TEST_CASE(an_average_needs_a_decay_below_one) {
  BOOST_TEST(is_valid([](Config& c) {
    c.ema_decay = 0.999;
    c.ema_every = 32;
  }));
  for (const double decay : {-0.1, 1.0}) {
    check_refused([&](Config& c) { c.ema_decay = decay; }, {"--ema-decay"});
  }
  check_refused([](Config& c) { c.ema_every = 0; }, {"--ema-every"});
  check_refused([](Config& c) { c.ema_every = 2; }, {"--ema-every 2", "belongs to --ema-decay"});
}

BOOST_AUTO_TEST_CASE(local_sgd_needs_replicas_whose_steps_are_alike) {
  const auto local = [](auto change) {
    return [=](Config& c) {
      c.sync_every = 4;
      change(c);
    };
  };
  BOOST_TEST(is_valid(local([](Config& c) { c.sync_start = 0.5; })));
  BOOST_TEST(is_valid(local([](Config& c) {
    c.sync_start = 0.5;
    c.grad_compression = GradCompression::bf16;
  })));
  check_refused(local([](Config& c) { c.shard = ShardMode::grad; }), {"--shard grad"});
  check_refused(local([](Config& c) { c.batch_norm = BatchNormScope::sync; }),
                {"--batch-norm sync"});
  check_refused(local([](Config& c) { c.precision = Precision::fp16; }), {"--precision fp16"});
  check_refused(local([](Config& c) { c.sync_start = static_cast<double>(c.epochs); }),
                {"--sync-start"});
  check_refused(local([](Config& c) { c.reduce_dtype = CommunicationDtype::bf16; }),
                {"--reduce-dtype", "--sync-start"});
  check_refused([](Config& c) { c.sync_start = 1; }, {"--sync-start 1 belongs to --sync-every"});
  check_refused([](Config& c) { c.sync_momentum = SyncMomentum::local; },
                {"--sync-momentum local belongs to --sync-every"});
}

BOOST_AUTO_TEST_CASE(nesterov_needs_sgd_with_momentum) {
  check_refused(
      [](Config& c) {
        c.nesterov = true;
        c.momentum = 0;
      },
      {"--nesterov", "momentum is 0"});
  check_refused(
      [](Config& c) {
        c.nesterov = true;
        c.optimizer = OptimizerKind::adam;
      },
      {"--nesterov", "--optimizer sgd"});
  BOOST_TEST(is_valid([](Config& c) { c.nesterov = true; }));
}

BOOST_AUTO_TEST_CASE(a_minimal_rate_belongs_to_the_cosine_schedule_and_is_at_most_the_rate) {
  check_refused(
      [](Config& c) {
        c.lr_schedule = LrSchedule::polynomial;
        c.lr_min = 0.01;
      },
      {"--lr-min 0.01", "cosine"});
  check_refused([](Config& c) { c.lr_min = 0.2; }, {"--lr-min 0.2", "--lr 0.1"});
  BOOST_TEST(is_valid([](Config& c) { c.lr_min = 0.1; }));
  BOOST_TEST(is_valid([](Config& c) {
    c.lr_min = 0.2;
    c.lr_base_batch = 32;
  }));
}

BOOST_AUTO_TEST_CASE(milestones_and_the_step_schedule_need_each_other) {
  check_refused([](Config& c) { c.lr_schedule = LrSchedule::step; }, {"--milestones"});
  check_refused([](Config& c) { c.milestones = {30, 60}; }, {"--milestones 30,60", "step"});
  check_refused(
      [](Config& c) {
        c.lr_schedule = LrSchedule::step;
        c.milestones = {60, 30};
      },
      {"60,30", "ascending"});
  BOOST_TEST(is_valid([](Config& c) {
    c.lr_schedule = LrSchedule::step;
    c.milestones = {30, 60};
  }));
}

BOOST_AUTO_TEST_CASE(means_and_deviations_match_each_other_and_the_channels) {
  check_refused(
      [](Config& c) {
        c.mean = {0.1, 0.2, 0.3};
        c.std = {0.1, 0.2};
      },
      {"--mean has 3", "--std 2"});
  check_refused(
      [](Config& c) {
        c.channels = 3;
        c.std = {0.1, 0.2};
      },
      {"--std has 2", "--channels 3"});
  check_refused([](Config& c) { c.std = {0.1, 0, 0.1}; }, {"--std", "above 0"});
  BOOST_TEST(is_valid([](Config& c) {
    c.channels = 3;
    c.mean = {0.1, 0.2, 0.3};
    c.std = {0.5};
  }));
}

BOOST_AUTO_TEST_CASE(means_and_deviations_are_of_pixels_from_0_to_1) {
  const auto with = [](std::vector<double> mean, std::vector<double> std) {
    return [=](Config& c) {
      c.mean = mean;
      c.std = std;
    };
  };
  BOOST_TEST(is_valid(with({0, 0, 0}, {1, 1, 1})));
  BOOST_TEST(is_valid(with({1}, {0.0039})));
  check_refused(with({123.675, 116.28, 103.53}, {}), {"--mean is", "--mean 0.485,0.456,0.406"});
  check_refused(with({}, {58.395, 57.12, 57.375}), {"--std is", "--std 0.229,0.224,0.225"});
  check_refused(with({}, {1.1}), {"--std is '1.1'", "above 0 up to 1"});
  check_refused(with({-0.1}, {}), {"--mean is '-0.1'", "from 0 to 1"});
  check_refused(with({300}, {}), {"--mean is '300'", "see --help"});
}

BOOST_AUTO_TEST_CASE(values_that_hardly_any_run_can_mean_give_warnings) {
  const auto warnings = [](const std::function<void(Config&)>& change) {
    Config config;
    config.data = "shards";
    change(config);
    validate(config);
    const auto found = unlikely_values(config, 1024);
    return found.size() == 1 ? found.front() : std::to_string(found.size());
  };
  const auto optimizer = [&](OptimizerKind kind, double lr, double decay) {
    return warnings([=](Config& c) {
      c.optimizer = kind;
      c.lr = lr;
      c.weight_decay = decay;
    });
  };
  BOOST_TEST(warnings([](Config&) {}) == "0");
  BOOST_TEST(optimizer(OptimizerKind::sgd, 12.8, 5e-5) == "0");
  BOOST_TEST(test::contains(optimizer(OptimizerKind::sgd, 100, 0), "--lr 100"));
  BOOST_TEST(optimizer(OptimizerKind::lars, 34, 1e-4) == "0");
  BOOST_TEST(optimizer(OptimizerKind::adamw, 0.004, 0.3) == "0");
  BOOST_TEST(test::contains(optimizer(OptimizerKind::adam, 1, 0), "rates above 0.5"));
  BOOST_TEST(test::contains(optimizer(OptimizerKind::sgd, 0.1, 5), "takes 0.5 of each weight"));
  BOOST_TEST(test::contains(warnings([](Config& c) {
                              c.lr = 0.2;
                              c.lr_base_batch = 1;
                            }),
                            "204.8 (--lr 0.2, scaled"));
  BOOST_TEST(test::contains(warnings([](Config& c) {
                              c.lr_schedule = LrSchedule::step;
                              c.milestones = {15000, 30000};
                            }),
                            "not in steps"));
  BOOST_TEST(test::contains(warnings([](Config& c) { c.ema_decay = 0.001; }), "--ema-decay 0.001"));
}

BOOST_AUTO_TEST_CASE(values_out_of_their_options_range_are_refused) {
  check_refused([](Config& c) { c.momentum = 1; }, {"--momentum is '1'"});
  check_refused([](Config& c) { c.momentum = 90; }, {"--momentum 0.9"});
  check_refused([](Config& c) { c.label_smoothing = 10; }, {"--label-smoothing 0.1"});
  check_refused([](Config& c) { c.label_smoothing = 1; }, {"--label-smoothing is '1'"});
  check_refused([](Config& c) { c.ema_decay = 99.9; }, {"--ema-decay 0.999"});
  check_refused([](Config& c) { c.eval_crop_ratio = 87.5; }, {"--eval-crop-ratio 0.875"});
  check_refused([](Config& c) { c.beta1 = 1; }, {"--beta1 is '1'"});
  check_refused([](Config& c) { c.beta2 = -0.1; }, {"--beta2 is '-0.1'"});
  check_refused([](Config& c) { c.lr = std::nan(""); }, {"--lr is 'nan'"});
  check_refused([](Config& c) { c.epochs = 0; }, {"--epochs is '0'"});
  check_refused([](Config& c) { c.accumulate = 0; }, {"--accumulate is '0'"});
  check_refused([](Config& c) { c.label_smoothing = 1.5; }, {"--label-smoothing is '1.5'"});
  check_refused([](Config& c) { c.mixup = -0.2; }, {"--mixup is '-0.2'"});
}

BOOST_AUTO_TEST_CASE(a_target_threshold_needs_the_loss_it_is_for) {
  check_refused([](Config& c) { c.bce_target_threshold = 0.2; },
                {"--bce-target-threshold 0.2", "--loss bce"});
  check_refused(
      [](Config& c) {
        c.loss = "bce";
        c.bce_target_threshold = 1;
      },
      {"--bce-target-threshold is '1'"});
  check_refused(
      [](Config& c) {
        c.loss = "bce";
        c.bce_target_threshold = 0.2;
      },
      {"belongs to --label-smoothing or --mixup or --cutmix (--label-smoothing is 0, --mixup is "
       "0"});
  BOOST_TEST(is_valid([](Config& c) {
    c.loss = "bce";
    c.bce_target_threshold = 0.2;
    c.mixup = 0.1;
  }));
}

BOOST_AUTO_TEST_CASE(warm_up_ends_within_the_run) {
  check_refused(
      [](Config& c) {
        c.epochs = 5;
        c.warmup_epochs = 5.5;
      },
      {"--warmup-epochs 5.5", "5 epochs"});
}

BOOST_AUTO_TEST_CASE(a_filter_of_training_needs_a_crop_that_resizes) {
  check_refused([](Config& c) { c.train_interpolation = ResizeFilter::random; },
                {"--train-interpolation random", "--augment resized-crop", "none"});
  BOOST_TEST(is_valid([](Config& c) {
    c.train_interpolation = ResizeFilter::bicubic;
    c.augment = Augment::resized_crop;
  }));
}

BOOST_AUTO_TEST_CASE(a_ratio_and_a_size_to_resize_to_exclude_each_other) {
  check_refused(
      [](Config& c) {
        c.eval_crop_ratio = 0.95;
        c.eval_resize = 235;
      },
      {"--eval-crop-ratio 0.95 and --eval-resize 235"});
}

BOOST_AUTO_TEST_CASE(a_straggler_factor_between_zero_and_one_is_refused) {
  check_refused([](Config& c) { c.straggler_factor = 0.5; }, {"--straggler-factor 0.5"});
  BOOST_TEST(is_valid([](Config& c) { c.straggler_factor = 0; }));
}

BOOST_AUTO_TEST_CASE(a_new_head_needs_init_from) {
  check_refused([](Config& c) { c.init_head = InitHead::fresh; },
                {"--init-head new", "--init-from"});
  BOOST_TEST(is_valid([](Config& c) {
    c.init_head = InitHead::fresh;
    c.init_from = "w.h5";
  }));
}
