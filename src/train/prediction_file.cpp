#include "prediction_file.hpp"

#include "lockstep/core/error.hpp"

#include <array>
#include <numeric>
#include <utility>

namespace lockstep {
namespace {

/// Names the path in errors, which HDF5 gives for the temporary file.
template <typename Work>
void writing(const std::string& path, Work work) {
  try {
    work();
  } catch (const Error& error) {
    fail(error.status(), "predictions {} were not saved: {}", path, error.what());
  }
}

void write_attributes(const h5::File& file, const PredictionSource& source) {
  h5::write_string(file, "format", "lockstep-predictions");
  h5::write_number<std::int64_t>(file, "version", 1);
  h5::write_string(file, "checkpoint", source.checkpoint);
  h5::write_string(file, "weights", source.weights);
  h5::write_string(file, "model", source.model);
  h5::write_string(file, "split", source.split);
  h5::write_number(file, "classes", source.classes);
  if (!source.class_names.empty()) h5::write_strings(file, "class_names", source.class_names);
  h5::write_number(file, "data_identity", source.data_identity);
}

}  // namespace

PredictionFile::PredictionFile(const std::string& path, const PredictionSource& source)
    : path_(path), temporary_(path) {
  writing(path_, [&] {
    file_ = h5::create_file(temporary_.path(), temporary_.file());
    write_attributes(file_, source);
    const std::array dims{static_cast<std::uint64_t>(source.samples),
                          static_cast<std::uint64_t>(source.classes)};
    logits_ = h5::create_dataset<float>(file_, "logits", dims);
    labels_ = h5::create_dataset<std::int64_t>(file_, "labels", std::span(dims).first(1));
    indices_ = h5::create_dataset<std::int64_t>(file_, "sample", std::span(dims).first(1));
  });
}

void PredictionFile::add(const EvaluatedSamples& samples) {
  writing(path_, [&] {
    const auto first = static_cast<std::uint64_t>(samples.first);
    const std::uint64_t count = samples.labels.size();
    std::vector<std::int64_t> values(samples.labels.begin(), samples.labels.end());
    h5::write_rows<float>(logits_, first, count, samples.logits);
    h5::write_rows<std::int64_t>(labels_, first, count, values);
    std::iota(values.begin(), values.end(), samples.first);
    h5::write_rows<std::int64_t>(indices_, first, count, values);
  });
}

void PredictionFile::publish() {
  writing(path_, [&] {
    logits_ = {};
    labels_ = {};
    indices_ = {};
    h5::close_written(std::move(file_));
    temporary_.flush();
    temporary_.publish();
  });
}

}  // namespace lockstep
