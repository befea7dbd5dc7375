#pragma once

#include "lockstep/io/hdf5_writer.hpp"

#include <string>

namespace lockstep::h5 {

/// Sets a file driver for output that hides failures from the library, because HDF5 1.10 crashes if
/// it cannot write buffered data at H5Fclose() or at exit. After the first failure, the driver
/// stores errno and discards all further writes. Our writers query that errno after each write. The
/// driver uses the open `file`, whatever its name leads to by then.
void use_output_driver(const PropertyList& access, const Descriptor& file);

/// The errno of the first failed write to the file that `object` belongs to; 0: none, or another
/// driver's file.
[[nodiscard]] int output_error(hid_t object);

/// Closes a file opened by create_file() or open_for_update(). Returns the errno of the file's
/// first failure; 0: none.
[[nodiscard]] int close_output(File file);

}  // namespace lockstep::h5
