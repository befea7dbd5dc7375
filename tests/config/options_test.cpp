#include <boost/test/unit_test.hpp>

#include "core/refusal.hpp"
#include "lockstep/config/option_table.hpp"
#include "lockstep/config/options.hpp"
#include "lockstep/core/text_file.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <random>
#include <regex>
#include <sstream>

using namespace lockstep;
using test::contains;
using test::refusal;

namespace {

/// Parses a command line that reads `job.ini`, a file with this text.
ParsedCommand with_file(const std::string& text, std::vector<std::string> args) {
  args.insert(args.end(), {"--config", "job.ini"});
  return parse_train_options(args, [&](const std::string& path) {
    BOOST_TEST(path == "job.ini");
    return text;
  });
}

Config parse(const std::vector<std::string>& args) {
  return parse_train_options(args).config;
}

}  // namespace

BOOST_AUTO_TEST_CASE(no_arguments_give_the_default_configuration) {
  const ParsedCommand command = parse_train_options({});

  BOOST_TEST((command.config == Config{}));
  BOOST_TEST(command.given.empty());
  BOOST_TEST(!command.print_config);
}

BOOST_AUTO_TEST_CASE(every_option_reaches_its_member) {
  const Config config = parse({"--model",
                               "mlp",
                               "--width",
                               "12",
                               "--zero-init-residual",
                               "--stem",
                               "deep",
                               "--shortcut",
                               "avgpool",
                               "--stochastic-depth",
                               "0.15",
                               "--data",
                               "d",
                               "--val-data",
                               "v",
                               "--image-size",
                               "32",
                               "--image-size-schedule",
                               "48@2,40@5",
                               "--eval-size",
                               "48",
                               "--eval-crop-ratio",
                               "0.965",
                               "--eval-interpolation",
                               "bicubic",
                               "--train-interpolation",
                               "random",
                               "--channels",
                               "3",
                               "--classes",
                               "11",
                               "--mean",
                               "0.1,0.2,0.3",
                               "--std",
                               "0.5",
                               "--augment",
                               "resized-crop",
                               "--crop-padding",
                               "2",
                               "--auto-augment",
                               "randaugment",
                               "--randaugment-ops",
                               "3",
                               "--randaugment-magnitude",
                               "7",
                               "--randaugment-bins",
                               "11",
                               "--auto-augment-interpolation",
                               "bilinear",
                               "--repeated-augmentation",
                               "4",
                               "--random-erasing",
                               "0.25",
                               "--mixup",
                               "0.2",
                               "--cutmix",
                               "0.75",
                               "--shuffle-block",
                               "8",
                               "--stage-dir",
                               "scratch",
                               "--synthetic",
                               "--synthetic-samples",
                               "99",
                               "--epochs",
                               "7",
                               "--max-steps",
                               "70",
                               "--batch-size",
                               "16",
                               "--accumulate",
                               "2",
                               "--allow-batch-change",
                               "--loss",
                               "bce",
                               "--bce-target-threshold",
                               "0.3",
                               "--label-smoothing",
                               "0.1",
                               "--precision",
                               "bf16",
                               "--optimizer",
                               "lars",
                               "--lr",
                               "0.4",
                               "--lr-base-batch",
                               "256",
                               "--lr-schedule",
                               "step",
                               "--milestones",
                               "3,5",
                               "--lr-gamma",
                               "0.2",
                               "--lr-min",
                               "0.001",
                               "--lr-power",
                               "3",
                               "--warmup-epochs",
                               "0.5",
                               "--momentum",
                               "0.8",
                               "--nesterov",
                               "--beta1",
                               "0.7",
                               "--beta2",
                               "0.95",
                               "--eps",
                               "1e-6",
                               "--weight-decay",
                               "0.01",
                               "--decay-norm-and-bias",
                               "--trust-coefficient",
                               "0.02",
                               "--clip-grad-norm",
                               "1.5",
                               "--ema-decay",
                               "0.99",
                               "--ema-every",
                               "32",
                               "--batch-norm",
                               "sync",
                               "--sync-every",
                               "8",
                               "--sync-start",
                               "1.5",
                               "--sync-momentum",
                               "local",
                               "--bucket-mb",
                               "4",
                               "--grad-compression",
                               "fp16",
                               "--reduce-dtype",
                               "fp16",
                               "--shard",
                               "grad",
                               "--param-dtype",
                               "bf16",
                               "--shard-group",
                               "4",
                               "--shard-unit",
                               "size:5000",
                               "--accumulate-full-gradients",
                               "--freeze",
                               "conv1.*,*.bias",
                               "--lr-scale",
                               "fc.*=10,a=b=0.5",
                               "--layer-decay",
                               "0.75",
                               "--seed",
                               "42",
                               "--run-dir",
                               "r",
                               "--resume",
                               "none",
                               "--init-from",
                               "w.h5",
                               "--init-head",
                               "new",
                               "--init-partial",
                               "--save-every",
                               "10min",
                               "--keep",
                               "5",
                               "--eval-every",
                               "2",
                               "--log-every",
                               "10",
                               "--log-ranks",
                               "--progress",
                               "plain",
                               "--profile-steps",
                               "3:12",
                               "--watchdog-seconds",
                               "2.5",
                               "--watchdog-interface",
                               "ib0,10.1.0.0/16",
                               "--nccl-start-seconds",
                               "90",
                               "--time-limit",
                               "2h",
                               "--node-mttf",
                               "500",
                               "--check-replicas-every",
                               "7",
                               "--straggler-factor",
                               "3",
                               "--debug-collectives",
                               "--wait-for-debugger",
                               "2",
                               "--conv-algorithm",
                               "direct",
                               "--recompute",
                               "none",
                               "--no-deterministic",
                               "--no-cuda-graph",
                               "--threads",
                               "6",
                               "--loader-threads",
                               "0",
                               "--decode",
                               "gpu"});

  const Config expected{
      .model = "mlp",
      .width = 12,
      .zero_init_residual = true,
      .stem = Stem::deep,
      .shortcut = Shortcut::avgpool,
      .stochastic_depth = 0.15,
      .data = "d",
      .val_data = "v",
      .image_size = 32,
      .image_size_schedule = {{.size = 48, .epoch = 2}, {.size = 40, .epoch = 5}},
      .eval_size = 48,
      .eval_crop_ratio = 0.965,
      .eval_interpolation = ResizeFilter::bicubic,
      .train_interpolation = ResizeFilter::random,
      .channels = 3,
      .classes = 11,
      .mean = {0.1, 0.2, 0.3},
      .std = {0.5},
      .augment = Augment::resized_crop,
      .crop_padding = 2,
      .auto_augment = AutoAugment::randaugment,
      .randaugment_ops = 3,
      .randaugment_magnitude = 7,
      .randaugment_bins = 11,
      .auto_augment_interpolation = Interpolation::bilinear,
      .random_erasing = 0.25,
      .mixup = 0.2,
      .cutmix = 0.75,
      .shuffle_block = 8,
      .repeated_augmentation = 4,
      .stage_dir = "scratch",
      .synthetic = true,
      .synthetic_samples = 99,
      .epochs = 7,
      .max_steps = 70,
      .batch_size = 16,
      .global_batch_size = 0,
      .accumulate = 2,
      .allow_batch_change = true,
      .optimizer = OptimizerKind::lars,
      .lr = 0.4,
      .lr_base_batch = 256,
      .lr_schedule = LrSchedule::step,
      .milestones = {3, 5},
      .lr_gamma = 0.2,
      .lr_min = 0.001,
      .lr_power = 3,
      .warmup_epochs = 0.5,
      .momentum = 0.8,
      .nesterov = true,
      .beta1 = 0.7,
      .beta2 = 0.95,
      .eps = 1e-6,
      .weight_decay = 0.01,
      .decay_norm_and_bias = true,
      .freeze = {"conv1.*", "*.bias"},
      .lr_scale = {{.pattern = "fc.*", .factor = 10}, {.pattern = "a=b", .factor = 0.5}},
      .layer_decay = 0.75,
      .trust_coefficient = 0.02,
      .clip_grad_norm = 1.5,
      .ema_decay = 0.99,
      .ema_every = 32,
      .loss = "bce",
      .bce_target_threshold = 0.3,
      .label_smoothing = 0.1,
      .precision = Precision::bf16,
      .batch_norm = BatchNormScope::sync,
      .sync_every = 8,
      .sync_start = 1.5,
      .sync_momentum = SyncMomentum::local,
      .bucket_mb = 4,
      .grad_compression = GradCompression::fp16,
      .reduce_dtype = CommunicationDtype::fp16,
      .shard = ShardMode::grad,
      .param_dtype = CommunicationDtype::bf16,
      .shard_unit = {.by = ShardUnit::By::size, .smallest = 5000},
      .shard_group = 4,
      .accumulate_full_gradients = true,
      .seed = 42,
      .run_dir = "r",
      .resume = "none",
      .init_from = "w.h5",
      .init_head = InitHead::fresh,
      .init_partial = true,
      .save_every = {.steps = 0, .seconds = 600},
      .keep = 5,
      .eval_every = 2,
      .log_every = 10,
      .log_ranks = true,
      .progress = Progress::plain,
      .profile_steps = {.first = 3, .last = 12},
      .watchdog_seconds = 2.5,
      .watchdog_interface = "ib0,10.1.0.0/16",
      .nccl_start_seconds = 90,
      .time_limit = {.seconds = 7200},
      .node_mttf = 500,
      .check_replicas_every = 7,
      .straggler_factor = 3,
      .debug_collectives = true,
      .wait_for_debugger = 2,
      .decode = DecodeChoice::gpu,
      .conv_algorithm = ConvAlgorithm::direct,
      .recompute = Recompute::none,
      .deterministic = false,
      .cuda_graph = false,
      .threads = 6,
      .loader_threads = 0};
  BOOST_TEST((config == expected));
}

