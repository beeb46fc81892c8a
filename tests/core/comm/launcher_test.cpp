// What the variables of launchers say.
#include "core/comm/launcher.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <utility>
#include <vector>

namespace ms {
namespace {

const std::vector<const char*> kNames = {"OMPI_COMM_WORLD_SIZE",
                                         "OMPI_COMM_WORLD_RANK",
                                         "PMI_SIZE",
                                         "PMI_RANK",
                                         "PMIX_RANK",
                                         "PMIX_NAMESPACE",
                                         "SLURM_NTASKS",
                                         "SLURM_PROCID",
                                         "SLURM_STEP_NUM_TASKS"};

struct Launch {
  const char* what;
  std::vector<std::pair<const char*, const char*>> variables;
  bool by_mpi, is_lonely;
};

// As mpirun of Open MPI 4, MPICH's hydra and Slurm 22.05 set them.
const Launch kLaunches[] = {
    {"no launcher", {}, false, false},
    {"mpirun", {{"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_RANK", "1"}, {"PMIX_RANK", "1"}}, true, false},
    {"hydra", {{"PMI_SIZE", "2"}, {"PMI_RANK", "0"}}, true, false},
    {"srun --mpi=pmix",
     {{"PMIX_RANK", "1"}, {"PMIX_NAMESPACE", "slurm.pmix.5.0"}, {"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}},
     true,
     false},
    {"srun --mpi=pmi2", {{"PMI_SIZE", "2"}, {"PMI_RANK", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}}, true, false},
    {"srun --mpi=none", {{"SLURM_NTASKS", "2"}, {"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}}, false, true},
    {"srun --ntasks=1", {{"SLURM_NTASKS", "1"}, {"SLURM_STEP_NUM_TASKS", "1"}}, false, false},
    {"a script of sbatch", {{"SLURM_NTASKS", "8"}, {"SLURM_PROCID", "0"}}, false, false},
    {"mpirun in a script of srun",
     {{"OMPI_COMM_WORLD_SIZE", "2"}, {"PMIX_RANK", "0"}, {"SLURM_STEP_NUM_TASKS", "2"}},
     true,
     false},
};

TEST(Launcher, IsKnownByItsVariables) {
  for (const Launch& launch : kLaunches) {
    for (const char* name : kNames) ::unsetenv(name);
    for (const auto& [name, value] : launch.variables) ::setenv(name, value, 1);
    EXPECT_EQ(core::launched_by_mpi(), launch.by_mpi) << launch.what;
    EXPECT_EQ(!core::explain_lonely_task().empty(), launch.is_lonely) << launch.what;
  }
}

}  // namespace
}  // namespace ms
