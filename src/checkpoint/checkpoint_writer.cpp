#include "checkpoint_format.hpp"

#include "lockstep/checkpoint/checkpoint.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/io/atomic_file.hpp"
#include "lockstep/io/hdf5.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <thread>

namespace lockstep {
namespace {

namespace format = checkpoint_format;

/// Other threads' calls into the library wait no longer than one piece takes.
constexpr std::int64_t piece_bytes = std::int64_t{4} << 20;

/// Told of each piece. Tests kill a writer in the middle of a file; this makes the middle long
/// enough.
class Pace final {
 public:
  explicit Pace(const std::function<void()>& on_piece) : on_piece_(on_piece) {
    const char* text = std::getenv("LOCKSTEP_TEST_WRITE_BYTES_PER_SECOND");
    if (text != nullptr) bytes_per_second_ = std::max<std::int64_t>(0, std::atoll(text));
  }
  [[nodiscard]] std::int64_t piece() const noexcept {
    if (bytes_per_second_ == 0) return piece_bytes;
    return std::clamp<std::int64_t>(bytes_per_second_ / 20, 1, piece_bytes);
  }
  void wrote(std::int64_t bytes) const {
    if (on_piece_) on_piece_();
    if (bytes_per_second_ == 0) return;
    std::this_thread::sleep_for(std::chrono::duration<double>(
        static_cast<double>(bytes) / static_cast<double>(bytes_per_second_)));
  }

 private:
  const std::function<void()>& on_piece_;
  std::int64_t bytes_per_second_ = 0;  ///< 0: as fast as can be
};

void check_finite(const NamedTensor& tensor, const std::string& group) {
  const auto bad =
      std::ranges::find_if(tensor.values, [](float value) { return !std::isfinite(value); });
  if (bad == tensor.values.end()) return;
  fail(ExitStatus::diverged, "{}/{} holds {} at element {} (training diverged) nothing is saved",
       group, tensor.name, *bad, bad - tensor.values.begin());
}

void write_pieces(const h5::Dataset& dataset, const NamedTensor& tensor, const Pace& pace) {
  const std::int64_t rows = tensor.shape[0];
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

void write_tensors(h5::Location file, const std::string& group,
                   const std::vector<NamedTensor>& tensors, const Pace& pace) {
  const h5::Group parent = h5::create_group(file, group);
  for (const NamedTensor& tensor : tensors) {
    check_finite(tensor, group);
    if (static_cast<std::size_t>(tensor.shape.elements()) != tensor.values.size()) {
      fail(ExitStatus::internal, "{}/{} has {} values for shape {} (they differ) report this",
           group, tensor.name, tensor.values.size(), to_string(tensor.shape));
    }
    const std::vector<std::uint64_t> dims(tensor.shape.extents().begin(),
                                          tensor.shape.extents().end());
    h5::Dataset dataset;
    if (dims.empty()) {
      dataset = h5::write_dataset<float>(parent, tensor.name, dims, tensor.values);
    } else {
      dataset = h5::create_dataset<float>(parent, tensor.name, dims);
      write_pieces(dataset, tensor, pace);
    }
    h5::write_uint32(dataset, format::checksum, format::values_checksum(tensor.values));
  }
}

void write_field(h5::Location group, const char* name, std::int64_t value) {
  h5::write_int64(group, name, value);
}
void write_field(h5::Location group, const char* name, std::uint32_t value) {
  h5::write_uint32(group, name, value);
}
void write_field(h5::Location group, const char* name, double value) {
  h5::write_double(group, name, value);
}
void write_field(h5::Location group, const char* name, const std::string& value) {
  h5::write_string(group, name, value);
}

void write_file(const std::string& path, const Checkpoint& checkpoint,
                const std::function<void()>& on_piece) {
  const Pace pace(on_piece);
  h5::File file = h5::create_file(path);
  h5::write_string(file, "format", format::format);
  h5::write_int64(file, "version", format::version);
  h5::write_int64(file, "classes", checkpoint.classes);
  h5::write_floats(file, "mean", checkpoint.mean);
  h5::write_floats(file, "std", checkpoint.std);
  h5::write_strings(file, "class_names", checkpoint.class_names);
  write_tensors(file, "/model", checkpoint.model, pace);
  h5::Group slots = h5::create_group(file, "/optimizer");
  for (const auto& [slot, tensors] : checkpoint.optimizer) {
    write_tensors(file, "/optimizer/" + slot, tensors, pace);
  }
  if (checkpoint.state) {
    const h5::Group state = h5::create_group(file, "/state");
    format::visit_fields(*checkpoint.state, [&state](const char* name, const auto& value) {
      if constexpr (requires { value.has_value(); }) {
        if (value) write_field(state, name, *value);
      } else {
        write_field(state, name, value);
      }
    });
    h5::write_uint32(state, format::checksum, format::state_checksum(*checkpoint.state));
  }
  slots.reset();  // closing the file closes what is open in it
  h5::close_written(std::move(file));
  // Opening compares the file's length with what its header says.
  static_cast<void>(h5::open_file(path));
}

}  // namespace

void write_checkpoint(const std::string& path, const Checkpoint& checkpoint,
                      const std::function<void()>& on_piece) {
  try {
    write_atomically(
        path, [&](const std::string& temporary) { write_file(temporary, checkpoint, on_piece); });
  } catch (const Error& error) {
    const ExitStatus status =
        error.status() == ExitStatus::diverged || error.status() == ExitStatus::internal
            ? error.status()
            : ExitStatus::cannot_write;
    fail(status, "checkpoint {} was not saved: {}", path, error.what());
  }
}

}  // namespace lockstep
