#pragma once

#include "lockstep/io/hdf5.hpp"

#include <fuzzer/FuzzedDataProvider.h>

#include <string>
#include <vector>

/// Well-formed HDF5 whose content is hostile: the library itself writes every byte, so that what a
/// target finds is a fault of the reader above it.
namespace lockstep::fuzz {

/// An attribute: the object it is on and its name.
struct AttributePlace {
  std::string object;
  std::string name;
};

/// What there is in a file to be replaced.
struct Places {
  std::vector<std::string> objects;
  std::vector<AttributePlace> attributes;
};

/// Replaces, removes or redirects some of `places`, as the bytes say; without bytes, nothing.
void tamper(const h5::File& file, const Places& places, FuzzedDataProvider& bytes);

}  // namespace lockstep::fuzz
