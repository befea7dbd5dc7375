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
#include <utility>
#include <vector>

namespace lockstep {

enum class ReduceOp { sum, min, max };
/// Sums of 16-bit types are rounded to that type, at most once per addition of two ranks' values.
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

/// Keeps memory alive.
using MemoryOwner = std::shared_ptr<const void>;

/// Typed memory that a collective or a message uses. A nonblocking one keeps `owner` until its
/// request is done, or until the process ends if the transport can neither complete nor cancel it.
/// Null: the caller keeps the memory alive.
struct MutableBuffer {
  void* data;
  std::size_t count;
  ElementType type;
  MemoryOwner owner = {};
};
struct ConstBuffer {
  const void* data;
  std::size_t count;
  ElementType type;
  MemoryOwner owner = {};
};

/// A collective or a message in flight. Call test() or wait() of the communicator that started it
/// until done(). It may be abandoned after an error: the communicator then keeps the buffers'
/// owners.
struct Request {
  int slot = -1;  ///< -1: done; slots count from 0 and are reused
  [[nodiscard]] bool done() const noexcept { return slot < 0; }
};

template <typename T>
[[nodiscard]] MutableBuffer buffer_of(std::span<T> values, MemoryOwner owner = {}) {
  return {values.data(), values.size(), element_type<T>(), std::move(owner)};
}
template <typename T>
[[nodiscard]] ConstBuffer buffer_of(std::span<const T> values, MemoryOwner owner = {}) {
  return {values.data(), values.size(), element_type<T>(), std::move(owner)};
}

/// Memory to register with the transport because collectives will often use it.
struct RegisteredMemory {
  std::span<std::byte> bytes;
  MemoryOwner owner;
  /// Accessible to peers, with the same size on all ranks; registering it is then collective.
  bool symmetric = false;
};

/// Collectives and messages over a set of ranks. All ranks must call the same collectives in the
/// same order, with equal counts and types. Counts may exceed 2^31. Failures throw Error(internal).
class Communicator {
 public:
  virtual ~Communicator() = default;

  [[nodiscard]] virtual int rank() const noexcept = 0;
  [[nodiscard]] virtual int size() const noexcept = 0;

  virtual void barrier() = 0;
  /// In place; the result has the same bits on every rank.
  virtual void all_reduce_buffer(MutableBuffer buffer, ReduceOp op) = 0;
  virtual void broadcast_buffer(MutableBuffer buffer, int root) = 0;
  /// `all` holds size() blocks of `mine.count` values in rank order. `mine` may be this rank's own
  /// block of `all`.
  virtual void all_gather_buffer(ConstBuffer mine, MutableBuffer all) = 0;
  /// Like all_gather, but only `root` receives; `all` is ignored on other ranks.
  virtual void gather_buffer(ConstBuffer mine, MutableBuffer all, int root) = 0;
  /// Inverse of gather; `all` is read only on `root`.
  virtual void scatter_buffer(ConstBuffer all, MutableBuffer mine, int root) = 0;
  /// `all` holds size() blocks of `mine.count` values; rank r receives the reduction of block r.
  /// `mine` must not overlap `all`. `all` is not modified.
  virtual void reduce_scatter_buffer(ConstBuffer all, MutableBuffer mine, ReduceOp op) = 0;

  /// Starts an in-place all-reduce and returns at once. Allocates nothing after the first step. Do
  /// not use the buffer until the request is done.
  [[nodiscard]] virtual Request start_all_reduce_buffer(MutableBuffer buffer, ReduceOp op) = 0;
  /// Nonblocking reduce_scatter and all_gather. The rules of start_all_reduce hold for both
  /// buffers.
  [[nodiscard]] virtual Request start_reduce_scatter_buffer(ConstBuffer all, MutableBuffer mine,
                                                            ReduceOp op) = 0;
  [[nodiscard]] virtual Request start_all_gather_buffer(ConstBuffer mine, MutableBuffer all) = 0;
  /// Starts a message to another rank, which receives it with the same count and type. The rules of
  /// start_all_reduce hold for the buffer. The messages from one rank to another arrive in the
  /// order of their starts. Both ranks start a message between the same two collectives. Any number
  /// may be in flight, in both directions. A send may end only when it is received: ranks that send
  /// to each other start both messages before any other call. Error(internal) if `to` is this rank.
  [[nodiscard]] virtual Request start_send_buffer(ConstBuffer buffer, int to) = 0;
  [[nodiscard]] virtual Request start_receive_buffer(MutableBuffer buffer, int from) = 0;
  /// Progresses all requests. Returns whether this one is done, and releases it if so.
  virtual bool test(Request& request) = 0;
  virtual void wait(Request& request) = 0;

