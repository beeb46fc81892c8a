# cmake --install, in three components: `tools` (msckpt, msprof, msdata), `training` (mstrain, and what the tools load under
# mpirun) and `development`: the libraries, the public headers under include/msuite with their paths kept (what only a module
# needs, its detail/ and impl/, is left out), and the package for find_package(msuite). Without MPI there are only the tools.
include(CMakePackageConfigHelpers)

if(NOT MS_WITH_MPI)
  return()
endif()
install(DIRECTORY kernels core ckpt convert profile train DESTINATION include/msuite COMPONENT development
        FILES_MATCHING PATTERN "*.h" PATTERN detail EXCLUDE PATTERN impl EXCLUDE)
install(EXPORT msuiteTargets NAMESPACE msuite:: DESTINATION lib/cmake/msuite COMPONENT development)
configure_package_config_file(tools/cmake/msuiteConfig.cmake.in ${CMAKE_BINARY_DIR}/msuiteConfig.cmake
                              INSTALL_DESTINATION lib/cmake/msuite)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/msuiteConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/msuiteConfig.cmake ${CMAKE_BINARY_DIR}/msuiteConfigVersion.cmake
              tools/cmake/external.cmake
        DESTINATION lib/cmake/msuite COMPONENT development)
