#include "image_list.hpp"

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

ImageList list_on_all_ranks(Communicator& comm, std::size_t items,
                            const std::function<ImageList(std::size_t)>& list) {
  const auto ranks = static_cast<std::size_t>(comm.size());
  std::string mine;
  collectively(comm, [&] {
    for (auto item = static_cast<std::size_t>(comm.rank()); item < items; item += ranks) {
      list(item).put_bytes(mine);
    }
  });
  const std::vector<std::string> bytes = all_gather_text(comm, mine);
  std::vector<std::string_view> rest(bytes.begin(), bytes.end());
  ImageList all;
  for (std::size_t item = 0; item < items; ++item) {
    ImageList of_item;
    rest[item % ranks] = of_item.take_bytes(rest[item % ranks]);
    all.append(of_item);
  }
  return all;
}

std::vector<std::string> broadcast_texts(Communicator& comm,
                                         const std::vector<std::string>& texts) {
  std::string joined;
  for (const std::string& text : texts) joined.append(text).push_back('\0');
  joined = broadcast_text(comm, std::move(joined));
  std::vector<std::string> all;
  for (std::size_t begin = 0; begin < joined.size();) {
    all.emplace_back(joined.data() + begin);
    begin += all.back().size() + 1;
  }
  return all;
}

}  // namespace lockstep
