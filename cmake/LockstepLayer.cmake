# lockstep_layer(NAME [CONTROL] SOURCES a.cpp ... LAYERS core ... LIBRARIES pkg::lib ...)
# One layer of the source tree: a static library lockstep_NAME that links only the layers named, so that the linker enforces their order.
add_library(lockstep_options INTERFACE)
target_compile_features(lockstep_options INTERFACE cxx_std_20)
# MPI 3 removed the C++ bindings. Open MPI's compile with warnings, MPICH's need a separate library.
target_compile_definitions(lockstep_options INTERFACE OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX)
target_include_directories(lockstep_options INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
# Flags for our own sources only; a user's project does not inherit them.
add_library(lockstep_own_flags INTERFACE)
target_compile_options(lockstep_own_flags INTERFACE
  $<$<COMPILE_LANGUAGE:C,CXX>:-Wall -Wextra -Wpedantic -Wshadow> $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor>)
if(LOCKSTEP_WARNINGS_AS_ERRORS)
  target_compile_options(lockstep_own_flags INTERFACE $<$<COMPILE_LANGUAGE:C,CXX>:-Werror>)
endif()
if(LOCKSTEP_ASSERTS)
  # After the build type's -DNDEBUG. Device code is compiled as shipped.
  add_compile_options($<$<COMPILE_LANGUAGE:C,CXX>:-UNDEBUG>)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # GCC 12 mistakes fmt 9's assertion about fill characters for an overflow.
    target_compile_options(lockstep_own_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-stringop-overflow>)
  endif()
endif()
# All sources alike, so that they can share precompiled headers.
target_link_libraries(lockstep_own_flags INTERFACE OpenMP::OpenMP_CXX)
if(LOCKSTEP_SANITIZE)
  add_compile_options($<$<COMPILE_LANGUAGE:C,CXX>:-fsanitize=${LOCKSTEP_SANITIZE}> $<$<COMPILE_LANGUAGE:C,CXX>:-fno-omit-frame-pointer>)
  add_link_options(-fsanitize=${LOCKSTEP_SANITIZE})
endif()
set_property(GLOBAL PROPERTY lockstep_libraries "")

# Headers of libraries that most sources include. Compiler caches reuse objects of precompiled headers only with settings of their
# own, so that they get none; scripts/lint compiles without them, and finds includes that are missing.
if(CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_DISABLE_PRECOMPILE_HEADERS ON)
endif()
set(headers <fmt/format.h> <algorithm> <chrono> <filesystem> <functional> <map> <memory> <optional> <string> <vector>)
file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/headers.cpp "")
# Objects share precompiled headers only if all their options are the same.
foreach(kind values control)
  add_library(lockstep_${kind}_headers STATIC EXCLUDE_FROM_ALL ${CMAKE_CURRENT_BINARY_DIR}/headers.cpp)
  target_link_libraries(lockstep_${kind}_headers PRIVATE lockstep_options lockstep_own_flags fmt::fmt)
  target_precompile_headers(lockstep_${kind}_headers PRIVATE ${headers})
endforeach()
target_compile_options(lockstep_control_headers PRIVATE ${LOCKSTEP_CONTROL_OPTIONS})

# Settings of every target built from our own sources. CONTROL: its code has no loops over values and gets LOCKSTEP_CONTROL_OPTIONS.
# The ci preset sets -O1, which compiles in two thirds of the time; the tests depend little on the speed of such code.
function(lockstep_own_target target)
  cmake_parse_arguments(TARGET "CONTROL" "" "" ${ARGN})
  # Those of tests are not installed.
  set(tests ${PROJECT_SOURCE_DIR}/tests)
  cmake_path(IS_PREFIX tests ${CMAKE_CURRENT_SOURCE_DIR} is_of_tests)
  if(NOT is_of_tests)
    set_property(GLOBAL APPEND PROPERTY lockstep_libraries ${target})
  endif()
  target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:lockstep_own_flags>)
  if(TARGET_CONTROL AND LOCKSTEP_CONTROL_OPTIONS)
    target_compile_options(${target} PRIVATE ${LOCKSTEP_CONTROL_OPTIONS})
    target_precompile_headers(${target} REUSE_FROM lockstep_control_headers)
  else()
    target_precompile_headers(${target} REUSE_FROM lockstep_values_headers)
  endif()
endfunction()

function(lockstep_layer name)
  cmake_parse_arguments(LAYER CONTROL "" "SOURCES;LAYERS;LIBRARIES" ${ARGN})
  if(LAYER_SOURCES)
    add_library(lockstep_${name} STATIC ${LAYER_SOURCES})
    set(scope PUBLIC)
    set(kind "")
    if(LAYER_CONTROL)
      set(kind CONTROL)
    endif()
    lockstep_own_target(lockstep_${name} ${kind})
  else()
    add_library(lockstep_${name} INTERFACE)
    set_property(GLOBAL APPEND PROPERTY lockstep_libraries lockstep_${name})
    set(scope INTERFACE)
  endif()
  list(TRANSFORM LAYER_LAYERS PREPEND lockstep_)
  target_link_libraries(lockstep_${name} ${scope} lockstep_options ${LAYER_LAYERS} ${LAYER_LIBRARIES})
endfunction()

