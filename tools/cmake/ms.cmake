# The module graph, and the functions by which every module, tool and test is declared.
#
# An edge that is not in this table does not configure; tools/dev/check_layers.py checks the #includes against the same
# table. Folder = target = namespace: ckpt/plan.h is ms::ckpt, built into ms_ckpt; the repository root is the include root.
set(MS_MAY_USE_kernels)
set(MS_MAY_USE_core kernels)
set(MS_MAY_USE_layout core kernels)  # core/layout: what each rank of a parallel layout holds and does
set(MS_MAY_USE_ckpt layout core kernels)
set(MS_MAY_USE_convert ckpt layout core kernels)
set(MS_MAY_USE_profile core kernels)
set(MS_MAY_USE_ops core kernels)  # train/ops: the public operator API
set(MS_MAY_USE_data layout core kernels)  # train/data: data sets and tokenizers, which msdata needs without the trainer
set(MS_MAY_USE_train ops data ckpt layout core kernels)

option(MS_BUILD_TESTS "Build the tests" ON)
option(MS_BUILD_BENCH "Build the benchmarks" OFF)
option(MS_WITH_ONEDNN "GEMM through oneDNN; OFF leaves Eigen3, a full portable alternative" ON)
option(MS_WITH_MPI "Build mstrain, and the modules that load MPI; OFF builds msckpt, msprof and msdata alone" ON)
option(MS_STATIC "Link fully static, to run on any Linux, mstrain on one rank; needs MS_WITH_MPI=OFF (tools/dev/wheel)" OFF)
option(MS_WARNINGS_AS_ERRORS "Treat warnings as errors (CI does)" OFF)
option(MS_FUZZ "Fuzz targets search with libFuzzer instead of replaying their corpus; needs clang" OFF)
set(MS_SANITIZE "" CACHE STRING "Sanitizers to build with, for example address,undefined or thread")
set(MS_TRACE_DATA "${CMAKE_SOURCE_DIR}/../shared/traces" CACHE PATH "Traces of other tools; tests that want them are skipped without")

if(NOT MS_WITH_MPI AND (MS_BUILD_TESTS OR MS_BUILD_BENCH))
  message(FATAL_ERROR "MS_WITH_MPI=OFF builds the tools alone: add -DMS_BUILD_TESTS=OFF -DMS_BUILD_BENCH=OFF")
endif()
if(MS_STATIC AND (MS_WITH_MPI OR MS_WITH_ONEDNN))
  message(FATAL_ERROR "MS_STATIC: MPI and oneDNN are shared libraries; add -DMS_WITH_MPI=OFF -DMS_WITH_ONEDNN=OFF")
