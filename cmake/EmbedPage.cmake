# cmake -DOUTPUT=x.cpp -DPAGE=page.html -DSTYLE=page.css -DSCRIPTS=a.js;b.js -DINSTALLED=dygraph.min.js;dygraph.min.css;LICENCE
# -P EmbedPage.cmake: writes the texts of these files as the constant page_parts.

# Sets `result` to the text of a file as a C++ literal.
function(literal result)
  set(text "")
  foreach(file IN LISTS ARGN)
    file(READ "${file}" content)
    string(APPEND text "${content}")
  endforeach()
  # Drops references to source maps, which a browser's developer tools would request.
  string(REGEX REPLACE "(//|/[*])# sourceMappingURL=[^\n]*" "" text "${text}")
  string(FIND "${text}" ")page\"" end)
  string(FIND "${text}" "</script" script)
  if(NOT end EQUAL -1 OR (NOT script EQUAL -1 AND NOT ARGN STREQUAL "${PAGE}"))
    message(FATAL_ERROR "${ARGN} has a text that would end the literal or the script element it becomes")
  endif()
  set(${result} "R\"page(${text})page\"" PARENT_SCOPE)
endfunction()

literal(page "${PAGE}")
literal(style "${STYLE}")
literal(script ${SCRIPTS})
set(library "\"\"")
set(library_style "\"\"")
set(licence "\"\"")
if(INSTALLED)
  list(GET INSTALLED 0 file)
  literal(library "${file}")
  list(GET INSTALLED 1 file)
  literal(library_style "${file}")
  list(GET INSTALLED 2 file)
  literal(licence "${file}")
endif()
file(WRITE "${OUTPUT}" "#include \"page_parts.hpp\"

namespace lockstep::report {

const PageParts page_parts{
    .page = ${page},
    .style = ${style},
    .script = ${script},
    .library = ${library},
    .library_style = ${library_style},
    .library_licence = ${licence}};

}  // namespace lockstep::report
")
