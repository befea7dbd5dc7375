from spack_repo.builtin.build_systems.cmake import CMakePackage, generator
from spack_repo.builtin.build_systems.cuda import CudaPackage

from spack.package import *


class Lockstep(CMakePackage, CudaPackage):
    """Synchronous data-parallel training of image networks over MPI, on processors with
    oneDNN and on GPUs with cuDNN and NCCL."""

    # There is no public address to fetch from. Build a checkout (spack develop, or dev_path= in
    # the spec), or name the site's own repository in packages.yaml, under package_attributes.

    # The project's own name.
    maintainers("lockstep")

    license("Apache-2.0")

    version("main", branch="main")

    # Options of CMakeLists.txt; +cuda and cuda_arch come with CudaPackage.
    variant("tests", default=False, description="Build the tests")
    variant("asserts", default=False, description="Keep assertions in every build type")
    variant("warnings_as_errors", default=False, description="Treat compiler warnings as errors")
    variant("fuzzers", default=False, description="Build the libFuzzer targets")
    variant(
        "sanitize",
        default="none",
        values=("none", "address", "thread"),
        multi=False,
        description="Sanitizers: of addresses and undefined behaviour, or of threads",
    )
    variant(
        "module_depends",
        default="none",
        multi=True,
        description="Modules that the installed modulefiles load first",
    )
    variant(
        "module_conflicts",
        default="none",
        multi=True,
        description="Modules that the installed modulefiles exclude",
    )

    generator("ninja")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("mpi@3:")
    depends_on("hdf5@1.10:")
    depends_on("boost@1.74:+program_options")
    depends_on("onednn@2.6:3 cpu_runtime=omp")
    depends_on("hwloc@2.1:2")
    depends_on("nlohmann-json@3.10:")
    depends_on("fmt@9:")
    depends_on("spdlog@1.10:")
    depends_on("openssl@1.1.1:")
    depends_on("zlib-api")
    depends_on("jpeg")
    depends_on("libpng@1.6:")
    with when("+tests"):
        depends_on("boost+test")
        depends_on("python@3.9:", type=("build", "test"))
        depends_on("py-h5py", type=("build", "test"))
        depends_on("py-torch", type=("build", "test"))
    with when("+cuda"):
        depends_on("cuda@12.8:")
        depends_on("cudnn@9:")
        depends_on("cudnn-frontend@1.15:")
        depends_on("nccl@2.22:")
        # NCCL is built for the same GPUs.
        for arch in CudaPackage.cuda_arch_values:
            depends_on(f"nccl cuda_arch={arch}", when=f"cuda_arch={arch}")

    conflicts("cuda_arch=none", when="+cuda", msg="Name the GPUs, as in cuda_arch=90a")
    for arch in CudaPackage.cuda_arch_values:
        if int(arch.rstrip("af")) < 80:
            conflicts(
                f"cuda_arch={arch}", when="+cuda", msg="GPUs older than 8.0 are not supported"
            )
    conflicts("%gcc@:11", msg="GCC 12 is the oldest that it is built and tested with")
    conflicts("+fuzzers", when="%gcc", msg="libFuzzer comes with Clang")
    conflicts("sanitize=thread", when="+cuda", msg="The GPU module is not built with sanitizers")
    conflicts("sanitize=address", when="+cuda", msg="The GPU module is not built with sanitizers")

    def cmake_args(self):
        sanitizers = {"none": "", "address": "address,undefined", "thread": "thread"}
        args = [
            self.define_from_variant("LOCKSTEP_BUILD_TESTS", "tests"),
            self.define_from_variant("LOCKSTEP_ASSERTS", "asserts"),
            self.define_from_variant("LOCKSTEP_WARNINGS_AS_ERRORS", "warnings_as_errors"),
            self.define_from_variant("LOCKSTEP_FUZZERS", "fuzzers"),
            self.define("LOCKSTEP_SANITIZE", sanitizers[self.spec.variants["sanitize"].value]),
            # Never AUTO: what is built is what the spec says.
            self.define_from_variant("LOCKSTEP_CUDA", "cuda"),
            self.define("LOCKSTEP_MODULE_DEPENDS", self._names("module_depends")),
            self.define("LOCKSTEP_MODULE_CONFLICTS", self._names("module_conflicts")),
        ]
        if self.spec.satisfies("+tests"):
            args.append(self.define("LOCKSTEP_PYTHON", self.spec["python"].command.path))
        if self.spec.satisfies("+cuda"):
            frontend = self.spec["cudnn-frontend"].prefix.include
            architectures = [f"{arch}-real" for arch in self.spec.variants["cuda_arch"].value]
            args.append(self.define("CUDNN_ROOT", self.spec["cudnn"].prefix))
            args.append(self.define("CUDNN_FRONTEND_INCLUDE_DIR", frontend))
            args.append(self.define("NCCL_ROOT", self.spec["nccl"].prefix))
            args.append(self.define("LOCKSTEP_CUDA_ARCHITECTURES", architectures))
        return args

    def _names(self, variant):
        """The values of a variant, nothing for none."""
        return [name for name in self.spec.variants[variant].value if name != "none"]

    def setup_run_environment(self, env):
        env.set("LOCKSTEP_ROOT", self.prefix)
        env.set("LOCKSTEP_SLURM", self.prefix.share.lockstep.slurm)

    def test_version(self):
        """the installed program starts and says its version"""
        lockstep = which(join_path(self.prefix.bin, "lockstep"), required=True)
        assert "lockstep" in lockstep("--version", output=str.split, error=str.split)
