// For a device that is described to cuDNN and need not exist, prints which cuDNN engines support
// the convolutions of the models. Fails if a convolution has none.
#include "described_gpus.hpp"
#include "engine_survey.hpp"
#include "lockstep/core/precision.hpp"
#include "lockstep/engine/engine.hpp"
#include "lockstep/graph/graph.hpp"
#include "lockstep/models/models.hpp"

#include <cudnn.h>
#include <fmt/format.h>
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <string>
#include <vector>

using namespace lockstep;
using namespace lockstep::gpu;
using namespace lockstep::gpu::cuda;
using boost::unit_test::label;

namespace {

const std::string hopper = describe(h200);

/// All different convolutions of a model, including fully connected layers, as convolutions of one
/// pixel.
std::vector<ConvolutionShape> convolutions_of(const Graph& graph, std::int64_t batch,
                                              Precision precision) {
  std::vector<ConvolutionShape> shapes;
  for (const ConvolutionRequest& request : requests_of(graph, precision, batch)) {
    if (request.pass == ConvolutionPass::forward) shapes.push_back(request.shape);
  }
  return shapes;
}

std::string describe(const ConvolutionShape& shape) {
  return fmt::format("{}x{}x{}x{} to {}, kernel {}, stride {}, {} groups", shape.batch,
                     shape.height, shape.width, shape.in_channels, shape.out_channels, shape.kernel,
                     shape.stride, shape.groups);
}

struct PassName {
  ConvolutionPass pass;
  const char* name;
};
constexpr PassName passes[] = {
    {.pass = ConvolutionPass::forward, .name = "forward"},
    {.pass = ConvolutionPass::backward_data, .name = "data gradient"},
    {.pass = ConvolutionPass::backward_weights, .name = "weight gradient"},
};

/// One row of the table.
struct Row {
  std::size_t shapes = 0;
  std::size_t supported = 0;       ///< shapes with an engine whose plan could be built
  std::size_t runtime = 0;         ///< shapes with an engine that is compiled at run time
  std::size_t fewest = 1000;       ///< smallest number of plans that could be built for a shape
  std::size_t most_workspace = 0;  ///< of each shape's first plan that could be built
  std::string first;               ///< first unsupported shape
};

void add_to(Row& row, const ConvolutionShape& shape, const EngineSurvey& survey) {
  const auto& engines = survey.engines;
  const auto made = static_cast<std::size_t>(std::count_if(
      engines.begin(), engines.end(), [](const auto& engine) { return engine.finalizes; }));
  const bool runtime = std::any_of(engines.begin(), engines.end(),
                                   [](const auto& engine) { return engine.compiled_at_run; });
  ++row.shapes;
  row.fewest = std::min(row.fewest, made);
  if (runtime) ++row.runtime;
  if (made > 0) {
    ++row.supported;
    const auto first = std::find_if(engines.begin(), engines.end(),
                                    [](const auto& engine) { return engine.finalizes; });
    row.most_workspace = std::max(row.most_workspace, first->workspace_bytes);
  } else if (row.first.empty()) {
    row.first = fmt::format("none for {} ({})", describe(shape), survey.reason);
  }
}

void survey_model(const std::string& model, const ModelOptions& options, std::int64_t batch) {
  const Graph graph = make_model(model, options);
  for (const Precision precision :
       {Precision::fp32, Precision::tf32, Precision::bf16, Precision::fp16}) {
    const auto shapes = convolutions_of(graph, batch, precision);
    for (const auto& pass : passes) {
      Row row;
      for (const auto& shape : shapes) {
        add_to(row, shape, survey_engines(hopper, {.shape = shape, .pass = pass.pass}, {}));
      }
      fmt::print("| {} | {} | {} | {} | {} | {} | {} | {:.0f} | {} |\n", model,
                 to_string(precision), pass.name, row.shapes, row.supported, row.fewest,
                 row.runtime, static_cast<double>(row.most_workspace) / (1 << 20), row.first);
      BOOST_TEST(row.supported == row.shapes, model << ": " << row.first);
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(every_convolution_of_the_models_has_an_engine, *label("soak")) {
  fmt::print(
      "cuDNN {} on a described H200; engines that need a driver to finalize are only counted\n"
      "| model | precision | pass | shapes | with a plan | fewest plans | with a runtime engine | "
      "most workspace, MiB | note |\n|---|---|---|---|---|---|---|---|---|\n",
      cudnnGetVersion());

  survey_model("resnet50", {}, 256);
  survey_model("resnext50_32x4d", {}, 128);
  survey_model("mini-resnet", {.image = {.channels = 3, .height = 32, .width = 32}, .classes = 10},
               64);
}

BOOST_AUTO_TEST_CASE(every_convolution_of_resnet50_has_a_deterministic_engine) {
  const PlanOptions options{.max_workspace_bytes = std::size_t{1} << 40, .deterministic = true};
  const Graph graph = make_model("resnet50", {});
  for (const Precision precision : {Precision::fp32, Precision::tf32, Precision::bf16}) {
    for (const auto& shape : convolutions_of(graph, 256, precision)) {
      for (const auto& pass : passes) {
        Row row;
        add_to(row, shape,
               survey_engines(hopper, {.shape = shape, .pass = pass.pass}, {.plans = options}));
        BOOST_TEST(row.supported == 1U, to_string(precision)
                                            << ", " << pass.name << ", " << row.first);
        if (row.most_workspace > PlanOptions{}.max_workspace_bytes) {
          fmt::print("deterministic {} {} of {} takes {} MiB\n", to_string(precision), pass.name,
                     describe(shape), row.most_workspace >> 20);
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(the_workspace_limit_excludes_no_engine_of_large_fp32_convolutions) {
  // Their faster engines transpose x (784 MiB) and y; both take up to 1,176 MiB.
  for (const std::int64_t out_channels : {128, 512}) {
    const ConvolutionShape shape{.batch = 256,
                                 .height = 56,
                                 .width = 56,
                                 .in_channels = 256,
                                 .out_channels = out_channels,
                                 .kernel = 1,
                                 .stride = out_channels == 128 ? 1 : 2};
    for (const auto& pass : passes) {
      const auto engines = [&](const PlanOptions& options) {
        return std::ranges::count_if(
            survey_engines(hopper, {.shape = shape, .pass = pass.pass}, {.plans = options}).engines,
            &EngineSupport::finalizes);
      };
      BOOST_TEST(engines({}) == engines({.max_workspace_bytes = std::size_t{1} << 40}),
                 pass.name << " of " << describe(shape));
    }
  }
}

/// cuDNN's engine 0 computes everything, slowly.
bool is_generic(const EngineSurvey& survey) {
  return survey.engines.back().engine.starts_with("eng0");
}

/// Surveys a model's requests of at least 10^8 operations, which are those that are timed, and
/// prints those whose first choice is the generic engine; returns their number.
std::size_t survey_first_choices(const Gpu& gpu, const std::string& model, Precision precision) {
  ModelOptions options;
  if (model == "mini-resnet") options = {.image = {.channels = 3, .height = 32, .width = 32}};
  const Graph graph = make_model(model, options);
  std::size_t generic = 0;
  for (const ConvolutionRequest& request : requests_of(graph, precision, 256)) {
    if (request.operations() < PlanOptions{}.smallest_trial) continue;
    SurveyOptions survey{
        .plans = {.deterministic = true}, .precompiled_only = true, .first_only = true};
    const EngineSurvey first = survey_engines(describe(gpu), request, survey);
    BOOST_TEST_CONTEXT(gpu.name << ", " << model << ", " << request.text() << first.reason) {
      BOOST_TEST_REQUIRE(!first.engines.empty());
      BOOST_TEST(first.engines.back().finalizes);
      if (!is_generic(first)) continue;
      ++generic;
      fmt::print("generic: {} of {} on {}\n", request.text(), model, gpu.name);
      survey.plans.max_workspace_bytes = std::size_t{1} << 40;
      BOOST_TEST(is_generic(survey_engines(describe(gpu), request, survey)),
                 "the limit of the workspace excludes better engines");
    }
  }
  return generic;
}

void check_first_choices(const Gpu& gpu) {
  for (const Precision precision :
       {Precision::fp32, Precision::tf32, Precision::bf16, Precision::fp16}) {
    std::size_t generic = 0;
    for (const char* model : {"resnet18", "resnet50", "resnext50_32x4d", "mini-resnet"}) {
      const std::size_t found = survey_first_choices(gpu, model, precision);
      generic += found;
      if (std::string(model) == "resnet50") {
        BOOST_TEST(found <= (precision == Precision::fp32 ? 1U : 0U), gpu.name);
      }
    }
    // Grouped convolutions, linear layers, and data gradients of 1x1 filters with a stride of 2.
    const bool is_exact = precision == Precision::fp32;
    BOOST_TEST(generic <= (is_exact ? gpu.most_generic_fp32 : 1U), gpu.name);
  }
}

BOOST_AUTO_TEST_CASE(large_convolutions_do_not_begin_with_the_generic_engine) {
  check_first_choices(h200);
}

BOOST_AUTO_TEST_CASE(on_other_gpus_large_convolutions_do_not_begin_with_the_generic_engine,
                     *label("soak")) {
  for (const Gpu& gpu : {gpus[0], gpus[1], gpus[3]}) check_first_choices(gpu);
}

BOOST_AUTO_TEST_CASE(every_small_convolution_has_a_precompiled_engine, *label("soak")) {
  // The convolutions of the conformance suite.
  const PlanOptions options{.deterministic = true};
  for (const Precision precision :
       {Precision::fp32, Precision::tf32, Precision::bf16, Precision::fp16}) {
    const DataType type = storage_of(precision);
    for (const std::int64_t kernel : {1, 3, 5, 7}) {
      for (const std::int64_t stride : {1, 2}) {
        for (const std::int64_t channels : {1, 20, 33}) {
          const ConvolutionShape shape{.batch = 3,
                                       .height = 11,
                                       .width = 12,
                                       .in_channels = padded_channels(channels),
                                       .out_channels = padded_channels(34 - channels),
                                       .kernel = kernel,
                                       .stride = stride,
                                       .padding = stride == 1 ? kernel / 2 : 0,
                                       .type = type,
                                       .tf32 = precision == Precision::tf32};
          for (const auto& pass : passes) {
            const auto survey = survey_engines(hopper, {.shape = shape, .pass = pass.pass},
                                               {.plans = options, .precompiled_only = true});
            BOOST_TEST(std::ranges::any_of(survey.engines, &EngineSupport::finalizes),
                       to_string(precision) << ", " << pass.name << " of " << describe(shape)
                                            << ": " << survey.reason);
          }
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(engines_compiled_at_run_time_can_be_excluded) {
  const ConvolutionRequest request{.shape = {.batch = 64,
                                             .height = 14,
                                             .width = 14,
                                             .in_channels = 256,
                                             .out_channels = 256,
                                             .kernel = 3,
                                             .padding = 1,
                                             .type = DataType::bf16},
                                   .pass = ConvolutionPass::forward};
  const EngineSurvey survey = survey_engines(hopper, request, {.precompiled_only = true});
  const auto compiled = std::ranges::count_if(survey.engines, &EngineSupport::compiled_at_run);

  BOOST_TEST(compiled > 0);
  BOOST_TEST(std::ranges::none_of(survey.engines, [](const EngineSupport& engine) {
    return engine.compiled_at_run && engine.allowed;
  }));
  BOOST_TEST(std::ranges::any_of(survey.engines, &EngineSupport::finalizes));
}

BOOST_AUTO_TEST_CASE(fp32_does_not_use_tensor_cores) {
  ConvolutionShape shape{.batch = 256,
                         .height = 56,
                         .width = 56,
                         .in_channels = 64,
                         .out_channels = 64,
                         .kernel = 3,
                         .padding = 1};
  const ConvolutionRequest fp32{.shape = shape, .pass = ConvolutionPass::forward};
  shape.tf32 = true;
  const ConvolutionRequest tf32{.shape = shape, .pass = ConvolutionPass::forward};
  const auto allowed = [](const EngineSurvey& survey) {
    return std::count_if(survey.engines.begin(), survey.engines.end(),
                         [](const auto& engine) { return engine.allowed; });
  };

  const auto exact = survey_engines(hopper, fp32, {});
  const auto rounded = survey_engines(hopper, tf32, {});

  BOOST_TEST(exact.engines.size() == rounded.engines.size());
  BOOST_TEST(allowed(exact) < allowed(rounded));
  BOOST_REQUIRE(!exact.engines.empty());
  BOOST_TEST(!exact.engines.front().allowed);
  BOOST_TEST(rounded.engines.front().allowed);
}

BOOST_AUTO_TEST_CASE(workspace_limit_and_determinism_exclude_engines) {
  const ConvolutionShape shape{.batch = 256,
                               .height = 56,
                               .width = 56,
                               .in_channels = 64,
                               .out_channels = 64,
                               .kernel = 3,
                               .padding = 1};
  const ConvolutionRequest request{.shape = shape, .pass = ConvolutionPass::backward_weights};
  const auto made = [&](const PlanOptions& options) {
    const auto survey = survey_engines(hopper, request, {.plans = options});
    return std::count_if(survey.engines.begin(), survey.engines.end(),
                         [](const auto& engine) { return engine.finalizes; });
  };

  const auto all = made({});
  const auto small = made({.max_workspace_bytes = 0});
  const auto deterministic = made({.deterministic = true});

  BOOST_TEST(small < all);
  BOOST_TEST(deterministic < all);
  BOOST_TEST(deterministic > 0);
}