BOOST_AUTO_TEST_CASE(options_of_missing_features_are_unknown) {
  for (const char* name : {"--buffer-dtype", "--profile"}) {
    BOOST_TEST(contains(refusal([&] {
                          parse({name, "auto"});
                        }),
                        std::string("unknown option ") + name));
  }
}

BOOST_AUTO_TEST_CASE(the_command_line_overrides_the_file_and_the_file_the_default) {
  const ParsedCommand command =
      with_file("# a job\nlr = 0.5   # tuned\nepochs=3\n\nnesterov = true\r\n", {"--lr", "0.7"});

  Config expected;
  expected.lr = 0.7;
  expected.epochs = 3;
  expected.nesterov = true;
  BOOST_TEST((command.config == expected));
  BOOST_TEST(command.only_on_line.empty());
  BOOST_TEST((command.given == std::set<std::string>{"epochs", "lr", "nesterov"}));
}

BOOST_AUTO_TEST_CASE(the_command_line_can_negate_a_switch_of_the_file) {
  BOOST_TEST(!with_file("nesterov=true\n", {"--no-nesterov"}).config.nesterov);
}

BOOST_AUTO_TEST_CASE(a_faulty_file_is_refused_and_named) {
  struct Case {
    const char* text;
    const char* part;
  };
  for (const Case& bad :
       {Case{.text = "lrr=1\n", .part = "did you mean --lr"},
        Case{.text = "lr=much\n", .part = "--lr is 'much'"},
        Case{.text = "lr=1\nlr=2\n", .part = "twice"}, Case{.text = "lr\n", .part = "name=value"},
        Case{.text = "[section]\nlr=1\n", .part = "section.lr"},
        Case{.text = "config=other.ini\n", .part = "config"},
        Case{.text = "nesterov=\n", .part = "true or false"},
        Case{.text = "batch-size=4\nglobal-batch-size=8\n", .part = "--global-batch-size 8"}}) {
    const std::string message = refusal([&] { with_file(bad.text, {}); });
    BOOST_TEST_CONTEXT(bad.text << " gave " << message) {
      BOOST_TEST(contains(message, bad.part));
      BOOST_TEST((contains(message, "job.ini") || contains(message, "twice")));
    }
  }
}

