#include "kernels.hpp"
#include "launch.hpp"
#include "vector_io.hpp"

#include <cmath>

namespace lockstep {
struct Relu;
struct Gelu;
}  // namespace lockstep

namespace lockstep::gpu {
namespace {

/// Values per item.
constexpr int width = 8;

/// Loads the `width` values from `at` on, or as many as there are.
template <typename T>
LOCKSTEP_HOST_DEVICE Floats<width> load_some(const T* values, std::int64_t at, std::int64_t count) {
  if (at + width <= count) return load<width>(values + at);
  Floats<width> result = filled<width>(0);
  for (int i = 0; i < width; ++i) {
    if (at + i < count) result[i] = to_float(values[at + i]);
  }
  return result;
}
template <typename T>
LOCKSTEP_HOST_DEVICE void store_some(T* values, std::int64_t at, std::int64_t count,
                                     const Floats<width>& from) {
  if (at + width <= count) return store<width>(values + at, from);
  for (int i = 0; i < width; ++i) {
    if (at + i < count) values[at + i] = from_float<T>(from[i]);
  }
}

struct Identity {
  LOCKSTEP_HOST_DEVICE float operator()(float x) const { return x; }
};
struct Times {
  float factor;
  LOCKSTEP_HOST_DEVICE float operator()(float x) const { return factor * x; }
};
template <typename From, typename To, typename Operation>
struct Unary {
  enum : std::size_t { item_bytes = width * (sizeof(From) + sizeof(To)) };
  const From* x;
  To* y;
  std::int64_t count;
  Operation operation;
  LOCKSTEP_HOST_DEVICE void operator()(std::int64_t item) const {
    Floats<width> values = load_some(x, item * width, count);
    for (int i = 0; i < width; ++i) values[i] = operation(values[i]);
    store_some(y, item * width, count, values);
  }
};

struct Plus {
  LOCKSTEP_HOST_DEVICE float operator()(float left, float right) const { return left + right; }
};
template <typename Left, typename Right, typename Out, typename Operation>
struct Binary {
  const Left* left;
  const Right* right;
  Out* out;
  std::int64_t count;
  Operation operation;
  LOCKSTEP_HOST_DEVICE void operator()(std::int64_t item) const {
    Floats<width> values = load_some(left, item * width, count);
    const Floats<width> others = load_some(right, item * width, count);
    for (int i = 0; i < width; ++i) values[i] = operation(values[i], others[i]);
    store_some(out, item * width, count, values);
  }
};

/// The function of an element-wise op.
template <typename Op>
struct Function;
/// The gradient of its input: of the operand that its derivative reads, and of dy.
template <typename Op>
struct Derivative;

template <>
struct Function<Relu> {
  LOCKSTEP_HOST_DEVICE float operator()(float x) const { return x <= 0 ? 0.0F : x; }
};
template <>
struct Derivative<Relu> {
  LOCKSTEP_HOST_DEVICE float operator()(float y, float dy) const { return y > 0 ? dy : 0.0F; }
};

/// The probability that a standard normal value is below x.
LOCKSTEP_HOST_DEVICE inline float normal_probability(float x) {
  return 0.5F * (1.0F + std::erf(x * 0.70710678F));
}
template <>
struct Function<Gelu> {
  LOCKSTEP_HOST_DEVICE float operator()(float x) const { return x * normal_probability(x); }
};
template <>
struct Derivative<Gelu> {
  LOCKSTEP_HOST_DEVICE float operator()(float x, float dy) const {
    const float density = 0.39894228F * std::exp(-0.5F * x * x);
    return dy * (normal_probability(x) + x * density);
  }
};

struct SetValue {
  float value;
  float* to;
  LOCKSTEP_HOST_DEVICE void operator()(std::int64_t /*item*/) const { *to = value; }
};

std::int64_t items_of(std::size_t count) {
  return ceil_div(static_cast<std::int64_t>(count), std::int64_t{width});
}

template <typename From, typename To, typename Operation>
void apply(Stream stream, const void* x, void* y, std::size_t count, Operation operation) {
  launch(stream, items_of(count),
         Unary<From, To, Operation>{static_cast<const From*>(x), static_cast<To*>(y),
                                    static_cast<std::int64_t>(count), operation});
}
template <typename Left, typename Right, typename Out, typename Operation>
void apply(Stream stream, const void* left, const void* right, void* out, std::size_t count,
           Operation operation) {
  launch(stream, items_of(count),
         Binary<Left, Right, Out, Operation>{
             static_cast<const Left*>(left), static_cast<const Right*>(right),
             static_cast<Out*>(out), static_cast<std::int64_t>(count), operation});
}

}  // namespace

void convert(Stream stream, const void* from, DataType from_type, void* to, DataType to_type,
             std::size_t count) {
  with_type(from_type, [&]<typename From>(From*) {
    with_type(to_type,
              [&]<typename To>(To*) { apply<From, To>(stream, from, to, count, Identity{}); });
  });
}

void set_value(Stream stream, float value, float* to) {
  launch(stream, 1, SetValue{value, to});
}

void add(Stream stream, DataType type, const void* left, const void* right, void* out,
         std::size_t count) {
  with_type(type, [&]<typename T>(T*) { apply<T, T, T>(stream, left, right, out, count, Plus{}); });
}

void scale(Stream stream, const float* from, float factor, float* to, std::size_t count) {
  apply<float, float>(stream, from, to, count, Times{factor});
}

template <typename Op>
void ElementWise<Op>::forward(Stream stream, DataType type, const void* x, void* y,
                              std::size_t count) {
  with_type(type, [&]<typename T>(T*) { apply<T, T>(stream, x, y, count, Function<Op>{}); });
}

template <typename Op>
void ElementWise<Op>::backward(Stream stream, DataType type, const void* operand, const void* dy,
                               void* dx, std::size_t count) {
  with_type(type, [&]<typename T>(T*) {
    apply<T, T, T>(stream, operand, dy, dx, count, Derivative<Op>{});
  });
}

template struct ElementWise<Relu>;
template struct ElementWise<Gelu>;

}  // namespace lockstep::gpu
