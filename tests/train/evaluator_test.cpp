#include "lockstep/train/evaluator.hpp"

#include <boost/test/unit_test.hpp>

#include "../../src/engine/gpu/device_engine.hpp"
#include "engine/gpu/host_device.hpp"
#include "engine/gpu/late_queues.hpp"
#include "lockstep/checkpointing/model_state.hpp"
#include "lockstep/comm/mpi_communicator.hpp"
#include "lockstep/engine/cpu_engine.hpp"
#include "lockstep/models/models.hpp"
#include "lockstep/runtime/mpi_environment.hpp"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

using namespace lockstep;

namespace {

constexpr ImageShape image{.channels = 3, .height = 12, .width = 12};
constexpr std::int64_t samples = 150;  // not a multiple of the batch size
constexpr std::int64_t batch_size = 8;

Graph make_graph() {
  return make_model("mini-resnet", {.image = image, .classes = 10, .width = 8});
}

class CountedMemory final : public HostMemory {
 public:
  explicit CountedMemory(HostMemory& inner) : inner_(inner) {}
  void* allocate(std::size_t bytes) override {
    ++allocations;
    ++held;
    return inner_.allocate(bytes);
  }
  void release(void* memory) noexcept override {
    --held;
    inner_.release(memory);
  }
  int allocations = 0;
  int held = 0;

 private:
  HostMemory& inner_;
};

using Calls = std::vector<std::string>;

class RecordingProgram final : public Program {
 public:
  RecordingProgram(std::unique_ptr<Program> inner, Calls& calls, int first_failure)
      : inner_(std::move(inner)), calls_(calls), first_failure_(first_failure) {}
  [[nodiscard]] std::int64_t batch_size() const noexcept override { return inner_->batch_size(); }
  void forward(const Batch& batch) override {
    calls_.emplace_back("forward");
    if (first_failure_ > 0 && ++forwards_ >= first_failure_) {
      fail(ExitStatus::internal, "forward {} fails", forwards_);
    }
    inner_->forward(batch);
  }
  [[nodiscard]] BatchMetrics metrics() override {
    calls_.emplace_back("metrics");
    return inner_->metrics();
  }
  void backward(const BackwardOptions& options) override { inner_->backward(options); }
  [[nodiscard]] std::span<const float> batch_statistics() override {
    return inner_->batch_statistics();
  }
  [[nodiscard]] std::span<const float> logits() override { return inner_->logits(); }
  [[nodiscard]] std::vector<StepTime> time_steps(const Batch& batch) override {
    return inner_->time_steps(batch);
  }
  [[nodiscard]] std::size_t activation_bytes() const noexcept override {
    return inner_->activation_bytes();
  }

 private:
  std::unique_ptr<Program> inner_;
  Calls& calls_;
  int first_failure_;
  int forwards_ = 0;
};

/// Records in which order an evaluation calls an engine and its program.
class RecordingEngine final : public Engine {
 public:
  /// `first_failure`: from this forward pass on, all fail; 0: none.
  RecordingEngine(Engine& inner, Calls& calls, int first_failure = 0)
      : inner_(inner), calls_(calls), first_failure_(first_failure) {}
  [[nodiscard]] std::string description() const override { return inner_.description(); }
  [[nodiscard]] const Graph& graph() const noexcept override { return inner_.graph(); }
  [[nodiscard]] InputFormat input_format() noexcept override { return inner_.input_format(); }
  void prefetch(const Batch& batch) override {
    calls_.emplace_back("prefetch");
    inner_.prefetch(batch);
  }
  void await_copy() override {
    calls_.emplace_back("await copy");
    inner_.await_copy();
  }
  void discard(const Batch& batch) override {
    calls_.emplace_back("discard");
    inner_.discard(batch);
  }
  [[nodiscard]] EngineMemory& memory() noexcept override { return inner_.memory(); }
  [[nodiscard]] std::shared_ptr<const ParameterArena> arena() const noexcept override {
    return inner_.arena();
  }
  [[nodiscard]] std::span<float> running_statistics() noexcept override {
    return inner_.running_statistics();
  }
  void set_step_timer(StepTimer& timer) override { inner_.set_step_timer(timer); }
  [[nodiscard]] std::unique_ptr<Program> compile(const ProgramOptions& options) override {
    return std::make_unique<RecordingProgram>(inner_.compile(options), calls_, first_failure_);
  }

 private:
  Engine& inner_;
  Calls& calls_;
  int first_failure_;
};

std::shared_ptr<gpu::HostQueues> queues(bool late_work, bool late_transfers) {
  return std::make_shared<gpu::LateQueues>(late_work, late_transfers);
}

struct Rig {
  std::unique_ptr<Communicator> comm = make_mpi_communicator();
  std::unique_ptr<Dataset> data =
      make_synthetic_dataset({.samples = samples, .image = image, .classes = 10, .seed = 5});
  std::shared_ptr<gpu::Device> device;
  std::unique_ptr<Engine> engine;

