#include "lockstep/data/entry_fates.hpp"

#include "lockstep/core/error.hpp"

#include <utility>

namespace lockstep {

void EntryFates::leave_out(const std::string& reason, std::string path) {
  LeftOut& of = left_out_[reason];
  ++of.entries;
  if (of.first.size() < most_names) of.first.push_back(std::move(path));
}

void EntryFates::refuse(std::string reason, std::string path) {
  unused_.push_back({.path = std::move(path), .reason = std::move(reason)});
}

void EntryFates::append(const EntryFates& other) {
  for (const auto& [reason, more] : other.left_out_) {
    LeftOut& of = left_out_[reason];
    of.entries += more.entries;
    for (const std::string& name : more.first) {
      if (of.first.size() < most_names) of.first.push_back(name);
    }
  }
  unused_.insert(unused_.end(), other.unused_.begin(), other.unused_.end());
}

std::map<std::string, EntryFates::LeftOut> EntryFates::all() const {
  EntryFates both = *this;
  for (const Unused& entry : unused_) both.leave_out(entry.reason, entry.path);
  return both.left_out_;
}

void EntryFates::require_all_used() const {
  if (unused_.empty()) return;
  const Unused& first = unused_.front();
  const std::size_t more = unused_.size() - 1;
  fail(ExitStatus::bad_input,
       "{} is {}{}; convert it or move it to where it belongs, or give --on-bad skip, which leaves "
       "such entries out and lists them",
       first.path, first.reason,
       more == 0 ? ""
                 : fmt::format(", and {} more {} not used, such as {}: {}", more,
                               more == 1 ? "entry is" : "entries are", unused_.back().path,
                               unused_.back().reason));
}

std::vector<std::string> EntryFates::to_texts() const {
  std::vector<std::string> texts{std::to_string(left_out_.size())};
  for (const auto& [reason, of] : left_out_) {
    texts.insert(texts.end(),
                 {reason, std::to_string(of.entries), std::to_string(of.first.size())});
    texts.insert(texts.end(), of.first.begin(), of.first.end());
  }
  for (const Unused& entry : unused_) texts.insert(texts.end(), {entry.path, entry.reason});
  return texts;
}

EntryFates EntryFates::from_texts(const std::vector<std::string>& texts) {
  EntryFates fates;
  auto next = texts.begin();
  for (std::size_t reasons = std::stoull(*next++); reasons > 0; --reasons) {
    LeftOut& of = fates.left_out_[*next++];
    of.entries = std::stoll(*next++);
    const auto names = static_cast<std::ptrdiff_t>(std::stoull(*next++));
    of.first.assign(next, next + names);
    next += names;
  }
  for (; next != texts.end(); next += 2) fates.refuse(*(next + 1), *next);
  return fates;
}

}  // namespace lockstep
