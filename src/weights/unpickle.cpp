#include "unpickle.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/escape.hpp"
#include "pickle_globals.hpp"

#include <bit>
#include <cstring>
#include <optional>
#include <unordered_map>

namespace lockstep::pickle {
namespace {

constexpr std::size_t most_values = std::size_t{1} << 22;
// A list may be given again and again, and is copied each time.
constexpr std::size_t most_arguments = 64;
constexpr std::size_t most_pairs = std::size_t{1} << 22;  ///< of all dicts
constexpr std::size_t most_axes = 8;
constexpr std::size_t most_marks = std::size_t{1} << 20;
constexpr std::size_t most_key = 64;  ///< of a storage, in bytes

class Machine final {
 public:
  Machine(std::string_view bytes, const std::string& path) : bytes_(bytes), path_(path) {}

  Pickled run() {
    while (true) {
      const std::size_t at = position_;
      const auto opcode = number<unsigned char>();
      if (opcode == '.') break;
      if (!constant(opcode) && !container(opcode) && !memory(opcode) && !object(opcode)) {
        fail(
            ExitStatus::bad_input,
            "{} has the opcode 0x{:02x} at byte {} of its pickle (files of weights need none such; "
            "it is damaged or was not written by torch.save); write its state dict again",
            path_, opcode, at);
      }
    }
    result_.root = pop();
    result_.bytes = position_;
    return std::move(result_);
  }

 private:
  [[noreturn]] void damaged(std::string_view what) const {
    fail(ExitStatus::bad_input, "{} is damaged (its pickle {}, at byte {}); copy or write it again",
         path_, what, position_);
  }

  std::string_view take(std::uint64_t count) {
    if (count > bytes_.size() - position_) damaged("ends too early");
    const std::string_view text = bytes_.substr(position_, count);
    position_ += count;
    return text;
  }
  template <typename T>
  T number() {
    T value{};
    std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
    return value;
  }
  /// Up to a line feed.
  std::string_view line() {
    const std::size_t end = bytes_.find('\n', position_);
    if (end == std::string_view::npos) damaged("ends too early");
    const std::string_view text = take(end - position_);
    ++position_;
    return text;
  }

  Id make(Value value) {
    if (result_.values.size() >= most_values) damaged("has more than 2^22 values");
    result_.values.push_back(std::move(value));
    return static_cast<Id>(result_.values.size() - 1);
  }
  bool push(Value value) {
    stack_.push_back(make(std::move(value)));
    return true;
  }
  Id pop() {
    if (stack_.size() <= (marks_.empty() ? 0 : marks_.back())) damaged("takes from an empty stack");
    const Id id = stack_.back();
    stack_.pop_back();
    return id;
  }
  Id top() {
    const Id id = pop();
    stack_.push_back(id);
    return id;
  }
  /// All above the last mark, which is taken too.
  List pop_mark() {
    if (marks_.empty()) damaged("takes from an empty stack");
    const auto begin = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    List items(begin, stack_.end());
    stack_.erase(begin, stack_.end());
    marks_.pop_back();
    return items;
  }
  List pop_some(std::size_t count) {
    List items(count);
    for (std::size_t i = count; i-- > 0;) items[i] = pop();
    return items;
  }

  template <typename T>
  T& as(Id id, const char* what) {
    if (T* value = std::get_if<T>(&result_.values[id])) return *value;
    damaged(what);
  }

  const List& short_list(Id id, const char* what) {
    const List& list = as<List>(id, what);
    if (list.size() > most_arguments) damaged(fmt::format("{} ({} items)", what, list.size()));
    return list;
  }

  /// An integer of any length; Opaque beyond 64 bits.
  Value long_integer(std::string_view digits) {
    std::int64_t value = 0;
    if (digits.size() > sizeof value) return Opaque{};
    std::memcpy(&value, digits.data(), digits.size());
    const std::size_t unused = 64 - 8 * digits.size();
    if (digits.empty()) return value;
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(value) << unused) >>
           static_cast<std::int64_t>(unused);
  }