endif()
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_FLAGS_RELEASE "-O3")  # MS_CHECK stays active, so NDEBUG would only hide the libraries' asserts
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON)  # clusters keep MPI and HDF5 in folders of their own
set(CMAKE_BUILD_WITH_INSTALL_RPATH ON)     # else an empty entry keeps room in it, which means the current folder
find_program(MS_CCACHE ccache)
if(MS_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${MS_CCACHE}")
endif()
# What nearly every file includes is parsed once, a third of a clean build's time. ccache can do little with it, and
# where it is, the build sees that every file includes what it needs.
if(MS_CCACHE OR CMAKE_CXX_COMPILER_LAUNCHER OR NOT CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  set(precompile OFF)
else()
  set(precompile ON)
endif()
option(MS_PRECOMPILED_HEADERS "Parse common headers once; OFF where there is ccache" ${precompile})
# Files of a target that may stand in one translation unit, eight at a time: the option parser alone is 90 KB of code in
# every verb. After a change all eight compile again.
option(MS_UNITY_BUILD "Compile small files of a target together; OFF where there is ccache" ${precompile})
set(MS_COMMON_HEADERS <algorithm> <array> <cmath> <cstdint> <cstring> <filesystem> <functional> <map> <memory> <mutex>
                      <optional> <set> <span> <string> <string_view> <unordered_map> <utility> <vector>
                      <nlohmann/json.hpp>)

add_compile_options(-fmacro-prefix-map=${CMAKE_SOURCE_DIR}/=)  # __FILE__ begins at the repository's root on every machine
set(MS_WARNING_FLAGS -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Wno-missing-field-initializers)
if(MS_WARNINGS_AS_ERRORS)
  list(APPEND MS_WARNING_FLAGS -Werror)
endif()
if(MS_SANITIZE OR MS_FUZZ)
  set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O1 -g1")  # -O2 -g finds no more, and compiles for twice as long
endif()
if(MS_SANITIZE)
  add_compile_options(-fsanitize=${MS_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${MS_SANITIZE})
endif()
if(MS_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link,address,undefined -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=address,undefined)
endif()
# What is tested is optimised; the tests around it need not be, and compile twice as fast.
set(MS_TEST_OPTIMISATION $<$<CONFIG:Release>:-O1>)
if(MS_SANITIZE)
  set(MS_TEST_OPTIMISATION -O0)
endif()
add_link_options(-Wl,--as-needed)  # msckpt and msprof use parts of core only: they must not load MPI for the rest

# ms_precompile(<target> <first target of its kind> <headers>): the first of a kind, whose flags all have, parses them.
# GCC 12 no longer knows then that they are the system's, and warns of what it inlines of them.
function(ms_precompile target first)
  if(NOT MS_PRECOMPILED_HEADERS)
    return()
  endif()
  target_compile_options(${target} PRIVATE -Wno-array-bounds -Wno-dangling-pointer -Wno-free-nonheap-object
                         -Wno-maybe-uninitialized -Wno-nonnull -Wno-restrict -Wno-stringop-overflow -Wno-stringop-overread)
  if(target STREQUAL first)
    target_precompile_headers(${target} PRIVATE ${ARGN})
  else()
    target_precompile_headers(${target} REUSE_FROM ${first})
  endif()
endfunction()

function(ms_unity_build target)
  if(MS_UNITY_BUILD)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
    # GCC takes the files for headers, whose classes must not hold types of an anonymous namespace.
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
  endif()
endfunction()

function(ms_check_uses target module)
  foreach(used IN LISTS ARGN)
    if(NOT used IN_LIST MS_MAY_USE_${module})
      message(FATAL_ERROR "${target}: module ${module} may not use ${used}; the graph is in tools/cmake/ms.cmake")
    endif()
  endforeach()
endfunction()

# ms_library(<module> SOURCES a.cpp... [USES modules...] [LINKS external targets...] [UNITY])
# UNITY: no two of its files define the same name in an anonymous namespace.
function(ms_library module)
  cmake_parse_arguments(ARG "UNITY" "" "SOURCES;USES;LINKS" ${ARGN})
  ms_check_uses(ms_${module} ${module} ${ARG_USES})
  add_library(ms_${module} STATIC ${ARG_SOURCES})
  add_library(msuite::${module} ALIAS ms_${module})
  set_target_properties(ms_${module} PROPERTIES EXPORT_NAME ${module})
  target_include_directories(ms_${module} PUBLIC $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}>
                                                 $<INSTALL_INTERFACE:include/msuite>)
  target_compile_options(ms_${module} PRIVATE ${MS_WARNING_FLAGS})
  target_compile_features(ms_${module} PUBLIC cxx_std_20)
  list(TRANSFORM ARG_USES PREPEND ms_)
  target_link_libraries(ms_${module} PUBLIC ${ARG_USES} PRIVATE ${ARG_LINKS})
  if(ARG_UNITY)
    ms_unity_build(ms_${module})
  endif()
  if(NOT module STREQUAL kernels)  # whose files include little, and set flags of their own
    ms_precompile(ms_${module} ms_core ${MS_COMMON_HEADERS})
  endif()
  if(MS_WITH_MPI)  # else the tools alone are installed
    install(TARGETS ms_${module} EXPORT msuiteTargets ARCHIVE DESTINATION lib COMPONENT development)
  endif()
endfunction()

# Of a program or a module: leaves in its RUNPATH only folders with libraries that it needs.
function(ms_shorten_runpath target)
  if(CMAKE_READELF AND NOT MS_STATIC)
    add_custom_command(TARGET ${target} POST_BUILD VERBATIM
                       COMMAND ${CMAKE_COMMAND} -DMS_PROGRAM=$<TARGET_FILE:${target}> -DMS_READELF=${CMAKE_READELF}
                               -P ${CMAKE_SOURCE_DIR}/tools/cmake/runpath.cmake)
  endif()
endfunction()

# ms_tool(<binary> SOURCES mstrain.cpp... USES modules... [COMPONENT tools]): one program, wiring only, which gains nothing
# from -O3. The first tool declared precompiles the headers of all. Installed with its manual page and completions.
function(ms_tool name)
  cmake_parse_arguments(ARG "" "COMPONENT" "SOURCES;USES;LINKS" ${ARGN})
  if(NOT ARG_COMPONENT)
    set(ARG_COMPONENT tools)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR})
  target_compile_options(${name} PRIVATE ${MS_WARNING_FLAGS} $<$<CONFIG:Release>:-O1>)
  list(TRANSFORM ARG_USES PREPEND ms_)
  target_link_libraries(${name} PRIVATE ms_tool_guard ${ARG_USES} ${ARG_LINKS})
  ms_unity_build(${name})
  get_property(first GLOBAL PROPERTY MS_FIRST_TOOL)
  if(NOT first)
    set(first ${name})
    set_property(GLOBAL PROPERTY MS_FIRST_TOOL ${first})
  endif()
  ms_precompile(${name} ${first} <CLI/CLI.hpp> ${MS_COMMON_HEADERS})
  if(MS_STATIC)
    target_link_options(${name} PRIVATE -static)
  endif()
  ms_shorten_runpath(${name})
  install(TARGETS ${name} RUNTIME DESTINATION bin COMPONENT ${ARG_COMPONENT})
  install(CODE "set(MS_PROGRAM \"$<TARGET_FILE:${name}>\")\n include(\"${CMAKE_SOURCE_DIR}/tools/cmake/reference.cmake\")"
          COMPONENT ${ARG_COMPONENT})
