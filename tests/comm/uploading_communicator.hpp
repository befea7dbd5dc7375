#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/comm/cuda_api.hpp"
#include "lockstep/comm/element_size.hpp"

#include <boost/test/unit_test.hpp>

#include <cstddef>
#include <map>
#include <memory>
#include <utility>

namespace lockstep::test {

/// A device's communicator for host memory: copies each buffer to the device, and the result back.
class UploadingCommunicator final : public Communicator {
 public:
  UploadingCommunicator(CudaApi& cuda, Communicator& inner, CudaStream compute)
      : cuda_(cuda), inner_(inner), compute_(compute) {}
  UploadingCommunicator(CudaApi& cuda, std::unique_ptr<Communicator> inner, CudaStream compute)
      : cuda_(cuda), owned_(std::move(inner)), inner_(*owned_), compute_(compute) {}

  [[nodiscard]] int rank() const noexcept override { return inner_.rank(); }
  [[nodiscard]] int size() const noexcept override { return inner_.size(); }
  void barrier() override { inner_.barrier(); }
  void all_reduce_buffer(MutableBuffer buffer, ReduceOp op) override {
    const Copy values = upload(buffer);
    inner_.all_reduce_buffer(values.there, op);
    download(values);
  }
  void broadcast_buffer(MutableBuffer buffer, int root) override {
    const Copy values = upload(buffer);
    inner_.broadcast_buffer(values.there, root);
    download(values);
  }
  void all_gather_buffer(ConstBuffer mine, MutableBuffer all) override {
    const Copy from = upload(mine);
    const Copy to = upload(all);
    inner_.all_gather_buffer(constant(from), to.there);
    download(to);
    release(from);
  }
  void gather_buffer(ConstBuffer mine, MutableBuffer all, int root) override {
    const Copy from = upload(mine);
    const Copy to = upload(all);
    inner_.gather_buffer(constant(from), to.there, root);
    download(to);
    release(from);
  }
  void scatter_buffer(ConstBuffer all, MutableBuffer mine, int root) override {
    const Copy from = upload(all);
    const Copy to = upload(mine);
    inner_.scatter_buffer(constant(from), to.there, root);
    download(to);
    release(from);
  }
  void reduce_scatter_buffer(ConstBuffer all, MutableBuffer mine, ReduceOp op) override {
    const Copy from = upload(all);
    const Copy to = upload(mine);
    inner_.reduce_scatter_buffer(constant(from), to.there, op);
    download(to);
    release(from);
  }
  [[nodiscard]] Request start_all_reduce_buffer(MutableBuffer buffer, ReduceOp op) override {
    const Copy values = upload(buffer);
    return started(inner_.start_all_reduce_buffer(values.there, op), {}, values);
  }
  [[nodiscard]] Request start_reduce_scatter_buffer(ConstBuffer all, MutableBuffer mine,
                                                    ReduceOp op) override {
    const Copy from = upload(all);
    const Copy to = upload(mine);
    return started(inner_.start_reduce_scatter_buffer(constant(from), to.there, op), from, to);
  }
  [[nodiscard]] Request start_all_gather_buffer(ConstBuffer mine, MutableBuffer all) override {
    const Copy from = upload(mine);
    const Copy to = upload(all);
    return started(inner_.start_all_gather_buffer(constant(from), to.there), from, to);
  }
  [[nodiscard]] Request start_send_buffer(ConstBuffer buffer, int to) override {
    const Copy from = upload(buffer);
    return started(inner_.start_send_buffer(constant(from), to), from, {});
  }
  [[nodiscard]] Request start_receive_buffer(MutableBuffer buffer, int from) override {
    const Copy to = upload(buffer);
    return started(inner_.start_receive_buffer(to.there, from), {}, to);
  }
  [[nodiscard]] std::unique_ptr<Communicator> split(int color, int key) override {
    return std::make_unique<UploadingCommunicator>(cuda_, inner_.split(color, key), compute_);
  }
  bool test(Request& request) override {
    const int slot = request.slot;
    if (!inner_.test(request)) return false;
    finish(slot);
    return true;
  }
  void wait(Request& request) override {
    const int slot = request.slot;
    inner_.wait(request);
    finish(slot);
  }
  void synchronize() override { inner_.synchronize(); }
  void synchronize_until(FunctionRef<bool()> reached) override {
    inner_.synchronize_until(reached);
  }

 private:
  struct Copy {
    void* here = nullptr;
    MutableBuffer there = {};
  };
  static ConstBuffer constant(const Copy& copy) {
    return {copy.there.data, copy.there.count, copy.there.type, copy.there.owner};
  }
  static std::size_t bytes(const Copy& copy) { return copy.there.count * size_of(copy.there.type); }
  [[nodiscard]] Copy upload(const MutableBuffer& buffer) {
    return upload(ConstBuffer{buffer.data, buffer.count, buffer.type, buffer.owner});
  }
  [[nodiscard]] Copy upload(const ConstBuffer& buffer) {
    Copy copy{.here = const_cast<void*>(buffer.data),
              .there = {nullptr, buffer.count, buffer.type, buffer.owner}};
    if (bytes(copy) == 0) return copy;
    require(cuda_.device_allocate(&copy.there.data, bytes(copy)));
    require(cuda_.copy_to_device(copy.there.data, buffer.data, bytes(copy), compute_));
    return copy;
  }
  void download(const Copy& copy) {
    if (bytes(copy) > 0) {
      require(cuda_.copy_to_host(copy.here, copy.there.data, bytes(copy), compute_));
    }
    inner_.synchronize();
    release(copy);
  }
  void release(const Copy& copy) {
    if (copy.there.data != nullptr) cuda_.device_release(copy.there.data);
  }
  [[nodiscard]] Request started(Request request, const Copy& from, const Copy& to) {
    if (request.done()) {
      release(from);
      download(to);
    } else {
      in_flight_[request.slot] = {from, to};
    }
    return request;
  }
  void finish(int slot) {
    const auto found = in_flight_.find(slot);
    if (found == in_flight_.end()) return;
    download(found->second.second);
    release(found->second.first);
    in_flight_.erase(found);
  }
  static void require(CudaResult result) { BOOST_TEST_REQUIRE((result == CudaResult::success)); }

  CudaApi& cuda_;
  std::unique_ptr<Communicator> owned_;  ///< may be null
  Communicator& inner_;
  CudaStream compute_;
  std::map<int, std::pair<Copy, Copy>> in_flight_;  ///< by slot of a request
};

}  // namespace lockstep::test
