#include "lockstep/report/confusion.hpp"

#include "lockstep/core/csv.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/parse_number.hpp"
#include "lockstep/core/text_file.hpp"

#include <algorithm>
#include <cmath>
#include <sstream>

namespace lockstep::report {
namespace {

/// Reads a record of RFC 4180: a quoted field may contain commas, quotes and line breaks. False at
/// the end of the file, and for more than `most` fields.
bool read_record(std::istream& file, std::size_t most, std::vector<std::string>& fields) {
  fields.assign(1, "");
  std::string line;
  bool quoted = false;
  bool any = false;
  while (std::getline(file, line)) {
    any = true;
    for (std::size_t i = 0; i < line.size(); ++i) {
      const char c = line[i];
      if (quoted && c == '"' && i + 1 < line.size() && line[i + 1] == '"') {
        fields.back() += line[i++];
      } else if (c == '"') {
        quoted = !quoted;
      } else if (c == ',' && !quoted) {
        if (fields.size() == most) return false;
        fields.emplace_back();
      } else if (c != '\r' || quoted) {
        fields.back() += c;
      }
    }
    if (!quoted) return true;
    fields.back() += '\n';
  }
  return any;
}

void keep_most_frequent(Confusion& confusion, std::size_t most) {
  if (confusion.errors.size() <= most) return;
  const auto end = confusion.errors.begin() + static_cast<std::ptrdiff_t>(most);
  std::ranges::nth_element(confusion.errors, end, std::ranges::greater{}, &Confusion::Cell::count);
  for (auto cell = end; cell != confusion.errors.end(); ++cell) confusion.dropped += cell->count;
  confusion.errors.erase(end, confusion.errors.end());
}

}  // namespace

Confusion read_confusion(const FilePath& at, std::size_t most) {
  const std::string& path = at.text();
  const std::string text = read_text_file(at);
  std::istringstream file(text);
  // A matrix has two bytes a cell at least, so a file has no more columns, and a row of titles.
  const auto columns = static_cast<std::size_t>(std::sqrt(text.size())) + 2;
  std::vector<std::string> fields;
  Confusion confusion;
  if (read_record(file, columns, fields)) {
    for (auto name = fields.begin() + 1; name != fields.end(); ++name) {
      confusion.classes.emplace_back(csv_text(*name));
    }
  }
  const std::size_t classes = confusion.classes.size();
  confusion.samples.resize(classes);
  confusion.hits.resize(classes);
  std::size_t truth = 0;
  for (; truth < classes && read_record(file, columns, fields); ++truth) {
    if (fields.size() != classes + 1) break;
    if (csv_text(fields.front()) != confusion.classes[truth]) {
      fail(ExitStatus::bad_input,
           "{}: row {} is of another class than column {} (rows and columns have one order); write "
           "it with lockstep eval --confusion",
           path, truth + 2, truth + 2);
    }
    for (std::size_t predicted = 0; predicted < classes; ++predicted) {
      const std::int64_t count = parse_number<std::int64_t>(fields[predicted + 1]).value_or(-1);
      if (count < 0) {
        fail(ExitStatus::bad_input,
             "{}: row {}, column {} cannot be read (no count of samples); write it with lockstep "
             "eval --confusion",
             path, truth + 2, predicted + 2);
      }
      confusion.samples[truth] += count;
      if (predicted == truth) {
        confusion.hits[truth] = count;
      } else if (count > 0) {
        confusion.errors.push_back({.truth = static_cast<std::int32_t>(truth),
                                    .predicted = static_cast<std::int32_t>(predicted),
                                    .count = count});
      }
    }
    if (confusion.errors.size() > 4 * most) keep_most_frequent(confusion, most);
  }
  if (classes == 0 || truth != classes) {
    fail(ExitStatus::bad_input,
         "{} has no row of {} columns for class {} (it is no confusion matrix, or incomplete); "
         "write it with lockstep eval --confusion",
         path, classes + 1, truth);
  }
  keep_most_frequent(confusion, most);
  return confusion;
}

}  // namespace lockstep::report
