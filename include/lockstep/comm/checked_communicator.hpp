#pragma once

#include "lockstep/comm/collective.hpp"
#include "lockstep/comm/communicator.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace lockstep {

/// Compares what ranks are about to ask of their communicators, over a communicator of its own, so
/// that ranks which differ meet here instead of in each other's collectives. Costs an all-gather
/// a collective: for debugging.
class CollectiveComparison final {
 public:
  /// Collective. `step`: where the rank stands, compared too.
  CollectiveComparison(std::unique_ptr<Communicator> own, std::function<std::int64_t()> step);

  /// One collective of one rank.
  struct Call {
    CollectiveKind kind = CollectiveKind::none;
    std::size_t count = 0;
    ElementType type = ElementType::u8;
    ReduceOp op = ReduceOp::sum;
    int root = 0;
    int communicator = 0;  ///< as from add()
  };
  /// Another communicator whose calls are compared; the same order on all ranks.
  [[nodiscard]] int add(const std::string& name);
  /// Collective: an Error(internal) on all ranks alike where the calls differ, naming the first
  /// rank whose call is not that of most, with both.
  void compare(const Call& call);

 private:
  struct Record;
  [[nodiscard]] std::string describe(const Record& record) const;

  std::unique_ptr<Communicator> own_;
  std::function<std::int64_t()> step_;
  std::vector<std::string> hosts_;
  std::vector<std::string> names_;
  std::int64_t calls_ = 0;
};

/// Another communicator, each of whose collectives is compared before it is made.
class CheckedCommunicator final : public Communicator {
 public:
  /// Both outlive it. `name`: "the host's", as errors call it.
  CheckedCommunicator(Communicator& inner, CollectiveComparison& comparison,
                      const std::string& name);

  [[nodiscard]] int rank() const noexcept override { return inner_.rank(); }
  [[nodiscard]] int size() const noexcept override { return inner_.size(); }
  void barrier() override;
  void all_reduce_buffer(MutableBuffer buffer, ReduceOp op) override;
  void broadcast_buffer(MutableBuffer buffer, int root) override;
  void all_gather_buffer(ConstBuffer mine, MutableBuffer all) override;
  void gather_buffer(ConstBuffer mine, MutableBuffer all, int root) override;
  void scatter_buffer(ConstBuffer all, MutableBuffer mine, int root) override;
  void reduce_scatter_buffer(ConstBuffer all, MutableBuffer mine, ReduceOp op) override;
  [[nodiscard]] Request start_all_reduce_buffer(MutableBuffer buffer, ReduceOp op) override;
  bool test(Request& request) override { return inner_.test(request); }
  void wait(Request& request) override { inner_.wait(request); }
  void synchronize() override { inner_.synchronize(); }

 private:
  Communicator& inner_;
  CollectiveComparison& comparison_;
  int communicator_;
};

}  // namespace lockstep
