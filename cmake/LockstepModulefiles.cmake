# Modulefiles for Lmod (Lua) and environment-modules (Tcl), configured with the prefix of `cmake --install`. To install only these:
# `cmake --install BUILD --component modulefiles`.
set(LOCKSTEP_MODULE_DEPENDS "" CACHE STRING "Environment modules that the modulefiles load first, as openmpi/4.1;hdf5/1.14")
set(LOCKSTEP_MODULE_CONFLICTS "" CACHE STRING "Environment modules that conflict with lockstep, in addition to its other versions")

# "a", "b" for Lua and {a} {b} for Tcl.
set(LUA_DEPENDS ${LOCKSTEP_MODULE_DEPENDS})
set(LUA_CONFLICTS lockstep ${LOCKSTEP_MODULE_CONFLICTS})
set(TCL_DEPENDS ${LOCKSTEP_MODULE_DEPENDS})
set(TCL_CONFLICTS lockstep ${LOCKSTEP_MODULE_CONFLICTS})
foreach(list IN ITEMS LUA_DEPENDS LUA_CONFLICTS)
  list(TRANSFORM ${list} REPLACE "^(.+)$" "\"\\1\"")
  list(JOIN ${list} ", " ${list})
endforeach()
list(JOIN TCL_DEPENDS " " TCL_DEPENDS)
list(JOIN TCL_CONFLICTS " " TCL_CONFLICTS)

if(LOCKSTEP_CUDA_FOUND)
  set(MODULE_GPUS "with support for GPUs (CUDA ${CUDAToolkit_VERSION}, cuDNN ${CUDNN_VERSION}, NCCL ${NCCL_VERSION})")
else()
  set(MODULE_GPUS "for processors only")
endif()
set(modulefiles ${CMAKE_INSTALL_DATADIR}/lockstep/modulefiles)
# The number of directories between a modulefile and the prefix, so that it can find the prefix from its own path.
string(REGEX MATCHALL "/" slashes "${modulefiles}/lmod/lockstep/")
list(LENGTH slashes MODULE_DEPTH)
foreach(kind lua tcl)
  configure_file(modules/lockstep.${kind}.in ${PROJECT_BINARY_DIR}/modulefiles/lockstep.${kind}.in @ONLY)
endforeach()
install(CODE "
  get_filename_component(INSTALL_PREFIX \"\${CMAKE_INSTALL_PREFIX}\" ABSOLUTE)
  set(modulefiles \"${PROJECT_BINARY_DIR}/modulefiles\")
  configure_file(\"\${modulefiles}/lockstep.lua.in\" \"\${modulefiles}/lmod/lockstep/${PROJECT_VERSION}.lua\")
  configure_file(\"\${modulefiles}/lockstep.tcl.in\" \"\${modulefiles}/tcl/lockstep/${PROJECT_VERSION}\")
  file(INSTALL \"\${modulefiles}/lmod\" \"\${modulefiles}/tcl\" DESTINATION \"\${INSTALL_PREFIX}/${modulefiles}\")"
  COMPONENT modulefiles)
