#include "conformance/oracle.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <span>
#include <type_traits>

namespace lockstep::oracle {
namespace {

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

/// The extents of a (N, C, H, W) value.
struct Extents {
  std::int64_t n, c, h, w;
  [[nodiscard]] std::size_t index(std::int64_t i, std::int64_t j, std::int64_t y,
                                  std::int64_t x) const {
    return at(((i * c + j) * h + y) * w + x);
  }
};

class Runner {
 public:
  Runner(const Graph& graph, const State& state, const Problem& problem, Mode mode,
         const Rounding& rounding)
      : graph_(graph),
        state_(state),
        problem_(problem),
        mode_(mode),
        rounding_(rounding),
        weights_(state.parameters) {
    for (std::size_t id = 0; id < weights_.size(); ++id) {
      if (graph.parameters()[id].kind == ParameterKind::weight) round(weights_[id]);
    }
    for (const Node& node : graph.nodes()) {
      const std::size_t size = at(problem.batch_size * node.output.elements());
      values_.emplace_back(size, 0.0);
      gradients_.emplace_back(size, 0.0);
    }
    for (const Values& parameter : state.parameters) {
      result_.gradients.emplace_back(parameter.size(), 0.0);
    }
    for (const RunningStatistic& statistic : graph.statistics()) {
      batch_.emplace_back(at(statistic.channels), 0.0);
    }
  }

  Result run() {
    for (id_ = 0; id_ < std::ssize(graph_.nodes()); ++id_) {
      std::visit([this](const auto& op) { forward(op); }, node().op);
      if (id_ != graph_.logits()) round(out());
    }
    if (mode_ == Mode::inference) return std::move(result_);
    for (id_ = std::ssize(graph_.nodes()) - 1; id_ >= 0; --id_) {
      round(out_gradient());
      std::visit([this](const auto& op) { backward(op); }, node().op);
    }
    publish_statistics();
    return std::move(result_);
  }

 private:
  const Node& node() const { return graph_.nodes()[at(id_)]; }
  Values& out() { return values_[at(id_)]; }
  Values& out_gradient() { return gradients_[at(id_)]; }
  Values& in(ValueId id) { return values_[at(id)]; }
  Values& in_gradient(ValueId id) { return gradients_[at(id)]; }
  void round(Values& values) const {
    if (!rounding_) return;
    for (double& value : values) value = rounding_(value);
  }
  const Values& parameter(std::size_t i) const { return weights_[at(node().parameters[i])]; }
  Values& parameter_gradient(std::size_t i) { return result_.gradients[at(node().parameters[i])]; }
  Extents extents(ValueId id) const {
    const Shape& shape = graph_.nodes()[at(id)].output;
    if (shape.rank() == 1) return {problem_.batch_size, shape[0], 1, 1};
    return {problem_.batch_size, shape[0], shape[1], shape[2]};
  }

  void forward(const Input&) { out() = problem_.images; }
  void backward(const Input&) {}

  /// The products of a convolution with one weight: of `count` outputs in a row, and of inputs that
  /// are `stride` apart.
  struct ProductRow {
    std::size_t output, input, weight, count, stride;
  };
  template <typename Visit>
  void for_each_row(const Conv2d& op, Visit&& visit) const {
    const Extents from = extents(op.input);
    const Extents to = extents(static_cast<ValueId>(id_));
    const auto& [k, stride, padding, groups] =
        std::tie(op.options.kernel, op.options.stride, op.options.padding, op.options.groups);
    const std::int64_t seen = from.c / groups;
    for (std::int64_t n = 0; n < to.n; ++n) {
      for (std::int64_t o = 0; o < to.c; ++o) {
        const std::int64_t first = o / (to.c / groups) * seen;
        for (std::int64_t weight = 0; weight < seen * k * k; ++weight) {
          const std::int64_t c = weight / (k * k), r = weight / k % k, s = weight % k;
          // x * stride - padding + s is within the image from `begin` to before `end`.
          const std::int64_t begin = std::max<std::int64_t>(0, (padding - s + stride - 1) / stride);
          const std::int64_t last = from.w - 1 + padding - s;
          const std::int64_t end = last < 0 ? 0 : std::min(to.w, last / stride + 1);
          for (std::int64_t y = 0; y < to.h && begin < end; ++y) {
            const std::int64_t iy = y * stride - padding + r;
            if (iy < 0 || iy >= from.h) continue;
            visit(ProductRow{.output = to.index(n, o, y, begin),
                             .input = from.index(n, first + c, iy, begin * stride - padding + s),
                             .weight = at(o * seen * k * k + weight),
                             .count = at(end - begin),
                             .stride = at(stride)});
          }
        }
      }
    }
  }
  void forward(const Conv2d& op) {
    const Values& input = in(op.input);
    const Values& weight = parameter(0);
    Values& output = out();
    for_each_row(op, [&](const ProductRow& row) {
      for (std::size_t j = 0; j < row.count; ++j) {
        output[row.output + j] += input[row.input + j * row.stride] * weight[row.weight];
      }
    });
    if (op.options.bias) add_bias();
  }
  void backward(const Conv2d& op) {
    const Values& input = in(op.input);
    const Values& weight = parameter(0);
    const Values& gradient = out_gradient();
    Values& input_gradient = in_gradient(op.input);
    Values& weight_gradient = parameter_gradient(0);
    for_each_row(op, [&](const ProductRow& row) {
      double sum = 0;
      for (std::size_t j = 0; j < row.count; ++j) {
        const std::size_t i = row.input + j * row.stride;
        input_gradient[i] += gradient[row.output + j] * weight[row.weight];
        sum += gradient[row.output + j] * input[i];
      }
      weight_gradient[row.weight] += sum;
    });
    if (op.options.bias) sum_bias_gradient();
  }