endfunction()

# ms_test(<path without _test.cpp> USES modules... [RANKS 1 2 4] [ISAS scalar avx2 ...] [LINKS ...] [SOURCES ...]
#         [TIMEOUT s] [LABELS ...] [NIGHTLY s])
# One executable; one ctest per rank count (under mpirun, name.rN) or instruction set (under MS_FORCE_ISA, name.ISA).
# NIGHTLY: also name.nightly, label nightly, with MS_NIGHTLY=1, by which the test does more, within s seconds.
# MS_TEST_DATA and MS_BIN tell a test where its data and the binaries are.
function(ms_test path)
  cmake_parse_arguments(ARG "" "TIMEOUT;NIGHTLY" "USES;LINKS;RANKS;ISAS;SOURCES;LABELS" ${ARGN})
  string(REPLACE "/" "." name ${path})
  set(target test.${name})
  add_executable(${target} ${CMAKE_SOURCE_DIR}/tests/${path}_test.cpp ${ARG_SOURCES})
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR})
  target_compile_options(${target} PRIVATE ${MS_WARNING_FLAGS} ${MS_TEST_OPTIMISATION})
  target_compile_definitions(${target} PRIVATE MS_TEST_DATA="${CMAKE_SOURCE_DIR}/tests/data"
                             MS_TRACE_DATA="${MS_TRACE_DATA}" MS_BIN="${CMAKE_BINARY_DIR}/bin")
  list(TRANSFORM ARG_USES PREPEND ms_)
  target_link_libraries(${target} PRIVATE ${ARG_USES} ${ARG_LINKS} GTest::gmock GTest::gtest)
  get_property(first GLOBAL PROPERTY MS_FIRST_TEST)
  if(NOT first)
    set(first ${target})
    set_property(GLOBAL PROPERTY MS_FIRST_TEST ${first})
  endif()
  ms_precompile(${target} ${first} ${MS_COMMON_HEADERS} <gmock/gmock.h> <gtest/gtest.h>)
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  if(ARG_RANKS)
    target_link_libraries(${target} PRIVATE ms_test_mpi_main)
    foreach(ranks IN LISTS ARG_RANKS)
      add_test(NAME ${name}.r${ranks} COMMAND ${MS_MPIRUN} -n ${ranks} $<TARGET_FILE:${target}>)
      ms_test_properties(${name}.r${ranks} ${ARG_TIMEOUT} "${ARG_LABELS}" "${MS_MPI_ENV}")
    endforeach()
  elseif(ARG_ISAS)
    target_link_libraries(${target} PRIVATE GTest::gtest_main)
    foreach(isa IN LISTS ARG_ISAS)
      add_test(NAME ${name}.${isa} COMMAND ${target})
      ms_test_properties(${name}.${isa} ${ARG_TIMEOUT} "${ARG_LABELS}" "MS_FORCE_ISA=${isa}")
      set_tests_properties(${name}.${isa} PROPERTIES SKIP_RETURN_CODE 77)
    endforeach()
  else()
    target_link_libraries(${target} PRIVATE GTest::gtest_main)
    add_test(NAME ${name} COMMAND ${target})
    ms_test_properties(${name} ${ARG_TIMEOUT} "${ARG_LABELS}" "${MS_MPI_ENV}")
  endif()
  if(ARG_NIGHTLY)
    add_test(NAME ${name}.nightly COMMAND ${target})
    ms_test_properties(${name}.nightly ${ARG_NIGHTLY} "${ARG_LABELS};nightly" "${MS_MPI_ENV};MS_NIGHTLY=1")
  endif()
endfunction()

function(ms_test_properties name timeout labels environment)
  if(MS_SANITIZE)
    math(EXPR timeout "10 * ${timeout}")  # what a thread sanitizer costs; address and undefined a third of it
    list(APPEND environment "MS_SLOWER=5"  # likewise, for what scripts wait for
                            "ASAN_OPTIONS=allocator_may_return_null=1"
                            "TSAN_OPTIONS=allocator_may_return_null=1:suppressions=${CMAKE_SOURCE_DIR}/tests/support/tsan.supp"
                            "LSAN_OPTIONS=suppressions=${CMAKE_SOURCE_DIR}/tests/support/lsan.supp:print_suppressions=0")
  endif()
  set_tests_properties(${name} PROPERTIES TIMEOUT ${timeout} ENVIRONMENT "${environment}"
                       SKIP_REGULAR_EXPRESSION "^SKIPPED")
  if(labels)
    set_tests_properties(${name} PROPERTIES LABELS "${labels}")
  endif()
