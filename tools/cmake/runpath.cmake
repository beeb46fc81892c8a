# Leaves in the RUNPATH of ${MS_PROGRAM} only the folders that have a library it needs (cmake -P, after linking).
#
# CMake lists the folders of all libraries on the link line, but --as-needed leaves most of these libraries out, and the
# dynamic linker looks for every library in every folder: 46 failing system calls of a program that runs for 5 ms.
# ${MS_READELF} lists what the program needs.
execute_process(COMMAND ${MS_READELF} -d ${MS_PROGRAM} OUTPUT_VARIABLE dynamic COMMAND_ERROR_IS_FATAL ANY
                ENCODING UTF8)
if(NOT dynamic MATCHES "\\(RUNPATH\\)[^[]*\\[([^]]*)\\]")
  return()
endif()
set(old ${CMAKE_MATCH_1})
string(REGEX MATCHALL "\\(NEEDED\\)[^\n]*" needed "${dynamic}")
list(TRANSFORM needed REPLACE ".*\\[([^]]*)\\].*" "\\1")
string(REPLACE ":" ";" folders "${old}")
set(kept)
foreach(folder IN LISTS folders)
  foreach(library IN LISTS needed)
    if(EXISTS "${folder}/${library}" OR folder MATCHES "^\\$")  # $ORIGIN: only where the program is installed
      list(APPEND kept ${folder})
      break()
    endif()
  endforeach()
endforeach()
string(REPLACE ";" ":" kept "${kept}")
if(kept STREQUAL "")
  file(RPATH_REMOVE FILE ${MS_PROGRAM})
elseif(NOT kept STREQUAL old)
  file(RPATH_CHANGE FILE ${MS_PROGRAM} OLD_RPATH ${old} NEW_RPATH ${kept})
endif()
