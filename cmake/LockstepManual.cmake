# The manual page and the shell completions: generated from the program's --help at build time.
if(CMAKE_CROSSCOMPILING)
  message(STATUS "Manual page and completions: none (cross-compiling; the program that prints its options cannot run here)")
  return()
endif()
set(manual ${PROJECT_BINARY_DIR}/manual)
file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/manual/*)
add_custom_command(OUTPUT ${manual}/lockstep.1 ${manual}/lockstep.bash ${manual}/_lockstep
  COMMAND ${PROJECT_SOURCE_DIR}/cmake/manual/generate.sh $<TARGET_FILE:lockstep_program>
    ${PROJECT_SOURCE_DIR}/docs/exit-status.md ${manual}
  DEPENDS lockstep_program ${sources} ${PROJECT_SOURCE_DIR}/docs/exit-status.md
  COMMENT "Making the manual page and the completions" VERBATIM)
add_custom_target(lockstep_manual ALL DEPENDS ${manual}/lockstep.1 ${manual}/lockstep.bash ${manual}/_lockstep)

install(FILES ${manual}/lockstep.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES ${manual}/lockstep.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME lockstep)
install(FILES ${manual}/_lockstep DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