  void add_bias() {
    const Extents to = extents(static_cast<ValueId>(id_));
    for (std::size_t i = 0; i < out().size(); ++i) out()[i] += parameter(1)[channel(to, i)];
  }
  void sum_bias_gradient() {
    const Extents to = extents(static_cast<ValueId>(id_));
    for (std::size_t i = 0; i < out().size(); ++i) {
      parameter_gradient(1)[channel(to, i)] += out_gradient()[i];
    }
  }
  static std::size_t channel(const Extents& extents, std::size_t i) {
    return i / at(extents.h * extents.w) % at(extents.c);
  }

  /// Of stochastic depth, for value i of a norm's output.
  [[nodiscard]] double drop_factor(const BatchNorm& op, std::size_t i) const {
    const auto [probability, block] = op.options.drop;
    if (mode_ == Mode::inference || probability == 0) return 1;
    const std::size_t sample = i * at(problem_.batch_size) / values_[at(id_)].size();
    const bool drops = !problem_.dropped.empty() && (problem_.dropped[sample] >> block & 1) != 0;
    return drops ? 0 : 1 / (1 - probability);
  }

  void forward(const BatchNorm& op) {
    const Extents to = extents(op.input);
    Values& mean = batch_[at(node().statistics[0])];
    Values& variance = batch_[at(node().statistics[1])];
    const auto count = static_cast<double>(to.n * to.h * to.w);
    const Values& input = in(op.input);
    if (mode_ == Mode::training && !graph_.has_fixed_statistics(node())) {
      for (std::size_t i = 0; i < input.size(); ++i) mean[channel(to, i)] += input[i] / count;
      for (std::size_t i = 0; i < input.size(); ++i) {
        variance[channel(to, i)] += std::pow(input[i] - mean[channel(to, i)], 2) / count;
      }
    } else {
      mean = state_.statistics[at(node().statistics[0])];
      variance = state_.statistics[at(node().statistics[1])];
    }
    for (std::size_t i = 0; i < input.size(); ++i) {
      const std::size_t c = channel(to, i);
      out()[i] = (input[i] - mean[c]) / std::sqrt(variance[c] + op.options.eps) * parameter(0)[c] +
                 parameter(1)[c];
      out()[i] *= drop_factor(op, i);
    }
  }
  void backward(const BatchNorm& op) {
    const Extents to = extents(op.input);
    const Values& mean = batch_[at(node().statistics[0])];
    const Values& variance = batch_[at(node().statistics[1])];
    const auto count = static_cast<double>(to.n * to.h * to.w);
    const Values& input = in(op.input);
    Values& scale_gradient = parameter_gradient(0);
    for (std::size_t i = 0; i < input.size(); ++i) out_gradient()[i] *= drop_factor(op, i);
    const auto normalized = [&](std::size_t i) {
      const std::size_t c = channel(to, i);
      return (input[i] - mean[c]) / std::sqrt(variance[c] + op.options.eps);
    };
    for (std::size_t i = 0; i < input.size(); ++i) {
      scale_gradient[channel(to, i)] += out_gradient()[i] * normalized(i);
    }
    sum_bias_gradient();
    const double share = graph_.has_fixed_statistics(node()) ? 0 : 1 / count;
    for (std::size_t i = 0; i < input.size(); ++i) {
      const std::size_t c = channel(to, i);
      const double centred = out_gradient()[i] - parameter_gradient(1)[c] * share -
                             normalized(i) * scale_gradient[c] * share;
      in_gradient(op.input)[i] +=
          parameter(0)[c] / std::sqrt(variance[c] + op.options.eps) * centred;
    }
  }

