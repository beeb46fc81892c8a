# cpack: Debian packages, into <build>/packages. msuite-tools has msckpt, msprof and msdata; msuite adds mstrain and MPI, and
# depends on it; libmsuite-dev has the libraries and headers. A build without MPI (MS_WITH_MPI=OFF) makes msuite-tools alone.
# Shared libraries become dependencies by dpkg-shlibdeps.
set(MS_PACKAGE_CONTACT "msuite maintainers <maintainers@example.org>" CACHE STRING
    "Maintainer that the Debian packages name: Name <address>")

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME msuite)
set(CPACK_PACKAGE_CONTACT "${MS_PACKAGE_CONTACT}")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "")  # each package has its own
set(CPACK_PACKAGE_DIRECTORY ${CMAKE_BINARY_DIR}/packages)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_CURRENT_LIST_DIR}/debian.cmake)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ
                                                WORLD_EXECUTE)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL tools)
if(MS_WITH_MPI)
  list(APPEND CPACK_COMPONENTS_ALL training development)
endif()
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SECTION science)

set(CPACK_DEBIAN_TOOLS_PACKAGE_NAME msuite-tools)
set(CPACK_DEBIAN_TOOLS_DESCRIPTION "convert checkpoints and analyse traces of language models
msckpt inspects, verifies, compares, reshards and converts checkpoints of
large language models between parallel layouts and formats. msprof analyses
traces of training runs. msdata makes indexed data sets of text. None of them
needs a GPU or MPI.")

set(CPACK_DEBIAN_TRAINING_PACKAGE_NAME msuite)
set(CPACK_DEBIAN_TRAINING_PACKAGE_DEPENDS "msuite-tools (= ${PROJECT_VERSION}), openmpi-bin")
set(CPACK_DEBIAN_TRAINING_DESCRIPTION "train language models on CPU clusters
mstrain trains decoder-only language models on CPUs over MPI, with Megatron's
parallelism under its own flags. With this package msckpt and msprof run under
mpirun too.")

# What find_package(msuite) looks for: the libraries that the build itself takes from Debian.
file(STRINGS tools/packages lines)
list(FIND lines "# Tests and checks" end)
list(SUBLIST lines 0 ${end} libraries)
list(FILTER libraries INCLUDE REGEX "^[^#]*-dev$|^pkg-config$")
list(JOIN libraries ", " libraries)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libmsuite-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SHLIBDEPS OFF)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "${libraries}")
set(CPACK_DEBIAN_DEVELOPMENT_DESCRIPTION "embed the checkpoint saver and operators of msuite
Static libraries and headers of the modules of msuite: reshard planner and
asynchronous checkpoint saver, operators, trace recorder, communicators.")
include(CPack)
