#include "../../src/compute/gpu_model/step_model.hpp"

#include "lockstep/config/config.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/models/models.hpp"

#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>

#include <fstream>
#include <map>
#include <string>
#include <string_view>

using namespace lockstep;
using gpu::ModelledLaunch;
using gpu::StepModel;

namespace {

StepModel predicted(const std::string& model, const std::string& gpu, std::int64_t batch,
                    Precision precision = Precision::bf16,
                    OptimizerKind optimizer = OptimizerKind::sgd,
                    BatchNormScope batch_norm = BatchNormScope::local) {
  const std::int64_t side = model == "mini-resnet" ? 32 : 224;
  const Graph graph =
      make_model(model, {.image = {.channels = 3, .height = side, .width = side}, .classes = 1000});
  Config config;
  config.batch_size = batch;
  config.precision = precision;
  config.optimizer = optimizer;
  config.batch_norm = batch_norm;
  return gpu::model_step(graph, config, gpu::gpu_spec(gpu));
}

double bytes_of(const StepModel& model, const std::string& step) {
  double bytes = 0;
  for (const ModelledLaunch& launch : model.launches) {
    if (launch.step == step) bytes += launch.cost.bytes;
  }
  return bytes;
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_prediction_agrees_with_the_profile_of_an_h200) {
  std::ifstream file(LOCKSTEP_RESULTS "/2026-11-26-resnet50-kernels-h200.json");
  const auto profile = nlohmann::json::parse(file)["tuned"];
  const StepModel model = predicted("resnet50", "h200", 256);
  auto found = model.by_kernel();
  // Profiled when the first norm was a separate step from its max pool.
  for (const auto& [kernel, pooled] :
       {std::pair{"BackwardApply", "PooledBackwardApply"},
        std::pair{"ChunkGradients", "ChunkPooledGradients"}, std::pair{"Apply", "PooledApply"}}) {
    BOOST_TEST(found[pooled].launches == 1);
    found[kernel] += found[pooled];
  }
  const double measured = profile["milliseconds"];
  BOOST_TEST(1e3 * model.total().seconds == measured, boost::test_tools::tolerance(0.07));
  for (const std::string kernel :
       {"BackwardApply", "ChunkGradients", "Apply", "ChunkStatistics", "GatherColumns"}) {
    BOOST_TEST_CONTEXT(kernel) {
      const auto& line = profile["by_kernel"][kernel];
      const double gigabytes =
          line["gigabytes_read"].get<double>() + line["gigabytes_written"].get<double>();
      const auto close = boost::test_tools::tolerance(0.17);
      BOOST_TEST(found[kernel].launches == line["launches"].get<int>());
      BOOST_TEST(1e3 * found[kernel].seconds == line["milliseconds"].get<double>(), close);
      BOOST_TEST(found[kernel].bytes / 1e9 == gigabytes, close);
    }
  }
  for (const std::string kernel : {"CombineStatistics", "CombineGradients"}) {
    BOOST_TEST(found[kernel].launches == profile["by_kernel"][kernel]["launches"].get<int>());
  }
  // Measured when each of 53 weight gradients was converted by a launch of its own. Now those of
  // each of 7 buckets are converted together, and two operands of the logits are widened.
  const int unary = profile["by_kernel"]["Unary"]["launches"];
  BOOST_TEST(found["Unary"].launches == unary - 53 + 2);
  BOOST_TEST(found["ConvertGradients"].launches == 7);
  // Measured before its taps were computed apart; its traffic is the same.
  const auto& cut = profile["by_kernel"]["CutImages"];
  BOOST_TEST(found["CutImages"].bytes / 1e9 ==
                 cut["gigabytes_read"].get<double>() + cut["gigabytes_written"].get<double>(),
             boost::test_tools::tolerance(0.17));
  // cuDNN queues several kernels for some convolutions.
  const auto& library = profile["by_kernel"]["cuDNN"];
  BOOST_TEST(found["convolution"].launches == 161);
  BOOST_TEST(1e3 * found["convolution"].seconds == library["milliseconds"].get<double>(),
             boost::test_tools::tolerance(0.1));
}

BOOST_AUTO_TEST_CASE(traffic_is_that_of_the_values) {
  const StepModel model = predicted("resnet50", "h100", 8);
  const double map = 8.0 * 112 * 112 * 64 * 2;  // of the stem, in bf16
  // A norm with its ReLU reads and writes the values, and writes a bit for each.
  BOOST_TEST(bytes_of(model, "batch norm layer1.0.bn1") == (2 * map + map / 16) / 4);
  // With its max pool, it writes a fourth of the values and a byte for each of these. Backward
  // reads them twice, and the map, and writes the map's gradient.
  const double pooled = map / 4 + map / 8;
  BOOST_TEST(bytes_of(model, "batch norm bn1 with max pool") == map + pooled);
  BOOST_TEST(bytes_of(model, "parameter gradients of batch norm bn1 with max pool") == map + pooled,
             boost::test_tools::tolerance(0.02));  // partial sums
  BOOST_TEST(bytes_of(model, "gradient of batch norm bn1 with max pool") == 2 * map + pooled,
             boost::test_tools::tolerance(0.01));
  // Pixels are bytes; values have 8 channels. Each row and column has a range of taps.
  BOOST_TEST(bytes_of(model, "input images") == 8.0 * 224 * 224 * (3 + 2 * 8) + 8.0 * 448 * 8);
  // A bias is added in place, to 1000 logits in fp32.
  BOOST_TEST(bytes_of(model, "bias of fc") == 2 * 8.0 * 1000 * 4);
  // A 1x1 filter with a stride of 2 reads a fourth of the pixels.
  const double in = 8.0 * 56 * 56 * 256 * 2;
  BOOST_TEST(bytes_of(model, "convolution layer2.0.downsample.0") ==
             in / 4 + in / 2 + 2 * 256 * 512);
}

BOOST_AUTO_TEST_CASE(a_step_scales_with_the_batch_the_device_and_the_precision) {
  const StepModel model = predicted("resnet50", "h100", 64);
  const StepModel twice = predicted("resnet50", "h100", 128);
  const double seconds = model.total().seconds;
  BOOST_TEST(twice.launches.size() == model.launches.size());
  BOOST_TEST(twice.total().seconds_at_peak == 2 * model.total().seconds_at_peak,
             boost::test_tools::tolerance(0.03));
  for (const char* faster : {"h200", "b200"}) {
    BOOST_TEST(predicted("resnet50", faster, 64).total().seconds < seconds);
  }
  BOOST_TEST(predicted("resnet50", "a100", 64).total().seconds > seconds);
  BOOST_TEST(predicted("resnet50", "h100", 64, Precision::tf32).total().seconds > seconds);
  BOOST_TEST(predicted("resnet50", "h100", 64, Precision::fp32).total().seconds >
             predicted("resnet50", "h100", 64, Precision::tf32).total().seconds);
}

BOOST_AUTO_TEST_CASE(every_step_of_every_model_has_traffic) {
  for (const std::string_view name : model_names()) {
    for (const Precision precision :
         {Precision::fp32, Precision::tf32, Precision::bf16, Precision::fp16}) {
      const StepModel model = predicted(std::string(name), "h100", 32, precision);
      std::map<std::string, double> bytes;
      for (const ModelledLaunch& launch : model.launches) {
        BOOST_TEST(!launch.kernel.empty());
        bytes[launch.step] += launch.cost.bytes;
      }
      for (const auto& [step, sum] : bytes) {
        BOOST_TEST(sum > 0, name << ", " << to_string(precision) << ": " << step);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(updates_read_and_write_their_arenas) {
  const auto update = [](OptimizerKind kind) {
    std::map<std::string, double> bytes;
    for (const ModelledLaunch& launch :
         predicted("resnet18", "h100", 32, Precision::bf16, kind).launches) {
      if (launch.step == "update") bytes[launch.kernel] += launch.cost.bytes;
    }
    return bytes;
  };
  const double arena = update(OptimizerKind::sgd)["MomentumUpdate"] / 5;
  BOOST_TEST(arena > 4 * 11.6e6);
  BOOST_TEST(arena < 4 * 11.8e6);
  BOOST_TEST(update(OptimizerKind::adam)["MomentsUpdate"] == 7 * arena);
  auto lamb = update(OptimizerKind::lamb);
  BOOST_TEST(lamb["MomentsUpdate"] == 7 * arena);
  // The norms of the weights and of the steps, and a sum for each 16 values.
  BOOST_TEST(
      lamb["SumBlock"] == (1 + 4) * arena + 2 * arena * sizeof(double) / (16 * sizeof(float)),
      boost::test_tools::tolerance(0.01));
  BOOST_TEST(lamb["ClearRanges"] < 1e4);
}

BOOST_AUTO_TEST_CASE(an_unknown_gpu_is_refused_with_those_that_are_known) {
  BOOST_CHECK_EXCEPTION(static_cast<void>(gpu::gpu_spec("v100")), Error, [](const Error& error) {
    const std::string text = error.what();
    return error.status() == ExitStatus::usage && text.find("--gpu v100") != text.npos &&
           text.find("a100, h100, h200, b200") != text.npos;
  });
}

BOOST_AUTO_TEST_CASE(synchronised_norms_add_two_small_kernels_each) {
  const StepModel local = predicted("resnet50", "h200", 256);
  const StepModel sync =
      predicted("resnet50", "h200", 256, Precision::bf16, OptimizerKind::sgd, BatchNormScope::sync);
  auto kernels = sync.by_kernel();
  for (const char* kernel : {"StatisticsOfSums", "ScaleToShare"}) {
    BOOST_TEST(kernels[kernel].launches == 53);
    BOOST_TEST(kernels[kernel].bytes < 1e6);
  }
  BOOST_TEST(sync.total().launches == local.total().launches + 2 * 53);
  BOOST_TEST(kernels["PooledBackwardApply"].launches == 1);
}