  /// Null: on the CPU.
  explicit Rig(std::shared_ptr<gpu::HostQueues> queues) {
    if (queues) {
      device = gpu::make_host_device(std::move(queues), gpu::HostMemoryGuard::on);
      engine = gpu::make_device_engine(device, make_graph(), {});
    } else {
      engine = make_cpu_engine(make_graph(), {.threads = 1});
    }
    engine->memory().write(initial_parameters(*engine, 3), engine->parameters());
    initialize_statistics(*engine);
  }
  [[nodiscard]] EvaluatorOptions options() const {
    return {.loader = {.image = image,
                       .format = engine->input_format(),
                       .mean = {0.5F, 0.5F, 0.5F},
                       .std = {0.25F, 0.25F, 0.25F},
                       .threads = 0},  // so the next batch takes the memory of the last at once
            .batch_size = batch_size};
  }
  [[nodiscard]] Evaluator evaluator() { return {*engine, *data, *comm, options()}; }
};

}  // namespace

BOOST_AUTO_TEST_CASE(fast_and_slow_devices_give_the_results_of_the_cpu) {
  const auto expected = Rig(nullptr).evaluator().run();
  BOOST_TEST(expected->samples == samples);
  for (const auto& [late_work, late_transfers] :
       {std::pair(false, true), std::pair(true, false), std::pair(true, true)}) {
    Rig rig(queues(late_work, late_transfers));
    std::vector<std::int32_t> labels;
    EvaluatorOptions options = rig.options();
    options.on_samples = [&](const EvaluatedSamples& piece) {
      labels.insert(labels.end(), piece.labels.begin(), piece.labels.end());
    };
    const auto result = Evaluator(*rig.engine, *rig.data, *rig.comm, options).run();

    BOOST_TEST(result->loss == expected->loss, boost::test_tools::tolerance(1e-5));
    for (std::size_t i = 0; i < metric_table.size(); ++i) {
      // Hits are counted; a probability is rounded.
      BOOST_TEST(result->metrics[i] == expected->metrics[i],
                 boost::test_tools::tolerance(i < training_metrics ? 0.0 : 1e-5));
    }
    if (rig.comm->rank() == 0) BOOST_TEST(labels.size() == samples);
  }
}

BOOST_AUTO_TEST_CASE(the_next_batch_is_copied_before_the_host_waits_for_the_device) {
  Rig rig(queues(true, false));
  Calls calls;
  RecordingEngine engine(*rig.engine, calls);
  (void)Evaluator(engine, *rig.data, *rig.comm, rig.options()).run();

  const std::int64_t share = (samples + rig.comm->size() - 1 - rig.comm->rank()) / rig.comm->size();
  const std::int64_t batches = (share + batch_size - 1) / batch_size;
  Calls expected{"prefetch"};
  for (std::int64_t batch = 1; batch <= batches; ++batch) {
    expected.insert(expected.end(), {"forward", "await copy"});
    if (batch < batches) expected.emplace_back("prefetch");
    expected.emplace_back("metrics");
  }
  BOOST_TEST(calls == expected, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(an_abandoned_evaluation_leaves_nothing_in_flight) {
  Rig rig(queues(true, false));
  Evaluator evaluator = rig.evaluator();
  // A batch left in flight by each would make the third fail.
  for (int time = 0; time < 3 && rig.comm->size() == 1; ++time) {
    BOOST_TEST(!evaluator.run([] { return true; }).has_value());
  }
  BOOST_TEST(evaluator.run()->samples == samples);
}

BOOST_AUTO_TEST_CASE(the_first_error_of_an_engine_ends_an_evaluation) {
  for (const bool has_collectives : {false, true}) {
    Rig rig(nullptr);
    Calls calls;
    RecordingEngine engine(*rig.engine, calls, 2);
    EvaluatorOptions options = rig.options();
    options.has_collectives = has_collectives;

    BOOST_CHECK_EXCEPTION((void)Evaluator(engine, *rig.data, *rig.comm, options).run(), Error,
                          [](const Error& error) {
                            return std::string(error.what()).find("forward 2 fails") !=
                                   std::string::npos;
                          });
    BOOST_TEST(std::ranges::count(calls, "forward") == 2);
  }
}

BOOST_AUTO_TEST_CASE(memory_of_batches_is_allocated_once) {
  Rig rig(queues(false, true));
  CountedMemory memory(*rig.engine->input_format().memory);
  {
    EvaluatorOptions options = rig.options();
    options.loader.format.memory = &memory;
    options.loader.threads = 2;
    Evaluator evaluator(*rig.engine, *rig.data, *rig.comm, options);
    (void)evaluator.run();
    const int first = memory.allocations;
    BOOST_TEST(first > 0);
    (void)evaluator.run();
    BOOST_TEST(memory.allocations == first);
  }
  BOOST_TEST(memory.held == 0);
}

int main(int argc, char** argv) {
  const MpiEnvironment mpi(argc, argv);
  return boost::unit_test::unit_test_main([] { return true; }, argc, argv);
}
