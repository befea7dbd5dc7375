# `find_package(lockstep)` gives lockstep::lockstep.
get_property(rooms GLOBAL PROPERTY lockstep_rooms)
add_library(lockstep INTERFACE)
add_library(lockstep::lockstep ALIAS lockstep)
target_link_libraries(lockstep INTERFACE ${rooms})
install(TARGETS lockstep lockstep_options ${rooms} EXPORT lockstepTargets)
install(DIRECTORY include/lockstep DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT lockstepTargets NAMESPACE lockstep:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/lockstep)
configure_package_config_file(cmake/lockstepConfig.cmake.in lockstepConfig.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/lockstep)
write_basic_package_version_file(lockstepConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/lockstepConfig.cmake ${PROJECT_BINARY_DIR}/lockstepConfigVersion.cmake cmake/FindOneDNN.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/lockstep)
if(TARGET lockstep_program)
  install(TARGETS lockstep_program DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
