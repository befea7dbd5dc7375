#include "lockstep/engine/cpu_engine.hpp"

#include "conformance/fixtures.hpp"
#include "conformance/harness.hpp"
#include "core/sanitizers.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/engine/convolution_choices.hpp"

#include <boost/test/unit_test.hpp>

#include <dlfcn.h>
#include <omp.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string_view>
#include <utility>

using namespace lockstep;

namespace {

std::atomic<bool> counting{false};
std::atomic<int> allocations{0};

/// oneDNN 2.6 allocates a map of a primitive's arguments at each call. We cannot avoid that, so
/// allocations by its library do not count.
bool is_of_onednn(const void* caller) {
  Dl_info info{};
  return dladdr(caller, &info) != 0 && info.dli_fname != nullptr &&
         std::string_view(info.dli_fname).find("libdnnl") != std::string_view::npos;
}

void* counted(std::size_t size, std::size_t alignment, const void* caller) {
  if (counting && !is_of_onednn(caller)) ++allocations;
  const std::size_t rounded = (size + alignment - 1) / alignment * alignment;
  void* memory = std::aligned_alloc(alignment, rounded == 0 ? alignment : rounded);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

// GCC inlines these delete operators but not the new operators, and then warns about free() of
// memory from new.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
void* operator new(std::size_t size) {
  return counted(size, alignof(std::max_align_t), __builtin_return_address(0));
}
void* operator new[](std::size_t size) {
  return counted(size, alignof(std::max_align_t), __builtin_return_address(0));
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return counted(size, alignof(std::max_align_t), __builtin_return_address(0));
}
void* operator new(std::size_t size, std::align_val_t alignment) {
  return counted(size, static_cast<std::size_t>(alignment), __builtin_return_address(0));
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete[](void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}

namespace {

Graph residual_network() {
  Graph graph("residual", {3, 10, 10});
  ValueId x =
      graph.conv2d(graph.input(), {.name = "conv1", .out_channels = 18, .kernel = 3, .padding = 1});
  x = graph.relu(graph.batch_norm(x, {.name = "bn1"}));
  ValueId y = graph.conv2d(x, {.name = "conv2", .out_channels = 18, .kernel = 3, .padding = 1});
  x = graph.relu(graph.add(graph.batch_norm(y, {.name = "bn2"}), x));
  x = graph.max_pool(x, {.kernel = 3, .stride = 2, .padding = 1});
  x = graph.relu(graph.linear(graph.flatten(x), {.name = "fc1", .out_features = 20}));
  x = graph.linear(x, {.name = "fc2", .out_features = 10});
  graph.softmax_cross_entropy(x, {});
  return graph;
}

/// The second convolution of residual_network(); the first one has too few channels.
const WinogradShape second{
    .in_channels = 18, .height = 10, .width = 10, .out_channels = 18, .padding = 1};

}  // namespace

BOOST_AUTO_TEST_CASE(the_tenth_step_allocates_nothing) {
  const Graph graph = residual_network();
  for (const ConvolutionChoices& convolutions :
       {ConvolutionChoices(), conformance::all_winograd(graph)}) {
    const auto engine =
        make_cpu_engine(graph, {.threads = 2, .tail_size = 0, .convolutions = convolutions});
    conformance::load(*engine, oracle::random_state(graph, 1));
    const conformance::EngineBatch batch(*engine, oracle::random_problem(graph, 4, 1));
    const auto training = engine->compile_training(4);
    const auto inference = engine->compile_inference(4);

    for (int step = 1; step <= 10; ++step) {
      counting = step == 10;
      training->forward(batch.batch());
      training->backward({.loss_scale = 1.0F, .accumulate = false});
      training->forward(batch.batch());
      training->backward({.loss_scale = 1.0F, .accumulate = true});
      inference->forward(batch.first(3));
    }
    counting = false;

    BOOST_TEST(allocations == 0, convolutions.text());
  }
}

BOOST_AUTO_TEST_CASE(the_counter_of_allocations_counts) {
  allocations = 0;
  counting = true;
  const auto engine = make_cpu_engine(residual_network(), {.threads = 1, .tail_size = 0});
  counting = false;

  BOOST_TEST(allocations > 0);
}

BOOST_AUTO_TEST_CASE(the_description_names_library_and_threads) {
  const auto engine = make_cpu_engine(residual_network(), {.threads = 2, .tail_size = 0});

  BOOST_TEST(engine->description().starts_with("oneDNN "));
  BOOST_TEST(engine->description().ends_with(", 2 threads"));
}

BOOST_AUTO_TEST_CASE(the_description_counts_steps_by_winograds_algorithm) {
  ConvolutionChoices choices;
  choices.set(second, ConvolutionStep::data_gradient, true);

  const auto engine = make_cpu_engine(residual_network(), {.threads = 1, .convolutions = choices});

  BOOST_TEST(engine->description().ends_with(
      "1 thread, Winograd's algorithm in 1 of 3 steps of 3x3 convolutions"));
}

BOOST_AUTO_TEST_CASE(each_step_uses_the_algorithm_that_is_chosen_for_it) {
  const Graph graph = residual_network();
  const auto results = [&](const ConvolutionChoices& choices) {
    const auto engine = make_cpu_engine(graph, {.threads = 2, .convolutions = choices});
    conformance::load(*engine, oracle::random_state(graph, 1));
    const conformance::EngineBatch batch(*engine, oracle::random_problem(graph, 4, 1));
    const auto program = engine->compile_training(4);
    program->forward(batch.batch());
    program->backward({.loss_scale = 1.0F, .accumulate = false});
    const auto of = [&](const char* name) {
      const auto parameters = graph.parameters();
      const auto found = std::ranges::find(parameters, name, &Parameter::name);
      const auto view = engine->layout()
                            .view_of(static_cast<ParameterId>(found - parameters.begin()))
                            .in(std::span<const float>(engine->gradients()));
      return std::vector<float>(view.begin(), view.end());
    };
    return std::tuple(std::vector<float>(program->logits().begin(), program->logits().end()),
                      of("conv1.weight"), of("conv2.weight"));
  };
  const auto [logits, before, own] = results({});
  for (const ConvolutionStep step : convolution_steps) {
    ConvolutionChoices choices;
    choices.set(second, step, true);

    const auto [other_logits, other_before, other_own] = results(choices);

    BOOST_TEST_CONTEXT(to_string(step)) {
      BOOST_TEST((other_logits != logits) == (step == ConvolutionStep::forward));
      BOOST_TEST((other_before != before) == (step != ConvolutionStep::weight_gradient));
      BOOST_TEST((other_own != own) == (step != ConvolutionStep::data_gradient));
    }
    BOOST_TEST((results(choices) == std::tuple(other_logits, other_before, other_own)));
  }
}

BOOST_AUTO_TEST_CASE(the_layout_of_arenas_does_not_depend_on_the_algorithms) {
  const Graph graph = residual_network();
  const auto places = [&](const ConvolutionChoices& choices) {
    const auto engine = make_cpu_engine(graph, {.threads = 2, .convolutions = choices});
    conformance::load(*engine, oracle::random_state(graph, 1));
    const auto parameters = engine->parameters();
    return std::pair(engine->layout(), std::vector<float>(parameters.begin(), parameters.end()));
  };

  BOOST_TEST((places(conformance::all_winograd(graph)) == places({})));
}

BOOST_AUTO_TEST_CASE(inference_gives_the_same_bits_in_each_program_of_an_engine) {
  const Graph graph = residual_network();
  const auto engine =
      make_cpu_engine(graph, {.threads = 2, .convolutions = conformance::all_winograd(graph)});
  conformance::load(*engine, oracle::random_state(graph, 1));
  const conformance::EngineBatch batch(*engine, oracle::random_problem(graph, 6, 1));
  const auto large = engine->compile_inference(6);
  const auto small = engine->compile_inference(2);

  large->forward(batch.batch());
  const std::vector<float> logits(large->logits().begin(), large->logits().begin() + 20);
  small->forward(batch.first(2));

  BOOST_TEST(logits == std::vector<float>(small->logits().begin(), small->logits().end()),
             boost::test_tools::per_element());
}

/// Of loops of our own alone.
Graph layer_norms() {
  Graph graph("layer norms", {5, 9, 7});
  const ValueId x = graph.append(LayerNorm{graph.input(), {.name = "norm1"}});
  const ValueId y = graph.append(LayerNorm{x, {.name = "norm2"}});
  graph.softmax_cross_entropy(graph.flatten(graph.global_avg_pool(y)), {});
  return graph;
}
Graph attention() {
  Graph graph("attention", {12, 7, 10});
  ValueId x =
      graph.append(Tokens{graph.input(), {.class_token = "class_token", .positions = "positions"}});
  x = graph.append(LayerNorm{x, {.name = "norm"}});
  x = graph.append(Attention{x, {.name = "attention", .heads = 2}});
  graph.softmax_cross_entropy(graph.append(FirstToken{x}), {});
  return graph;
}

BOOST_AUTO_TEST_CASE(bits_of_our_own_loops_do_not_depend_on_the_number_of_threads) {
  for (const Graph& graph : {layer_norms(), attention()}) {
    const auto problem =
        oracle::random_problem(graph, 61, 3);  // more rows than parts, not a multiple
    std::vector<std::vector<float>> gradients;
    for (const int threads : {1, 2, 3}) {
      const auto engine = make_cpu_engine(graph, {.threads = threads});
      conformance::load(*engine, oracle::random_state(graph, 7));
      const conformance::EngineBatch batch(*engine, problem);
      const auto program = engine->compile_training(problem.batch_size);
      program->forward(batch.batch());
      program->backward({});
      gradients.push_back(conformance::gradients_of(*engine));
    }
    BOOST_TEST((gradients[1] == gradients[0]), graph.name());
    BOOST_TEST((gradients[2] == gradients[0]), graph.name());
  }
}

BOOST_AUTO_TEST_CASE(a_samples_attention_does_not_depend_on_its_batch) {
  const Graph graph = attention();
  const auto engine = make_cpu_engine(graph, {.threads = 2});
  conformance::load(*engine, oracle::random_state(graph, 7));
  const conformance::EngineBatch batch(*engine, oracle::random_problem(graph, 5, 3));
  const auto large = engine->compile_inference(5);
  const auto small = engine->compile_inference(2);
  large->forward(batch.batch());
  const std::vector<float> logits(large->logits().begin(), large->logits().begin() + 2 * 4);
  small->forward(batch.first(2));
  BOOST_TEST(logits == std::vector<float>(small->logits().begin(), small->logits().end()),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(parameters_start_as_zeros_and_statistics_as_in_the_graph) {
  const auto engine = make_cpu_engine(residual_network(), {.threads = 1, .tail_size = 0});

  double sum = 0;
  for (const float value : engine->parameters()) sum += std::abs(value);
  BOOST_TEST(sum == 0.0);
  BOOST_TEST(engine->running_statistics().size() == 4u * 18u);
  BOOST_TEST(engine->running_statistics()[0] == 0.0F);
  BOOST_TEST(engine->running_statistics()[18] == 1.0F);
}

BOOST_AUTO_TEST_CASE(graphs_that_cannot_be_trained_are_refused) {
  Graph unfinished("unfinished", {1, 2, 2});
  unfinished.flatten(unfinished.input());
  Graph idle("idle", {1, 2, 2});
  const ValueId x = idle.flatten(idle.input());
  idle.linear(x, {.name = "unused", .out_features = 3});
  idle.softmax_cross_entropy(x, {});

  for (const Graph& graph : {unfinished, idle}) {
    BOOST_CHECK_EXCEPTION(static_cast<void>(make_cpu_engine(graph, {})), Error,
                          [](const Error& error) { return error.status() == ExitStatus::usage; });
  }
}

BOOST_AUTO_TEST_CASE(a_batch_too_large_for_memory_is_refused_and_other_programs_still_run,
                     *boost::unit_test::enable_if<!test::sanitized>()) {
  const Graph graph = residual_network();
  const auto engine = make_cpu_engine(graph, {.threads = 1, .tail_size = 0});
  conformance::load(*engine, oracle::random_state(graph, 1));
  const conformance::EngineBatch batch(*engine, oracle::random_problem(graph, 4, 1));
  const auto program = engine->compile_training(4);
  const double loss = conformance::run_forward(*program, batch.batch()).loss;
  rlimit limit{};
  BOOST_REQUIRE(getrlimit(RLIMIT_AS, &limit) == 0);
  const rlim_t usual = std::exchange(limit.rlim_cur, rlim_t{3} << 30);
  BOOST_REQUIRE(setrlimit(RLIMIT_AS, &limit) == 0);

  BOOST_CHECK_EXCEPTION((void)engine->compile_training(400'000), Error, [](const Error& error) {
    return error.status() == ExitStatus::usage &&
           std::string_view(error.what()).find("lower --batch-size") != std::string_view::npos;
  });

  limit.rlim_cur = usual;
  BOOST_REQUIRE(setrlimit(RLIMIT_AS, &limit) == 0);
  BOOST_TEST(conformance::run_forward(*program, batch.batch()).loss == loss);
}

BOOST_AUTO_TEST_CASE(programs_outlive_their_engine) {
  const Graph graph = residual_network();
  auto engine = make_cpu_engine(graph, {.threads = 1, .tail_size = 0});
  conformance::load(*engine, oracle::random_state(graph, 1));
  const conformance::EngineBatch batch(*engine, oracle::random_problem(graph, 2, 1));
  const auto program = engine->compile_inference(2);
  const double loss = conformance::run_forward(*program, batch.batch()).loss;

  engine.reset();

  BOOST_TEST(conformance::run_forward(*program, batch.batch()).loss == loss);
}

BOOST_AUTO_TEST_CASE(forward_sets_the_callers_number_of_threads) {
  const Graph graph = residual_network();
  const auto engine = make_cpu_engine(graph, {.threads = 1, .tail_size = 0});
  const conformance::EngineBatch batch(*engine, oracle::random_problem(graph, 2, 1));
  const auto program = engine->compile_inference(2);
  omp_set_num_threads(2);

  program->forward(batch.batch());

  BOOST_TEST(omp_get_max_threads() == 1);
}