  /// Calls visit(normalized values of a pixel, places of its channels, inverse deviation).
  template <typename Visit>
  void for_each_pixel(const LayerNorm& op, const Visit& visit) {
    const Extents to = extents(op.input);
    const Values& input = in(op.input);
    for (std::int64_t pixel = 0; pixel < to.n * to.h * to.w; ++pixel) {
      std::vector<std::size_t> places;
      Values normalized;
      for (std::int64_t c = 0; c < to.c; ++c) {
        places.push_back(to.index(pixel / (to.h * to.w), c, 0, pixel % (to.h * to.w)));
        normalized.push_back(input[places.back()]);
      }
      const double mean = mean_of(normalized);
      for (double& value : normalized) value -= mean;
      double variance = 0;
      for (const double value : normalized) variance += value * value / static_cast<double>(to.c);
      const double factor = 1 / std::sqrt(variance + op.options.eps);
      for (double& value : normalized) value *= factor;
      visit(normalized, places, factor);
    }
  }
  static double mean_of(const Values& values) {
    return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
  }
  void forward(const LayerNorm& op) {
    for_each_pixel(op, [&](const Values& normalized, const auto& places, double) {
      for (std::size_t c = 0; c < places.size(); ++c) {
        out()[places[c]] = normalized[c] * parameter(0)[c] + parameter(1)[c];
      }
    });
  }
  void backward(const LayerNorm& op) {
    for_each_pixel(op, [&](const Values& normalized, const auto& places, double factor) {
      Values scaled;
      Values products;
      for (std::size_t c = 0; c < places.size(); ++c) {
        const double gradient = out_gradient()[places[c]];
        parameter_gradient(0)[c] += gradient * normalized[c];
        parameter_gradient(1)[c] += gradient;
        scaled.push_back(gradient * parameter(0)[c]);
        products.push_back(scaled.back() * normalized[c]);
      }
      const double mean = mean_of(scaled);
      const double product = mean_of(products);
      for (std::size_t c = 0; c < places.size(); ++c) {
        in_gradient(op.input)[places[c]] += (scaled[c] - mean - normalized[c] * product) * factor;
      }
    });
  }

  void forward(const Relu& op) {
    for (std::size_t i = 0; i < out().size(); ++i) out()[i] = std::max(in(op.input)[i], 0.0);
  }
  void backward(const Relu& op) {
    for (std::size_t i = 0; i < out().size(); ++i) {
      if (in(op.input)[i] > 0) in_gradient(op.input)[i] += out_gradient()[i];
    }
  }

  static double normal_probability(double x) { return (1 + std::erf(x / std::sqrt(2.0))) / 2; }
  void forward(const Gelu& op) {
    for (std::size_t i = 0; i < out().size(); ++i) {
      out()[i] = in(op.input)[i] * normal_probability(in(op.input)[i]);
    }
  }
  void backward(const Gelu& op) {
    for (std::size_t i = 0; i < out().size(); ++i) {
      const double x = in(op.input)[i];
      const double density = std::exp(-x * x / 2) / std::sqrt(2 * std::acos(-1.0));
      in_gradient(op.input)[i] += out_gradient()[i] * (normal_probability(x) + x * density);
    }
  }

  void forward(const Add& op) {
    for (std::size_t i = 0; i < out().size(); ++i) out()[i] = in(op.left)[i] + in(op.right)[i];
  }
  void backward(const Add& op) {
    for (std::size_t i = 0; i < out().size(); ++i) {
      in_gradient(op.left)[i] += out_gradient()[i];
      in_gradient(op.right)[i] += out_gradient()[i];
    }
  }

