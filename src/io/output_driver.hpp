#pragma once

#include "lockstep/io/hdf5.hpp"

#include <string>

namespace lockstep::h5 {

/// A file driver for output that never tells the library of a failure: HDF5 1.10 crashes when it
/// cannot write what it still holds, be it at H5Fclose() or at exit. After the first failure the
/// driver keeps its errno and takes everything else without writing it. Our writers ask for that
/// errno after each write.
void use_output_driver(const PropertyList& access);

/// The errno of the first failed write to the file that `object` belongs to; 0: none, or another
/// driver's file.
[[nodiscard]] int output_error(hid_t object);

/// Closes a file that create_file() or open_for_update() opened; the errno of the first failure of
/// all, 0: none.
[[nodiscard]] int close_output(File file);

}  // namespace lockstep::h5