BOOST_AUTO_TEST_CASE(one_of_an_exclusive_pair_replaces_the_other_of_the_file) {
  const ParsedCommand global = with_file("batch-size=4\n", {"--global-batch-size", "64"});
  const ParsedCommand local = with_file("global-batch-size=64\n", {"--batch-size", "4"});
  const ParsedCommand weights = with_file("resume=old.h5\n", {"--init-from", "w.h5"});
  const ParsedCommand resumed = with_file("init-from=w.h5\n", {"--resume", "old.h5"});

  BOOST_TEST(global.config.batch_size == 0);
  BOOST_TEST(global.config.global_batch_size == 64);
  BOOST_TEST((global.given == std::set<std::string>{"global-batch-size"}));
  BOOST_TEST(local.config.batch_size == 4);
  BOOST_TEST(local.config.global_batch_size == 0);
  BOOST_TEST(weights.config.resume == "auto");
  BOOST_TEST(weights.config.init_from == "w.h5");
  BOOST_TEST(resumed.config.resume == "old.h5");
  BOOST_TEST(resumed.config.init_from == "");
}

BOOST_AUTO_TEST_CASE(override_replaces_options_of_the_line_and_of_the_file) {
  const ParsedCommand command = with_file(
      "lr=0.5\nepochs=3\nnesterov=true\n",
      {"--lr", "0.7", "--nesterov", "--seed=1", "--override", "--seed", "2", "--no-nesterov"});

  Config expected;
  expected.lr = 0.7;
  expected.epochs = 3;
  expected.seed = 2;
  BOOST_TEST((command.config == expected));
  BOOST_TEST((command.given == std::set<std::string>{"epochs", "lr", "nesterov", "seed"}));
  BOOST_TEST((command.only_on_line == std::set<std::string>{"seed"}));
}

