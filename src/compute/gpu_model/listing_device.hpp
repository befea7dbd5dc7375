#pragma once

#include "../../engine/gpu/device.hpp"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::gpu {

/// Work that a program queued.
struct Launch {
  std::string kernel;                ///< the functor's name, or "convolution"
  double operations = 0;             ///< of a convolution
  std::optional<double> bytes = {};  ///< read and written at least; nullopt: unknown
};

/// A device that computes nothing and lists what is queued, to examine programs without memory for
/// them. Its device memory is reserved addresses that cannot be accessed.
class ListingDevice : public Device {
 public:
  /// What was queued since the last call.
  [[nodiscard]] virtual std::vector<Launch> take_launches() = 0;
  /// One list for each call of time() since the last call.
  [[nodiscard]] virtual std::vector<std::vector<Launch>> take_timed() = 0;
};
[[nodiscard]] std::shared_ptr<ListingDevice> make_listing_device();

}  // namespace lockstep::gpu
