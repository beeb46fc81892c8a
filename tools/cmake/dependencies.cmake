# What the build takes from the machine, and nothing else.
include(external)
if(MS_BUILD_TESTS)
  find_package(GTest REQUIRED)
endif()
if(MS_BUILD_BENCH)
  find_package(benchmark REQUIRED)
  find_package(simdjson QUIET)  # libsimdjson-dev: a peer of bench/profile
endif()

# Tests run more ranks than cores: yield when idle, one thread a rank, no network, and root is fine inside a container.
set(MS_MPI_ENV "OMPI_MCA_mpi_yield_when_idle=1" "OMPI_MCA_btl=self,vader" "OMPI_ALLOW_RUN_AS_ROOT=1"
               "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1" "OMPI_MCA_rmaps_base_oversubscribe=1"
               "OMPI_MCA_hwloc_base_binding_policy=none" "OMP_NUM_THREADS=1")
if(MS_SANITIZE MATCHES address)
  # Open MPI leaves blocks of components that it has unloaded: no suppression finds them by name. Thread ranks run the
  # same code with leaks reported.
  list(APPEND MS_MPI_ENV "OMPI_MCA_mca_base_env_list=ASAN_OPTIONS=detect_leaks=0")
endif()
set(MS_MPIRUN ${MPIEXEC_EXECUTABLE} --oversubscribe --bind-to none)

# Checks written in Python need nothing but the interpreter, and are skipped where even that is missing.
find_program(MS_PYTHON3 python3)
if(NOT MS_PYTHON3)
  set(MS_PYTHON3 sh -c "echo SKIPPED: needs python3 && exit 77")
endif()
