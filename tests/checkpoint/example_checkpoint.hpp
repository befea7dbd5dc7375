#pragma once

#include "io/temporary_directory.hpp"
#include "lockstep/checkpoint/checkpoint.hpp"
#include "lockstep/core/error.hpp"

#include <boost/test/unit_test.hpp>

#include <string>
#include <vector>

namespace lockstep::test {

[[nodiscard]] inline NamedTensor tensor_of(std::string name, Shape shape, float first) {
  NamedTensor tensor{.name = std::move(name), .shape = shape, .values = {}};
  tensor.values.resize(static_cast<std::size_t>(shape.elements()));
  for (float& value : tensor.values) value = first += 0.37F;
  return tensor;
}

/// The checkpoint of a small run. As in a network, names are not in alphabetical order.
[[nodiscard]] inline Checkpoint example_checkpoint(std::int64_t step = 12) {
  Checkpoint checkpoint;
  const auto first = static_cast<float>(step);
  checkpoint.model = {
      tensor_of("stem.weight", {16, 3, 3, 3}, first), tensor_of("bn1.weight", {16}, 2 * first),
      tensor_of("bn1.running_mean", {16}, -first), tensor_of("fc.weight", {10, 16}, 0.5F * first)};
  checkpoint.ema = checkpoint.model;
  for (NamedTensor& tensor : checkpoint.ema) tensor.values.front() += 1;
  checkpoint.mean = {0.5F, 0.25F, 0.125F};
  checkpoint.std = {0.25F, 0.5F, 1.0F};
  checkpoint.classes = 10;
  checkpoint.class_names = {"aeroplane", "",
                            "gr\xc3\xbc"
                            "n"};
  checkpoint.image = ImageShape{.channels = 3, .height = 32, .width = 48};
  checkpoint.optimizer["momentum"] = {tensor_of("stem.weight", {16, 3, 3, 3}, 1),
                                      tensor_of("fc.weight", {10, 16}, 2)};
  checkpoint.optimizer["exp_avg"] = {tensor_of("fc.weight", {10, 16}, 3)};
  checkpoint.state =
      TrainingState{.step = step,
                    .epoch = 3,
                    .position = 4096,
                    .samples = 123456789012,
                    .seed = -1,
                    .world_size = 4,
                    .global_batch = 128,
                    .epoch_loss = 0.1,
                    .epoch_metrics = {{77, 99}},
                    .epoch_samples = 4096,
                    .best_top1 = 1.0 / 3,
                    .best_step = 7,
                    .last_eval_step = 8,
                    .loss_scale = 0x1p15,
                    .loss_scale_good_steps = 12,
                    .skipped_steps = 3,
                    .data_identity = 0xFFFFFFFFu,
                    .model_identity = 0x80000000u,
                    .model = "mini_resnet",
                    .optimizer = "sgd",
                    .config = "model = mini_resnet\nlr = 0.1\n",
                    .version = "0.1.0",
                    .convolutions = "64x8x8 to 64, padding 1: winograd direct direct\n",
                    .all_reduce = "Open MPI 4.1.4, ring",
                    .backend = "oneDNN 2.6.3, avx2"};
  return checkpoint;
}

/// Predicate for BOOST_CHECK_EXCEPTION: the error has this status, and its text contains all words.
[[nodiscard]] inline auto with(ExitStatus status, std::vector<std::string> words = {}) {
  return [status, words = std::move(words)](const Error& error) {
    const std::string text = error.what();
    BOOST_TEST_MESSAGE(text);
    for (const std::string& word : words) {
      if (text.find(word) == std::string::npos) {
        BOOST_TEST_MESSAGE("the text lacks: " << word);
        return false;
      }
    }
    return error.status() == status;
  };
}

}  // namespace lockstep::test