  bool constant(unsigned char opcode) {
    switch (opcode) {
      case 0x80:  // PROTO
        if (const auto version = number<unsigned char>(); version < 2 || version > 5) {
          damaged(fmt::format("has protocol {}", version));
        }
        return true;
      case 0x95:  // FRAME
        static_cast<void>(number<std::uint64_t>());
        return true;
      case 'N':
        return push(None{});
      case 0x88:
        return push(true);
      case 0x89:
        return push(false);
      case 'J':
        return push(std::int64_t{number<std::int32_t>()});
      case 'K':
        return push(std::int64_t{number<std::uint8_t>()});
      case 'M':
        return push(std::int64_t{number<std::uint16_t>()});
      case 0x8a:  // LONG1
        return push(long_integer(take(number<std::uint8_t>())));
      case 0x8b:  // LONG4
        return push(long_integer(take(number<std::uint32_t>())));
      case 'G': {  // big-endian
        auto bits = number<std::uint64_t>();
        bits = __builtin_bswap64(bits);
        return push(std::bit_cast<double>(bits));
      }
      case 'X':
      case 'T':
      case 'B':
        return push(std::string(take(number<std::uint32_t>())));
      case 0x8c:
      case 'U':
      case 'C':
        return push(std::string(take(number<std::uint8_t>())));
      case 0x8d:
      case 0x8e:
        return push(std::string(take(number<std::uint64_t>())));
      default:
        return false;
    }
  }

  bool container(unsigned char opcode) {
    switch (opcode) {
      case '(':
        if (marks_.size() == most_marks) damaged("has more than 2^20 marks");
        marks_.push_back(stack_.size());
        return true;
      case '0':
        if (!marks_.empty() && marks_.back() == stack_.size()) {
          marks_.pop_back();
        } else {
          static_cast<void>(pop());
        }
        return true;
      case '1':
        static_cast<void>(pop_mark());
        return true;
      case ']':
      case ')':
      case 0x8f:
        return push(List{});
      case '}':
        return push(Dict{});
      case 'l':
      case 't':
      case 0x91:
        return push(pop_mark());
      case 0x85:
      case 0x86:
      case 0x87:
        return push(pop_some(opcode - 0x84U));
      case 'd': {
        const List items = pop_mark();
        Dict dict;
        add_items(dict, items);
        return push(std::move(dict));
      }
      case 'a':
        return append({pop()});
      case 'e':
      case 0x90:
        return append(pop_mark());
      case 's':
        return set_items(pop_some(2));
      case 'u':
        return set_items(pop_mark());
      default:
        return false;
    }
  }

  bool memory(unsigned char opcode) {
    switch (opcode) {
      case 'q':
        memo_[number<std::uint8_t>()] = top();
        return true;
      case 'r':
        if (memo_.size() >= most_values) damaged("memoizes more than 2^22 values");
        memo_[number<std::uint32_t>()] = top();
        return true;
      case 0x94:  // MEMOIZE
        if (memo_.size() >= most_values) damaged("memoizes more than 2^22 values");
        memo_[static_cast<std::uint32_t>(memo_.size())] = top();
        return true;
      case 'h':
        return recall(number<std::uint8_t>());
      case 'j':
        return recall(number<std::uint32_t>());
      default:
        return false;
    }
  }

  bool object(unsigned char opcode) {
    switch (opcode) {
      case 'c': {
        const std::string_view module = line();
        return global(module, line());
      }
      case 0x93: {  // STACK_GLOBAL
        const List names = pop_some(2);
        return global(as<std::string>(names[0], "has no name of a module"),
                      as<std::string>(names[1], "has no name of a class"));
      }
      case 'R':
      case 0x81: {  // NEWOBJ
        const List call = pop_some(2);
        return push_call(as<Global>(call[0], "calls what is no function").name,
                         short_list(call[1], "calls a function without a tuple"));
      }
      case 'b':  // BUILD: the state of an object
        static_cast<void>(pop());
        static_cast<void>(top());
        return true;
      case 'Q':
        return storage(short_list(pop(), "has a storage that is no tuple"));
      default:
        return false;
    }
  }

  bool recall(std::uint32_t number) {
    const auto found = memo_.find(number);
    if (found == memo_.end()) damaged("refers to what is not there");
    stack_.push_back(found->second);
    return true;
  }

  bool append(const List& items) {
    const Id target = top();
    if (std::holds_alternative<Opaque>(result_.values[target])) return true;
    List& list = as<List>(target, "appends to what is no list");
    list.insert(list.end(), items.begin(), items.end());
    return true;
  }

  void add_items(Dict& dict, const List& items) {
    if (items.size() % 2 != 0) damaged("has a key without a value");
    pairs_ += items.size() / 2;
    if (pairs_ > most_pairs) damaged("has more than 2^22 pairs");
    for (std::size_t i = 0; i < items.size(); i += 2) dict.emplace_back(items[i], items[i + 1]);
  }