endfunction()

# ms_script_test(<name> COMMAND ... [TIMEOUT s] [LABELS ...]): a script is the test; exit 77 means SKIPPED, and says why.
function(ms_script_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "COMMAND;LABELS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  add_test(NAME ${name} COMMAND ${ARG_COMMAND})
  set(environment ${MS_MPI_ENV} "MS_BIN=${CMAKE_BINARY_DIR}/bin" "MS_SOURCE=${CMAKE_SOURCE_DIR}"
                  "MS_BUILD=${CMAKE_BINARY_DIR}" "MS_TRACE_DATA=${MS_TRACE_DATA}")
  ms_test_properties(${name} ${ARG_TIMEOUT} "${ARG_LABELS}" "${environment}")
  set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77)
endfunction()

# ms_fuzz(<reader> USES modules... [LINKS external targets...] [RUNS n] [RANDOM n] [BASE_MIB n])
# tests/fuzz/<reader>_fuzz.cpp has libFuzzer's entry point. fuzz.<reader> replays tests/fuzz/corpus/<reader> and
# mutations of it that are always the same (tests/fuzz/replay.cpp); fuzz.<reader>.all, nightly, leaves none of them out.
# RANDOM: also fuzz.<reader>.random, nightly: so many inputs with a few random changes each.
# BASE_MIB: of memory that a run may ask for whatever its input (24).
# With MS_FUZZ the program is libFuzzer's, and is run by hand (tests/README.md).
function(ms_fuzz reader)
  cmake_parse_arguments(ARG "" "RUNS;RANDOM;BASE_MIB" "USES;LINKS" ${ARGN})
  set(target fuzz.${reader})
  add_executable(${target} ${CMAKE_SOURCE_DIR}/tests/fuzz/${reader}_fuzz.cpp)
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR})
  target_compile_options(${target} PRIVATE ${MS_WARNING_FLAGS} ${MS_TEST_OPTIMISATION})
  target_compile_definitions(${target} PRIVATE MS_TEST_DATA="${CMAKE_SOURCE_DIR}/tests/data")
  list(TRANSFORM ARG_USES PREPEND ms_)
  target_link_libraries(${target} PRIVATE ${ARG_USES} ${ARG_LINKS})
  if(MS_FUZZ)
    target_link_options(${target} PRIVATE -fsanitize=fuzzer)
    return()
  endif()
  target_sources(${target} PRIVATE ${CMAKE_SOURCE_DIR}/tests/fuzz/replay.cpp)
  if(NOT ARG_BASE_MIB)
    set(ARG_BASE_MIB 24)
  endif()
  target_compile_definitions(${target} PRIVATE MS_FUZZ_BASE_MIB=${ARG_BASE_MIB})
  set(corpus ${CMAKE_SOURCE_DIR}/tests/fuzz/corpus/${reader})
  add_test(NAME fuzz.${reader} COMMAND ${target} ${corpus})
  add_test(NAME fuzz.${reader}.all COMMAND ${target} ${corpus})
  if(ARG_RUNS)
    set(ARG_RUNS MS_FUZZ_RUNS=${ARG_RUNS})
  endif()
  ms_test_properties(fuzz.${reader} 120 "" "${ARG_RUNS}")
  ms_test_properties(fuzz.${reader}.all 3600 nightly MS_FUZZ_RUNS=0)
  if(ARG_RANDOM)
    add_test(NAME fuzz.${reader}.random COMMAND ${target} ${corpus})
    ms_test_properties(fuzz.${reader}.random 3600 nightly MS_FUZZ_RANDOM=${ARG_RANDOM})
  endif()
endfunction()

# ms_bench(<path without _bench.cpp> USES modules...): one program of Google Benchmark, not a test.
function(ms_bench path)
  cmake_parse_arguments(ARG "" "" "USES;LINKS" ${ARGN})
  string(REPLACE "/" "." name ${path})
  add_executable(bench.${name} ${CMAKE_SOURCE_DIR}/bench/${path}_bench.cpp)
  set_target_properties(bench.${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bench)
  target_include_directories(bench.${name} PRIVATE ${CMAKE_SOURCE_DIR})
  target_compile_options(bench.${name} PRIVATE ${MS_WARNING_FLAGS})
  list(TRANSFORM ARG_USES PREPEND ms_)
  target_link_libraries(bench.${name} PRIVATE ms_bench_support ${ARG_USES} ${ARG_LINKS})
endfunction()
