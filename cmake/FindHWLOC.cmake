# Defines HWLOC::hwloc.
find_path(HWLOC_INCLUDE_DIR hwloc.h)
find_library(HWLOC_LIBRARY hwloc)
# Debian has this header in a directory of its architecture.
find_file(HWLOC_CONFIG_HEADER hwloc/autogen/config.h HINTS ${HWLOC_INCLUDE_DIR})
mark_as_advanced(HWLOC_CONFIG_HEADER)
if(HWLOC_CONFIG_HEADER)
  file(STRINGS "${HWLOC_CONFIG_HEADER}" line REGEX "define HWLOC_VERSION \"")
  string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+" HWLOC_VERSION "${line}")
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(HWLOC REQUIRED_VARS HWLOC_LIBRARY HWLOC_INCLUDE_DIR VERSION_VAR HWLOC_VERSION
  HANDLE_VERSION_RANGE)
if(HWLOC_FOUND AND NOT TARGET HWLOC::hwloc)
  add_library(HWLOC::hwloc UNKNOWN IMPORTED)
  set_target_properties(HWLOC::hwloc PROPERTIES IMPORTED_LOCATION "${HWLOC_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${HWLOC_INCLUDE_DIR}")
endif()
