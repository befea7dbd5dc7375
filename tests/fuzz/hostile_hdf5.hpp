#pragma once

#include "lockstep/io/hdf5_writer.hpp"

#include <fuzzer/FuzzedDataProvider.h>

#include <string>
#include <vector>

/// Well-formed HDF5 with hostile content. The library itself writes every byte, so a finding is a
/// fault of the reader that uses the library.
namespace lockstep::fuzz {

/// An attribute: the object it is on and its name.
struct AttributePlace {
  std::string object;
  std::string name;
};

/// The parts of a file that can be replaced.
struct Places {
  std::vector<std::string> objects;
  std::vector<AttributePlace> attributes;
};

/// Replaces, removes or redirects some of `places` as the bytes select; without bytes, none.
void tamper(const h5::File& file, const Places& places, FuzzedDataProvider& bytes);

}  // namespace lockstep::fuzz
