#include "core/comm/launcher.h"

#include <dlfcn.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "core/error.h"

namespace ms::core {
namespace {

// Environment variables by which launchers assign a process its job and rank.
constexpr const char* kRankNames[] = {"PMIX_NAMESPACE", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK"};

}  // namespace

bool launched_by_mpi() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK"}) {
    if (std::getenv(name) != nullptr) return true;
  }
  return false;
}

std::string explain_lonely_task() {
  const char* const tasks = std::getenv("SLURM_STEP_NUM_TASKS");  // of srun's step; a batch script has none
  if (tasks == nullptr || launched_by_mpi() || std::strtol(tasks, nullptr, 10) < 2) return "";
  return cat("srun started ", tasks,
             " tasks without PMIx, which would each train alone: use srun --mpi=pmix (or, for that, unset "
             "SLURM_STEP_NUM_TASKS)");
}

bool started_by_a_rank() {
  // Empty for a launcher of another user (slurmstepd), whose environment is not readable.
  std::ifstream environment(cat("/proc/", ::getppid(), "/environ"), std::ios::binary);
  std::vector<std::string> parent;
  for (std::string entry; std::getline(environment, entry, '\0');) parent.push_back(std::move(entry));
  bool named = false;
  for (const char* name : kRankNames) {
    const char* const value = std::getenv(name);
    if (value == nullptr) continue;
    named = true;
    if (std::find(parent.begin(), parent.end(), cat(name, '=', value)) == parent.end()) return false;
  }
  return named;
}

std::filesystem::path library_of_ours(std::string_view name) {
  std::error_code error;
  std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) {  // /proc is not mounted: the name that the kernel was given to execute
    const auto* const given = reinterpret_cast<const char*>(::getauxval(AT_EXECFN));
    if (given != nullptr) program = std::filesystem::canonical(given, error);
  }
  return program.parent_path().parent_path() / "lib/msuite" / name;
}

std::unique_ptr<RankSession> load_mpi_session(MpiThreads threads) {
  const std::filesystem::path library = library_of_ours("libmsuite_mpi.so");
  void* const handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);  // never closed
  void* const make = handle != nullptr ? ::dlsym(handle, "msuite_make_mpi_session") : nullptr;
  if (make == nullptr) {
    throw Error(ErrorCode::kUnsupported, cat("started as an MPI rank, but cannot load MPI: ", ::dlerror()));
  }
  // A library of another build would be called with other functions and arguments.
  void* const interface = ::dlsym(handle, "msuite_mpi_interface");
  if (interface == nullptr || reinterpret_cast<const char* (*)()>(interface)() != std::string_view(MS_MPI_INTERFACE)) {
    throw Error(ErrorCode::kUnsupported, cat("started as an MPI rank, but ", library.string(),
                                             " is of another version of msuite: install both from one build"));
  }
  return std::unique_ptr<RankSession>(reinterpret_cast<RankSession* (*)(MpiThreads)>(make)(threads));
}

}  // namespace ms::core
