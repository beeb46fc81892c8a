#include "core/comm/launcher.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>

#include "core/error.h"

namespace ms::core {

bool launched_by_mpi() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK"}) {
    if (std::getenv(name) != nullptr) return true;
  }
  return false;
}

std::unique_ptr<RankSession> load_mpi_session() {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::filesystem::path library = program.parent_path().parent_path() / "lib/msuite/libmsuite_mpi.so";
  void* const handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);  // stays till the end
  void* const make = handle != nullptr ? ::dlsym(handle, "msuite_make_mpi_session") : nullptr;
  if (make == nullptr) {
    throw Error(ErrorCode::kUnsupported, cat("started as a rank of MPI, but ", ::dlerror()));
  }
  return std::unique_ptr<RankSession>(reinterpret_cast<RankSession* (*)()>(make)());
}

}  // namespace ms::core
