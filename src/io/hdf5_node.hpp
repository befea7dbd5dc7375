#pragma once

#include "hdf5_input.hpp"
#include "lockstep/io/hdf5_reader.hpp"

#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::h5 {

/// Types of the messages in an object header that are read.
enum class MessageType : std::uint16_t {
  dataspace = 0x01,
  link_info = 0x02,
  datatype = 0x03,
  link = 0x06,
  external_files = 0x07,
  layout = 0x08,
  filters = 0x0B,
  attribute = 0x0C,
  continuation = 0x10,
  symbol_table = 0x11,
  attribute_info = 0x15,
};

struct Message {
  MessageType type;
  std::uint8_t flags;
  std::span<const std::byte> body;
};

/// An attribute's message.
struct StoredAttribute {
  std::string name;
  Bytes body;
};

class Storage;

/// An object and its header. Immutable but for what is read when it is first needed. Thread-safe.
class Node final {
 public:
  /// `path`: of the object in the file, without the first slash.
  Node(std::shared_ptr<const Input> input, std::string path, std::uint64_t address);
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;
  ~Node();

  [[nodiscard]] const std::shared_ptr<const Input>& input() const noexcept { return input_; }
  [[nodiscard]] std::uint64_t address() const noexcept { return address_; }
  /// "FILE:/object", for messages; "FILE" for the root.
  [[nodiscard]] std::string name() const;
  [[nodiscard]] std::string name_of(const std::string& child) const;
  [[nodiscard]] bool is_group() const noexcept;
  [[nodiscard]] bool is_dataset() const noexcept;

  /// Null if there is none.
  [[nodiscard]] const Message* find(MessageType type) const noexcept;
  /// Error(bad_input) if there is none, or it is shared with other objects.
  [[nodiscard]] Cursor require(MessageType type, std::string_view what) const;
  [[nodiscard]] const std::vector<Message>& messages() const noexcept { return messages_; }

  /// Of a group.
  [[nodiscard]] const Links& links() const;
  /// The object of that name; null if it is absent. Error(bad_input) if the link is not hard.
  [[nodiscard]] std::shared_ptr<const Node> child(const std::string& name) const;
  [[nodiscard]] const std::vector<StoredAttribute>& attributes() const;
  /// Of a dataset.
  [[nodiscard]] const Storage& storage() const;

  /// Error(bad_input): the object uses what is not read.
  [[noreturn]] void refuse(std::string_view feature) const;

 private:
  /// Error(bad_input), before a block of the header is read, if all together are too long.
  void take(std::uint64_t bytes);
  void read_old_header();
  void read_new_header();
  /// Where a header goes on.
  struct Continuation {
    std::uint64_t address;
    std::uint64_t bytes;
  };
  /// Of bytes [first, end) of the header's first block, and of those that follow it.
  void read_messages(Bytes block, std::size_t first, std::size_t end);
  void add_messages(Bytes block, std::size_t first, std::size_t end,
                    std::vector<Continuation>& pending);

  std::shared_ptr<const Input> input_;
  std::string path_;
  std::uint64_t address_;
  bool is_new_ = false;            ///< version 2 of the header
  std::size_t order_bytes_ = 0;    ///< of the order of creation in each message
  std::vector<Bytes> blocks_;      ///< that the messages are in
  std::uint64_t block_bytes_ = 0;  ///< of all blocks
  std::vector<Message> messages_;

  mutable std::mutex mutex_;
  mutable std::optional<std::vector<StoredAttribute>> attributes_;
  mutable std::unique_ptr<const Storage> storage_;
};

[[nodiscard]] Links read_links(const Node& group);
[[nodiscard]] std::vector<StoredAttribute> read_attributes(const Node& object);

}  // namespace lockstep::h5
