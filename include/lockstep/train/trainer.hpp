#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/config/option_types.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/precision.hpp"
#include "lockstep/models/models.hpp"
#include "lockstep/run/evaluation_result.hpp"
#include "lockstep/runtime/process_grid.hpp"
#include "lockstep/runtime/start_clock.hpp"
#include "lockstep/runtime/thread_binding.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

class Watchdog;

/// Inputs of train() besides the configuration. References outlive the call.
struct TrainingJob {
  Communicator& comm;
  const ProcessGrid& grid;
  const ThreadBinding& binding;
  /// If train() throws on this rank, receives the run's watchdog, whose end_job() can still name
  /// the rank that made this one fail; may be empty.
  std::function<void(std::shared_ptr<Watchdog>)> keep_watchdog = {};
  StartClock start_clock{"options"};  ///< of the start so far
};

struct TrainingResult {
  ExitStatus status = ExitStatus::ok;  ///< ok, or stopped: submit again
  std::int64_t step = 0;
  std::string run_dir;
  std::string checkpoint;                      ///< the last one written or found; empty: none
  std::optional<EvaluationResult> evaluation;  ///< the last one of this call
  std::optional<EvaluationResult> ema_evaluation = {};  ///< of the average, with --ema-decay
};

/// Trains until the configured end or a stop signal (SIGUSR1, SIGTERM, SIGINT), resuming from the
/// run directory's newest checkpoint. Collective; throws the same Error on all ranks if possible.
TrainingResult train(const Config& config, const TrainingJob& job);

struct EvaluationJob {
  Communicator& comm;
  const ThreadBinding& binding;
  /// Receives warnings for the user, on every rank; may be empty.
  std::function<void(const std::string&)> warn = {};
  /// As `warn`, with how images become the network's input.
  std::function<void(const std::string&)> say = {};
};

/// Options of `lockstep eval`; `model` and related options are needed if the file holds only
/// weights.
struct EvaluationRequest {
  std::string checkpoint;
  std::string data;
  std::string split = "val";
  std::optional<bool> ema = {};  ///< evaluate the average of the weights; nullopt: if there is one
  std::string model;             ///< empty: the checkpoint's
  std::int64_t width = 0;        ///< with `model`, as the two below
  Stem stem = Stem::standard;
  Shortcut shortcut = Shortcut::convolution;
  std::int64_t image_size = 0;   ///< 0: the run's in evaluations, else the data set's
  double eval_crop_ratio = 0;    ///< Config::eval_crop_ratio; 0: the run's
  std::int64_t eval_resize = 0;  ///< Config::eval_resize; 0: the run's
  std::optional<ResizeFilter> eval_interpolation = {};  ///< nullopt: the run's
  std::vector<double> mean = {};       ///< empty: the checkpoint's, else the data set's
  std::vector<double> std = {};        ///< as `mean`
  std::optional<Precision> precision;  ///< nullopt: the run's
  DeviceChoice device = DeviceChoice::automatic;
  DecodeChoice decode = DecodeChoice::automatic;
  ConvAlgorithm conv_algorithm = ConvAlgorithm::automatic;  ///< automatic: the run's
  std::int64_t batch_size = 64;
  std::int64_t loader_threads = -1;  ///< as Config::loader_threads
  bool per_class = false;            ///< EvaluationResult::classes
  std::string confusion = {};        ///< path of a confusion matrix, CSV; empty: none
  std::string predictions = {};      ///< path of all logits, HDF5; empty: none
  bool overwrite = false;            ///< replace these files
};
/// Collective. Throws the same Error on all ranks if possible; no file is then written in part.
[[nodiscard]] EvaluationResult evaluate(const EvaluationRequest& request, const EvaluationJob& job);

}  // namespace lockstep
