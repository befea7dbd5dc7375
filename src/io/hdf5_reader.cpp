#include "lockstep/io/hdf5_reader.hpp"

#include "hdf5_input.hpp"
#include "hdf5_node.hpp"
#include "hdf5_storage.hpp"
#include "hdf5_types.hpp"

#include <algorithm>
#include <string_view>
#include <type_traits>

namespace lockstep::h5 {
namespace {

/// The object that a path leads to; none if it is absent.
Object find(const Object& parent, std::string_view path) {
  Object object = parent;
  if (path.starts_with('/')) {
    const auto& input = parent->input();
    if (parent->address() != input->root()) {
      object = std::make_shared<const Node>(input, "", input->root());
    }
  }
  while (object && !path.empty()) {
    const std::string name(path.substr(0, path.find('/')));
    path.remove_prefix(std::min(path.size(), name.size() + 1));
    if (!name.empty()) object = object->child(name);
  }
  return object;
}

Object require(const Object& parent, const std::string& name, const char* kind) {
  Object object = find(parent, name);
  if (object) return object;
  fail(ExitStatus::bad_input, "{} is missing (there is no such {}); check what wrote the file",
       parent->name_of(name), kind);
}

/// Stored values of a wider type are converted in pieces of so many bytes.
constexpr std::size_t piece_bytes = std::size_t{1} << 20;

template <typename T>
void check_type(const Node& node, const DatasetInfo& info) {
  const TypeClass wanted = std::is_floating_point_v<T> ? TypeClass::floating : TypeClass::integer;
  if (info.element.type != wanted) {
    fail(ExitStatus::bad_input,
         "{} is {}, not {} (its type cannot be read as that); write it again", node.name(),
         to_string(info), wanted == TypeClass::integer ? "integers" : "floating point");
  }
}

/// Elements of one row of the outermost axis. Error(bad_input) unless the rows exist and hold
/// `values` elements.
std::uint64_t check_rows(const Node& node, const DatasetInfo& info, std::uint64_t first,
                         std::uint64_t count, std::uint64_t values) {
  const std::uint64_t rows = info.dims.empty() ? 1 : info.dims[0];
  if (first > rows || count > rows - first) {
    fail(ExitStatus::bad_input,
         "{} has {} rows, not rows {} to {} (its shape has {} axes); check the file", node.name(),
         rows, first, first + count, info.dims.size());
  }
  const std::uint64_t row = rows == 0 ? 0 : info.elements / rows;
  if (count * row != values) {
    fail(ExitStatus::bad_input,
         "{} rows of {} are {} values, not {} (its rows have {}); check the file", count,
         node.name(), count * row, values, row);
  }
  return row;
}

/// Elements [first, first + values) of contiguous values, in row-major order.
template <typename T>
void read_contiguous(const Node& node, const DatasetInfo& info, std::uint64_t first,
                     std::span<T> values) {
  const Input& input = *node.input();
  const std::size_t size = info.element.size;
  std::uint64_t address = *info.offset - input.base() + first * size;
  const std::size_t piece = std::max<std::size_t>(1, piece_bytes / size);
  if (size == sizeof(T) && info.element.little_endian) {
    // What differs is only whether integers have a sign, which convert() clamps in place.
    input.read(address, std::as_writable_bytes(values), "values");
    convert<T>(std::as_bytes(values), info.element, values);
    return;
  }
  Bytes stored(std::min(piece, values.size()) * size);
  while (!values.empty()) {
    const auto now = values.first(std::min(piece, values.size()));
    const auto bytes = std::span(stored).first(now.size() * size);
    input.read(address, bytes, "values");
    convert<T>(bytes, info.element, now);
    address += bytes.size();
    values = values.subspan(now.size());
  }
}

/// Copies the rows that are in a chunk to `values`, which begin with row `first`.
template <typename T>
class ChunkCopy final {
 public:
  ChunkCopy(const DatasetInfo& info, const ChunkGrid& grid, std::uint64_t first,
            std::uint64_t count, std::span<T> values)
      : info_(info),
        grid_(grid),
        first_(first),
        end_(first + count),
        values_(values),
        run_axis_(info.dims.size() - 1) {
    for (; run_axis_ > 0 && grid.extent[run_axis_] == info.dims[run_axis_]; --run_axis_) {
      inner_ *= info.dims[run_axis_];
    }
  }

  void copy(const Bytes& chunk, std::span<const std::uint64_t> place) {
    copy_axis(chunk, place, 0, 0, 0);
  }

 private:
  /// From element `source` of the chunk to element `target` of the whole dataset, which are the
  /// starts along the axes before.
  void copy_axis(const Bytes& chunk, std::span<const std::uint64_t> place, std::size_t axis,
                 std::uint64_t source, std::uint64_t target) {
    const std::uint64_t extent = grid_.extent[axis];
    const std::uint64_t dim = info_.dims[axis];
    const std::uint64_t start = place[axis] * extent;
    const std::uint64_t begin = axis == 0 ? std::max(start, first_) : start;
    const std::uint64_t end = std::min(start + extent, axis == 0 ? end_ : dim);
    const std::uint64_t row = axis == 0 ? first_ : 0;
    const std::uint64_t to = target * (axis == 0 ? 1 : dim) - row;
    if (axis == run_axis_) {
      const std::size_t size = info_.element.size * inner_;
      const auto bytes =
          std::span(chunk).subspan((source * extent + begin - start) * size, (end - begin) * size);
      convert<T>(bytes, info_.element,
                 values_.subspan((to + begin) * inner_, (end - begin) * inner_));
      return;
    }
    for (std::uint64_t i = begin; i < end; ++i) {
      copy_axis(chunk, place, axis + 1, source * extent + i - start, to + i);
    }
  }

