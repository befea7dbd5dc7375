#include "lockstep/export/formats.hpp"
#include "state_dict.hpp"
#include "state_dict_pickle.hpp"
#include "zip_archive.hpp"

namespace lockstep {

FileParts torch_file(const TrainedModel& model) {
  // The folder's name is free; that of the records is not.
  const std::string folder = "archive/";
  std::vector<StateTensor> tensors = state_dict(model);
  std::vector<ZipEntry> entries;
  const auto add = [&](const std::string& record, FilePart content) {
    entries.push_back({.name = folder + record, .content = std::move(content)});
  };
  add("data.pkl", {.bytes = state_dict_pickle(tensors)});
  add("byteorder", {.bytes = "little"});
  for (std::size_t number = 0; number < tensors.size(); ++number) {
    add("data/" + std::to_string(number), std::move(tensors[number].values));
  }
  add("version", {.bytes = "3\n"});
  return zip_archive(std::move(entries));
}

}  // namespace lockstep
