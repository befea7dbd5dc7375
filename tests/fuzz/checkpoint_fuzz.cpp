#include "lockstep/checkpoint/checkpoint.hpp"

#include "checkpoint/checkpoint_format.hpp"
#include "fuzz.hpp"
#include "hostile_hdf5.hpp"

#include <cmath>

namespace lockstep::fuzz {
namespace {

NamedTensor any_tensor(const std::string& name, FuzzedDataProvider& bytes) {
  NamedTensor tensor{.name = name, .shape = {}, .values = {}};
  std::vector<std::int64_t> extents;
  std::size_t elements = 1;
  for (int axis = bytes.ConsumeIntegralInRange(0, 4); axis > 0; --axis) {
    extents.push_back(bytes.ConsumeIntegralInRange<std::int64_t>(1, 4));
    elements *= static_cast<std::size_t>(extents.back());
  }
  tensor.shape = Shape(extents);
  tensor.values.assign(elements, bytes.ConsumeBool() ? 0.5F : bytes.ConsumeFloatingPoint<float>());
  return tensor;
}

Checkpoint valid_checkpoint(FuzzedDataProvider& bytes) {
  Checkpoint checkpoint;
  checkpoint.model = {any_tensor("fc.weight", bytes), any_tensor("fc.bias", bytes)};
  checkpoint.mean = {0.5F};
  checkpoint.std = {0.25F};
  checkpoint.classes = 2;
  checkpoint.class_names = {"no", "yes"};
  checkpoint.image = ImageShape{.channels = 1, .height = 8, .width = 8};
  if (bytes.ConsumeBool()) return checkpoint;
  checkpoint.optimizer["momentum"] = {any_tensor("fc.weight", bytes)};
  TrainingState state;
  state.step = bytes.ConsumeIntegral<std::int64_t>();
  state.epoch_loss = bytes.ConsumeFloatingPoint<double>();
  state.model = bytes.ConsumeRandomLengthString(16);
  state.config = bytes.ConsumeRandomLengthString(32);
  checkpoint.state = state;
  return checkpoint;
}

const Places& places() {
  static const Places all = [] {
    Places result{.objects = {"/model", "/model/fc.weight", "/model/fc.bias", "/model/other",
                              "/model/bn.num_batches_tracked", "/optimizer", "/optimizer/momentum",
                              "/optimizer/momentum/fc.weight", "/state"},
                  .attributes = {{"/", "format"},
                                 {"/", "version"},
                                 {"/", "mean"},
                                 {"/", "std"},
                                 {"/", "classes"},
                                 {"/", "class_names"},
                                 {"/model/fc.weight", "crc32c"},
                                 {"/model/fc.bias", "crc32c"},
                                 {"/state", "crc32c"}}};
    TrainingState state;
    checkpoint_format::visit_fields(state, [&](const char* name, auto&) {
      result.attributes.push_back({"/state", name});
    });
    for (const char* name : {"image_channels", "image_height", "image_width"}) {
      result.attributes.push_back({"/", name});
    }
    return result;
  }();
  return all;
}

}  // namespace

/// Writes a valid checkpoint, replaces parts of it, and reads it as weights and to resume.
void run(Bytes input) {
  static const Scratch scratch;
  FuzzedDataProvider bytes(input.data(), input.size());
  std::filesystem::create_directories(scratch.path());
  const std::string path = scratch.path() + "/step-00000001.h5";
  write_checkpoint(path, valid_checkpoint(bytes));
  {
    const h5::File file(H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT));
    tamper(file, places(), bytes);
  }
  for (const CheckpointUse purpose : {CheckpointUse::weights, CheckpointUse::resume}) {
    accepts([&] {
      const Checkpoint checkpoint = read_checkpoint(path, purpose);
      for (const NamedTensor& tensor : checkpoint.model) {
        if (static_cast<std::size_t>(tensor.shape.elements()) != tensor.values.size()) {
          __builtin_trap();
        }
        for (const float value : tensor.values) {
          if (!std::isfinite(value)) __builtin_trap();
        }
      }
      // Rank 0 sends the state to the others as text.
      if (checkpoint.state) {
        static_cast<void>(parse_training_state(training_state_text(*checkpoint.state)));
      }
    });
  }
}

}  // namespace lockstep::fuzz

LOCKSTEP_FUZZ_ENTRY
