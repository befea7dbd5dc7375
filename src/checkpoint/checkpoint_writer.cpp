#include "checkpoint_format.hpp"

#include "lockstep/checkpoint/checkpoint.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/io/atomic_file.hpp"
#include "lockstep/io/hdf5_reader.hpp"
#include "lockstep/io/hdf5_writer.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <thread>

namespace lockstep {
namespace {

namespace format = checkpoint_format;

/// Bounds how long other threads' HDF5 calls wait for the library lock.
constexpr std::int64_t piece_bytes = std::int64_t{4} << 20;

/// Calls on_progress after each piece. Can also limit the write rate, so that tests have time to
/// kill a writer in the middle of a file.
class Pace final {
 public:
  explicit Pace(const std::function<void()>& on_progress) : on_progress_(on_progress) {
    const char* text = std::getenv("LOCKSTEP_TEST_WRITE_BYTES_PER_SECOND");
    if (text != nullptr) bytes_per_second_ = std::max<std::int64_t>(0, std::atoll(text));
  }
  [[nodiscard]] std::int64_t piece() const noexcept {
    if (bytes_per_second_ == 0) return piece_bytes;
    return std::clamp<std::int64_t>(bytes_per_second_ / 20, 1, piece_bytes);
  }
  void wrote(std::int64_t bytes) const {
    if (on_progress_) on_progress_();
    if (bytes_per_second_ == 0) return;
    std::this_thread::sleep_for(std::chrono::duration<double>(
        static_cast<double>(bytes) / static_cast<double>(bytes_per_second_)));
  }

 private:
  const std::function<void()>& on_progress_;
  std::int64_t bytes_per_second_ = 0;  ///< 0: unlimited
};

void check(const StoredTensor& stored) {
  const NamedTensor& tensor = stored.tensor;
  if (static_cast<std::size_t>(tensor.shape.elements()) != tensor.values.size()) {
    fail(ExitStatus::internal, "{}/{} has {} values for shape {} (they differ); report this",
         stored.group, tensor.name, tensor.values.size(), to_string(tensor.shape));
  }
  const auto bad =
      std::ranges::find_if(tensor.values, [](float value) { return !std::isfinite(value); });
  if (bad == tensor.values.end()) return;
  fail(ExitStatus::diverged, "{}/{} holds {} at element {} (training diverged); nothing is saved",
       stored.group, tensor.name, *bad, bad - tensor.values.begin());
}

void write_pieces(const h5::Dataset& dataset, const NamedTensor& tensor, const Pace& pace) {
  const std::int64_t rows = tensor.shape.rank() == 0 ? 1 : tensor.shape[0];
  const std::int64_t row = rows == 0 ? 0 : static_cast<std::int64_t>(tensor.values.size()) / rows;
  const auto row_bytes = static_cast<std::int64_t>(sizeof(float)) * row;
  const std::int64_t rows_a_piece =
      row_bytes == 0 ? rows : std::max<std::int64_t>(1, pace.piece() / row_bytes);
  for (std::int64_t first = 0; first < rows; first += rows_a_piece) {
    const std::int64_t count = std::min(rows_a_piece, rows - first);
    h5::write_rows<float>(
        dataset, static_cast<std::uint64_t>(first), static_cast<std::uint64_t>(count),
        std::span(tensor.values)
            .subspan(static_cast<std::size_t>(first * row), static_cast<std::size_t>(count * row)));
    pace.wrote(count * row_bytes);
  }
}

void write_tensor(const h5::Group& parent, const NamedTensor& tensor, const Pace& pace) {
  const std::vector<std::uint64_t> dims(tensor.shape.extents().begin(),
                                        tensor.shape.extents().end());
  const h5::Dataset dataset = h5::create_dataset<float>(parent, tensor.name, dims);
  write_pieces(dataset, tensor, pace);
  h5::write_number(dataset, format::checksum, format::values_checksum(tensor.values));
}

void write_tensors(const h5::File& file, const NextTensor& next, const Pace& pace) {
  const h5::Group model = h5::create_group(file, model_group);
  const h5::Group slots = h5::create_group(file, format::optimizer_group);
  std::string name = model_group;
  h5::Group other;  // the current one, if not /model
  while (const std::optional<StoredTensor> stored = next()) {
    check(*stored);
    if (stored->group != name && stored->group != model_group) {
      other = h5::create_group(file, stored->group);
    }
    name = stored->group;
    write_tensor(name == model_group ? model : other, stored->tensor, pace);
  }
}

template <typename T>
void write_field(h5::Location group, const char* name, const T& value) {
  if constexpr (std::is_same_v<T, std::string>) {
    h5::write_string(group, name, value);
  } else {
    h5::write_number(group, name, value);
  }
}

void write_file(const TemporaryFile& target, const CheckpointInfo& info, const NextTensor& next,
                const Pace& pace) {
  h5::File file = h5::create_file(target.path(), target.file());
  h5::write_string(file, "format", format::format);
  h5::write_number(file, "version", format::version);
  h5::write_number(file, "classes", info.classes);
  h5::write_floats(file, "mean", info.mean);
  h5::write_floats(file, "std", info.std);
  h5::write_strings(file, "class_names", info.class_names);
  if (info.image) {
    h5::write_number(file, "image_channels", info.image->channels);
    h5::write_number(file, "image_height", info.image->height);
    h5::write_number(file, "image_width", info.image->width);
  }
  write_tensors(file, next, pace);
  if (info.state) {
    const h5::Group state = h5::create_group(file, "/state");
    format::visit_fields(*info.state, [&state](const char* name, const auto& value) {
      if constexpr (requires { value.has_value(); }) {
        if (value) write_field(state, name, *value);
      } else {
        write_field(state, name, value);
      }
    });
    h5::write_number(state, format::checksum, format::state_checksum(*info.state));
  }
  h5::close_written(std::move(file));
  // Opening the file checks its length against its header.
  static_cast<void>(h5::open_file(target.path()));
}

}  // namespace

void write_checkpoint(const FilePath& path, const CheckpointInfo& info, const NextTensor& next,
                      const WriteHooks& hooks) {
  try {
    write_atomically(
        path,
        [&](const TemporaryFile& temporary) {
          write_file(temporary, info, next, Pace(hooks.on_progress));
        },
        hooks.before_publish);
  } catch (const Error& error) {
    const ExitStatus status =
        error.status() == ExitStatus::diverged || error.status() == ExitStatus::internal
            ? error.status()
            : ExitStatus::cannot_write;
    fail(status, "checkpoint {} was not saved: {}", path.text(), error.what());
  }
}

NextTensor tensors_of(Checkpoint checkpoint) {
  std::vector<StoredTensor> tensors;
  for (NamedTensor& tensor : checkpoint.model) {
    tensors.push_back({.group = model_group, .tensor = std::move(tensor)});
  }
  for (NamedTensor& tensor : checkpoint.ema) {
    tensors.push_back({.group = ema_group, .tensor = std::move(tensor)});
  }
  for (auto& [slot, of_slot] : checkpoint.optimizer) {
    for (NamedTensor& tensor : of_slot) {
      tensors.push_back({.group = slot_group(slot), .tensor = std::move(tensor)});
    }
  }
  return [tensors = std::move(tensors), next = std::size_t{0}]() mutable {
    return next == tensors.size() ? std::nullopt : std::optional(std::move(tensors[next++]));
  };
}

void write_checkpoint(const FilePath& path, const Checkpoint& checkpoint) {
  write_checkpoint(path, checkpoint, tensors_of(checkpoint));
}

}  // namespace lockstep