BOOST_AUTO_TEST_CASE(override_replaces_the_other_of_an_exclusive_pair) {
  const std::vector<std::string> line{"--batch-size", "4", "--override", "--global-batch-size",
                                      "64"};
  const ParsedCommand once = parse_train_options(line);
  std::vector<std::string> longer = line;
  longer.insert(longer.end(), {"--override", "--batch-size=8"});
  const ParsedCommand twice = parse_train_options(longer);

  BOOST_TEST(once.config.batch_size == 0);
  BOOST_TEST(once.config.global_batch_size == 64);
  BOOST_TEST((once.given == std::set<std::string>{"global-batch-size"}));
  BOOST_TEST((once.only_on_line == once.given));
  BOOST_TEST(twice.config.batch_size == 8);
  BOOST_TEST(twice.config.global_batch_size == 0);
  BOOST_TEST((twice.given == std::set<std::string>{"batch-size"}));
  const std::string both = refusal([&] {
    parse({"--seed", "1", "--override", "--batch-size", "4", "--global-batch-size", "64"});
  });
  BOOST_TEST(contains(both, "both given"));
}

BOOST_AUTO_TEST_CASE(override_names_another_file) {
  const auto text_of = [](const std::string& path) {
    return path == "two.ini" ? "epochs=2\n" : "epochs=1\nseed=1\n";
  };
  const ParsedCommand command = parse_train_options(
      {"--config", "one.ini", "--lr=0.7", "--override", "--config=two.ini", "--print-config"},
      text_of);

  Config expected;
  expected.epochs = 2;
  expected.lr = 0.7;
  BOOST_TEST((command.config == expected));
  BOOST_TEST(command.print_config);
}

BOOST_AUTO_TEST_CASE(init_from_is_allowed_with_resume_auto_and_none) {
  BOOST_TEST(parse({"--init-from", "w.h5", "--resume", "none"}).resume == "none");
  BOOST_TEST(parse({"--init-from", "w.h5", "--resume", "none"}).init_from == "w.h5");
  BOOST_TEST(with_file("init-from=w.h5\n", {"--resume", "auto"}).config.init_from == "w.h5");
  BOOST_TEST(with_file("resume=none\n", {"--init-from", "w.h5"}).config.resume == "none");
}

BOOST_AUTO_TEST_CASE(both_of_an_exclusive_pair_are_refused_with_their_values) {
  const std::string batches = refusal([] {
    parse({"--batch-size", "4", "--global-batch-size", "8"});
  });
  const std::string starts = refusal([] { parse({"--init-from", "w.h5", "--resume", "old.h5"}); });

  BOOST_TEST(contains(batches, "--batch-size 4 and --global-batch-size 8"));
  BOOST_TEST(contains(starts, "--resume old.h5 and --init-from w.h5"));
}

