#include "hdf5_node.hpp"

#include "hdf5_storage.hpp"
#include "hdf5_trees.hpp"

#include <algorithm>
#include <limits>

namespace lockstep::h5 {
namespace {

/// Of one object's header. Attributes above 64 KiB are stored outside of it.
constexpr std::uint64_t max_header_bytes = std::uint64_t{16} << 20;
constexpr std::size_t max_continuations = 65'536;
constexpr std::size_t max_links = 1'000'000;

/// Whether a message is stored elsewhere, with others that are equal.
bool is_shared(const Message& message) noexcept {
  return (message.flags & 0x02) != 0;
}

bool is_read(MessageType type) noexcept {
  switch (type) {
    case MessageType::dataspace:
    case MessageType::link_info:
    case MessageType::datatype:
    case MessageType::link:
    case MessageType::external_files:
    case MessageType::layout:
    case MessageType::filters:
    case MessageType::attribute:
    case MessageType::symbol_table:
    case MessageType::attribute_info:
      return true;
    default:
      return false;  // continuations are followed, others are of no use
  }
}

/// The name in an attribute's message.
std::string attribute_name(Cursor cursor) {
  const std::uint8_t version = cursor.byte();
  cursor.skip(1);  // flags
  const std::uint64_t bytes = cursor.number(2);
  cursor.skip(version >= 3 ? 5 : 4);  // sizes of type and space; the character set
  std::string name = cursor.text(bytes);
  name.resize(std::min(name.size(), name.find('\0')));
  return name;
}

std::string link_name(Cursor& cursor, std::uint8_t flags) {
  return cursor.text(cursor.number(std::size_t{1} << (flags & 0x03)));
}

Link parse_link(Cursor cursor) {
  Link link;
  cursor.expect(1);
  const std::uint8_t flags = cursor.byte();
  const std::uint8_t kind = (flags & 0x08) != 0 ? cursor.byte() : 0;
  if ((flags & 0x04) != 0) link.order = cursor.number(8);
  if ((flags & 0x10) != 0) cursor.skip(1);  // the character set
  link.name = link_name(cursor, flags);
  constexpr std::uint8_t soft = 1;
  constexpr std::uint8_t external = 64;
  if (kind == 0) {
    link.address = cursor.address();
  } else {
    link.kind = kind == soft       ? "a soft link"
                : kind == external ? "a link to another file"
                                   : "a user-defined link";
  }
  return link;
}

/// Entries of a version 1 group: an address, or a soft link in the scratch space.
Link parse_symbol(std::string name, Cursor entry) {
  Link link{.name = std::move(name), .address = entry.address()};
  constexpr std::uint64_t soft = 2;
  if (entry.number(4) == soft) {
    link.address = undefined;
    link.kind = "a soft link";
  }
  return link;
}

}  // namespace

Node::Node(std::shared_ptr<const Input> input, std::string path, std::uint64_t address)
    : input_(std::move(input)), path_(std::move(path)), address_(address) {
  const Bytes start = input_->read(address_, 4, "an object header");
  if (Cursor(*input_, start, "").text(4) == "OHDR") {
    read_new_header();
  } else {
    read_old_header();
  }
}

Node::~Node() = default;

std::string Node::name() const {
  return path_.empty() ? input_->path() : input_->path() + ":/" + path_;
}

std::string Node::name_of(const std::string& child) const {
  if (child.starts_with('/')) return input_->path() + ":" + child;
  return fmt::format("{}:/{}{}{}", input_->path(), path_, path_.empty() ? "" : "/", child);
}

void Node::refuse(std::string_view feature) const {
  fail(ExitStatus::bad_input,
       "{} has {} (not read; docs/file-formats.md lists what is); write it again by h5py with its "
       "defaults",
       name(), feature);
}

void Node::take(std::uint64_t bytes) {
  const std::uint64_t most = std::min(max_header_bytes, input_->size());
  if (bytes > most - block_bytes_) {
    fail(ExitStatus::bad_input,
         "{} has a header of more than {} bytes (that is the limit); write it again with fewer "
         "attributes",
         name(), most);
  }
  block_bytes_ += bytes;
}

void Node::read_old_header() {
  constexpr std::string_view what = "an object header";
  const Bytes prefix = input_->read(address_, 16, what);
  Cursor cursor(*input_, prefix, what);
  cursor.expect(1);
  cursor.skip(7);  // number of messages, references
  const std::uint64_t bytes = cursor.number(4);
  take(bytes);
  Bytes block = input_->read(address_ + prefix.size(), bytes, what);
  const std::size_t size = block.size();
  read_messages(std::move(block), 0, size);
}

void Node::read_new_header() {
  constexpr std::size_t longest_prefix = 4 + 2 + 16 + 4 + 8;
  constexpr std::string_view what = "an object header";
  const Bytes start = input_->read(
      address_, std::min<std::uint64_t>(longest_prefix, input_->size() - input_->base() - address_),
      what);
  Cursor cursor(*input_, start, what);
  cursor.skip(4);
  cursor.expect(2);
  const std::uint8_t flags = cursor.byte();
  if ((flags & 0x20) != 0) cursor.skip(16);  // times
  if ((flags & 0x10) != 0) cursor.skip(4);   // when attributes move to a heap
  const std::uint64_t bytes = cursor.number(std::size_t{1} << (flags & 0x03));
  const std::size_t prefix = start.size() - cursor.left();
  take(bytes);
  Bytes block = input_->read_checked(address_, prefix + bytes + 4, "OHDR");
  is_new_ = true;
  order_bytes_ = (flags & 0x04) != 0 ? 2 : 0;
  const std::size_t end = block.size() - 4;
  read_messages(std::move(block), prefix, end);
}

void Node::read_messages(Bytes block, std::size_t first, std::size_t end) {
  constexpr std::string_view what = "a header message";
  std::vector<Continuation> pending;
  add_messages(std::move(block), first, end, pending);
  // A list, since a damaged file may chain them without end.
  for (std::size_t next = 0; next < pending.size(); ++next) {
    const auto [address, bytes] = pending[next];
    if (bytes < 8 || next == max_continuations)
      input_->damaged("an object header goes on too long");
    take(bytes);
    Bytes more =
        is_new_ ? input_->read_checked(address, bytes, "OCHK") : input_->read(address, bytes, what);
    const std::size_t size = more.size();
    is_new_ ? add_messages(std::move(more), 4, size - 4, pending)
            : add_messages(std::move(more), 0, size, pending);
  }
}

void Node::add_messages(Bytes block, std::size_t first, std::size_t end,
                        std::vector<Continuation>& pending) {
  constexpr std::string_view what = "a header message";
  constexpr std::uint8_t must_be_known = 0x80;
  constexpr std::uint64_t last_known = 0x18;
  blocks_.push_back(std::move(block));
  Cursor cursor(*input_, std::span(blocks_.back()).subspan(first, end - first), what);
  const std::size_t prefix = is_new_ ? 4 + order_bytes_ : 8;
  while (cursor.left() >= prefix) {
    const std::uint64_t type = cursor.number(is_new_ ? 1 : 2);
    const std::uint64_t size = cursor.number(2);
    const std::uint8_t flags = cursor.byte();
    cursor.skip(is_new_ ? order_bytes_ : 3);
    const Message message{
        .type = static_cast<MessageType>(type), .flags = flags, .body = cursor.bytes(size)};
    if (type > last_known && (flags & must_be_known) != 0) {
      refuse(fmt::format("a part of type {}", type));
    }
    if (message.type == MessageType::continuation) {
      Cursor body(*input_, message.body, what);
      const std::uint64_t address = body.address();
      pending.push_back({.address = address, .bytes = body.number(8)});
    } else if (is_read(message.type)) {
      messages_.push_back(message);
    }
  }
}

const Message* Node::find(MessageType type) const noexcept {
  const auto found = std::ranges::find(messages_, type, &Message::type);
  return found == messages_.end() ? nullptr : &*found;
}

Cursor Node::require(MessageType type, std::string_view what) const {
  const Message* message = find(type);
  if (message == nullptr) input_->damaged(fmt::format("{} has no {}", name(), what));
  if (is_shared(*message)) refuse(fmt::format("a {} that is shared", what));
  return {*input_, message->body, what};
}

bool Node::is_group() const noexcept {
  return find(MessageType::symbol_table) != nullptr || find(MessageType::link_info) != nullptr ||
         find(MessageType::link) != nullptr;
}

bool Node::is_dataset() const noexcept {
  return find(MessageType::layout) != nullptr;
}

const Links& Node::links() const {
  return input_->links(address_, [this] { return read_links(*this); });
}

std::shared_ptr<const Node> Node::child(const std::string& name) const {
  if (!is_group()) return nullptr;
  const Link* found = links().find(name);
  if (found == nullptr) return nullptr;
  if (!found->kind.empty()) {
    fail(ExitStatus::bad_input,
         "{} is {} (only objects of the file itself are read); store the object there",
         name_of(name), found->kind);
  }
  return std::make_shared<const Node>(input_, path_.empty() ? name : path_ + "/" + name,
                                      found->address);
}

const std::vector<StoredAttribute>& Node::attributes() const {
  const std::lock_guard lock(mutex_);
  if (!attributes_) attributes_ = read_attributes(*this);
  return *attributes_;
}

const Storage& Node::storage() const {
  const std::lock_guard lock(mutex_);
  if (!storage_) storage_ = std::make_unique<const Storage>(*this);
  return *storage_;
}

Links read_links(const Node& group) {
  const Input& input = *group.input();
  std::vector<Link> links;
  const auto add = [&](Link link) {
    if (links.size() == max_links) {
      fail(ExitStatus::bad_input,
           "{} holds more than {} objects (that is the limit); check the file", group.name(),
           max_links);
    }
    links.push_back(std::move(link));
  };
  bool is_ordered = false;
  for (const Message& message : group.messages()) {
    Cursor body(input, message.body, "a link");
    if (message.type == MessageType::link) add(parse_link(body));
    if (message.type == MessageType::link_info) {
      body.expect(0);
      const std::uint8_t flags = body.byte();
      is_ordered = (flags & 0x01) != 0;
      if (is_ordered) body.skip(8);
      const std::uint64_t heap = body.address();
      const std::uint64_t tree = body.address();
      if (heap == undefined) continue;
      visit_heap_objects(input, heap, tree, RecordType::link_by_name,
                         [&](Cursor link) { add(parse_link(link)); });
    }
    if (message.type == MessageType::symbol_table) {
      const std::uint64_t tree = body.address();
      visit_symbols(input, tree, body.address(), [&](std::string name, Cursor entry) {
        add(parse_symbol(std::move(name), entry));
      });
    }
  }
  std::ranges::sort(links, {}, &Link::name);
  if (std::ranges::adjacent_find(links, {}, &Link::name) != links.end()) {
    input.damaged(fmt::format("{} has two objects of a name", group.name()));
  }
  std::vector<std::string> names(links.size());
  std::vector<const Link*> order;
  for (const Link& link : links) order.push_back(&link);
  if (is_ordered) std::ranges::stable_sort(order, {}, &Link::order);
  std::ranges::transform(order, names.begin(), [](const Link* link) { return link->name; });
  return {std::move(links), std::move(names)};
}

std::vector<StoredAttribute> read_attributes(const Node& object) {
  const Input& input = *object.input();
  constexpr std::string_view what = "an attribute";
  std::vector<StoredAttribute> attributes;
  const auto add = [&](Cursor body) {
    std::string name = attribute_name(body);
    const auto rest = body.bytes(body.left());
    attributes.push_back({std::move(name), Bytes(rest.begin(), rest.end())});
  };
  for (const Message& message : object.messages()) {
    Cursor body(input, message.body, what);
    if (message.type == MessageType::attribute && is_shared(message)) {
      object.refuse("an attribute that is shared");
    }
    if (message.type == MessageType::attribute) add(body);
    if (message.type != MessageType::attribute_info) continue;
    body.expect(0);
    if ((body.byte() & 0x01) != 0) body.skip(2);  // the largest order of creation
    const std::uint64_t heap = body.address();
    const std::uint64_t tree = body.address();
    if (heap == undefined) continue;
    visit_heap_objects(input, heap, tree, RecordType::attribute_by_name, add);
  }
  return attributes;
}

}  // namespace lockstep::h5
