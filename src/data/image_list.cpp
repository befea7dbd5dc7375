#include "image_list.hpp"

#include "lockstep/comm/broadcast_texts.hpp"

#include <cstring>
#include <type_traits>

namespace lockstep {
namespace {

template <typename T>
void put(std::string& bytes, const std::vector<T>& values) {
  static_assert(std::is_trivially_copyable_v<T>);
  bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

template <typename T>
[[nodiscard]] std::string_view take(std::string_view bytes, std::uint64_t count,
                                    std::vector<T>& values) {
  values.resize(count);
  if (count > 0) std::memcpy(values.data(), bytes.data(), count * sizeof(T));
  return bytes.substr(count * sizeof(T));
}

}  // namespace

void ImageList::add(const ListedImage& image, std::string_view name) {
  images_.push_back(image);
  name_begins_.push_back(names_.size());
  names_.append(name).push_back('\0');
}

void ImageList::append(const ImageList& other) {
  const std::uint64_t begin = names_.size();
  images_.insert(images_.end(), other.images_.begin(), other.images_.end());
  names_ += other.names_;
  for (const std::uint64_t name : other.name_begins_) name_begins_.push_back(begin + name);
}

void ImageList::put_bytes(std::string& bytes) const {
  put(bytes, std::vector<std::uint64_t>{images_.size(), names_.size()});
  put(bytes, images_);
  put(bytes, name_begins_);
  bytes += names_;
}

std::string_view ImageList::take_bytes(std::string_view bytes) {
  std::vector<std::uint64_t> sizes;
  bytes = take(bytes, 2, sizes);
  bytes = take(bytes, sizes[0], images_);
  bytes = take(bytes, sizes[0], name_begins_);
  names_ = bytes.substr(0, sizes[1]);
  return bytes.substr(sizes[1]);
}

void ListedEntries::append(const ListedEntries& other) {
  images.append(other.images);
  fates.append(other.fates);
}

std::vector<ListedEntries> list_on_all_ranks(
    Communicator& comm, std::size_t items, const std::function<ListedEntries(std::size_t)>& list) {
  const auto ranks = static_cast<std::size_t>(comm.size());
  std::string mine;
  collectively(comm, [&] {
    for (auto item = static_cast<std::size_t>(comm.rank()); item < items; item += ranks) {
      const ListedEntries entries = list(item);
      entries.images.put_bytes(mine);
      const std::string fates = join_texts(entries.fates.to_texts());
      put(mine, std::vector<std::uint64_t>{fates.size()});
      mine += fates;
    }
  });
  const std::vector<std::string> bytes = all_gather_text(comm, mine);
  std::vector<std::string_view> rest(bytes.begin(), bytes.end());
  std::vector<ListedEntries> all(items);
  for (std::size_t item = 0; item < items; ++item) {
    std::string_view& from = rest[item % ranks];
    from = all[item].images.take_bytes(from);
    std::vector<std::uint64_t> size;
    from = take(from, 1, size);
    all[item].fates = EntryFates::from_texts(split_texts(from.substr(0, size[0])));
    from.remove_prefix(size[0]);
  }
  return all;
}

EntryFates broadcast_fates(Communicator& comm, const EntryFates& fates) {
  return EntryFates::from_texts(broadcast_texts(comm, fates.to_texts()));
}

}  // namespace lockstep
