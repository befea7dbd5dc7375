# Defines CUDNN::cudnn, from CUDNN_ROOT, the CUDA toolkit, or the Python package nvidia-cudnn (CUDNN_HINTS names prefixes).
find_path(CUDNN_INCLUDE_DIR cudnn_version.h HINTS ${CUDNN_HINTS} ${CUDAToolkit_INCLUDE_DIRS} PATH_SUFFIXES include)
# The Python package has no library link without the major version.
find_library(CUDNN_LIBRARY NAMES cudnn libcudnn.so.9 HINTS ${CUDNN_HINTS} ${CUDAToolkit_LIBRARY_DIR} PATH_SUFFIXES lib lib64)
if(CUDNN_INCLUDE_DIR)
  file(STRINGS "${CUDNN_INCLUDE_DIR}/cudnn_version.h" lines REGEX "define CUDNN_(MAJOR|MINOR|PATCHLEVEL) ")
  string(REGEX MATCHALL "[0-9]+" numbers "${lines}")
  list(JOIN numbers "." CUDNN_VERSION)
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(CUDNN REQUIRED_VARS CUDNN_LIBRARY CUDNN_INCLUDE_DIR VERSION_VAR CUDNN_VERSION)
if(CUDNN_FOUND AND NOT TARGET CUDNN::cudnn)
  add_library(CUDNN::cudnn UNKNOWN IMPORTED)
  set_target_properties(CUDNN::cudnn PROPERTIES IMPORTED_LOCATION "${CUDNN_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${CUDNN_INCLUDE_DIR}")
endif()
