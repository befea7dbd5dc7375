# Generates the source file LOCKSTEP_PAGE_PARTS from the files of src/report/page and from dygraphs, the plotting library of
# `lockstep report`, which comes from an installed package. Without it, that command says that the build lacks it.
find_file(LOCKSTEP_DYGRAPHS dygraph.min.js NO_DEFAULT_PATH
  PATHS /usr/share/javascript/dygraphs /usr/lib/node_modules/dygraphs/dist /usr/local/lib/node_modules/dygraphs/dist
  DOC "dygraph.min.js of dygraphs 2.2, with dygraph.min.css beside it, for `lockstep report`; OFF: never")
set(dygraphs "")
if(LOCKSTEP_DYGRAPHS)
  get_filename_component(folder "${LOCKSTEP_DYGRAPHS}" DIRECTORY)
  find_file(LOCKSTEP_DYGRAPHS_LICENCE NAMES LICENSE.txt LICENSE copyright NO_DEFAULT_PATH
    PATHS ${folder} ${folder}/.. /usr/share/doc/libjs-dygraphs DOC "Text of the licence of dygraphs, which the page must contain")
  foreach(file IN ITEMS "${LOCKSTEP_DYGRAPHS}" "${folder}/dygraph.min.css" "${LOCKSTEP_DYGRAPHS_LICENCE}")
    if(NOT EXISTS "${file}")
      message(FATAL_ERROR "Plots of lockstep report: ${file} is missing; set -DLOCKSTEP_DYGRAPHS=FILE and "
        "-DLOCKSTEP_DYGRAPHS_LICENCE=FILE, or -DLOCKSTEP_DYGRAPHS=OFF")
    endif()
  endforeach()
  set(dygraphs ${LOCKSTEP_DYGRAPHS} ${folder}/dygraph.min.css ${LOCKSTEP_DYGRAPHS_LICENCE})
  message(STATUS "Plots of lockstep report: ${LOCKSTEP_DYGRAPHS}")
else()
  message(STATUS "Plots of lockstep report: not in this build (no dygraphs; install libjs-dygraphs, or set -DLOCKSTEP_DYGRAPHS=FILE)")
endif()

set(page ${PROJECT_SOURCE_DIR}/src/report/page)
# In the order in which the page runs them.
set(scripts format.js series.js chart.js table.js timeline.js confusion.js run_sections.js one_run.js several_runs.js study.js main.js)
list(TRANSFORM scripts PREPEND ${page}/)
set(LOCKSTEP_PAGE_PARTS ${PROJECT_BINARY_DIR}/report/page_parts.cpp)
add_custom_command(OUTPUT ${LOCKSTEP_PAGE_PARTS}
  COMMAND ${CMAKE_COMMAND} -DOUTPUT=${LOCKSTEP_PAGE_PARTS} -DPAGE=${page}/page.html -DSTYLE=${page}/page.css "-DSCRIPTS=${scripts}"
    "-DINSTALLED=${dygraphs}" -P ${PROJECT_SOURCE_DIR}/cmake/EmbedPage.cmake
  DEPENDS ${page}/page.html ${page}/page.css ${scripts} ${dygraphs} ${PROJECT_SOURCE_DIR}/cmake/EmbedPage.cmake
  COMMENT "Embedding the page of lockstep report" VERBATIM)
# Compilers warn about strings of more than 64 KiB.
set_source_files_properties(${LOCKSTEP_PAGE_PARTS} PROPERTIES COMPILE_OPTIONS -Wno-overlength-strings
  INCLUDE_DIRECTORIES ${PROJECT_SOURCE_DIR}/src/report)
