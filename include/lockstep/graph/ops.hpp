#pragma once

#include <cstdint>
#include <string>
#include <variant>

namespace lockstep {

using ValueId = int;      ///< index of a node's output
using ParameterId = int;  ///< index into Graph::parameters()
using StatisticId = int;  ///< index into Graph::statistics()

struct Conv2dOptions {
  std::string name;
  std::int64_t out_channels = 0;
  std::int64_t kernel = 3;
  std::int64_t stride = 1;
  std::int64_t padding = 0;
  std::int64_t groups = 1;  ///< divides the channels; each group sees only its own input channels
  bool bias = false;
};
struct BatchNormOptions {
  std::string name;
  double eps = 1e-5;
  double momentum = 0.1;          ///< weight of the new batch in the running statistics
  bool zero_init_weight = false;  ///< --zero-init-residual
};
struct MaxPoolOptions {
  std::int64_t kernel = 2;
  std::int64_t stride = 2;
  std::int64_t padding = 0;
};
struct LinearOptions {
  std::string name;
  std::int64_t out_features = 0;
};
struct SoftmaxCrossEntropyOptions {
  double label_smoothing = 0.0;
};

struct Input {};
struct Conv2d {
  ValueId input;
  Conv2dOptions options;
};
struct BatchNorm {
  ValueId input;
  BatchNormOptions options;
};
struct Relu {
  ValueId input;
};
struct Add {
  ValueId left;
  ValueId right;
};
struct MaxPool {
  ValueId input;
  MaxPoolOptions options;
};
struct GlobalAvgPool {
  ValueId input;
};
struct Flatten {
  ValueId input;
};
struct Linear {
  ValueId input;
  LinearOptions options;
};
struct SoftmaxCrossEntropy {
  ValueId input;
  SoftmaxCrossEntropyOptions options;
};

using Op = std::variant<Input, Conv2d, BatchNorm, Relu, Add, MaxPool, GlobalAvgPool, Flatten,
                        Linear, SoftmaxCrossEntropy>;

}  // namespace lockstep