  /// Blocks until the results of all requests that wait() has ended are available. Needed for
  /// device memory, where wait() only orders the result before later work in the stream.
  virtual void synchronize() {}
  /// Blocks until `reached()` returns true, as it does once a device has run some queued work.
  virtual void synchronize_until(FunctionRef<bool()> reached);

  /// Call before the first collective on this memory. A transport that benefits from registration
  /// keeps the memory alive until the transport is destroyed.
  virtual void register_memory(const RegisteredMemory& /*memory*/) {}

  /// Collective. Makes a communicator, with this one's transport, over the ranks with the same
  /// `color`, which is not negative. They are ordered by `key`, then by their rank here. Throws
  /// rather than use a slower transport. Nothing may be in flight. The new communicator may outlive
  /// this one; all its ranks destroy it together.
  [[nodiscard]] virtual std::unique_ptr<Communicator> split(int color, int key) = 0;

  template <typename T>
  void all_reduce(std::span<T> values, ReduceOp op = ReduceOp::sum) {
    all_reduce_buffer(buffer_of(values), op);
  }
  template <typename T>
  [[nodiscard]] T all_reduce_value(T value, ReduceOp op = ReduceOp::sum) {
    all_reduce(std::span<T>(&value, 1), op);
    return value;
  }
  template <typename T>
  void broadcast(std::span<T> values, int root = 0) {
    broadcast_buffer(buffer_of(values), root);
  }
  template <typename T>
  void all_gather(std::span<const T> mine, std::span<T> all) {
    all_gather_buffer(buffer_of(mine), buffer_of(all));
  }
  template <typename T>
  void gather(std::span<const T> mine, std::span<T> all, int root = 0) {
    gather_buffer(buffer_of(mine), buffer_of(all), root);
  }
  template <typename T>
  void scatter(std::span<const T> all, std::span<T> mine, int root = 0) {
    scatter_buffer(buffer_of(all), buffer_of(mine), root);
  }
  template <typename T>
  void reduce_scatter(std::span<const T> all, std::span<T> mine, ReduceOp op = ReduceOp::sum) {
    reduce_scatter_buffer(buffer_of(all), buffer_of(mine), op);
  }
  template <typename T>
  [[nodiscard]] Request start_all_reduce(std::span<T> values, ReduceOp op = ReduceOp::sum) {
    return start_all_reduce_buffer(buffer_of(values), op);
  }
  template <typename T>
  [[nodiscard]] Request start_reduce_scatter(std::span<const T> all, std::span<T> mine,
                                             ReduceOp op = ReduceOp::sum) {
    return start_reduce_scatter_buffer(buffer_of(all), buffer_of(mine), op);
  }
  template <typename T>
  [[nodiscard]] Request start_all_gather(std::span<const T> mine, std::span<T> all) {
    return start_all_gather_buffer(buffer_of(mine), buffer_of(all));
  }
  template <typename T>
  [[nodiscard]] Request start_send(std::span<const T> values, int to) {
    return start_send_buffer(buffer_of(values), to);
  }
  template <typename T>
  [[nodiscard]] Request start_receive(std::span<T> values, int from) {
    return start_receive_buffer(buffer_of(values), from);
  }
  template <typename T>
  void send(std::span<const T> values, int to) {
    Request request = start_send(values, to);
    wait(request);
  }
  template <typename T>
  void receive(std::span<T> values, int from) {
    Request request = start_receive(values, from);
    wait(request);
  }

 protected:
  /// Error(internal) unless `peer` is another rank.
  void require_peer(int peer) const;
};

/// Returns root's text on every rank; lengths may differ between ranks.
[[nodiscard]] std::string broadcast_text(Communicator& comm, std::string text, int root = 0);
/// Returns every rank's text, in rank order, on every rank.
[[nodiscard]] std::vector<std::string> all_gather_text(Communicator& comm, const std::string& mine);

/// Collective. Runs `work` on each rank. If it throws on any rank, every rank throws the Error of
/// the lowest such rank (same status, same text). `work` may contain collectives only if no rank
/// can throw before them while others do not.
void collectively(Communicator& comm, const std::function<void()>& work);

}  // namespace lockstep
