# Part of msuite; see LICENSE at the root of its sources.
#
# SPDX-License-Identifier: Apache-2.0

import os

from spack_repo.builtin.build_systems.cmake import CMakePackage

from spack.package import *


class Msuite(CMakePackage):
    """Training of language models on CPU clusters (mstrain), conversion of their checkpoints
    (msckpt), analysis of traces (msprof) and data sets (msdata)."""

    # The checkout that this recipe is part of.
    checkout = os.path.realpath(os.path.join(os.path.dirname(__file__), "../../../../.."))
    homepage = "file://" + checkout
    git = "file://" + checkout

    license("Apache-2.0", checked_by="msuite")

    version("main", branch="main")

    variant("mpi", default=True, description="Build mstrain, and the tools' support of mpirun")
    variant("onednn", default=True, when="+mpi", description="Matrix products by oneDNN, else Eigen")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("ninja", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("gzip", type="build")
    depends_on("cli11@2:", type="build")
    depends_on("nlohmann-json", type="build")
    depends_on("eigen@3.3:3", type="build")

    depends_on("hdf5@1.10:~mpi")
    depends_on("isa-l")
    depends_on("liburing")
    depends_on("libyaml")
    depends_on("openssl@3:")
    depends_on("sentencepiece")
    depends_on("sqlite@3:")
    depends_on("xxhash@0.8:")
    depends_on("zstd")
    depends_on("mpi@3.1:", when="+mpi")
    depends_on("onednn@2", when="+onednn")

    generator("ninja")
    conflicts("%gcc@:11", msg="C++20 as GCC 12 has it")
    conflicts("platform=darwin", msg="Linux only: io_uring, /proc")
    requires("target=x86_64:", msg="Kernels are written for x86-64")

    def cmake_args(self):
        return [
            self.define("MS_BUILD_TESTS", False),
            self.define_from_variant("MS_WITH_MPI", "mpi"),
            self.define("MS_WITH_ONEDNN", self.spec.satisfies("+onednn")),
        ]

    def setup_run_environment(self, env):
        env.prepend_path("HDF5_PLUGIN_PATH", self.prefix.lib.msuite.hdf5)