  /// The index of the largest input under an output's window; the first of equal ones.
  std::size_t largest(const MaxPool& op, std::int64_t n, std::int64_t c, std::int64_t y,
                      std::int64_t x) {
    const Extents from = extents(op.input);
    const Values& input = in(op.input);
    std::size_t best = 0;
    double best_value = -std::numeric_limits<double>::infinity();
    for (std::int64_t r = 0; r < op.options.kernel; ++r) {
      for (std::int64_t s = 0; s < op.options.kernel; ++s) {
        const std::int64_t iy = y * op.options.stride - op.options.padding + r;
        const std::int64_t ix = x * op.options.stride - op.options.padding + s;
        if (iy < 0 || iy >= from.h || ix < 0 || ix >= from.w) continue;
        const std::size_t i = from.index(n, c, iy, ix);
        if (input[i] > best_value) {
          best = i;
          best_value = input[i];
        }
      }
    }
    return best;
  }
  template <typename Visit>
  void for_each_window(const MaxPool& op, Visit&& visit) {
    const Extents to = extents(static_cast<ValueId>(id_));
    for (std::int64_t n = 0; n < to.n; ++n) {
      for (std::int64_t c = 0; c < to.c; ++c) {
        for (std::int64_t y = 0; y < to.h; ++y) {
          for (std::int64_t x = 0; x < to.w; ++x) {
            visit(to.index(n, c, y, x), largest(op, n, c, y, x));
          }
        }
      }
    }
  }
  void forward(const MaxPool& op) {
    for_each_window(op, [&](std::size_t o, std::size_t i) { out()[o] = in(op.input)[i]; });
  }
  void backward(const MaxPool& op) {
    for_each_window(
        op, [&](std::size_t o, std::size_t i) { in_gradient(op.input)[i] += out_gradient()[o]; });
  }

  /// Calls visit(output index, input index) for each input under an output's window.
  template <typename Visit>
  void for_each_pair(const AvgPool& op, Visit&& visit) const {
    const Extents from = extents(op.input);
    const Extents to = extents(static_cast<ValueId>(id_));
    const std::int64_t k = op.options.kernel;
    for (std::int64_t n = 0; n < to.n; ++n) {
      for (std::int64_t c = 0; c < to.c; ++c) {
        for (std::int64_t y = 0; y < to.h; ++y) {
          for (std::int64_t x = 0; x < to.w; ++x) {
            for (std::int64_t place = 0; place < k * k; ++place) {
              const std::int64_t iy = y * op.options.stride - op.options.padding + place / k;
              const std::int64_t ix = x * op.options.stride - op.options.padding + place % k;
              if (iy < 0 || iy >= from.h || ix < 0 || ix >= from.w) continue;
              visit(to.index(n, c, y, x), from.index(n, c, iy, ix));
            }
          }
        }
      }
    }
  }
  /// By output, how many values it is the mean of.
  std::vector<double> areas(const AvgPool& op) {
    const auto whole = static_cast<double>(op.options.kernel * op.options.kernel);
    if (!op.options.partial_windows) return std::vector<double>(out().size(), whole);
    std::vector<double> result(out().size(), 0.0);
    for_each_pair(op, [&](std::size_t o, std::size_t) { result[o] += 1; });
    return result;
  }
  void forward(const AvgPool& op) {
    const std::vector<double> area = areas(op);
    for_each_pair(op, [&](std::size_t o, std::size_t i) { out()[o] += in(op.input)[i] / area[o]; });
  }
  void backward(const AvgPool& op) {
    const std::vector<double> area = areas(op);
    for_each_pair(op, [&](std::size_t o, std::size_t i) {
      in_gradient(op.input)[i] += out_gradient()[o] / area[o];
    });
  }

  void forward(const GlobalAvgPool& op) {
    const std::size_t area = in(op.input).size() / out().size();
    for (std::size_t i = 0; i < in(op.input).size(); ++i) {
      out()[i / area] += in(op.input)[i] / static_cast<double>(area);
    }
  }
  void backward(const GlobalAvgPool& op) {
    const std::size_t area = in(op.input).size() / out().size();
    for (std::size_t i = 0; i < in(op.input).size(); ++i) {
      in_gradient(op.input)[i] += out_gradient()[i / area] / static_cast<double>(area);
    }
  }

  void forward(const Flatten& op) { out() = in(op.input); }
  void backward(const Flatten& op) {
    for (std::size_t i = 0; i < out().size(); ++i) in_gradient(op.input)[i] += out_gradient()[i];
  }

