from spack_repo.builtin.build_systems.generic import Package

from spack.package import *


class CudnnFrontend(Package):
    """C++ headers over cuDNN's graph API."""

    homepage = "https://github.com/NVIDIA/cudnn-frontend"
    git = "https://github.com/NVIDIA/cudnn-frontend.git"

    # The project's own name; Spack's packages have none for these headers yet.
    maintainers("lockstep")

    license("MIT")

    version("1.23.0", tag="v1.23.0", commit="fb682ce761a2705e40f9b5d528737a3e0eb33cec")
    version("1.15.0", tag="v1.15.0", commit="0b1577c8c83401237d601d0d0db5210506705396")

    depends_on("cudnn@9:", type=("build", "link"))

    # Its CMake project builds Python bindings and samples; the headers are all that is used.
    def install(self, spec, prefix):
        install_tree("include", prefix.include)
