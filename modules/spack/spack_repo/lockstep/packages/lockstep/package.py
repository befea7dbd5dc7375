import pathlib

from spack_repo.builtin.build_systems.cmake import CMakePackage, generator
from spack_repo.builtin.build_systems.cuda import CudaPackage

from spack.package import *

# The checkout that this recipe lies in. A site that copies the recipe names the place of its own copy of the source here.
SOURCE = pathlib.Path(__file__).resolve().parents[6]


class Lockstep(CMakePackage, CudaPackage):
    """Synchronous data-parallel training of residual networks over MPI, on processors with oneDNN and on GPUs with cuDNN
    and NCCL."""

    homepage = SOURCE.as_uri()
    git = SOURCE.as_uri()

    version("main", branch="main")

    # One for each option of CMakeLists.txt; +cuda and cuda_arch come with CudaPackage.
    variant("tests", default=False, description="Build the tests")
    variant("warnings_as_errors", default=False, description="Treat compiler warnings as errors")
    variant("fuzzers", default=False, description="Build the libFuzzer targets")
    variant(
        "sanitize",
        default="none",
        values=("none", "address", "thread"),
        multi=False,
        description="Sanitizers: of addresses and undefined behaviour, or of threads",
    )
    variant("python", default="auto", description="Python with h5py and torch, for the tests; auto: Spack's")
    variant("mpirun", default="auto", description="The launcher the tests use, less -n N; auto: as CMake finds it")
    variant("module_depends", default="none", multi=True, description="Modules that the installed modulefiles load first")
    variant("module_conflicts", default="none", multi=True, description="Modules that the installed modulefiles exclude")
    variant(
        "cudnn_frontend",
        default="auto",
        when="+cuda",
        description="Directory of cudnn-frontend's headers; auto: where CMake finds them",
    )

    generator("ninja")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("mpi@3:")
    depends_on("hdf5@1.10:~mpi")
    depends_on("boost@1.74:+program_options")
    depends_on("onednn@2.6:2 cpu_runtime=omp")
    depends_on("nlohmann-json@3.10:")
    depends_on("fmt@9:")
    depends_on("spdlog@1.10:")
    depends_on("openssl@1.1.1:")
    depends_on("zlib-api")
    depends_on("libjpeg-turbo")
    depends_on("libpng@1.6:")
    with when("+tests"):
        depends_on("boost+test")
        depends_on("python@3.9:", type=("build", "test"))
        depends_on("py-h5py", type=("build", "test"))
        depends_on("py-torch", type=("build", "test"))
    with when("+cuda"):
        depends_on("cuda@12.8:")
        depends_on("cudnn@9:")
        depends_on("nccl@2.22:")

    conflicts("%gcc@:11", msg="GCC 12 is the oldest that it is built and tested with")
    conflicts("+fuzzers", when="%gcc", msg="libFuzzer comes with Clang")
    conflicts("sanitize=thread", when="+cuda", msg="The GPU module cannot be built with sanitizers")
    conflicts("sanitize=address", when="+cuda", msg="The GPU module cannot be built with sanitizers")

    def cmake_args(self):
        sanitizers = {"none": "", "address": "address,undefined", "thread": "thread"}
        args = [
            self.define_from_variant("LOCKSTEP_BUILD_TESTS", "tests"),
            self.define_from_variant("LOCKSTEP_WARNINGS_AS_ERRORS", "warnings_as_errors"),
            self.define_from_variant("LOCKSTEP_FUZZERS", "fuzzers"),
            self.define("LOCKSTEP_SANITIZE", sanitizers[self.spec.variants["sanitize"].value]),
            # Never AUTO: what is built is what the spec says.
            self.define_from_variant("LOCKSTEP_CUDA", "cuda"),
            self.define("LOCKSTEP_MODULE_DEPENDS", self._names("module_depends")),
            self.define("LOCKSTEP_MODULE_CONFLICTS", self._names("module_conflicts")),
        ]
        if not self.spec.satisfies("python=auto"):
            args.append(self.define_from_variant("LOCKSTEP_PYTHON", "python"))
        elif self.spec.satisfies("+tests"):
            args.append(self.define("LOCKSTEP_PYTHON", self.spec["python"].command.path))
        if not self.spec.satisfies("mpirun=auto"):
            # A list for CMake: one word an element.
            args.append(self.define("LOCKSTEP_MPIRUN", self.spec.variants["mpirun"].value.split()))
        if self.spec.satisfies("+cuda"):
            args.append(self.define("CUDNN_ROOT", self.spec["cudnn"].prefix))
            args.append(self.define("NCCL_ROOT", self.spec["nccl"].prefix))
            if not self.spec.satisfies("cuda_arch=none"):
                architectures = [f"{arch}-real" for arch in self.spec.variants["cuda_arch"].value]
                args.append(self.define("LOCKSTEP_CUDA_ARCHITECTURES", architectures))
            if not self.spec.satisfies("cudnn_frontend=auto"):
                args.append(self.define_from_variant("CUDNN_FRONTEND_INCLUDE_DIR", "cudnn_frontend"))
        return args

    def _names(self, variant):
        """The values of a variant, nothing for none."""
        return [name for name in self.spec.variants[variant].value if name != "none"]

    def setup_run_environment(self, env):
        env.set("LOCKSTEP_ROOT", self.prefix)

    def test_version(self):
        """the installed program starts and says its version"""
        lockstep = which(join_path(self.prefix.bin, "lockstep"), required=True)
        assert "lockstep" in lockstep("--version", output=str.split, error=str.split)