  template <typename Visit>
  void for_each_product(const Linear& op, Visit&& visit) const {
    const Extents from = extents(op.input);
    const Extents to = extents(static_cast<ValueId>(id_));
    for (std::int64_t pixel = 0; pixel < from.n * from.h * from.w; ++pixel) {
      const std::int64_t n = pixel / (from.h * from.w);
      const std::int64_t place = pixel % (from.h * from.w);
      for (std::int64_t o = 0; o < to.c; ++o) {
        for (std::int64_t i = 0; i < from.c; ++i) {
          visit(to.index(n, o, 0, place), from.index(n, i, 0, place), at(o * from.c + i));
        }
      }
    }
  }
  void forward(const Linear& op) {
    for_each_product(op, [&](std::size_t o, std::size_t i, std::size_t w) {
      out()[o] += in(op.input)[i] * parameter(0)[w];
    });
    add_bias();
  }
  void backward(const Linear& op) {
    for_each_product(op, [&](std::size_t o, std::size_t i, std::size_t w) {
      in_gradient(op.input)[i] += out_gradient()[o] * parameter(0)[w];
      parameter_gradient(0)[w] += out_gradient()[o] * in(op.input)[i];
    });
    sum_bias_gradient();
  }

  /// Calls visit(output index, input index or -1 for the class token, its channel, its position).
  template <typename Visit>
  void for_each_token(const Tokens& op, Visit&& visit) const {
    const Extents from = extents(op.input);
    const Extents to = extents(static_cast<ValueId>(id_));
    for (std::int64_t n = 0; n < to.n; ++n) {
      for (std::int64_t c = 0; c < to.c; ++c) {
        for (std::int64_t t = 0; t < to.h; ++t) {
          const auto pixel =
              t == 0 ? std::int64_t{-1} : static_cast<std::int64_t>(from.index(n, c, 0, t - 1));
          visit(to.index(n, c, t, 0), pixel, at(c), at(t * to.c + c));
        }
      }
    }
  }
  void forward(const Tokens& op) {
    for_each_token(op, [&](std::size_t o, std::int64_t pixel, std::size_t c, std::size_t place) {
      out()[o] = (pixel < 0 ? parameter(0)[c] : in(op.input)[at(pixel)]) + parameter(1)[place];
    });
  }
  void backward(const Tokens& op) {
    for_each_token(op, [&](std::size_t o, std::int64_t pixel, std::size_t c, std::size_t place) {
      parameter_gradient(1)[place] += out_gradient()[o];
      double& source = pixel < 0 ? parameter_gradient(0)[c] : in_gradient(op.input)[at(pixel)];
      source += out_gradient()[o];
    });
  }

  void forward(const FirstToken& op) {
    const Extents from = extents(op.input);
    for (std::int64_t i = 0; i < from.n * from.c; ++i) {
      out()[at(i)] = in(op.input)[at(i * from.h * from.w)];
    }
  }
  void backward(const FirstToken& op) {
    const Extents from = extents(op.input);
    for (std::int64_t i = 0; i < from.n * from.c; ++i) {
      in_gradient(op.input)[at(i * from.h * from.w)] += out_gradient()[at(i)];
    }
  }