  bool set_items(const List& items) {
    const Id target = top();
    if (std::holds_alternative<Opaque>(result_.values[target])) return true;
    add_items(as<Dict>(target, "sets items of what is no dict"), items);
    return true;
  }

  bool global(std::string_view module, std::string_view name) {
    std::string full = fmt::format("{}.{}", module, name);
    if (!is_known(full)) {
      fail(ExitStatus::bad_input,
           "{} has an object of {} (only tensors, containers and numbers are read: to make others "
           "would execute code of the file); save the state dict alone: "
           "torch.save(model.state_dict(), PATH)",
           path_, escape_line(full));
    }
    return push(Global{std::move(full)});
  }

  bool push_call(const std::string& name, List arguments) {
    switch (made_by(name)) {
      case Makes::dict:
        return push(dict_of(arguments));
      case Makes::tensor:
        return push(tensor(arguments));
      case Makes::first_argument:
        if (arguments.empty()) damaged("makes a tensor of nothing");
        stack_.push_back(arguments[0]);
        return true;
      case Makes::opaque:
        break;
    }
    return push(Opaque{});
  }

  /// From a list of pairs, as Python 2 wrote it, or empty.
  Dict dict_of(const List& arguments) {
    Dict dict;
    const List* const pairs =
        arguments.empty() ? nullptr : std::get_if<List>(&result_.values[arguments[0]]);
    if (pairs == nullptr) return dict;
    for (const Id pair : *pairs) {
      const List& both = short_list(pair, "has a pair that is no list");
      if (both.size() != 2) damaged("has a pair that is none");
      add_items(dict, both);
    }
    return dict;
  }

  std::int64_t count(Id id, const char* what) {
    const auto value = as<std::int64_t>(id, what);
    if (value < 0) damaged(fmt::format("{} ({})", what, value));
    return value;
  }
  std::vector<std::int64_t> counts(Id id, const char* what) {
    std::vector<std::int64_t> values;
    const List& list = short_list(id, what);
    if (list.size() > most_axes) damaged(fmt::format("{} ({} axes)", what, list.size()));
    for (const Id each : list) values.push_back(count(each, what));
    return values;
  }

  Tensor tensor(const List& arguments) {
    if (arguments.size() < 4) damaged("has a tensor without shape");
    static_cast<void>(as<Storage>(arguments[0], "has a tensor without storage"));
    Tensor tensor{.storage = arguments[0],
                  .offset = count(arguments[1], "has a tensor with a bad offset"),
                  .extents = counts(arguments[2], "has a tensor with a bad shape"),
                  .strides = counts(arguments[3], "has a tensor with bad strides")};
    if (tensor.extents.size() != tensor.strides.size()) {
      damaged(fmt::format("has a tensor of {} extents and {} strides", tensor.extents.size(),
                          tensor.strides.size()));
    }
    return tensor;
  }

  /// ("storage", class, key, location, elements), and None for what PyTorch no longer writes.
  bool storage(List words) {
    if (words.size() < 5 || as<std::string>(words[0], "has a storage without name") != "storage") {
      damaged("has a storage of another form");
    }
    if (words.size() > 5 && !std::holds_alternative<None>(result_.values[words[5]])) {
      fail(ExitStatus::bad_input,
           "{} has a part of a storage (PyTorch has not written such since 2017); load and save it "
           "with a newer PyTorch",
           path_);
    }
    const std::string& type = as<Global>(words[1], "has a storage without type").name;
    const ElementKind* kind = storage_kind(type);
    const std::string& key = as<std::string>(words[2], "has a storage without key");
    if (key.size() > most_key) damaged("has a storage with a long key");
    if (kind == nullptr) damaged(fmt::format("has a storage of {}", escape_line(type)));
    return push(Storage{
        .kind = kind, .key = key, .elements = count(words[4], "has a storage with a bad size")});
  }

  std::string_view bytes_;
  const std::string& path_;
  std::size_t position_ = 0;
  std::size_t pairs_ = 0;
  Pickled result_;
  List stack_;
  std::vector<std::size_t> marks_;
  std::unordered_map<std::uint32_t, Id> memo_;
};

}  // namespace

Pickled unpickle(std::string_view bytes, const std::string& path) {
  return Machine(bytes, path).run();
}

}  // namespace lockstep::pickle
