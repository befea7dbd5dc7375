#include "lockstep/comm/mpi_all_reduce.hpp"

#include "lockstep/comm/all_reduce_choice.hpp"

#include <mpi.h>

#include <array>
#include <cstdlib>

namespace lockstep {
namespace {

constexpr const char* parameter_name = "coll_libnbc_iallreduce_algorithm";
constexpr const char* environment_name = "OMPI_MCA_coll_libnbc_iallreduce_algorithm";
/// MPICH's control variable has a number without names, so the environment variable is read.
constexpr const char* mpich_environment_name = "MPIR_CVAR_IALLREDUCE_INTRA_ALGORITHM";

/// Open MPI's parameter, accessed through the MPI tool interface. Open MPI reads it in every
/// MPI_Iallreduce, so it can be set after MPI_Init.
class Parameter final {
 public:
  Parameter() {
    int level = 0;
    initialized_ = MPI_T_init_thread(MPI_THREAD_SERIALIZED, &level) == MPI_SUCCESS;
    if (!initialized_) return;
    int index = -1;
    if (MPI_T_cvar_get_index(parameter_name, &index) != MPI_SUCCESS) return;
    int name_length = 0;
    int text_length = 0;
    int verbosity = 0;
    int binding = 0;
    int scope = 0;
    MPI_Datatype type = MPI_DATATYPE_NULL;
    int count = 0;
    const bool known =
        MPI_T_cvar_get_info(index, nullptr, &name_length, &verbosity, &type, &names_, nullptr,
                            &text_length, &binding, &scope) == MPI_SUCCESS &&
        type == MPI_INT && names_ != MPI_T_ENUM_NULL;
    if (!known || MPI_T_cvar_handle_alloc(index, nullptr, &handle_, &count) != MPI_SUCCESS) {
      handle_ = MPI_T_CVAR_HANDLE_NULL;
    }
  }
  Parameter(const Parameter&) = delete;
  Parameter& operator=(const Parameter&) = delete;
  ~Parameter() {
    if (handle_ != MPI_T_CVAR_HANDLE_NULL) MPI_T_cvar_handle_free(&handle_);
    if (initialized_) MPI_T_finalize();
  }

  /// Name of the current value; nullopt if this MPI has no such parameter.
  [[nodiscard]] std::optional<std::string> get() const {
    int value = 0;
    if (handle_ == MPI_T_CVAR_HANDLE_NULL || MPI_T_cvar_read(handle_, &value) != MPI_SUCCESS) {
      return std::nullopt;
    }
    for (int i = 0; i < number_of_names(); ++i) {
      const auto [name, number] = item(i);
      if (number == value) return name;
    }
    return std::nullopt;
  }

  /// Does nothing if the parameter has no such value.
  void set(std::string_view wanted) const {
    for (int i = 0; i < number_of_names(); ++i) {
      auto [name, number] = item(i);
      if (name == wanted) MPI_T_cvar_write(handle_, &number);
    }
  }

 private:
  struct Item {
    std::string name;
    int number;
  };
  [[nodiscard]] int number_of_names() const {
    int count = 0;
    int length = 0;
    MPI_T_enum_get_info(names_, &count, nullptr, &length);
    return count;
  }
  [[nodiscard]] Item item(int index) const {
    std::array<char, 64> name{};
    auto length = static_cast<int>(name.size());
    int number = 0;
    MPI_T_enum_get_item(names_, index, &number, name.data(), &length);
    return {.name = name.data(), .number = number};
  }

  bool initialized_ = false;
  MPI_T_enum names_ = MPI_T_ENUM_NULL;
  MPI_T_cvar_handle handle_ = MPI_T_CVAR_HANDLE_NULL;
};

}  // namespace

void set_mpi_all_reduce() {
  int ranks = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (ranks == 1) return;
  const Parameter parameter;
  const auto algorithm =
      choose_all_reduce({.ranks = ranks,
                         .parameter = parameter.get(),
                         .in_environment = std::getenv(environment_name) != nullptr});
  if (algorithm) parameter.set(*algorithm);
}

std::string mpi_all_reduce() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> version{};
  int length = 0;
  MPI_Get_library_version(version.data(), &length);
  const std::string name = mpi_name({version.data(), static_cast<std::size_t>(length)});
  if (const auto algorithm = Parameter().get(); algorithm && algorithm != open_mpi_decides) {
    return name + ", " + *algorithm;
  }
  const char* const of_mpich =
      name.starts_with("MPICH") ? std::getenv(mpich_environment_name) : nullptr;
  return of_mpich == nullptr ? name : name + ", " + of_mpich;
}

}  // namespace lockstep