# Builds all that `ctest -L unit` runs, without the program and the tests that need MPI.
add_custom_target(unit_tests)

# Compiles a library as programs are, so that they can share precompiled headers.
function(lockstep_code_for_programs target)
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(${target} PRIVATE ${CMAKE_CXX_COMPILE_OPTIONS_PIE})
endfunction()

if(LOCKSTEP_BUILD_TESTS)
  # Test code runs briefly, and -O3 would lengthen its compilation by two thirds. The library and the oracle keep -O3.
  add_library(lockstep_test_flags INTERFACE)
  target_compile_definitions(lockstep_test_flags INTERFACE BOOST_TEST_DYN_LINK)
  target_compile_options(lockstep_test_flags INTERFACE $<$<CONFIG:Release>:-O1>)
  target_include_directories(lockstep_test_flags INTERFACE ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(lockstep_test_flags INTERFACE lockstep_own_flags lockstep_options Boost::unit_test_framework fmt::fmt)
  # main() of the tests that have none; parsing Boost.Test takes half the time of compiling a test.
  add_library(lockstep_test_main STATIC EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/tests/test_main.cpp)
  target_link_libraries(lockstep_test_main PRIVATE lockstep_test_flags)
  lockstep_code_for_programs(lockstep_test_main)
  target_precompile_headers(lockstep_test_main PRIVATE <boost/test/unit_test.hpp> <thread> ${headers})
  add_library(lockstep_sleeping_yield MODULE ${PROJECT_SOURCE_DIR}/tests/sleeping_yield.cpp)
  target_link_libraries(lockstep_sleeping_yield PRIVATE lockstep_own_flags)
  # A sanitizer's runtime must be loaded first.
  if(NOT LOCKSTEP_SANITIZE)
    set(LOCKSTEP_TEST_PRELOAD $<TARGET_FILE:lockstep_sleeping_yield>)
  endif()
endif()

# lockstep_test(NAME SOURCES x_test.cpp ... LAYERS data ... [SIZES 1 2 3 4] [SLOTS n] [TIMEOUT seconds] [LABELS ...])
# One Boost.Test program. With SIZES, CTest runs it under mpirun once per size, and the test's name contains the size. Tests run
# in parallel: SLOTS is this test's share of the machine in half cores (default: 2, or 3 if a size is three or more ranks).
function(lockstep_test name)
  cmake_parse_arguments(TEST "" "TIMEOUT;SLOTS" "SOURCES;LAYERS;LIBRARIES;SIZES;LABELS" ${ARGN})
  if(NOT TEST_TIMEOUT)
    set(TEST_TIMEOUT 300)
  endif()
  if(LOCKSTEP_SANITIZE OR CMAKE_CROSSCOMPILING)
    math(EXPR TEST_TIMEOUT "5 * ${TEST_TIMEOUT}")
  endif()
  list(TRANSFORM TEST_LAYERS PREPEND lockstep_)
  add_executable(${name} ${TEST_SOURCES})
  target_link_libraries(${name} PRIVATE lockstep_test_flags lockstep_test_main ${TEST_LAYERS} ${TEST_LIBRARIES})
  target_precompile_headers(${name} REUSE_FROM lockstep_test_main)
  if(TEST_SIZES)
    foreach(size IN LISTS TEST_SIZES)
      set(slots 2)
      if(TEST_SLOTS)
        set(slots ${TEST_SLOTS})
      elseif(size GREATER 2)
        set(slots 3)
      endif()
      add_test(NAME ${name}.np${size} COMMAND ${LOCKSTEP_MPIRUN} -n ${size} $<TARGET_FILE:${name}>)
      set_tests_properties(${name}.np${size} PROPERTIES TIMEOUT ${TEST_TIMEOUT} PROCESSORS ${slots}
        LABELS "mpi;${TEST_LABELS}" ENVIRONMENT "OMP_NUM_THREADS=1;OMP_WAIT_POLICY=passive;LD_PRELOAD=${LOCKSTEP_TEST_PRELOAD}")
    endforeach()
  else()
    set(slots 2)
    if(TEST_SLOTS)
      set(slots ${TEST_SLOTS})
    endif()
    add_dependencies(unit_tests ${name})
    add_test(NAME ${name} COMMAND ${name})
    set_tests_properties(${name} PROPERTIES TIMEOUT ${TEST_TIMEOUT} PROCESSORS ${slots} LABELS "unit;${TEST_LABELS}"
      ENVIRONMENT "OMP_WAIT_POLICY=passive")
  endif()
endfunction()
# The command that starts ranks on a small machine, as any user. Only Open MPI needs extra options. Without the last one, each
# rank under Open MPI 5 prints a complaint on a machine with an IPv6 address.
execute_process(COMMAND ${MPIEXEC_EXECUTABLE} --version OUTPUT_VARIABLE launcher ERROR_VARIABLE launcher)
set(launch ${MPIEXEC_EXECUTABLE})
if(launcher MATCHES "Open MPI|OpenRTE")
  list(APPEND launch --oversubscribe --allow-run-as-root --bind-to none --mca mpi_yield_when_idle 1
    --mca btl_vader_single_copy_mechanism none --mca btl_tcp_disable_family 6)
endif()
set(LOCKSTEP_MPIRUN ${launch} CACHE STRING "The launcher that tests use, without -n N")