BOOST_AUTO_TEST_CASE(defaults_follow_the_optimizer) {
  const auto values = [](const Config& c) {
    return std::array{c.lr, c.weight_decay, c.beta2, c.eps, c.clip_grad_norm};
  };
  const auto of = [&](const char* optimizer) { return values(parse({"--optimizer", optimizer})); };
  BOOST_TEST((of("sgd") == std::array{0.1, 1e-4, 0.999, 1e-8, 0.0}));
  BOOST_TEST((of("adam") == std::array{1e-3, 0.0, 0.999, 1e-8, 0.0}));
  BOOST_TEST((of("adamw") == std::array{1e-3, 0.01, 0.999, 1e-8, 0.0}));
  BOOST_TEST((of("lars") == std::array{0.1, 1e-4, 0.999, 1e-8, 0.0}));
  BOOST_TEST((of("lamb") == std::array{1e-3, 0.01, 0.999, 1e-6, 1.0}));
  BOOST_TEST((of("lion") == std::array{1e-4, 0.0, 0.99, 1e-8, 0.0}));
  BOOST_TEST((values(parse({"--optimizer", "lamb", "--eps", "1e-8", "--lr", "0.1"})) ==
              std::array{0.1, 0.01, 0.999, 1e-8, 1.0}));
  const ParsedCommand from_file = with_file("optimizer=adam\nweight-decay=0.1\n", {});
  BOOST_TEST((values(from_file.config) == std::array{1e-3, 0.1, 0.999, 1e-8, 0.0}));
  const ParsedCommand changed = with_file("optimizer=adam\nlr=0.2\n", {"--optimizer", "adamw"});
  BOOST_TEST((values(changed.config) == std::array{0.2, 0.01, 0.999, 1e-8, 0.0}));
  const ParsedCommand other = with_file("optimizer=lion\n", {"--optimizer", "adam"});
  BOOST_TEST((values(other.config) == std::array{1e-3, 0.0, 0.999, 1e-8, 0.0}));
}

BOOST_AUTO_TEST_CASE(print_config_is_a_switch) {
  const ParsedCommand command = with_file("epochs=3\n", {"--print-config"});

  BOOST_TEST(command.print_config);
  BOOST_TEST(command.config.epochs == 3);
  BOOST_TEST((command.given == std::set<std::string>{"epochs"}));
}

BOOST_AUTO_TEST_CASE(an_unreadable_file_is_no_input) {
  const auto directory = std::filesystem::temp_directory_path();
  const std::vector<std::pair<std::string, ExitStatus>> unreadable{
      {"/nowhere/no.ini", ExitStatus::no_input},
      {"/" + std::string(300, 'a'), ExitStatus::no_input},
      {"/proc/self/mem", ExitStatus::internal},
      {directory.string(), ExitStatus::bad_input}};
  for (const auto& [path, status] : unreadable) {
    const std::string& name = path;
    const ExitStatus expected = status;
    BOOST_CHECK_EXCEPTION(static_cast<void>(parse_train_options({"--config", name})), Error,
                          [&](const Error& error) {
                            return error.status() == expected && contains(error.what(), name);
                          });
  }
}

BOOST_AUTO_TEST_CASE(a_tilde_that_the_shell_did_not_expand_is_refused) {
  for (const char* word : {"--run-dir=~/runs", "--data=~", "--init-from=~/w.h5"}) {
    BOOST_CHECK_EXCEPTION(parse({word}), Error, [](const Error& error) {
      return error.status() == ExitStatus::usage && contains(error.what(), "shells expand ~");
    });
  }
  BOOST_TEST(parse({"--run-dir", "a~/b~"}).run_dir == "a~/b~");
}

BOOST_AUTO_TEST_CASE(a_file_is_read_to_its_end) {
  const auto path = std::filesystem::temp_directory_path() /
                    ("lockstep-options-test-" + std::to_string(std::random_device{}()) + ".ini");
  std::ofstream(path) << "";
  BOOST_TEST(read_text_file(path.string()) == "");
  std::ofstream(path) << "epochs=3\nlr=0.2";

  const Config config = parse({"--config", path.string()});
  std::filesystem::remove(path);

  BOOST_TEST(config.epochs == 3);
  BOOST_TEST(config.lr == 0.2);
}

