# Compiler's and linker's defences of every target, programs and modules, tests and device code's host part included. Flags that this
# compiler lacks are left out. tests/install/elf_test.py reads them from what was built.
include(CheckCXXCompilerFlag)
include(CheckLinkerFlag)
include(CheckPIESupported)
include(CheckCXXSourceCompiles)

check_pie_supported(LANGUAGES C CXX)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

set(hardening "")
# The last two: control flow protection of x86, and of 64-bit Arm.
foreach(flag -fstack-protector-strong -fstack-clash-protection -fcf-protection=full -mbranch-protection=standard)
  string(MAKE_C_IDENTIFIER "LOCKSTEP_HAS${flag}" has)
  check_cxx_compiler_flag("-Werror ${flag}" ${has})
  if(${has})
    list(APPEND hardening ${flag})
  endif()
endforeach()
# Checked copies of the C library need an optimizing compiler; sanitizers check more, but only the unchecked ones. A distribution's
# compiler may define it already.
if(NOT LOCKSTEP_SANITIZE AND NOT LOCKSTEP_FUZZERS)
  set(CMAKE_REQUIRED_FLAGS "-Werror -O2 -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3")
  check_cxx_source_compiles("#include <cstring>\nint main() {}" LOCKSTEP_HAS_FORTIFY_3)
  unset(CMAKE_REQUIRED_FLAGS)
  set(level 2)
  if(LOCKSTEP_HAS_FORTIFY_3)
    set(level 3)
  endif()
  list(APPEND hardening $<$<NOT:$<CONFIG:Debug>>:-U_FORTIFY_SOURCE> $<$<NOT:$<CONFIG:Debug>>:-D_FORTIFY_SOURCE=${level}>)
endif()
foreach(flag IN LISTS hardening)
  add_compile_options($<$<COMPILE_LANGUAGE:C,CXX>:${flag}> $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=${flag}>)
endforeach()

foreach(keyword relro now noexecstack)
  check_linker_flag(CXX "LINKER:-z,${keyword}" LOCKSTEP_LINKER_HAS_${keyword})
  if(LOCKSTEP_LINKER_HAS_${keyword})
    add_link_options("LINKER:-z,${keyword}")
  endif()
endforeach()
