# Run by cpack on the staged files, before it packs them: what Debian's policy wants and cmake --install does not do.
foreach(component IN LISTS CPACK_COMPONENTS_ALL)
  string(TOUPPER ${component} upper)
  set(root ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/${component})
  # Debian's MPI and HDF5 lie where the loader looks anyway.
  file(GLOB programs ${root}/usr/bin/*)
  file(GLOB_RECURSE modules ${root}/usr/lib/*.so)
  foreach(file IN LISTS programs modules)
    file(RPATH_REMOVE FILE ${file})
  endforeach()
  foreach(file IN LISTS modules)
    file(CHMOD ${file} PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
  endforeach()
  set(docs ${root}/usr/share/doc/${CPACK_DEBIAN_${upper}_PACKAGE_NAME})
  string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC)
  file(WRITE ${docs}/changelog
"msuite (${CPACK_PACKAGE_VERSION}) unstable; urgency=medium

  * Built by cpack; the changes of each version are in CHANGELOG.md of the
    sources.

 -- ${CPACK_PACKAGE_CONTACT}  ${date}
")
  execute_process(COMMAND gzip -9nf ${docs}/changelog COMMAND_ERROR_IS_FATAL ANY)
  file(WRITE ${docs}/copyright
"Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: msuite

Files: *
Copyright: the authors of msuite
License: Apache-2.0
 On Debian systems the text of the licence is in
 /usr/share/common-licenses/Apache-2.0.
")
endforeach()
