#pragma once

#include "lockstep/core/bfloat16.hpp"
#include "lockstep/core/float16.hpp"
#include "lockstep/core/function_ref.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace lockstep {

enum class ReduceOp { sum, min, max };
/// Sums of 16-bit types are rounded to them, at most where two ranks' values meet.
enum class ElementType { f32, f64, i32, i64, u8, u64, bf16, f16 };

template <typename T>
[[nodiscard]] constexpr ElementType element_type() {
  if constexpr (std::is_same_v<T, float>)
    return ElementType::f32;
  else if constexpr (std::is_same_v<T, double>)
    return ElementType::f64;
  else if constexpr (std::is_same_v<T, std::int32_t>)
    return ElementType::i32;
  else if constexpr (std::is_same_v<T, std::int64_t>)
    return ElementType::i64;
  else if constexpr (std::is_same_v<T, std::uint64_t>)
    return ElementType::u64;
  else if constexpr (std::is_same_v<T, Bfloat16>)
    return ElementType::bf16;
  else if constexpr (std::is_same_v<T, Float16>)
    return ElementType::f16;
  else
    return ElementType::u8;
}

/// A typed view of memory a collective works on.
struct MutableBuffer {
  void* data;
  std::size_t count;
  ElementType type;
};
struct ConstBuffer {
  const void* data;
  std::size_t count;
  ElementType type;
};

/// A collective in flight; `test` or `wait` on the communicator that started it until it is done.
struct Request {
  int slot = -1;  ///< -1: done; others begin at 0 and are used again
  [[nodiscard]] bool done() const noexcept { return slot < 0; }
};

/// Memory that collectives will often work on.
struct RegisteredMemory {
  std::span<std::byte> bytes;
  std::shared_ptr<const void> owner;  ///< keeps it
  /// Of the kind that peers may reach, and of one size on all ranks; registering is collective.
  bool symmetric = false;
};

/// Collectives over the ranks of a job. Every rank makes the same calls in the same order with
/// equal counts and types. Counts may exceed 2^31. Failures throw Error(internal) with rank and
/// host.
class Communicator {
 public:
  virtual ~Communicator() = default;

  [[nodiscard]] virtual int rank() const noexcept = 0;
  [[nodiscard]] virtual int size() const noexcept = 0;

  virtual void barrier() = 0;
  /// In place; every rank ends with the same bits.
  virtual void all_reduce_buffer(MutableBuffer buffer, ReduceOp op) = 0;
  virtual void broadcast_buffer(MutableBuffer buffer, int root) = 0;
  /// `all` holds size() times `mine.count` values, rank by rank, on every rank. `mine` may be its
  /// own block of `all`.
  virtual void all_gather_buffer(ConstBuffer mine, MutableBuffer all) = 0;
  /// As all_gather, on `root` alone; `all` is ignored elsewhere.
  virtual void gather_buffer(ConstBuffer mine, MutableBuffer all, int root) = 0;
  /// Inverse of gather: `all` is read on `root` alone.
  virtual void scatter_buffer(ConstBuffer all, MutableBuffer mine, int root) = 0;
  /// `all` holds size() blocks of `mine.count`; rank r ends with the reduction of block r. `mine`
  /// lies outside of `all`, which is left as it was.
  virtual void reduce_scatter_buffer(ConstBuffer all, MutableBuffer mine, ReduceOp op) = 0;

  /// Starts an all-reduce in place and returns at once; nothing is allocated after the first step.
  /// The buffer belongs to the communicator until the request is done.
  [[nodiscard]] virtual Request start_all_reduce_buffer(MutableBuffer buffer, ReduceOp op) = 0;
  /// As reduce_scatter and all_gather, with the rules of start_all_reduce for both buffers.
  [[nodiscard]] virtual Request start_reduce_scatter_buffer(ConstBuffer all, MutableBuffer mine,
                                                            ReduceOp op) = 0;
  [[nodiscard]] virtual Request start_all_gather_buffer(ConstBuffer mine, MutableBuffer all) = 0;
  /// Lets every request move on; true where this one is done (and then releases it).
  virtual bool test(Request& request) = 0;
  virtual void wait(Request& request) = 0;

  /// Until the results of all requests that were waited for are there: with values in a device's
  /// memory, wait() only sees to their order.
  virtual void synchronize() {}
  /// Until `reached()`: until a device has come to something that is queued behind such results.
  virtual void synchronize_until(FunctionRef<bool()> reached);

  /// Before the first collective on it. A transport that gains from knowing the memory keeps it
  /// until its own end.
  virtual void register_memory(const RegisteredMemory& /*memory*/) {}

  template <typename T>
  void all_reduce(std::span<T> values, ReduceOp op = ReduceOp::sum) {
    all_reduce_buffer({values.data(), values.size(), element_type<T>()}, op);
  }
  template <typename T>
  [[nodiscard]] T all_reduce_value(T value, ReduceOp op = ReduceOp::sum) {
    all_reduce(std::span<T>(&value, 1), op);
    return value;
  }
  template <typename T>
  void broadcast(std::span<T> values, int root = 0) {
    broadcast_buffer({values.data(), values.size(), element_type<T>()}, root);
  }
  template <typename T>
  void all_gather(std::span<const T> mine, std::span<T> all) {
    all_gather_buffer({mine.data(), mine.size(), element_type<T>()},
                      {all.data(), all.size(), element_type<T>()});
  }
  template <typename T>
  void gather(std::span<const T> mine, std::span<T> all, int root = 0) {
    gather_buffer({mine.data(), mine.size(), element_type<T>()},
                  {all.data(), all.size(), element_type<T>()}, root);
  }
  template <typename T>
  void scatter(std::span<const T> all, std::span<T> mine, int root = 0) {
    scatter_buffer({all.data(), all.size(), element_type<T>()},
                   {mine.data(), mine.size(), element_type<T>()}, root);
  }
  template <typename T>
  void reduce_scatter(std::span<const T> all, std::span<T> mine, ReduceOp op = ReduceOp::sum) {
    reduce_scatter_buffer({all.data(), all.size(), element_type<T>()},
                          {mine.data(), mine.size(), element_type<T>()}, op);
  }
  template <typename T>
  [[nodiscard]] Request start_all_reduce(std::span<T> values, ReduceOp op = ReduceOp::sum) {
    return start_all_reduce_buffer({values.data(), values.size(), element_type<T>()}, op);
  }
  template <typename T>
  [[nodiscard]] Request start_reduce_scatter(std::span<const T> all, std::span<T> mine,
                                             ReduceOp op = ReduceOp::sum) {
    return start_reduce_scatter_buffer({all.data(), all.size(), element_type<T>()},
                                       {mine.data(), mine.size(), element_type<T>()}, op);
  }
  template <typename T>
  [[nodiscard]] Request start_all_gather(std::span<const T> mine, std::span<T> all) {
    return start_all_gather_buffer({mine.data(), mine.size(), element_type<T>()},
                                   {all.data(), all.size(), element_type<T>()});
  }
};

/// Root's text on every rank, whatever its length.
[[nodiscard]] std::string broadcast_text(Communicator& comm, std::string text, int root = 0);
/// Every rank's text, in rank order, on every rank.
[[nodiscard]] std::vector<std::string> all_gather_text(Communicator& comm, const std::string& mine);

/// Runs `work` on this rank and then agrees with all others: where it threw an Error on any rank,
/// every rank throws the lowest such rank's Error (same status, same text). All ranks must call it;
/// `work` may contain collectives only if it cannot throw before them on one rank alone.
void collectively(Communicator& comm, const std::function<void()>& work);

}  // namespace lockstep