  /// Calls visit(query, probabilities over keys, channels of a head, index), where index(part,
  /// token, channel) is the place of q (part 0), k or v in the input, or of the output (part -1).
  template <typename Visit>
  void for_each_query(const Attention& op, Visit&& visit) {
    const Extents from = extents(op.input);
    const Extents to = extents(static_cast<ValueId>(id_));
    const std::int64_t width = to.c / op.options.heads;
    for (std::int64_t head = 0; head < to.n * op.options.heads; ++head) {
      const std::int64_t n = head / op.options.heads;
      const auto index = [&](int part, std::int64_t token, std::int64_t channel) {
        const std::int64_t own = head % op.options.heads * width + channel;
        return part < 0 ? to.index(n, own, token, 0) : from.index(n, part * to.c + own, token, 0);
      };
      for (std::int64_t query = 0; query < to.h; ++query) {
        Values weights;
        for (std::int64_t key = 0; key < to.h; ++key) {
          double score = 0;
          for (std::int64_t c = 0; c < width; ++c) {
            score += in(op.input)[index(0, query, c)] * in(op.input)[index(1, key, c)];
          }
          weights.push_back(score / std::sqrt(static_cast<double>(width)));
        }
        const double largest = *std::max_element(weights.begin(), weights.end());
        for (double& weight : weights) weight = std::exp(weight - largest);
        const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
        for (double& weight : weights) weight /= sum;
        visit(query, weights, width, index);
      }
    }
  }
  void forward(const Attention& op) {
    for_each_query(
        op, [&](std::int64_t query, const Values& weights, std::int64_t width, const auto& index) {
          for (std::int64_t c = 0; c < width; ++c) {
            for (std::size_t key = 0; key < weights.size(); ++key) {
              out()[index(-1, query, c)] +=
                  weights[key] * in(op.input)[index(2, static_cast<std::int64_t>(key), c)];
            }
          }
        });
  }
  void backward(const Attention& op) {
    for_each_query(
        op, [&](std::int64_t query, const Values& weights, std::int64_t width, const auto& index) {
          const Values& values = in(op.input);
          Values& gradients = in_gradient(op.input);
          Values of_weights(weights.size(), 0.0);
          double mean = 0;
          for (std::size_t key = 0; key < weights.size(); ++key) {
            for (std::int64_t c = 0; c < width; ++c) {
              const std::size_t value = index(2, static_cast<std::int64_t>(key), c);
              const double gradient = out_gradient()[index(-1, query, c)];
              of_weights[key] += gradient * values[value];
              gradients[value] += weights[key] * gradient;
            }
            mean += weights[key] * of_weights[key];
          }
          for (std::size_t key = 0; key < weights.size(); ++key) {
            const double of_score =
                weights[key] * (of_weights[key] - mean) / std::sqrt(static_cast<double>(width));
            for (std::int64_t c = 0; c < width; ++c) {
              const std::size_t q = index(0, query, c);
              const std::size_t k = index(1, static_cast<std::int64_t>(key), c);
              gradients[q] += of_score * values[k];
              gradients[k] += of_score * values[q];
            }
          }
        });
  }

  void forward(const SoftmaxCrossEntropy& op) {
    result_.logits = in(op.input);
    const std::size_t classes = at(extents(op.input).c);
    const double smoothing = op.options.label_smoothing;
    probabilities_ = result_.logits;
    for (std::size_t n = 0; n < at(problem_.batch_size); ++n) {
      double* row = probabilities_.data() + n * classes;
      const std::size_t rank = rank_of(at(heavier_label(n)), {row, classes});
      result_.top1 += rank < 1 ? 1 : 0;
      result_.top5 += rank < 5 ? 1 : 0;
      const double largest = *std::max_element(row, row + classes);
      for (std::size_t k = 0; k < classes; ++k) row[k] -= largest;
      double sum = 0;
      for (std::size_t k = 0; k < classes; ++k) sum += std::exp(row[k]);
      for (std::size_t k = 0; k < classes; ++k) {
        result_.loss -= target(n, k, smoothing) * (row[k] - std::log(sum));
        row[k] = std::exp(row[k]) / sum;
      }
      result_.confidence += *std::max_element(row, row + classes);
    }
  }
  /// The place of class k after a stable sort by logit, the largest first.
  static std::size_t rank_of(std::size_t k, std::span<const double> logits) {
    std::vector<std::size_t> order(logits.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, std::greater{}, [&](std::size_t i) { return logits[i]; });
    return at(std::ranges::find(order, k) - order.begin());
  }
  void backward(const SoftmaxCrossEntropy& op) {
    const std::size_t classes = at(extents(op.input).c);
    for (std::size_t i = 0; i < probabilities_.size(); ++i) {
      in_gradient(op.input)[i] +=
          problem_.loss_scale *
          (probabilities_[i] - target(i / classes, i % classes, op.options.label_smoothing));
    }
  }
  /// Inference has softmax cross entropy without smoothing.
  void forward(const BinaryCrossEntropy& op) {
    forward(SoftmaxCrossEntropy{.input = op.input, .options = {}});
    if (mode_ == Mode::inference) return;
    const std::size_t classes = at(extents(op.input).c);
    result_.loss = 0;
    for (std::size_t i = 0; i < result_.logits.size(); ++i) {
      const double probability = 1 / (1 + std::exp(-result_.logits[i]));
      const double wanted = binary_target(op, i / classes, i % classes);
      result_.loss -= (wanted * std::log(probability) + (1 - wanted) * std::log(1 - probability)) /
                      static_cast<double>(classes);
    }
  }
  void backward(const BinaryCrossEntropy& op) {
    const std::size_t classes = at(extents(op.input).c);
    for (std::size_t i = 0; i < result_.logits.size(); ++i) {
      const double probability = 1 / (1 + std::exp(-result_.logits[i]));
      in_gradient(op.input)[i] += problem_.loss_scale *
                                  (probability - binary_target(op, i / classes, i % classes)) /
                                  static_cast<double>(classes);
    }
  }
  void forward(const MeanSquaredError& op) {
    forward(SoftmaxCrossEntropy{.input = op.input, .options = {}});
    if (mode_ == Mode::inference) return;
    const std::size_t classes = at(extents(op.input).c);
    result_.loss = 0;
    for (std::size_t i = 0; i < result_.logits.size(); ++i) {
      const double wanted = target(i / classes, i % classes, op.options.label_smoothing);
      result_.loss += std::pow(result_.logits[i] - wanted, 2) / static_cast<double>(classes);
    }
  }
  void backward(const MeanSquaredError& op) {
    const std::size_t classes = at(extents(op.input).c);
    for (std::size_t i = 0; i < result_.logits.size(); ++i) {
      const double wanted = target(i / classes, i % classes, op.options.label_smoothing);
      in_gradient(op.input)[i] +=
          problem_.loss_scale * 2 * (result_.logits[i] - wanted) / static_cast<double>(classes);
    }
  }
  double binary_target(const BinaryCrossEntropy& op, std::size_t n, std::size_t k) const {
    const double smoothed = target(n, k, op.options.label_smoothing);
    if (op.options.target_threshold == 0) return smoothed;
    return smoothed > op.options.target_threshold ? 1 : 0;
  }

