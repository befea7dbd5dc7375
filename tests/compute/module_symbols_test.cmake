# The module exports only its entry point, so that its symbols cannot clash with the program's.
execute_process(COMMAND ${NM} -D --defined-only --format=posix ${MODULE} OUTPUT_VARIABLE output COMMAND_ERROR_IS_FATAL ANY)
string(STRIP "${output}" output)
string(REGEX REPLACE " [^\n]*" "" names "${output}")
if(NOT names STREQUAL "lockstep_cuda_module")
  message(FATAL_ERROR "${MODULE} exports more than lockstep_cuda_module:\n${names}")
endif()
