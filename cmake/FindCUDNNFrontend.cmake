# Defines CUDNN::frontend, headers only, from CUDNN_FRONTEND_INCLUDE_DIR, the system, or the Python package
# nvidia-cudnn-frontend (CUDNN_FRONTEND_HINTS names prefixes).
find_path(CUDNN_FRONTEND_INCLUDE_DIR cudnn_frontend.h HINTS ${CUDNN_FRONTEND_HINTS} ${CUDAToolkit_INCLUDE_DIRS} PATH_SUFFIXES include)
if(CUDNN_FRONTEND_INCLUDE_DIR)
  file(STRINGS "${CUDNN_FRONTEND_INCLUDE_DIR}/cudnn_frontend_version.h" lines
    REGEX "define CUDNN_FRONTEND_(MAJOR|MINOR|PATCH)_VERSION ")
  string(REGEX MATCHALL "[0-9]+" numbers "${lines}")
  list(JOIN numbers "." CUDNNFrontend_VERSION)
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(CUDNNFrontend REQUIRED_VARS CUDNN_FRONTEND_INCLUDE_DIR VERSION_VAR CUDNNFrontend_VERSION)
if(CUDNNFrontend_FOUND AND NOT TARGET CUDNN::frontend)
  add_library(CUDNN::frontend INTERFACE IMPORTED)
  set_target_properties(CUDNN::frontend PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${CUDNN_FRONTEND_INCLUDE_DIR}")
endif()
