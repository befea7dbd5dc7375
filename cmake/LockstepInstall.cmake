# `find_package(lockstep)` defines lockstep::lockstep.
get_property(libraries GLOBAL PROPERTY lockstep_libraries)
add_library(lockstep INTERFACE)
add_library(lockstep::lockstep ALIAS lockstep)
target_link_libraries(lockstep INTERFACE lockstep_commands)
# The public headers: lockstep.hpp and what it includes (tests/install/tree_test.py). The others are internal.
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS cmake/public-headers.txt)
file(STRINGS cmake/public-headers.txt headers)
list(TRANSFORM headers PREPEND ${PROJECT_SOURCE_DIR}/include/lockstep/)
target_sources(lockstep INTERFACE FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR}/include FILES ${headers})
install(TARGETS lockstep lockstep_options ${libraries} EXPORT lockstepTargets FILE_SET HEADERS)
install(EXPORT lockstepTargets NAMESPACE lockstep:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/lockstep)
configure_package_config_file(cmake/lockstepConfig.cmake.in lockstepConfig.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/lockstep)
write_basic_package_version_file(lockstepConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/lockstepConfig.cmake ${PROJECT_BINARY_DIR}/lockstepConfigVersion.cmake cmake/FindOneDNN.cmake
  cmake/FindHWLOC.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/lockstep)
if(TARGET lockstep_program)
  # Libraries from a cluster's modules or a user's prefix are found at their build-time locations. A search path of the build that
  # CMake is to replace at installation would end with a colon, which means the current directory.
  set_target_properties(lockstep_program PROPERTIES BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH_USE_LINK_PATH ON)
  install(TARGETS lockstep_program DESTINATION ${CMAKE_INSTALL_BINDIR})
  include(LockstepManual)
  include(LockstepModulefiles)
endif()
if(EXISTS ${PROJECT_SOURCE_DIR}/slurm)
  install(DIRECTORY slurm/ DESTINATION ${CMAKE_INSTALL_DATADIR}/lockstep/slurm USE_SOURCE_PERMISSIONS)
  install(DIRECTORY recipes/ DESTINATION ${CMAKE_INSTALL_DATADIR}/lockstep/recipes)
endif()
file(GLOB pages ${PROJECT_SOURCE_DIR}/docs/*.md)
install(FILES ${pages} CHANGELOG.md LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
