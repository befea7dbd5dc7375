#include "pickle_globals.hpp"

#include <algorithm>
#include <array>

namespace lockstep::pickle {
namespace {

struct Constructor {
  std::string_view name;
  Makes makes;
};
constexpr std::array constructors{
    Constructor{"collections.OrderedDict", Makes::dict},
    Constructor{"collections.defaultdict", Makes::dict},
    Constructor{"torch._utils._rebuild_tensor", Makes::tensor},
    Constructor{"torch._utils._rebuild_tensor_v2", Makes::tensor},
    Constructor{"torch._utils._rebuild_parameter", Makes::first_argument},
    Constructor{"torch._utils._rebuild_parameter_with_state", Makes::first_argument},
    Constructor{"torch.nn.parameter.Parameter", Makes::first_argument},
    Constructor{"torch.Size", Makes::first_argument},
    Constructor{"collections.Counter", Makes::opaque},  // milestones of a schedule
    Constructor{"torch.device", Makes::opaque},
    Constructor{"argparse.Namespace", Makes::opaque},
    Constructor{"copyreg._reconstructor", Makes::opaque},
    Constructor{"copy_reg._reconstructor", Makes::opaque},
    Constructor{"builtins.object", Makes::opaque},
    Constructor{"__builtin__.object", Makes::opaque},
    Constructor{"builtins.set", Makes::opaque},
    Constructor{"__builtin__.set", Makes::opaque},
    Constructor{"builtins.dict", Makes::opaque},  // of a defaultdict
    Constructor{"builtins.list", Makes::opaque},
    Constructor{"_codecs.encode", Makes::opaque},
    Constructor{"numpy.dtype", Makes::opaque},
    Constructor{"numpy.core.multiarray.scalar", Makes::opaque},
    Constructor{"numpy._core.multiarray.scalar", Makes::opaque},
    Constructor{"pathlib.PosixPath", Makes::opaque},
    Constructor{"pathlib.WindowsPath", Makes::opaque}};

const Constructor* constructor_of(std::string_view name) noexcept {
  const auto* const found = std::ranges::find(constructors, name, &Constructor::name);
  return found == constructors.end() ? nullptr : found;
}

bool is_dtype(std::string_view name) noexcept {
  constexpr std::array names{"torch.float32", "torch.float",    "torch.float16", "torch.half",
                             "torch.float64", "torch.bfloat16", "torch.int64",   "torch.int32",
                             "torch.uint8",   "torch.bool"};
  return std::ranges::find(names, name) != names.end();
}

}  // namespace

bool is_known(std::string_view name) noexcept {
  return constructor_of(name) != nullptr || storage_kind(name) != nullptr || is_dtype(name);
}

Makes made_by(std::string_view name) noexcept {
  const Constructor* constructor = constructor_of(name);
  return constructor == nullptr ? Makes::opaque : constructor->makes;
}

const ElementKind* storage_kind(std::string_view name) noexcept {
  constexpr std::string_view module = "torch.";
  return name.starts_with(module) ? kind_of_storage(name.substr(module.size())) : nullptr;
}

}  // namespace lockstep::pickle