  double target(std::size_t n, std::size_t k, double smoothing) const {
    const auto one_hot = [&](std::size_t sample) {
      return static_cast<std::size_t>(problem_.labels[sample]) == k ? 1.0 : 0.0;
    };
    double label = one_hot(n);
    if (!problem_.mixes.empty()) {
      const double weight = problem_.mixes[n].weight;
      label = weight * label + (1 - weight) * one_hot(at(problem_.mixes[n].partner));
    }
    return (1 - smoothing) * label + smoothing / static_cast<double>(graph_.outputs());
  }
  std::int32_t heavier_label(std::size_t n) const {
    const bool own = problem_.mixes.empty() || problem_.mixes[n].weight >= 0.5F;
    return problem_.labels[own ? n : at(problem_.mixes[n].partner)];
  }

  void publish_statistics() {
    for (const Node& norm : graph_.nodes()) {
      if (norm.statistics.empty()) continue;
      const auto count = static_cast<double>(problem_.batch_size * norm.output[1] * norm.output[2]);
      if (count < 2) continue;
      for (double& variance : batch_[at(norm.statistics[1])]) variance *= count / (count - 1);
    }
    for (const Values& values : batch_) {
      result_.batch_statistics.insert(result_.batch_statistics.end(), values.begin(), values.end());
    }
  }

  const Graph& graph_;
  const State& state_;
  const Problem& problem_;
  Mode mode_;
  const Rounding& rounding_;
  std::vector<Values> weights_;
  std::ptrdiff_t id_ = 0;
  std::vector<Values> values_;
  std::vector<Values> gradients_;
  std::vector<Values> batch_;
  Values probabilities_;
  Result result_;
};

}  // namespace

Result run(const Graph& graph, const State& state, const Problem& problem, Mode mode,
           const Rounding& rounding) {
  return Runner(graph, state, problem, mode, rounding).run();
}

Rounding random_rounding(Precision precision, std::uint64_t seed) {
  // The number of significand bits, and the exponent of the smallest normal number as in frexp.
  const int bits = precision == Precision::bf16 ? 8 : 11;
  const int smallest = precision == Precision::fp16 ? -13 : -125;
  return [=, random = std::mt19937_64(seed)](double value) mutable {
    if (value == 0) return value;
    int exponent = 0;
    std::frexp(value, &exponent);
    exponent = std::max(exponent, smallest);
    const double significand = std::ldexp(value, bits - exponent);
    const double lower = std::floor(significand);
    std::uniform_real_distribution<double> uniform;
    const double rounded = uniform(random) < significand - lower ? lower + 1 : lower;
    return std::ldexp(rounded, exponent - bits);
  };
}

}  // namespace lockstep::oracle
