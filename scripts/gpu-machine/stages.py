"""The stages of a run, those first that tell the most."""

import dataclasses
import os

from planner import Part, Stage

CORES = len(os.sched_getaffinity(0))
LOADERS = max(CORES - 1, 1)  # threads
SHAPES = {"resnet50": ("--image-size", "224", "--classes", "1000"), "resnet18": ("--image-size", "224", "--classes", "1000"),
          "mini-resnet": ("--image-size", "32", "--classes", "10")}


ALL_KERNELS = "lockstep"


@dataclasses.dataclass(frozen=True)
class Setting:
    """What the commands depend on. `small`: tiny networks and few steps, for a rehearsal with the host in a GPU's place."""

    bundle: str
    python: str
    ncu: str = "ncu"
    sanitizer: str = "compute-sanitizer"
    kernels: str = ALL_KERNELS  # a regular expression: those whose memory is checked
    baseline: str = ""  # the folder of another bundle
    small: bool = False


def bench(setting, page, model, batch, *options, steps=0, **part):
    """A part that runs `lockstep bench`."""
    shape = ("--width", "8", "--image-size", "16", "--classes", "10") if setting.small else SHAPES[model]
    counts = ("--steps", str(min(steps, 2) if setting.small else steps), "--warmup", "1" if setting.small else "10") if steps else ()
    folder = part.pop("folder", setting.bundle)
    return Part(command=(f"{folder}/run/lockstep", "bench", page, "--device", "cuda", "--model", "mini-resnet" if setting.small else model, *shape,
                         "--batch-size", "4" if setting.small else str(batch), *options, *counts, "--json"), **part)


def step(setting, name, model="resnet50", batch=256, precision="bf16", *options, steps=60, data="batch", **part):
    return bench(setting, "step", model, batch, "--precision", precision, "--input", data, *options, steps=steps, name=name, **part)


def test(setting, *programs):
    return tuple(Part(name, (f"{setting.bundle}/run/{name}", "--log_level=test_suite"), environment=(("XDG_CACHE_HOME", "{folder}/cache"),))
                 for name in programs)


def sanitized(setting, tool, programs, kernels):
    """Only our own kernels: racecheck reports hazards inside one of cuDNN's."""
    return tuple(Part(f"{tool}-{name}", (f"{setting.bundle}/run/any-of", setting.sanitizer, "--tool", tool, "--error-exitcode", "3",
                                         "--target-processes", "all", "--kernel-regex", f"kns={kernels}", f"{setting.bundle}/bin/{name}"))
                 for name in programs)


def headline(setting):
    """Both bundles in turn, so that a drift of the clocks meets both."""
    folders = {"new": setting.bundle, **({"baseline": setting.baseline} if setting.baseline else {})}
    return tuple(step(setting, f"{name} {turn}", steps=200, folder=folder, baseline=name == "baseline")
                 for turn in (1, 2) for name, folder in folders.items())


def two_ranks(setting):
    options = (("--width", "8", "--image-size", "16", "--batch-size", "4") if setting.small else
               ("--image-size", "32", "--batch-size", "64"))
    options = ("--model", "mini-resnet", "--classes", "10", "--synthetic-samples", "640" if setting.small else "10240", *options)
    # NCCL says its version, its transports and its choices.
    more = {"killed": ("--watchdog-seconds", "3" if setting.small else "10")}
    return tuple(Part(name, (setting.python, f"{setting.bundle}/two_ranks.py", name, "{folder}", *options, *more.get(name, ())), most=60,
                      environment=(("NCCL_DEBUG", "INFO"), ("NCCL_DEBUG_FILE", f"{{folder}}/{name}-%h-%p.txt")))
                 for name in ("mpi", "nccl", "hybrid", "killed", "library"))


def comparison(setting, cases, programs, rounds):
    if setting.small:
        cases = "mini-resnet:1:fp32"
    return Part("pytorch", (setting.python, f"{setting.bundle}/compare_pytorch_gpu.py", f"{setting.bundle}/run/lockstep", "{folder}/step.json",
                            "--cases", cases, "--programs", programs, "--rounds", str(1 if setting.small else rounds), "--budget", "{limit}",
                            "--steps", "2" if setting.small else "200"))


def peer(setting, variant):
    """PyTorch compiles, so that the comparison finds its kernels in its cache."""
    case = ("mini-resnet", "1", "fp32") if setting.small else ("resnet50", "256", "bf16")
    return Part("compile", (setting.python, f"{setting.bundle}/compare_pytorch_gpu.py", "--peer", *case, variant, "10"))


def profile(setting):
    """Time and traffic of each kernel of a step; the algorithms of convolutions are known from the stages before."""
    run = [word for word in step(setting, "ncu", "resnet50", 256, "bf16", "--no-cuda-graph", steps=0).command
           if word != "--json"]  # its rate would be that under the profiler
    return Part("ncu", (f"{setting.bundle}/run/any-of", setting.ncu, "--csv", "--page", "raw", "--print-units", "base", "--clock-control", "none",
                        "--cache-control", "none", "--metrics", "gpu__time_duration.sum,dram__bytes_read.sum,dram__bytes_write.sum",
                        "--log-file", "{folder}/kernels.csv", f"{setting.bundle}/bin/lockstep", *run[1:], "--steps", "1", "--warmup", "1"))


