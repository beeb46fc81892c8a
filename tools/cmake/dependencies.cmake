# What the suite takes from Debian, and nothing else: apt names are in tools/packages.
find_package(Threads REQUIRED)
find_package(MPI REQUIRED COMPONENTS C)
set(HDF5_PREFER_PARALLEL OFF)
find_package(HDF5 REQUIRED COMPONENTS C)
find_package(nlohmann_json REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(ZSTD REQUIRED IMPORTED_TARGET libzstd)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
find_package(CLI11 REQUIRED)
find_package(Eigen3 REQUIRED)
if(MS_WITH_ONEDNN)
  find_package(dnnl REQUIRED)
endif()
if(MS_BUILD_TESTS)
  find_package(GTest REQUIRED)
endif()

# Tests run more ranks than cores: yield when idle, one thread a rank, no network, and root is fine inside a container.
set(MS_MPI_ENV "OMPI_MCA_mpi_yield_when_idle=1" "OMPI_MCA_btl=self,vader" "OMPI_ALLOW_RUN_AS_ROOT=1"
               "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1" "OMPI_MCA_rmaps_base_oversubscribe=1"
               "OMPI_MCA_hwloc_base_binding_policy=none" "OMP_NUM_THREADS=1")
set(MS_MPIRUN ${MPIEXEC_EXECUTABLE} --oversubscribe --bind-to none)

# Checks written in Python need nothing but the interpreter, and are skipped where even that is missing.
find_program(MS_PYTHON3 python3)
if(NOT MS_PYTHON3)
  set(MS_PYTHON3 sh -c "echo SKIPPED: needs python3 && exit 77")
endif()