BOOST_AUTO_TEST_CASE(help_shows_every_option_with_its_default) {
  const std::string help = train_help(HelpDetail::all);
  const Config defaults;
  for (const OptionName& option : train_options().names()) {
    BOOST_TEST_CONTEXT(option.name) {
      const std::string left = (option.is_switch ? "--[no-]" : "--") + option.name + " ";
      const std::size_t begin = help.find("  " + left);
      BOOST_TEST_REQUIRE(begin != std::string::npos);
      // An entry ends at the next option or at a blank line.
      const std::size_t end =
          std::min({help.find("\n  --", begin), help.find("\n\n", begin), help.size()});
      const std::string entry = help.substr(begin, end - begin);
      const std::string value = train_options().get(defaults, option.name);
      const std::string& shown = train_options().spec(option.name).defaults;
      BOOST_TEST(contains(std::regex_replace(entry, std::regex("\\s+"), " "),
                          "[" +
                              (value.empty()   ? "none"
                               : shown.empty() ? value
                                               : shown) +
                              "]"));
    }
  }
  const std::string unwrapped = std::regex_replace(help, std::regex("\\s+"), " ");
  for (const char* part :
       {"--config", "--print-config", "one of none, crop-flip, resized-crop",
        "one of auto, keep, new", "one of auto, bar, plain", "from 0 to 1",
        "[0.1; 0.001 for adam, adamw, lamb; 0.0001 for lion]",
        "[0.0001; 0 for adam; 0.01 for adamw, lamb; 0 for lion]", "[0.999; 0.99 for lion]",
        "[1e-08; 1e-06 for lamb]", "[0; 1 for lamb]"}) {
    BOOST_TEST_CONTEXT(part) {
      BOOST_TEST(contains(unwrapped, part));
    }
  }
}

BOOST_AUTO_TEST_CASE(help_lines_fit_a_hundred_columns) {
  std::istringstream help(train_help(HelpDetail::all) + train_help(HelpDetail::first));
  for (std::string line; std::getline(help, line);) BOOST_TEST(line.size() <= 100U);
}

BOOST_AUTO_TEST_CASE(the_first_help_fits_a_screen_and_names_the_rest) {
  const std::string help = train_help(HelpDetail::first);
  std::set<std::string> shown;
  const std::regex option("\n  --(?:\\[no-\\])?([a-z-]+)");
  for (auto found = std::sregex_iterator(help.begin(), help.end(), option);
       found != std::sregex_iterator(); ++found) {
    shown.insert((*found)[1]);
  }
  BOOST_TEST(shown.size() == 13U);  // with the three that are of no member
  const auto names = train_options().names();
  for (const std::string& name : shown) {
    const bool known =
        std::ranges::any_of(names, [&](const auto& each) { return each.name == name; });
    BOOST_TEST((known || name == "config" || name == "print-config" || name == "override"), name);
  }
  BOOST_TEST(std::ranges::count(help, '\n') <= 40);
  BOOST_TEST(contains(help, "--help all shows " + std::to_string(names.size() - 10) + " more"));
}

BOOST_AUTO_TEST_CASE(each_refusal_of_a_value_says_what_the_option_takes) {
  int refused = 0;
  for (const OptionName& option : train_options().names()) {
    for (const char* value : {"[0.485,0.456]", "", "-1e9", "nan", "1e400", "\x1b[31m"}) {
      Config config;
      const std::string message = test::refusal([&] {
        train_options().set(config, {option.name, value});
      });
      if (message == "nothing was refused") continue;
      ++refused;
      const std::size_t takes = message.find("(it takes ");
      BOOST_TEST(message.starts_with("--" + option.name + " is '" + value + "'"), message);
      BOOST_TEST_REQUIRE(takes != std::string::npos, message);
      BOOST_TEST(message.find(')', takes) > takes + 15, message);
    }
  }
  BOOST_TEST(refused > 300);
}