def decode(setting):
    """JPEG files, decoded by the loader and by nvJPEG: loading alone, and training."""
    counts = ("--batch-size", "8", "--steps", "2", "--warmup", "1") if setting.small else ("--batch-size", "256", "--steps", "20", "--warmup", "5")
    alone = [Part(f"{decoder} {threads} threads", (f"{setting.bundle}/run/lockstep", "bench", "decode", "--device", "cuda", "--decode", decoder,
                                                   "--loader-threads", str(threads), *counts, "--json"))
             for decoder in ("cpu", "gpu") for threads in sorted({2, max(CORES // 2, 2), LOADERS})]
    training = [step(setting, f"training {decoder}", "resnet50", 256, "bf16", "--decode", decoder, "--loader-threads", str(LOADERS), data="jpeg",
                     steps=25) for decoder in ("cpu", "gpu")]
    return alone[:1] if setting.small else alone + training  # each run makes its files for some seconds


def table(setting):
    """All stages, in the order in which they run."""
    def stage(name, least, most, parts, *needs, **how):
        return Stage(name, least, most, tuple(parts) if not isinstance(parts, Part) else (parts,), frozenset(needs), **how)

    def system(name):
        return Part(name, (setting.python, f"{setting.bundle}/tests/system/{name}.py"))

    first = ("--image-size", "16", "--width", "8") if setting.small else ("--image-size", "32")
    smoke = Part("step", (f"{setting.bundle}/run/lockstep", "bench", "step", "--device", "cuda", "--model", "mini-resnet", *first, "--classes", "10",
                          "--batch-size", "64", "--precision", "bf16", "--steps", "5", "--warmup", "3", "--json"))
    bf16 = ("--precision", "bf16")
    is_changed = setting.kernels != ALL_KERNELS
    memcheck = stage("memcheck", 40, 150, sanitized(setting, "memcheck", ["kernels_on_device_test"], setting.kernels), "compute-sanitizer", "changes")
    return (
        stage("machine", 2, 60, Part("machine", (f"{setting.bundle}/run/any-of", setting.python, f"{setting.bundle}/machine.py"))),
        stage("smoke", 5, 150, smoke),  # the first use of a machine's GPU and libraries may be slow
        stage("step", 25, 110, headline(setting), "smoke", timed=True),
        stage("ops", 15, 50, (bench(setting, "ops", "resnet50", 256, *bf16, name="resnet50"),
                              bench(setting, "ops", "mini-resnet", 512, *bf16, name="mini-resnet")), "smoke", timed=True),
        stage("loader", 80, 160, step(setting, "loader", "resnet50", 256, "bf16", "--loader-threads", str(LOADERS), data="loader",
                                      steps=2000), "smoke", timed=True),
        stage("kernels", 15, 120, test(setting, "kernels_on_device_test"), shares=True),
        stage("device", 20, 150, test(setting, "cuda_device_test", "nvjpeg_test"), shares=True),
        stage("conformance", 30, 200, test(setting, "engine_conformance_test", "engine_program_test"), shares=True),
        stage("pixels", 15, 120, test(setting, "pixel_input_test"), shares=True),
        stage("compile", 30, 150, peer(setting, "graphs"), "smoke", "torch", shares=True),
        stage("nccl", 30, 180, two_ranks(setting), "smoke", "hosts"),
        stage("pytorch", 45, 150, comparison(setting, "resnet50:256:bf16", "lockstep,graphs", 2), "smoke", "torch", timed=True),
        stage("precisions", 25, 150, (step(setting, each, precision=each, most=50) for each in ("fp16", "tf32", "fp32")), "smoke", timed=True),
        stage("batches", 10, 60, (step(setting, f"batch {batch}", batch=batch, steps=40) for batch in (512, 64)), "smoke", timed=True),
        stage("models", 15, 60, (step(setting, "resnet18", "resnet18", steps=100), step(setting, "mini-resnet", "mini-resnet", 512, steps=300)),
              "smoke", timed=True),
        stage("profile", 40, 120, profile(setting), "smoke", "ncu", timed=True),
        *((memcheck,) if is_changed else ()),
        stage("choices", 30, 90, (step(setting, name, "resnet50", 256, "bf16", f"--{name}") for name in
                                  ("conv-algorithm=direct", "no-deterministic", "no-cuda-graph")), "smoke", timed=True),
        stage("decode", 60, 200, decode(setting), "smoke", timed=True),
        stage("training", 150, 560, system("gpu_training_test"), "smoke", "fashion-mnist"),
        stage("system", 150, 560, system("device_test"), "smoke", "h5py"),
        stage("programs", 60, 300, sanitized(setting, "memcheck", ["engine_program_test", "pixel_input_test"], ALL_KERNELS), "compute-sanitizer"),
        *(() if is_changed else (memcheck,)),
        stage("races", 60, 400, (part for tool in ("racecheck", "synccheck") for part in
                                 sanitized(setting, tool, ["kernels_on_device_test"], "lockstep")), "compute-sanitizer"),
        stage("others", 100, 560, comparison(setting, "resnet50:256:bf16,mini-resnet:512:bf16,resnet18:256:bf16",
                                             "lockstep,compiled,graphs,eager", 1), "smoke", "torch", timed=True),
    )
