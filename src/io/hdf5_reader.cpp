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
    const auto& input = parent.node().input();
    if (parent.node().address() != input->root()) {
      object = Object(std::make_shared<const Node>(input, "", input->root()));
    }
  }
  while (object && !path.empty()) {
    const std::string name(path.substr(0, path.find('/')));
    path.remove_prefix(std::min(path.size(), name.size() + 1));
    if (!name.empty()) object = Object(object.node().child(name));
  }
  return object;
}

Object require(const Object& parent, const std::string& name, const char* kind) {
  Object object = find(parent, name);
  if (object) return object;
  fail(ExitStatus::bad_input, "{} is missing (there is no such {}); check what wrote the file",
       parent.node().name_of(name), kind);
}

}  // namespace

Object open_file(const FilePath& path) {
  const auto input = std::make_shared<const Input>(path);
  auto root = std::make_shared<const Node>(input, "", input->root());
  if (!root->is_group()) input->damaged("it has no root group");
  return Object(std::move(root));
}

bool exists(const Object& parent, const std::string& name) {
  return static_cast<bool>(find(parent, name));
}

std::vector<std::string> children(const Object& parent, const std::string& group,
                                  std::size_t max_children) {
  const Object opened = open_group(parent, group);
  const std::vector<std::string>& names = opened.node().links().names();
  if (names.size() > max_children) {
    fail(ExitStatus::bad_input, "{} holds more than {} objects (that is the limit); check the file",
         opened.node().name(), max_children);
  }
  return names;
}

Object open_group(const Object& parent, const std::string& name) {
  Object group = require(parent, name, "group");
  if (group.node().is_group()) return group;
  fail(ExitStatus::bad_input,
       "{} is not a group (a dataset or type is there); check what wrote the file",
       group.node().name());
}

Object open_dataset(const Object& parent, const std::string& name) {
  Object dataset = require(parent, name, "dataset");
  if (dataset.node().is_dataset()) return dataset;
  fail(ExitStatus::bad_input,
       "{} is not a dataset (a group or type is there); check what wrote the file",
       dataset.node().name());
}

std::uint64_t file_bytes(const Object& object) {
  return object.node().input()->size();
}

std::string to_string(const DatasetInfo& info) {
  std::string shape;
  for (const std::uint64_t dim : info.dims)
    shape += fmt::format("{}{}", shape.empty() ? "" : "x", dim);
  return fmt::format("{} {}", shape.empty() ? "scalar" : shape, to_string(info.element));
}

DatasetInfo describe(const Object& dataset) {
  return dataset.node().storage().info();
}

DatasetInfo describe(const Object& parent, const std::string& name) {
  return describe(open_dataset(parent, name));
}

}  // namespace lockstep::h5
