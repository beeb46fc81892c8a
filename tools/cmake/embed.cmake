# ms_embed(<variable> <header> <namespace> FILES a.css b.js ...): compiles text files into the program. The build writes a
# source with one std::string_view for each file (report.css -> kReportCss), as <header> declares them, and <variable>
# becomes its path. As a script (cmake -P) this file writes that source.
if(CMAKE_SCRIPT_MODE_FILE)
  set(source "// Written by tools/cmake/embed.cmake.\n#include \"${HEADER}\"\n\nnamespace ${NAMESPACE} {\n")
  foreach(file IN LISTS FILES)
    get_filename_component(name ${file} NAME)
    string(REGEX REPLACE "[._-]" ";" words ${name})
    set(constant k)
    foreach(word IN LISTS words)
      string(SUBSTRING ${word} 0 1 first)
      string(SUBSTRING ${word} 1 -1 rest)
      string(TOUPPER ${first} first)
      string(APPEND constant ${first}${rest})
    endforeach()
    file(READ ${file} text)
    string(APPEND source "const std::string_view ${constant} = R\"embedded(${text})embedded\";\n")
  endforeach()
  file(WRITE ${OUTPUT} "${source}}  // namespace ${NAMESPACE}\n")
  return()
endif()

set(MS_EMBED_SCRIPT ${CMAKE_CURRENT_LIST_FILE})
function(ms_embed variable header namespace)
  cmake_parse_arguments(ARG "" "" "FILES" ${ARGN})
  list(TRANSFORM ARG_FILES PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
  get_filename_component(name ${header} NAME_WE)
  set(output ${CMAKE_CURRENT_BINARY_DIR}/${name}.cpp)
  add_custom_command(OUTPUT ${output} DEPENDS ${ARG_FILES} ${MS_EMBED_SCRIPT} VERBATIM
                     COMMAND ${CMAKE_COMMAND} "-DFILES=${ARG_FILES}" -DHEADER=${header} -DNAMESPACE=${namespace}
                             -DOUTPUT=${output} -P ${MS_EMBED_SCRIPT})
  set(${variable} ${output} PARENT_SCOPE)
endfunction()
