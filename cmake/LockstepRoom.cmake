# lockstep_room(NAME SOURCES a.cpp ... ROOMS core ... LIBRARIES pkg::lib ...)
# One room of the house: a static library lockstep_NAME that links only the rooms named. The link line enforces the floors.
add_library(lockstep_options INTERFACE)
target_compile_features(lockstep_options INTERFACE cxx_std_20)
# Open MPI's C++ bindings were withdrawn in MPI 3 and do not compile without warnings.
target_compile_definitions(lockstep_options INTERFACE OMPI_SKIP_MPICXX)
target_include_directories(lockstep_options INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
# Flags for our own sources only; nothing of this reaches a user's project.
add_library(lockstep_own_flags INTERFACE)
target_compile_options(lockstep_own_flags INTERFACE
  $<$<COMPILE_LANGUAGE:C,CXX>:-Wall -Wextra -Wpedantic -Wshadow> $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor>)
if(LOCKSTEP_WARNINGS_AS_ERRORS)
  target_compile_options(lockstep_own_flags INTERFACE $<$<COMPILE_LANGUAGE:C,CXX>:-Werror>)
endif()
if(LOCKSTEP_SANITIZE)
  add_compile_options($<$<COMPILE_LANGUAGE:C,CXX>:-fsanitize=${LOCKSTEP_SANITIZE}> $<$<COMPILE_LANGUAGE:C,CXX>:-fno-omit-frame-pointer>)
  add_link_options(-fsanitize=${LOCKSTEP_SANITIZE})
endif()
set_property(GLOBAL PROPERTY lockstep_rooms "")

function(lockstep_room name)
  cmake_parse_arguments(ROOM "" "" "SOURCES;ROOMS;LIBRARIES" ${ARGN})
  if(ROOM_SOURCES)
    add_library(lockstep_${name} STATIC ${ROOM_SOURCES})
    set(scope PUBLIC)
    target_link_libraries(lockstep_${name} PRIVATE $<BUILD_INTERFACE:lockstep_own_flags>)
    set_target_properties(lockstep_${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  else()
    add_library(lockstep_${name} INTERFACE)
    set(scope INTERFACE)
  endif()
  list(TRANSFORM ROOM_ROOMS PREPEND lockstep_)
  target_link_libraries(lockstep_${name} ${scope} lockstep_options ${ROOM_ROOMS} ${ROOM_LIBRARIES})
  set_property(GLOBAL APPEND PROPERTY lockstep_rooms lockstep_${name})
endfunction()

# lockstep_test(NAME SOURCES x_test.cpp ... ROOMS data ... [SIZES 1 2 3 4] [TIMEOUT seconds] [LABELS ...])
# One Boost.Test program. With SIZES it is run under mpirun once per size, alone on the machine, and the size is in its name.
function(lockstep_test name)
  cmake_parse_arguments(TEST "" "TIMEOUT" "SOURCES;ROOMS;LIBRARIES;SIZES;LABELS" ${ARGN})
  if(NOT TEST_TIMEOUT)
    set(TEST_TIMEOUT 120)
  endif()
  list(TRANSFORM TEST_ROOMS PREPEND lockstep_)
  add_executable(${name} ${TEST_SOURCES})
  target_compile_definitions(${name} PRIVATE BOOST_TEST_DYN_LINK LOCKSTEP_PYTHON="${LOCKSTEP_PYTHON}")
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${name} PRIVATE ${TEST_ROOMS} ${TEST_LIBRARIES} lockstep_own_flags Boost::unit_test_framework)
  if(TEST_SIZES)
    foreach(size IN LISTS TEST_SIZES)
      add_test(NAME ${name}.np${size} COMMAND ${LOCKSTEP_MPIRUN} -n ${size} $<TARGET_FILE:${name}>)
      set_tests_properties(${name}.np${size} PROPERTIES TIMEOUT ${TEST_TIMEOUT} RUN_SERIAL ON
        LABELS "mpi;${TEST_LABELS}" ENVIRONMENT "OMP_NUM_THREADS=1;OMP_WAIT_POLICY=passive")
    endforeach()
  else()
    add_test(NAME ${name} COMMAND ${name})
    set_tests_properties(${name} PROPERTIES TIMEOUT ${TEST_TIMEOUT} LABELS "unit;${TEST_LABELS}"
      ENVIRONMENT "OMP_WAIT_POLICY=passive")
  endif()
endfunction()
# How tests start ranks on a small machine, as any user.
set(LOCKSTEP_MPIRUN ${MPIEXEC_EXECUTABLE} --oversubscribe --allow-run-as-root --bind-to none --mca mpi_yield_when_idle 1
  --mca btl_vader_single_copy_mechanism none CACHE STRING "The launcher tests use, less -n N")