  const DatasetInfo& info_;
  const ChunkGrid& grid_;
  std::uint64_t first_;
  std::uint64_t end_;
  std::span<T> values_;
  std::size_t run_axis_;     ///< after it, chunks are as wide as the dataset
  std::uint64_t inner_ = 1;  ///< product of the extents after it
};

template <typename T>
void read_chunked(const Storage& storage, std::uint64_t first, std::uint64_t count,
                  std::span<T> values) {
  const ChunkGrid& grid = storage.grid();
  const std::uint64_t in_row = grid.chunks / grid.count[0];
  ChunkCopy<T> copy(storage.info(), grid, first, count, values);
  std::vector<std::uint64_t> place(grid.count.size());
  const std::uint64_t end = (first + count - 1) / grid.extent[0] + 1;
  for (std::uint64_t number = first / grid.extent[0] * in_row; number < end * in_row; ++number) {
    std::uint64_t rest = number;
    for (std::size_t axis = place.size(); axis-- > 0; rest /= grid.count[axis]) {
      place[axis] = rest % grid.count[axis];
    }
    copy.copy(*storage.chunk(number), place);
  }
}

}  // namespace

Object open_file(const FilePath& path) {
  const auto input = std::make_shared<const Input>(path);
  auto root = std::make_shared<const Node>(input, "", input->root());
  if (!root->is_group()) input->damaged("it has no root group");
  return root;
}

bool exists(const Object& parent, const std::string& name) {
  return find(parent, name) != nullptr;
}

std::vector<std::string> children(const Object& parent, const std::string& group,
                                  std::size_t max_children) {
  const Object opened = open_group(parent, group);
  const std::vector<std::string>& names = opened->links().names();
  if (names.size() > max_children) {
    fail(ExitStatus::bad_input, "{} holds more than {} objects (that is the limit); check the file",
         opened->name(), max_children);
  }
  return names;
}

Object open_group(const Object& parent, const std::string& name) {
  Object group = require(parent, name, "group");
  if (group->is_group()) return group;
  fail(ExitStatus::bad_input,
       "{} is not a group (a dataset or type is there); check what wrote the file", group->name());
}

Object open_dataset(const Object& parent, const std::string& name) {
  Object dataset = require(parent, name, "dataset");
  if (dataset->is_dataset()) return dataset;
  fail(ExitStatus::bad_input,
       "{} is not a dataset (a group or type is there); check what wrote the file",
       dataset->name());
}

std::uint64_t file_bytes(const Object& object) {
  return object->input()->size();
}

std::string to_string(const DatasetInfo& info) {
  std::string shape;
  for (const std::uint64_t dim : info.dims)
    shape += fmt::format("{}{}", shape.empty() ? "" : "x", dim);
  return fmt::format("{} {}", shape.empty() ? "scalar" : shape, to_string(info.element));
}

DatasetInfo describe(const Object& dataset) {
  return dataset->storage().info();
}

DatasetInfo describe(const Object& parent, const std::string& name) {
  return describe(open_dataset(parent, name));
}

template <typename T>
void read_rows(const Object& dataset, std::uint64_t first, std::uint64_t count,
               std::span<T> values) {
  const Node& node = *dataset;
  const Storage& storage = node.storage();
  const DatasetInfo& info = storage.info();
  check_type<T>(node, info);
  const std::uint64_t row = check_rows(node, info, first, count, values.size());
  if (values.empty()) return;
  storage.require_values();
  switch (info.layout) {
    case Layout::contiguous:
      read_contiguous(node, info, first * row, values);
      break;
    case Layout::compact:
      convert<T>(storage.compact().subspan(first * row * info.element.size,
                                           values.size() * info.element.size),
                 info.element, values);
      break;
    case Layout::chunked:
      read_chunked(storage, first, count, values);
      break;
  }
}

void keep_chunks(const Object& dataset, std::uint64_t bytes) {
  dataset->storage().keep(bytes);
}

void require_values(const Object& dataset, std::uint64_t max_elements) {
  const Storage& storage = dataset->storage();
  if (storage.info().elements > max_elements) {
    fail(ExitStatus::bad_input,
         "{} is {}, more than {} values (the most expected there); check the file", dataset->name(),
         to_string(storage.info()), max_elements);
  }
  storage.require_values();
}

#define LOCKSTEP_H5_READ(T) \
  template void read_rows<T>(const Object&, std::uint64_t, std::uint64_t, std::span<T>);
LOCKSTEP_H5_READ(std::int8_t)
LOCKSTEP_H5_READ(std::uint8_t)
LOCKSTEP_H5_READ(std::int16_t)
LOCKSTEP_H5_READ(std::uint16_t)
LOCKSTEP_H5_READ(std::int32_t)
LOCKSTEP_H5_READ(std::uint32_t)
LOCKSTEP_H5_READ(std::int64_t)
LOCKSTEP_H5_READ(std::uint64_t)
LOCKSTEP_H5_READ(float)
LOCKSTEP_H5_READ(double)
#undef LOCKSTEP_H5_READ

}  // namespace lockstep::h5
